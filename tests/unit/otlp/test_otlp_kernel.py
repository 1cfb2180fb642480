"""The compiled decoder against the reference decoder: same verdicts, same rows, nothing touched outside."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from benchmarks.corpora import captured
from kafka_telemetry_lake.udfs.limits import Limits
from kafka_telemetry_lake.udfs.otlp import decode as otlp
from kafka_telemetry_lake.udfs.otlp import kernel as otlp_kernel
from kafka_telemetry_lake.udfs.otlp import reference as otlp_reference
from tests.unit.otlp.otlp_comparison import assert_same, assert_sets_distinct
from tests.unit.otlp.otlp_mutations import metrics_data, reencoded, varint

ROOT = Path(__file__).parents[3]


def of_points(limit: int) -> Limits:
    """Limits of so many points, timed or not."""
    return Limits(max_points_per_push=limit, max_listed_points=1 << 40)


def binary(*payloads: bytes) -> pa.LargeBinaryArray:
    return pa.array(payloads, pa.large_binary())


def field(tag: int, content: bytes) -> bytes:
    return varint(tag) + varint(len(content)) + content


def metric(*fields: bytes) -> bytes:
    """A MetricsData message of one metric, from its encoded fields."""
    return field(0x0A, field(0x12, field(0x12, b"".join(fields))))


def gauge(points: bytes, name: bytes = b"m") -> bytes:
    """A MetricsData message of one gauge, from its encoded data points."""
    return metric(field(0x0A, name), field(0x2A, points))


def run(*arguments: str, **environment: str) -> str:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout


def test_captured_pushes_give_the_reference_rows() -> None:
    result = otlp_kernel.decode(captured(), of_points(1_000_000))
    assert result.odd.tolist() == []
    assert result.decoded.points.num_rows == 157_260
    assert_same(result.decoded, otlp_reference.decode(captured()))
    assert_sets_distinct(result.decoded)


@settings(max_examples=100)
@given(st.integers(0, 2**64), st.sampled_from((0.0, 0.02, 0.2)), st.sampled_from((1, 2, 5, 1_000_000)))
def test_any_message_gives_the_reference_rows(seed: int, oddity: float, max_points: int) -> None:
    random = Random(seed)
    messages = [metrics_data(random).SerializeToString() for _ in range(10)]
    payloads = binary(*[reencoded(payload, pb.MetricsData.DESCRIPTOR, random, oddity) for payload in messages])
    decoded = otlp.decode(payloads, of_points(max_points))
    assert_same(decoded, otlp_reference.decode(payloads, of_points(max_points)))
    assert_sets_distinct(decoded)


@pytest.mark.slow
def test_mutated_payloads_between_guard_pages() -> None:
    outcome = run("-m", "tests.unit.otlp.otlp_guarded", "20000", "1").split()
    rejected, left_to_reference = int(outcome[2]), int(outcome[4])
    assert 5_000 < rejected < 15_000  # the mutations reach both verdicts,
    assert left_to_reference < 15_000  # and the kernel decides most that are accepted


@pytest.mark.slow
@pytest.mark.soak
def test_a_million_mutated_payloads_between_guard_pages() -> None:
    assert run("-m", "tests.unit.otlp.otlp_guarded", "1000000", "2").startswith("1000000 payloads")


@pytest.mark.slow
@pytest.mark.soak
def test_mutated_payloads_with_every_index_checked(tmp_path: Path) -> None:
    # Compiled anew, with numba's own bounds checks: an index outside of any array raises.
    run(
        "-m", "tests.unit.otlp.otlp_guarded", "20000", "3", NUMBA_BOUNDSCHECK="1", NUMBA_CACHE_DIR=str(tmp_path)
    )  # fmt: skip


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (b"\x88\x80", "a tag that breaks off"),
        (b"\x0a\x05\x12", "a length beyond the end"),
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "a length of 2^64 - 1"),
        (b"\x0a\x80\x80\x80\x80\x08", "a length of 2^31"),
        (b"\x02\x00", "field number 0"),
        (b"\x80\x80\x80\x80\x10", "a field number of 2^29"),
        (b"\x0c", "an end of a group that didn't start"),
        (b"\x08" + b"\xff" * 10 + b"\x00", "a varint of eleven bytes"),
        (gauge(b"", name=b"\xff"), "a name that isn't UTF-8"),
        (gauge(b"", name=b"\xed\xa0\x80"), "a surrogate"),
        (gauge(b"", name=b"\xc0\x80"), "an overlong NUL"),
        (gauge(b"", name=b"\xf4\x90\x80\x80"), "a character beyond Unicode"),
        (gauge(field(0x0A, field(0x3A, field(0x0A, b"\x80")))), "a key that isn't UTF-8"),
        (
            gauge(field(0x0A, field(0x3A, field(0x0A, b"\xff") + field(0x0A, b"k")))),
            "a key before the last one that isn't",
        ),
        (gauge(field(0x0A, b"\x21\x00")), "a double that breaks off"),
        (gauge(field(0x0A, b"\x40\x80")), "flags that break off"),
        (gauge(field(0x0A, field(0x2A, field(0x3A, field(0x0A, b"\x80"))))), "an exemplar's key that isn't UTF-8"),
    ],
)
def test_malformed_payloads_are_left_to_upb(payload: bytes, why: str) -> None:
    assert otlp_kernel.decode(binary(payload)).odd.tolist() == [0], why
    assert otlp.decode(binary(payload)).payloads["error"].to_pylist()[0].startswith("not a MetricsData message: ")


KEY = field(0x0A, b"k")
VALUE, OTHER_VALUE = (field(0x12, field(0x0A, text)) for text in (b"v", b"w"))
EMPTY_POINT = field(0x0A, b"")
AS_INT, AS_DOUBLE = b"\x31" + bytes([7, *[0] * 7]), b"\x21" + np.float64(1.5).tobytes()
SUM_OF_DELTAS, SUM_OF_TOTALS = (field(0x3A, EMPTY_POINT + b"\x10" + kind) for kind in (b"\x01", b"\x02"))
TWO_TO_THE_32 = b"\x80\x80\x80\x80\x10"
LOW_BITS_ONLY = b"\x82\x80\x80\x80\x10"  # 2^32 + 2


def attributes(*pairs: bytes, between: bytes = b"") -> bytes:
    return gauge(field(0x0A, between.join(field(0x3A, pair) for pair in pairs)))


def exponential(buckets: bytes) -> bytes:
    return metric(field(0x52, field(0x0A, buckets)))


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (metric(SUM_OF_TOTALS, field(0x2A, EMPTY_POINT * 2)), "the last member of a oneof counts"),
        (metric(SUM_OF_DELTAS, SUM_OF_TOTALS), "a member set twice is merged"),
        (metric(SUM_OF_TOTALS, field(0x0A, b"a"), field(0x0A, b"b")), "the last name counts"),
        (metric(field(0x3A, EMPTY_POINT + b"\x10" + LOW_BITS_ONLY)), "an enum has 32 bits"),
        (metric(field(0x3A, EMPTY_POINT + b"\x18" + TWO_TO_THE_32)), "a bool has 64"),
        (metric(field(0x3A, EMPTY_POINT + b"\x10\x03")), "an unknown temporality is none"),
        (metric(field(0x3A, EMPTY_POINT + b"\x10" + b"\xff" * 9 + b"\x01")), "a negative one is none"),
        (metric(field(0x2A, EMPTY_POINT + b"\x10\x02\x18\x01")), "a gauge has neither of Sum's fields"),
        (metric(field(0x4A, EMPTY_POINT + b"\x10\x02\x18\x01")), "a histogram is not monotonic"),
        (metric(field(0x5A, EMPTY_POINT + b"\x10\x02")), "a summary has no temporality"),
        (gauge(field(0x0A, AS_INT + AS_DOUBLE) + field(0x0A, AS_DOUBLE + AS_INT)), "the last number of a point counts"),
        (gauge(field(0x0A, b"\x40" + LOW_BITS_ONLY)), "flags have 32 bits"),
        (gauge(field(0x0A, b"\x40\x81\x00\x40\x05")), "the last flags count"),
        (gauge(field(0x0A, b"\x42\x01\x07\x3d\x01\x02\x03\x04")), "other wire types are unknown fields"),
        (exponential(b"\x30" + LOW_BITS_ONLY), "a scale has 32 bits"),
        (exponential(field(0x42, b"\x08\x03\x10\x07") + field(0x42, b"\x12\x02\x80\x01")), "buckets are merged"),
        (exponential(field(0x42, b"\x12\x0a" + b"\xff" * 9 + b"\x01")), "a count of 2^64 - 1"),
        (attributes(KEY + VALUE, KEY + OTHER_VALUE, between=field(0x2A, b"")), "attributes in two places"),
        (attributes(KEY + VALUE, KEY + OTHER_VALUE, between=field(0x7A, KEY)), "an unknown field among attributes"),
        (attributes(KEY + VALUE + OTHER_VALUE), "the last value counts"),
        (attributes(KEY + VALUE + field(0x12, b"")), "an empty second value is merged"),
        (attributes(field(0x0A, b"a") + KEY + VALUE), "the last key counts"),
        (attributes(KEY + field(0x12, field(0x0A, b"v") + b"\x18\x05")), "the last member of a value counts"),
        (attributes(KEY + field(0x12, b"\x18" + b"\xff" * 9 + b"\x01")), "an integer of -1"),
        (attributes(KEY + field(0x12, b"\x18" + b"\xff" * 9 + b"\x02")), "a varint of 65 bits"),
        (attributes(KEY + field(0x12, b"\x18" + b"\xff" * 9 + b"\x7f")), "a varint of 70 bits"),
        (attributes(KEY + field(0x12, b"\x10" + TWO_TO_THE_32)), "a bool of 2^32"),
        (attributes(KEY + field(0x12, b"\x40\x05")), "a value in a string table"),
        (attributes(VALUE, KEY, b""), "no key, no value, neither"),
        (
            field(0x0A, field(0x12, field(0x12, field(0x2A, EMPTY_POINT)) + field(0x0A, KEY))),
            "a scope behind its metrics",
        ),
        (field(0x0A, field(0x12, field(0x0A, b"") + field(0x12, field(0x2A, EMPTY_POINT)))), "a scope without a name"),
        (
            b"".join(field(0x0A, field(0x0A, field(0x0A, KEY + value))) for value in (VALUE, OTHER_VALUE)),
            "two resources",
        ),
        (b"\x7b\x08\x01\x7c" + metric(SUM_OF_TOTALS), "an unknown group"),
        (b"\x8a\x00" + metric(SUM_OF_TOTALS)[1:], "a tag longer than need be"),
    ],
)
def test_odd_but_legal_payloads_give_the_reference_rows(payload: bytes, why: str) -> None:
    expected = otlp_reference.decode(binary(payload))
    assert expected.payloads["error"].to_pylist() == [None], why
    assert_same(otlp.decode(binary(payload)), expected)


def test_text_at_the_limits_of_utf8() -> None:
    names = ["\x7f\x80\u07ff\u0800", "\ud7ff\ue000\uffff\U00010000\U0010ffff", "x" * 9 + "é"]
    payloads = binary(*[gauge(field(0x0A, b""), name.encode()) for name in names])
    result = otlp_kernel.decode(payloads)
    assert result.odd.tolist() == []
    assert result.decoded.points["metric"].to_pylist() == names


def test_a_million_two_byte_points() -> None:
    payload = gauge(b"\x0a\x00" * 1_000_000)
    before = pa.total_allocated_bytes()
    rows = otlp_kernel.decode(binary(payload), of_points(1_000_000)).decoded.points
    assert rows.num_rows == 1_000_000
    assert rows["number"].null_count == 0
    assert pa.total_allocated_bytes() - before < 80_000_000
    capped = otlp_kernel.decode(binary(payload, payload), of_points(1_000)).decoded
    assert capped.payloads["points"].to_pylist() == [1_000, 1_000]
    assert capped.payloads["beyond"].to_pylist() == [999_000, 999_000]
    assert capped.points.num_rows == 2_000


def test_a_hundred_thousand_attribute_sets() -> None:
    def point(number: int) -> bytes:
        attribute = KeyValue(key="client_id", value=AnyValue(string_value=f"client-{number}"))
        return field(0x0A, field(0x3A, attribute.SerializeToString()))

    points = [point(number) for number in range(100_000)]
    payloads = binary(gauge(b"".join(points)), gauge(points[99_999] + points[0]))
    decoded = otlp_kernel.decode(payloads, of_points(1_000_000)).decoded
    assert len(decoded.attribute_sets) == 100_000
    assert decoded.points["attributes"].to_pylist() == [*range(100_000), 99_999, 0]
    assert decoded.attribute_sets[99_999].as_py() == [("client_id", "client-99999")]


def test_equal_lists_in_different_bytes_are_one_set() -> None:
    text = KeyValue(key="node_id", value=AnyValue(string_value="7")).SerializeToString()
    number = KeyValue(key="node_id", value=AnyValue(int_value=7)).SerializeToString()
    longer_length = text[:1] + bytes([text[1] | 0x80, 0]) + text[2:]
    points = b"".join(field(0x0A, field(0x3A, pair)) for pair in (text, number, longer_length))
    result = otlp_kernel.decode(binary(gauge(points)))
    assert result.odd.tolist() == []
    assert result.decoded.points["attributes"].to_pylist() == [0, 0, 0]
    assert result.decoded.attribute_sets.to_pylist() == [[("node_id", "7")]]


def test_a_repeated_key_is_kept_in_points_and_merged_in_resources() -> None:
    attributes = [KeyValue(key="k", value=AnyValue(string_value=value)) for value in "ab"]
    point, resource = pb.MetricsData(), pb.MetricsData()
    metric = point.resource_metrics.add().scope_metrics.add().metrics.add(name="m")
    metric.exponential_histogram.data_points.add(attributes=attributes)  # field 1, as in a resource
    resource.resource_metrics.add().resource.attributes.extend(attributes)
    payloads = binary(point.SerializeToString(), resource.SerializeToString())
    assert otlp_kernel.decode(payloads).odd.tolist() == [1]
    decoded = otlp.decode(payloads)
    assert decoded.attribute_sets.to_pylist() == [[("k", "a"), ("k", "b")], [("k", "b")]]
    assert decoded.points["attributes"].to_pylist() == [0]
    assert decoded.payloads["resource"].to_pylist() == [-1, 1]


def test_a_data_point_beyond_the_cap_leaves_nothing_in_the_next_one() -> None:
    full = pb.HistogramDataPoint(count=3, sum=1.5, min=1.0, max=2.0, bucket_counts=[1, 2], explicit_bounds=[1.0])
    empty = pb.HistogramDataPoint()
    messages = []
    for points in ([full, full], [empty]):
        data = pb.MetricsData()
        metric = data.resource_metrics.add().scope_metrics.add().metrics.add(name="m")
        metric.histogram.data_points.extend(points)
        messages.append(data.SerializeToString())
    payloads = binary(*messages)
    decoded = otlp_kernel.decode(payloads, of_points(1)).decoded
    assert decoded.payloads["beyond"].to_pylist() == [1, 0]
    assert decoded.distributions["count"].to_pylist() == [3, 0]
    assert decoded.distributions["bucket_counts"].to_pylist() == [[1, 2], []]
    assert decoded.distributions["sum"].to_pylist() == [1.5, None]
    assert_same(decoded, otlp_reference.decode(payloads, of_points(1)))


def test_lists_of_several_kinds_in_turn_are_each_kinds_own() -> None:
    data = pb.MetricsData()
    metrics = data.resource_metrics.add().scope_metrics.add().metrics
    for turn in range(3):
        metrics.add(name="h").histogram.data_points.add(bucket_counts=[turn, 1 << 63], explicit_bounds=[0.5 + turn])
        many = [1] * (5 if turn == 1 else 2)  # in the second turn too many
        point = metrics.add(name="e").exponential_histogram.data_points.add()
        point.positive.bucket_counts.extend([turn, 127, 128, 16383, 16384, 1 << 40][: 2 + turn])
        point.negative.bucket_counts.extend(many)
        quantile = metrics.add(name="s").summary.data_points.add().quantile_values.add()
        quantile.quantile, quantile.value = 0.5, turn
        metrics.add(name="g").gauge.data_points.add(as_int=turn)
    payloads, limits = binary(data.SerializeToString()), Limits(max_buckets=4)
    result = otlp_kernel.decode(payloads, limits)
    assert result.odd.tolist() == []
    lists = result.decoded.distributions
    assert lists["negative_counts"].to_pylist() == [None, [1, 1], None, None, [], None, None, [1, 1], None]
    assert_same(result.decoded, otlp_reference.decode(payloads, limits))


@pytest.mark.slow
def test_a_new_process_loads_the_kernel_from_the_cache() -> None:
    program = """
from benchmarks.corpora import captured
from kafka_telemetry_lake.udfs.otlp import kernel as otlp_kernel, wire_attributes
entries = [otlp_kernel.measure, otlp_kernel.fill, wire_attributes.take_apart, wire_attributes.gather]
otlp_kernel.load()
print(sum(sum(entry.stats.cache_misses.values()) for entry in entries))
print(otlp_kernel.decode(captured()).decoded.points.num_rows)
print(max(len(entry.overloads) for entry in entries))
"""
    run("-c", program)
    assert run("-c", program).split() == ["0", "157260", "1"]


@pytest.mark.slow
def test_a_batch_of_more_than_2_gib() -> None:
    program = """
import pyarrow as pa
from benchmarks.corpora import captured
from benchmarks.decode import measured_memory
from kafka_telemetry_lake.udfs.otlp import decode as otlp
batch = pa.concat_arrays([captured()] * 70)
assert batch.buffers()[2].size > 2**31
decoded, peak = measured_memory(batch)
first = otlp.decode(captured())
n = first.points.num_rows
assert decoded.points.num_rows == 70 * n
last = decoded.points.slice(69 * n)
for name in ("metric", "value_int", "start_ns", "attributes"):
    assert last[name].to_pylist() == first.points[name].to_pylist()
print(peak)
"""
    assert float(run("-c", program)) < 3
