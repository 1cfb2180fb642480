"""Turns the kernel's arrays into the columns of `decoded`, without copying where Arrow's layout allows it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_telemetry_lake.udfs.kernels.arrays import pooled
from kafka_telemetry_lake.udfs.kernels.ragged import Ragged
from kafka_telemetry_lake.udfs.limits import Limits
from kafka_telemetry_lake.udfs.otlp import wire_attributes, wire_bytes, wire_points
from kafka_telemetry_lake.udfs.otlp.decoded import (
    DISTRIBUTIONS,
    MANY_ATTRIBUTES,
    MANY_BUCKETS,
    PAYLOADS,
    POINTS,
    Kind,
    Number,
    distinct_sets,
)

Numpy = np.ndarray[Any, Any]

ENTRY = [pa.field("key", pa.float64(), nullable=False), pa.field("value", pa.float64())]
"""The fields of a map's entries."""


def empty_points(rows: int) -> wire_points.PointColumns:
    """Room for data points, in Arrow's own layout."""
    return wire_points.PointColumns(
        times=pooled((2, rows), np.uint64),
        values=pooled(rows, np.float64),
        ints=pooled(rows, np.int64),
        flags=pooled(rows, np.uint32),
        codes=pooled((5, rows), np.int32),
        tags=pooled((5, rows), np.int8),
    )


def empty_distributions(rows: int, items: list[int]) -> wire_points.DistributionColumns:
    """Room for distributions and so many items of each of their lists."""
    bases = np.concatenate(([0], np.cumsum(items, dtype=np.int64)))
    return wire_points.DistributionColumns(
        words=pooled((2, rows), np.uint64),
        doubles=pooled((4, rows), np.float64),
        ints=pooled((3, rows), np.int32),
        tags=pooled((3, rows), np.int8),
        ends=pooled((len(items), rows), np.int64),
        bases=bases,
        items=pooled(int(bases[-1]), np.uint64),
    )


def payloads_table(outcomes: Numpy, code_of_region: Numpy, limits: Limits) -> pa.Table:
    return pa.table(
        [
            pa.nulls(outcomes.shape[1], pa.string()),
            _too_much(outcomes[wire_points.STATUS], limits),
            pa.array(outcomes[wire_points.STORED], pa.int32()),
            pa.array(code_of_region[outcomes[wire_points.RESOURCE]]),
            pa.array(outcomes[wire_points.BEYOND], pa.int32()),
            pa.array(outcomes[wire_points.UNTIMED], pa.int32()),
        ],
        PAYLOADS,
    )


def _too_much(status: Numpy, limits: Limits) -> pa.Array:
    texts = pa.array(
        [MANY_ATTRIBUTES.format(limits.max_attributes_per_push), MANY_BUCKETS.format(limits.max_buckets_per_push)]
    )
    return texts.take(pa.array(status - wire_points.MANY_ATTRIBUTES, mask=status <= 0))


def points_table(points: wire_points.PointColumns, rows: int, texts: pa.Array, code_of_region: Numpy) -> pa.Table:
    codes, tags, times = points.codes[:, :rows], points.tags[:, :rows], points.times[:, :rows]
    number, scope = tags[wire_points.NUMBER], codes[wire_points.SCOPE]
    columns = {
        "payload": codes[wire_points.PAYLOAD],
        "metric": pa.DictionaryArray.from_arrays(pa.array(codes[wire_points.METRIC]), texts),
        "attributes": code_of_region[codes[wire_points.ATTRIBUTES]],
        "scope": pa.DictionaryArray.from_arrays(_primitive(scope, pa.int32(), scope >= 0), texts),
        "kind": tags[wire_points.KIND],
        "temporality": tags[wire_points.TEMPORALITY],
        "is_monotonic": _primitive(tags[wire_points.IS_MONOTONIC], pa.bool_()),
        "start_ns": times[0],
        "time_ns": times[1],
        "flags": points.flags[:rows],
        "number": number,
        "value": _primitive(points.values[:rows], pa.float64(), number != Number.NONE),
        "value_int": _primitive(points.ints[:rows], pa.int64(), number == Number.INT),
        "distribution": codes[wire_points.DISTRIBUTION],
        "excess": tags[wire_points.EXCESS],
    }
    return pa.table([pa.array(columns[field.name]) for field in POINTS], POINTS)


def _primitive(values: Numpy, kind: pa.DataType, valid: Numpy | None = None) -> pa.Array:
    """An array over the memory of `values`, NULL where not `valid`."""
    buffer = _bits(values) if kind == pa.bool_() else pa.py_buffer(values)
    return pa.Array.from_buffers(kind, len(values), [None if valid is None else _validity(valid), buffer])


def _validity(valid: Numpy) -> pa.Buffer | None:
    return None if valid.all() else _bits(valid)


def _bits(values: Numpy) -> pa.Buffer:
    return pa.py_buffer(np.packbits(values, bitorder="little"))


def distributions_table(distributions: wire_points.DistributionColumns, rows: int) -> pa.Table:
    """The first `rows` of the distributions."""
    words, doubles, ints = (
        array[:, :rows] for array in (distributions.words, distributions.doubles, distributions.ints)
    )
    kind, present = distributions.tags[:2, :rows]
    histogram, exponential, summary = (
        kind == code for code in (Kind.HISTOGRAM, Kind.EXPONENTIAL_HISTOGRAM, Kind.SUMMARY)
    )
    total, low, high = (
        (present & 1 << column).astype(np.bool_) for column in (wire_points.TOTAL, wire_points.MIN, wire_points.MAX)
    )

    def lists(which: int, of: Numpy, kind: pa.DataType) -> pa.Array:
        ends = np.append(0, distributions.ends[which, :rows])
        items = distributions.items[distributions.bases[which] : distributions.bases[which + 1]]
        return Ragged(ends, items).to_arrow(pa.list_(kind), of)

    quantiles = lists(wire_points.QUANTILES, summary, pa.float64())
    values = lists(wire_points.VALUES, summary, pa.float64())
    columns = [
        pa.array(words[wire_points.COUNT]),
        _primitive(doubles[wire_points.TOTAL], pa.float64(), total | summary),  # Summary.sum has no presence
        _primitive(doubles[wire_points.MIN], pa.float64(), low),
        _primitive(doubles[wire_points.MAX], pa.float64(), high),
        lists(wire_points.BOUNDS, histogram, pa.float64()),
        lists(wire_points.COUNTS, histogram, pa.uint64()),
        _primitive(ints[wire_points.SCALE], pa.int32(), exponential),
        _primitive(words[wire_points.ZERO_COUNT], pa.uint64(), exponential),
        _primitive(doubles[wire_points.ZERO_THRESHOLD], pa.float64(), exponential),
        _primitive(ints[wire_points.POSITIVE_OFFSET], pa.int32(), exponential),
        lists(wire_points.POSITIVE, exponential, pa.uint64()),
        _primitive(ints[wire_points.NEGATIVE_OFFSET], pa.int32(), exponential),
        lists(wire_points.NEGATIVE, exponential, pa.uint64()),
        pa.Array.from_buffers(
            DISTRIBUTIONS.field("quantiles").type,
            rows,
            quantiles.buffers()[:2],
            children=[pa.StructArray.from_arrays([quantiles.values, values.values], fields=ENTRY)],
        ),
    ]
    return pa.table(columns, DISTRIBUTIONS)


def attribute_sets(data: Numpy, regions: Numpy) -> tuple[pa.MapArray, Numpy]:
    """The distinct lists of attributes, and the index of each region's list: different bytes may mean the same list."""
    pairs = regions[:, wire_bytes.EXTRA]
    entries = np.empty((5, int(pairs.sum())), np.int64)
    starts, sizes = (np.ascontiguousarray(regions[:, column]) for column in (wire_bytes.START, wire_bytes.SIZE))
    wire_attributes.take_apart(data, starts, sizes, entries)
    keys = _gather(data, entries[wire_attributes.KEY_START], entries[wire_attributes.KEY_SIZE])
    return distinct_sets(np.concatenate(([0], np.cumsum(pairs))), keys, _value_texts(data, entries))


def _value_texts(data: Numpy, entries: Numpy) -> pa.StringArray:
    """The values as text, as `reference.attribute_text` writes them."""
    kinds, values = entries[wire_attributes.KIND], entries[wire_attributes.VALUE]
    is_text = kinds == wire_attributes.TEXT
    texts = _gather(data, np.where(is_text, values, 0), np.where(is_text, entries[wire_attributes.VALUE_SIZE], 0))
    for kind in (wire_attributes.INT, wire_attributes.BOOL, wire_attributes.DOUBLE):
        mask = kinds == kind
        if not mask.any():
            continue
        chosen = values[mask]
        if kind == wire_attributes.INT:
            replacements = pc.cast(pa.array(chosen), pa.string())
        elif kind == wire_attributes.BOOL:
            replacements = pc.cast(pa.array(chosen != 0), pa.string())
        else:
            replacements = pa.array([json.dumps(value) for value in chosen.view(np.float64).tolist()])
        texts = pc.replace_with_mask(texts, pa.array(mask), replacements)
    return texts


def strings(data: Numpy, slices: Numpy) -> pa.StringArray:
    """The slices as Arrow text."""
    return _gather(data, slices[:, wire_bytes.START], slices[:, wire_bytes.SIZE])


def _gather(data: Numpy, starts: Numpy, sizes: Numpy) -> pa.StringArray:
    """The slices of `data` as strings; ArrowInvalid when they exceed 2 GiB."""
    offsets = np.zeros(len(starts) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    text = np.empty(int(offsets[-1]), np.uint8)
    wire_attributes.gather(data, np.ascontiguousarray(starts), offsets, text)
    return pa.Array.from_buffers(
        pa.string(), len(starts), [None, pa.array(offsets, pa.int32()).buffers()[1], pa.py_buffer(text)]
    )
