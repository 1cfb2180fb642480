"""With --user-header a proxy says who looks: nobody comes without it, and remarks are made under that name alone."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, expect

from tests.dashboard.conftest import PATIENCE_MS, Open, Serve
from tests.dashboard.naming_proxy import naming_proxy
from tests.dashboard.planted_faults import planted_lake
from tests.support.lake_tables import table


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return planted_lake(tmp_path_factory.mktemp("login") / "lake")


@pytest.fixture(scope="module")
def address(serve: Serve, lake: Path, browser: Browser) -> str:
    return serve(lake, "--allow-changes", "--user-header", "X-Forwarded-User")


@pytest.mark.slow
def test_who_comes_through_the_proxy_is_known_by_its_name_only(open_page: Open, address: str, lake: Path) -> None:
    finding = next(row["finding_id"] for row in table(lake, "finding_changes").to_pylist())
    with naming_proxy(urlsplit(address).port or 0, "X-Forwarded-User", "ann@example.org") as proxied:
        page = open_page("findings", at=proxied, finding_id=finding)
        by = page.get_by_label("By", exact=True)
        expect(by).to_have_value("ann@example.org")
        expect(by).to_be_disabled()
        page.get_by_label("Why").fill("a deploy")
        page.get_by_test_id("stFormSubmitButton").get_by_text("Acknowledge", exact=True).click()
        expect(page.get_by_test_id("stAlert").filter(has_text="is acknowledged, by ann@example.org")).to_have_count(
            1, timeout=PATIENCE_MS
        )
    assert {row["by"] for row in table(lake, "finding_changes").to_pylist()} == {None, "ann@example.org"}
    # Past the proxy nothing is shown: neither a page nor what the sidebar knows.
    page.goto(f"{address}/findings")
    expect(page.get_by_test_id("stAlert")).to_contain_text("Please log in")
    expect(page.get_by_test_id("stApp")).not_to_contain_text("shop-")
    expect(page.get_by_role("navigation")).to_have_count(0)
