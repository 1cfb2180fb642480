"""Each bound of a push: one below, one above; and pairs of them at their most, within the bars of time and memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kafka_telemetry_lake.udfs.conversion.payloads import read_payloads
from kafka_telemetry_lake.udfs.conversion.rollups import MINUTE_US, RollUp
from kafka_telemetry_lake.udfs.limits import BUDGET, DEFAULT_LIMITS, NO_BUDGET, Budget, Limits
from kafka_telemetry_lake.udfs.otlp import census as otlp_census
from kafka_telemetry_lake.udfs.otlp import decode as otlp
from kafka_telemetry_lake.udfs.otlp import reference as otlp_reference
from kafka_telemetry_lake.udfs.otlp.decoded import payload_bounds
from tests.support.largest_pushes import DIMENSIONS, T, field, gauge, histogram_points, metric, points
from tests.support.otlp_builder import Shard, push, table, values_of
from tests.support.otlp_builder import gauge as gauge_metric

ROOT = Path(__file__).parents[3]
SECONDS_PER_BYTE = 60e-6
BYTES_PER_BYTE = 64
FLOOR_SECONDS = 0.05
FLOOR_BYTES = 64 << 20  # what a part may need whatever its pushes have
GROUP = b"\x7b\x7c"  # sends a payload to the reference decoder


def run(payload: bytes, limits: Limits = DEFAULT_LIMITS, **columns: Any) -> Any:
    return Shard(limits).run(push(1, payload=payload, **columns))


def quarantine(rows: Any) -> list[Any]:
    return values_of(rows.quarantine.to_pylist(), "scope", "reason", "detail")


def outcome(rows: Any) -> Any:
    return values_of(rows.push_outcomes.to_pylist(), "outcome", "points", "quarantined_points")[0]


@pytest.fixture(params=["kernel", "reference"])
def prefix(request: pytest.FixtureRequest) -> bytes:
    """Before a payload: nothing, or what makes the kernel leave it to the reference decoder."""
    return b"" if request.param == "kernel" else GROUP


def test_a_name_longer_than_its_points_is_not_repeated(prefix: bytes) -> None:
    rows = run(prefix + gauge(points(100_000, b""), b"n" * 60_000))
    assert outcome(rows) == ("points", 0, 100_000)
    assert rows.quarantine.num_rows == 101
    assert quarantine(rows)[-1] == ("point", "NO_TIME", "99900 more points of this push")
    assert rows.quarantine["metric"][0].as_py() == "n" * 1024


@pytest.mark.parametrize("count", [100, 101, 102])
def test_points_without_a_time_are_counted_beyond_the_listed(prefix: bytes, count: int) -> None:
    rows = run(prefix + gauge(points(count, b"") + points(1, b"\x31" + bytes(8) + T)))
    assert outcome(rows) == ("points", 1, count)
    summary = [("point", "NO_TIME", f"{count - 100} more points of this push")]
    assert quarantine(rows) == [("point", "NO_TIME", "time_unix_nano is 0")] * 100 + summary * (count > 100)


def test_each_reason_has_its_own_count() -> None:
    rows = run(gauge(points(60, T) + points(60, b"") + points(50, T)))
    assert outcome(rows) == ("points", 0, 170)
    assert quarantine(rows)[100:] == [
        ("point", "NO_TIME", "20 more points of this push"),
        ("point", "NO_VALUE", "50 more points of this push"),
    ]


@pytest.mark.parametrize(("pairs", "reasons"), [(128, []), (129, ["TOO_MANY_ATTRIBUTES"])])
def test_attributes_of_a_point(prefix: bytes, pairs: int, reasons: list[str]) -> None:
    attributes = b"".join(field(0x3A, field(0x0A, b"%d" % n)) for n in range(pairs))
    rows = run(prefix + gauge(points(1, attributes + b"\x31" + bytes(8) + T)))
    assert values_of(rows.quarantine.to_pylist(), "reason") == reasons
    assert [len(row) for row in values_of(rows.metric_points.to_pylist(), "attributes")] == [128] * (not reasons)


@pytest.mark.parametrize(("labels", "result"), [(128, "heartbeat"), (129, "quarantined")])
def test_labels_of_a_push(labels: int, result: str) -> None:
    resource = b"".join(field(0x0A, field(0x0A, b"%d" % n)) for n in range(labels))
    rows = run(field(0x0A, field(0x0A, resource)))
    assert outcome(rows)[0] == result
    assert quarantine(rows) == [("push", "TELEMETRY_TOO_LARGE", "more than 128 labels")] * (labels > 128)


@pytest.mark.parametrize("kind", ["bounds", "counts", "exponential", "unpacked", "quantiles"])
@pytest.mark.parametrize(("items", "reasons"), [(1024, []), (1025, ["TOO_MANY_BUCKETS"])])
def test_buckets_of_a_point(prefix: bytes, kind: str, items: int, reasons: list[str]) -> None:
    rows = run(prefix + histogram_points(kind, items, 1))
    found = set(values_of(rows.quarantine.to_pylist(), "reason"))
    assert ("TOO_MANY_BUCKETS" in found) == bool(reasons)
    assert outcome(rows)[0] == "points"


@pytest.mark.parametrize("extra", [0, 1])
def test_attributes_of_a_push(prefix: bytes, extra: int) -> None:
    limits = Limits(max_attributes_per_push=20)
    ten = field(0x3A, b"") * 10 + b"\x31" + bytes(8) + T
    rows = run(prefix + gauge(points(2, ten) + points(extra, field(0x3A, b"") + T)), limits)
    assert outcome(rows)[0] == ("quarantined" if extra else "points")
    assert quarantine(rows) == [("push", "TELEMETRY_TOO_LARGE", "more than 20 attributes in all points")] * extra


@pytest.mark.parametrize("extra", [0, 1])
def test_buckets_of_a_push(prefix: bytes, extra: int) -> None:
    limits = Limits(max_buckets_per_push=20, max_buckets=11)
    rows = run(prefix + histogram_points("exponential", 10, 1) + histogram_points("exponential", 10 + extra, 1), limits)
    why = "more than 20 buckets, bounds and quantiles in all points"
    assert quarantine(rows)[:1] == [("push", "TELEMETRY_TOO_LARGE", why)] * extra or not extra
    assert outcome(rows)[0] == ("quarantined" if extra else "points")


def test_a_rejected_payload_leaves_nothing_to_those_beside_it() -> None:
    limits = Limits(max_attributes_per_push=20)
    many = gauge(points(21, field(0x3A, field(0x0A, b"only here")) + T), b"only.here")
    decoded = otlp.decode(pa.array([many, gauge(points(1, T))], pa.large_binary()), limits)
    assert decoded.payloads["points"].to_pylist() == [0, 1]
    assert "only" not in str(
        decoded.attribute_sets.to_pylist() + decoded.points["metric"].chunk(0).dictionary.to_pylist()
    )


@pytest.mark.parametrize(("count", "result"), [(10, "points"), (11, "quarantined")])
def test_texts_times_points(prefix: bytes, count: int, result: str) -> None:
    key_bytes = len("kafka" + "cluster" + "client-telemetry" + "client") + 22
    limits = Limits(max_row_text_bytes=10 * (1000 + key_bytes))
    rows = run(prefix + gauge(points(count, b"\x31" + bytes(8) + T), b"n" * 1000), limits)
    assert outcome(rows)[0] == result
    assert len(quarantine(rows)) == (count > 10)


def test_names_at_the_limit_of_texts_are_cheap() -> None:
    """Two pushes of 100,000 points with names of 16,000 bytes asked for 3 GB of columns."""
    value = points(100_000, b"\x31" + bytes(8) + T)
    rows = Shard().run(*[push(n, payload=gauge(value, bytes([n]) * 16_000)) for n in (65, 66)])
    assert values_of(rows.push_outcomes.to_pylist(), "outcome") == ["quarantined"] * 2
    assert "more than 67108864" in quarantine(rows)[0][2]


def test_long_names_of_rejected_points_leave_accepted_ones_as_they_are() -> None:
    good = points(2, b"\x31" + bytes(8) + T)
    rows = run(gauge(good, b"b") + gauge(points(1, T), b"n" * 60_000) + gauge(good, b"a"))
    assert values_of(rows.metric_points.to_pylist(), "metric", "scope") == [("b", None)] * 2 + [("a", None)] * 2
    assert sorted(rows.metric_points["metric"].combine_chunks().dictionary.to_pylist()) == ["a", "b"]


@pytest.mark.parametrize(("extra", "result"), [(0, "heartbeat"), (1, "quarantined")])
def test_fields_of_a_payload_that_only_the_reference_decoder_reads(extra: int, result: str) -> None:
    fields = b"\x0a\x00" * (DEFAULT_LIMITS.max_reference_fields - 2 + extra)
    rows = run(GROUP + fields)
    assert outcome(rows)[0] == result
    assert [row[1] for row in quarantine(rows)] == ["TELEMETRY_TOO_LARGE"] * extra


def test_the_census_counts_what_upb_reads() -> None:
    packed = metric(b"h", field(0x52, field(0x0A, field(0x42, field(0x12, b"\x01\x80\x02\x03")))))
    doubles = metric(b"h", field(0x4A, field(0x0A, field(0x3A, bytes(24)))))
    payloads = [b"", b"\x0a\x00", b"\x7b\x0a\x00\x7c", gauge(points(2, T)), packed, doubles, b"\x0a\x05\x12"]
    array = pa.array(payloads, pa.large_binary())
    counts = otlp_census.fields(*payload_bounds(array), 1000, 1000)
    assert counts.tolist() == [0, 1, 3, 5 + 4, 5 + 3 + 3, 5 + 2 + 3, 1]
    assert len(otlp_census.fields(*payload_bounds(array), 1000, 4)) == 3


LENGTHS = [b"\x80" * n + b"\x00" for n in range(1, 10)] + [b"\x82" + b"\x80" * n + b"\x00" for n in range(8)]
TAGS = [b"\x8a" + b"\x80" * n + b"\x00" for n in range(9)] + [b"\xfa\xff\xff\xff\x0f", b"\xfa\xff\xff\xff\x1f"]


@pytest.mark.parametrize("head", [b"\x0a" + length for length in LENGTHS] + [tag + b"\x02" for tag in TAGS])
def test_overlong_lengths_and_tags_are_as_upb_has_them(head: bytes) -> None:
    payload = pa.array([head + b"\x12\x00", head], pa.large_binary())
    assert otlp.decode(payload).payloads.equals(otlp_reference.decode(payload).payloads)


@pytest.mark.parametrize("name", ["points", "attributes", "buckets", "row_text_bytes", "reference_fields", "pushes"])
def test_a_part_ends_at_each_budget(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    payload = gauge(points(5, field(0x3A, b"") * 2 + T)) + histogram_points("exponential", 10, 1)
    payload = GROUP + payload if name == "reference_fields" else payload

    def distinct(n: int) -> bytes:
        return payload + gauge(points(1, field(0x3A, field(0x0A, b"%d" % n)) + T))

    pushes = table([push(n, payload=distinct(n)) for n in range(30)]).combine_chunks()
    whole = sum(part.decoded.points.num_rows for part in read_payloads(pushes))
    sizes = {
        "points": 40,
        "attributes": 10,
        "buckets": 60,
        "row_text_bytes": 2000,
        "reference_fields": 200,
        "pushes": 6,
    }
    monkeypatch.setattr("kafka_telemetry_lake.udfs.limits.BUDGET", Budget(**{name: sizes[name]}))
    parts = [part.decoded.points.num_rows for part in read_payloads(pushes)]
    assert sum(parts) == whole == 30 * 7
    assert len(parts) >= 4, parts


def test_rollups_tell_when_their_texts_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka_telemetry_lake.udfs.conversion.rollups.ROLLUP_TEXT_BYTES", 1000)
    rollup = RollUp(MINUTE_US)
    rollup.add(Shard().run(push(1, gauge_metric(1, 1, name="x" * 500))).metric_points)
    assert not rollup.is_large
    rollup.add(Shard().run(push(1, gauge_metric(1, 1, name="y" * 500))).metric_points)
    assert rollup.is_large


def test_budgets_are_above_the_limits_of_one_push() -> None:
    assert BUDGET.points >= DEFAULT_LIMITS.max_points_per_push
    assert BUDGET.buckets >= DEFAULT_LIMITS.max_buckets_per_push
    assert NO_BUDGET.bytes > BUDGET.bytes


def measured(copies: int, *combinations: tuple[str, ...]) -> list[tuple[int, float, int, str]]:
    """Uncompressed bytes, CPU-seconds, peak bytes and outcomes of each, in a process of their own."""
    arguments = ["-m", "tests.support.largest_pushes", str(copies), *map("+".join, combinations)]
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = [line.split(maxsplit=3) for line in done.stdout.splitlines()]
    return [(int(size), float(seconds), int(peak), rest) for size, seconds, peak, rest in lines]


@pytest.mark.slow
@pytest.mark.parametrize("name", DIMENSIONS)
def test_pairs_of_dimensions_at_their_most(name: str) -> None:
    """With each dimension that follows, and for the last one all of them together."""
    rest = list(DIMENSIONS)[list(DIMENSIONS).index(name) + 1 :]
    combinations: list[tuple[str, ...]] = [(name, other) for other in rest] or [tuple(DIMENSIONS)]
    for size, seconds, peak, what in measured(1, (name,), *combinations):
        assert seconds <= SECONDS_PER_BYTE * size + FLOOR_SECONDS, what
        assert peak <= FLOOR_BYTES + BYTES_PER_BYTE * size, what


@pytest.mark.slow
def test_a_slice_of_worst_pushes_stays_in_memory() -> None:
    """30 pushes with all dimensions at their most: memory follows the part, not the slice."""
    ((_, _, peak, _),) = measured(30, tuple(name for name in DIMENSIONS if name != "group"))
    assert peak <= 3 << 30
