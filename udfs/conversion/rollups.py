"""Rollups: one batch's contribution to each window of each metric and client id, as rows that are summed when read.

The rows of one key together give the same sums, minimum and maximum as the points themselves, in any order. A late
point adds a row, and no row is ever changed.
"""

from __future__ import annotations

import math
from itertools import islice
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafka_telemetry_lake.udfs.conversion.statuses import Status
from kafka_telemetry_lake.udfs.identity import mix, text_hashes
from kafka_telemetry_lake.udfs.kernels.arrays import Bools, Doubles, Int8s, Int32s, Int64s, UInt64s, one_chunk
from kafka_telemetry_lake.udfs.kernels.compiled import kernel, linked
from kafka_telemetry_lake.udfs.kernels.hashing import Numbering
from kafka_telemetry_lake.udfs.limits import ROLLUP_TEXT_BYTES
from kafka_telemetry_lake.udfs.rows import METRIC_ROLLUPS, TIMESTAMP

Scalar = TypeVar("Scalar", bound=np.generic)

MINUTE_US = 60 * 1_000_000
HOUR_US = 60 * MINUTE_US
SORTED_ROWS = 1 << 17  # that are sorted together: their columns stay in the CPU's caches
POINT_KEYS = ("cluster_id", "client_id", "metric", "kind", "temporality")
KEYS = (*POINT_KEYS, "attribute_keys")
RESETS = (Status.RESET, Status.INFERRED_RESET)
BASELINES = (Status.BASELINE, Status.FLIP_BASELINE)
REFUSED = (Status.LATE, Status.DUPLICATE, Status.CONFLICT, Status.TOO_LATE)


class _Points(NamedTuple):
    """Columns of the points; a value that is not there is NaN, a whole number that is not there 0."""

    increase: Doubles
    increase_int: Int64s
    is_int: Bools  # increase_int has it exactly
    covered_us: Int64s  # time - delta_start
    status: Int8s  # 0 counted, 1 reset, 2 baseline, 3 refused
    value: Doubles
    observations: Int64s
    observed_sum: Doubles
    landed_at: Int64s


SUMS: dict[str, tuple[type[np.generic], float, np.ufunc]] = {
    "points": (np.int64, 0, np.add),
    "increase": (np.float64, 0, np.add),
    "increase_int": (np.int64, 0, np.add),
    "all_int": (np.bool_, 1, np.logical_and),
    "has_increase": (np.bool_, 0, np.logical_or),
    "covered_us": (np.int64, 0, np.add),
    "resets": (np.int64, 0, np.add),
    "baselines": (np.int64, 0, np.add),
    "refused": (np.int64, 0, np.add),
    "value_count": (np.int64, 0, np.add),
    "value_sum": (np.float64, 0, np.add),
    "value_min": (np.float64, np.inf, np.minimum),
    "value_max": (np.float64, -np.inf, np.maximum),
    "observations": (np.int64, 0, np.add),
    "observed_sum": (np.float64, 0, np.add),
    "landed_at": (np.int64, 0, np.maximum),
}  # type, neutral value, how two rows become one


class _Sums(NamedTuple):
    """A row per group."""

    points: Int64s
    increase: Doubles
    increase_int: Int64s
    all_int: Bools
    has_increase: Bools
    covered_us: Int64s
    resets: Int64s
    baselines: Int64s
    refused: Int64s
    value_count: Int64s
    value_sum: Doubles
    value_min: Doubles
    value_max: Doubles
    observations: Int64s
    observed_sum: Doubles
    landed_at: Int64s


class _Names:
    """Texts numbered by first appearance, over all batches."""

    def __init__(self) -> None:
        self._codes: dict[str | None, int] = {}
        self.bytes = 0  # characters of the texts

    def codes(self, column: pa.ChunkedArray) -> tuple[Int64s, Int32s]:
        """The codes of some texts, and for each row of the column the place of its text's code among them."""
        texts = _dictionary(column)
        size_before = len(self._codes)
        table = [self._codes.setdefault(text, len(self._codes)) for text in [*texts.dictionary.to_pylist(), None]]
        if len(self._codes) > size_before:
            self.bytes += sum(len(text or "") for text in islice(self._codes, size_before, None))
        indices = texts.indices.fill_null(len(texts.dictionary)).to_numpy(zero_copy_only=False)
        return np.array(table, np.int64), _read_only(indices)

    def texts(self, codes: Int64s) -> pa.DictionaryArray:
        texts = list(self._codes)
        valid = np.array([text is not None for text in texts], np.bool_)
        dictionary = pa.array([text or "" for text in texts], pa.string())
        return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32), mask=~valid[codes]), dictionary)


class RollUp:
    """Sums of the points of each window and key, over any number of batches of points.

    Args:
        window_us: length of a window.
    """

    def __init__(self, window_us: int) -> None:
        self._window_us = window_us
        self._names = {name: _Names() for name in KEYS}
        # A column is a group; there is room for more. Codes of KEYS, and the window.
        self._keys_room = np.zeros((len(KEYS) + 1, 0), np.int64)
        self._sums_room = _empty(0)
        self._numbering = Numbering()

    def add(self, points: pa.Table) -> None:
        """Add points.

        Args:
            points: rows of `rows.METRIC_POINTS`; text may be dictionary-encoded. A point belongs to the window of
                its `time`, with all of its increment; a point without value may have no time (P5), and belongs to the
                window of its `landed_at`.
        """
        times = points["time"]
        time = _integers(pc.coalesce(times, points["landed_at"]) if times.null_count else times)
        codes = [self._names[name].codes(points[name]) for name in POINT_KEYS]
        codes.append(self._names["attribute_keys"].codes(_attribute_keys(points["attributes"])))
        hashes = np.zeros(len(time), np.uint64)
        for texts, place in codes:
            _mix_texts(texts.view(np.uint64), place, hashes)
        _mix_windows(time, self._window_us, hashes)
        group, first = self._groups(hashes)
        new = self._keys[:, len(self._keys[0]) - len(first) :]
        for row, (texts, place) in zip(new, codes, strict=False):
            row[:] = texts[place[first]]
        new[-1] = time[first] // self._window_us
        _add(_columns(points, time), group, self._sums_room)

    @property
    def size(self) -> int:
        """Rows of `table`."""
        return self._numbering.size

    @property
    def is_large(self) -> bool:
        """Whether its texts fill the memory allowed: it is then written, and a new one is started."""
        return sum(names.bytes for names in self._names.values()) > ROLLUP_TEXT_BYTES

    def coarser(self, window_us: int) -> RollUp:
        """The sums in longer windows; each must consist of whole windows of this one."""
        result = RollUp(window_us)
        result._names = self._names
        keys = np.vstack([self._keys[:-1], self._keys[-1] // (window_us // self._window_us)])
        hashes = np.zeros(self.size, np.uint64)
        for row in keys:
            hashes = mix(hashes, row.view(np.uint64))
        group, first = result._groups(hashes)
        result._keys[:] = keys[:, first]
        if result.size == self.size:  # a small batch: no window has two of this one's
            result._sums_room = self._sums
            return result
        for (_, _, combine), sums, values in zip(SUMS.values(), result._sums, self._sums, strict=True):
            combine.at(sums, group, values)
        return result

    def table(self) -> pa.Table:
        """What has been added, rows of `rows.METRIC_ROLLUPS`, those of a metric together: they take less room so."""
        order = _by_code(self._keys[KEYS.index("metric")])
        sums = _Sums._make(_taken(values, order) for values in self._sums)
        codes = [_taken(values, order) for values in self._keys]
        some = sums.value_count > 0
        columns = {name: self._names[name].texts(code) for name, code in zip(KEYS, codes, strict=False)}
        columns |= {name: pa.array(values) for name, values in sums._asdict().items()}
        columns |= {
            "window_start": pa.array(codes[-1] * self._window_us).view(TIMESTAMP),
            "landed_at": pa.array(sums.landed_at).view(TIMESTAMP),
            "increase": pa.array(sums.increase, mask=~sums.has_increase),
            "increase_int": pa.array(sums.increase_int, mask=~(sums.has_increase & sums.all_int)),
            "covered_s": pa.array(sums.covered_us / 1e6),
            **{name: pa.array(getattr(sums, name), mask=~some) for name in ("value_sum", "value_min", "value_max")},
        }
        return pa.table([columns[name] for name in METRIC_ROLLUPS.names], names=METRIC_ROLLUPS.names)

    @property
    def _keys(self) -> Int64s:
        return self._keys_room[:, : self.size]

    @property
    def _sums(self) -> _Sums:
        return _Sums._make(values[: self.size] for values in self._sums_room)

    def _groups(self, hashes: UInt64s) -> tuple[Int64s, Int64s]:
        """The group of each hash of a key, and the first place of each new group, whose keys are to be filled in."""
        before = self.size
        group, first = self._numbering.number(hashes.view(np.int64))
        if self.size > self._keys_room.shape[1]:
            room = max(self.size, 2 * before)
            keys, sums = np.empty((len(self._keys_room), room), np.int64), _empty(room)
            keys[:, :before] = self._keys_room[:, :before]
            for new, old in zip(sums, self._sums_room, strict=True):
                new[:before] = old[:before]
            self._keys_room, self._sums_room = keys, sums
        return group, first


def _empty(size: int) -> _Sums:
    return _Sums._make(np.full(size, neutral, kind) for kind, neutral, _ in SUMS.values())


def _by_code(codes: Int64s) -> Int64s:
    """The places of codes, equal ones together and in their order, part by part."""
    small = codes.astype(np.uint16) if codes.max(initial=0) <= np.iinfo(np.uint16).max else codes  # sorted by radix
    parts = range(0, len(codes), SORTED_ROWS)
    places = [first + np.argsort(small[first : first + SORTED_ROWS], kind="stable") for first in parts]
    return np.concatenate([np.zeros(0, np.int64), *places])


def _taken(values: npt.NDArray[Scalar], order: Int64s) -> npt.NDArray[Scalar]:
    bits = values.view(f"u{values.itemsize}")  # so -0.0 isn't 0.0
    is_constant = bool((bits == bits[:1]).all())  # cheaper to see than to copy
    return values if is_constant else values[order]


def _dictionary(column: pa.ChunkedArray) -> pa.DictionaryArray:
    texts = one_chunk(column)
    return texts if pa.types.is_dictionary(texts.type) else texts.dictionary_encode()


def _attribute_keys(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The names of each point's attributes as one text, comma-separated; they come sorted. A NULL map has none."""
    maps = one_chunk(column)
    names = maps.keys.dictionary_encode()
    hashes = mix(np.zeros(len(names.dictionary), np.uint64), text_hashes(names.dictionary))
    sums = np.zeros(len(maps), np.uint64)
    _add_up(_read_only(maps.offsets.to_numpy()), _read_only(names.indices.to_numpy()), hashes, sums)
    code, first = Numbering().number(mix(np.uint64(0), sums).view(np.int64))
    texts = [",".join(name for name, _ in pairs or ()) for pairs in maps.take(pa.array(first)).to_pylist()]
    return pa.chunked_array(
        [pa.DictionaryArray.from_arrays(pa.array(code.astype(np.int32)), pa.array(texts, pa.string()))]
    )


def _columns(points: pa.Table, time: Int64s) -> _Points:
    start = _integers(points["delta_start"])
    texts = _dictionary(points["delta_status"])
    classes = np.array([_class(Status[text.upper()]) for text in texts.dictionary.to_pylist()], np.int8)
    has_int = points["delta_int"].is_valid().to_numpy()
    has_increase = points["delta"].is_valid().to_numpy()
    return _Points(
        increase=_doubles(points["delta"]),
        increase_int=_integers(points["delta_int"]),
        is_int=has_int | ~has_increase,
        covered_us=np.where(start == 0, 0, time - start),
        status=classes[texts.indices.to_numpy(zero_copy_only=False)],
        value=_doubles(points["value"]),
        observations=_integers(points["count_delta"]),
        observed_sum=_doubles(points["sum_delta"]),
        landed_at=_integers(points["landed_at"]),
    )


def _class(status: Status) -> int:
    return 1 if status in RESETS else 2 if status in BASELINES else 3 if status in REFUSED else 0


def _integers(column: pa.ChunkedArray) -> Int64s:
    """Integers or timestamps; 0 where NULL."""
    values: Int64s = np.zeros(len(column), np.int64)
    if column.null_count < len(column):
        values = pc.fill_null(one_chunk(column).view(pa.int64()), 0).to_numpy(zero_copy_only=False)
    return _read_only(values)


def _doubles(column: pa.ChunkedArray) -> Doubles:
    """NaN where NULL."""
    values: Doubles = np.full(len(column), np.nan)
    if column.null_count < len(column):
        values = pc.fill_null(one_chunk(column), np.nan).to_numpy(zero_copy_only=False)
    return _read_only(values)


def _read_only(values: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
    """Make an array read-only, as Arrow's always are: a kernel is compiled again for writable ones."""
    values.setflags(write=False)
    return values


_mix = linked(mix)


@kernel
def _mix_texts(texts: UInt64s, place: Int32s, hashes: UInt64s) -> None:
    for i in range(len(hashes)):
        hashes[i] = _mix(hashes[i], texts[place[i]])


@kernel
def _mix_windows(time: Int64s, window_us: int, hashes: UInt64s) -> None:
    for i in range(len(hashes)):
        hashes[i] = _mix(hashes[i], np.uint64(time[i] // window_us))


@kernel
def _add_up(ends: Int32s, names: Int32s, hashes: UInt64s, sums: UInt64s) -> None:
    for i in range(len(sums)):
        for k in range(ends[i], ends[i + 1]):
            sums[i] += hashes[names[k]]


@kernel
def _add(points: _Points, group: Int64s, sums: _Sums) -> None:
    for i in range(len(group)):
        g = group[i]
        sums.points[g] += 1
        sums.resets[g] += points.status[i] == 1
        sums.baselines[g] += points.status[i] == 2
        sums.refused[g] += points.status[i] == 3
        sums.landed_at[g] = max(sums.landed_at[g], points.landed_at[i])
        sums.covered_us[g] += points.covered_us[i]
        if not math.isnan(points.increase[i]):
            sums.has_increase[g] = True
            sums.increase[g] += points.increase[i]
            sums.increase_int[g] += points.increase_int[i]
            sums.all_int[g] &= points.is_int[i]
        value = points.value[i]
        if not math.isnan(value):
            sums.value_count[g] += 1
            sums.value_sum[g] += value
            sums.value_min[g] = min(sums.value_min[g], value)
            sums.value_max[g] = max(sums.value_max[g], value)
        sums.observations[g] += points.observations[i]
        if not math.isnan(points.observed_sum[i]):
            sums.observed_sum[g] += points.observed_sum[i]
