"""The input of every page: the selection, the client instances that match it, and the lake's answers for them."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import streamlit as st

from kafka_telemetry_lake.dashboards.address import FILTERS, OWNED, Selection, step_seconds
from kafka_telemetry_lake.dashboards.answers import answer
from kafka_telemetry_lake.dashboards.clients import SelectedClients, Totals
from kafka_telemetry_lake.dashboards.lake import LakeReader, Versions
from kafka_telemetry_lake.dashboards.questions import (
    MOST_ROWS,
    OF_WINDOWS,
    SUMMED_TOGETHER,
    Grain,
    Parameter,
    filled,
    first_sentence,
    in_words,
    of_question,
    question,
    view_sql,
)
from kafka_telemetry_lake.pipelines.findings.overrides import read_overrides
from kafka_telemetry_lake.pipelines.query.views import views
from kafka_telemetry_lake.udfs.findings.remarks import MUTED

MINUTE_S, HOUR_S = 60, 3600
MOST_MARKS = 30
MOST_PUSHES_EACH = 4  # latest ones, in which the newest instances are looked for first
MOST_CLIENT_WINDOWS = 100_000  # client ids times windows of a plot; each has ten metrics, of 90 bytes
NOT_OF_ONE_CLIENT = ("", "<default>")  # client ids of quota entities


@dataclass(frozen=True)
class Scene:
    """A selection over a lake as it was at `versions`."""

    lake: LakeReader
    versions: Versions
    selection: Selection
    first: datetime
    last: datetime
    start: datetime
    stop: datetime
    clients: SelectedClients
    step_s: int
    earlier_s: float = 0  # how much earlier than the time range whose clients these are

    @property
    def chosen(self) -> pa.Table:
        """A row of each client instance that passes the filters. Costs more than all else of a page; see `totals`,
        `listed`, and questions that read relation `chosen`."""
        return self.clients.chosen

    @property
    def totals(self) -> Totals:
        """How many client instances pass the filters, and what they add up to."""
        return self.clients.shown

    @property
    def grain(self) -> Grain:
        """The coarsest rollups that are no longer than the plots' windows."""
        return "points" if self.step_s < MINUTE_S else "minutes" if self.step_s < HOUR_S else "hours"

    @property
    def first_window(self) -> datetime:
        """Start of the rollups' window that contains the start of the time range."""
        window = timedelta(seconds={"minutes": MINUTE_S, "hours": HOUR_S}.get(self.grain, 1))
        return self.start - (self.start - datetime.min.replace(tzinfo=self.start.tzinfo)) % window

    @property
    def is_of_everybody(self) -> bool:
        """Whether no client of the time range is left out; what is earlier is of the same clients."""
        return not self.selection.filters and not self.earlier_s

    def selecting(self, selection: Selection) -> Scene:
        """The scene of the clients that another selection's filters leave."""
        return replace(self, selection=selection, clients=replace(self.clients, selection=selection))

    def covered_s(self, at_ms: pd.Series) -> pd.Series:
        """Seconds of each plot window, by its start, that lie in the time range; less for the first and the last."""
        begin = at_ms.clip(lower=max(self.first_window, self.first).timestamp() * 1000)
        end = (at_ms + self.step_s * 1000).clip(upper=self.stop.timestamp() * 1000)
        return ((end - begin) / 1000).clip(lower=0)

    def whole(self, rows: pd.DataFrame, share: float) -> pd.DataFrame:
        """The rows of windows (`at_ms`) that lie in the time range by at least this share; all rows if none do."""
        covered = rows[self.covered_s(rows["at_ms"]) >= share * self.step_s]
        return covered if len(covered) else rows

    def per_second(self, rows: pd.DataFrame, column: str) -> pd.DataFrame:
        """The rows with a column per covered second of its window (`at_ms`), without windows less than half covered.

        If the range is shorter than a window, as that of a lake of one push, it counts as a window: a push tells of
        its whole interval, and a window is no shorter than that.
        """
        covered = self.whole(rows, 0.5)
        seconds = self.covered_s(covered["at_ms"])
        if (self.stop - max(self.start, self.first)).total_seconds() < self.step_s:
            seconds = seconds.clip(lower=self.step_s)
        return covered.assign(**{column: covered[column].astype(float) / seconds})

    def ask(self, name: str, **parameters: Parameter) -> pd.DataFrame:
        """The answer to a question about the chosen clients in the time range; `attrs["sql"]` is its statement."""
        asked, most = self._asked(name, parameters)
        return self._answer(name, asked, most)

    def listed(self, ids: Iterable[str]) -> pd.DataFrame:
        """What is known of these of the chosen instances, those with the latest pushes first."""
        rows = self.ask("instances_by_id", ids=[*ids])
        rows.attrs.clear()  # a statement as long as the list of ids
        return rows

    def newest(self, top: int) -> pd.DataFrame:
        """Instance and client id of the chosen instances with the latest pushes: rows of `newest_instances`.

        Of many instances, mostly the latest few pushes are of so many different ones: then no others are read.
        """
        listed = not self.is_of_everybody or self.clients.are_listed_at_once
        if not listed and self.totals.instances > MOST_PUSHES_EACH * top:
            since = self.ask("latest_pushes", top=MOST_PUSHES_EACH * top)["since"].iloc[0]
            rows = self.ask("newest_instances", top=top, start=since.to_pydatetime())
            if len(rows) == top:
                return rows
        return self.ask("newest_instances", top=top)

    def open_findings(self) -> pd.DataFrame:
        """What is wrong now with the chosen clients, and with no single client; the worst and oldest first."""
        asked, most = self._asked("open_findings", {})
        rows = self._answer("open_findings", asked, most)
        ended = rows["until"][(rows["state"] == MUTED) & (rows["until"] <= pd.Timestamp.now("UTC"))]
        # A mute has ended since this was answered: the time of day alone changes the answer.
        return self._answer("open_findings", asked, most, ended.max().timestamp()) if len(ended) else rows

    def _answer(self, name: str, asked: Mapping[str, Parameter], most: int, moment: float = 0) -> pd.DataFrame:
        key = (self.lake.uri, self.versions, self.selection.filters, self.earlier_s, moment)
        if name in OF_WINDOWS and self._fits_windows:
            metrics = asked["metrics"]
            assert isinstance(metrics, list)
            summed = {**asked, "metrics": sorted({*SUMMED_TOGETHER, *metrics}), "top": 0}
            windows = _windows(key, summed, self)
            answered = _answer(key, name, asked, "windows", self, windows)
        else:
            answered = _answer(key, name, asked, self.grain, self)
        rows = first(answered.to_pandas(), most)
        rows.attrs["sql"] = of_question(name, self.grain, asked, self.selection)
        return rows

    @cached_property
    def _fits_windows(self) -> bool:
        """Whether the chosen clients' sums by window may be kept, for all panels that show some of them."""
        return self._client_windows(self.totals) <= MOST_CLIENT_WINDOWS

    @cached_property
    def keeps_windows(self) -> bool:
        """Whether the sums of all clients may be kept, for other ranges and filters too."""
        return self.grain != "points" and self._client_windows(self.clients.known) <= MOST_CLIENT_WINDOWS

    def _client_windows(self, clients: Totals) -> float:
        begin, end = max(self.start, self.first), min(self.stop, self.last)
        return clients.client_ids * (end - begin).total_seconds() / self.step_s

    def labels(self, key: str) -> pa.ChunkedArray:
        """The values that the clients of the time range have of one of `FILTERS`."""
        if key not in OWNED:
            return self.clients.instances[FILTERS[key]]
        return self.clients.owners[key]

    def owned(self) -> pd.DataFrame:
        """Client id, application and owner of those of the chosen instances that have an owner or application."""
        owners = self.clients.owners
        if not owners.num_rows:
            return pd.DataFrame({name: pd.Series(dtype=object) for name in ("client_instance_id", "client_id", *OWNED)})
        chosen = self.chosen.select(["client_instance_id", "client_id"])
        named = chosen.filter(pc.is_in(chosen["client_instance_id"], owners["client_instance_id"])).to_pandas()
        rows: pd.DataFrame = named.merge(owners.to_pandas(), on="client_instance_id")
        return rows

    @property
    def earlier_by(self) -> timedelta | None:
        """How much earlier is what the plots are to be compared with; whole windows, so that these fit."""
        compare = self.selection.compare
        if not compare:
            return None
        length = timedelta(days=7) if compare == "week" else self.stop - max(self.start, self.first)
        windows = max(1, -(-length // timedelta(seconds=self.step_s)))
        return windows * timedelta(seconds=self.step_s)

    def marks(self) -> pd.DataFrame:
        """Changes that plots mark: `mark_ms`, and `what` changed, at most one a window."""
        rows = self.ask("marks", top=MOST_MARKS)
        return rows.rename(columns={"at_ms": "mark_ms"})

    def earlier(self, by: timedelta) -> Scene:
        """The scene of the same clients and windows, a while earlier."""
        return replace(self, start=self.start - by, stop=self.stop - by, earlier_s=by.total_seconds())

    def _asked(self, name: str, parameters: Mapping[str, Parameter]) -> tuple[dict[str, Parameter], int]:
        """A question's parameters, and how many rows to show."""
        asked: dict[str, Parameter] = {
            "start": self.start,
            "stop": self.stop,
            "first_window": self.first_window,
            "step_ms": self.step_s * 1000,
            "filters": len(self.selection.filters),
            **parameters,
        }
        most = question(name).most
        if most is None:
            most = int(str(parameters["top"]))
            asked["top"] = most + 1
        return asked, most

    def rows(self, view: str, time: str | None = None, **where: Parameter) -> pd.DataFrame | None:
        """Rows of a table or view; None if this installation doesn't have it.

        If there are filters, only rows about the chosen clients and rows that aren't about a single client.

        Args:
            time: column that must lie in the time range; None: rows of all times.
            where: values that columns must have; the filters don't count then.
        """
        if not self.lake.knows(view):
            return None
        between = None if time is None else (time, self.start, self.stop)
        sql, values = view_sql(view, between, where)
        rows = first(_rows((self.lake.uri, self.versions), view, between, where, self.lake), MOST_ROWS)
        rows.attrs["sql"] = filled(sql, values)
        if where or not self.selection.filters or not {"client_instance_id", "client_id"} & set(rows.columns):
            return rows
        name = "client_instance_id" if "client_instance_id" in rows.columns else "client_id"
        known = [*self.chosen[name].to_pylist(), *NOT_OF_ONE_CLIENT]
        return rows[rows[name].isna() | rows[name].isin(known)]


def first(rows: pd.DataFrame, most: int) -> pd.DataFrame:
    """The first rows of an answer; if there are more, the page says so."""
    if len(rows) > most:
        st.caption(f"There are more than {most:,} rows; these are the first. Narrow the time range or the filters.")
        rows = rows.head(most)
        rows.attrs["most"] = most
    return rows


def open_scene(uri: str, selection: Selection) -> Scene | None:
    """The scene of a selection; None if the lake has no pushes.

    Raises:
        LakeError: the lake can't be read.
    """
    lake = open_lake(uri)
    versions = lake.versions()
    (extent,) = answer(
        (uri, versions, "extent"), lambda: in_words("extent"), lambda asked: lake.ask("extent", {}, asked=asked)
    ).to_pylist()
    if extent["pushes"] == 0:
        return None
    first, last = extent["first"], extent["last"]
    start, stop = selection.bounds(first, last)
    clients = SelectedClients(lake, versions, selection, start, stop)
    step_s = step_seconds(max(start, first), min(stop, last), clients.shown.push_interval_ms)
    return Scene(lake, versions, selection, first, last, start, stop, clients, step_s)


@st.cache_resource(show_spinner=False)
def open_lake(uri: str) -> LakeReader:
    """A lake; its findings are judged with the bounds of the file TELEMETRY_LAKE_RULES, if there is one."""
    rules = os.environ.get("TELEMETRY_LAKE_RULES")
    return LakeReader(uri, read_overrides(Path(rules) if rules else None))


def _answer(
    key: Hashable,
    name: str,
    parameters: Mapping[str, Parameter],
    grain: Grain,
    scene: Scene,
    rollups: pa.Table | None = None,
) -> pa.Table:
    """The answer to a question, kept for these versions and filters (`key`) and parameters."""
    everybody = scene.is_of_everybody
    # Listed before the question is asked, so that the page says what it waits for.
    needs_chosen = question(name, grain, everybody, listed=True).is_about_chosen
    chosen = scene.chosen if needs_chosen and (not everybody or scene.clients.are_listed_at_once) else None
    return answer(
        (key, name, grain, _hashable(parameters)),
        lambda: in_words(name),
        lambda asked: scene.lake.ask(name, parameters, chosen, grain, asked, rollups, everybody),
    )


def _windows(key: Hashable, parameters: Mapping[str, Parameter], scene: Scene) -> pa.Table:
    """The answer to `client_windows`; of sums that the lake keeps, if it may keep them and of all these metrics."""
    if not scene.keeps_windows or parameters["metrics"] != sorted(SUMMED_TOGETHER):
        return _answer(key, "client_windows", parameters, scene.grain, scene)
    chosen = None if scene.is_of_everybody else scene.chosen
    return answer(
        (key, "client_windows", scene.grain, _hashable(parameters)),
        lambda: in_words("client_windows"),
        lambda asked: scene.lake.windows(parameters, chosen, scene.grain, asked),
    )


def _rows(
    key: Hashable,
    view: str,
    between: tuple[str, datetime, datetime] | None,
    where: Mapping[str, Parameter],
    lake: LakeReader,
) -> pd.DataFrame:
    rows: pd.DataFrame = answer(
        (key, view, between, _hashable(where)),
        lambda: first_sentence(views()[view].question) if view in views() else f"What is in table {view}?",
        lambda asked: lake.rows(view, between, MOST_ROWS + 1, where, asked),
    ).to_pandas()
    return rows


def _hashable(values: Mapping[str, Parameter]) -> Hashable:
    return tuple((name, tuple(value) if isinstance(value, list) else value) for name, value in sorted(values.items()))
