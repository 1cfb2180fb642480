"""`otlp.decode`: what it takes, what it does with bad payloads, and with a machine without numba."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Iterator
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from benchmarks.corpora import captured
from kafka_telemetry_lake.sandbox.patience import PATIENCE_S
from kafka_telemetry_lake.udfs.limits import Limits
from kafka_telemetry_lake.udfs.otlp import decode as otlp
from kafka_telemetry_lake.udfs.otlp import kernel as otlp_kernel
from kafka_telemetry_lake.udfs.otlp import reference as otlp_reference
from tests.unit.otlp.otlp_comparison import assert_same, assert_sets_distinct
from tests.unit.otlp.otlp_mutations import metrics_data


def messages(count: int, seed: int = 1) -> list[bytes]:
    random = Random(seed)
    return [metrics_data(random).SerializeToString() for _ in range(count)]


def odd_message(number: int) -> bytes:
    """Valid, with a value that only the reference decoder reads, and an attribute list that others have too."""
    data = pb.MetricsData()
    metric = data.resource_metrics.add().scope_metrics.add().metrics.add(name=f"odd.{number}")
    metric.gauge.data_points.add(as_int=number, attributes=[KeyValue(key="k", value=AnyValue(bytes_value=b"\0"))])
    metric.gauge.data_points.add(as_int=number)
    return data.SerializeToString()


@pytest.fixture
def forgotten_kernel() -> Iterator[None]:
    """`otlp` looks for the kernel anew, before and after the test."""
    otlp._kernel.cache_clear()
    yield
    otlp._kernel.cache_clear()


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view()])
def test_every_binary_type_is_taken(kind: pa.DataType) -> None:
    payloads = [b"", None, *messages(20)]
    decoded = otlp.decode(pa.array(payloads, kind))
    assert_same(decoded, otlp_reference.decode(pa.array(payloads, pa.binary())))
    assert decoded.payloads["error"].to_pylist()[:2] == [None, None]
    assert decoded.payloads["points"].to_pylist()[:2] == [0, 0]


def test_slices_and_chunks() -> None:
    payloads = pa.array(messages(30), pa.binary())
    assert_same(otlp.decode(payloads.slice(7, 11)), otlp_reference.decode(payloads.slice(7, 11)))
    chunked = pa.chunked_array([payloads.slice(3, 5), payloads.slice(0, 0), payloads.slice(8)])
    assert_same(otlp.decode(chunked), otlp_reference.decode(payloads.slice(3)))
    assert otlp.decode(pa.chunked_array([], pa.binary())).points.num_rows == 0


def test_the_bytes_behind_a_null_are_not_read() -> None:
    payloads = pa.array(messages(3), pa.large_binary())
    _, offsets, data = payloads.buffers()
    masked = pa.Array.from_buffers(pa.large_binary(), 3, [pa.py_buffer(b"\x05"), offsets, data])
    assert masked.is_valid().to_pylist() == [True, False, True]
    assert_same(otlp.decode(masked), otlp_reference.decode(masked))
    assert otlp.decode(masked).payloads["points"][1].as_py() == 0


def test_a_bad_payload_is_its_own_error_only() -> None:
    good = messages(10)
    payloads = pa.array([good[0], b"\xff", *good[1:5], b"\x0a\x01", *good[5:]], pa.binary())
    decoded = otlp.decode(payloads)
    errors = decoded.payloads["error"].to_pylist()
    assert [index for index, error in enumerate(errors) if error is not None] == [1, 6]
    assert errors[1] is not None
    assert errors[1].startswith("not a MetricsData message: ")
    assert_same(decoded, otlp_reference.decode(payloads))


@pytest.mark.parametrize("odd_at", [[0], [9], [0, 1, 2], [4, 7], list(range(10))])
def test_odd_payloads_stand_in_their_places(odd_at: list[int]) -> None:
    plain = messages(10)
    payloads = pa.array([odd_message(i) if i in odd_at else plain[i] for i in range(10)], pa.large_binary())
    assert set(odd_at) <= set(otlp_kernel.decode(payloads).odd.tolist())
    decoded = otlp.decode(payloads)
    assert_same(decoded, otlp_reference.decode(payloads))
    assert_sets_distinct(decoded)
    assert [column.num_chunks for column in decoded.points.columns] == [1] * decoded.points.num_columns


def test_a_payload_beyond_max_bytes_is_an_error() -> None:
    small, large = sorted(messages(2), key=len)
    decoded = otlp.decode(
        pa.array([large, small, None], pa.binary()), limits=Limits(max_decompressed_bytes=len(large) - 1)
    )
    assert decoded.payloads["error"].to_pylist() == [f"more than {len(large) - 1} bytes", None, None]
    assert_same(
        otlp.decode(pa.array([large, small], pa.binary()), limits=Limits(max_decompressed_bytes=len(large))),
        otlp_reference.decode(pa.array([large, small], pa.binary())),
    )


@pytest.mark.usefixtures("forgotten_kernel")
def test_without_numba_the_reference_decoder_runs_after_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kafka_telemetry_lake.udfs.otlp.kernel", None)  # importing it raises ImportError
    monkeypatch.delattr("kafka_telemetry_lake.udfs.otlp.kernel")
    payloads = pa.array(messages(5), pa.binary())
    with pytest.warns(RuntimeWarning, match="compiled decoder can't be loaded") as caught:
        decoded = otlp.decode(payloads)
    assert [warning.filename for warning in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        otlp.decode(payloads)
    assert_same(decoded, otlp_reference.decode(payloads))


@pytest.mark.usefixtures("forgotten_kernel")
def test_a_kernel_that_does_not_compile_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_arguments: Any) -> None:
        raise TypeError("numba says no")

    monkeypatch.setattr(otlp_kernel, "load", broken)
    with pytest.warns(RuntimeWarning, match="TypeError: numba says no"):
        decoded = otlp.decode(pa.array(messages(5), pa.binary()))
    assert decoded.payloads.num_rows == 5


def test_with_numba_there_is_no_warning() -> None:
    otlp._kernel.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        otlp.decode(pa.array(messages(1), pa.binary()))
    assert otlp._kernel() is otlp_kernel


def points_of_captures(_worker: int) -> int:
    return int(otlp.decode(captured()).points.num_rows)


FORKED = """
import multiprocessing
from tests.unit.otlp.test_otlp import points_of_captures
assert points_of_captures(0) == 157_260
with multiprocessing.get_context("fork").Pool(3) as pool:
    assert pool.map(points_of_captures, range(6)) == [157_260] * 6
"""


@pytest.mark.slow
def test_workers_forked_after_the_kernel_was_used() -> None:
    """In a process of its own: other tests' threads, which a fork doesn't take along, may hold locks."""
    done = subprocess.run(
        [sys.executable, "-c", FORKED], capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stderr
