"""Histograms and exponential histograms as ragged columns: checks (P3) and differences (C7, C8)."""

from __future__ import annotations

import math
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_telemetry_lake.udfs.conversion.state import DISTRIBUTIONS
from kafka_telemetry_lake.udfs.kernels.arrays import Bools, Doubles, Int8s, Int64s, column, one_chunk, pooled
from kafka_telemetry_lake.udfs.kernels.compiled import kernel, linked
from kafka_telemetry_lake.udfs.kernels.ragged import Ragged, gathered
from kafka_telemetry_lake.udfs.otlp.decoded import Kind

FARTHEST_BUCKET = 1 << 40  # beyond every index: offsets are int32


class Distributions(NamedTuple):
    """One row per distribution; row i's lists are `positive[positive_first[i] : positive_first[i + 1]]`, and so on."""

    kind: Int8s
    observations: Int64s
    sum: Doubles  # NaN: none
    scale: Int64s
    zero_count: Int64s
    zero_threshold: Doubles
    positive_offset: Int64s
    negative_offset: Int64s
    bounds_first: Int64s
    bounds: Doubles
    counts_first: Int64s  # Histogram.bucket_counts
    counts: Int64s
    positive_first: Int64s  # ExponentialHistogram.positive
    positive: Int64s
    negative_first: Int64s
    negative: Int64s

    def lists(self, name: str) -> Ragged:
        """The lists `bounds`, `counts`, `positive` or `negative`."""
        return Ragged(getattr(self, f"{name}_first"), getattr(self, name))


class Increments(NamedTuple):
    """One row per distribution; buckets are at the same positions as in its `Distributions`."""

    observations: Int64s
    sum: Doubles  # NaN: none
    zero_count: Int64s
    counts: Int64s
    positive: Int64s
    negative: Int64s
    buckets: Bools  # whether the buckets have increments


class Flaw(IntEnum):
    """What is wrong with a distribution's buckets (BAD_BUCKETS)."""

    NONE = 0
    COUNT = 1
    LENGTH = 2
    BOUNDS = 3
    RANGE = 4


FLAWS = {
    Flaw.COUNT: "the buckets' sum isn't count",
    Flaw.LENGTH: "there isn't one bucket more than bounds",
    Flaw.BOUNDS: "explicit_bounds aren't increasing",
    Flaw.RANGE: "a count is above int64",
}


class Relation(IntEnum):
    """How a cumulative value, or distribution, compares with the one before."""

    EQUAL = 0
    GREW = 1
    FELL = 2
    REBUCKETED = 3  # C7: other bounds, count didn't fall


def read_distributions(table: pa.Table) -> Distributions:
    """The columns of `decoded.DISTRIBUTIONS`; counts above int64 become negative, sums that aren't finite NaN."""
    histogram, exponential = (one_chunk(table[name]) for name in ("bucket_counts", "positive_counts"))
    is_histogram, is_exponential = (each.is_valid().to_numpy(zero_copy_only=False) for each in (histogram, exponential))
    kind = np.full(table.num_rows, Kind.SUMMARY, np.int8)
    kind[is_histogram] = Kind.HISTOGRAM
    kind[is_exponential] = Kind.EXPONENTIAL_HISTOGRAM
    total = column(table, "sum", math.nan)
    return _distributions(
        kind,
        column(table, "count", 0).view(np.int64),
        np.where(np.isfinite(total), total, math.nan),
        column(table, "scale", 0).astype(np.int64),
        column(table, "zero_count", 0).view(np.int64),
        column(table, "zero_threshold", 0.0),
        column(table, "positive_offset", 0).astype(np.int64),
        column(table, "negative_offset", 0).astype(np.int64),
        *Ragged.of(one_chunk(table["explicit_bounds"])),
        *Ragged.of(histogram),
        *Ragged.of(exponential),
        *Ragged.of(one_chunk(table["negative_counts"])),
    )


def from_state(table: pa.Table) -> Distributions:
    """The columns of `state.DISTRIBUTIONS`. A row's `counts` and `positive` are the same list there."""

    def plain(name: str, kind: type = np.int64) -> Any:
        return column(table, name).astype(kind, copy=False)

    return _distributions(
        plain("kind", np.int8),
        plain("count"),
        plain("sum", np.float64),
        plain("scale"),
        plain("zero_count"),
        plain("zero_threshold", np.float64),
        plain("positive_offset"),
        plain("negative_offset"),
        *Ragged.of(one_chunk(table["bounds"])),
        *Ragged.of(one_chunk(table["positive"])),
        *Ragged.of(one_chunk(table["positive"])),
        *Ragged.of(one_chunk(table["negative"])),
    )


def _distributions(*columns: npt.NDArray[Any]) -> Distributions:
    """Read-only columns, as Arrow's arrays always are: a kernel is compiled again for writable ones."""
    for values in columns:
        values.setflags(write=False)
    return Distributions(*columns)


def state_columns(stored: Distributions, rows: Distributions, chosen: Int64s) -> dict[str, pa.Array]:
    """The chosen rows of `stored`, then `rows`, as columns of `state.DISTRIBUTIONS`."""
    count = len(stored.kind)
    of_stored, of_rows = np.where(chosen < count, chosen, -1), np.where(chosen < count, -1, chosen - count)
    columns = {}
    for field in DISTRIBUTIONS:
        if field.name in ("bounds", "positive", "negative"):
            parts = [(stored.lists(field.name), of_stored), (rows.lists(field.name), of_rows)]
            if field.name == "positive":
                parts.append((rows.lists("counts"), of_rows))
            columns[field.name] = gathered(*parts).to_arrow(field.type)
        elif (name := "observations" if field.name == "count" else field.name) in Distributions._fields:
            values = np.concatenate([getattr(stored, name), getattr(rows, name)])[chosen]
            columns[field.name] = pa.array(values, from_pandas=True).cast(field.type)
    return columns


def no_increments(rows: Distributions) -> Increments:
    """Increments of 0 with the shape of `rows`. Buckets have no values until the point's status says which."""
    size = len(rows.observations)
    return Increments(
        np.zeros(size, np.int64),
        np.full(size, math.nan),
        np.zeros(size, np.int64),
        pooled(len(rows.counts), np.int64),
        pooled(len(rows.positive), np.int64),
        pooled(len(rows.negative), np.int64),
        np.ones(size, np.bool_),
    )


@kernel
def find_flaws(rows: Distributions, flaws: Int8s) -> None:
    """P3's BAD_BUCKETS: write a `Flaw` for each distribution."""
    for i in range(len(rows.observations)):
        counts = rows.counts[rows.counts_first[i] : rows.counts_first[i + 1]]
        positive = rows.positive[rows.positive_first[i] : rows.positive_first[i + 1]]
        negative = rows.negative[rows.negative_first[i] : rows.negative_first[i + 1]]
        bounds = rows.bounds[rows.bounds_first[i] : rows.bounds_first[i + 1]]
        total = rows.zero_count[i]
        in_range = rows.observations[i] >= 0 and total >= 0
        for buckets in (counts, positive, negative):
            for bucket in buckets:
                total += bucket
                in_range = in_range and bucket >= 0 and total >= 0  # a sum that leaves int64 turns negative
        if not in_range:
            flaws[i] = Flaw.RANGE
        elif rows.kind[i] == Kind.HISTOGRAM and len(counts) != len(bounds) + 1 and len(counts) + len(bounds) > 0:
            flaws[i] = Flaw.LENGTH
        elif not _is_increasing(bounds):
            flaws[i] = Flaw.BOUNDS
        elif total != rows.observations[i] and (len(counts) + len(positive) + len(negative) > 0 or total > 0):
            flaws[i] = Flaw.COUNT


@linked
def _is_increasing(bounds: Doubles) -> bool:
    increasing = len(bounds) == 0 or not math.isnan(bounds[0])
    for k in range(1, len(bounds)):
        increasing = increasing and bounds[k] > bounds[k - 1]
    return increasing


@linked
def difference(old: Distributions, before: int, rows: Distributions, now: int, out: Increments) -> Relation:
    """Write the increments of row `now` over row `before` of `old` to row `now` of `out`; meaningless after FELL."""
    out.observations[now] = rows.observations[now] - old.observations[before]
    out.sum[now] = rows.sum[now] - old.sum[before]  # NaN unless both have one; it may fall (C7)
    if out.observations[now] < 0:
        return Relation.FELL
    if rows.kind[now] == Kind.HISTOGRAM:
        relation = _histogram_difference(old, before, rows, now, out)
    else:
        relation = _exponential_difference(old, before, rows, now, out)
    same_sum = rows.sum[now] == old.sum[before] or (math.isnan(rows.sum[now]) and math.isnan(old.sum[before]))
    if relation == Relation.EQUAL and (out.observations[now] > 0 or not same_sum):
        return Relation.GREW
    return relation


@linked
def _histogram_difference(old: Distributions, before: int, rows: Distributions, now: int, out: Increments) -> Relation:
    old_bounds = old.bounds[old.bounds_first[before] : old.bounds_first[before + 1]]
    bounds = rows.bounds[rows.bounds_first[now] : rows.bounds_first[now + 1]]
    old_counts = old.counts[old.counts_first[before] : old.counts_first[before + 1]]
    counts = rows.counts[rows.counts_first[now] : rows.counts_first[now + 1]]
    increments = out.counts[rows.counts_first[now] : rows.counts_first[now + 1]]
    if len(bounds) != len(old_bounds) or len(counts) != len(old_counts):
        return Relation.REBUCKETED
    for k in range(len(bounds)):
        if bounds[k] != old_bounds[k]:
            return Relation.REBUCKETED
    return _subtract_same(counts, old_counts, increments)


@linked
def _subtract_same(counts: Int64s, old: Int64s, increments: Int64s) -> Relation:
    """Write the increments of counts of the same buckets. Without a branch, so it is done by vector instructions."""
    either, least = np.int64(0), np.int64(0)
    for k in range(len(counts)):
        increment = counts[k] - old[k]
        increments[k] = increment
        either |= increment
        least = min(least, increment)
    if least < 0:
        return Relation.FELL
    return Relation.GREW if either != 0 else Relation.EQUAL


@linked
def _exponential_difference(
    old: Distributions, before: int, rows: Distributions, now: int, out: Increments
) -> Relation:
    if rows.scale[now] > old.scale[before] or rows.zero_threshold[now] < old.zero_threshold[before]:
        return Relation.FELL
    old_positive = old.positive[old.positive_first[before] : old.positive_first[before + 1]]
    old_negative = old.negative[old.negative_first[before] : old.negative_first[before + 1]]
    positive_offset, negative_offset = old.positive_offset[before], old.negative_offset[before]
    # Halving the scale's resolution merges bucket i into i >> 1.
    shift = min(old.scale[before] - rows.scale[now], 63)
    cut = -FARTHEST_BUCKET  # buckets below it are in the zero bucket
    if rows.zero_threshold[now] > old.zero_threshold[before]:
        cut, at_bound = bucket_of(rows.zero_threshold[now], rows.scale[now])
        if (
            at_bound
            or _is_populated(old_positive, positive_offset, shift, cut)
            or _is_populated(old_negative, negative_offset, shift, cut)
        ):
            cut += 1
    positive = out.positive[rows.positive_first[now] : rows.positive_first[now + 1]]
    negative = out.negative[rows.negative_first[now] : rows.negative_first[now + 1]]
    new_positive = rows.positive[rows.positive_first[now] : rows.positive_first[now + 1]]
    for k in range(len(positive)):
        positive[k] = new_positive[k]
    new_negative = rows.negative[rows.negative_first[now] : rows.negative_first[now + 1]]
    for k in range(len(negative)):
        negative[k] = new_negative[k]
    zero = rows.zero_count[now] - old.zero_count[before]
    positive_zero, positive_fell = _subtract(
        positive, rows.positive_offset[now], old_positive, positive_offset, shift, cut
    )
    negative_zero, negative_fell = _subtract(
        negative, rows.negative_offset[now], old_negative, negative_offset, shift, cut
    )
    zero += positive_zero + negative_zero
    out.zero_count[now] = zero
    if positive_fell or negative_fell or zero < 0:
        return Relation.FELL
    if cut == -FARTHEST_BUCKET and shift == 0 and zero == 0 and not positive.any() and not negative.any():
        return Relation.EQUAL
    return Relation.GREW


@linked
def _is_populated(counts: Int64s, offset: int, shift: int, index: int) -> bool:
    is_filled = False
    for k in range(len(counts)):
        is_filled = is_filled or (counts[k] > 0 and (offset + k) >> shift == index)
    return is_filled


@linked
def _subtract(counts: Int64s, offset: int, old: Int64s, old_offset: int, shift: int, cut: int) -> tuple[int, bool]:
    """Subtract the old buckets from `counts`, in place, and take what lies below `cut` out of both.

    Returns:
        The increment that was taken out, and whether a bucket fell.
    """
    zero = 0
    for k in range(min(max(cut - offset, 0), len(counts))):
        zero += counts[k]
        counts[k] = 0
    for k in range(len(old)):
        place = ((old_offset + k) >> shift) - offset
        if old[k] == 0:
            continue
        if place < cut - offset:
            zero -= old[k]
        elif 0 <= place < len(counts) and counts[place] >= old[k]:
            counts[place] -= old[k]
        else:
            return zero, True
    return zero, False


@linked
def bucket_of(value: float, scale: int) -> tuple[int, bool]:
    """Index of the bucket (base^index, base^(index + 1)] with `value` > 0, and whether it is its upper bound.

    base = 2^(2^-scale): metrics.proto, ExponentialHistogramDataPoint.scale.
    """
    if math.isinf(value):
        return FARTHEST_BUCKET, False
    fraction, exponent = math.frexp(value)  # value = fraction * 2^exponent, 0.5 <= fraction < 1
    if scale <= 0:
        shift = min(-scale, 62)
        index = (exponent - 2 if fraction == 0.5 else exponent - 1) >> shift
        return index, fraction == 0.5 and exponent - 1 == (index + 1) << shift
    position = min(max(math.log2(value) * 2.0 ** min(scale, 100), -FARTHEST_BUCKET), FARTHEST_BUCKET)
    nearest = round(position)
    if abs(position - nearest) <= 1e-9 * max(1.0, abs(position)):
        return int(nearest) - 1, True
    return math.ceil(position) - 1, False
