"""The pages of the docs, as installed with the package."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True)
class Page:
    """A page: its name without ``.md``, the question that it answers, and its Markdown."""

    name: str
    question: str
    text: str


@functools.cache
def pages() -> dict[str, Page]:
    """All pages by name."""
    markdown = sorted((files("kafka_telemetry_lake") / "docs").iterdir(), key=lambda file: file.name)
    texts = {file.name.removesuffix(".md"): file.read_text("utf-8") for file in markdown if file.name.endswith(".md")}
    return {name: Page(name, text.partition("\n")[0].removeprefix("# "), text) for name, text in texts.items()}
