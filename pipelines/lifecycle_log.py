"""Following a Delta table's log: which files each commit added, without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pafs
from deltalake import DeltaTable

from pipelines.delta_log import lake_uri
from pipelines.state_manifest import StateError


@dataclass(frozen=True)
class Commit:
    """The files that a commit added, by path below the table, and their rows. Files that replace others aren't new."""

    version: int
    files: tuple[str, ...]
    rows: int


class FollowedTable:
    """A table whose commits are read one after the other."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._filesystem, self._root = pafs.FileSystem.from_uri(lake_uri(uri))

    def commits(self, after: int, until: int | None = None) -> Iterator[Commit]:
        """Commits after a version, up to and with another.

        Raises:
            StateError: the log no longer has the next one.
        """
        version = after + 1
        while until is None or version <= until:
            actions = self._actions(version)
            if actions is None and until is None:
                if DeltaTable(self.uri).version() < version:
                    return
                actions = self._actions(version)  # it may have come since it was looked for
            if actions is None:
                raise StateError(
                    f"{self.uri}: version {version} is no longer in the table's log, which was not followed for "
                    "longer than it is kept: the lifecycle of clients can't be carried on. Delete the folder of "
                    "table client_changes to begin anew"
                )
            yield _commit(version, actions)
            version += 1

    def _actions(self, version: int) -> list[dict[str, dict[str, object]]] | None:
        """The actions of a commit; None: the log doesn't have it."""
        try:
            with self._filesystem.open_input_file(f"{self._root}/_delta_log/{version:020d}.json") as stream:
                return [json.loads(line) for line in stream.read().splitlines() if line.strip()]
        except FileNotFoundError:
            return None

    def read(self, files: list[str], schema: pa.Schema) -> pa.Table:
        """Columns of files; those that a file lacks are NULL."""
        if not files:
            return schema.empty_table()
        paths = [f"{self._root}/{file}" for file in files]
        return ds.dataset(paths, schema=schema, filesystem=self._filesystem, format="parquet").to_table()


def _commit(version: int, actions: list[dict[str, dict[str, object]]]) -> Commit:
    adds = [action["add"] for action in actions if "add" in action and action["add"].get("dataChange", True)]
    replaces = any("remove" in action and action["remove"].get("dataChange", True) for action in actions)
    if replaces:
        return Commit(version, (), 0)
    rows = sum(int(json.loads(str(add.get("stats") or "{}")).get("numRecords", 0)) for add in adds)
    return Commit(version, tuple(unquote(str(add["path"])) for add in adds), rows)
