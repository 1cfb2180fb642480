"""Checks of values in manifests and snapshots (`lake.notes`)."""

from __future__ import annotations

from typing import Any

from kafka_telemetry_lake.pipelines.lake.notes import DamagedNoteError

MOST_SHARDS = 1 << 20


def number(value: Any, least: int = 0, most: int = 1 << 62) -> int:
    """Check that a value of a note is an integer within bounds, and return it."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise DamagedNoteError(f"{str(value)[:40]!r} isn't a number from {least} to {most}")
    return value


def chains(value: Any, shards: int) -> dict[int, tuple[str, ...]]:
    """Check the state files of each shard, oldest first, and return them."""
    if not isinstance(value, dict):
        raise DamagedNoteError("its states aren't an object")
    result = {}
    for shard, names in value.items():
        if not (shard.isdecimal() and shard.isascii() and len(shard) < 10 and int(shard) < shards):
            raise DamagedNoteError(f"{shard[:40]!r} isn't one of its {shards} shards")
        if not isinstance(names, list) or not all(map(_is_name, names)):
            raise DamagedNoteError(f"the files of shard {shard} aren't a list of names")
        result[int(shard)] = tuple(names)
    return result


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and name.endswith(".state") and "/" not in name and len(name) <= 255
