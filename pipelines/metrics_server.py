"""The running job for supervisors: Prometheus metrics and health over HTTP, and health as a file."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

Clock = Callable[[], float]


class JobHealth:
    """Whether every stream still gives signs of life.

    Args:
        stale_after_s: a stream of which nothing was heard for so long is stuck; an idle one is heard of.
        file: rewritten whole at every sign; its modification time tells of life too.
    """

    def __init__(self, stale_after_s: float, file: Path | None = None, clock: Clock = time.time) -> None:
        self._stale_after_s, self._file, self._clock = stale_after_s, file, clock
        self._lock = threading.Lock()
        self._heard: dict[str, float] = {}
        self._failed: dict[str, str] = {}

    def heard(self, stream: str) -> None:
        with self._lock:
            self._heard[stream] = self._clock()
        self._write()

    def failed(self, stream: str, cause: str) -> None:
        with self._lock:
            self._failed[stream] = cause
        self._write()

    def ended(self, stream: str) -> None:
        """Cleanly: it need not be heard of again."""
        with self._lock:
            self._heard.pop(stream, None)
        self._write()

    def state(self) -> dict[str, Any]:
        """``{"status": "ok"|"stuck"|"failed", "streams": {name: seconds since it was heard of}, "failed": {...}}``."""
        with self._lock:
            ages = {name: round(self._clock() - at, 1) for name, at in self._heard.items()}
            stuck = any(age > self._stale_after_s for age in ages.values())
            status = "failed" if self._failed else "stuck" if stuck else "ok"
            return {"status": status, "streams": ages, "failed": dict(self._failed)}

    def _write(self) -> None:
        if self._file is not None:
            beside = self._file.with_name(f"{self._file.name}.tmp")
            with contextlib.suppress(OSError):  # a full disk: the file's age tells
                beside.write_text(json.dumps(self.state()) + "\n", encoding="utf-8")
                beside.replace(self._file)


class JobMetrics:
    """The Prometheus metrics of one job."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        prefix, by = "telemetry_lake", ("stream",)
        self._batches = Counter(f"{prefix}_batches", "Micro-batches done", by, registry=self.registry)
        self._records = Counter(f"{prefix}_records", "Records or pushes taken", by, registry=self.registry)
        self._points = Counter(f"{prefix}_points", "Data points written", ("delta_status",), registry=self.registry)
        self._quarantined = Counter(f"{prefix}_quarantined", "Rows of quarantine written", registry=self.registry)
        self._broken = Counter(f"{prefix}_broken_rows", "Rows that break a rule", ("rule",), registry=self.registry)
        self._seconds = Gauge(f"{prefix}_batch_seconds", "Duration of the last batch", by, registry=self.registry)
        self._waiting = Gauge(f"{prefix}_waiting_records", "Records not taken yet", by, registry=self.registry)
        self._freshness = Gauge(f"{prefix}_freshness_seconds", "Age of the newest rows when they became visible",
                                registry=self.registry)  # fmt: skip
        self._state = Gauge(f"{prefix}_state_bytes", "Size of the operator's state", registry=self.registry)
        self._ended = Gauge(
            f"{prefix}_last_batch_timestamp_seconds", "End of the last batch", by, registry=self.registry
        )

    def add(self, row: Mapping[str, Any]) -> None:
        """A row of `pipeline_metrics`."""
        stream = row["stream"]
        self._batches.labels(stream).inc()
        self._records.labels(stream).inc(row["records"])
        self._seconds.labels(stream).set(row["seconds"])
        self._waiting.labels(stream).set(row["waiting"])
        self._ended.labels(stream).set(row["ended_at"].timestamp())
        for status, number in row["statuses"] or []:
            self._points.labels(status).inc(number)
        self._quarantined.inc(row["quarantined"] or 0)
        for rule, number in row["broken"] or []:
            self._broken.labels(rule).inc(number)
        if row["freshness_s"] is not None:
            self._freshness.set(row["freshness_s"])
        if row["state_bytes"] is not None:
            self._state.set(row["state_bytes"])

    def text(self) -> bytes:
        return generate_latest(self.registry)


class MetricsServer:
    """A context manager: ``/metrics`` (Prometheus text) and ``/health`` (JSON; 200 ok, 503 stuck or failed).

    Raises ``OSError`` when the address is taken.
    """

    def __init__(self, host: str, port: int, metrics: JobMetrics, health: JobHealth) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:  # the library's name
                if self.path == "/metrics":
                    self._answer(200, CONTENT_TYPE_LATEST, metrics.text())
                elif self.path == "/health":
                    state = health.state()
                    self._answer(
                        200 if state["status"] == "ok" else 503, "application/json", json.dumps(state).encode()
                    )
                else:
                    self._answer(404, "text/plain", b"there are /metrics and /health\n")

            def _answer(self, status: int, kind: str, content: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:
                """Scrapes are no news."""

        self._server = ThreadingHTTPServer((host, port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
