"""A question that takes long says so, and ends when it is cancelled or its page is left: the processor is free then."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from playwright.sync_api import Browser, Page, expect

from kafka_telemetry_lake.pipelines.tables.operator import PUSHES
from tests.dashboard.conftest import PATIENCE_MS, settled, wait_until_served
from tests.dashboard.slow_dashboard import ASKED, ENDED
from tests.support.captured_lake import push_row, write_lake
from tests.support.landing_records import captured
from tests.support.patience import wait_until
from tests.support.ports import free_port

ASKS = "How many clients pushed over time"
EARLIER = timedelta(days=3)
COUNTS = "How many client instances pushed"
LISTS = "Which client instances pushed"
WITHOUT_LIST = (
    "", "findings", "connections", "version", "application", "principal", "topic", "quotas", "broker",
    "subscriptions", "pipeline", "producers", "fleet", "client", "client-id", "consumers", "group", "lifecycle",
)  # fmt: skip
ServeSlowly = Callable[[str], tuple[str, Path]]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The captured lake with a client that pushed three days before the others.

    Without it the latest 24 hours and the latest 7 days would be the same time, so the same question: whether it ends
    when the other range is chosen, or goes on for both, would be a matter of chance.
    """
    rows = [push_row(record) for record in captured().to_pylist()]
    early = rows[0] | {"client_instance_id": "early", "offset": 1_000_000, "landed_at": rows[0]["landed_at"] - EARLIER}
    pushes = pa.Table.from_pylist([*rows, early], PUSHES.schema)
    return write_lake(tmp_path_factory.mktemp("cancel") / "lake", pushes)


@pytest.fixture
def serve_slowly(lake: Path, browser: Browser, tmp_path: Path) -> Iterator[ServeSlowly]:
    """Serve a dashboard in which this question is endless; gives its address, and the file with what it prints."""
    with ExitStack() as stack:
        yield lambda question: stack.enter_context(_served_slowly(question, lake, tmp_path / "printed"))


@contextmanager
def _served_slowly(question: str, lake: Path, printed: Path) -> Iterator[tuple[str, Path]]:
    port = free_port()
    argv = [sys.executable, "-m", "tests.dashboard.slow_dashboard", question, "--lake", str(lake), "--port", str(port)]
    with printed.open("w") as output, subprocess.Popen(argv, stdout=output) as process:
        try:
            wait_until_served(process, f"http://127.0.0.1:{port}")
            yield f"http://127.0.0.1:{port}", printed
        finally:
            process.kill()


def counted(printed: Path, asked: int, ended: int) -> None:
    """Until so many questions were asked, and have ended."""

    def are_counted() -> bool:
        text = printed.read_text("utf-8")
        return (text.count(ASKED), text.count(ENDED)) == (asked, ended)

    wait_until(are_counted, said=lambda: printed.read_text("utf-8"))


def waits(page: Page, asks: str = ASKS) -> None:
    said = page.get_by_test_id("stAlert").filter(has_text=asks).filter(has_text="Asked for", visible=True)
    expect(said).to_have_count(1)


def cancel(page: Page, asks: str = ASKS) -> None:
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_test_id("stAlert").filter(has_text="Cancelled:")).to_contain_text(asks)


def choose_range(page: Page, name: str, written: str) -> None:
    """Choose a time range in the sidebar, and see that the page has taken it."""
    box = page.get_by_test_id("stSelectbox").filter(has_text="Time range").locator("input")
    box.fill(name)
    box.press("Enter")
    page.wait_for_url(lambda url: f"range={written}" in url, timeout=PATIENCE_MS)
    expect(box).to_have_value(name)


@pytest.mark.slow
def test_a_slow_question_ends_when_it_is_cancelled_or_left(browser: Browser, serve_slowly: ServeSlowly) -> None:
    address, printed = serve_slowly("activity")
    page = browser.new_page()
    page.goto(f"{address}/fleet")
    waits(page)
    counted(printed, 1, 0)
    cancel(page)
    counted(printed, 1, 1)
    settled(page)
    expect(page.get_by_role("button", name="Cancel")).to_be_hidden()
    # Asked again, and another range, and another page instead: each ends the question before.
    again = page.get_by_role("button", name="Ask again")
    again.click()
    waits(page)
    expect(again).to_be_hidden()
    counted(printed, 2, 1)
    choose_range(page, "latest 7 days", "7d")
    counted(printed, 3, 2)
    expect(page.get_by_test_id("stMain")).to_contain_text("140 client instances, 2026-11-18")
    waits(page)
    page.get_by_role("link", name="Producers", exact=True).click()
    expect(page.locator("[data-testid=stMain] h1")).to_have_text("Producers")
    settled(page)
    counted(printed, 3, 3)
    # Two who wait for the same: it ends when the browsers of both are closed.
    other = browser.new_page()
    for each in (page, other):
        each.goto(f"{address}/fleet?range=1h")
        waits(each)
    counted(printed, 4, 3)
    page.close()
    time.sleep(2)
    counted(printed, 4, 3)
    other.close()
    counted(printed, 4, 4)


@pytest.mark.slow
def test_another_range_can_be_chosen_before_clients_are_counted(browser: Browser, serve_slowly: ServeSlowly) -> None:
    """That comes first: nothing else is known of the range yet."""
    address, printed = serve_slowly("totals")
    page = browser.new_page()
    page.goto(f"{address}/fleet")
    waits(page, COUNTS)
    choose_range(page, "latest 7 days", "7d")
    counted(printed, 2, 1)
    waits(page, COUNTS)
    cancel(page, COUNTS)
    counted(printed, 2, 2)
    settled(page)
    choose_range(page, "latest hour", "1h")
    counted(printed, 3, 2)
    waits(page, COUNTS)
    expect(page.get_by_test_id("stAlert").filter(has_text="Cancelled:")).to_be_hidden()
    page.close()
    counted(printed, 3, 3)


@pytest.mark.slow
def test_what_filters_offer_can_be_cancelled_and_asked_again(browser: Browser, serve_slowly: ServeSlowly) -> None:
    """Only the open filters need the list of the clients; a page that shows none of them has long been there."""
    address, printed = serve_slowly("instances")
    page = browser.new_page()
    for path in WITHOUT_LIST:
        page.goto(f"{address}/{path}")
        settled(page)
    counted(printed, 0, 0)
    page.get_by_test_id("stExpander").filter(has_text="Filters").locator("summary").click()
    waits(page, LISTS)
    cancel(page, LISTS)
    counted(printed, 1, 1)
    page.get_by_role("button", name="Ask again").click()
    counted(printed, 2, 1)
    waits(page, LISTS)
    page.close()
    counted(printed, 2, 2)
