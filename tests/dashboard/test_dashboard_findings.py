"""The page of open findings in a real browser: it only reads, unless started with --allow-changes."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from playwright.sync_api import Browser, Page, expect

from kafka_telemetry_lake.pipelines.tables.findings import FINDING_CHANGES
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES
from tests.dashboard.conftest import Open, Serve, number, settled
from tests.dashboard.test_dashboard_pages import keep
from tests.support.captured_lake import HOSTILE, write_lake
from tests.support.lake_tables import table

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
ORDERS, EVIL, NEW = ("0" * 31 + digit for digit in "123")
OPENED: dict[str, Any] = {
    "finding_id": ORDERS, "finding": "failed_records", "severity": "error", "scope": "client_id", "subject": "orders",
    "client_id": "orders", "change": "opened", "at": NOON, "opened_at": NOON, "recorded_at": NOON,
    "window_start": NOON, "evidence": "7 records could not be sent", "advice": "Look at its log.", "owner": "team-a",
    "worst_instance": "i",
}  # fmt: skip
OF_EVIL = OPENED | {"finding_id": EVIL, "severity": "warning", "subject": HOSTILE, "client_id": HOSTILE}


def add(lake: Path, *rows: dict[str, Any]) -> None:
    stored = FINDING_CHANGES.with_partition(pa.Table.from_pylist(list(rows), FINDING_CHANGES.schema))
    write_deltalake(FINDING_CHANGES.create(str(lake)), stored, mode="append")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lake = write_lake(tmp_path_factory.mktemp("findings") / "lake", pa.Table.from_pylist([], PUSHES.schema))
    push = {"client_instance_id": "i", "client_id": "orders", "landed_at": NOON, "landed_date": NOON.date()}
    write_deltalake(PUSHES.uri(str(lake)), pa.Table.from_pylist([push], PUSHES.stored), mode="append")
    add(lake, OPENED, OF_EVIL | {"evidence": HOSTILE, "advice": HOSTILE})
    return lake


@pytest.fixture(scope="module")
def address(serve: Serve, lake: Path, browser: Browser) -> str:
    return serve(lake, "--allow-changes")


def press(page: Page, button: str, said: str, **texts: str) -> None:
    """Fill in the form and press a button, twice as some do; the page answers with this line."""
    for label, text in texts.items():
        field = page.get_by_label(label.replace("_", " "))
        field.fill(text)
        field.press("Enter")  # presses no button
    page.get_by_test_id("stFormSubmitButton").get_by_text(button, exact=True).dblclick()
    expect(page.get_by_test_id("stAlert").filter(has_text=said)).to_have_count(1)
    settled(page)


def remarks(lake: Path) -> list[tuple[str, str, str, str]]:
    rows = sorted(table(lake, "finding_changes").to_pylist(), key=lambda row: row["recorded_at"])
    return [(row["finding_id"], row["change"], row["by"], row["why"]) for row in rows if row["by"]]


@pytest.mark.slow
def test_without_the_flag_it_only_reads_and_prints_commands(open_page: Open, serve: Serve, lake: Path) -> None:
    page = open_page("findings", at=serve(lake), finding_id=EVIL)
    assert (number(page, "Errors"), number(page, "Warnings")) == ("1", "1")
    main = page.get_by_test_id("stMain")
    expect(main).to_contain_text("Start it with --allow-changes")
    expect(main.get_by_test_id("stCode")).to_have_count(2)
    expect(main.get_by_test_id("stCode").last).to_contain_text(
        f"telemetry-lake findings --lake {lake} --mute {EVIL} --until "
    )
    expect(main.get_by_test_id("stForm")).to_have_count(0)
    card = main.get_by_role("article")
    expect(card).to_contain_text(f"{HOSTILE}.What to do: {HOSTILE}")
    assert page.title().startswith("Open findings · lake")  # not what the text would have made it
    assert page.locator("img[src=x], [data-testid=stMain] script").count() == 0
    keep(page, "findings-read-only")


def test_a_finding_is_acknowledged_muted_and_unmuted_and_the_page_shows_it_at_once(open_page: Open, lake: Path) -> None:
    page = open_page("findings", severity="error")
    grid = page.get_by_role("region", name="Open findings")
    grid.get_by_role("link", name="nobody yet").click()
    expect(page.get_by_test_id("stForm")).to_have_count(1)
    settled(page)
    expect(grid).to_contain_text("orders")
    expect(grid).not_to_contain_text("warning")
    assert f"finding_id={ORDERS}" in page.url
    add(lake, OPENED | {"finding_id": NEW, "client_id": "new", "opened_at": NOON.replace(hour=1)})  # a row before it
    press(page, "Acknowledge", "Nothing was written: by: allowed: 1 to 1,000 characters; these are 0")
    press(page, "Acknowledge", "why: allowed: 1 to 1,000 characters; these are 1,001", By="ann", Why="x" * 1001)
    assert remarks(lake) == []
    press(page, "Acknowledge", "failed_records of client_id orders is acknowledged, by ann", Why="*a* deploy")
    assert (number(page, "Errors"), number(page, "Acknowledged")) == ("1", "1")
    expect(grid).to_contain_text("acknowledged")
    expect(page.get_by_test_id("stMain")).to_contain_text("acknowledged, by ann: *a* deploy")
    press(page, "Mute", "until: 2026-11-21 12:00 UTC is past", Why="test", Mute_until="2026-11-21 12:00")
    press(page, "Mute", "orders is muted until 2999-11-30 08:00 UTC, by ann", Mute_until="2999-11-30T08:00Z")
    assert (number(page, "Acknowledged"), number(page, "Muted")) == ("0", "1")
    expect(page.get_by_test_id("stMain")).to_contain_text("muted until 2999-11-30 08:00 UTC, by ann: test")
    keep(page, "findings")
    press(page, "Unmute", "orders is unmuted, by bob", By="bob", Why="done")
    assert (number(page, "Acknowledged"), number(page, "Muted")) == ("1", "0")
    assert remarks(lake) == [
        (ORDERS, "acknowledged", "ann", "*a* deploy"), (ORDERS, "muted", "ann", "test"),
        (ORDERS, "unmuted", "bob", "done"),
    ]  # fmt: skip


@pytest.mark.slow
def test_a_finding_that_is_resolved_meanwhile(open_page: Open, lake: Path) -> None:
    page = open_page("findings", scheme="dark", finding_id=EVIL)
    keep(page, "findings-dark")
    add(lake, OF_EVIL | {"change": "resolved", "at": NOON.replace(hour=14)})
    press(page, "Acknowledge", f"finding {EVIL} is resolved since 2026-11-21 14:00 UTC", By="ann", Why="late")
    expect(page.get_by_test_id("stAlert").filter(has_text=f"Finding {EVIL} isn't open")).to_have_count(1)
    expect(page.get_by_test_id("stForm")).to_have_count(0)
