"""A served dashboard over a lake of captured pushes, and a headless Chromium to look at it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.support.captured_lake import captured_lake
from tests.support.patience import PATIENCE_S, wait_until
from tests.support.ports import free_port

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PATIENCE_MS = 1000 * PATIENCE_S
expect.set_options(timeout=PATIENCE_MS)

Serve = Callable[..., str]
Open = Callable[..., Page]


@pytest.fixture(scope="session")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return captured_lake(tmp_path_factory.mktemp("dashboard") / "lake")


@pytest.fixture(scope="session")
def serve() -> Iterator[Serve]:
    """Serve a lake, with these flags; gives the dashboard's address."""
    with ExitStack() as stack:
        yield lambda lake, *flags: stack.enter_context(_served(lake, *flags))


@contextmanager
def _served(lake: Path, *flags: str) -> Iterator[str]:
    port = free_port()
    argv = [sys.executable, "-m", "kafka_telemetry_lake", "dashboard", "--lake", str(lake), "--port", str(port)]
    with subprocess.Popen([*argv, *flags], stdout=subprocess.DEVNULL) as server:
        try:
            wait_until_served(server, f"http://127.0.0.1:{port}")
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()


def wait_until_served(server: subprocess.Popen[bytes], address: str) -> None:
    """Until the server answers, or fail."""

    def is_served() -> bool:
        try:
            with urllib.request.urlopen(f"{address}/_stcore/health", timeout=PATIENCE_S):
                return True
        except (urllib.error.URLError, OSError):
            return False

    wait_until(
        is_served, process=server, said=lambda: f"the dashboard ended with code {server.returncode}", every_s=0.2
    )


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    with sync_playwright() as tools:
        # As root, in a container of CI, Chromium's own sandbox doesn't start.
        args = ["--no-sandbox"] if os.geteuid() == 0 else []
        with tools.chromium.launch(executable_path=CHROMIUM, args=args) as chromium:
            yield chromium


@pytest.fixture(scope="module")
def address(serve: Serve, lake: Path, browser: Browser) -> str:  # without a browser nothing is served
    return serve(lake)


@pytest.fixture
def open_page(browser: Browser, address: str) -> Iterator[Open]:
    """Open a page of the module's lake, wait until it stands; see that nothing broke or was asked of other hosts."""
    with _watched(browser) as page:

        def open_it(path: str, scheme: str = "light", at: str = address, **query: object) -> Page:
            page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
            page.goto(f"{at}/{path}?{urlencode(query, doseq=True)}")
            settled(page)
            return page

        yield open_it


@pytest.fixture(scope="module")
def visit(browser: Browser, address: str) -> Iterator[Callable[[str], Page]]:
    """Come to a page of this title as visitors do, by the navigation. To open each anew costs 2 CPU-s more."""
    with _watched(browser) as page:
        page.goto(address)
        settled(page)

        def by_link(title: str) -> Page:
            links = page.get_by_role("navigation", name="Pages").get_by_role("link")
            links.filter(has_text=re.compile(f"^{re.escape(title)}")).click()
            expect(page.locator("[data-testid=stMain] h1")).to_have_text(title)
            settled(page)
            return page

        yield by_link


@contextmanager
def _watched(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1400, "height": 1000})
    broken: list[str] = []
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    page.on("pageerror", lambda error: broken.append(str(error)))
    page.on("request", lambda request: broken.append(request.url) if _is_foreign(request.url) else None)
    yield page
    context.close()
    assert broken == []


def _is_foreign(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme in ("http", "https", "ws", "wss") and parts.hostname != "127.0.0.1"


def settled(page: Page) -> None:
    """Until the page's script has run to its end."""
    page.wait_for_selector("[data-testid=stMain] h1", timeout=PATIENCE_MS)
    page.wait_for_selector("[data-testid=stApp][data-test-script-state=notRunning]", timeout=PATIENCE_MS)
    page.wait_for_function("!document.querySelector('[data-stale=true], [data-testid=stSpinner]')", timeout=PATIENCE_MS)
    assert page.get_by_test_id("stException").all_inner_texts() == []


def number(page: Page, label: str) -> str:
    return page.get_by_test_id("stMetric").filter(has_text=label).get_by_test_id("stMetricValue").inner_text()
