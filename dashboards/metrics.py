"""Plots and tables of client metrics, by the metrics' names without `org.apache.kafka.`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
import streamlit as st

from dashboards.plots import lines
from dashboards.scene import PREFIX, Scene
from dashboards.show import every_column, heading, table

SPREAD = {"typical": "median", "high": "95th percentile", "most": "largest"}


def ask_over_time(scene: Scene, metrics: Sequence[str]) -> pd.DataFrame:
    """Answers to `metric_over_time` for these metrics, asked at once."""
    return _ask(scene, "metric_over_time", metrics)


def total(rows: pd.DataFrame, scene: Scene, names: Mapping[str, str], unit: str, title: str, note: str = "") -> None:
    """What all clients added per second, a line per metric: metric to its name in the legend."""
    chosen = scene.per_second(_named(rows, names), "increase")
    lines(chosen, "increase", unit, title, "name" if len(names) > 1 else None, scene.step_s, note, [*names.values()])


def spread(
    rows: pd.DataFrame, scene: Scene, metric: str, unit: str, title: str, note: str = "", most: bool = True
) -> None:
    """A gauge over the fleet: median and 95th percentile over client ids, of their means, and the largest value."""
    chosen = rows[rows["metric"] == PREFIX + metric]
    kept = [name for name in SPREAD if most or name != "most"]
    long = chosen.melt("at_ms", kept, "name", "value").replace({"name": SPREAD})
    lines(long, "value", unit, title, "name", scene.step_s, note, [SPREAD[name] for name in kept])


def largest(rows: pd.DataFrame, scene: Scene, names: Mapping[str, str], unit: str, title: str, note: str = "") -> None:
    """The largest value that any client had, a line per metric."""
    by = "name" if len(names) > 1 else None
    lines(_named(rows, names), "most", unit, title, by, scene.step_s, note, [*names.values()])


def by_client(
    scene: Scene,
    columns: Mapping[tuple[str, str], str],
    title: str,
    top: int = 200,
    note: str = "",
    above: float | None = None,
) -> None:
    """A row per client id: the values of metrics, the first of which gives the order.

    Args:
        columns: metric and what of it (increase, rate, mean, most) to the column's heading.
        above: leave out client ids none of whose values is larger.
    """
    metrics = list(dict.fromkeys(metric for metric, _ in columns))
    rows = _ask(scene, "metric_by_client", metrics, top)
    parts = [
        rows[rows["metric"] == PREFIX + metric].set_index("client_id")[what].rename(f"{metric} {what}")
        for metric, what in columns
    ]
    wide = pd.concat(parts, axis=1).dropna(how="all").reset_index()
    if above is not None:
        wide = wide[(wide.drop(columns="client_id") > above).any(axis=1)]
    if len(wide):
        wide = wide.sort_values(str(parts[0].name), ascending=False, na_position="last").head(top)
    headings = {f"{metric} {what}": heading for (metric, what), heading in columns.items()}
    table(wide, {"client_id": "client id", **headings}, title, note)


def by_minute(scene: Scene, views: Mapping[str, str]) -> None:
    """Views of data points by instance and minute: view to title; asked for by hand, as they read every point."""
    with st.container(border=True):
        heading("By instance and minute", "Read from the data points of the time range, which may take a while.")
        if st.toggle("Show", key="by-minute"):
            for view, title in views.items():
                every_column(scene.rows(view, "minute"), title)


def _ask(scene: Scene, name: str, metrics: Sequence[str], top: int = 0) -> pd.DataFrame:
    return scene.ask(name, metrics=[PREFIX + metric for metric in metrics], top=top)


def _named(rows: pd.DataFrame, names: Mapping[str, str]) -> pd.DataFrame:
    full = {PREFIX + metric: name for metric, name in names.items()}
    chosen = rows[rows["metric"].isin(list(full))]
    return chosen.assign(name=chosen["metric"].map(full))
