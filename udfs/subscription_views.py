"""Names of the views of single subscriptions."""

from __future__ import annotations

import re
from collections.abc import Iterable

from udfs.identity import text_hash

PREFIX = "subscription_"
# Views of all subscriptions, and names that end like a hash.
TAKEN_VIEWS = ("metrics", "coverage", "cost", "changes", "events", "uncertain_spans")
HASHED = re.compile(r"_[0-9a-f]{8}\Z")


def view_names(names: Iterable[str]) -> dict[str, str]:
    """The name of each subscription's view, which doesn't depend on the other subscriptions.

    ``subscription_<name>`` for a name of lower-case letters, digits and underscores that is not taken; any other gets
    the start of its hash too.
    """
    return {name: f"{PREFIX}{_view_suffix(name)}" for name in names}


def _view_suffix(name: str) -> str:
    safe = re.sub(r"[^a-z0-9_]+", "_", name.lower())[:100]
    if safe == name and name not in TAKEN_VIEWS and not HASHED.search(name):
        return name
    return f"{safe}_{text_hash(name) & 0xFFFFFFFF:08x}"
