"""Serves the running job's Prometheus metrics and health over HTTP, and writes its health to a file."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.exposition import ThreadingWSGIServer

from kafka_telemetry_lake.pipelines.lake.durable import write_json
from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

Clock = Callable[[], float]


class JobHealth:
    """Tracks whether every stream still makes progress.

    Args:
        stale_after_s: a stream that hasn't reported for this long is stuck. Idle streams report too.
        file: rewritten at every report, so its modification time also shows that the job is alive.
    """

    def __init__(self, stale_after_s: float, file: Path | None = None, clock: Clock = time.time) -> None:
        self._stale_after_s, self._file, self._clock = stale_after_s, file, clock
        self._lock = threading.Lock()
        self._last_report: dict[str, float] = {}
        self._failed: dict[str, str] = {}
        self._companions: dict[str, str] = {}

    def reported(self, stream: str) -> None:
        """The stream started, reported progress or that it is idle. One that had failed was started again."""
        with self._lock:
            self._last_report[stream] = self._clock()
            self._failed.pop(stream, None)
        self._write()

    def failed(self, stream: str, cause: str) -> None:
        """The stream ended with an error."""
        with self._lock:
            self._failed[stream] = cause
        self._write()

    def ended(self, stream: str) -> None:
        """The stream ended cleanly; stop checking it for staleness."""
        with self._lock:
            self._last_report.pop(stream, None)
        self._write()

    def companion(self, name: str, problem: str | None) -> None:
        """A companion has failed and is started again, or (None) works. The status stays theirs."""
        with self._lock:
            if problem is None:
                self._companions.pop(name, None)
            else:
                self._companions[name] = problem[:300]
        self._write()

    def state(self) -> dict[str, Any]:
        """The status of the streams: ``ok``, ``stuck`` or ``failed``, and reasons.

        ``streams``: seconds since the last report of each; ``failed`` and ``companions``: why each of them fails.
        """
        with self._lock:
            ages = {name: round(self._clock() - at, 1) for name, at in self._last_report.items()}
            stuck = any(age > self._stale_after_s for age in ages.values())
            status = "failed" if self._failed else "stuck" if stuck else "ok"
            failing = {"failed": dict(self._failed), "companions": dict(self._companions)}
            return {"status": status, "streams": ages, **failing}

    def _write(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):  # on a full disk the file's age shows the problem
                write_json(*filesystem_of(str(self._file)), self.state(), durable=False)


class JobMetrics:
    """The Prometheus metrics of one job."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        prefix, by = "telemetry_lake", ("stream",)
        self._batches = Counter(f"{prefix}_batches", "Micro-batches done", by, registry=self.registry)
        self._records = Counter(f"{prefix}_records", "Records or pushes read", by, registry=self.registry)
        self._points = Counter(f"{prefix}_points", "Data points written", ("delta_status",), registry=self.registry)
        self._quarantined = Counter(f"{prefix}_quarantined", "Quarantine rows written", registry=self.registry)
        self._set_aside = Counter(f"{prefix}_set_aside", "Pushes that could not be processed", registry=self.registry)
        self._broken = Counter(f"{prefix}_broken_rows", "Rows that break a rule", ("rule",), registry=self.registry)
        self._seconds = Gauge(f"{prefix}_batch_seconds", "Duration of the last batch", by, registry=self.registry)
        self._waiting = Gauge(f"{prefix}_waiting_records", "Records not read yet", by, registry=self.registry)
        self._freshness = Gauge(
            f"{prefix}_freshness_seconds", "Age of the newest rows when they became visible", registry=self.registry
        )
        self._state = Gauge(f"{prefix}_state_bytes", "Size of the operator's state", registry=self.registry)
        self._ended = Gauge(
            f"{prefix}_last_batch_timestamp_seconds", "End of the last batch", by, registry=self.registry
        )

        self._companions = Counter(
            f"{prefix}_companion_failures",
            "Failures of what runs in the background",
            ("companion",),
            registry=self.registry,
        )

    def companion_failed(self, name: str) -> None:
        """Count a failure of a companion."""
        self._companions.labels(name).inc()

    def add(self, row: Mapping[str, Any]) -> None:
        """Update the metrics from a row of `pipeline_metrics`."""
        stream = row["stream"]
        self._batches.labels(stream).inc()
        self._records.labels(stream).inc(row["records"])
        self._seconds.labels(stream).set(row["seconds"])
        self._waiting.labels(stream).set(row["waiting"])
        self._ended.labels(stream).set(row["ended_at"].timestamp())
        for status, number in row["statuses"] or []:
            self._points.labels(status).inc(number)
        self._quarantined.inc(row["quarantined"] or 0)
        self._set_aside.inc(row["set_aside"] or 0)
        for rule, number in row["broken"] or []:
            self._broken.labels(rule).inc(number)
        if row["freshness_s"] is not None:
            self._freshness.set(row["freshness_s"])
        if row["state_bytes"] is not None:
            self._state.set(row["state_bytes"])


class _Silent(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Log no requests."""


class MetricsServer:
    """A context manager: ``/metrics`` (Prometheus text) and ``/health`` (JSON; 200 ok, 503 stuck or failed).

    Args:
        scrape: answers /metrics.

    Raises:
        OSError: the address is taken.
    """

    def __init__(self, host: str, port: int, scrape: WSGIApplication, health: JobHealth) -> None:
        def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
            if environ["PATH_INFO"] == "/metrics":
                return scrape(environ, start_response)
            if environ["PATH_INFO"] == "/health":
                state = health.state()
                status = "200 OK" if state["status"] == "ok" else "503 Service Unavailable"
                start_response(status, [("Content-Type", "application/json")])
                return [json.dumps(state).encode()]
            start_response("404 Not Found", [("Content-Type", "text/plain")])
            return [b"not found; available: /metrics and /health\n"]

        self._server = make_server(host, port, app, ThreadingWSGIServer, _Silent)
        self.port = self._server.server_port

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
