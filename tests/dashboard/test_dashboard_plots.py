"""Plots: dragging zooms, what is compared is grey and named, changes are marked, a heat map and a table lead on."""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from playwright.sync_api import Browser, Locator, Page, expect

from kafka_telemetry_lake.dashboards.panels import SPREAD
from kafka_telemetry_lake.dashboards.plot_style import GREY
from kafka_telemetry_lake.dashboards.questions import PREFIX
from kafka_telemetry_lake.dashboards.screens.fleet import CLIENT_COLUMNS
from kafka_telemetry_lake.pipelines.tables.operator import CLIENT_EVENTS, METRIC_POINTS, PUSHES
from tests.dashboard.conftest import PATIENCE_MS, Open, Serve, settled
from tests.support.captured_lake import push_row, write_lake
from tests.support.lake_tables import table
from tests.support.landing_records import captured

RANGE = {"from": "2026-11-21T12:00:00Z", "to": "2026-11-21T12:30:00Z"}
AT = datetime(2026, 11, 21, 12, 7, tzinfo=UTC)
MINUTE, WEEK = timedelta(minutes=1), timedelta(days=7)
LATENCY = f"{PREFIX}producer.request.latency.avg"
# Client ids that many instances share here, and the counter by which a heat map tells these apart.
HEATED = {"java-producer_": "producer.record.send.total", "librdkafka-producer_": "producer.connection.creation.total"}
MARKS = "[stroke='#CC79A7']"
DRAWN = "[data-testid=stVegaLiteChart] svg.marks"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The captured lake, in which some clients share a client id, one changed its version, and all were twice as slow
    a week before."""
    rows = [push_row(record) for record in captured().to_pylist()]
    for row in rows:
        row["client_id"] = next((name for name in HEATED if row["client_id"].startswith(name)), row["client_id"])
    lake = write_lake(tmp_path_factory.mktemp("plots") / "lake", pa.Table.from_pylist(rows, PUSHES.schema))
    push = changed(lake)
    event = {name: push[name] for name in ("client_instance_id", "client_id", "landed_at")} | {
        "at": push["landed_at"], "event": "software_changed", "landed_date": push["landed_at"].date(),
    }  # fmt: skip
    write_deltalake(CLIENT_EVENTS.uri(str(lake)), pa.Table.from_pylist([event], CLIENT_EVENTS.stored), mode="append")
    names = ("metric", "kind", "client_id", "client_instance_id", "cluster_id")
    slow = [
        {name: point[name] for name in names} | {
            "value": 2 * point["value"], "time": point["time"] - WEEK, "landed_at": point["landed_at"] - WEEK,
            "landed_date": point["landed_date"] - WEEK,
        }
        for point in table(lake, "metric_points").to_pylist() if point["metric"] == LATENCY and point["value"]
    ]  # fmt: skip
    write_deltalake(METRIC_POINTS.uri(str(lake)), pa.Table.from_pylist(slow, METRIC_POINTS.stored), mode="append")
    return lake


def changed(lake: Path) -> dict[str, Any]:
    """The push in the middle, whose client has changed its version."""
    pushes = sorted(table(lake, "pushes").to_pylist(), key=lambda row: row["landed_at"])
    push: dict[str, Any] = pushes[len(pushes) // 2]
    return push


@pytest.fixture(scope="module")
def address(serve: Serve, lake: Path, browser: Browser) -> str:
    return serve(lake)


def panel(page: Page, title: str) -> Locator:
    """The frame of a plot."""
    own = page.locator("[data-testid=stVerticalBlock]").filter(has=page.get_by_role("heading", name=title))
    return own.filter(has=page.get_by_test_id("stVegaLiteChart")).last


def saved(frame: Locator) -> list[dict[str, str]]:
    """The CSV of what this frame shows, as rows by column."""
    with frame.page.expect_download() as download:
        frame.get_by_role("button", name="CSV", exact=True).click()
    with download.value.path().open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_dragging_over_a_plot_zooms_the_page_and_back_undoes_it(open_page: Open) -> None:
    page = open_page("fleet", **RANGE)
    plot = panel(page, "Data points").locator(DRAWN)
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    assert box is not None
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 0.4 * box["width"], y)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.6 * box["width"], y, steps=5)
    page.mouse.up()
    page.wait_for_url(lambda url: parse_qs(urlsplit(url).query).get("from") != [RANGE["from"]], timeout=PATIENCE_MS)
    settled(page)
    query = parse_qs(urlsplit(page.url).query)
    ends = (RANGE["from"], *query["from"], *query["to"], RANGE["to"])
    first, start, stop, last = map(datetime.fromisoformat, ends)
    assert first < start < stop < last
    expect(page.get_by_test_id("stMain")).to_contain_text(f"{start:%Y-%m-%d %H:%M:%S} to {stop:%Y-%m-%d %H:%M:%S}")
    page.go_back()
    page.wait_for_url(lambda url: parse_qs(urlsplit(url).query).get("from") == [RANGE["from"]], timeout=PATIENCE_MS)


def latencies(open_page: Open, start: datetime, client: str, **compare: str) -> dict[str, dict[datetime, float]]:
    """The plot of request latency of a client id in the minute from here: values by the name of their line and time."""
    ends = {"from": start.isoformat(), "to": (start + MINUTE).isoformat()}
    own = panel(open_page("producers", **ends, client=client, **compare), "Request latency, mean of each client")
    expect(own.locator(DRAWN)).to_have_count(1)
    grey = own.locator(DRAWN).locator(f".mark-line path[stroke='{GREY}']")
    expect(grey).to_have_count(len(SPREAD) if compare else 0)
    own.get_by_text("Table, CSV, SQL").click()
    lines: dict[str, dict[datetime, float]] = defaultdict(dict)
    for row in saved(own):
        lines[row["name"]][datetime.fromisoformat(row["at"])] = float(row["value"])
    return lines


@pytest.mark.slow
def test_the_week_before_is_that_of_the_same_clients(open_page: Open) -> None:
    """A week before, each value was twice as large."""
    lines = latencies(open_page, AT, "java-producer_", compare="week")
    assert set(lines) == {f"{name}{when}" for name in SPREAD.values() for when in ("", " (before)")}
    for name in SPREAD.values():
        assert len(lines[name]) > 5
        assert lines[f"{name} (before)"] == pytest.approx({at: 2 * value for at, value in lines[name].items()})


@pytest.mark.slow
def test_the_period_before_is_what_its_own_page_shows(open_page: Open) -> None:
    """Of a client that pushed in both minutes. Each value is drawn at the time that it is compared with."""
    client = "java-none-producer_stop"
    both = latencies(open_page, AT + MINUTE, client, compare="previous")
    before = latencies(open_page, AT, client)
    assert len(before["median"]) > 5
    assert both["median"] != before["median"]
    for name in SPREAD.values():
        assert {at - MINUTE: value for at, value in both[f"{name} (before)"].items()} == before[name]


@pytest.mark.slow
def test_a_change_is_marked_on_pages_that_show_its_client(open_page: Open, lake: Path) -> None:
    page = open_page("fleet", **RANGE)
    plot = panel(page, "Data points").locator(DRAWN)
    expect(plot).to_have_count(1)
    expect(plot.locator(MARKS)).to_have_count(1)
    plot.locator(MARKS).hover(force=True)
    expect(page.locator("#vg-tooltip-element")).to_contain_text(f"new version of {changed(lake)['client_id']}")
    other = next(client for client in HEATED if client != changed(lake)["client_id"])
    page = open_page("fleet", **RANGE, client=other)
    plot = panel(page, "Data points").locator(DRAWN)
    expect(plot).to_have_count(1)
    expect(plot.locator(MARKS)).to_have_count(0)


@pytest.mark.slow
@pytest.mark.parametrize("client", HEATED)
def test_a_heat_map_shows_what_each_instance_did_and_leads_to_it(open_page: Open, lake: Path, client: str) -> None:
    increases: dict[str, float] = defaultdict(float)
    for point in table(lake, "metric_points").to_pylist():
        if point["client_id"] == client and point["metric"] == PREFIX + HEATED[client] and point["delta"] is not None:
            increases[point["client_instance_id"]] += point["delta"]
    page = open_page("client-id", **RANGE, client=client)
    own = panel(page, f"{HEATED[client]} by instance")
    expect(own.locator(DRAWN)).to_have_count(1)
    own.get_by_text("Table, CSV, SQL").click()
    cells = saved(own)
    drawn = own.locator(DRAWN).locator(".mark-rect.role-mark path")
    expect(drawn).to_have_count(len(cells))
    box = drawn.first.bounding_box()
    assert box is not None
    assert box["height"] > 10  # as a line of text, however few rows there are
    rates: dict[str, float] = defaultdict(float)
    for cell in cells:
        rates[cell["client_instance_id"]] += float(cell["amount"])
    assert len(rates) > 5
    # Each cell has the increase per second: all of an instance, times the length of a cell, are what it did.
    (step_s,) = {round(increases[instance] / rate, 6) for instance, rate in rates.items() if rate}
    assert step_s in (1, 2, 5, 10, 15)
    assert {instance: rate * step_s for instance, rate in rates.items()} == pytest.approx(increases)
    link = own.get_by_role("row").get_by_role("link").first
    instance = link.inner_text()
    assert instance in increases
    link.click()
    expect(page.locator("[data-testid=stMain] h1")).to_have_text(f"Client instance {instance}")


@pytest.mark.slow
def test_a_csv_has_the_rows_of_its_table(open_page: Open) -> None:
    page = open_page("fleet", **RANGE)
    region = page.get_by_role("region", name=re.compile("^Clients: the"))
    shown = page.locator("[data-testid=stVerticalBlock]").filter(has=region).last
    expect(shown.locator("tbody tr").first).to_be_visible()
    while (more := shown.get_by_role("button", name=re.compile("more", re.IGNORECASE))).count():
        more.first.click()
    expect(shown.locator("tbody tr")).to_have_count(139)
    # Numbers are rounded where they are shown, and exact where one points at them.
    rows = shown.locator("tbody tr").evaluate_all(
        "rows => rows.map(row => [...row.cells].map(cell => cell.title || cell.innerText.trim()))"
    )
    said = {"": "–", "true": "yes", "false": "no"}

    def as_shown(column: str, text: str) -> str:
        return text.replace("T", " ")[:19] if column.endswith("_push") else said.get(text, text)

    file = saved(shown)
    assert list(file[0]) == list(CLIENT_COLUMNS)
    assert len(rows) == 139
    assert [[as_shown(column, text) for column, text in row.items()] for row in file] == rows


@pytest.mark.slow
def test_what_is_printed_is_the_page_without_its_controls(open_page: Open) -> None:
    page = open_page("fleet", **RANGE)
    page.emulate_media(media="print")
    expect(page.get_by_test_id("stSidebar")).to_be_hidden()
    expect(page.get_by_test_id("stHeader")).to_be_hidden()
    expect(page.locator("[data-testid=stMain] h1")).to_be_visible()
    assert page.evaluate("getComputedStyle(document.querySelector('[data-testid=stMain]')).overflow") == "visible"
