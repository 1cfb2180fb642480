"""Compaction of past days in the tables that the job's tasks write: files of one day become fewer, sorted or in order.

The files of a day are divided into groups, each of which is committed once it is compacted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of
from kafka_telemetry_lake.pipelines.lake.table_files import DataFile
from kafka_telemetry_lake.pipelines.tables.operator import METRIC_POINTS, OPERATOR_TABLES, PUSHES
from kafka_telemetry_lake.pipelines.upkeep.merging import merged, sorted_files

File = Mapping[str, Any]  # as of `delta_log.files_of`
TABLES = {table.name: table for table in (PUSHES, *OPERATOR_TABLES)}
# Columns that queries filter by, for tables whose queries don't mainly filter by landing time.
CLUSTERED_BY = {METRIC_POINTS.name: ("metric", "client_instance_id")}
SORTED_FILES = 4  # files of the target size, about, whose rows are sorted together
MOST_FILES = 768  # of a group: their footers are in memory


@dataclass(frozen=True)
class FileGroup:
    """Files of one landed date, in the order of landing, that become one, or a few sorted ones of the target size."""

    table: str
    files: tuple[File, ...]
    target_bytes: int

    def compact(self, lake: str) -> list[DataFile]:
        """Write the new files. Readers see them after the commit."""
        table = TABLES[self.table]
        if (columns := CLUSTERED_BY.get(self.table)) is not None:
            return sorted_files(table, lake, self.files, columns, self.target_bytes)
        return [merged(table, lake, self.files)]


def groups_of(table: str, files: Iterable[File], target_bytes: int) -> Iterator[FileGroup]:
    """Divide a day's files so that memory, disk and what a kill costs don't follow the day's bytes.

    A file that would be alone in its group stays as it is.
    """
    most_bytes = target_bytes * (SORTED_FILES if table in CLUSTERED_BY else 1)
    landed = TABLES[table].statistics[0]  # landing time, or the start of a rollup's window, which follows it
    group, size = list[File](), 0
    for file in sorted(files, key=lambda file: file["min"][landed]):
        if group and (size + file["size_bytes"] > most_bytes or len(group) == MOST_FILES):
            if len(group) > 1:
                yield FileGroup(table, tuple(group), target_bytes)
            group, size = [], 0
        group.append(file)
        size += file["size_bytes"]
    if len(group) > 1:
        yield FileGroup(table, tuple(group), target_bytes)


def delete_files(uri: str, paths: Iterable[str]) -> None:
    """Delete files of a table's folder. One that is gone already is no error.

    Args:
        uri: of the table's folder.
        paths: on the file system of `uri`.
    """
    filesystem, _ = filesystem_of(uri)
    for path in paths:
        try:
            filesystem.delete_file(path)
        except FileNotFoundError:
            continue
