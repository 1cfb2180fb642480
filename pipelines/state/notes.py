"""JSON files with a format number and a checksum, such as manifests. A damaged one raises an error."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import xxhash

from kafka_telemetry_lake.udfs.errors import TelemetryLakeError, check_format

FORMAT = 1  # of all these notes
MOST_SHARDS = 1 << 20
CHECKSUM = "xxh3"  # the field: xxh3-64 in hex of the other fields as canonical JSON


class DamagedNoteError(TelemetryLakeError):
    """The content differs from what was written; the message says where."""


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """The content with its format number and checksum."""
    plain: dict[str, Any] = json.loads(json.dumps({"format": FORMAT, **content}))  # keys become text
    return plain | {CHECKSUM: _checksum(plain)}


def read_note(data: bytes, fields: Iterable[str], name: str, advice: str) -> dict[str, Any]:
    """The content of a note: an object with these fields and no others.

    Args:
        data: content of the file.
        fields: names of the fields.
        name: of the note, for an error.
        advice: what to do about one of another format.

    Raises:
        DamagedNoteError: the content differs from what was written.
        OtherFormatError: it has another format.
    """
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DamagedNoteError("it isn't JSON") from error
    if not isinstance(content, dict):
        raise DamagedNoteError("it isn't a JSON object")
    checksum = content.pop(CHECKSUM, None)
    if checksum is not None and checksum != _checksum(content):
        raise DamagedNoteError("its checksum is wrong")
    check_format(name, content.pop("format", None), FORMAT, advice)
    if checksum is None:
        raise DamagedNoteError("its checksum is missing")
    if content.keys() != set(fields):
        raise DamagedNoteError(f"its fields aren't {', '.join(fields)}")
    return content


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


def _checksum(content: Mapping[str, Any]) -> str:
    return xxhash.xxh3_64_hexdigest(json.dumps(content, sort_keys=True, separators=(",", ":")).encode())
