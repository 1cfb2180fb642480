"""Hooks of mkdocs: pages from outside of docs/, links that leave docs/, and llms.txt with the pages' sources."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
# Where a file outside of docs/ is a page of the site.
ROOT_PAGES = {
    "README.md": "start.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "RELEASING.md": "releasing.md",
    "benchmarks/README.md": "benchmarks.md",
}
_LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")
_SUMMARY_LENGTH = 200
_nav: list[Navigation] = []


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from outside, and the files outside docs/ that a page links to, under files/."""
    for name, page in ROOT_PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / name)))
    linked = {target for file in files.documentation_pages() for target in _outside(file)}
    for target in sorted(linked):
        files.append(File.generated(config, f"files/{target}", abs_src_path=str(ROOT / target)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001  # by name
    """Point the links of a page to where the site has their targets."""
    if page.is_homepage:
        page.meta["hide"] = ["navigation"]
    return _LINK.sub(lambda found: _site_target(page.file, found[1]) + (found[2] or ""), markdown)


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> None:  # noqa: ARG001  # mkdocs passes them by name
    """Remember the order of the pages."""
    _nav[:] = [nav]


def on_post_build(config: MkDocsConfig) -> None:
    """Write llms.txt (llmstxt.org): each page with its question. The pages' sources go beside it, for programs."""
    site = Path(config.site_dir)
    lines = [f"# {config.site_name}", "", f"> {config.site_description}", ""]
    for section in _nav[0].items:
        pages = list(_pages(section))
        if section.is_section:
            lines += [f"## {section.title}", ""]
        for page in pages:
            shutil.copy(_source(page.file), site / page.file.src_uri)
            text = _source(page.file).read_text("utf-8")
            lines.append(f"- [{_question(text)}]({page.file.src_uri}): {_summary(text)}")
        lines.append("")
    (site / "llms.txt").write_text("\n".join(lines), "utf-8")


def _pages(item: Any) -> Iterator[Page]:
    if item.is_page:
        yield item
    for child in item.children or ():
        yield from _pages(child)


def _source(file: File) -> Path:
    return Path(str(file.abs_src_path))


def _target(file: File, link: str) -> Path:
    return Path(str(_source(file).parent / link)).resolve().relative_to(ROOT)


def _outside(file: File) -> Iterator[str]:
    for found in _LINK.finditer(_source(file).read_text("utf-8")):
        target = _target(file, found[1])
        if target.parts[0] != "docs" and str(target) not in ROOT_PAGES and (ROOT / target).is_file():
            yield target.as_posix()


def _site_target(file: File, link: str) -> str:
    target = _target(file, link)
    if target.parts[0] == "docs":
        return target.relative_to("docs").as_posix()
    return ROOT_PAGES.get(str(target), f"files/{target.as_posix()}")


def _question(markdown: str) -> str:
    """The page's first heading."""
    return next(line for line in markdown.splitlines() if line.startswith("# ")).removeprefix("# ")


def _summary(markdown: str) -> str:
    """The beginning of the page's first paragraph, without its links."""
    paragraphs = (part.strip("\n") for part in re.sub(r"```.*?```", "", markdown, flags=re.DOTALL).split("\n\n"))
    first = next((part for part in paragraphs if part and part[0] not in "#|!<- "), "")
    text = " ".join(re.sub(r"\[([^]]*)\](\([^)]*\)|\[[^]]*\])", r"\1", first).split())
    return text if len(text) <= _SUMMARY_LENGTH else text[:_SUMMARY_LENGTH].rsplit(" ", 1)[0] + " ..."
