"""The page that asks what a quota would have done: what is offered, what it draws, and its bound."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kafka_telemetry_lake.dashboards.screens.what_if_quota import (
    BOUND,
    MOST_AT_ONCE,
    _named,
    _number,
    _offered,
    _wanted,
    with_bound,
)
from kafka_telemetry_lake.pipelines.quotas.recorded import Proposal, recorded_entities
from kafka_telemetry_lake.pipelines.quotas.what_if import what_if
from kafka_telemetry_lake.udfs.quotas.limits import DEFAULT
from tests.support.quota_samples import NOON, sample

END = NOON + timedelta(minutes=10)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lake = tmp_path_factory.mktemp("quotas")
    sample(lake, "busy", 150.0)
    sample(lake, "calm", 40.0, end=300)
    sample(lake, "", 40.0, user="ann", quota_type="fetch")
    return lake


def test_steps_are_the_recorded_rates_by_the_limit(lake: Path) -> None:
    found = what_if(str(lake), Proposal("produce", "", DEFAULT, 100.0), NOON, END, step_s=60)
    steps = found.steps.to_pylist()
    of_busy = {row["at"]: row["ratio_percent"] for row in steps if row["client_id"] == "busy"}
    assert list(of_busy) == [NOON + timedelta(minutes=minute) for minute in range(10)]
    assert list(of_busy.values()) == pytest.approx([150] * 10)
    assert len([row for row in steps if row["client_id"] == "calm"]) == 5  # nothing was recorded after that
    assert what_if(str(lake), Proposal("produce", "", DEFAULT, 100.0), NOON, END).steps.num_rows == 0


def test_the_plot_has_a_line_for_the_quota_and_for_each_entity(lake: Path) -> None:
    found = what_if(str(lake), Proposal("produce", "", DEFAULT, 100.0), NOON, END, step_s=60)
    rows = with_bound(found.rows.to_pandas(), found.steps.to_pandas())
    assert list(rows["entity"].unique()) == [BOUND, "busy on broker 1", "calm on broker 1"]
    bound = rows[rows["entity"] == BOUND]
    assert (len(bound), set(bound["ratio_percent"])) == (10, {100.0})
    assert datetime.fromtimestamp(int(bound["at_ms"].iloc[0]) / 1000, UTC) == NOON


def test_entities_of_two_clusters_are_two_lines(tmp_path: Path) -> None:
    for cluster_id, rate in (("one", 60.0), ("two", 90.0)):
        sample(tmp_path, "app", rate, cluster_id=cluster_id)
    found = what_if(str(tmp_path), Proposal("produce", "", DEFAULT, 100.0), NOON, END, step_s=60)
    rows = with_bound(found.rows.to_pandas(), found.steps.to_pandas())
    of = rows[rows["entity"] != BOUND].groupby("entity")["ratio_percent"].agg(["min", "max"]).round().T.to_dict("list")
    assert of == {"app on broker 1 of one": [60, 60], "app on broker 1 of two": [90, 90]}


def test_only_the_first_entities_have_steps(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka_telemetry_lake.pipelines.quotas.what_if.MOST_STEPPED", 1)
    monkeypatch.setattr("kafka_telemetry_lake.pipelines.quotas.what_if.CELLS", 1)  # one entity after the other
    found = what_if(str(lake), Proposal("produce", "", DEFAULT, 50.0), NOON, END, step_s=60)
    assert found.rows["client_id"].to_pylist() == ["busy", "calm"]
    assert set(found.steps["client_id"].to_pylist()) == {"busy"}
    assert found.steps.num_rows == 10


def test_many_samples_are_read_when_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    answers = [False, True]

    def on_demand(_title: str, note: str) -> bool:
        said.append(note)
        return answers.pop(0)

    monkeypatch.setattr("kafka_telemetry_lake.dashboards.screens.what_if_quota.on_demand", on_demand)
    assert _wanted(9, MOST_AT_ONCE)
    assert said == []
    assert [_wanted(100_000, 36_000_000), _wanted(100_000, 36_000_000)] == [False, True]
    assert said[0] == (
        "100,000 entities with 36,000,000 samples were recorded to which it would apply: minutes of work."
    )


def test_one_more_than_are_listed_says_that_there_are_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka_telemetry_lake.pipelines.quotas.recorded.MOST_LISTED", 1)
    for client_id in ("more", "also", "and"):
        sample(tmp_path, client_id, 40.0)
    assert recorded_entities(str(tmp_path), "produce", NOON, END) == [("", "also"), ("", "and")]


def test_what_is_offered_is_what_was_recorded(lake: Path) -> None:
    recorded = recorded_entities(str(lake), "produce", NOON, END)
    assert recorded == [("", "busy"), ("", "calm")]
    assert recorded_entities(str(lake), "fetch", NOON, END) == [("ann", "")]
    assert recorded_entities(str(lake), "request", NOON, END) == []
    assert _offered([("", "b"), ("ann", "a"), ("ann", "")]) == [
        ("", DEFAULT), (DEFAULT, ""), ("", "a"), ("", "b"), ("ann", ""), ("ann", "a"),
    ]  # fmt: skip
    names = [_named(json.dumps(each)) for each in (("", DEFAULT), (DEFAULT, ""), ("", "a"), ("ann", "a"))]
    assert names == [
        "each client id without its own", "each user without its own", "client id a", "user ann, client id a",
    ]  # fmt: skip


@pytest.mark.parametrize(("text", "limit"), [("5e4", 50_000.0), ("0", None), ("-1", None), ("nan", None),
                                             ("inf", None), ("x", None), (None, None)])  # fmt: skip
def test_a_limit_of_the_address_is_a_number_above_zero(text: str | None, limit: float | None) -> None:
    assert _number(text) == limit
