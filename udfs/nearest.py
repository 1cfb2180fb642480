"""Suggestions for a misspelled name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: str, known: Iterable[str], most: int) -> list[str]:
    """The names that a misspelled word may mean, the most similar first; empty if none is similar."""
    by_lower = {name.lower(): name for name in known}
    return [by_lower[name] for name in difflib.get_close_matches(word.lower(), by_lower, most, 0.6)]


def did_you_mean(word: str, known: Iterable[str], most: int = 3) -> str:
    """The question ``; did you mean a or b?``, empty if no known name is similar."""
    names = nearest(word, known, most)
    return f"; did you mean {' or '.join(names)}?" if names else ""
