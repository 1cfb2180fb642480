"""A store in memory whose every access is a step that an explorer can schedule.

The code under test gets its file system, Delta tables and conditional writes from here. What it asks for are plain
tuples (`Step`); whoever runs the code answers them (`answering`), from a `Disk` or from what was recorded.
"""

from __future__ import annotations

import io
import itertools
import json
import random
import re
import sys
import types
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.fs as pafs
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction

from kafka_telemetry_lake.pipelines.lake import fence, paths

Step = tuple[Any, ...]  # verb, path, and what the verb needs
LOG = "/_delta_log/"
MISSING = "missing"  # the answer for a file that isn't there

_KEYS: dict[tuple[str, bytes], int] = {}
_RANDOM = random.Random(0)  # numbers of files in the key of a disk


class Disk:
    """Files by path; `key` is equal for equal contents (Zobrist hashing, 96 bits)."""

    __slots__ = ("files", "key")

    def __init__(self, files: dict[str, bytes] | None = None, key: int = 0) -> None:
        self.files, self.key = files or {}, key

    def changed(self, changes: dict[str, bytes | None]) -> Disk:
        """Another disk, where these files have these contents; None: they are gone."""
        files, key = dict(self.files), self.key
        for path, data in changes.items():
            if (old := files.pop(path, None)) is not None:
                key ^= _key(path, old)
            if data is not None:
                files[path] = data
                key ^= _key(path, data)
        return Disk(files, key)


def _key(path: str, data: bytes) -> int:
    return _KEYS.setdefault((path, data), _RANDOM.getrandbits(96))


def carry_out(disk: Disk, step: Step) -> tuple[Any, Disk]:  # noqa: PLR0911  # a line for each verb
    """Do a step; returns its answer, and the disk after it."""
    verb, path, *more = step
    files = disk.files
    match verb:
        case "read":
            return files.get(path, MISSING), disk
        case "list":
            return _listed(files, path, recursive=more[0]), disk
        case "open":  # a table, by its log
            return log_of(disk, path), disk
        case "put":
            return None, disk.changed({path: more[0]})
        case "create":
            return (False, disk) if path in files else (True, disk.changed({path: more[0]}))
        case "move" | "copy":
            if path not in files:
                return MISSING, disk
            changes: dict[str, bytes | None] = {path: None} if verb == "move" else {}
            return None, disk.changed(changes | {more[0]: files[path]})
        case "delete":
            return (None, disk.changed({path: None})) if path in files else (MISSING, disk)
        case "delete_folder":
            return None, disk.changed(dict.fromkeys(name for name in files if name.startswith(f"{path}/")))
    raise AssertionError(step)


def log_of(disk: Disk, table: str) -> tuple[tuple[str, bytes], ...]:
    """The commits of a table, in their order: path and content."""
    prefix, files = table + LOG, disk.files
    return tuple(
        (path, files[path])
        for path in sorted(path for path in files if path.startswith(prefix) and path[-5:] == ".json")
    )


def _listed(files: dict[str, bytes], folder: str, *, recursive: bool) -> tuple[tuple[str, int], ...]:
    """Paths and sizes; size -1: a folder."""
    found, prefix = {}, f"{folder}/"
    for path in [path for path in files if path.startswith(prefix)]:
        end = -1 if recursive else path.find("/", len(prefix))
        if end < 0:
            found[path] = len(files[path])
        else:
            found[path[:end]] = -1
    return tuple(sorted(found.items()))


_ask: Callable[[Step], Any] | None = None
_name = "setup"
_names = itertools.count()


def ask(*step: Any) -> Any:
    """The answer to a step of the process that runs."""
    assert _ask is not None, f"{step}: no process runs"
    return _ask(step)


@contextmanager
def answering(name: str, answer: Callable[[Step], Any]) -> Iterator[None]:
    """Run a process of this name, which is part of every random name that it makes, with its steps answered."""
    global _ask, _name, _names  # noqa: PLW0603  # one process runs at a time
    _ask, _name, _names = answer, name, itertools.count()
    try:
        yield
    finally:
        _ask = None


class _Uuid(str):
    __slots__ = ()

    @property
    def hex(self) -> str:
        return str(self)


def process_name() -> str:
    """Of the process that runs."""
    return _name


def _new_name() -> _Uuid:
    return _Uuid(f"{_name}-{next(_names)}")


class Files:
    """What the code under test uses of Arrow's file systems. A name is written in one step, as in an object store."""

    def get_file_info(self, of: Any) -> Any:
        if isinstance(of, pafs.FileSelector):
            return [_info(path, size) for path, size in ask("list", of.base_dir, of.recursive)]
        if isinstance(of, list):
            return [self.get_file_info(path) for path in of]
        data = ask("read", of)
        return pafs.FileInfo(of, pafs.FileType.NotFound) if data == MISSING else _info(of, len(data))

    def create_dir(self, path: str, *, recursive: bool = True) -> None:
        """Folders are in the paths of their files."""

    def open_input_file(self, path: str) -> io.BytesIO:
        if (data := ask("read", path)) == MISSING:
            raise FileNotFoundError(path)
        return io.BytesIO(data)

    @contextmanager
    def open_output_stream(self, path: str) -> Iterator[io.BytesIO]:
        stream = io.BytesIO()
        yield stream
        ask("put", path, stream.getvalue())

    def move(self, path: str, to: str) -> None:
        if ask("move", path, to) == MISSING:
            raise FileNotFoundError(path)

    def copy_file(self, path: str, to: str) -> None:
        if ask("copy", path, to) == MISSING:
            raise FileNotFoundError(path)

    def delete_file(self, path: str) -> None:
        if ask("delete", path) == MISSING:
            raise FileNotFoundError(path)

    def delete_dir(self, path: str) -> None:
        ask("delete_folder", path)


def _info(path: str, size: int) -> pafs.FileInfo:
    is_folder = size < 0
    return pafs.FileInfo(
        path, pafs.FileType.Directory if is_folder else pafs.FileType.File, size=None if is_folder else size
    )


FILES = Files()


def path_in(uri: str) -> str:
    """The path in the store of a URI, or of a local path."""
    return re.sub(r"^(\w+:)?/+", "", uri).rstrip("/")


def _filesystem_of(path: str) -> tuple[Files, str]:
    return FILES, path_in(path)


FILES_OF = pa.schema([("path", pa.string()), ("size_bytes", pa.int64()),
                      ("partition", pa.struct([("landed_date", pa.string())]))])  # fmt: skip


class Delta:
    """What the code under test uses of `deltalake.DeltaTable`: the log as it is when the table is opened."""

    def __init__(self, uri: str, version: int | None = None, **_: Any) -> None:
        self._table = path_in(uri)
        self._log = ask("open", self._table)[: None if version is None else version + 1]
        self._actions = actions_of(self._log)

    @staticmethod
    def is_deltatable(uri: str) -> bool:
        return bool(ask("open", path_in(uri)))

    def version(self) -> int:
        return len(self._log) - 1

    def transaction_version(self, app_id: str) -> int | None:
        return transaction_version(self._actions, app_id)

    def count(self) -> int:
        return sum(json.loads(add["stats"])["numRecords"] for add in active_files(self._actions).values())

    def metadata(self) -> Any:
        return types.SimpleNamespace(id=self._log[0][0], configuration={}, partition_columns=())

    def schema(self) -> None:
        """No column matters."""

    def protocol(self) -> Any:
        return types.SimpleNamespace(writer_features=[], min_writer_version=2)

    def get_add_actions(self) -> pa.Table:
        rows = [
            {"path": add["path"], "size_bytes": add["size"], "partition": add["partitionValues"]}
            for add in active_files(self._actions).values()
        ]
        return pa.Table.from_pylist(rows, FILES_OF)

    def create_checkpoint(self) -> None:
        """A log has all its entries here."""

    def create_write_transaction(
        self, actions: Sequence[AddAction | RemoveAction], *, commit_properties: CommitProperties, **_: Any
    ) -> None:
        """A commit as delta-rs makes it: of the version after the one read, or a later one if nothing conflicts."""
        own = {each.app_id: each.version for each in commit_properties.app_transactions or ()}
        content: list[dict[str, Any]] = [{"txn": {"appId": name, "version": n}} for name, n in own.items()]
        removed = {each.path for each in actions if isinstance(each, RemoveAction)}
        for each in actions:
            fields = {
                "path": each.path, "size": each.size, "partitionValues": each.partition_values,
                "dataChange": each.data_change,
            }  # fmt: skip
            content.append(
                {"add": fields | {"stats": each.stats}} if isinstance(each, AddAction) else {"remove": fields}
            )
        content.append({"commitInfo": {"txnId": _new_name()}})
        data = "\n".join(json.dumps(action) for action in content).encode()
        version = len(self._log)
        while not ask("create", path := f"{self._table}{LOG}{version:020d}.json", data):
            for action in _commit(ask("read", path)):
                if action.get("txn", {}).get("appId") in own or action.get("remove", {}).get("path") in removed:
                    raise CommitFailedError(f"{self._table}: a conflicting commit")
            version += 1


def actions_of(log: Any) -> list[dict[str, Any]]:
    """The actions of the commits of a log, in their order."""
    return [action for _, data in log for action in _commit(data)]


@cache
def _commit(data: bytes) -> tuple[dict[str, Any], ...]:
    return tuple(json.loads(line) for line in data.splitlines())


def transaction_version(actions: list[dict[str, Any]], app_id: str) -> int | None:
    """The last version of an application."""
    versions = [each["txn"]["version"] for each in actions if "txn" in each and each["txn"]["appId"] == app_id]
    return versions[-1] if versions else None


def active_files(actions: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The files that readers of the table read: their `add` by path."""
    active = {}
    for action in actions:
        if "add" in action:
            active[action["add"]["path"]] = action["add"]
        elif "remove" in action:
            active.pop(action["remove"]["path"], None)
    return active


class AlreadyExistsError(Exception):
    """As that of obstore."""


def _obstore() -> types.ModuleType:
    module, store = types.ModuleType("obstore"), types.ModuleType("obstore.store")

    def put(folder: str, name: str, data: bytes, *, mode: str) -> None:
        assert mode == "create"
        if not ask("create", f"{folder}/{name}", data):
            raise AlreadyExistsError

    module.put = put  # type: ignore[attr-defined]  # a module of its own
    module.exceptions = types.SimpleNamespace(AlreadyExistsError=AlreadyExistsError)  # type: ignore[attr-defined]  # a module of its own
    module.store = store  # type: ignore[attr-defined]  # a module of its own
    store.from_url = path_in  # type: ignore[attr-defined]  # a module of its own
    return module


@contextmanager
def in_memory() -> Iterator[None]:
    """Let the loaded modules of the project work on a store in memory, with names and times that don't vary."""
    real = {"filesystem_of": (paths.filesystem_of, _filesystem_of), "DeltaTable": (DeltaTable, Delta)}
    obstore = _obstore()
    changed = []
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("kafka_telemetry_lake."):
            for name, (original, replacement) in real.items():
                if module.__dict__.get(name) is original:
                    changed.append((module, name, original))
                    setattr(module, name, replacement)
    try:
        with (
            patch.dict(sys.modules, {"obstore": obstore, "obstore.store": obstore.store}),
            patch.object(uuid, "uuid4", _new_name),
            patch.object(fence, "lost_race", lambda _: None),  # it has threads of its own; this store decides
        ):
            yield
    finally:
        for module, name, original in changed:
            setattr(module, name, original)
