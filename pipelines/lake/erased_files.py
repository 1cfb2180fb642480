"""Erasures whose rows are gone from the tables, while the tables' logs still name the files before.

The lake's folder `_forget/history` has a note for each, ``<erasure>.json``. Until `maintain` has let the logs forget
these files and has deleted them, it says which file took the place of each: who follows a log and hasn't read an entry
yet reads the new file instead. Afterwards it is the receipt: nothing is left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta

import pyarrow.fs as pafs

from kafka_telemetry_lake.pipelines.lake.durable import read_json, write_json
from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of
from kafka_telemetry_lake.udfs.errors import check_format

APP_ID = "kafka-telemetry-lake:forget"  # of the commits that remove the rows (Delta's `txn`)
FOLDER = "_forget/history"
FORMAT = 1  # of the notes
RETENTION = timedelta(days=1)  # of the tables' logs: `tables.table.LOG_SETTINGS`


@dataclass(frozen=True)
class ErasedFiles:
    """An erasure that the tables' latest versions don't have any more. It names nobody.

    Attributes:
        erasure: eight hex digits.
        erased_at: when the tables had their commits; UTC, ISO 8601.
        gone_at: when nothing was left; None: not yet.
        versions: the version of each table with the erasure's commit.
        files: new file of each old one, as paths below the table, by table.
    """

    erasure: str
    erased_at: str
    gone_at: str | None
    versions: Mapping[str, int]
    files: Mapping[str, Mapping[str, str]]
    format: int = FORMAT

    @property
    def due(self) -> datetime:
        """From when on the logs may forget what was before."""
        return datetime.fromisoformat(self.erased_at) + RETENTION

    def write(self, lake: str) -> None:
        """Write its note."""
        filesystem, root = filesystem_of(f"{lake.rstrip('/')}/{FOLDER}")
        filesystem.create_dir(root)
        write_json(filesystem, f"{root}/{self.erasure}.json", asdict(self))


def erased_files(lake: str) -> list[ErasedFiles]:
    """All of a lake, the oldest first.

    Raises:
        OtherFormatError: a note has another format.
    """
    filesystem, root = filesystem_of(f"{lake.rstrip('/')}/{FOLDER}")
    entries = filesystem.get_file_info(pafs.FileSelector(root, allow_not_found=True))
    found = []
    for entry in entries:
        if entry.extension == "json" and (content := read_json(filesystem, entry.path)) is not None:
            check_format(entry.path, content.get("format"), FORMAT, "use the build that has erased")
            found.append(ErasedFiles(**content))
    return sorted(found, key=lambda each: each.erased_at)


def replaced_files(table_uri: str) -> dict[str, str]:
    """The file that took the place of each one of a table that an erasure has replaced, as paths below the table."""
    lake, _, name = table_uri.rstrip("/").rpartition("/")
    replaced: dict[str, str] = {}
    for each in erased_files(lake):
        replaced |= each.files.get(name, {})
    return {old: _last(replaced, old) for old in replaced}


def _last(replaced: Mapping[str, str], path: str) -> str:
    """What took the place of a file, of several erasures the last."""
    seen = set[str]()
    while path in replaced and path not in seen:
        seen.add(path)
        path = replaced[path]
    return path
