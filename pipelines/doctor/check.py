"""The result of one check."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warning", "failed", "skipped"]


@dataclass(frozen=True)
class Check:
    """One line: what was looked at, what it is like, and what to do unless it is ``ok``.

    ``failed``: something doesn't work, or pushes are lost. ``warning``: it works, and may fail later. ``skipped``: it
    couldn't be looked at, for the reason given.
    """

    name: str
    status: Status
    text: str
    advice: str = ""


def exit_code(checks: Iterable[Check]) -> int:
    """1 if a check failed, else 3 if there is a warning, else 0."""
    found = {check.status for check in checks}
    return 1 if "failed" in found else 3 if "warning" in found else 0


def listed(items: Iterable[object]) -> str:
    """The first items, separated by commas, and how many more there are."""
    texts = [str(item) for item in items]
    more = f" and {len(texts) - 5} more" if len(texts) > 5 else ""
    return ", ".join(texts[:5]) + more


def age_text(seconds: float) -> str:
    """A duration in the unit in which it is easiest to read."""
    for unit, size in (("days", 172_800), ("h", 7200), ("min", 180)):
        if seconds >= size:
            return f"{seconds / {'days': 86_400, 'h': 3600, 'min': 60}[unit]:.0f} {unit}"
    return f"{seconds:.0f} s"
