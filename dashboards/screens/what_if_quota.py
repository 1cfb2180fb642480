"""The page that asks what a proposed quota would have done: whom it would have throttled, how full each would be."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pandas as pd
import pyarrow as pa
import streamlit as st

from kafka_telemetry_lake.dashboards.answers import Asked, answer
from kafka_telemetry_lake.dashboards.frame import page_value, preset
from kafka_telemetry_lake.dashboards.panels import on_demand
from kafka_telemetry_lake.dashboards.plots import MOST_SERIES, lines
from kafka_telemetry_lake.dashboards.scene import Scene
from kafka_telemetry_lake.dashboards.show import numbers, plain, table
from kafka_telemetry_lake.pipelines.quotas.recorded import MOST_LISTED, Proposal, recorded_entities, recorded_of
from kafka_telemetry_lake.pipelines.quotas.what_if import Prediction, remarks, what_if
from kafka_telemetry_lake.udfs.errors import CannotRunError
from kafka_telemetry_lake.udfs.quotas.limits import DEFAULT

UNITS = {"produce": "bytes/s", "fetch": "bytes/s", "request": "% of one thread's time"}
KEYS = {"quota": "chosen quota", "for": "chosen entity", "limit": "chosen limit"}
BOUND = "the proposed quota"
LONGEST = timedelta(days=31)
TOGETHER = b"together"  # of an answer's metadata
MOST_AT_ONCE = 1_000_000  # samples for which the page is computed without being asked: about four CPU seconds
COLUMNS = {
    "principal": "user",
    "client_id": "client id",
    "broker_id": "broker",
    "throttled_percent": "throttled (%)",
    "used_percent": "used (%)",
    "longest_wait_s": "longest wait (s)",
    "first_throttled": "first throttled (UTC)",
    "last_throttled": "last throttled (UTC)",
    "mean_rate": "recorded, mean",
    "peak_rate": "recorded, peak",
    "quota_limit": "limit",
    "recorded_s": "recorded (s)",
    "source": "source",
    "status": "status",
}


def page(scene: Scene) -> None:
    start, stop = max(scene.start, scene.first - timedelta(days=1), scene.stop - LONGEST), scene.stop
    kind, left, right = st.columns((1, 2, 1))
    with kind:
        quota_type = _choice("quota", "Quota", list(UNITS), str)
    recorded = _recorded(scene, quota_type, start, stop)
    with left:
        chosen = _choice("for", "For", [json.dumps(each) for each in _offered(recorded[:MOST_LISTED])], _named)
        if len(recorded) > MOST_LISTED:
            st.caption(
                f"Of those that were recorded, the first {MOST_LISTED:,} by name. `telemetry-lake what-if quota` takes "
                "any: docs/quotas.md."
            )
    with right:
        limit = _limit(UNITS[quota_type])
    if not recorded:
        st.info(
            f"Brokers sampled no {quota_type} rates in this time range: they do only where a quota of this type is "
            "set. docs/quotas.md says how."
        )
        return
    if limit is None:
        st.info("Write a limit: who would have been throttled by it in this time range, and how full would each be?")
        return
    user, client_id = json.loads(chosen)
    proposal = Proposal(quota_type, user, client_id, limit)
    try:
        entities, samples = _amount(scene, proposal, start, stop)
        if not _wanted(entities, samples):
            return
        predicted = _predicted(scene, proposal, start, stop)
    except CannotRunError as error:
        st.info(plain(error))
        return
    for remark in remarks(predicted, start, stop):
        st.caption(plain(remark))
    _show(predicted.rows.to_pandas(), predicted.steps.to_pandas(), scene.step_s, (start, stop))


def _show(rows: pd.DataFrame, steps: pd.DataFrame, step_s: int, ends: tuple[datetime, datetime]) -> None:
    throttled = rows[rows["throttled_s"] > 0]
    numbers(
        {
            "Would be throttled": (len(throttled), f"Of {len(rows):,} that the quota would apply to, on each broker."),
            "For the longest (s)": (rows["throttled_s"].max(), "Of its recorded time, not necessarily at once."),
            "Longest wait (s)": (rows["longest_wait_s"].max(), "A producer gives up after delivery.timeout.ms: 120 s."),
            "Fullest (%)": (rows["used_percent"].max(), "Mean share of the quota, 100 while throttled."),
        }
    )
    lines(
        with_bound(rows, steps),
        "ratio_percent",
        "% of the quota",
        "Recorded rate by the proposed quota",
        "entity",
        step_s,
        "The greatest of each window. What is above the line would have waited, and been sent later.",
        [BOUND],
        domain=ends,
    )
    cluster = {"cluster_id": "cluster"} if _several_clusters(rows) else {}
    table(
        rows.rename(columns={"user": "principal"}),
        cluster | COLUMNS,
        "Whom it would throttle, and how full each would be",
        "docs/quotas.md says how it is computed, and how near it comes.",
    )


def with_bound(rows: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """Steps of the first entities of the rows, each with its name, and the quota itself as a line."""
    several = _several_clusters(rows)
    shown = steps.assign(entity=_entities(steps, several), at_ms=steps["at"].astype("int64") // 1000)
    shown = shown[shown["entity"].isin(list(_entities(rows, several).head(MOST_SERIES)))]
    bound = pd.DataFrame({"at_ms": sorted(shown["at_ms"].unique()), "ratio_percent": 100.0, "entity": BOUND})
    return pd.concat([bound, shown[["at_ms", "ratio_percent", "entity"]]], ignore_index=True)


def _several_clusters(rows: pd.DataFrame) -> bool:
    return bool(rows["cluster_id"].nunique(dropna=False) > 1)


def _entities(rows: pd.DataFrame, several_clusters: bool) -> pd.Series:
    keys = zip(rows["cluster_id"], rows["broker_id"], rows["user"], rows["client_id"], strict=True)
    names = [
        _of(user, client_id)
        + ("" if pd.isna(broker_id) else f" on broker {int(broker_id)}")
        + (f" of {'an unknown cluster' if pd.isna(cluster_id) else cluster_id}" if several_clusters else "")
        for cluster_id, broker_id, user, client_id in keys
    ]
    return pd.Series(names, rows.index, dtype=str)


def _of(user: str, client_id: str) -> str:
    return ", ".join(filter(None, (user, client_id))) or "all"


def _wanted(entities: int, samples: int) -> bool:
    """Whether to compute it: without being asked only if it is soon done."""
    note = f"{entities:,} entities with {samples:,} samples were recorded to which it would apply: minutes of work."
    return samples <= MOST_AT_ONCE or on_demand("Compute so much?", note)


def _amount(scene: Scene, proposal: Proposal, start: datetime, stop: datetime) -> tuple[int, int]:
    """How many entities the proposal would apply to, and samples of them."""
    whom = proposal._replace(limit=None)

    def ask(_: Asked) -> pa.Table:
        found = recorded_of(scene.lake.uri, whom, start, stop)
        return pa.table({"entities": [len(found.entities)], "samples": [found.samples]})

    key = (scene.lake.uri, scene.versions, "what_if_quota", "amount", whom, start, stop)
    (row,) = answer(key, lambda: "To whom would this quota apply?", ask).to_pylist()
    return row["entities"], row["samples"]


def _predicted(scene: Scene, proposal: Proposal, start: datetime, stop: datetime) -> Prediction:
    computed: list[Prediction] = []

    def ask(part: str) -> pa.Table:
        def of(asked: Asked) -> pa.Table:
            if not computed:
                computed.append(what_if(scene.lake.uri, proposal, start, stop, scene.step_s, lambda: asked.is_ended))
            return getattr(computed[0], part).replace_schema_metadata({TOGETHER: str(computed[0].together)})

        key = (scene.lake.uri, scene.versions, "what_if_quota", part, proposal, start, stop, scene.step_s)
        return answer(key, lambda: "What would this quota have done?", of)

    rows = ask("rows")
    return Prediction(rows, int(rows.schema.metadata[TOGETHER]), ask("steps"))


def _recorded(scene: Scene, quota_type: str, start: datetime, stop: datetime) -> list[tuple[str, str]]:
    def ask(_: object) -> pa.Table:
        found = recorded_entities(scene.lake.uri, quota_type, start, stop)
        return pa.table({"user": [user for user, _ in found], "client_id": [name for _, name in found]})

    key = (scene.lake.uri, scene.versions, "recorded_entities", quota_type, start, stop)
    found = answer(key, lambda: "Whose rates did brokers sample?", ask)
    return list(zip(found["user"].to_pylist(), found["client_id"].to_pylist(), strict=True))


def _offered(recorded: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Each client id or user without a quota of its own, then those that were recorded."""
    users = [(user, "") for user, _ in recorded if user]
    ids = [("", name) for _, name in recorded if name]
    both = [each for each in recorded if all(each)]
    return list(dict.fromkeys([("", DEFAULT), (DEFAULT, ""), *sorted(ids), *sorted(users), *sorted(both)]))


def _named(entity: str) -> str:
    user, client_id = json.loads(entity)
    if DEFAULT in (user, client_id):
        return "each user without its own" if user else "each client id without its own"
    parts = (f"user {user}" if user else "", f"client id {client_id}" if client_id else "")
    return ", ".join(filter(None, parts))


def _choice(parameter: str, label: str, options: list[str], named: Callable[[Any], str]) -> str:
    """A control that shows what the page's address says, and changes it."""
    key = KEYS[parameter]
    wanted = page_value(parameter)
    preset(key, wanted if wanted in options else options[0])

    def changed() -> None:
        st.query_params[parameter] = st.session_state[key]

    st.selectbox(label, options, key=key, on_change=changed, format_func=named)
    return str(st.session_state[key])


def _limit(unit: str) -> float | None:
    key = KEYS["limit"]
    preset(key, _number(page_value("limit")))

    def changed() -> None:
        value = st.session_state[key]
        if value:
            st.query_params["limit"] = f"{value:.15g}"
        else:
            st.query_params.pop("limit", None)

    st.number_input(f"Limit ({unit}, each broker)", 0.0, key=key, on_change=changed, format="%.6g", value=None)
    return st.session_state[key] or None


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if 0 < value < float("inf") else None
