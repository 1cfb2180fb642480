"""The examples in docstrings print what they say."""

from __future__ import annotations

import doctest

import pytest

from kafka_telemetry_lake.udfs.conversion import compression, shard
from kafka_telemetry_lake.udfs.otlp import decode


@pytest.mark.parametrize("module", [decode, shard, compression], ids=lambda module: module.__name__.rsplit(".")[-1])
def test_examples_run_as_they_are_printed(module: object) -> None:
    failed, attempted = doctest.testmod(module)  # type: ignore[arg-type]  # modules of the parameters
    assert (failed, attempted > 0) == (0, True)
