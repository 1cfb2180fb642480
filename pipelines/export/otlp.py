"""Sends new points and events of a lake to an OTLP/HTTP endpoint, each at least once.

A note in the lake has the version of the table up to which all is sent; it is written after the endpoint has
acknowledged a commit. A process that ends in between sends that commit again, in the same requests. A receiver knows a
point that comes again by its resource's `service.instance.id`, its metric, attributes, start and time: the lake has one
counted point of each. It knows an event by `log.record.uid`.

https://opentelemetry.io/docs/specs/otlp/#otlphttp says what is sent again: what fails with 429, 502, 503 or 504, after
`Retry-After` if the endpoint names it; and what it says it took (`acknowledgement`).
"""

from __future__ import annotations

import gzip
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from prometheus_client import Metric
from pydantic import SecretStr

from kafka_telemetry_lake.pipelines.export.known_clients import KnownClients
from kafka_telemetry_lake.pipelines.export.measures import PREFIX
from kafka_telemetry_lake.pipelines.export.otlp_requests import COLUMNS, Totals, event_requests, point_requests
from kafka_telemetry_lake.pipelines.export.prometheus import counter
from kafka_telemetry_lake.pipelines.lake.follower import FIELDS, Follower, Gap, Position
from kafka_telemetry_lake.pipelines.lake.notes import FencedNote
from kafka_telemetry_lake.pipelines.notify.http import Answer, RefusedError, SinkDownError, below, post
from kafka_telemetry_lake.pipelines.runtime.retries import pause_after
from kafka_telemetry_lake.pipelines.tables.operator import CLIENT_EVENTS, METRIC_POINTS
from kafka_telemetry_lake.pipelines.tables.table import Table
from kafka_telemetry_lake.udfs.errors import TelemetryLakeError

log = logging.getLogger(__name__)

AnswerT = TypeVar("AnswerT", bound=Message)
PROTOBUF = ("application/x-protobuf", "application/protobuf")
JSON = "application/json"
PAUSE_S = 1.0  # between looks at the tables
NOTE_S = 30.0  # totals are written to the note no more often
HEADERS = {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"}
# The same data would be refused again. 401, 403 and 404 say that a setting is wrong: data waits until it is right.
REFUSED = (400, 405, 411, 413, 414, 415, 422, 431)
LONGEST_WHY = 200  # characters of an endpoint's text


def acknowledgement(answer: Answer, kind: type[AnswerT]) -> AnswerT:
    """The message of an answer; an empty one if it has none.

    Many endpoints leave the message out, some write it as JSON. Any other answer isn't an endpoint's, whatever its
    status: nothing was taken.

    Raises:
        SinkDownError: it isn't the answer of an OTLP endpoint.
    """
    is_json = answer.content_type == JSON or (not answer.content_type and answer.body.lstrip().startswith(b"{"))
    what = f"HTTP {answer.status} with content type {answer.content_type[:80] or '(none)'}"
    if not (is_json or answer.content_type in ("", *PROTOBUF)):
        raise SinkDownError(f"it answers {what}, not as an OTLP endpoint does")
    try:
        if not answer.body:
            return kind()
        return json_format.Parse(answer.body, kind()) if is_json else kind.FromString(answer.body)
    except (DecodeError, json_format.ParseError, UnicodeDecodeError, RecursionError):
        raise SinkDownError(f"it answers {what}, but no message of OTLP") from None


class _EndedError(TelemetryLakeError):
    """Sending is to end; what isn't acknowledged is sent by the next start."""


@dataclass(frozen=True)
class Signal:
    """A kind of rows, and how it is sent.

    Attributes:
        path: below the endpoint's URL.
        columns: of the table that are read.
        make: requests, and the number of rows in each, from rows, clients and totals.
        rejected: number of rejected rows and why, from an answer; raises ``SinkDownError`` if that isn't OTLP's.
    """

    name: str
    table: Table
    path: str
    columns: tuple[str, ...]
    make: Callable[[pa.Table, pa.Table, Totals | None], Iterator[tuple[Any, int]]]
    rejected: Callable[[Answer], tuple[int, str]]


def _rejected_points(answer: Answer) -> tuple[int, str]:
    partial = acknowledgement(answer, ExportMetricsServiceResponse).partial_success
    return partial.rejected_data_points, partial.error_message


def _rejected_logs(answer: Answer) -> tuple[int, str]:
    partial = acknowledgement(answer, ExportLogsServiceResponse).partial_success
    return partial.rejected_log_records, partial.error_message


SIGNALS = {
    each.name: each
    for each in (
        Signal("metrics", METRIC_POINTS, "/v1/metrics", COLUMNS, point_requests, _rejected_points),
        Signal(
            "logs",
            CLIENT_EVENTS,
            "/v1/logs",
            tuple(CLIENT_EVENTS.schema.names),
            lambda rows, clients, _: event_requests(rows, clients),
            _rejected_logs,
        ),
    )
}


class Otlp:
    """What an endpoint is to get of one signal.

    Args:
        name: of the exporter; the note has it and the signal's.
        url: without the signal's path.
        headers: of each request, for tokens.
        is_cumulative: sums are sent as totals.
        from_start: the first start sends all that the lake has; otherwise what comes from now on.

    Raises:
        StateError: the note is damaged.
    """

    def __init__(
        self, lake: str, name: str, signal: Signal, clients: KnownClients, url: SecretStr,
        headers: Mapping[str, SecretStr], *, is_cumulative: bool, from_start: bool,
        clock: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self._signal, self._clients, self._clock = signal, clients, clock
        self._url = below(url.get_secret_value(), signal.path)
        self._headers: dict[str, SecretStr | str] = {**headers, **HEADERS}
        self._totals = Totals() if is_cumulative and signal.table is METRIC_POINTS else None
        columns = pa.schema([signal.table.schema.field(name) for name in signal.columns])
        # One commit at a time: the same requests again after a crash, whatever was committed meanwhile.
        self._follower = Follower(lake, signal.table, Gap.GO_ON, f"export:{name}:{signal.name}", columns, most_bytes=0)
        lost = f"delete it, and {signal.name} are sent from then on, or all of them with --otlp-since start"
        self._note = FencedNote(
            METRIC_POINTS.uri(lake), f"_export-{name}-otlp-{signal.name}", (*FIELDS, "totals"), lost
        )
        now = self._follower.now()
        self._position, self._noted_at = Position(table=now.table), clock()  # its time: landing of the newest row
        self._ended = threading.Event()
        self.sent = self.rejected = self.retries = 0
        if not self.restore():
            if not from_start:
                self._position = replace(now, read_at=datetime.fromtimestamp(clock(), UTC))
            self._store()

    def send_new(self, ended: threading.Event) -> None:
        """Send all new commits. Once `ended` is set, only the note is written; a request under way ends unsent.

        After an error, `restore` first.
        """
        self._ended = ended
        while not ended.is_set() and self.step():
            pass
        if ended.is_set():
            self._store()

    def step(self) -> bool:
        """Send the next commit, after a gap what landed since the newest row that was sent; returns whether it has."""
        since = newest = self._position.read_at
        for step in self._follower.steps(self._position):
            rows, is_gap = step.rows, step.first is None
            if is_gap and since is not None:
                rows = rows.filter(pc.field("landed_at") > since)
            if not self._clients.may_go_on(rows["client_instance_id"], self._signal.name) and not is_gap:
                return False
            for request, number in self._signal.make(rows, self._clients.rows, self._totals):
                self._send(gzip.compress(request.SerializeToString(), 1), number)
            landed = pc.max(rows["landed_at"]).as_py()
            newest = max((each for each in (newest, landed) if each is not None), default=None)
            if step.position != self._position:
                self._position = replace(step.position, read_at=newest)
                if is_gap or self._totals is None or self._clock() - self._noted_at >= NOTE_S:
                    self._store()
                return True
        return False

    def _send(self, data: bytes, number: int) -> None:
        """Send a request until it is taken or refused."""
        failures = 0
        while not self._ended.is_set():
            try:
                rejected, why = self._signal.rejected(post(self._url, self._headers, data, REFUSED))
            except SinkDownError as error:
                failures += 1
                self.retries += 1
                pause = pause_after(failures, error)
                log.warning(
                    "export: otlp: %s: %s; tried again in %.0f s (POST to %s below the URL of --otlp)",
                    self._signal.name,
                    error,
                    pause,
                    self._signal.path,
                )
                self._ended.wait(pause)
            except RefusedError as error:
                self.rejected += number
                log.error("export: otlp: %s: %s: %d rows are dropped", self._signal.name, error, number)
                return
            else:
                self._taken(number, rejected, why)
                return
        raise _EndedError

    def _taken(self, number: int, rejected: int, why: str) -> None:
        rejected = min(max(rejected, 0), number)
        self.sent += number - rejected
        self.rejected += rejected
        if rejected or why:
            text = " ".join(why.split())[:LONGEST_WHY]
            log.warning("export: otlp: %s: it rejects %d rows: %s", self._signal.name, rejected, text)

    def _store(self) -> None:
        totals = None if self._totals is None else self._totals.stored()
        self._note.write({**self._position.stored(), "totals": totals})
        self._noted_at = self._clock()

    def restore(self) -> bool:
        """Go back to what the note has; returns whether there is one."""
        content = self._note.read()
        if content is None:
            return False
        try:
            self._position = Position.of(content)
            if self._totals is not None and content["totals"] is not None:
                self._totals.restore(content["totals"])
        except (TypeError, ValueError) as error:
            raise self._note.damaged(error) from None
        return True

    def families(self) -> Iterator[Metric]:
        """How the sending goes."""
        for name, meaning, value in (
            ("sent", "that the endpoint took", self.sent),
            ("rejected", "that the endpoint refused", self.rejected),
        ):
            yield self._counter(name, f"Rows {meaning}", value)
        yield self._counter("retries", "Requests that were sent again", self.retries)

    def _counter(self, name: str, meaning: str, value: int) -> Metric:
        return counter(f"{PREFIX}_export_otlp_{self._signal.name}_{name}", meaning, [({}, value)])
