"""Every consumer of a table: what gaps, another table, a newer format and a kill at any moment do to its results."""

from __future__ import annotations

import gzip
import json
import math
import shutil
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from pydantic import SecretStr

from kafka_telemetry_lake.pipelines.events import subscriptions as subscription_events
from kafka_telemetry_lake.pipelines.events.feed import EventFeed
from kafka_telemetry_lake.pipelines.events.subscriptions import add_subscription_events
from kafka_telemetry_lake.pipelines.export.counting import Counting, Selection
from kafka_telemetry_lake.pipelines.export.known_clients import KnownClients
from kafka_telemetry_lake.pipelines.export.otlp import SIGNALS, Otlp
from kafka_telemetry_lake.pipelines.lake import notes
from kafka_telemetry_lake.pipelines.lake.errors import StateError
from kafka_telemetry_lake.pipelines.lake.follower import Follower, Gap, Position
from kafka_telemetry_lake.pipelines.lifecycle.follower import Lifecycle
from kafka_telemetry_lake.pipelines.notify.messages import Messages
from kafka_telemetry_lake.pipelines.quotas import client_reports, windows
from kafka_telemetry_lake.pipelines.quotas.broker_usage import sample_windows
from kafka_telemetry_lake.pipelines.quotas.client_reports import ReportFollower
from kafka_telemetry_lake.pipelines.quotas.configured import ConfiguredQuotas, configured_quotas
from kafka_telemetry_lake.pipelines.tables.findings import FINDING_CHANGES
from kafka_telemetry_lake.pipelines.tables.lifecycle import CLIENT_CHANGES
from kafka_telemetry_lake.pipelines.tables.operator import (
    CLIENT_EVENTS,
    METRIC_POINTS,
    PUSH_OUTCOMES,
    PUSHES,
    QUOTA_SAMPLES,
)
from kafka_telemetry_lake.pipelines.tables.table import FORMAT, FORMAT_PROPERTY, Table
from kafka_telemetry_lake.udfs.errors import OtherFormatError
from kafka_telemetry_lake.udfs.subscriptions.matching import Subscription
from tests.support.config_polls import record_quotas
from tests.support.documented_commands import ROOT
from tests.support.expired_logs import expire_log
from tests.support.lake_tables import table
from tests.unit.export.made_lake import NOW, SENT, client, make_lake, point, put, shown
from tests.unit.lifecycle.test_lifecycle import push
from tests.unit.lifecycle.test_lifecycle_lake import LandedLake
from tests.unit.notify.changed_findings import change
from tests.unit.notify.test_findings_notify_messages import messages
from tests.unit.subscriptions import test_subscriptions_matches as matches

pytestmark = pytest.mark.lake

ROUNDS = 13
DELTAS = pa.schema([("delta", pa.float64())])


class KilledError(BaseException):
    """The process ends here."""


class Consumer(ABC):
    """A consumer of a lake's table, whose every round has one thing to find, its number.

    Attributes:
        kills: names of what it calls between its result and its position, or as both.
        once: whether it finds each thing once; else at least once.
    """

    source: Table
    kills: tuple[tuple[Any, str], ...] = ((notes.FencedNote, "write"),)
    once = True

    def __init__(self, folder: Path) -> None:
        self.folder, self.sent = folder, list[int]()
        self.lake = make_lake(folder)
        put(self.lake, CLIENT_CHANGES, [client(f"c{number}") for number in range(ROUNDS)])

    @abstractmethod
    def land(self, number: int) -> None:
        """Add a thing to find, in one commit."""

    @abstractmethod
    def run(self) -> None:
        """A new process consumes what there is."""

    def found(self) -> list[int]:
        """The numbers of all things that were found, as often as they were."""
        return self.sent


class Feed(Consumer):
    source, once = CLIENT_EVENTS, False

    def land(self, number: int) -> None:
        at = NOW + timedelta(seconds=number)
        row = {"cluster_id": "c", "topic": "t", "partition": 0, "offset": number, "client_id": f"c{number}",
               "client_instance_id": f"c{number}", "event": "silent", "source": "s", "at": at, "landed_at": at,
               "detail": []}  # fmt: skip
        put(self.lake, CLIENT_EVENTS, [row])

    def run(self) -> None:
        EventFeed(self.lake, self._send).send_new()

    def _send(self, records: Any) -> None:
        self.sent += [json.loads(value)["offset"] for _, value in records]


class Recipe(Feed):
    """The file that CONTRIBUTING.md shows."""

    def run(self) -> None:
        _, _, rest = (ROOT / "CONTRIBUTING.md").read_text("utf-8").partition("**A consumer of a table**")
        code = rest.partition("```python\n")[2].partition("```")[0]
        names: dict[str, Any] = {"print": lambda *values: self.sent.append(int(values[-1][1:]))}
        exec(compile(code, "CONTRIBUTING.md", "exec"), names)  # our own
        names["print_new"](self.lake)


class Sender(Consumer):
    """OTLP: what is posted is taken from the requests that are made."""

    source, once = METRIC_POINTS, False

    def land(self, number: int) -> None:
        put(self.lake, METRIC_POINTS, [point(f"c{number}", SENT, delta=10**number, second=number)])

    def run(self) -> None:
        sender = Otlp(
            self.lake, "x", SIGNALS["metrics"], KnownClients(self.lake), SecretStr("http://127.0.0.1:1"), {},
            is_cumulative=False, from_start=True,
        )  # fmt: skip
        sender._send = self._taken  # type: ignore[method-assign,assignment]  # nothing listens
        while sender.step():
            pass

    def _taken(self, data: bytes, *_: Any) -> None:
        for resource in ExportMetricsServiceRequest.FromString(gzip.decompress(data)).resource_metrics:
            for metric in resource.scope_metrics[0].metrics:
                self.sent += [len(str(each.as_int)) - 1 for each in metric.sum.data_points]


class Counters(Sender):
    once = True

    def run(self) -> None:
        self.counting = Counting(self.lake, "prometheus", Selection(("client",)), NOW.timestamp)
        self.counting.read()
        self.counting.close()

    def found(self) -> list[int]:
        """A client's counter is 10 to the power of its number, times how often it was counted."""
        counts = shown(self.counting, "client", "records_sent")
        return [n for n in range(ROUNDS) for _ in range(round(counts.get(("c", f"c{n}"), 0) / 10**n))]


class Sink(Consumer):
    source, once = FINDING_CHANGES, False
    kills = ((notes.FencedNote, "write"), (Messages, "changed"))

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        FINDING_CHANGES.create(self.lake)

    def land(self, number: int) -> None:
        put(self.lake, FINDING_CHANGES, [change(f"f{number}", second=10 * number)])

    def run(self) -> None:
        for message in messages(self.lake):
            self.sent += [int(str(row["subject"])[1:]) for row in message.changes]


class Samples(Consumer):
    source = QUOTA_SAMPLES
    kills = ((windows, "transaction"), (windows, "write_deltalake"))

    def land(self, number: int) -> None:
        row = {
            "source": "s", "cluster_id": "c", "topic": "q", "partition": 0, "offset": number, "landed_at": NOW,
            "broker_id": 1, "time": NOW + timedelta(minutes=number), "quota_type": "produce", "user": "",
            "client_id": "app", "observed_rate": 50.0, "quota_limit": 100.0,
        }  # fmt: skip
        put(self.lake, QUOTA_SAMPLES, [row])

    def run(self) -> None:
        sample_windows(self.lake).catch_up()

    def found(self) -> list[int]:
        rows = [row for row in table(Path(self.lake), "quota_usage").to_pylist() if row["window_seconds"] == 60]
        return [
            round((row["window_start"] - NOW).total_seconds() / 60) for row in rows for _ in range(row["samples"])
        ]  # fmt: skip


class Reports(Consumer):
    """Clients' quota reports. Each is of its own client and minute, and has 10 to the power of its number bytes."""

    source = METRIC_POINTS
    kills = ((client_reports, "append"), (windows, "transaction"), (windows, "write_deltalake"))

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        limits = configured_quotas([({"client-id": None}, {"producer_byte_rate": 100.0})])
        record_quotas(self.lake, NOW - timedelta(hours=1), ConfiguredQuotas("c", tuple(limits)))

    def land(self, number: int) -> None:
        bytes_sent, at = "producer.node.outgoing.byte.total", 60 * number + 30
        row = point(f"c{number}", bytes_sent, delta=10**number, second=at, node_id="1", node_role="broker")
        put(self.lake, METRIC_POINTS, [row | {"landed_at": NOW}])

    def run(self) -> None:
        ReportFollower(self.lake).catch_up()

    def found(self) -> list[int]:
        """Those with a window of its bytes."""
        usage = [row for row in table(Path(self.lake), "quota_usage").to_pylist() if row["window_seconds"] == 60]
        in_windows = sorted(round(math.log10(60 * row["observed_rate"])) for row in usage)
        reports = [round(math.log10(each)) for each in table(Path(self.lake), "quota_reports")["bytes"].to_pylist()]
        return reports if in_windows == sorted({*reports}) else []


class Clients(Consumer):
    """The lifecycle; a client's pushes are counted."""

    source = PUSHES
    kills = ((notes.FencedNote, "write"), (Lifecycle, "_commit"))

    def __init__(self, folder: Path) -> None:
        self.folder, self.landed = folder, LandedLake(folder / "lake")
        self.lake = str(folder / "lake")

    def land(self, number: int) -> None:
        self.landed.land([push(number, number, f"c{number}")], {})

    def run(self) -> None:
        self.landed.judge()

    def found(self) -> list[int]:
        return [int(name[1:]) for name, row in self.landed.clients().items() for _ in range(row["pushes"])]


class EarlyPushes(Consumer):
    """Subscription events: each round has a push that is too early."""

    source = PUSH_OUTCOMES
    kills = ((subscription_events, "append"),)

    def __init__(self, folder: Path) -> None:
        self.folder, self.lake = folder, str(folder / "lake")
        matches.sync(Path(self.lake), 0, Subscription("a", ("x.",), 5000))

    def land(self, number: int) -> None:
        matches.push(Path(self.lake), f"c{number}", f"c{number}", minute=number + 1)

    def run(self) -> None:
        add_subscription_events(self.lake)

    def found(self) -> list[int]:
        return [int(client_id[1:]) for _, _, client_id, *_ in matches.events(Path(self.lake))]


CONSUMERS = [Feed, Recipe, Sender, Counters, Sink, Samples, Reports, Clients, EarlyPushes]


def _merge(uri: str) -> None:
    delta = DeltaTable(uri)
    delta.optimize.compact()
    delta.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)


def _vacuumed(consumer: Consumer) -> None:
    _merge(consumer.source.uri(consumer.lake))


def _forgotten(consumer: Consumer) -> None:
    expire_log(Path(consumer.source.uri(consumer.lake)))


def _both(consumer: Consumer) -> None:
    _vacuumed(consumer)
    _forgotten(consumer)


def _made_again(consumer: Consumer) -> None:
    """The table is a new one with the same rows, beside the same notes, as a program makes it that writes them anew."""
    for name in {consumer.source.name, *(() if consumer.source is not PUSHES else (PUSH_OUTCOMES.name,))}:
        uri = f"{consumer.lake}/{name}"
        rows, partitions = DeltaTable(uri).to_pyarrow_table(), DeltaTable(uri).metadata().partition_columns
        properties = DeltaTable(uri).metadata().configuration
        for entry in Path(uri).iterdir():
            if entry.is_dir() and (entry.name == "_delta_log" or not entry.name.startswith("_")):
                shutil.rmtree(entry)
        new = DeltaTable.create(
            uri, rows.schema, partition_by=partitions, configuration={**properties}, raise_if_key_not_exists=False
        )
        write_deltalake(new, rows, mode="append")


def _nothing(_: Consumer) -> None:
    pass


@pytest.fixture(params=CONSUMERS, ids=lambda each: each.__name__)
def consumer(request: pytest.FixtureRequest, tmp_path: Path) -> Consumer:
    made: Consumer = request.param(tmp_path)
    return made


def is_right(consumer: Consumer, rounds: int) -> bool:
    """Nothing is lost, and nothing doubled where the consumer promises that."""
    found = Counter(consumer.found())
    return found.keys() == set(range(rounds)) and (not consumer.once or set(found.values()) == {found[0]})


def test_nothing_is_lost_or_doubled_by_a_gap(consumer: Consumer) -> None:
    """One kind of gap after another, each with what landed before it, and more after it."""
    if isinstance(consumer, (Feed, Sink)):
        consumer.run()  # it begins with what comes then
    consumer.land(0)
    consumer.run()
    landed = 1
    for harm in (_vacuumed, _forgotten, _made_again):
        for each in (harm, _nothing):
            consumer.land(landed)
            landed += 1
            each(consumer)
            consumer.run()
        assert is_right(consumer, landed), (harm.__name__, consumer.found())
    before = Counter(consumer.found())
    consumer.run()
    assert Counter(consumer.found()) == before, "nothing is new"


@pytest.mark.parametrize(("after", "harm"), [(False, _both), (True, _nothing)], ids=["before", "after"])
def test_nothing_is_lost_or_doubled_by_a_kill(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch, after: bool, harm: Callable[[Consumer], None]
) -> None:
    """It is killed where it stores its result or its position, once at each call, before or after it.

    Meanwhile the log may forget what it had begun to read, and more lands.
    """
    consumer.run()
    consumer.land(0)
    consumer.run()
    landed = 1
    for where, name in consumer.kills:
        consumer.land(landed)
        landed, calls, own = landed + 1, 1, getattr(where, name)
        while calls:
            left = calls

            def killed(*args: Any, own: Any = own, **named: Any) -> Any:
                nonlocal left
                left -= 1
                if left == 0 and not after:
                    raise KilledError
                result = own(*args, **named)
                if left == 0:
                    raise KilledError
                return result

            with monkeypatch.context() as patch:
                patch.setattr(where, name, killed)
                try:
                    consumer.run()
                    calls = 0
                except KilledError:
                    calls += 1
                    harm(consumer)
                    if landed < ROUNDS:
                        consumer.land(landed)
                        landed += 1
        assert is_right(consumer, landed), consumer.found()


def test_a_table_of_a_newer_format_is_refused_in_a_line(consumer: Consumer) -> None:
    consumer.land(0)
    delta = DeltaTable(consumer.source.uri(consumer.lake))
    delta.alter.set_table_properties({FORMAT_PROPERTY: str(FORMAT + 1)}, raise_if_not_exists=False)
    with pytest.raises(OtherFormatError) as refused:
        consumer.run()
    line = str(refused.value)
    assert line.startswith(f"table {consumer.source.name} at ")
    assert f"has format {FORMAT + 1}, and this build reads format {FORMAT} only: start a new lake" in line
    assert "\n" not in line


def test_who_stops_at_a_gap_says_what_to_do(tmp_path: Path) -> None:
    lake = make_lake(tmp_path, point("a", SENT, delta=1))
    expire_log(Path(METRIC_POINTS.uri(lake)))
    stops = Follower(lake, METRIC_POINTS, Gap.STOP, remedy="read all of it again")
    with pytest.raises(StateError, match=r"metric_points: version 0 is no longer in .* log: read all of it again$"):
        stops.next(Position())


def test_a_table_that_was_restored_from_an_earlier_time_is_a_gap(tmp_path: Path) -> None:
    lake = make_lake(tmp_path, point("a", SENT, delta=1))
    copy = shutil.copytree(METRIC_POINTS.uri(lake), tmp_path / "copy")
    put(lake, METRIC_POINTS, [point("a", SENT, delta=2, second=1)])
    read = Follower(lake, METRIC_POINTS, Gap.GO_ON, columns=DELTAS)
    *_, last = read.steps(Position())
    shutil.rmtree(METRIC_POINTS.uri(lake))
    shutil.copytree(copy, METRIC_POINTS.uri(lake))
    again = Follower(lake, METRIC_POINTS, Gap.GO_ON, columns=DELTAS)
    (step,) = again.steps(last.position)
    assert (step.first, step.rows["delta"].to_pylist(), step.position.version) == (None, [1.0], 1)
