"""The next rows of a followed table, in steps of bounded size, and a note of how far all is read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
from deltalake.exceptions import DeltaError

from kafka_telemetry_lake.pipelines.lake.errors import StateError
from kafka_telemetry_lake.pipelines.lake.followed_table import Commit, FollowedTable
from kafka_telemetry_lake.pipelines.lake.json_files import write_json
from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of
from kafka_telemetry_lake.pipelines.state.notes import DamagedNoteError, read_note, sealed
from kafka_telemetry_lake.pipelines.tables.operator import METRIC_POINTS
from kafka_telemetry_lake.udfs.errors import TelemetryLakeError

FOLDER = "_export"  # in that of table metric_points
READ_ERRORS = (TelemetryLakeError, DeltaError, duckdb.Error, OSError, pa.ArrowException)  # of a look at the lake


class Step(NamedTuple):
    """Rows of the commits from version `first` to `last`."""

    first: int
    last: int
    rows: pa.Table


def next_step(
    table: FollowedTable, after: int, schema: pa.Schema, most_bytes: int, needed: pc.Expression | None = None
) -> Step | None:
    """The rows of the commits after a version; None: there is no commit.

    Args:
        most_bytes: of files; the commit that reaches it is the last.
        needed: condition of the rows.

    Raises:
        LogGapError, FileNotFoundError: the log has forgotten the next commit, or its files are gone.
    """
    commits, size = list[Commit](), 0
    for commit in table.commits(after):
        commits.append(commit)
        size += commit.size
        if size >= most_bytes:
            break
    if not commits:
        return None
    files = [file for commit in commits for file in commit.files]
    rows = table.dataset(files, schema).to_table(filter=needed) if files else schema.empty_table()
    return Step(commits[0].version, commits[-1].version, rows)


class PositionNote:
    """A JSON file with a checksum in the folder of table `metric_points`; each exporter of a lake has its own.

    Args:
        lost: what follows from its loss, for the error of a damaged one.
    """

    def __init__(self, lake: str, name: str, fields: Iterable[str], lost: str) -> None:
        self._filesystem, folder = filesystem_of(f"{METRIC_POINTS.uri(lake)}/{FOLDER}")
        self._filesystem.create_dir(folder)
        self._path, self._fields, self._lost = f"{folder}/{name}.json", tuple(fields), lost

    def write(self, *values: Any) -> None:
        """Write the values of the fields; they are on the disk then."""
        write_json(self._filesystem, self._path, sealed(dict(zip(self._fields, values, strict=True))))

    def read(self) -> dict[str, Any] | None:
        """The fields; None: there is no note.

        Raises:
            StateError: it is damaged.
            OtherFormatError: it has another format.
        """
        if self._filesystem.get_file_info(self._path).type == pafs.FileType.NotFound:
            return None
        with self._filesystem.open_input_file(self._path) as stream:
            data = stream.read()
        try:
            return read_note(
                data, self._fields, self._path, f"delete it, and {self._lost}, or use the build that wrote it"
            )
        except DamagedNoteError as error:
            raise self.damaged(error) from None

    def damaged(self, error: Exception) -> StateError:
        """The error to raise for a note that can't be used."""
        return StateError(f"{self._path} is damaged ({error}): delete it, and {self._lost}")
