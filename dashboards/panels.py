"""Panels that several pages have: plots and tables of client metrics, and what the chosen clients have in common.

Metrics are named without the prefix `org.apache.kafka.`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
import streamlit as st

from kafka_telemetry_lake.dashboards.plots import lines
from kafka_telemetry_lake.dashboards.questions import PREFIX
from kafka_telemetry_lake.dashboards.scene import Scene
from kafka_telemetry_lake.dashboards.show import every_column, facts, heading, plain, table

SPREAD = {"typical": "median", "high": "95th percentile", "most": "largest"}


def ask_over_time(scene: Scene, metrics: Sequence[str]) -> pd.DataFrame:
    """Answer question `metric_over_time` for all these metrics in one query; with what it is compared with, if any.

    Rows of the time before have a true column `before`, and the times that they are compared with.
    """
    rows = _ask(scene, "metric_over_time", metrics)
    if (by := scene.earlier_by) is None:
        return rows
    sql = rows.attrs.get("sql", "")
    earlier = _ask(scene.earlier(by), "metric_over_time", metrics)
    earlier["at_ms"] += int(by.total_seconds() * 1000)
    both = pd.concat([rows.assign(before=False), earlier.assign(before=True)], ignore_index=True)
    both.attrs["sql"] = sql
    return both


def total(rows: pd.DataFrame, scene: Scene, names: Mapping[str, str], unit: str, title: str, note: str = "") -> None:
    """Plot the increase per second of all clients, a line per metric; `names` maps metrics to names in the legend."""
    chosen = scene.per_second(_named(rows, names), "increase")
    lines(chosen, "increase", unit, title, "name" if len(names) > 1 else None, scene.step_s, note, [*names.values()])


def spread(
    rows: pd.DataFrame, scene: Scene, metric: str, unit: str, title: str, note: str = "", most: bool = True
) -> None:
    """Plot a gauge: the median and the 95th percentile of the client ids' means, and, if `most`, the largest value."""
    chosen = rows[rows["metric"] == PREFIX + metric]
    columns = [name for name in SPREAD if most or name != "most"]
    kept = ["at_ms", "before"] if "before" in chosen.columns else ["at_ms"]
    long = chosen.melt(kept, columns, "name", "value").replace({"name": SPREAD})
    long.attrs = rows.attrs
    lines(long, "value", unit, title, "name", scene.step_s, note, [SPREAD[name] for name in columns])


def largest(rows: pd.DataFrame, scene: Scene, names: Mapping[str, str], unit: str, title: str, note: str = "") -> None:
    """Plot the largest value of any client, a line per metric."""
    by = "name" if len(names) > 1 else None
    lines(_named(rows, names), "most", unit, title, by, scene.step_s, note, [*names.values()])


def by_client(
    scene: Scene,
    columns: Mapping[tuple[str, str], str],
    title: str,
    top: int = 200,
    note: str = "",
    above: float | None = None,
    none: str = "",
) -> None:
    """Show a table of metric values with a row per client id, in descending order of the first column.

    Args:
        columns: metric and aggregate (increase, rate, mean, most) of each column, to its heading.
        above: omit client ids that have no value above this.
        none: the reason if there are no rows.
    """
    metrics = list(dict.fromkeys(metric for metric, _ in columns))
    rows = _ask(scene, "metric_by_client", metrics, top)
    parts = [
        rows[rows["metric"] == PREFIX + metric].set_index("client_id")[what].rename(f"{metric} {what}")
        for metric, what in columns
    ]
    wide = pd.concat(parts, axis=1).dropna(how="all").reset_index()
    wide.attrs = rows.attrs
    if above is not None:
        wide = wide[(wide.drop(columns="client_id") > above).any(axis=1)]
    if len(wide):
        wide = wide.sort_values(str(parts[0].name), ascending=False, na_position="last").head(top)
    headings = {f"{metric} {what}": heading for (metric, what), heading in columns.items()}
    table(wide, {"client_id": "client id", **headings}, title, note, none)


def by_minute(scene: Scene, views: Mapping[str, str]) -> None:
    """Show views of data points by instance and minute, given as view to title, on demand."""
    if on_demand("By instance and minute", "This reads every data point of the time range and may take a while."):
        for view, title in views.items():
            every_column(scene.rows(view, "minute"), title)


def on_demand(title: str, note: str) -> bool:
    """Whether the reader wants to see what takes longer than a page should."""
    with st.container(border=True):
        heading(title, note)
        st.caption(note)
        return st.toggle("Show", key=f"show {title}")


def _ask(scene: Scene, name: str, metrics: Sequence[str], top: int = 0) -> pd.DataFrame:
    return scene.ask(name, metrics=[PREFIX + metric for metric in metrics], top=top)


def _named(rows: pd.DataFrame, names: Mapping[str, str]) -> pd.DataFrame:
    full = {PREFIX + metric: name for metric, name in names.items()}
    chosen = rows[rows["metric"].isin(list(full))]
    named = chosen.assign(name=chosen["metric"].map(full))
    named.attrs = rows.attrs
    return named


def about_clients(scene: Scene, title: str = "About it") -> None:
    """What the chosen instances have in common: who uses them, with which software, in which groups."""
    clients = scene.chosen.to_pandas()
    owned = scene.owned()
    facts(
        title,
        {
            "client ids": ("client_id", clients["client_id"].value_counts().index),
            "application": ("application", owned["application"]),
            "owner": ("owner", owned["owner"]),
            "principals": ("principal", clients["principal"].value_counts().index),
            "consumer groups": ("group_id", clients["group_id"].dropna().value_counts().index),
            "versions": ("software", clients["software"].value_counts().index),
            "instances": ("", [f"{len(clients):,}"]),
            "addresses": ("", list(clients["client_address"].value_counts().index) or ["unknown"]),
        },
        scene.selection,
    )


def missing(what: str, name: str) -> None:
    """Say that a page's subject isn't known in the time range."""
    st.info(plain(f"{what} {name} isn't known in this time range. Widen the range."))
