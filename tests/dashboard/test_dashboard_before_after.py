"""The panel of an application's page that says what changed at a moment: by a link, a click, with hostile names."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

from kafka_telemetry_lake.pipelines.tables.operator import CLIENT_EVENTS
from tests.dashboard.conftest import Open, Serve, settled
from tests.dashboard.test_dashboard_pages import keep
from tests.support.application_lake import LATENCY, NOON, SENT, Minutes, application_lake, put
from tests.support.captured_lake import HOSTILE
from tests.support.patience import wait_until

FIRST, COUNT = -20 * 60, 22 * 60
PRODUCER = "org.apache.kafka.producer."
# Level, spread and what it is multiplied with from noon on.
MEASURES = {
    SENT: (90_000, 0.05, 1.9),
    f"{PRODUCER}topic.byte.total": (48_000_000, 0.06, 1.9),
    LATENCY: (14, 0.1, 1.6),
    f"{PRODUCER}record.queue.time.avg": (6, 0.1, 0.5),
    f"{PRODUCER}batch.size.avg": (15_800, 0.02, 1),
    f"{PRODUCER}records.per.request.avg": (31, 0.05, 1),
    f"{PRODUCER}request.total": (1800, 0.06, 1),
    f"{PRODUCER}compression.rate.avg": (0.42, 0.02, 1),
    f"{PRODUCER}io.wait.time.ns.avg": (210_000, 0.3, 1),
    f"{PRODUCER}connection.count": (3, 0, 1),
    f"{PRODUCER}connection.creation.total": (0, 0, 1),
    f"{PRODUCER}produce.throttle.time.max": (0, 0, 1),
}
QUIET = {f"{PRODUCER}node.{name}": (100, 0.1, 1) for name in ("request.rate", "response.rate", "request.size.avg")}
DRAWN = "[data-testid=stVegaLiteChart] svg.marks"
MARKS = "[stroke='#CC79A7']"


def minutes(level: float, spread: float, factor: float, seed: int) -> Minutes:
    after = np.arange(COUNT) + FIRST >= 0
    values = level * (1 + spread * np.random.default_rng(seed).normal(size=COUNT)) * np.where(after, factor, 1)
    return np.round(values) if level > 1000 else values


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two applications. One has a new version at noon, since when it sends twice as much."""
    measures = {name: minutes(*given, seed) for seed, (name, given) in enumerate({**MEASURES, **QUIET}.items())}
    retries = np.zeros(COUNT)
    retries[-FIRST:] = 4
    measures[f"{PRODUCER}record.retry.total"] = retries
    lake = application_lake(tmp_path_factory.mktemp("shop") / "lake", measures, FIRST, client_id="orders-1")
    hostile = {f"{HOSTILE}.avg": minutes(7, 0.1, 3, 5), SENT: measures[SENT]}
    application_lake(lake, hostile, FIRST, client_id=HOSTILE, application=HOSTILE)
    event = {"client_instance_id": "i-orders-1", "client_id": "orders-1", "landed_at": NOON, "at": NOON}
    put(lake, CLIENT_EVENTS, [event | {"event": "software_changed", "landed_date": NOON.date()}])
    return lake


@pytest.fixture(scope="module")
def address(serve: Serve, lake: Path, browser: Browser) -> str:
    return serve(lake)


def sideways(page: Page) -> object:
    return page.get_by_test_id("stMain").evaluate("main => main.scrollWidth - main.clientWidth")


def test_dashboard_before_and_after_by_a_link(open_page: Open) -> None:
    page = open_page("application", application="shop", range="6h", moment="2026-11-21T12:00:00Z")
    changed = page.get_by_role("region", name="What changed beyond its noise")
    expect(changed).to_be_visible()
    names = changed.locator("tbody tr").evaluate_all("rows => rows.map(row => row.innerText)")
    assert len(names) == 5
    assert {name.split()[1] for name in names} == {
        "producer.record.send.total", "producer.topic.byte.total", "producer.request.latency.avg",
        "producer.record.queue.time.avg", "producer.record.retry.total",
    }  # fmt: skip
    main = page.get_by_test_id("stMain")
    expect(main).to_contain_text("5 of 16 measures changed beyond their noise. If nothing had happened, it would be")
    expect(main).to_contain_text("11 measures did not change beyond their noise")
    link = changed.get_by_role("link", name="producer.record.send.total")
    assert "client?from=2026-11-21T11%3A00%3A00Z" in str(link.get_attribute("href"))
    assert f"metric={SENT}" in str(link.get_attribute("href"))
    drawn = page.locator(DRAWN).filter(has_text="after")
    expect(drawn).to_have_count(4)
    assert drawn.first.locator(MARKS).count() > 0
    expect(main).to_contain_text("before: last")  # the words below a plot
    keep(page, "before-after")
    page.set_viewport_size({"width": 390, "height": 844})
    wait_until(lambda: sideways(page) == 0, every_s=0.5)
    page.emulate_media(media="print")
    expect(changed).to_be_visible()


@pytest.mark.slow
def test_dashboard_before_and_after_by_a_click(open_page: Open) -> None:
    page = open_page("application", application="shop", range="6h")
    expect(page.get_by_text("Moment (UTC)")).to_have_count(0)
    page.get_by_text("Show", exact=True).first.click()
    expect(page.get_by_text("Choose a moment")).to_be_visible()
    box = page.get_by_test_id("stSelectbox").filter(has_text="Moment (UTC)").locator("input")
    box.click()
    page.get_by_role("option", name="2026-11-21T12:00:00Z new version of orders-1").click()
    page.wait_for_url("**moment=2026-11-21T12**")
    settled(page)
    expect(page.get_by_role("region", name="What changed beyond its noise")).to_be_visible()
    box = page.get_by_test_id("stSelectbox").filter(has_text="Moment (UTC)").locator("input")
    box.fill("soon")
    box.press("Enter")
    expect(page.get_by_text("soon is not a time such as")).to_be_visible()
    assert "moment=2026-11-21T12" in page.url


@pytest.mark.slow
def test_dashboard_before_and_after_of_names_like_html_and_wrong_links(open_page: Open) -> None:
    page = open_page("application", application=HOSTILE, range="6h", moment="2026-11-21T12:00", window="15m")
    changed = page.get_by_role("region", name="What changed beyond its noise")
    expect(changed).to_contain_text(f"{HOSTILE}.avg")
    assert page.title().startswith("Application ")
    assert page.locator("img[src=x], [data-testid=stMain] script").count() == 0
    page = open_page("application", application="shop", range="6h", moment=HOSTILE, window="2h")
    for said in (f"moment={HOSTILE} is not a time", "window=2h is unknown; known: 15m, 1h, 6h, 24h. Comparing 1h"):
        expect(page.get_by_test_id("stAlert").filter(has_text=said)).to_have_count(1)
    later = (NOON + timedelta(days=9)).isoformat()
    page = open_page("application", application="shop", range="6h", moment=later)
    expect(page.get_by_text("has too little beside it")).to_be_visible()
