"""Where names lead, what a table gives to the browser, and what a finding says to set."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pandas as pd
import pytest

from kafka_telemetry_lake.dashboards.address import Selection, address, of_value, with_query
from kafka_telemetry_lake.dashboards.clients import NONE
from kafka_telemetry_lake.dashboards.frame import age_text, header
from kafka_telemetry_lake.dashboards.pages import BY_PATH, OF_COLUMN, subject
from kafka_telemetry_lake.dashboards.plot_style import axis_labels, styles
from kafka_telemetry_lake.dashboards.plots import _few, in_words
from kafka_telemetry_lake.dashboards.problems import linked, setting, subject_address
from kafka_telemetry_lake.dashboards.show import readable, table_data
from kafka_telemetry_lake.pipelines.findings.rules import rules

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR = Selection("1h", filters=(("group", ("g",)),), compare="week")


def test_a_name_leads_to_its_page_in_the_same_time_and_without_other_filters() -> None:
    assert of_value("client_id", "a&b=ü", HOUR) == "client-id?range=1h&compare=week&client=a%26b%3D%C3%BC"
    assert of_value("worst_instance", "i", Selection()) == "client?instance=i"
    assert of_value("broker_id", 3, Selection()) == "broker?broker=3"
    assert of_value("owner", "team-a", Selection()) == "application?owner=team-a"
    assert address("", Selection()) == "."
    assert with_query("fleet", {"group": ["a", "b"]}) == "fleet?group=a&group=b"


def test_what_has_no_page_has_no_link() -> None:
    named = [("client_id", ""), ("client_id", "<default>"), ("client_id", None), ("owner", "a, b"), ("pushes", 7)]
    assert [each for each in named if of_value(*each, Selection()) is not None] == []


def test_a_page_is_about_one_thing_only() -> None:
    assert subject(BY_PATH["client-id"], {"client": ["orders"]}) == "orders"
    assert subject(BY_PATH["client-id"], {"client": ["orders", "bills"]}) is None
    assert subject(BY_PATH["fleet"], {"client": ["orders"]}) is None


def test_a_finding_leads_to_what_has_it() -> None:
    finding = {"finding": "time_lag", "scope": "group", "subject": "g", "instances": 5, "instances_affected": 2}
    assert subject_address(finding, Selection()) == "group?group=g&finding=time_lag"
    assert subject_address(finding | {"scope": "quota"}, Selection()) == "quotas?finding=time_lag"
    rows = linked(pd.DataFrame([finding | {"client_id": "group g"}]), Selection())
    assert rows["affected"].tolist() == ["2 of 5"]
    assert rows["client_id link"].tolist() == rows["finding link"].tolist() == ["group?group=g&finding=time_lag"]


def test_a_setting_is_that_of_the_advice_before_that_of_the_rule() -> None:
    rule = rules()["one_record_per_request"]
    assert setting("try linger.ms=100 and batch.size=16384, about 1", rule) == {
        "of": "Setting of the client:", "text": "linger.ms=100\nbatch.size=16384",
    }  # fmt: skip
    assert setting("no value", rule) == {"of": "Setting of the client:", "text": rule.config}
    assert (setting("", rules()["about_to_lose_data"]) or {})["of"] == "Setting of the topic:"
    assert setting("look at the disk", rules()["near_request_timeout"]) is None


def test_a_table_is_json_with_units_and_links() -> None:
    rows = pd.DataFrame(
        {
            "client_id": ["a", None],
            "lag_s": [1.5, float("nan")],
            "landed_at": pd.Series([NOON, pd.NaT], dtype="datetime64[us, UTC]"),
            "labels": [{"k": "v"}, None],
            "ok": [True, False],
            "severity": ["error", "info"],
            "rate": [float("inf"), 2.0],
        }
    )
    rows.attrs["sql"] = "SELECT 1"
    headings = {"client_id": "client id", "lag_s": "lag (s)", "landed_at": "landed (UTC)", "labels": "labels",
                "ok": "ok", "severity": "severity", "rate": "rate", "missing": "missing"}  # fmt: skip
    data = table_data(rows, headings, "A `title`", "see `x`")
    columns: dict[str, dict[str, Any]] = {column["name"]: column for column in data["columns"]}
    assert (data["sql"], data["note"], data["file"]) == ("SELECT 1", "see x", "a-title")
    assert columns["client_id"]["links"] == ["client-id?client=a", None]
    assert columns["lag_s"] == columns["lag_s"] | {"label": "lag", "kind": "ms", "values": [1500, None]}
    assert columns["landed_at"]["values"] == [int(NOON.timestamp() * 1000), None]
    assert columns["labels"]["values"] == ["k=v", None]
    assert (columns["ok"]["kind"], columns["severity"]["kind"]) == ("yes", "severity")
    assert columns["rate"]["values"] == [None, 2.0]
    assert "missing" not in columns
    assert table_data(None, headings, "none")["columns"] == []


def test_a_broker_or_an_address_that_is_not_told_is_unknown_beside_those_that_are() -> None:
    rows = pd.DataFrame({"broker_id": [1, None], "client_address": [None, "10.0.0.1"], "client_id": ["a", None]})
    headings = {"broker_id": "broker", "client_address": "address", "client_id": "client id"}
    columns = {column["name"]: column for column in table_data(rows, headings, "t")["columns"]}
    assert columns["broker_id"]["values"] == ["1", "unknown"]
    assert columns["broker_id"]["links"] == ["broker?broker=1", None]
    assert columns["client_address"]["values"] == ["unknown", "10.0.0.1"]
    assert columns["client_id"]["values"] == ["a", None]
    nobody = table_data(pd.DataFrame({"broker_id": [None, None]}), {"broker_id": "broker"}, "t")["columns"][0]
    assert (nobody["values"], nobody["links"]) == (["unknown", "unknown"], [None, None])


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (3200, "ms", "3.2 s"),
        (90, "s", "1.5 min"),
        (7_200, "s", "2 h"),
        (0, "ms", "0 ms"),
        (1_500_000, "bytes", "1.5 MB"),
        (2000, "bytes per second", "2 kB/s"),
        (0.25, "ratio", "25 %"),
        (56_789, "records", "56,789 records"),
        (None, "ms", "–"),
    ],
)
def test_numbers_have_the_units_that_people_use(value: float | None, unit: str, text: str) -> None:
    assert readable(value, unit) == text


def test_axes_are_in_those_units_too() -> None:
    labels, title = axis_labels("ms")
    assert title == "time"
    assert "' min'" in labels["labelExpr"]
    assert "+ 'B/s'" in axis_labels("bytes per second")[0]["labelExpr"]
    assert "' $1'" in axis_labels("bytes per second")[0]["labelExpr"]  # 300 kB/s, with a space
    assert axis_labels("records per second")[1] == "records per second"


def test_no_two_of_36_lines_look_alike_and_an_earlier_one_is_grey() -> None:
    colours, dashes = styles([str(number) for number in range(36)], " (before)")
    assert len({(colour, tuple(dash)) for colour, dash in zip(colours, dashes, strict=True)}) == 36
    colours, dashes = styles(["sent", "sent (before)"], " (before)")
    assert colours[1] not in (colours[0], "")
    assert dashes[0] == dashes[1]


def test_many_lines_become_the_largest_and_the_others() -> None:
    rows = pd.DataFrame({"at_ms": 0, "n": range(20), "by": [f"s{number}" for number in range(20)]})
    few = _few(rows, "n", "by")
    assert few["by"].nunique() == 11
    assert few.set_index("by")["n"]["all others"] == sum(range(10))
    assert few["n"].sum() == rows["n"].sum()


def test_a_plot_in_words() -> None:
    at = int(NOON.timestamp() * 1000)
    rows = pd.DataFrame({"at_ms": [at, at + 60_000], "ms": [4000.0, 20.0], "by": "latency"})
    assert in_words(rows, "ms", "by", "ms") == "latency: last 20 ms, least 20 ms, most 4 s at 2026-11-21 12:00 UTC."


@pytest.mark.parametrize(
    ("seconds", "text"), [(-3, "0 s"), (59, "59 s"), (60, "1 minute"), (7300, "2 hours"), (90_000, "1 day")]
)
def test_ages(seconds: float, text: str) -> None:
    assert age_text(seconds) == text


@pytest.mark.parametrize("column", OF_COLUMN)
def test_a_name_leads_to_the_page_about_it(column: str) -> None:
    where = urlsplit(of_value(column, "x", Selection()) or "")
    query = parse_qs(where.query)
    if BY_PATH[where.path].about and column != "owner":  # owners share the page of applications
        assert subject(BY_PATH[where.path], query) == "x"
    else:
        assert query in ({"owner": ["x"]}, {"finding": ["x"]})


@pytest.mark.parametrize(("pushes_ago", "old"), [(5, False), (7, True)])
def test_a_banner_says_that_the_data_is_old(monkeypatch: pytest.MonkeyPatch, pushes_ago: int, old: bool) -> None:
    shown: dict[str, Any] = {}
    monkeypatch.setattr("kafka_telemetry_lake.dashboards.frame.element", lambda _, data: shown.update(data))
    last = datetime.now(UTC) - pushes_ago * timedelta(minutes=5)
    totals = NONE._replace(instances=1, push_interval_ms=300_000, clusters=("c",))
    scene: Any = SimpleNamespace(
        last=last, clients=SimpleNamespace(known=totals), totals=totals, selection=Selection(),
        start=NOON, stop=NOON, step_s=60, lake=SimpleNamespace(uri="lake"),
    )  # fmt: skip
    header(scene, "fleet", {})
    assert (shown["old"] != "") == old
    assert shown["level"] == ("bad" if old else "fair")
