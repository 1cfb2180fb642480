"""Comparing what two decoders return: by value, whatever their dictionaries' order."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kafka_telemetry_lake.udfs.otlp.decoded import DISTRIBUTIONS, PAYLOADS, POINTS, Decoded


def columns(decoded: Decoded) -> dict[str, Any]:
    """Every column by name, indices replaced by what they stand for, floats by their bits."""
    assert decoded.payloads.schema == PAYLOADS
    assert decoded.points.schema == POINTS
    assert decoded.distributions.schema == DISTRIBUTIONS
    for table in (decoded.payloads, decoded.points, decoded.distributions):
        table.validate(full=True)
    decoded.attribute_sets.validate(full=True)
    result: dict[str, Any] = {}
    for name, column in zip(PAYLOADS.names, decoded.payloads.columns, strict=True):
        result[f"payload {name}"] = _chosen(decoded, column) if name == "resource" else column.to_pylist()
    rows = decoded.points["distribution"].to_numpy()
    for name, column in zip(POINTS.names, decoded.points.columns, strict=True):
        if name == "attributes":
            result[name] = _chosen(decoded, column)
        elif name == "distribution":
            result[name] = (rows >= 0).tolist()
        else:
            result[name] = _bits(column).to_pylist()
    distributions = decoded.distributions.take(pa.array(rows[rows >= 0]))
    for name, column in zip(DISTRIBUTIONS.names, distributions.columns, strict=True):
        lists = pa.types.is_list(column.type) or pa.types.is_map(column.type)
        result[name] = [repr(value) for value in column.to_pylist()] if lists else _bits(column).to_pylist()
    return result


def _chosen(decoded: Decoded, indices: pa.ChunkedArray) -> list[Any]:
    sets = decoded.attribute_sets
    rows: list[Any] = sets.take(pc.if_else(pc.less(indices, 0), None, indices)).to_pylist()
    return rows


def _bits(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if column.type != pa.float64():
        return column
    return pa.chunked_array([chunk.view(pa.int64()) for chunk in column.chunks], pa.int64())


def assert_same(actual: Decoded, expected: Decoded) -> None:
    """Fail with the first column and row that differ."""
    left, right = columns(actual), columns(expected)
    for name, values in right.items():
        if left[name] != values:
            row = next((row for row, (a, b) in enumerate(zip(left[name], values, strict=False)) if a != b), None)
            assert row is not None, f"{name}: {len(left[name])} rows, expected {len(values)}"
            raise AssertionError(f"{name}, row {row}: {left[name][row]!r}, expected {values[row]!r}")


def assert_sets_distinct(decoded: Decoded) -> None:
    """No list of attributes stands twice in the dictionary."""
    sets = [tuple(pairs) for pairs in decoded.attribute_sets.to_pylist()]
    assert len(set(sets)) == len(sets)
