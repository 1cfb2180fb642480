"""The pages in a real browser: captured pushes are shown, filters filter, links reproduce, no text is run."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from playwright.sync_api import Page, expect

from kafka_telemetry_lake.dashboards.pages import BY_PATH
from kafka_telemetry_lake.pipelines.lifecycle.follower import Lifecycle
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES
from tests.dashboard.conftest import PATIENCE_MS, Open, Serve, number, settled
from tests.support.captured_lake import HOSTILE, captured_lake, push_row, write_lake
from tests.support.landing_records import captured
from tests.support.patience import wait_until
from tests.support.quota_samples import sample

PLOTS = {
    "": 2,
    "fleet": 4,
    "producers": 8,
    "consumers": 7,
    "connections": 4,
    "quotas": 1,
    "lifecycle": 3,  # a calendar of lost telemetry too; nothing else happened to these clients
    "pipeline": 1,
    "client": 9,  # that of what its finding measures too
}
SCREENSHOTS = Path(__file__).parent / "screenshots"
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def keep(page: Page, name: str) -> None:
    """A screenshot of the whole page for people who ask for it: it costs as much as to open the page."""
    if not os.environ.get("SCREENSHOTS"):
        return
    SCREENSHOTS.mkdir(exist_ok=True)
    height = page.evaluate("document.querySelector('[data-testid=stMain]').scrollHeight")
    page.set_viewport_size({"width": 1400, "height": min(int(height) + 20, 4000)})
    page.wait_for_timeout(500)  # plots are drawn anew at the new size
    page.screenshot(path=SCREENSHOTS / f"{name}.png")
    page.set_viewport_size({"width": 1400, "height": 1000})


@pytest.mark.parametrize("path", BY_PATH)
def test_every_page_shows_the_captured_lake(visit: Callable[[str], Page], path: str) -> None:
    page = visit(BY_PATH[path].title)
    expect(page.get_by_test_id("stMain")).to_contain_text("139 client instances")
    expect(page.get_by_test_id("stAlertContentError")).to_have_count(0)
    expect(page.locator("[data-testid=stVegaLiteChart] canvas, [data-testid=stVegaLiteChart] svg")).to_have_count(
        PLOTS.get(path, 0), timeout=PATIENCE_MS
    )
    keep(page, path or "problems")


def test_numbers_are_those_of_the_lake(visit: Callable[[str], Page]) -> None:
    page = visit("Fleet")
    assert (number(page, "Instances"), number(page, "Client ids"), number(page, "Pushes")) == ("139", "129", "1,415")
    page = visit("Pipeline health")
    assert (number(page, "Heartbeats"), number(page, "Lost intervals")) == ("91", "2")


# Whether an element is in view, and has been at one place for half a second.
AT_REST = """(element) => {
  element.scrollIntoView({ block: "center" });
  const top = element.getBoundingClientRect().top;
  if (window.restsAt !== top) [window.restsAt, window.restsSince] = [top, performance.now()];
  return performance.now() - window.restsSince > 500;
}"""


def test_a_filter_changes_what_it_should_and_stands_in_the_link(open_page: Open) -> None:
    page = open_page("fleet")
    expect(page.get_by_test_id("stMain")).to_contain_text("139 client instances")
    settled(page)
    page.get_by_test_id("stExpander").filter(has_text="Filters").locator("summary").click()
    box = page.get_by_test_id("stMultiSelect").filter(has_text="Software version").locator("input")
    page.wait_for_function(AT_REST, arg=box.element_handle())  # a list closes when the page scrolls
    box.fill("kgo")
    page.get_by_role("option", name="kgo v1.22.2", exact=True).click()
    expect(page.get_by_test_id("stMain")).to_contain_text("20 of 139 client instances")
    settled(page)
    assert number(page, "Versions") == "1"
    assert "version=kgo+v1.22.2" in page.url or "version=kgo%20v1.22.2" in page.url
    link = page.url
    page.goto(link)
    settled(page)
    expect(page.get_by_test_id("stMain")).to_contain_text("20 of 139 client instances")
    page.get_by_role("link", name="Pipeline health").click()
    expect(page.locator("[data-testid=stMain] h1")).to_have_text("Pipeline health")
    settled(page)
    expect(page.get_by_test_id("stMain")).to_contain_text("20 of 139 client instances")
    assert "version=" in page.url


def test_a_link_reproduces_a_view(open_page: Open) -> None:
    query = {"from": "2026-11-21T12:06:00Z", "to": "2026-11-21T12:07:00", "principal": "User:ANONYMOUS"}
    page = open_page("", **query, group=["java-consumer-g-none-delta", "java-consumer-g-gzip-delta"])
    expect(page.get_by_test_id("stMain")).to_contain_text(
        "2 of 43 client instances, 2026-11-21 12:06:00 to 2026-11-21 12:07:00"
    )
    expect(page.get_by_test_id("stMain").get_by_test_id("stAlert")).to_have_count(0)


def test_invalid_parts_of_a_link_are_reported_and_the_rest_is_applied(open_page: Open) -> None:
    page = open_page("fleet", range="2w", clint="orders", refresh="1", version="kgo v1.22.2", **{"from": HOSTILE})
    for said in (
        "range=2w is unknown",
        "clint=... is unknown",
        "refresh=1 is not one of",
        f"from={HOSTILE} is not a time",
    ):
        expect(page.get_by_test_id("stAlert").filter(has_text=said)).to_have_count(1)
    assert number(page, "Instances") == "20"


def test_filters_without_a_match_are_reported(open_page: Open) -> None:
    page = open_page("fleet", client="nobody")
    expect(page.get_by_test_id("stAlert")).to_contain_text("No client that matches the filters pushed")
    assert number(page, "Instances") == "0"


def test_hostile_text_is_shown_and_not_run(open_page: Open) -> None:
    page = open_page("", client=HOSTILE)
    expect(page.get_by_test_id("stMain")).to_contain_text("1 of 139 client instances")
    expect(page.get_by_test_id("stMultiSelect").filter(has_text=HOSTILE)).to_have_count(1)
    page = open_page("client", client=HOSTILE)
    chosen = page.get_by_test_id("stSelectbox").filter(has_text="Client instance").locator("input")
    expect(chosen).to_have_value(re.compile(re.escape(HOSTILE)))
    assert page.title().startswith("One client · lake")  # not what the text would have made it
    assert page.locator("img[src=x], [data-testid=stMain] script").count() == 0


@pytest.mark.slow
def test_pages_are_readable_in_the_dark(open_page: Open) -> None:
    page = open_page("producers", scheme="dark")
    background = page.evaluate("getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor")
    assert sum(map(int, re.findall(r"\d+", background)[:3])) < 150
    keep(page, "producers-dark")


def test_an_empty_lake_says_what_is_missing_and_is_followed(open_page: Open, serve: Serve, tmp_path: Path) -> None:
    lake = write_lake(tmp_path / "lake", pa.Table.from_pylist([], PUSHES.schema))
    page = open_page("fleet", at=serve(lake), refresh=10)
    expect(page.get_by_test_id("stAlert")).to_contain_text("This lake has no pushes yet")
    push = {"client_instance_id": "i", "client_id": "first", "landed_at": NOON, "landed_date": NOON.date()}
    write_deltalake(PUSHES.uri(str(lake)), pa.Table.from_pylist([push], PUSHES.stored), mode="append")
    expect(page.get_by_test_id("stMain")).to_contain_text("1 client instance,")
    assert number(page, "Pushes") == "0"  # landed, but not read yet


@pytest.mark.slow
@pytest.mark.parametrize("path", ["", "fleet", "producers", "lifecycle"])
def test_a_page_fits_on_a_phone(open_page: Open, path: str) -> None:
    """It doesn't scroll sideways, the legends of plots are whole, and in cards all headings begin at the left."""
    page = open_page(path)
    page.set_viewport_size({"width": 390, "height": 844})
    main = page.get_by_test_id("stMain")
    expect(main.locator("svg.marks").first).to_be_visible()
    page.wait_for_timeout(1000)  # plots are drawn anew at the new size
    beyond = """(texts) => texts.filter((text) => {
        const [own, frame] = [text, text.closest("svg")].map((each) => each.getBoundingClientRect());
        return own.left < frame.left || own.right > frame.right + 1;
    }).map((text) => text.textContent)"""

    def sideways() -> object:
        return main.evaluate("main => main.scrollWidth - main.clientWidth")

    legends = main.locator("svg.marks .role-legend text")
    wait_until(
        lambda: sideways() == 0 and legends.count() > 0 and legends.evaluate_all(beyond) == [],
        said=lambda: (sideways(), legends.count(), legends.evaluate_all(beyond)), every_s=0.5,
    )  # fmt: skip
    numbers = main.locator("tbody td.number")
    assert set(numbers.evaluate_all("cells => cells.map(cell => getComputedStyle(cell).textAlign)")) == {"left"}


@pytest.mark.slow
def test_the_page_about_kip_714_fits_on_a_phone(open_page: Open, serve: Serve, tmp_path: Path) -> None:
    """A version is a card with its rules, and the instance that broke one most often is a link."""
    lake = captured_lake(tmp_path / "lake")
    Lifecycle(str(lake)).catch_up()
    page = open_page("conformance", at=serve(lake))
    page.set_viewport_size({"width": 390, "height": 844})
    main = page.get_by_test_id("stMain")
    expect(page.get_by_role("region", name="Libraries and rules").get_by_text("kgo v1.22.2")).to_be_visible()
    wait_until(lambda: main.evaluate("main => main.scrollWidth - main.clientWidth") == 0, every_s=0.5)
    links = page.get_by_role("region", name="Rules that are broken").get_by_role("link")
    assert "client?instance=" in str(links.nth(1).get_attribute("href"))


@pytest.mark.slow
def test_a_table_in_half_of_the_width_breaks_lines_rather_than_scrolls(open_page: Open) -> None:
    page = open_page("topic", topic="cap-zstd-delta")
    table = page.get_by_role("region", name="Who writes it")
    expect(table).to_be_visible()
    assert table.evaluate("box => box.scrollWidth - box.clientWidth") <= 0


@pytest.mark.slow
def test_dashboard_what_if_quota_says_whom_a_limit_throttles(serve: Serve, open_page: Open, tmp_path: Path) -> None:
    push = pa.Table.from_pylist([push_row(captured().slice(0, 1).to_pylist()[0]) | {"landed_at": NOON}], PUSHES.schema)
    lake = write_lake(tmp_path / "lake", push)
    sample(lake, "busy", 150.0, begin=-600, end=0)
    sample(lake, "calm", 40.0, begin=-600, end=0)
    between = {"from": "2026-11-21T11:50:00Z", "to": "2026-11-21T12:00:00Z"}
    page = open_page("what-if-quota", at=serve(lake), limit="100", **between)
    assert number(page, "Would be throttled") == "1"
    main = page.get_by_test_id("stMain")
    expect(main).to_contain_text("the proposed quota")
    expect(main).to_contain_text("busy on broker 1")
    page.set_viewport_size({"width": 390, "height": 844})
    page.get_by_role("spinbutton").fill("30")
    page.get_by_role("spinbutton").press("Enter")
    page.wait_for_url("**limit=30**")
    settled(page)
    assert number(page, "Would be throttled") == "2"
    assert page.evaluate("document.scrollingElement.scrollWidth") <= 390
