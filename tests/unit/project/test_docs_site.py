"""The docs as a site: built strictly, complete without a network, and each page shows what its source says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from playwright.sync_api import sync_playwright

from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.slow  # it builds the site

ROOT = Path(__file__).parents[3]
DOCS = sorted((ROOT / "docs").glob("*.md"))
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PARTS = ["Use", "Operate", "Understand", "Contribute"]
FROM_ELSEWHERE = re.compile(
    r"<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=\"?(?:https?:)?//[^>]*>"
    r"|@import|url\(https?:"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = (sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder))
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stderr
    return folder


def elements(html: str) -> Counter[str]:
    return Counter(re.findall(r"<(li|pre|table|tr|h[1-6]|img)\b", html))


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.name)
def test_a_page_starts_with_its_question(page: Path) -> None:
    first = page.read_text("utf-8").splitlines()[0]
    assert re.fullmatch(r"# [A-Z].*\?", first), first


@pytest.mark.parametrize("page", [*DOCS, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_the_site_shows_what_the_page_says(site: Path, page: Path) -> None:
    """GitHub and the site read Markdown differently: a list needs an empty line before it there."""
    article = re.search(
        r"<article[^>]*>(.*?)</article>", (site / f"{page.stem.lower()}.html").read_text("utf-8"), re.DOTALL
    )
    assert article
    source = MarkdownIt("commonmark", {"html": True}).enable("table").render(page.read_text("utf-8"))
    assert elements(article[1]) == elements(source)


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > len(DOCS)
    assert [found for page in pages for found in FROM_ELSEWHERE.findall(page.read_text("utf-8"))] == []


def test_what_is_fetched_from_elsewhere_would_be_found() -> None:
    assert FROM_ELSEWHERE.search('<script src="https://cdn.example/x.js"></script>')
    assert FROM_ELSEWHERE.search('<link rel="stylesheet" href="//fonts.example/css">')
    assert not FROM_ELSEWHERE.search('<a href="https://kafka.apache.org">Kafka</a><script src="assets/x.js"></script>')


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
def test_the_search_works_from_the_disk(site: Path) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        page.set_default_timeout(1000 * PATIENCE_S)
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"file://{site}/index.html")
        page.focus(".md-search__input")
        page.keyboard.type("insync", delay=20)  # a part of min.insync.replicas
        # The page searches while it is typed: what is found first is that of the whole word in the end.
        page.wait_for_selector(".md-search-result__item:first-child a[href*='receiver.html']")
        browser.close()
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []


def test_the_pages_are_in_four_parts_for_people_and_programs(site: Path) -> None:
    text = (site / "llms.txt").read_text("utf-8")
    assert text.startswith("# kafka-telemetry-lake\n\n> What Kafka clients tell")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == PARTS
    listed = re.findall(r"^- \[(.+)\]\((\S+\.md)\): (.+)$", text, re.MULTILINE)
    assert {name for _, name, _ in listed} >= {page.name for page in DOCS}
    for question, name, _ in listed:
        assert (site / name).read_text("utf-8").startswith(f"# {question}\n")
