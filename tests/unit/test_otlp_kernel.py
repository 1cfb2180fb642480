"""The fast decoder against the reference decoder: same verdicts, same rows."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from tests.unit.otlp_comparison import assert_same, assert_sets_distinct
from tests.unit.otlp_mutations import captured_payloads, metrics_data, mutated_payloads, reencoded
from udfs import otlp, otlp_kernel, otlp_reference


def binary(payloads: list[bytes | None]) -> pa.LargeBinaryArray:
    return pa.array(payloads, pa.large_binary())


def test_captured_pushes_give_the_reference_rows() -> None:
    payloads = captured_payloads()
    result = otlp_kernel.decode(payloads, 1_000_000)
    assert result.odd.tolist() == []
    assert result.decoded.points.num_rows == 157_260
    assert_same(result.decoded, otlp_reference.decode(payloads))
    assert_sets_distinct(result.decoded)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**64), st.sampled_from((0.0, 0.02, 0.2)))
def test_any_message_gives_the_reference_rows(seed: int, oddity: float) -> None:
    random = Random(seed)
    messages = [metrics_data(random).SerializeToString() for _ in range(10)]
    payloads = binary([reencoded(payload, pb.MetricsData.DESCRIPTOR, random, oddity) for payload in messages])
    decoded = otlp.decode(payloads)
    assert_same(decoded, otlp_reference.decode(payloads))
    assert_sets_distinct(decoded)


@pytest.mark.parametrize("seed", range(4))
def test_damaged_payloads_get_the_reference_verdict_and_rows(seed: int) -> None:
    payloads = binary(list(mutated_payloads(5_000, seed)))
    decoded = otlp.decode(payloads)
    rejected = len(payloads) - decoded.payloads["error"].null_count
    assert 500 < rejected < 4_500  # the mutations reach both verdicts
    assert_same(decoded, otlp_reference.decode(payloads))
