"""From "something is wrong" to the client, the cause and the fix in three clicks; names are links, states are URLs."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.dashboard.conftest import PATIENCE_MS, Open, Serve, settled
from tests.dashboard.planted_faults import FAULTS, INSTANCES, bad_instance, client_id, planted_lake
from tests.dashboard.test_dashboard_pages import keep
from tests.dashboard.test_dashboard_plots import DRAWN, panel, saved

SHOWN = "failed_records"
SLOW, SOAK = [pytest.mark.slow], [pytest.mark.slow, pytest.mark.soak]
# A setting of two lines, a finding without one, and one of consumers. The evidence of the others is that of their rules
# (tests/unit/sql/test_findings.py).
OTHERS = ("one_record_per_request", "near_request_timeout", "slow_processing")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return planted_lake(tmp_path_factory.mktemp("faults") / "lake")


@pytest.fixture(scope="module")
def address(serve: Serve, lake: Path, browser: Browser) -> str:
    return serve(lake)


def on(page: Page, heading: str) -> None:
    """Until the page of this heading stands."""
    expect(page.locator("[data-testid=stMain] h1")).to_have_text(heading)
    settled(page)


@pytest.mark.parametrize(
    "finding",
    [SHOWN, *(pytest.param(name, marks=SLOW if name in OTHERS else SOAK) for name in FAULTS if name != SHOWN)],
)
def test_three_clicks_lead_from_a_fault_to_the_instance_the_cause_and_the_fix(open_page: Open, finding: str) -> None:
    fault, bad = FAULTS[finding], bad_instance(finding)
    page = open_page("")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    # 1: what is wrong -> the client id, with evidence and advice, and its instances by what the finding measures.
    page.get_by_role("row").filter(has_text=client_id(finding)).get_by_role("link", name=finding, exact=True).click()
    on(page, f"Client id {client_id(finding)}")
    card = page.get_by_role("article").first
    expect(card).to_contain_text(fault.evidence)
    expect(card).to_contain_text(fault.advice)
    expect(card).to_contain_text(f"1 of {INSTANCES}")
    ranked = page.get_by_role("region", name="Its instances by")
    expect(ranked.get_by_role("row")).to_have_count(1 + INSTANCES)
    expect(ranked.get_by_role("row").nth(1)).to_contain_text(bad)
    # 2: the worst instance -> the same about it alone, and all that it did.
    ranked.get_by_role("link", name=bad).click()
    on(page, f"Client instance {bad}")
    card = page.get_by_role("article").first
    expect(card).to_contain_text(fault.evidence)
    expect(card).to_contain_text(fault.advice)
    # 3: the setting, to be copied.
    if fault.setting is not None:
        card.get_by_role("button", name="Copy the setting").click()
        expect(card.get_by_role("button", name="Copied")).to_have_count(1)
        assert page.evaluate("navigator.clipboard.readText()") == fault.setting


@pytest.mark.slow
def test_the_page_of_a_finding_plots_its_measure_its_bound_and_its_healthy_peers(open_page: Open) -> None:
    """On a phone, from the table of open findings; the other client ids of its software have failed no records."""
    page = open_page("findings", finding=SHOWN)
    page.get_by_role("region", name="Open findings").get_by_role("link", name="nobody yet").click()
    on(page, "Open findings")
    page.set_viewport_size({"width": 390, "height": 844})
    frame = panel(page, "What the finding measures, by hour")
    expect(frame.locator(DRAWN)).to_have_count(1)
    expect(frame).to_contain_text(
        "This client id was measured in 1 hour, 1 of them with the finding: last 500 records, least 500 records, most "
        "500 records in the hour from 2026-11-21 12:00 UTC. The finding opens above 0 records; more is worse. Healthy "
        "peers (other client ids of software apache-kafka-java that never have this finding here): 9 an hour; in their "
        "last hour median 0 records."
    )
    frame.get_by_text("Table, CSV, SQL").click()
    assert {row["name"]: float(row["value"]) for row in saved(frame)} == {
        "this client id": 500, "opens at": 0, "median of healthy peers": 0,
        "lower quartile of healthy peers": 0, "upper quartile of healthy peers": 0,
    }  # fmt: skip
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    page.get_by_role("article").get_by_role("link", name=client_id(SHOWN)).first.click()
    on(page, f"Client id {client_id(SHOWN)}")
    expect(panel(page, "What the finding measures, by hour").locator(DRAWN)).to_have_count(1)
    keep(page, "finding-measure")
    page.get_by_role("article").get_by_role("link", name=bad_instance(SHOWN)).first.click()
    on(page, f"Client instance {bad_instance(SHOWN)}")
    frame = panel(page, "What the finding measures, by hour")
    expect(frame.locator(DRAWN)).to_have_count(1)
    expect(frame).to_contain_text("This client instance was measured in 1 hour, 1 of them with the finding: last 500")
    expect(frame).to_contain_text("(other instances of its client id that never have this finding here): 4 an hour")


@pytest.mark.slow
def test_back_and_forward_lead_through_pages_and_states(open_page: Open) -> None:
    page = open_page("")
    row = page.get_by_role("row").filter(has_text=client_id(SHOWN))
    row.get_by_role("link", name=client_id(SHOWN), exact=True).first.click()
    on(page, f"Client id {client_id(SHOWN)}")
    first = page.url
    assert parse_qs(urlsplit(first).query)["client"] == [client_id(SHOWN)]
    # The filter is a chip, and a change of the time range is a state of its own.
    expect(page.get_by_label("Filters").get_by_role("listitem")).to_contain_text(client_id(SHOWN))
    box = page.get_by_test_id("stSelectbox").filter(has_text="Time range").locator("input")
    box.fill("latest 7 days")
    box.press("Enter")
    page.wait_for_url("**range=7d*", timeout=PATIENCE_MS)
    settled(page)
    page.go_back()
    page.wait_for_url(first, timeout=PATIENCE_MS)
    settled(page)
    expect(box).to_have_value("latest 24 hours")
    page.go_back()
    on(page, "Problems")
    page.go_forward()
    on(page, f"Client id {client_id(SHOWN)}")
    page.go_forward()
    page.wait_for_url("**range=7d*", timeout=PATIENCE_MS)
    settled(page)
    expect(box).to_have_value("latest 7 days")
    expect(page.get_by_role("navigation")).to_have_count(1)  # drawn anew in its place
    expect(page.get_by_role("article")).to_have_count(1)
    keep(page, "client-id")


def test_the_tab_and_the_header_name_lake_cluster_and_time(open_page: Open, lake: Path) -> None:
    page = open_page("findings")
    assert page.title() == f"Open findings · {lake.name} · c"
    main = page.get_by_test_id("stMain")
    expect(main).to_contain_text("lake lake")
    expect(main).to_contain_text("cluster c")
    expect(main).to_contain_text("newest push 2026-11-21 12:00:00 UTC")
    expect(main.get_by_role("status").filter(has_text="Old data.")).to_contain_text("The newest push landed")


@pytest.mark.slow
def test_names_are_links_to_their_pages(open_page: Open) -> None:
    page = open_page("client-id", client=client_id(SHOWN))
    main = page.get_by_test_id("stMain")
    for name, heading in (
        ("User:shop", "Principal User:shop"),
        ("apache-kafka-java 4.3.0", "Version apache-kafka-java 4.3.0"),
    ):
        main.get_by_role("link", name=name).first.click()
        on(page, heading)
        page.go_back()
        on(page, f"Client id {client_id(SHOWN)}")


@pytest.mark.slow
def test_the_search_finds_every_kind_of_name(open_page: Open) -> None:
    page = open_page("")
    field = page.get_by_role("searchbox")
    field.fill("failed_rec")
    field.press("Enter")
    on(page, "Search")
    found = page.get_by_role("region", name="Names that contain failed_rec")
    expect(found.get_by_role("row").filter(has_text="client id").first).to_contain_text(client_id(SHOWN))
    expect(found.get_by_role("cell", name="client instance", exact=True)).to_have_count(INSTANCES)
    expect(found.get_by_role("row").filter(has_text="open finding").first).to_contain_text(
        f"{SHOWN} of {client_id(SHOWN)}"
    )
    found.get_by_role("link", name=bad_instance(SHOWN)).first.click()
    on(page, f"Client instance {bad_instance(SHOWN)}")
