"""The topic map in a browser: each box leads to its page, a phone has a list, and axe-core finds nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from playwright.sync_api import Browser, Locator, Page, expect

from kafka_telemetry_lake.dashboards.topic_use import HEADINGS
from kafka_telemetry_lake.pipelines.lifecycle.follower import Lifecycle
from kafka_telemetry_lake.pipelines.tables.lifecycle import CLIENT_ALIASES
from tests.dashboard.conftest import Open, Serve, settled
from tests.dashboard.test_dashboard_access import AXE, violations
from tests.dashboard.test_dashboard_pages import NOON
from tests.support.captured_lake import HOSTILE, captured_lake
from tests.support.patience import wait_until

WRITER, TOPIC, GROUP = "shop", "cap-gzip-delta", "java-consumer-g-gzip-delta"
PAGE = {"range": "all"}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The captured lake with its clients' groups; two producers are an application's, whose name is hostile too."""
    lake = captured_lake(tmp_path_factory.mktemp("topics") / "lake")
    Lifecycle(str(lake)).catch_up()
    aliases = [
        {"client_id": f"java-{kind}_gzip-delta", "application": name, "owner": "team", "valid_from": NOON}
        for kind, name in (("producer", WRITER), ("txn-producer", HOSTILE))
    ]
    CLIENT_ALIASES.create(str(lake))
    write_deltalake(CLIENT_ALIASES.uri(str(lake)), pa.Table.from_pylist(aliases, CLIENT_ALIASES.stored), mode="append")
    return lake


@pytest.fixture(scope="module")
def address(serve: Serve, lake: Path, browser: Browser) -> str:
    return serve(lake)


def named(place: Locator, name: str) -> Locator:
    """The link of this name, after the severity of its worst finding."""
    return place.get_by_role("link", name=re.compile(f"(^|: ){re.escape(name)}$"))


def column(page: Page, place: int) -> Locator:
    return page.get_by_role("list", name=HEADINGS[place])


@pytest.mark.slow
def test_dashboard_topic_map_leads_to_the_application_the_topic_and_the_group(open_page: Open) -> None:
    page = open_page("topic", **PAGE)
    main = page.get_by_test_id("stMain")
    for place, name, heading in (
        (0, WRITER, f"Application {WRITER}"),
        (1, TOPIC, f"Topic {TOPIC}"),
        (2, GROUP, f"Consumer group {GROUP}"),
    ):
        named(column(page, place), name).click()
        expect(main.locator("h1")).to_have_text(heading)
        settled(page)
        page.go_back()
        expect(main.locator("h1")).to_have_text("Topics")
        settled(page)
    expect(column(page, 1).get_by_role("listitem")).to_have_count(30)
    expect(column(page, 1).get_by_text("no reader known").first).to_be_visible()
    expect(main).to_contain_text("37 writers wrote 4.16 MB (compressed) to 53 topics; ")
    expect(main).to_contain_text("40 readers read 8.59 MB (decompressed) of 50 topics.")
    assert page.title().startswith("Topics · lake")
    assert page.locator("img[src=x]").count() == 0
    page = open_page("topic", **PAGE, application=HOSTILE)
    expect(column(page, 0).get_by_role("link")).to_have_count(1)
    expect(column(page, 0)).to_contain_text(HOSTILE)
    expect(column(page, 0).get_by_role("link")).to_have_attribute("href", re.compile("application=%3Cimg"))
    expect(main).to_contain_text("None of the selected clients is known to read cap-gzip-delta")


@pytest.mark.slow
def test_dashboard_topic_map_is_a_list_on_a_phone_and_whole_in_print(open_page: Open) -> None:
    page = open_page("topic", **PAGE)
    main = page.get_by_test_id("stMain")
    by_topic = page.get_by_role("list", name="Topics with their writers and readers")
    expect(by_topic).to_have_count(0)
    page.set_viewport_size({"width": 390, "height": 844})
    expect(by_topic).to_be_visible()
    expect(column(page, 0)).to_have_count(0)
    wait_until(lambda: main.evaluate("main => main.scrollWidth - main.clientWidth") == 0, every_s=0.5)
    named(by_topic, TOPIC).click()
    expect(main.locator("h1")).to_have_text(f"Topic {TOPIC}")
    page.go_back()
    expect(by_topic).to_be_visible()
    page.emulate_media(media="print")
    expect(named(column(page, 2), GROUP)).to_be_visible()
    expect(by_topic).to_have_count(0)


@pytest.mark.slow
@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed: npm install --prefix .tools axe-core@4")
@pytest.mark.parametrize("width", [1400, 390])
def test_dashboard_topic_map_axe_finds_nothing(open_page: Open, width: int) -> None:
    page = open_page("topic", **PAGE)
    page.set_viewport_size({"width": width, "height": 1000})
    expect(page.get_by_text("37 writers wrote")).to_be_visible()
    assert violations(page) == []
