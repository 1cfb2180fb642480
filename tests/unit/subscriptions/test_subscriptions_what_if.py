"""What a proposed subscription would bring: by hand, from a lake, and beside what is left of real clients' pushes."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from kafka_telemetry_lake.jobs import cli
from kafka_telemetry_lake.pipelines.subscriptions.configured import ConfiguredSubscriptions
from kafka_telemetry_lake.pipelines.subscriptions.metric_readers import metric_readers
from kafka_telemetry_lake.pipelines.subscriptions.recorded import NoFleetError
from kafka_telemetry_lake.pipelines.subscriptions.recorded_queries import PUSHES_OF
from kafka_telemetry_lake.pipelines.subscriptions.what_if import (
    CORE_US_A_POINT,
    FIXED_CORES,
    SubscriptionChange,
    SubscriptionPrediction,
    SubscriptionProposal,
    what_if,
)
from kafka_telemetry_lake.pipelines.tables.operator import METRIC_POINTS, PUSH_OUTCOMES, PUSHES
from kafka_telemetry_lake.udfs.errors import CannotRunError
from kafka_telemetry_lake.udfs.kernels.arrays import Doubles
from kafka_telemetry_lake.udfs.subscriptions.layout import UNSEEN, layout
from kafka_telemetry_lake.udfs.subscriptions.matching import Subscription, SubscriptionError, client_attributes_ids
from kafka_telemetry_lake.udfs.subscriptions.needs import AskedAlike, MetricReader, changed_needs
from kafka_telemetry_lake.udfs.subscriptions.what_if import RecordedPushes, Requested, expected, request
from tests.support.captured_lake import push_row, write_lake
from tests.support.config_polls import record_subscriptions
from tests.support.landing_records import captured

pytestmark = pytest.mark.lake

P = "org.apache.kafka.producer."
NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
JAVA = ("apache-kafka-java", "4.3.1")
A = Subscription("all", (f"{P}a.",), 10_000)


def of(prefixes: str, seconds: float = 10) -> Requested:
    return Requested(frozenset(prefixes.split()), int(seconds * 1000))


def recorded(
    requests: list[Requested], pushes: Sequence[Sequence[float]], points: Sequence[tuple[int, int, str, float]]
) -> RecordedPushes:
    """Instances of one group that ran all the time. points: instance, request, metric, how many points of 100 bytes."""
    names = sorted({name for _, _, name, _ in points})
    client, of_request, metric, count = zip(*((i, r, names.index(name), n) for i, r, name, n in points), strict=True)
    bytes_: Doubles = np.bincount(client, np.array(count) * 100.0, len(pushes)).astype(np.float64)
    return RecordedPushes(
        requests, [frozenset({"producer"})], np.zeros(len(pushes), np.int64), np.ones(len(pushes)), np.array(pushes),
        np.zeros(1), np.zeros(1, np.bool_), bytes_, bytes_, pa.array(names), np.array(client), np.array(of_request),
        np.array(metric), np.array(count, np.float64), np.array(count) * 100.0,
    )  # fmt: skip


def test_m13_a_metric_has_the_points_of_the_pushes_for_which_it_was_requested() -> None:
    requests = [of(""), of(f"{P}a"), of(f"{P}a {P}b", 20), of(f"{P}b", 60)]
    # 30 pushes with 2 points of a, and 10 more with 2 of a and 5 of b.
    found = expected(
        recorded(requests, [[0, 30, 10, 0]], [(0, 1, f"{P}a", 60), (0, 2, f"{P}a", 20), (0, 2, f"{P}b", 50)]),
        np.array([3]),
    )
    assert (found.points.tolist(), found.borrowed.tolist()) == ([5], [0])
    assert found.pushes_s == pytest.approx([1 / 60])
    assert found.payload == pytest.approx([500])
    assert found.unknown == [()]
    none = expected(recorded(requests, [[0, 30, 10, 0]], [(0, 1, f"{P}a", 60)]), np.array([0]))
    assert (none.pushes_s.tolist(), none.points.tolist()) == ([0], [0])


def test_m14_of_what_was_never_requested_others_like_it_are_asked_or_nobody_knows() -> None:
    requests = [of(""), of(f"{P}a"), of(f"{P}b"), of(f"{P}a {P}b {P}c org.apache.kafka.consumer.")]
    pushes = [[0, 10, 0, 0], [0, 0, 10, 0], [0, 0, 10, 0]]
    # Of the two that were asked for b, one has 4 points of it in a push, and one none.
    found = expected(recorded(requests, pushes, [(0, 1, f"{P}a", 10), (1, 2, f"{P}b", 40)]), np.array([3, 3, 3]))
    assert found.points.tolist() == [1 + 2, 1 + 4, 1]
    assert found.borrowed.tolist() == [2, 1, 1]
    # Nobody was asked for c; and a producer has no metrics of consumers.
    assert found.unknown == [(f"{P}c",)] * 3


def test_m14_a_star_is_known_by_a_star_alone_and_is_a_prefix_to_franz_go() -> None:
    requests = [of(""), of(f"{P}a"), of("*")]
    one = [(0, 1, f"{P}a", 10)]
    assert expected(recorded(requests, [[0, 10, 0]], one), np.array([2])).unknown == [("*",)]
    assert expected(recorded(requests, [[0, 0, 10]], one), np.array([1])).unknown == [()]
    literal = request([Subscription("s", ("*",), 1000)], star_is_prefix=True)
    assert not literal.asks_for(f"{P}a")
    assert request([Subscription("s", ("*",), 1000)]).asks_for(f"{P}a")
    # It pushes heartbeats, and says nothing about other prefixes.
    found = expected(recorded([of(""), literal, of(f"{P}a")], [[0, 10, 0]], one), np.array([1]))
    assert (found.points.tolist(), found.pushes_s.tolist()) == ([0], [1])
    assert expected(recorded([of(""), literal, of(f"{P}a")], [[0, 10, 0]], one), np.array([2])).unknown == [(f"{P}a",)]


def test_rollups_have_at_most_a_row_for_a_series_and_window() -> None:
    requests = [of(""), of(f"{P}a", 10), of(f"{P}a", 300)]
    lake = recorded(requests, [[0, 10, 0]], [(0, 1, f"{P}a", 50)])
    assert expected(lake, np.array([1])).windows_s(60) == pytest.approx([5 / 60])
    assert expected(lake, np.array([2])).windows_s(60) == pytest.approx([5 / 300])


def test_a_finding_needs_all_its_metrics_and_a_view_each() -> None:
    readers = [
        MetricReader("finding", "two", {"java": frozenset({f"{P}a", f"{P}b", "org.apache.kafka.consumer.a"})}),
        MetricReader("view", "some", {"java": frozenset({f"{P}a", f"{P}b"})}),
        MetricReader("view", "others", {"librdkafka": frozenset({f"{P}a"})}),
    ]
    producer = frozenset({"producer"})
    whole, half = of(f"{P}a {P}b"), of(f"{P}b")

    def found(before: Requested, after: Requested) -> list[tuple[Any, ...]]:
        return [tuple(each) for each in changed_needs(readers, [AskedAlike(3, "java", producer, before, after)])]

    assert found(whole, half) == [
        ("finding", "two", "loses", 3, 3, (f"{P}a",)),
        ("view", "some", "loses", 3, 3, (f"{P}a",)),
    ]
    assert [row[:3] for row in found(half, whole)] == [("finding", "two", "gains"), ("view", "some", "gains")]
    assert [row[:3] for row in found(half, of(""))] == [("view", "some", "loses")]  # it could not be judged before


def test_the_metrics_that_findings_and_views_read() -> None:
    read = {(each.what, each.name): each.metrics for each in metric_readers(["org.apache.kafka.producer.txn.own"])}
    assert read["finding", "tiny_fetches"] == {
        "java": {"org.apache.kafka.consumer.fetch.manager.fetch.total", "org.apache.kafka.consumer.incoming.byte.total"}
    }
    own = read["view", "transactions"]
    assert own["java"] >= {f"{P}txn.own", f"{P}txn.init.time.ns.total", f"{P}record.send.total"}
    assert own["librdkafka"] == {f"{P}txn.own"}
    assert ("view", "instance_hours") not in read


def test_the_cores_are_those_of_the_benchmarks() -> None:
    figures = json.loads(Path("benchmarks/results.json").read_text("utf-8"))
    fleets = ("10k", "1000k")
    low, high = ([figures[f"sustained_{each}_{it}"] for it in ("points_per_s", "cores_used")] for each in fleets)
    slope = (high[1] - low[1]) / (high[0] - low[0])
    assert pytest.approx(1e6 * slope, rel=0.01) == CORE_US_A_POINT
    assert pytest.approx(low[1] - slope * low[0], rel=0.01) == FIXED_CORES


def poll(lake: Path, minute: int, *subscriptions: Subscription, cluster_id: str = "c") -> None:
    record_subscriptions(
        str(lake), NOON + timedelta(minutes=minute), ConfiguredSubscriptions(cluster_id, subscriptions)
    )


def push(
    lake: Path, instance: str, metrics: dict[str, int], begin: float = 0, end: float = 60,
    software: tuple[str, str] = JAVA, client_id: str | None = None, seconds: int = 10, told: bool = True,
) -> None:  # fmt: skip
    """Pushes of an instance, one each ten seconds between two minutes, with so many points of each metric.

    Brokers before 4.2 don't tell the interval.
    """
    at = [NOON + timedelta(seconds=second) for second in range(int(60 * begin), int(60 * end), seconds)]
    key = {"source": "kafka", "cluster_id": "c", "topic": "t", "partition": 0}
    pushes = [
        key | {
            "offset": hash((instance, begin)) % 2**40 + number, "landed_at": landed, "landed_date": NOON.date(),
            "client_instance_id": instance, "client_id": client_id or instance, "client_software_name": software[0],
            "client_software_version": software[1], "push_interval_ms": 1000 * seconds if told else None,
            "payload_bytes": 1000,
        }
        for number, landed in enumerate(at)
    ]  # fmt: skip
    ids = client_attributes_ids(pa.Table.from_pylist(pushes, PUSHES.stored)).tolist()
    same = ("offset", "landed_at", "landed_date", "client_instance_id", "client_id")
    outcomes = [
        key | {name: row[name] for name in same}
        | {"client_attributes_id": id_, "outcome": "points", "points": sum(metrics.values())}
        | {"decompressed_bytes": 1000}
        for row, id_ in zip(pushes, ids, strict=True)
    ]  # fmt: skip
    points = [
        key | {name: row[name] for name in same} | {"metric": metric}
        for row in pushes for metric, count in metrics.items() for _ in range(count)
    ]  # fmt: skip
    for table, rows in ((PUSHES, pushes), (PUSH_OUTCOMES, outcomes), (METRIC_POINTS, points)):
        write_deltalake(table.create(str(lake)), pa.Table.from_pylist(rows, table.stored), mode="append")


def ask(
    lake: Path, *change: Any, begin: float = 0, end: float = 60, cluster_id: str | None = None
) -> SubscriptionPrediction:
    proposal = SubscriptionProposal(SubscriptionChange(*change), cluster_id)
    return what_if(str(lake), proposal, NOON + timedelta(minutes=begin), NOON + timedelta(minutes=end))


def totals(found: SubscriptionPrediction) -> dict[str, tuple[float, float]]:
    return {row["what"]: (row["before"], row["after"]) for row in found.totals.to_pylist()}


def test_m13_what_a_lake_says_of_an_interval_and_a_match(tmp_path: Path) -> None:
    poll(tmp_path, -1, A)
    push(tmp_path, "one", {f"{P}a.x": 4})
    push(tmp_path, "half", {f"{P}a.x": 2}, end=30)
    found = ask(tmp_path, "all", None, 60_000)
    shown = totals(found)
    assert shown["clients"] == (2, 2)
    assert shown["pushes a second"] == pytest.approx((0.15, 0.025))
    assert shown["points a second"] == pytest.approx((0.5, 0.5 / 6))
    assert shown["payload bytes a second"] == pytest.approx((150, 25))
    assert shown["ingest, cores"][0] == pytest.approx(FIXED_CORES + 0.5 * CORE_US_A_POINT / 1e6)
    stored = sum(
        sum(file.stat().st_size for file in (tmp_path / name).rglob("*.parquet"))
        for name in ("metric_points", "pushes", "push_outcomes")
    )
    assert shown["lake, GB a day"] == pytest.approx((stored * 24 / 1e9, stored * 4 / 1e9))
    assert found.remarks == []
    only = ask(tmp_path, "all", None, None, {"client_id": "h.*"}).clients.to_pylist()
    intervals = [(row["client_id"], row["interval_s_before"], row["interval_s_after"]) for row in only]
    assert intervals == [("one", 10, None)]
    assert (only[0]["points_s_before"], only[0]["points_s_after"]) == pytest.approx((0.4, 0))


def test_m14_a_metric_that_one_client_was_asked_for_is_estimated_for_the_others(tmp_path: Path) -> None:
    poll(tmp_path, -1, A, Subscription("more", (f"{P}b.",), 10_000, (("client_id", "two"),)))
    push(tmp_path, "one", {f"{P}a.x": 4})
    push(tmp_path, "two", {f"{P}a.x": 4, f"{P}b.x": 3})
    push(tmp_path, "old", {f"{P}a.x": 4}, software=("apache-kafka-java", "3.9.0"))
    found = ask(tmp_path, "new", [f"{P}b."], None, None)
    rows = {row["client_id"]: row for row in found.clients.to_pylist()}
    assert rows.keys() == {"one", "old"}  # nothing changes for two
    assert rows["one"]["points_s_after"] == pytest.approx(0.7)
    assert rows["one"]["estimated_points_s"] == pytest.approx(0.3)
    assert rows["old"]["points_s_after"] == pytest.approx(0.4)
    assert rows["old"]["unknown"] == [f"{P}b."]
    assert found.remarks == [
        f"how many metrics {P}b. would bring isn't known of 1 client instances: no recorded subscription requested it "
        "of them or of others of their software, version and kind. They aren't counted",
        "0.3 points a second, of 1 client instances, are estimated from others of the same software, version and kind",
    ]


def test_what_is_not_known_is_said(tmp_path: Path) -> None:
    only = replace(A, match=(("client_id", "[ab].*"),))
    poll(tmp_path, -2, only)
    poll(tmp_path, 0, only)
    poll(tmp_path, 30, replace(only, metrics=(f"{P}a.", f"{P}b.")))
    push(tmp_path, "a", {f"{P}a.x": 4}, end=20)
    push(tmp_path, "b", {f"{P}a.x": 4, f"{P}b.x": 1}, begin=40, software=("apache-kafka-java", "3.9.0"), client_id="a")
    push(tmp_path, "strange", {f"{P}a.x": 4}, begin=50)
    found = ask(tmp_path, "all", None, 600_000)
    assert totals(found)["points a second"][0] == pytest.approx(0.1 * (4 * 20 + 5 * 20) / 40)
    assert [remark.partition(":")[0] for remark in found.remarks] == [
        "nobody pushed in the ten minutes from 2026-11-21 12",
        "119 pushes landed between two polls that found other subscriptions",
        "60 pushes were asked for by no subscription that `telemetry-lake sync` saw",
        f"how many metrics {P}b. would bring isn't known of 1 client instances",
        "clients that no subscription asked for anything aren't in the lake",
        "an interval of more than five minutes has no effect",
        "a had instances of several libraries or versions in this time",
    ]
    assert found.remarks[0].endswith("12:20, 2026-11-21 12:30 UTC: left out, not interpolated")


def test_m13_a_push_of_an_unknown_request_counts_for_its_clients_interval(tmp_path: Path) -> None:
    """No broker before 4.2 says the interval: it is that of the client's other pushes, not the default of 300 s."""
    poll(tmp_path, -1, A)
    poll(tmp_path, 29, A)
    poll(tmp_path, 30, replace(A, metrics=(f"{P}a.", f"{P}b.")))
    push(tmp_path, "one", {f"{P}a.x": 4}, told=False)
    found = ask(tmp_path, "all", None, 60_000)
    assert found.remarks[0].startswith("5 pushes landed between two polls that found other subscriptions")
    assert totals(found)["pushes a second"] == pytest.approx((0.1, 1 / 60))


def test_m13_without_any_known_interval_it_is_the_median_gap_between_pushes(tmp_path: Path) -> None:
    poll(tmp_path, -1, replace(A, match=(("client_id", "nobody"),)))
    push(tmp_path, "half", {f"{P}a.x": 4}, end=30, seconds=20, told=False)
    push(tmp_path, "single", {f"{P}a.x": 4}, end=1 / 6, told=False)
    found = ask(tmp_path, "new", [f"{P}a."], 60_000)
    assert totals(found)["pushes a second"] == pytest.approx((0, 1 / 60))  # of the half hour with pushes
    assert found.remarks[1:3] == [
        "91 pushes were asked for by no subscription that `telemetry-lake sync` saw: what they contain is left out",
        "1 pushes say no interval, and none is known of their client instances: the time for which these ran is left "
        "out",
    ]


def test_m13_no_client_runs_for_longer_than_the_time_that_is_asked_for(tmp_path: Path) -> None:
    poll(tmp_path, -1, A)
    push(tmp_path, "one", {f"{P}a.x": 4})
    push(tmp_path, "one", {f"{P}a.x": 4}, begin=1, end=21)  # as often again, against its interval
    assert totals(ask(tmp_path, "all", None, 60_000))["pushes a second"] == pytest.approx((0.1, 1 / 60))


def test_clients_that_push_no_points_are_counted(tmp_path: Path) -> None:
    poll(tmp_path, -1, A)
    METRIC_POINTS.create(str(tmp_path))
    push(tmp_path, "idle", {})
    shown = totals(ask(tmp_path, "all", None, 60_000))
    assert shown["pushes a second"] == pytest.approx((0.1, 1 / 60))
    assert shown["points a second"] == (0, 0)


def test_points_of_pushes_that_landed_while_it_was_read_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poll(tmp_path, -1, A)
    for instance in ("a", "late", "z"):
        push(tmp_path, instance, {f"{P}a.x": 4})
    before = PUSHES_OF.replace("FROM dated GROUP", "FROM dated WHERE client_instance_id <> 'late' GROUP")
    monkeypatch.setattr("kafka_telemetry_lake.pipelines.subscriptions.recorded.PUSHES_OF", before)
    found = ask(tmp_path, "all", None, 60_000).clients.to_pylist()
    assert [(row["client_id"], row["points_s_before"]) for row in found] == [
        ("a", pytest.approx(0.4)), ("z", pytest.approx(0.4)),
    ]  # fmt: skip


def test_bad_input_is_a_line(tmp_path: Path) -> None:
    with pytest.raises(NoFleetError, match="no subscription is recorded, so nobody knows what clients were"):
        ask(tmp_path, "all", None, 60_000)
    poll(tmp_path, -1, A)
    push(tmp_path, "one", {f"{P}a.x": 4})
    for error, change, message in (
        (CannotRunError, ("other", None, 60_000), "metrics: needed: no subscription is called 'other'; there are all"),
        (SubscriptionError, ("all", None, 99), "interval.ms: got 99, allowed: 100 to 3600000"),
        (SubscriptionError, ("all", None, None, {"nobody": "a"}), "got key 'nobody', allowed: client_instance_id"),
        (
            SubscriptionError,
            ("all", None, None, {"client_id": "a=b"}),
            "got 'client_id=a=b', allowed: key=pattern with",
        ),
        (NoFleetError, ("all", None, 10_000), "this is what the cluster's subscriptions are already"),
        (NoFleetError, ("new", [P], None, {"client_id": "none"}), "nobody that new matches would be asked for"),
        (
            NoFleetError,
            ("new", [f"{P}b."], None, {"client_id": r"\bone"}),
            r"of 1 it can't be said whether they match \(docs/rules.md, M2\)",
        ),
    ):
        with pytest.raises(error, match=message):
            ask(tmp_path, *change)
    with pytest.raises(NoFleetError, match="the newest push landed at 2026-11-21 12:59:50 UTC"):
        ask(tmp_path, "all", None, 60_000, begin=600, end=660)
    with pytest.raises(CannotRunError, match="from, to: 32 days"):
        ask(tmp_path, "all", None, 60_000, begin=-1440 * 32, end=0)
    with pytest.raises(CannotRunError, match="no subscription of d is recorded; recorded: c"):
        ask(tmp_path, "all", None, 60_000, cluster_id="d")
    poll(tmp_path, 0, A, cluster_id="d")
    with pytest.raises(CannotRunError, match="the lake has several: add --cluster-id, one of c, d"):
        ask(tmp_path, "all", None, 60_000)
    for metrics in ([], [""]):  # as brokers read them: none
        assert totals(ask(tmp_path, "all", metrics, cluster_id="c"))["pushes a second"][1] == 0


PROPOSALS = [
    (f"{P}", "org.apache.kafka.consumer.fetch.manager."),
    (f"{P}node.", "org.apache.kafka.consumer.node.", "org.apache.kafka.admin."),
]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The captured pushes, for which all metrics were requested each second."""
    lake = tmp_path_factory.mktemp("captured")
    rows = [
        push_row(each) | {"cluster_id": "c", "payload_bytes": len(each["value"])} for each in captured().to_pylist()
    ]
    write_lake(lake, pa.Table.from_pylist(rows, PUSHES.schema))
    poll(lake, 0, Subscription("everything", ("*",), 1000))
    return lake


@pytest.mark.slow
def test_m15_bytes_and_points_are_those_that_are_left_of_real_pushes(real: Path) -> None:
    payloads = [
        (headers["client_instance_id"], pb.MetricsData.FromString(each["value"]))
        for each in captured().to_pylist()
        if (headers := {one["key"]: one["value"].decode() for one in each["headers"]})["compression_type"] == "none"
    ]
    errors = []
    for prefixes in PROPOSALS:
        truth: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        for instance, data in payloads:
            kept, points = _kept(data, prefixes)
            truth[instance][0] += kept
            truth[instance][1] += points
        found = ask(real, "everything", prefixes, begin=6, end=20).clients.to_pylist()
        seconds = 14 * 60
        for row in found:
            # The proxy that captured franz-go's had other prefixes requested of it.
            if sum(truth[row["client_instance_id"]]) and row["client_software_name"] != "kgo":
                size, points = truth[row["client_instance_id"]]
                assert row["points_s_after"] * seconds == pytest.approx(points), row
                errors.append(row["bytes_s_after"] * seconds / size - 1)
    assert len(errors) > 30
    assert np.median(np.abs(errors)) < 0.01
    assert np.quantile(np.abs(errors), 0.9) < 0.10


def _kept(data: pb.MetricsData, prefixes: tuple[str, ...]) -> tuple[int, int]:
    """Bytes and points of a payload without metrics that begin otherwise."""
    left, points = pb.MetricsData(), 0
    for resource in data.resource_metrics:
        kept = pb.ResourceMetrics()
        kept.CopyFrom(resource)
        for scope in kept.scope_metrics:
            metrics = [metric for metric in scope.metrics if metric.name.startswith(prefixes)]
            del scope.metrics[:]
            scope.metrics.extend(metrics)
            points += sum(len(metric.sum.data_points) + len(metric.gauge.data_points) for metric in metrics)
        if any(scope.metrics for scope in kept.scope_metrics):
            left.resource_metrics.append(kept)
    return left.ByteSize() if points else 0, points


def test_a_payload_that_is_no_message_has_no_layout() -> None:
    assert layout(b"\xff\xff") == UNSEEN
    assert layout(None).points == {}


def command(capsys: pytest.CaptureFixture[str], lake: Path, *flags: str) -> tuple[list[dict[str, Any]], list[str]]:
    begin, end = "2026-11-21T12:06:00Z", "2026-11-21T12:20:00Z"
    argv = ["what-if", "subscription", "--lake", str(lake), *flags, "--from", begin, "--to", end, "--format", "jsonl"]
    assert cli.main(argv) == 0
    out, err = capsys.readouterr()
    return [json.loads(line) for line in out.splitlines()], err.splitlines()


def test_the_command(real: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change = ["--name", "everything", "--metrics", f"{P},org.apache.kafka.consumer.", "--interval-ms", "10000"]
    rows, err = command(capsys, real, *change)
    assert [row["what"] for row in rows][:3] == ["clients", "pushes a second", "payload bytes a second"]
    assert rows[1]["after"] == pytest.approx(rows[1]["before"] / 10)
    assert err[0].startswith("139 client instances would be asked for something else: ")
    assert err[0].endswith("(--show needs)")
    needs, _ = command(capsys, real, *change, "--show", "needs")
    of_rule = {row["name"]: row["metrics"] for row in needs}
    assert of_rule["dead_stream_threads"] == ["org.apache.kafka.stream.failed.stream.threads"]
    clients, _ = command(capsys, real, *change, "--show", "clients", "--match", "client_id=librdkafka-.*")
    assert {row["interval_s_after"] for row in clients if row["client_id"].startswith("librdkafka")} == {10}
    assert {row["interval_s_after"] for row in clients if row["client_id"].startswith("java")} == {None}
    file = tmp_path / "all.yml"
    file.write_text("cluster_id: c\nsubscriptions: []\n")
    rows, _ = command(capsys, real, "--subscriptions-file", str(file))
    assert [row["after"] for row in rows][:4] == [0, 0, 0, 0]


@pytest.mark.parametrize(("flags", "message"), [
    ([], "name, subscriptions_file: which subscription? set exactly one of both"),
    (["--name", "a"], "metrics, interval_ms, match: what would change?"),
    (["--subscriptions-file", "a.yml", "--interval-ms", "1000"], "interval_ms: works only with --name"),
    (["--name", "a", "--interval-ms", "1000", "--produce", "5"], "produce: works only with what-if quota"),
    (["--name", "a", "--interval-ms", "soon"], "interval_ms: Input should be a valid integer"),
    (["--name", "a", "--match", "client_id"], "match: allowed: NAME=VALUE"),
])  # fmt: skip
def test_wrong_flags(flags: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["what-if", "subscription", "--lake", str(tmp_path), *flags]) == 2
    assert message in capsys.readouterr().err
