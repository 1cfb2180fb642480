"""The id by which a consumer knows an event that is sent again: a digest of the row of `client_events`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import xxhash

# In which rows are sent.
ORDER = ("at", "source", "topic", "partition", "offset", "event", "client_instance_id")


def plain_event(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as JSON has it, without columns that are NULL."""
    event = {name: _plain(value) for name, value in row.items()} | {"detail": dict(row["detail"] or ())}
    return {name: value for name, value in event.items() if value is not None}


def event_id(event: Mapping[str, Any]) -> str:
    """The id of what `plain_event` gives: 32 hex digits."""
    return xxhash.xxh3_128_hexdigest(json.dumps(event, sort_keys=True).encode())


def _plain(value: Any) -> Any:
    return f"{value:%Y-%m-%dT%H:%M:%S.%f}Z" if isinstance(value, datetime) else value
