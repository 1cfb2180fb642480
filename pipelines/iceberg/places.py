"""Where the Iceberg tables of a lake are, how their metadata names places, and how far they are behind the lake.

Needs no Iceberg library.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow.fs as pafs

from kafka_telemetry_lake.pipelines.lake.log_files import LogFiles
from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of
from kafka_telemetry_lake.pipelines.tables.table import table_uri
from kafka_telemetry_lake.udfs.errors import CannotRunError

FOLDER = "_iceberg"  # in the lake's folder, where it isn't taken for a table


class IcebergPlaceError(CannotRunError):
    """There can't be Iceberg tables at this place, or of a lake at this place."""


def location_of(place: str) -> str:
    """A folder or URI as metadata names it: absolute, `s3://` for `s3a://`, and not percent-encoded.

    Raises:
        IcebergPlaceError: readers would take a part of the name for another part of a URI.
    """
    scheme, separator, path = place.rstrip("/").partition("://")
    if not separator or scheme == "file":
        scheme, path = "file", filesystem_of(place.rstrip("/"))[1]
    if any(sign in path for sign in "#?%"):
        raise IcebergPlaceError(f"{place}: Iceberg's readers can't open a path with #, ? or %; name another folder")
    return f"{'s3' if scheme == 's3a' else scheme}://{path}"


def iceberg_root(lake: str, to: str | None = None) -> str:
    """The folder given for a lake's Iceberg tables, otherwise the one inside the lake.

    Raises:
        IcebergPlaceError: it is another folder inside the lake, which may be a table's.
    """
    inside = f"{lake.rstrip('/')}/{FOLDER}"
    if to is None:
        return inside
    below = f"{location_of(to)}/"
    if below.startswith(f"{location_of(lake)}/") and below != f"{location_of(inside)}/":
        raise IcebergPlaceError(
            f"to: inside the lake only {FOLDER} can have the Iceberg tables; name a folder elsewhere"
        )
    return to.rstrip("/")


VERSION, TABLE_ID = "delta-version", "delta-table-id"  # in a snapshot's summary
HINT = "version-hint.text"


@dataclass(frozen=True)
class Behind:
    """An Iceberg table whose newest snapshot is of an earlier version than the Delta table has.

    Attributes:
        since: when the first commit was made that it lacks, or before, if the log has forgotten that.
    """

    table: str
    version: int
    since: datetime


def has_iceberg_tables(lake: str) -> bool:
    """Whether there are Iceberg tables in a lake's folder."""
    return bool(_names(lake))


def behind(lake: str) -> Iterator[Behind]:
    """The Iceberg tables in a lake's folder that are behind."""
    for name in _names(lake):
        snapshot = _newest_snapshot(lake, name)
        if snapshot is None:
            continue
        version, log = int(snapshot["summary"].get(VERSION, -1)), LogFiles(table_uri(lake, name))
        latest = log.latest()
        if latest is None or latest <= version:
            continue
        missed = log.read(version + 1) or ()
        times = [action["commitInfo"]["timestamp"] for action in missed if "commitInfo" in action]
        since = times[0] if times else snapshot["timestamp-ms"]
        yield Behind(name, version, datetime.fromtimestamp(since / 1000, UTC))


def _names(lake: str) -> list[str]:
    filesystem, root = filesystem_of(iceberg_root(lake))
    entries = filesystem.get_file_info(pafs.FileSelector(root, allow_not_found=True))
    folders = [entry.base_name for entry in entries if entry.type == pafs.FileType.Directory]
    return sorted(name for name in folders if not name.startswith(("_", ".")))


def _newest_snapshot(lake: str, name: str) -> dict[str, Any] | None:
    """The current snapshot as the hint's metadata has it; None: there is none, or no longer."""
    filesystem, root = filesystem_of(f"{iceberg_root(lake)}/{name}/metadata")
    try:
        with filesystem.open_input_file(f"{root}/{HINT}") as stream:
            version = int(stream.read())
        with filesystem.open_input_file(f"{root}/v{version}.metadata.json") as stream:
            content = json.loads(stream.read())
    except (FileNotFoundError, ValueError):
        return None
    current = content.get("current-snapshot-id")
    return next((each for each in content.get("snapshots", ()) if each["snapshot-id"] == current), None)
