"""Reads the commits of a Delta table one by one, without Spark: which files each one added."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pafs
from deltalake import DeltaTable

from kafka_telemetry_lake.pipelines.lake.erased_files import replaced_files
from kafka_telemetry_lake.pipelines.lake.errors import LogGapError
from kafka_telemetry_lake.pipelines.lake.held_shards import TAG, HeldShards
from kafka_telemetry_lake.pipelines.lake.log_files import Action, LogFiles
from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of


@dataclass(frozen=True)
class Commit:
    """The files that a commit added, as paths below the table, their row count and their size in bytes.

    A commit that replaces files (compaction, for example) has no added files here. Of pushes, `held` says for a path
    which shards the file holds, if that is known.
    """

    version: int
    files: tuple[str, ...]
    rows: int
    size: int
    held: dict[str, HeldShards] = field(default_factory=dict)


class FollowedTable:
    """A table whose commits are read one after the other."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._filesystem, self._root = filesystem_of(uri)
        self._log = LogFiles(uri)
        self._replaced: dict[str, str] | None = None

    def commits(self, after: int, until: int | None = None) -> Iterator[Commit]:
        """The commits after version `after`, up to and including `until` (None: up to the latest).

        In place of a file that an erasure has replaced since, a commit has the one without the erased rows.

        Raises:
            LogGapError: the log no longer has the next commit, or it ends before version `after`.
        """
        replaced, version = self._erased(), after + 1
        while until is None or version <= until:
            actions = self._log.read(version)
            if actions is None and until is None:
                checkpoint = self._log.checkpoint()
                if (DeltaTable(self.uri).version() if checkpoint is None else checkpoint) < version:
                    if version == after + 1 and checkpoint is not None and checkpoint < after and not self.has(after):
                        raise LogGapError(f"{self.uri}: the table ends before version {after}")
                    return
                actions = self._log.read(version)  # the commit may have been written after the first look
            if actions is None:
                raise LogGapError(f"{self.uri}: version {version} is no longer in the table's log")
            yield _commit(version, actions, replaced)
            version += 1

    def has(self, version: int) -> bool:
        """Whether the log has the commit of a version. It is cheaper than `commits`, which sees gaps, too."""
        return self._log.has(version)

    def read(self, files: list[str], schema: pa.Schema) -> pa.Table:
        """Read columns of files. A column that a file lacks is NULL."""
        return self.dataset(files, schema).to_table() if files else schema.empty_table()

    def dataset(self, files: list[str], schema: pa.Schema) -> ds.Dataset:
        """Columns of files, not read yet. A column that a file lacks is NULL.

        A file that an erasure has replaced since it was noted is read without the erased rows.
        """
        replaced = self._erased()
        paths = [f"{self._root}/{replaced.get(file, file)}" for file in files]
        return ds.dataset(paths, schema=schema, filesystem=self._filesystem, format="parquet")

    def missing(self, files: Sequence[str]) -> str | None:
        """The first of these files that was deleted: its rows were merged into another one, or dropped."""
        replaced = self._erased()
        paths = [f"{self._root}/{replaced.get(file, file)}" for file in files]
        found = self._filesystem.get_file_info(paths) if paths else []
        return next((info.path for info in found if info.type == pafs.FileType.NotFound), None)

    def _erased(self) -> dict[str, str]:
        """The files that erasures have replaced: none meanwhile, since they wait for the job's end."""
        if self._replaced is None:
            self._replaced = replaced_files(self.uri)
        return self._replaced


def _commit(version: int, actions: Sequence[Action], replaced: Mapping[str, str]) -> Commit:
    adds = [action["add"] for action in actions if "add" in action and action["add"].get("dataChange", True)]
    replaces = any("remove" in action and action["remove"].get("dataChange", True) for action in actions)
    if replaces:
        return Commit(version, (), 0, 0)
    rows = sum(int(json.loads(str(add.get("stats") or "{}")).get("numRecords", 0)) for add in adds)
    size = sum(int(str(add["size"])) for add in adds)
    names = [unquote(str(add["path"])) for add in adds]
    paths = tuple(replaced.get(name, name) for name in names)
    tags = [(add.get("tags") or {}).get(TAG) for add in adds]
    held = {path: HeldShards.from_json(tag) for path, tag in zip(paths, tags, strict=True) if tag is not None}
    return Commit(version, paths, rows, size, held)
