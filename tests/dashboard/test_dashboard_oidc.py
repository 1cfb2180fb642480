"""With --login-file people log in by OpenID Connect: nothing is shown before, and remarks have their names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.dashboard.conftest import settled, wait_until_served
from tests.dashboard.planted_faults import planted_lake
from tests.support.lake_tables import table
from tests.support.ports import free_port

pytest.importorskip("authlib", reason="no Authlib: it comes with the extra `dashboard`")


@pytest.mark.slow
def test_who_logs_in_is_known_by_the_providers_name_only(browser: Browser, tmp_path: Path) -> None:
    from tests.support.oidc_provider import CLIENT_ID, CLIENT_SECRET, oidc_provider  # noqa: PLC0415  # needs joserfc

    lake, port = planted_lake(tmp_path / "lake"), free_port()
    finding = next(row["finding_id"] for row in table(lake, "finding_changes").to_pylist())
    address, login = f"http://127.0.0.1:{port}", tmp_path / "login.toml"
    argv = [sys.executable, "-m", "kafka_telemetry_lake", "dashboard", "--lake", str(lake), "--port", str(port)]
    with oidc_provider("ann@example.org") as metadata:
        login.write_text(
            f'[auth]\nredirect_uri = "{address}/oauth2callback"\ncookie_secret = "{"0123456789abcdef" * 4}"\n'
            f'client_id = "{CLIENT_ID}"\nclient_secret = "{CLIENT_SECRET}"\nserver_metadata_url = "{metadata}"\n',
            "utf-8",
        )
        with subprocess.Popen([*argv, "--allow-changes", "--login-file", str(login)]) as server:
            try:
                wait_until_served(server, address)
                page = browser.new_page()
                page.goto(f"{address}/findings")
                # Before the login nothing is shown: neither a page nor what the sidebar knows.
                expect(page.get_by_test_id("stAlert")).to_contain_text("Please log in")
                expect(page.get_by_test_id("stApp")).not_to_contain_text("shop-")
                expect(page.get_by_role("navigation")).to_have_count(0)
                expect(page).to_have_title("Kafka clients")  # without the lake's name
                page.get_by_role("button", name="Log in").click()
                expect(page.get_by_role("navigation")).to_have_count(1)
                settled(page)
                expect(page.get_by_test_id("stSidebar")).to_contain_text("ann@example.org")
                page.goto(f"{address}/findings?finding_id={finding}")
                settled(page)
                by = page.get_by_label("By", exact=True)
                expect(by).to_have_value("ann@example.org")
                expect(by).to_be_disabled()
                page.get_by_label("Why").fill("a deploy")
                page.get_by_test_id("stFormSubmitButton").get_by_text("Acknowledge", exact=True).click()
                written = page.get_by_test_id("stAlert").filter(has_text="is acknowledged, by ann@example.org")
                expect(written).to_have_count(1)
                page.get_by_role("button", name="Log out").click()
                expect(page.get_by_test_id("stAlert")).to_contain_text("Please log in")
                expect(page.get_by_test_id("stApp")).not_to_contain_text("shop-")
            finally:
                server.terminate()
    assert {row["by"] for row in table(lake, "finding_changes").to_pylist()} == {None, "ann@example.org"}
