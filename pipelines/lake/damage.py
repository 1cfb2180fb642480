"""Finds out why a table of a lake can't be read: a hole in its log, a damaged checkpoint of it, a file that is gone."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of
from kafka_telemetry_lake.pipelines.tables.catalog import CATALOG
from kafka_telemetry_lake.pipelines.tables.operator import OPERATOR_TABLES
from kafka_telemetry_lake.pipelines.tables.table import table_uri

DATA_FILE = re.compile(r"(\w+)/((?:\w+=[^/'\"\s]*/)*part-[\w.-]+\.parquet)")
BACKUP = "restore the lake and its checkpoints from one backup"


def damage_of(lake: str, problem: str) -> str | None:
    """What is damaged and what to do, in one line; None: nothing is.

    Args:
        problem: text of the error that a library raised.
    """
    for name in CATALOG:
        line = _of_log(table_uri(lake, name), name)
        if line is not None:
            return line
    for name, path in DATA_FILE.findall(problem):
        if name in CATALOG and not _exists(f"{table_uri(lake, name)}/{path}"):
            replayed = name in {table.name for table in OPERATOR_TABLES}
            rows = "or run `telemetry-lake replay`, which writes all rows of this table again" if replayed else BACKUP
            return f"table {name}: {path}, which its log names, is gone: restore this file, {rows}"
    return None


def _of_log(uri: str, name: str) -> str | None:
    filesystem, root = filesystem_of(f"{uri}/_delta_log")
    entries = filesystem.get_file_info(pafs.FileSelector(root, allow_not_found=True))
    commits = _versions(entries, r"(\d{20})\.json")
    checkpoints = _versions(entries, r"(\d{20})\.checkpoint\..*parquet")
    if not commits and not checkpoints:
        return None
    for entry in entries:
        if re.fullmatch(r"\d{20}\.checkpoint\..*parquet", entry.base_name) and not _is_parquet(filesystem, entry.path):
            whole = commits == list(range(commits[-1] + 1)) if commits else False
            then = "delete it and _last_checkpoint, since the log has every commit" if whole else BACKUP
            return f"table {name}: {entry.base_name}, a checkpoint of its log, is damaged: {then}"
    first = max(checkpoints, default=-1) + 1
    later = [version for version in commits if version >= first]
    missing = next((number for number, version in enumerate(later, first) if version != number), None)
    if missing is not None:
        return f"table {name}: version {missing} of its log is missing, and later ones are there: {BACKUP}"
    return None


def _versions(entries: Iterable[pafs.FileInfo], pattern: str) -> list[int]:
    return sorted(int(match[1]) for entry in entries if (match := re.fullmatch(pattern, entry.base_name)))


def _is_parquet(filesystem: pafs.FileSystem, path: str) -> bool:
    try:
        pq.read_metadata(path, filesystem=filesystem)
    except (pa.ArrowException, OSError):
        return False
    return True


def _exists(uri: str) -> bool:
    filesystem, path = filesystem_of(uri)
    return bool(filesystem.get_file_info(path).type != pafs.FileType.NotFound)
