"""Questions about all client instances: what they answer without a list of them, and that no page makes that list."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from kafka_telemetry_lake.dashboards.address import Selection
from kafka_telemetry_lake.dashboards.answers import Answers
from kafka_telemetry_lake.dashboards.lake import LakeReader
from kafka_telemetry_lake.dashboards.pages import PAGES, Page
from kafka_telemetry_lake.dashboards.questions import names, question
from kafka_telemetry_lake.dashboards.scene import Scene, open_scene
from kafka_telemetry_lake.dashboards.screens import client as client_page
from kafka_telemetry_lake.dashboards.screens import lifecycle
from kafka_telemetry_lake.pipelines.tables.operator import PUSH_OUTCOMES, PUSHES, TABLES
from tests.support.application_lake import put
from tests.support.asked_questions import keep_no_pushes, note_questions

pytestmark = pytest.mark.lake

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
STOP = NOON + timedelta(hours=1)
ASKED: dict[str, Any] = {"start": NOON, "first_window": NOON, "stop": STOP, "step_ms": 60_000, "metrics": []}
Rows = list[dict[str, Any]]


def pushes(chance: random.Random) -> Rows:
    """Of instances that change all that can change, in two clusters, of which some have equal ids; no two at a time."""
    rows: Rows = []
    for place, second in enumerate(chance.sample(range(-600, 4200), 200)):
        number = chance.randrange(40)
        rows.append(
            {
                "cluster_id": ("east", "west", None)[number % 3], "client_instance_id": f"i{number // 2}",
                "client_id": chance.choice(["orders", "o'rders", None, "bills"]),
                "client_software_name": chance.choice(["java", None]), "client_software_version": str(number % 4),
                "principal": chance.choice(["User:a", "User:b", None]), "terminating": chance.random() < 0.2,
                "push_interval_ms": (1000, 60_000, 600_000, 0, None)[number % 5],
                "landed_at": NOON + timedelta(seconds=second), "landed_date": NOON.date(), "offset": place,
                "labels": [("group_id", f"g{number % 3}")] if chance.random() < 0.5 else None,
            }
        )  # fmt: skip
    return rows


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> LakeReader:
    folder = str(tmp_path_factory.mktemp("instances"))
    rows = pushes(random.Random(5))
    for table in TABLES:
        table.create(folder)
    for table in (PUSHES, PUSH_OUTCOMES):
        put(Path(folder), table, rows)
    reader = LakeReader(folder)
    reader.versions()
    return reader


@pytest.fixture(scope="module")
def listed(lake: LakeReader) -> pa.Table:
    return lake.ask("instances", ASKED)


def answer(lake: LakeReader, name: str, **more: Any) -> Rows:
    rows: Rows = lake.ask(name, ASKED | more, everybody=True).to_pylist()
    return rows


@pytest.mark.parametrize("name", ["software", "newest_instances", "instances_by_id", "siblings", "busiest_instance",
                                  "silence", "longest_silent", "client_ids", "groups"])  # fmt: skip
def test_the_answer_is_that_of_the_list(lake: LakeReader, listed: pa.Table, name: str) -> None:
    for client in ("orders", "o'rders", "", "nobody"):
        asked = ASKED | {"top": 7, "ids": ["i3", "i11", "nobody"], "client": client}
        of_list = lake.ask(name, asked, listed)
        assert lake.ask(name, asked, everybody=True).to_pylist() == of_list.to_pylist()
        assert of_list.num_rows or (name, client) == ("siblings", "nobody")


@pytest.mark.parametrize("name", names())
def test_no_question_needs_a_list_of_all_instances(name: str) -> None:
    """Of a million it takes longer than all else of a page."""
    assert not question(name, everybody=True).is_about_chosen


@pytest.mark.parametrize("name", names())
def test_only_questions_that_show_groups_read_the_pushes_that_name_them(name: str) -> None:
    """A count of all rows is none of these: the push outcomes of a million instances take longer than the count."""
    of_chosen, of_everybody = question(name), question(name, everybody=True)
    if of_chosen.is_about_chosen and "push_outcomes" not in of_chosen.reads:
        shows_groups = name in ("client_ids", "groups", "instances_by_id", "instances_by_client_id")
        assert ("push_outcomes" in of_everybody.reads) == shows_groups


def test_software_and_principals_are_those_of_the_latest_push(lake: LakeReader, listed: pa.Table) -> None:
    rows = answer(lake, "software")
    counted = Counter(listed["software"].to_pylist())
    assert {row["software"]: row["instances"] for row in rows} == counted
    assert [row["instances"] for row in rows] == sorted(counted.values(), reverse=True)
    principals = {*listed["principal"].to_pylist()} - {None}
    assert {(row["versions"], row["principals"]) for row in rows} == {(len(counted), len(principals))}


def is_silent(row: dict[str, Any]) -> bool:
    patience = max(timedelta(minutes=1), 3 * timedelta(milliseconds=row["push_interval_ms"] or 0))
    return not row["terminated"] and STOP - row["last_push"] > patience


def opened(lake: LakeReader) -> Scene:
    scene = open_scene(lake.uri, Selection(start=NOON, stop=STOP))
    assert scene is not None
    return scene


def test_silent_is_who_pushed_nothing_for_three_intervals_and_a_minute(lake: LakeReader, listed: pa.Table) -> None:
    rows = listed.to_pylist()
    silent = sorted(filter(is_silent, rows), key=lambda row: row["last_push"])
    assert 5 < len(silent) < len(rows)
    terminated = sum(row["terminated"] for row in rows)
    assert answer(lake, "silence") == [{"instances": len(rows), "terminated": terminated, "silent": len(silent)}]
    longest = answer(lake, "longest_silent", top=5)
    assert [row["client_instance_id"] for row in longest] == [row["client_instance_id"] for row in silent[:5]]


def test_who_pushes_in_one_cluster_is_not_silent_for_an_equal_id_in_another(
    lake: LakeReader, listed: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = dict[str, pd.DataFrame]()
    monkeypatch.setattr(lifecycle, "table", lambda rows, _, title, **__: tables.update({title: rows}))
    lifecycle.page(opened(lake))

    def keys(rows: Iterable[Mapping[Any, Any]]) -> list[tuple[str | None, str]]:
        return [(row["cluster_id"], row["client_instance_id"]) for row in rows]

    rows = listed.to_pylist()
    silent = sorted(filter(is_silent, rows), key=lambda row: row["last_push"])
    ids = {row["client_instance_id"] for row in silent}
    assert any(row["client_instance_id"] in ids and not is_silent(row) for row in rows)
    assert {None, "east", "west"} == {row["cluster_id"] for row in silent}
    assert keys(tables["Silent clients"].to_dict("records")) == keys(silent)
    assert list(tables["Silent clients"]["silent_s"]) == [(STOP - row["last_push"]).total_seconds() for row in silent]
    assert lifecycle.silent_for_longest(opened(lake), 0).empty


def test_the_page_of_an_instance_has_the_pushes_of_its_id_in_all_clusters(
    lake: LakeReader, listed: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = listed.to_pylist()
    of_id = defaultdict[str, Rows](list)
    for row in rows:
        of_id[row["client_instance_id"]].append(row)
    # The latest of the instances with this id, which the page describes, began after the other did.
    wanted = next(
        key
        for key, (latest, *others) in of_id.items()
        if any(row["first_push"] < latest["first_push"] for row in others)
    )
    pushes: list[pd.DataFrame] = []
    monkeypatch.setattr(client_page, "page_value", {"instance": wanted}.get)
    monkeypatch.setattr(client_page, "_pushes", pushes.append)
    client_page.page(opened(lake))
    assert len(pushes[0]) == sum(row["pushes"] for row in of_id[wanted])


def test_a_client_id_has_what_its_latest_instance_has(lake: LakeReader, listed: pa.Table) -> None:
    by_id = defaultdict[str, Rows](list)
    for row in listed.to_pylist():  # those with the latest pushes first
        by_id[row["client_id"]].append(row)

    def first(rows: Rows, name: str) -> Any:
        return next((row[name] for row in rows if row[name] is not None), None)

    assert answer(lake, "client_ids") == [
        {
            "client_id": client, **{name: first(rows, name) for name in ("principal", "group_id", "software")},
            "instances": len(rows), "versions": len({row["software"] for row in rows}),
            "pushes": sum(row["pushes"] for row in rows), "last_push": rows[0]["last_push"],
        }
        for client, rows in sorted(by_id.items())
    ]  # fmt: skip


def test_of_no_instances_there_is_nothing(lake: LakeReader) -> None:
    never = {"start": NOON - timedelta(days=2), "stop": NOON - timedelta(days=1)}
    assert answer(lake, "silence", **never) == [{"instances": 0, "terminated": 0, "silent": 0}]
    for name in ("software", "newest_instances", "busiest_instance", "client_ids"):
        assert answer(lake, name, top=5, **never) == []
    assert answer(lake, "instances_by_id", ids=[]) == []


@pytest.mark.parametrize("page", [page for page in PAGES if page.path != "search"], ids=lambda page: page.screen)
def test_no_page_lists_all_instances_of_more_pushes_than_are_kept(
    lake: LakeReader, monkeypatch: pytest.MonkeyPatch, page: Page
) -> None:
    asked = note_questions(monkeypatch)
    keep_no_pushes(monkeypatch)
    monkeypatch.setattr("kafka_telemetry_lake.dashboards.answers.ANSWERS", Answers())
    page.show(opened(lake))
    assert "totals" in asked
    assert "instances" not in asked


@pytest.mark.parametrize(("top", "questions"), [(1, 2), (20, 3), (100, 1)])
def test_the_newest_are_the_same_whether_or_not_the_latest_pushes_tell_them(
    lake: LakeReader, listed: pa.Table, monkeypatch: pytest.MonkeyPatch, top: int, questions: int
) -> None:
    """The latest twenty pushes are of fewer instances: then all are read. Of less than a hundred they are anyway."""
    monkeypatch.setattr("kafka_telemetry_lake.dashboards.scene.MOST_PUSHES_EACH", 1)
    keep_no_pushes(monkeypatch)
    scene = opened(lake)
    asked = list[str]()
    ask = Scene.ask

    def noted(own: Scene, name: str, **more: Any) -> pd.DataFrame:
        asked.append(name)
        return ask(own, name, **more)

    monkeypatch.setattr(Scene, "ask", noted)
    assert list(scene.newest(top)["client_instance_id"]) == listed["client_instance_id"].to_pylist()[:top]
    assert len(asked) == questions
