"""The engine against the oracle and against the laws, on random clients, batches, cuts and redeliveries."""

from __future__ import annotations

import math
import os
from collections import Counter as Bag
from collections.abc import Iterable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kafka_telemetry_lake.udfs.conversion.shard import process
from kafka_telemetry_lake.udfs.conversion.state import ShardState
from kafka_telemetry_lake.udfs.limits import Limits
from kafka_telemetry_lake.udfs.rows import PUSHES_IN
from tests.oracle.compare import actual, differences, expected
from tests.oracle.instruments import Counter
from tests.oracle.model import CUMULATIVE, HOUR_NS, SECOND_NS, Push, Settings
from tests.oracle.oracle import Oracle
from tests.oracle.scenarios import Features, landed_of, scenario, simulate
from tests.oracle.wire import landed, payload

Tables = dict[str, list[dict[str, Any]]]
TABLES = ("metric_points", "quarantine", "push_outcomes", "client_events")
# Hypothesis' own generator shrinks; seeded ones reach rarer things.
SEEDS = st.randoms(use_true_random=False) | st.integers(0, 2**32 - 1).map(Random)
budget = settings(
    max_examples=int(os.environ.get("PROPERTY_EXAMPLES", "5")),  # `make test-slow` has more
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)


def run(batches: Iterable[Sequence[Push]], limits: Limits | None = None) -> Tables:
    """All rows of the batches; between them the state goes through its stored form."""
    tables: Tables = {name: [] for name in TABLES}
    stored = ShardState.empty().to_bytes()
    for batch in batches:
        pushes = pa.Table.from_pylist([landed(push) for push in batch], PUSHES_IN)
        rows, state = process(pushes, ShardState.from_bytes(stored), limits or Limits())
        stored = state.to_bytes()
        for name in TABLES:
            tables[name] += getattr(rows, name).to_pylist()
    return tables


def cuts(pushes: Sequence[Push], random: Random) -> list[list[Push]]:
    """The pushes in order, in up to four batches; some may be empty."""
    at = sorted(random.randrange(len(pushes) + 1) for _ in range(random.randrange(4)))
    return [list(pushes[a:b]) for a, b in zip([0, *at], [*at, len(pushes)], strict=True)]


def check_against_oracle(batches: list[list[Push]]) -> None:
    oracle = Oracle()
    want = expected([oracle.batch(batch) for batch in batches])
    assert differences(want, actual(run(batches))) == ""


ORDERED = Features(ordered=True)
NO_RESETS = Features(
    resets=False,
    repeats=False,
    silence=False,
    skew=False,
    same_ids=False,
    moves=False,
    defects=False,
    unknown_starts=False,
    distributions=False,
    pushes=10,
)
# The rules leave two ways to count twice, which are left out here: the first cumulative push of a Java client
# is lost (C9 takes the second one for series that began after the last DELTA push), and a DELTA push lands
# behind the flip after it.
AT_MOST_ONCE = (
    replace(NO_RESETS, ordered=True, styles=("java",), loss=False),
    replace(NO_RESETS, ordered=True, styles=("librdkafka", "kgo")),
    replace(NO_RESETS, flips=False),
)
CUMULATIVE_ONLY = replace(NO_RESETS, temporalities=(CUMULATIVE,), flips=False, ordered=True)


@budget
@given(SEEDS)
def test_rows_are_the_oracles(random: Random) -> None:
    check_against_oracle(cuts(scenario(random), random))


@budget
@given(SEEDS)
def test_cuts_in_time_order_change_no_row(random: Random) -> None:
    pushes = scenario(random, ORDERED)
    assert bags(run(cuts(pushes, random))) == bags(run([pushes]))


@budget
@given(SEEDS)
def test_order_of_arrival_inside_a_batch_changes_nothing(random: Random) -> None:
    pushes = scenario(random)
    shuffled = list(pushes)
    random.shuffle(shuffled)
    assert repr(run([shuffled])) == repr(run([pushes]))


@budget
@given(SEEDS)
def test_redelivery_changes_no_sum(random: Random) -> None:
    pushes = scenario(random, replace(NO_RESETS, redelivery=False, ordered=True))
    again = list(pushes)
    for _ in range(random.randrange(1, 5) if pushes else 0):
        source = random.randrange(len(again))
        again.insert(random.randrange(source, len(again)) + 1, again[source])
    assert_same_sums(run(cuts(renumbered(pushes), random)), run(cuts(renumbered(again), random)))


@budget
@given(SEEDS)
def test_conservation(random: Random) -> None:
    """sum(delta) + first baseline = last cumulative value, whatever the batching and the redeliveries."""
    tables = run(cuts(scenario(random, CUMULATIVE_ONLY), random))
    for rows in by_series(tables).values():
        ordered = sorted(rows, key=lambda row: row["time"])
        baseline = ordered[0]["value_int"] if ordered[0]["delta_status"] == "baseline" else 0
        if all(row["value_int"] is not None for row in rows):
            assert total(rows, "delta_int") + baseline == ordered[-1]["value_int"]
        else:
            baseline = ordered[0]["value"] if ordered[0]["delta_status"] == "baseline" else 0.0
            last = ordered[-1]["value"]
            assert abs(total(rows, "delta") + baseline - last) <= len(rows) * math.ulp(last)


@budget
@given(SEEDS)
def test_disorder_across_batches_keeps_points_and_sums(random: Random) -> None:
    pushes = scenario(random, replace(NO_RESETS, ordered=True, flips=False, loss=False))
    shuffled = list(pushes)
    random.shuffle(shuffled)
    in_order, disordered = run(cuts(renumbered(pushes), random)), run(cuts(renumbered(shuffled), random))
    assert points_of(in_order) == points_of(disordered)
    assert_same_sums(in_order, disordered)


@budget
@given(SEEDS)
@example(Random(6502))  # a push 40 s ahead overtook an older one of its batch: its whole total was counted again
def test_c13_clocks_that_run_ahead_lose_and_add_nothing(random: Random) -> None:
    """C13: some pushes' clocks jump ahead, a second to an hour after landing; batches and arrivals are in any order."""
    features = replace(CUMULATIVE_ONLY, redelivery=False, loss=False, skew=False)
    pushes = scenario(random, features)
    jumped = [ahead(push, random) if random.randrange(3) == 0 else push for push in pushes]
    if random.randrange(2):  # a clock that is always ahead
        jump = random.randrange(61, 3500) * SECOND_NS
        jumped = [ahead(push, random, jump) for push in pushes]
    arrived = list(jumped)
    if random.randrange(2):
        random.shuffle(arrived)
    arrived = [replace(push, offset=offset) for offset, push in enumerate(arrived)]
    batches = cuts(arrived, random)
    tables = run(batches)
    check_against_oracle(batches)
    assert tables["quarantine"] == []
    for rows in by_series(tables).values():
        counted = sum(exact_delta(row) for row in rows)
        if all(row["value_int"] is not None for row in rows):
            assert counted == max(row["value_int"] for row in rows)
        else:
            last = max(row["value"] for row in rows)
            assert abs(counted - last) <= 2 * len(rows) * math.ulp(last)


def ahead(push: Push, random: Random, by_ns: int | None = None) -> Push:
    """The push of a clock that is ahead: its times are more than a second and up to an hour after its landing."""
    times = [point.time_ns for point in push.points] or [0]
    landed_ns = push.landed_at_us * 1000
    least, room = landed_ns + SECOND_NS + 1000 - min(times), landed_ns + HOUR_NS - max(times)
    by_ns = random.randrange(least, max(least + 1, room)) if by_ns is None else min(by_ns, room)
    points = tuple(replace(point, time_ns=point.time_ns + by_ns) for point in push.points)
    return replace(push, points=points, payload=payload(points, push.resource))


@budget
@given(SEEDS)
def test_nothing_is_counted_twice(random: Random) -> None:
    """Through flips, losses, disorder and redelivery, the deltas never exceed what the client has counted."""
    clients = simulate(random, random.choice(AT_MOST_ONCE))
    tables = run(cuts(landed_of(clients), random))
    counted: dict[tuple[str, str, str], float] = {}
    for row in tables["metric_points"]:
        key = (row["client_instance_id"], row["metric"], dict(row["attributes"])["partition"])
        counted[key] = counted.get(key, 0) + exact_delta(row)
    for client in clients:
        for instrument in client.instruments:
            if isinstance(instrument, Counter) and not instrument.falls and instrument.total >= 0:
                true, point = instrument.total, instrument.point
                have = counted.get((client.name, point.metric, str(dict(point.attributes)["partition"])), 0)
                assert have <= (true if instrument.number_type == "int" else true + 20 * math.ulp(true))


@budget
@given(SEEDS)
def test_points_beyond_the_limit_are_counted_in_quarantine(random: Random) -> None:
    pushes, limit = scenario(random), random.randrange(1, 4)
    batches = cuts(pushes, random)
    oracle = Oracle(Settings(max_points_per_push=limit))
    want = expected([oracle.batch(batch) for batch in batches])
    assert differences(want, actual(run(batches, Limits(max_points_per_push=limit)))) == ""


def test_the_scenarios_reach_every_status() -> None:
    seen: set[str | None] = set()
    for seed in range(300):
        random = Random(seed)
        pushes, oracle = scenario(random), Oracle()
        cut = random.randrange(len(pushes) + 1)
        for batch in (oracle.batch(pushes[:cut]), oracle.batch(pushes[cut:])):
            seen.update(judged.reason or judged.status for judged in batch.points)
            seen.update(name for verdict in batch.pushes for name, _ in verdict.events)
    statuses = "delta late_delta negative first reset inferred_reset converted bounds_changed flip_converted baseline"
    refused = "flip_baseline late duplicate conflict too_late no_recorded_value non_finite value"
    reasons = "NO_TIME NO_VALUE UNKNOWN_TEMPORALITY START_AFTER_TIME BAD_BUCKETS FUTURE_TIME"
    events = "temporality_flip lost_interval lost_interval_closed"
    assert seen == set(f"{statuses} {refused} {reasons} {events}".split())


@pytest.mark.slow
@pytest.mark.soak
def test_rows_are_the_oracles_in_many_scenarios() -> None:
    for seed in range(1000):
        random = Random(seed)
        check_against_oracle(cuts(scenario(random), random))


def renumbered(pushes: Sequence[Push]) -> list[Push]:
    """The pushes landed in this order: offsets and landed_at rise with it."""
    times = sorted(push.landed_at_us for push in pushes)
    pairs = enumerate(zip(pushes, times, strict=True))
    return [replace(push, offset=offset, landed_at_us=time) for offset, (push, time) in pairs]


def bags(tables: Tables) -> dict[str, Bag[str]]:
    return {name: Bag(repr(sorted(row.items())) for row in rows) for name, rows in tables.items()}


def by_series(tables: Tables) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    """Rows of monotonic sums that were not refused as repeats."""
    series: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in tables["metric_points"]:
        if row["kind"] == "sum" and row["is_monotonic"]:
            series.setdefault(series_of(row), []).append(row)
    return series


def series_of(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["cluster_id"], row["client_instance_id"], row["series_id"]


def exact_delta(row: dict[str, Any]) -> int | float:
    return row["delta_int"] if row["delta_int"] is not None else row["delta"] or 0


def total(rows: list[dict[str, Any]], column: str) -> Any:
    return sum(row[column] for row in rows if row[column] is not None)


def points_of(tables: Tables) -> Bag[tuple[Any, ...]]:
    rows = tables["metric_points"]
    return Bag((*series_of(row), row["start_time"], row["time"], row["value"]) for row in rows)


def assert_same_sums(one: Tables, other: Tables) -> None:
    a, b = by_series(one), by_series(other)
    assert a.keys() == b.keys()
    for series, rows in a.items():
        ints = all(row["value_int"] is not None for row in rows)
        have, want = (sum(exact_delta(row) for row in part) for part in (rows, b[series]))
        scale = max(abs(row["value"]) for row in rows)
        assert have == want if ints else abs(have - want) <= 2 * len(rows) * math.ulp(scale)
