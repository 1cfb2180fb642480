"""Names of the views of single subscriptions (M12)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kafka_telemetry_lake.udfs.identity import text_hash

PREFIX = "subscription_"
# Suffixes of views over all subscriptions; names that end like a hash are avoided too.
TAKEN_VIEWS = ("metrics", "coverage", "cost", "changes", "events", "uncertain_spans")
HASHED = re.compile(r"_[0-9a-f]{8}\Z")


def view_names(names: Iterable[str]) -> dict[str, str]:
    """The name of each subscription's view; it doesn't depend on the other subscriptions.

    ``subscription_<name>`` for a name of lower-case letters, digits and underscores that is not taken; any other
    name gets the start of its hash appended.
    """
    return {name: f"{PREFIX}{_view_suffix(name)}" for name in names}


def _view_suffix(name: str) -> str:
    safe = re.sub(r"[^a-z0-9_]+", "_", name.lower())[:100]
    if safe == name and name not in TAKEN_VIEWS and not HASHED.search(name):
        return name
    return f"{safe}_{text_hash(name) & 0xFFFFFFFF:08x}"
