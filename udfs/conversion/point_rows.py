"""Builds the rows of table metric_points (`udfs.rows`) from the columns of the conversion."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafka_telemetry_lake.udfs import rows
from kafka_telemetry_lake.udfs.conversion.distributions import Distributions, Increments
from kafka_telemetry_lake.udfs.conversion.payloads import Payloads
from kafka_telemetry_lake.udfs.conversion.points import FLAGS, Points, PushTimes
from kafka_telemetry_lake.udfs.conversion.redelivery import PushVerdicts
from kafka_telemetry_lake.udfs.conversion.statuses import Converted, Status
from kafka_telemetry_lake.udfs.identity import AttributeSets
from kafka_telemetry_lake.udfs.kernels.arrays import Bools, Doubles, Int8s, Int32s, Int64s, one_chunk, trimmed
from kafka_telemetry_lake.udfs.kernels.compiled import kernel
from kafka_telemetry_lake.udfs.kernels.hashing import number
from kafka_telemetry_lake.udfs.kernels.ragged import gathered
from kafka_telemetry_lake.udfs.limits import Limits
from kafka_telemetry_lake.udfs.otlp.decoded import Kind

KINDS = pa.array([kind.name.lower() for kind in Kind])
TEMPORALITIES = pa.array(["delta", "cumulative", "mixed"])  # by bits: 1, 2, 3
STATUSES = pa.array([status.name.lower() for status in Status if status != Status.NONE])
FLAG_LISTS = pa.array(
    [[text for bit, text in enumerate(FLAGS) if mask >> bit & 1] or None for mask in range(1 << len(FLAGS))],
    rows.TEXT_LIST,
)  # by their bits
FEW_POINTS = 4096  # whose order makes no difference to a file
LONGEST_QUOTED = 1024  # characters of a rejected point's name that quarantine repeats
INCREMENT_STATUSES = Status.FLIP_BASELINE  # the statuses up to it have a delta


@dataclass(frozen=True)
class Batch:
    """The results of a batch's conversion, from which rows are built."""

    pushes: pa.Table
    keys: dict[str, pa.Array]  # PUSH_COLUMNS of the pushes, text as dictionary<int32, string>
    payloads: Payloads
    attributes: AttributeSets
    points: Points
    distributions: Distributions
    flaws: Int8s  # Flaw of each distribution
    times: PushTimes
    verdicts: PushVerdicts
    converted: Converted
    increments: Increments
    limits: Limits

    @property
    def untimed(self) -> Int64s:
        """Per push: points without a time, which the decoder only counted."""
        return self.payloads.decoded.payloads["untimed"].to_numpy().astype(np.int64)  # type: ignore[no-any-return]  # pyarrow is untyped

    @property
    def beyond(self) -> Int64s:
        """Points of each push beyond the limit, which the decoder has only counted."""
        return self.payloads.decoded.payloads["beyond"].to_numpy().astype(np.int64)  # type: ignore[no-any-return]  # pyarrow is untyped


def table(columns: dict[str, pa.Array], schema: pa.Schema, size: int) -> pa.Table:
    """A table with the schema's columns in order; those not given are NULL, dictionaries stay dictionaries."""
    arrays = [columns[field.name] if field.name in columns else pa.nulls(size, field.type) for field in schema]
    fields = [
        pa.field(field.name, array.type, metadata=field.metadata) for field, array in zip(schema, arrays, strict=True)
    ]
    return pa.table(arrays, pa.schema(fields))


def of_pushes(keys: dict[str, pa.Array], push: Int64s) -> dict[str, pa.Array]:
    """The push columns for rows that belong to these pushes."""
    index = pa.array(push)
    return {name: array.take(index) for name, array in keys.items()}


def coded(codes: npt.NDArray[np.integer], texts: pa.Array, valid: Bools | None = None) -> pa.DictionaryArray:
    """Codes as dictionary-encoded text, NULL where not `valid`."""
    mask = None if valid is None else ~valid
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32), mask=mask), texts)


def micros(nanos: Int64s) -> pa.Array:
    """Timestamps; 0 becomes NULL."""
    return pa.array(nanos // 1000, mask=nanos == 0).view(rows.TIMESTAMP)


def _coded_maps(maps: pa.MapArray) -> pa.MapArray:
    """The maps with dictionary-encoded text: a writer then hashes no text of a row."""
    return pa.MapArray.from_arrays(maps.offsets, maps.keys.dictionary_encode(), maps.items.dictionary_encode())


def masked(values: npt.NDArray[np.generic], valid: Bools) -> pa.Array:
    """An array, NULL where not `valid`."""
    return pa.array(values, mask=~valid)


def alike_together(push: Int64s, metric: Int32s) -> Int64s | None:
    """An order of points in which pushes of the same metrics are together: their first points, their second ones, ...

    Columns of a series are then runs, and those of a push repeat from run to run: the file is less than half as large.

    Args:
        push: row of each point's push; the points of one are neighbours.
        metric: code of each point's metric.

    Returns:
        The index of each point; None: leave the points as they are, since they are few.
    """
    if 0 < len(push) < FEW_POINTS:  # without points the kernels are only compiled
        return None
    first = np.flatnonzero(np.diff(push, prepend=-1))
    size = np.diff(first, append=len(push))
    hashes = np.empty(len(first), np.int64)
    _hash_metrics(metric, first, size, hashes)
    alike, _ = number(hashes)
    pushes = np.argsort(alike, kind="stable")
    heads = np.flatnonzero(np.diff(alike[pushes], prepend=-1))
    order = np.empty(len(push), np.int64)
    if not _in_turn(first, size, pushes, np.append(heads, len(pushes)), order):
        return None
    return order


@kernel
def _hash_metrics(metric: Int32s, first: Int64s, size: Int64s, hashes: Int64s) -> None:
    """Hash the metrics of each push, in their order, and their number."""
    for p in range(len(first)):
        mixed = np.uint64(size[p])
        for i in range(first[p], first[p] + size[p]):
            mixed = (mixed ^ np.uint64(metric[i] + 1)) * np.uint64(0x9E3779B97F4A7C15)
            mixed ^= mixed >> np.uint64(29)
        hashes[p] = np.int64(mixed)


@kernel
def _in_turn(first: Int64s, size: Int64s, pushes: Int64s, bounds: Int64s, order: Int64s) -> bool:
    """Fill in the order. False: pushes of different sizes have one hash, which only a forger's have."""
    n = 0
    for g in range(len(bounds) - 1):
        points = size[pushes[bounds[g]]]
        for k in range(bounds[g], bounds[g + 1]):
            if size[pushes[k]] != points:
                return False
        for j in range(points):
            for k in range(bounds[g], bounds[g + 1]):
                order[n] = first[pushes[k]] + j
                n += 1
    return True


def metric_points(batch: Batch) -> pa.Table:
    """Rows of metric_points, in the order of pushes and points, many of them in that of `alike_together`."""
    points, converted = batch.points, batch.converted
    has_row = converted.status != Status.NONE
    chosen = alike_together(points.push, points.metric)
    if not has_row.all():
        chosen = np.flatnonzero(has_row) if chosen is None else chosen[has_row[chosen]]
    if chosen is not None:
        points = Points._make(column[chosen] for column in points)
        converted = Converted._make(column[chosen] for column in converted)
    kind = points.kind
    finite = (points.number != 0) & points.recorded & np.isfinite(points.value)
    is_int = (points.value_int != 0) | (points.number == 2)
    counted = converted.status <= INCREMENT_STATUSES
    names, scopes = (one_chunk(batch.payloads.decoded.points[name]) for name in ("metric", "scope"))
    columns = of_pushes(batch.keys, points.push) | {
        "series_id": pa.array(points.series_id),
        "metric": _used(pa.DictionaryArray.from_arrays(pa.array(points.metric), names.dictionary)),
        "attributes": _coded_maps(batch.attributes.maps).take(pa.array(points.attributes)),
        "scope": _used(coded(points.scope, scopes.dictionary, points.scope >= 0)),
        "kind": coded(kind, KINDS),
        "temporality": coded(points.temporality - 1, TEMPORALITIES, points.temporality > 0),
        "is_monotonic": masked(points.monotonic | (kind != Kind.SUM), (kind != Kind.GAUGE) & (kind != Kind.SUMMARY)),
        "start_time": micros(points.start),
        "time": micros(points.time),
        "value": masked(points.value, finite),
        "value_int": masked(points.value_int, is_int & points.recorded),
        "delta_start": micros(converted.delta_start),
        "delta": masked(converted.delta, counted & (kind == Kind.SUM)),
        "delta_int": masked(converted.delta_int, counted & converted.is_int),
        "delta_status": coded(converted.status, STATUSES),
    }
    if points.flags.any():
        columns["flags"] = FLAG_LISTS.take(pa.array(points.flags))
    if (kind > Kind.SUM).any():
        columns |= _distribution_columns(batch, points, counted & (kind != Kind.SUMMARY))
    return table(columns, rows.METRIC_POINTS, len(points.push))


def _used(texts: pa.DictionaryArray) -> pa.DictionaryArray:
    """Drop unused long texts, those of points in quarantine."""
    longest = pc.max(pc.binary_length(texts.dictionary)).as_py()
    return texts if (longest or 0) <= LONGEST_QUOTED else trimmed(texts)


def _distribution_columns(batch: Batch, points: Points, counted: Bools) -> dict[str, pa.Array]:
    """The columns of histograms and summaries; NULL for other points, and for those without a recorded value.

    Columns of kinds that no point has are left out.
    """
    source, values, increments = batch.payloads.decoded.distributions, batch.distributions, batch.increments
    present = (points.distribution >= 0) & points.recorded
    index = pa.array(points.distribution, mask=~present)
    row = np.where(present, points.distribution, 0).astype(np.int64)
    histogram, exponential, summary = (
        present & (points.kind == kind) for kind in (Kind.HISTOGRAM, Kind.EXPONENTIAL_HISTOGRAM, Kind.SUMMARY)
    )
    counted = counted & present
    buckets = counted & increments.buckets[row]

    def lists(name: str, items: npt.NDArray[np.int64] | Doubles, valid: Bools) -> pa.Array:
        """The lists of some rows; `items` are where those of the column `name` of the distributions are."""
        chosen = gathered((values.lists(name)._replace(items=items), np.where(valid, row, -1)))
        return chosen.to_arrow(rows.DOUBLES if name == "bounds" else rows.BIGINTS, valid)

    columns = {
        "count": masked(values.observations[row], present),
        "sum": masked(values.sum[row], present & ~np.isnan(values.sum[row])),
        "min": _finite(source["min"]).take(index),
        "max": _finite(source["max"]).take(index),
        "count_delta": masked(increments.observations[row], counted),
        "sum_delta": masked(increments.sum[row], counted & ~np.isnan(increments.sum[row])),
    }
    if histogram.any():
        columns |= {
            "explicit_bounds": lists("bounds", values.bounds, histogram),
            "bucket_counts": lists("counts", values.counts, histogram),
            "bucket_counts_delta": lists("counts", increments.counts, histogram & buckets),
        }
    if exponential.any():
        columns |= {
            name: one_chunk(source[name]).take(index)
            for name in ("scale", "zero_threshold", "positive_offset", "negative_offset")
        } | {
            "zero_count": masked(values.zero_count[row], exponential),
            "zero_count_delta": masked(increments.zero_count[row], exponential & counted),
            "positive_counts": lists("positive", values.positive, exponential),
            "negative_counts": lists("negative", values.negative, exponential),
            "positive_counts_delta": lists("positive", increments.positive, exponential & buckets),
            "negative_counts_delta": lists("negative", increments.negative, exponential & buckets),
        }
    if summary.any():
        columns["quantiles"] = _finite_quantiles(one_chunk(source["quantiles"])).take(index)
    return columns


def _finite(column: pa.ChunkedArray) -> pa.Array:
    return one_chunk(pc.if_else(pc.is_finite(column), column, None))


def _finite_quantiles(quantiles: pa.MapArray) -> pa.Array:
    items = pc.if_else(pc.is_finite(quantiles.items), quantiles.items, None)
    mask = pa.array(~quantiles.is_valid().to_numpy(zero_copy_only=False))
    return pa.MapArray.from_arrays(quantiles.offsets, quantiles.keys, items, mask=mask)
