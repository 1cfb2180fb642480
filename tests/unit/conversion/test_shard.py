"""A shard end to end: landing contract, schemas, real captured pushes, and independence of how they are cut."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from kafka_telemetry_lake.udfs import rows as schemas
from kafka_telemetry_lake.udfs.conversion.shard import ShardRows, process
from kafka_telemetry_lake.udfs.conversion.state import ShardState
from kafka_telemetry_lake.udfs.limits import Budget, Limits
from kafka_telemetry_lake.udfs.rows import PUSHES_IN
from tests.support.landing_records import captured, captured_index
from tests.support.local_stream import push_rows
from tests.support.otlp_builder import Shard, at, counter, delta, exponential, gauge, histogram, push, table, values_of

PLACED = ("source", "topic", "partition", "offset", "landed_at")
SAID = ("client_instance_id", "client_id", "terminating", "compression_type", "push_interval_ms", "payload")
TABLES = ("metric_points", "quarantine", "push_outcomes", "client_events")


@cache
def captured_pushes() -> pa.Table:
    """The captured landing records as rows of PUSHES_IN, in landing order, without who authenticated from where."""
    rows = push_rows(captured().to_pylist())
    return pa.Table.from_pylist(rows.select([*PLACED, *SAID]).to_pylist(), PUSHES_IN)


@cache
def captured_rows() -> ShardRows:
    return process(captured_pushes(), ShardState.empty())[0]


def by_push(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["partition"], row["offset"]))  # stable: points keep their order


def of_kind(kind: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Counters and events of the captured clients of one kind."""
    clients = {item["client_instance_id"] for item in captured_index() if item["client_kind"] == kind}
    rows = captured_rows()
    chosen = pc.is_in(rows.metric_points["client_instance_id"].cast(pa.string()), pa.array(list(clients)))
    points = rows.metric_points.filter(pc.and_(chosen, pc.equal(rows.metric_points["kind"].cast(pa.string()), "sum")))
    events = [row for row in rows.client_events.to_pylist() if row["client_instance_id"] in clients]
    return by_push(points.to_pylist()), events


@pytest.mark.parametrize(
    ("columns", "reason", "detail"),
    [
        (
            {"reject_reason": "INVALID_RECORD", "reject_detail": "content type text"},
            "INVALID_RECORD",
            "content type text",
        ),
        ({"client_instance_id": None}, "INVALID_REQUEST", "no client instance id"),
        ({"payload": None}, "INVALID_RECORD", "null value"),
        ({"payload": b"\xff"}, "INVALID_RECORD", "not a MetricsData message"),
        ({"compression_type": "brotli"}, "UNSUPPORTED_COMPRESSION_TYPE", "brotli"),
        ({"compression_type": "gzip"}, "INVALID_RECORD", "not decompressible as gzip"),
        ({"payload": bytes(2000)}, "TELEMETRY_TOO_LARGE", "more than 1000 bytes"),
    ],
)
def test_rejected_pushes_go_to_quarantine_with_their_payload(columns: dict[str, Any], reason: str, detail: str) -> None:
    bad = push(1, gauge(1, 1)) | columns
    rows = Shard(Limits(max_decompressed_bytes=1000)).run(bad, push(2, gauge(1, 2)))
    (row,) = rows.quarantine.to_pylist()
    assert values_of([row], "scope", "reason", "offset", "payload", "metric") == [
        ("push", reason, 1, bad["payload"], None)
    ]
    assert detail in row["detail"]
    assert values_of(rows.push_outcomes.to_pylist(), "outcome", "points") == [("quarantined", 0), ("points", 1)]
    assert rows.metric_points.num_rows == 1


def test_dropped_pushes_are_no_quarantine() -> None:
    rows = Shard().run(push(1, dropped="too_large", payload=None), push(2, dropped="queue_full", payload=b""))
    assert rows.quarantine.num_rows == 0
    assert values_of(rows.push_outcomes.to_pylist(), "outcome", "digest") == [("dropped", None)] * 2


def test_an_outcome_tells_where_its_push_is_and_whose() -> None:
    """What else it tells is compared with the model's."""
    rows = Shard().run(push(7, delta(1, 0, 1), terminating=True))
    names = ("offset", "landed_at", "client_id", "terminating", "lost_start")
    assert values_of(rows.push_outcomes.to_pylist(), *names) == [(7, at(7), "client", True, None)]


def test_rows_have_the_contract_schemas() -> None:
    """Apart from dictionaries, which stand for text."""
    every_kind = [
        gauge(1, 1),
        counter(1, 0, 1),
        histogram((1, 0, 0), 0, 1),
        exponential((1,), 0, 1),
        gauge(1, None),
    ]
    for pushes in (
        [],
        [push(1, gauge(1, 1))],
        [push(2, *every_kind), push(3, payload=None), push(9, delta(1, 8, 9))],
    ):
        result = Shard().run(*pushes)
        for name in TABLES:
            schema = getattr(schemas, name.upper())
            assert getattr(result, name).cast(schema).schema.equals(schema), name


def of_one_client_per_kind(pushes: pa.Table) -> pa.Table:
    """A fifth of the pushes, with every kind of client: each library, role and way to end."""
    first = {item["client_kind"]: item["client_instance_id"] for item in reversed(captured_index())}
    return pushes.filter(pc.is_in(pushes["client_instance_id"], pa.array(list(first.values()))))


def of_flipping_clients(pushes: pa.Table) -> pa.Table:
    return pushes.filter(pc.match_substring(pushes["client_id"], "flip"))


@pytest.mark.parametrize(
    ("size", "chosen"),
    [
        (1, of_flipping_clients),
        pytest.param(7, of_one_client_per_kind, marks=pytest.mark.slow),
        pytest.param(100, lambda pushes: pushes, marks=pytest.mark.slow, id="100-all"),
    ],
)
def test_cut_invariance_on_captured_pushes(size: int, chosen: Callable[[pa.Table], pa.Table]) -> None:
    """Batches in landing order give the rows of one batch."""
    pushes = chosen(captured_pushes())
    assert pushes.num_rows > 30
    whole, end = process(pushes, ShardState.empty())
    shard = Shard()
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}
    for start in range(0, pushes.num_rows, size):
        rows, shard.state = process(pushes.slice(start, size), shard.state)
        for name in TABLES:
            found[name] += getattr(rows, name).to_pylist()
    for name in TABLES:
        assert by_push(found[name]) == by_push(getattr(whole, name).to_pylist()), name
    for name in ("clients", "recent_pushes", "lost_intervals", "numbers", "distributions"):
        keys = [(column.name, "ascending") for column in getattr(end, name).schema][:4]
        assert getattr(shard.state, name).sort_by(keys).equals(getattr(end, name).sort_by(keys)), name


def test_captured_pushes_have_every_point() -> None:
    truth = captured_index()
    outcome = {(row["partition"], row["offset"]): row for row in captured_rows().push_outcomes.to_pylist()}
    placed = [
        (row["partition"], row["offset"]) for row in captured_pushes().select(["partition", "offset"]).to_pylist()
    ]
    assert [outcome[place]["points"] for place in placed] == [item["points"] for item in truth]
    assert [outcome[place]["decompressed_bytes"] for place in placed] == [item["decompressed_bytes"] for item in truth]
    assert captured_rows().quarantine.num_rows == 0
    assert captured_rows().metric_points.num_rows == sum(item["points"] for item in truth)


def test_captured_statuses() -> None:
    """F4, F6, F8: NaN in gauges only, no fall, no negative delta; 45 Java series and one of librdkafka flip."""
    counts = Counter(captured_rows().metric_points["delta_status"].to_pylist())
    assert counts["non_finite"] == sum(item["nan_points"] for item in captured_index())
    assert not {"reset", "inferred_reset", "negative", "late", "duplicate", "conflict", "start_moved"} & set(counts)
    assert (counts["flip_converted"], counts["flip_baseline"]) == (45, 46)


def test_captured_java_flip_counts_what_the_totals_say() -> None:
    """Truth: the lifetime total at push 12, less what passed before the client's first total, at push 6."""
    points, _ = of_kind("java-flip-producer")
    offsets = sorted({row["offset"] for row in points})
    place = {offset: index for index, offset in enumerate(offsets)}
    for series in set(values_of(points, "client_instance_id", "series_id")):
        rows = [row for row in points if (row["client_instance_id"], row["series_id"]) == series]
        total = {place[row["offset"]]: row["value"] for row in rows}
        between = sum(row["delta"] for row in rows if 6 <= place[row["offset"]] <= 12)
        assert between == pytest.approx(total[12] - total[6], abs=1e-9)


def test_captured_rebootstrap_lost_six_minutes() -> None:
    """F11: a Java client that loses an in-flight push is silent for 304 s and comes back."""
    _, events = of_kind("java-rb-stop-strategy-rebootstrap-producer")
    (event,) = events
    assert event["event"] == "lost_interval"
    assert dict(event["detail"])["ms"] == "357505"


@pytest.mark.parametrize("kind", ["java-streams-consumer", "java-consumer", "librdkafka-consumer", "java-txn-producer"])
def test_captured_cumulative_sums_are_conserved(kind: str) -> None:
    """sum(delta) + first baseline = last cumulative value, for every series."""
    points, _ = of_kind(kind)
    by_series: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in points:
        if row["temporality"] == "cumulative":
            by_series.setdefault((row["client_instance_id"], row["series_id"]), []).append(row)
    assert by_series
    for rows in by_series.values():
        baseline = rows[0]["value"] if rows[0]["delta_status"] == "baseline" else 0.0
        assert baseline + sum(row["delta"] for row in rows) == pytest.approx(rows[-1]["value"], rel=1e-12)
        assert {row["delta_status"] for row in rows[1:]} <= {"converted"}


def test_captured_franz_go_star_pushes_are_heartbeats() -> None:
    """F2: it takes `*` for a literal prefix."""
    stars = {item["client_instance_id"] for item in captured_index() if item["client_kind"] == "franz-go-producer-star"}
    rows = captured_rows().push_outcomes.to_pylist()
    assert {row["outcome"] for row in rows if row["client_instance_id"] in stars} == {"heartbeat"}


def test_parts_keep_labels_and_distributions_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka_telemetry_lake.udfs.limits.BUDGET", Budget(bytes=1))
    rows = Shard().run(
        push(1, histogram((1, 0, 0), 0, 1), resource={"group_id": "a"}),
        push(2, histogram((1, 2, 0), 0, 2), resource={"group_id": "b"}),
        push(3, gauge(1, 3)),
    )
    assert values_of(rows.metric_points.to_pylist(), "count", "count_delta") == [(1, 1), (3, 2), (None, None)]
    assert [dict(labels or ()) for labels in values_of(rows.push_outcomes.to_pylist(), "labels")] == [
        {"group_id": "a"},
        {"group_id": "b"},
        {},
    ]


def test_pushes_may_come_in_chunks() -> None:
    pushes = [push(1, counter(5, 0, 1)), push(2, counter(7, 0, 2))]
    chunked = pa.concat_tables([table(pushes[:1]), table(pushes[1:])])
    rows, _ = process(chunked, ShardState.empty())
    assert values_of(rows.metric_points.to_pylist(), "delta_int") == [5, 2]
