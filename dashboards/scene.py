"""What every page gets: the selection, the lake's answers to it, and the client instances that it leaves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import streamlit as st

from dashboards.lake import Lake, Parameter, Versions
from dashboards.questions import Grain
from dashboards.selection import FILTERS, Selection, step_seconds

MINUTE_S, HOUR_S = 60, 3600
PREFIX = "org.apache.kafka."
NOT_OF_ONE_CLIENT = ("", "<default>")  # client ids of quota entities


@dataclass(frozen=True)
class Scene:
    """A selection over a lake as it was at `versions`."""

    lake: Lake
    versions: Versions
    selection: Selection
    first: datetime
    last: datetime
    start: datetime
    stop: datetime
    instances: pa.Table
    chosen: pa.Table
    step_s: int

    @property
    def grain(self) -> Grain:
        """The coarsest rollups that the plots' windows can be made of."""
        return "points" if self.step_s < MINUTE_S else "minutes" if self.step_s < HOUR_S else "hours"

    @property
    def first_window(self) -> datetime:
        """Start of the rollups' window that holds the start of the time range."""
        window = timedelta(seconds={"minutes": MINUTE_S, "hours": HOUR_S}.get(self.grain, 1))
        return self.start - (self.start - datetime.min.replace(tzinfo=self.start.tzinfo)) % window

    def covered_s(self, at_ms: pd.Series) -> pd.Series:
        """How much of the plots' windows that begin then the time range holds: the first and the last are cut."""
        begin = at_ms.clip(lower=max(self.first_window, self.first).timestamp() * 1000)
        end = (at_ms + self.step_s * 1000).clip(upper=self.stop.timestamp() * 1000)
        return ((end - begin) / 1000).clip(lower=0)

    def whole(self, rows: pd.DataFrame, share: float) -> pd.DataFrame:
        """The rows of windows (`at_ms`) of which the time range holds at least this share; all where none is."""
        kept = rows[self.covered_s(rows["at_ms"]) >= share * self.step_s]
        return kept if len(kept) else rows

    def per_second(self, rows: pd.DataFrame, column: str) -> pd.DataFrame:
        """What the windows (`at_ms`) counted, by the second of the time range in them; hardly covered ones left out."""
        kept = self.whole(rows, 0.5)
        return kept.assign(**{column: kept[column].astype(float) / self.covered_s(kept["at_ms"])})

    def ask(self, name: str, **parameters: Parameter) -> pd.DataFrame:
        """The answer to a question about the chosen clients in the time range."""
        asked: dict[str, Parameter] = {
            "start": self.start,
            "stop": self.stop,
            "first_window": self.first_window,
            "step_ms": self.step_s * 1000,
            **parameters,
        }
        key = (self.lake.uri, self.versions, self.selection.filters)
        return _answer(key, name, asked, self.grain, self.lake, self.chosen)

    def rows(self, view: str, time: str | None = None) -> pd.DataFrame | None:
        """Rows of a table or view; None where this installation doesn't have it.

        With filters only those of the chosen clients, and those that aren't about a single client.

        Args:
            time: column that must lie in the time range; None: rows of any time.
        """
        if not self.lake.knows(view):
            return None
        between = None if time is None else (time, self.start, self.stop)
        rows = _rows((self.lake.uri, self.versions), view, between, self.lake)
        if not self.selection.filters or not {"client_instance_id", "client_id"} & set(rows.columns):
            return rows
        name = "client_instance_id" if "client_instance_id" in rows.columns else "client_id"
        known = [*self.chosen[name].to_pylist(), *NOT_OF_ONE_CLIENT]
        return rows[rows[name].isna() | rows[name].isin(known)]


def open_scene(uri: str, selection: Selection) -> Scene | None:
    """The scene of a selection; None while the lake has no pushes.

    Raises:
        LakeError: the lake can't be read.
    """
    lake = open_lake(uri)
    versions = lake.versions()
    extent = _answer((uri, versions), "extent", {}, "minutes", lake, None).iloc[0]
    if extent["pushes"] == 0:
        return None
    first, last = (extent[name].to_pydatetime() for name in ("first", "last"))
    start, stop = selection.bounds(first, last)
    instances = _instances((uri, versions), start, stop, lake)
    chosen = instances
    for key, column in FILTERS.items():
        if selection.chosen(key):
            chosen = chosen.filter(pc.is_in(chosen[column], pa.array(selection.chosen(key), pa.string())))
    interval = pc.quantile(chosen["push_interval_ms"].cast("double"), 0.5)[0].as_py() or 0
    step_s = step_seconds(max(start, first), min(stop, last), interval)
    return Scene(lake, versions, selection, first, last, start, stop, instances, chosen, step_s)


@st.cache_resource(show_spinner=False)
def open_lake(uri: str) -> Lake:
    return Lake(uri)


# Streamlit keeps an answer under the arguments without a leading underscore.
@st.cache_data(max_entries=500, ttl=3600, show_spinner="Asking the lake ...")
def _answer(
    key: object,  # noqa: ARG001  # the lake's versions and the filters
    name: str,
    parameters: Mapping[str, Parameter],
    grain: Grain,
    _lake: Lake,
    _chosen: pa.Table | None,
) -> pd.DataFrame:
    rows: pd.DataFrame = _lake.ask(name, parameters, _chosen, grain).to_pandas()
    return rows


@st.cache_data(max_entries=50, ttl=3600, show_spinner="Asking the lake ...")
def _rows(
    key: object,  # noqa: ARG001  # the lake's versions
    view: str,
    between: tuple[str, datetime, datetime] | None,
    _lake: Lake,
) -> pd.DataFrame:
    rows: pd.DataFrame = _lake.rows(view, between).to_pandas()
    return rows


@st.cache_resource(max_entries=20, ttl=3600, show_spinner="Looking up the clients ...")
def _instances(key: object, start: datetime, stop: datetime, _lake: Lake) -> pa.Table:  # noqa: ARG001  # the same
    rows = _lake.ask("instances", {"start": start, "stop": stop})
    name, version = (pc.fill_null(rows[f"client_software_{part}"], "unknown") for part in ("name", "version"))
    return rows.append_column("software", pc.binary_join_element_wise(name, version, " "))
