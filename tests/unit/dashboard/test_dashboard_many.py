"""What a page doesn't do by itself where the lake has very many clients or points."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from kafka_telemetry_lake.dashboards.address import Selection
from kafka_telemetry_lake.dashboards.clients import NONE
from kafka_telemetry_lake.dashboards.problems import MOST_JUDGED, is_looked_for
from kafka_telemetry_lake.dashboards.screens import search
from kafka_telemetry_lake.dashboards.screens.client_id import client_ids
from kafka_telemetry_lake.dashboards.screens.topic import MOST_POINTS, has_few_points


def scene(**parts: Any) -> Any:
    return SimpleNamespace(**parts)


@pytest.mark.parametrize(("pushes", "judged"), [(MOST_JUDGED, True), (MOST_JUDGED + 1, False)])
def test_rules_are_judged_by_themselves_only_of_few_pushes_of_whichever_clients(pushes: int, judged: bool) -> None:
    """The page of a client id that pushed twice judged all rules for a million clients: they know no filters."""
    clients = scene(known=NONE._replace(pushes=pushes), shown=NONE._replace(pushes=2))
    assert is_looked_for(scene(clients=clients)) is judged


@pytest.mark.parametrize(("points", "few"), [(MOST_POINTS, True), (MOST_POINTS + 1, False)])
def test_the_search_reads_no_more_points_than_a_page_may(points: int, few: bool) -> None:
    asked = list[str]()

    def ask(name: str, **_: object) -> pd.DataFrame:
        asked.append(name)
        return pd.DataFrame({"points": [points - 1, 1], "topic": ["orders", "bills"]})

    nobody = pa.table(
        {name: pa.array([], pa.string()) for name in ("client_instance_id", "client_address", "client_id")}
    )
    lake = scene(
        ask=ask, clients=scene(instances=nobody), labels=lambda _: pa.array([], pa.string()), selection=Selection(),
        open_findings=lambda: pd.DataFrame({"subject": []}),
    )  # fmt: skip
    assert has_few_points(lake) is few
    assert ("topic_use" in asked) is False
    names = list(search.search(lake, "order")["name"])
    assert ("topic_use" in asked) is few
    assert names == (["orders"] if few else [])


def test_client_ids_with_findings_come_first_and_have_their_owners(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["client_id", "principal", "group_id", "software", "instances", "versions", "pushes", "last_push"]
    answer = pd.DataFrame(
        [("b-id", "User:y", "h", "java 4.0", 3, 2, 9, 15), ("a-id", "User:x", "g", "java 4.0", 1, 1, 1, 20)],
        columns=names,
    )
    shown = list[pd.DataFrame]()
    module = "kafka_telemetry_lake.dashboards.screens.client_id"
    monkeypatch.setattr(f"{module}.table", lambda rows, *_: shown.append(rows))
    monkeypatch.setattr(f"{module}.current", lambda _: pd.DataFrame({"severity": ["error"], "client_id": ["a-id"]}))
    owned = pd.DataFrame({"client_id": ["b-id"], "application": ["shop"], "owner": ["team"]})
    client_ids(scene(ask=lambda _: answer, totals=NONE._replace(instances=4), owned=lambda: owned))
    rows = shown[0][["client_id", "findings", "instances", "owner"]].fillna("").values.tolist()
    assert rows == [["a-id", 1, 1, ""], ["b-id", 0, 3, "team"]]
