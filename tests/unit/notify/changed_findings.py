"""A lake with changes of findings, and a web server that takes messages."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from kafka_telemetry_lake.pipelines.notify.file import NotifyFile
from kafka_telemetry_lake.pipelines.tables.findings import FINDING_CHANGES
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES
from tests.support.http_endpoint import Post, endpoint

START = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def change(subject: str, kind: str = "opened", second: float = 0, **columns: Any) -> dict[str, Any]:
    """A row of finding_changes about a client id, recorded a second after it happened."""
    row = dict.fromkeys(FINDING_CHANGES.schema.names) | {
        "cluster_id": "c1",
        "finding_id": hashlib.md5(subject.encode()).hexdigest(),
        "finding": "no_compression",
        "severity": "warning",
        "scope": "client_id",
        "subject": subject,
        "client_id": subject,
        "change": kind,
        "at": at(second),
        "opened_at": START,
        "recorded_at": at(second + 1),
        "window_start": START,
        "measure": 1.0,
        "instances": 200,
        "instances_affected": 3,
        "evidence": "compression rate 1.0",
        "advice": "set compression.type=zstd",
    }
    return row | columns


def make_lake(folder: Path) -> str:
    lake = str(folder / "lake")
    PUSHES.create(lake)
    FINDING_CHANGES.create(lake)
    return lake


def record(lake: str, *rows: dict[str, Any]) -> None:
    """Append changes in one commit."""
    content = pa.Table.from_pylist(list(rows), schema=FINDING_CHANGES.schema)
    write_deltalake(FINDING_CHANGES.uri(lake), FINDING_CHANGES.with_partition(content), mode="append")


def notify_file(url: str, **sink: Any) -> NotifyFile:
    """One sink, `one`, that gets everything; a webhook unless `type` says otherwise."""
    content = {"type": "webhook", "url": url} | sink
    return NotifyFile.model_validate({"sinks": {"one": content}})


@dataclass
class Request:
    path: str
    headers: dict[str, str]
    body: Any


@dataclass
class HttpSink:
    """Takes POSTs. `answer` returns the status of each; it may wait, or raise to close the connection."""

    url: str = ""
    requests: list[Request] = field(default_factory=list)
    answer: Callable[[Request], int] = lambda _request: 200
    answer_headers: dict[str, str] = field(default_factory=dict)

    def changes(self) -> list[tuple[str, str]]:
        """Subject and change of all that was received."""
        return [(row["subject"], row["change"]) for request in self.requests for row in request.body["changes"]]


@contextmanager
def http_sink() -> Iterator[HttpSink]:
    sink = HttpSink()

    def answer(post: Post) -> tuple[int, dict[str, str], bytes]:
        request = Request(post.path, post.headers, json.loads(post.body))
        sink.requests.append(request)
        return sink.answer(request), sink.answer_headers, b""

    with endpoint() as taker:
        taker.answer = answer
        sink.url = f"{taker.url}/hook"
        yield sink
