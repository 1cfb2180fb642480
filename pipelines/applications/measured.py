"""The measures of an application in windows: what its clients' rollups add up to, as `udfs.before_after` judges it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from kafka_telemetry_lake.pipelines.applications.compared_windows import Windows
from kafka_telemetry_lake.pipelines.query.known_metrics import known_metrics
from kafka_telemetry_lake.udfs.before_after import counting_error
from kafka_telemetry_lake.udfs.kernels.arrays import Doubles, Int64s

RATE, MEAN, OBSERVED = "per second", "mean", "mean of observations"
OVER = {RATE: ("increase", "covered_s"), OBSERVED: ("observed_sum", "observations"), MEAN: ("value_sum", "value_count")}


class Measured(NamedTuple):
    """Measures in the order of their numbers; sums have a column per step of all windows, in the order of time."""

    names: list[tuple[str, str]]
    """metric and names of the attributes"""
    kinds: list[str]
    """`RATE`: the increase per second that deltas cover; `OBSERVED`: what a histogram's observations are; `MEAN`"""
    over: Doubles
    under: Doubles
    """a value is `over / under`, shape (measures, steps); both are 0 without a point"""
    is_count: Doubles
    """1 if the increases are whole numbers, else NaN, shape (measures, 1)"""
    steps: int
    """steps of a window"""

    def values(self) -> tuple[Doubles, Doubles]:
        """Values, and their errors by counting, shape (measures, windows): that after the moment first (B1, B2)."""
        shape = len(self.names), self.over.shape[1] // self.steps, self.steps
        over, under = (each.reshape(shape).sum(axis=2)[:, ::-1] for each in (self.over, self.under))
        return divided(over, under), counting_error(over * self.is_count, under)

    def around(self, number: int, together: int) -> tuple[Int64s, Doubles]:
        """Of one measure, the steps of the windows before and after that begin a value, and the value.

        Steps are counted from the begin of the window before.

        Args:
            together: steps that one value is made of.
        """
        begins = np.concatenate([np.arange(0, self.steps, together) + start for start in (0, self.steps)])
        over, under = (np.add.reduceat(each[number, -2 * self.steps :], begins) for each in (self.over, self.under))
        return begins, divided(over, under)


def measured(sums: pa.Table, windows: Windows) -> Measured:
    """The measures of the answer to `sql/before_after/sums.sql`."""
    number = dict[tuple[str, str], int]()
    keys = zip(sums["metric"].to_pylist(), sums["attribute_keys"].to_pylist(), strict=True)
    row = np.array([number.setdefault(key, len(number)) for key in keys], np.int64)
    at = sums["step"].to_numpy() + windows.earlier * windows.steps
    shape = len(number), (windows.earlier + 1) * windows.steps

    def grid(name: str) -> Doubles:
        """A column by measure and step, NaN where it is NULL."""
        values = np.full(shape, np.nan)
        values[row, at] = sums[name].to_numpy()
        return values

    columns = {name: grid(name) for both in OVER.values() for name in both}
    has = {kind: np.nansum(columns[under], axis=1) > 0 for kind, (_, under) in OVER.items()}
    has[RATE] &= ~np.isnan(columns["increase"]).all(axis=1)
    sums_of = set(row[sums["is_sum"].to_numpy()].tolist())  # without an increase they have no value (B1)
    kinds = [
        next((kind for kind in OVER if has[kind][each]), RATE if each in sums_of else MEAN)
        for each in range(len(number))
    ]
    over, under = (
        np.array([columns[OVER[kind][part]][each] for each, kind in enumerate(kinds)]).reshape(shape) for part in (0, 1)
    )
    counted = ~np.isnan(columns["increase"]) & np.isnan(grid("counted"))
    is_count = np.where(counted.any(axis=1) | ~has[RATE], np.nan, 1.0)[:, None]
    return Measured(list(number), kinds, np.nan_to_num(over), np.nan_to_num(under), is_count, windows.steps)


def unit_of(metric: str, kind: str) -> str:
    """The unit of a measure's values; of a metric that nobody knows, how they come about."""
    known = known_metrics().get(metric)
    if known is None:
        return kind
    return f"{known.unit} per second" if kind == RATE else known.unit


def divided(over: Doubles, under: Doubles) -> Doubles:
    """The quotient, NaN where nothing is divided."""
    with np.errstate(divide="ignore", invalid="ignore"):
        quotient: Doubles = np.where(under > 0, over / under, np.nan)
    return quotient
