"""A lake as a value: where it is, the lease under which this process writes it, and what opens its tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.fs as pafs
from deltalake import DeltaTable

from kafka_telemetry_lake.pipelines.lake.delta_log import TableLog
from kafka_telemetry_lake.pipelines.lake.fence import Fence
from kafka_telemetry_lake.pipelines.lake.notes import FencedNote
from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of
from kafka_telemetry_lake.pipelines.lake.stored_files import rows_in
from kafka_telemetry_lake.pipelines.lake.table_files import TableFiles
from kafka_telemetry_lake.pipelines.tables.table import Table


@dataclass(frozen=True)
class Lake:
    """A lake that this process reads or writes.

    It keeps no table open: an open one holds the list of all its files, and is only as new as when it was opened. A
    task is sent one without a lease, which can't be pickled: tasks write files, and the driver commits them.

    Attributes:
        uri: path or URI of its folder.
        fence: the lease under which this process commits; None: it needs none.
    """

    uri: str
    fence: Fence | None = None

    def has(self, table: Table) -> bool:
        """Whether there is such a table."""
        return bool(DeltaTable.is_deltatable(table.uri(self.uri)))

    def table(self, table: Table, version: int | None = None) -> DeltaTable:
        """A table at a version; None: the latest. Raises ``TableNotFoundError``: there is none."""
        return DeltaTable(table.uri(self.uri), version=version)

    def create(self, table: Table) -> DeltaTable:
        """A table at its latest version, created empty if it is missing (`Table.create`)."""
        return table.create(self.uri)

    def rows(self, table: Table, version: int | None = None) -> pads.Dataset:
        """The rows of `table`, not read yet."""
        return self.table(table, version).to_pyarrow_dataset()

    def rows_in(self, table: Table, files: pa.Table) -> pads.Dataset:
        """The rows in some files of a table (`stored_files.rows_in`)."""
        return rows_in(table.uri(self.uri), table.stored, files)

    def folder(self, table: Table) -> tuple[pafs.FileSystem, str]:
        """The file system of a table's files, and the path of its folder there."""
        return filesystem_of(table.uri(self.uri))

    def files(self, table: Table) -> TableFiles:
        """What writes rows to new files of a table."""
        return TableFiles(table, self.uri)

    def log(self, table: Table, opened: DeltaTable | None = None) -> TableLog:
        """What commits files to a table, under the lease. `opened`: the table, if it is open already."""
        return TableLog(table, self.uri, self.fence, opened)

    def note(self, table: Table, name: str, fields: Iterable[str], advice: str) -> FencedNote:
        """A note in a table's folder, written under the lease; the arguments are those of `FencedNote`."""
        return FencedNote(table.uri(self.uri), name, fields, advice, self.fence)
