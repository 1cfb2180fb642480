"""Erases a client instance or a principal from every file of a lake.

A note in the lake's folder `_forget` says what is being erased, from before the first change until after the last. Each
step can be repeated, so a run that was killed at any point is finished by the next one.
"""

from __future__ import annotations

import logging
import shlex
import uuid
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs
from deltalake import DeltaTable

from kafka_telemetry_lake.pipelines.forget.files import Rewritten, TableFolder
from kafka_telemetry_lake.pipelines.forget.history import commit, rename_in_list
from kafka_telemetry_lake.pipelines.forget.others import OtherFiles
from kafka_telemetry_lake.pipelines.forget.states import forget_in_states
from kafka_telemetry_lake.pipelines.forget.subject import Request, Subject, subject_of
from kafka_telemetry_lake.pipelines.iceberg.places import FOLDER as ICEBERG
from kafka_telemetry_lake.pipelines.lake.checkpoint_folders import checkpoints_of
from kafka_telemetry_lake.pipelines.lake.durable import read_json, write_json
from kafka_telemetry_lake.pipelines.lake.erased_files import ErasedFiles, replaced_files
from kafka_telemetry_lake.pipelines.lake.fence import Fence
from kafka_telemetry_lake.pipelines.lake.paths import absolute_uri, checkpoints_root, filesystem_of
from kafka_telemetry_lake.pipelines.tables.table import table_uri
from kafka_telemetry_lake.udfs.errors import check_format

log = logging.getLogger(__name__)

NOTES = "_forget"  # the lake's folder with a note for each erasure under way
FORMAT = 1  # of the notes
LOG = "_delta_log"
THREADS = 4  # that look into files
NOT_OTHERS = (".parquet", ".state", ".lock", ".crc", ".part")
STATE, OTHERS = "operator's state", "other files"  # in a report, besides the names of tables


@dataclass
class Removed:
    """What was removed from a table, the state or the other files.

    Attributes:
        rows: that the table's latest version had.
        changed_rows: rows of others, in which a mention was replaced.
        files: that were rewritten, those of earlier versions included.
        bytes_before, bytes_after: size of the files; the same in a dry run.
    """

    name: str
    rows: int = 0
    changed_rows: int = 0
    files: int = 0
    bytes_before: int = 0
    bytes_after: int = 0

    def __bool__(self) -> bool:
        return bool(self.files)


@dataclass
class ErasureNote:
    """An erasure under way.

    Attributes:
        erasure: eight hex digits, with which the names of new files end.
        begun: UTC, ISO 8601.
        removed: what is done, by name.
        counted: files that `removed` counts already, by name: after a crash a step runs again.
        files: new file of each old one, by table.
        versions: of the tables that have a commit of the erasure.
        checkpoints: the folder that was given for the lake's checkpoints; None: the one inside the lake.
    """

    request: Request
    subject: Subject
    erasure: str
    begun: str
    removed: dict[str, Removed] = field(default_factory=dict)
    counted: dict[str, list[str]] = field(default_factory=dict)
    files: dict[str, dict[str, str]] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    checkpoints: str | None = None
    format: int = FORMAT


class Erasure:
    """Erasures of one lake. No job, upkeep or other erasure may run meanwhile.

    Args:
        lake: folder or URI of the lake.
        checkpoints: the folder given for its checkpoints; None: the one inside the lake.
        write: False: a dry run, which changes nothing.
        fence: the lease under which the lake is written.

    Raises:
        OtherFormatError: the note of an erasure has another format.
    """

    def __init__(
        self, lake: str, checkpoints: str | None = None, write: bool = True, fence: Fence | None = None
    ) -> None:
        self._lake, self._write, self._fence = lake.rstrip("/"), write, fence
        given, inside = (checkpoints_root(lake, each) for each in (checkpoints, None))
        is_inside = absolute_uri(given) == absolute_uri(inside)
        self._elsewhere = None if is_inside else given if "://" in given else str(Path(given).resolve())
        self._filesystem, self._root = filesystem_of(self._lake)
        self._checkpoints = checkpoints_of(lake, checkpoints).rstrip("/")
        self._notes = f"{self._root}/{NOTES}"

    def under_way(self) -> list[Request]:
        """The erasures that were begun and are not finished, oldest first."""
        return [note.request for note in self.notes()]

    def notes(self) -> list[ErasureNote]:
        """The notes of the erasures that are not finished, oldest first."""
        return sorted(self._read_notes(), key=lambda note: note.begun)

    def forget(self, request: Request, personal_data_key: str = "") -> list[Removed]:
        """Erase what is requested, or finish its erasure.

        Args:
            personal_data_key: with which the lake's pseudonyms were made; empty: it has none.

        Returns:
            What was removed: an entry for each table, one for the state, one for the other files. Together with what
            interrupted runs have removed.

        Raises:
            StateError: a state file is damaged.
            FencedError: another job has taken over the lake; the erasure isn't finished.
        """
        known = [note for note in self._read_notes() if note.request == request]
        note = known[0] if known else ErasureNote(
            request, Subject(request.cluster_id), uuid.uuid4().hex[:8], datetime.now(UTC).isoformat(),
            checkpoints=self._elsewhere,
        )  # fmt: skip
        # A client may have pushed again since the erasure began.
        note.subject |= subject_of(self._lake, request, personal_data_key)
        self._save(note)
        files = _files_below(self._filesystem, self._root)
        tables = _by_table(files)
        for name, paths in tables.items():
            self._forget_in_table(note, name, paths)
        if self._write and any(note.files.values()):
            # The logs of all tables: one may have statistics of files that are gone already.
            for name in tables.keys() - note.versions.keys():
                note.versions[name] = commit(table_uri(self._lake, name), (), self._fence)
                self._save(note)
        self._forget_in_state(note)
        self._forget_elsewhere(note, files)
        if self._write:
            if self._fence is not None:  # a job that took over meanwhile may have copied the state as it was
                self._fence.check()
            if any(note.files.values()):
                now = datetime.now(UTC).isoformat()
                ErasedFiles(note.erasure, now, None, note.versions, note.files).write(self._lake)
            self._delete(f"{self._path(note)}.tmp")
            self._delete(self._path(note))
            if not self._read_notes():  # what a killed run has left of one may be there
                for entry in self._filesystem.get_file_info(pafs.FileSelector(self._notes, allow_not_found=True)):
                    self._delete(entry.path)
        return list(note.removed.values())

    def _forget_in_table(self, note: ErasureNote, name: str, paths: Sequence[str]) -> None:
        uri = table_uri(self._lake, name)
        table = DeltaTable(uri)
        bounded = (table.metadata().configuration or {}).get("delta.dataSkippingStatsColumns") or ""
        _, root = filesystem_of(uri)
        folder = TableFolder(
            self._filesystem, name, root, note.subject, note.erasure, [each for each in bounded.split(",") if each]
        )
        replaced = replaced_files(uri)  # which wait for their end
        paths = [path for path in paths if path not in replaced]
        with ThreadPoolExecutor(THREADS) as threads:
            found = dict(zip(paths, threads.map(folder.find, paths), strict=True))
        found = {path: counts for path, counts in found.items() if any(counts)}
        active = {unquote(path) for path in pa.table(table.get_add_actions())["path"].to_pylist()}
        done, counted = note.removed.setdefault(name, Removed(name)), note.counted.setdefault(name, [])
        new = [path for path in found if path not in counted]
        counted += new
        done.rows += sum(found[path].erased for path in new if path in active)
        done.changed_rows += sum(found[path].changed for path in new if path in active)
        done.files += len(new)
        done.bytes_before += sum(self._filesystem.get_file_info(f"{root}/{path}").size for path in new)
        if not self._write:
            done.bytes_after = done.bytes_before
            return
        if not found:
            return
        files = [folder.rewrite(path) for path in found]
        done.bytes_after += sum(file.size for file in files if file.old in new)
        note.files.setdefault(name, {}).update({file.old: file.new for file in files})
        self._save(note)
        note.versions[name] = commit(uri, files, self._fence)
        self._rename_in_snapshots(name, files)
        self._save(note)
        log.info("forget: %s: %d rows, %d files", name, done.rows, done.files)

    def _rename_in_snapshots(self, name: str, files: Sequence[Rewritten]) -> None:
        """Let the lists of files that the state's snapshots have name the new ones."""
        filesystem, root = filesystem_of(f"{self._checkpoints}/points-snapshots")
        lists = [
            f"{folder.path}/{name}.parquet"
            for folder in filesystem.get_file_info(pafs.FileSelector(root, allow_not_found=True))
        ]
        there = [info.path for info in filesystem.get_file_info(lists) if info.type == pafs.FileType.File]
        for path in there:
            rename_in_list(filesystem, path, files)

    def _forget_in_state(self, note: ErasureNote) -> None:
        filesystem, root = filesystem_of(self._checkpoints)
        notes = [f"{root}/points-state"]
        for entry in filesystem.get_file_info(pafs.FileSelector(f"{root}/points-snapshots", allow_not_found=True)):
            if entry.type == pafs.FileType.Directory:
                notes.append(entry.path)
        done = note.removed.setdefault(STATE, Removed(STATE))
        sizes = forget_in_states(filesystem, notes, note.subject.keys, note.erasure, self._write)
        done.files += len(sizes)
        done.bytes_before += sum(before for before, _ in sizes)
        done.bytes_after += sum(after for _, after in sizes)
        self._save(note)

    def _forget_elsewhere(self, note: ErasureNote, files: Iterable[str]) -> None:
        done = note.removed.setdefault(OTHERS, Removed(OTHERS))
        places = [(self._filesystem, self._root, files)]
        filesystem, root = filesystem_of(self._checkpoints)
        if not f"{root}/".startswith(f"{self._root}/"):
            places.append((filesystem, root, _files_below(filesystem, root)))
        for filesystem, root, paths in places:
            other = OtherFiles(filesystem, note.subject)
            for path in paths:
                parts = path.split("/")
                if (
                    parts[0] not in (NOTES, ICEBERG)  # its manifests name files and times, and no text of a row
                    and LOG not in parts
                    and not path.endswith(NOT_OTHERS)
                    and (other.forget(f"{root}/{path}", self._write))
                ):
                    done.files += 1

    def _delete(self, path: str) -> None:
        if self._filesystem.get_file_info(path).type == pafs.FileType.File:
            self._filesystem.delete_file(path)

    def _path(self, note: ErasureNote) -> str:
        return f"{self._notes}/{note.erasure}.json"

    def _save(self, note: ErasureNote) -> None:
        if self._write:
            self._filesystem.create_dir(self._notes)
            write_json(self._filesystem, self._path(note), asdict(note) | {"subject": note.subject.to_json()})

    def _read_notes(self) -> list[ErasureNote]:
        notes = []
        for entry in self._filesystem.get_file_info(pafs.FileSelector(self._notes, allow_not_found=True)):
            content = read_json(self._filesystem, entry.path) if entry.extension == "json" else None
            if content is not None:
                check_format(
                    entry.path,
                    content.get("format"),
                    FORMAT,
                    "finish the erasure with the build that has begun it, whose `telemetry-lake doctor` says how",
                )
                content["request"] = Request(**content["request"])
                content["subject"] = Subject.from_json(content["subject"])
                content["removed"] = {name: Removed(**each) for name, each in content["removed"].items()}
                notes.append(ErasureNote(**content))
        return notes


def unfinished(lake: str) -> dict[Request, str]:
    """The erasures of a lake that were begun and are not finished, oldest first, and the command that finishes each."""
    return {note.request: _finishing_command(lake, note) for note in Erasure(lake, write=False).notes()}


def _finishing_command(lake: str, note: ErasureNote) -> str:
    request = note.request
    flags = {
        "client-instance": request.client_instance,
        "principal": request.principal,
        "cluster-id": request.cluster_id,
        "checkpoints": note.checkpoints,
    }
    words = [f"--{name}={value}" for name, value in flags.items() if value is not None]
    return shlex.join(["telemetry-lake", "forget", "--lake", lake, *words])


def _files_below(filesystem: pafs.FileSystem, root: str) -> list[str]:
    """All files below a folder, as paths below it."""
    entries = filesystem.get_file_info(pafs.FileSelector(root, recursive=True, allow_not_found=True))
    return sorted(entry.path[len(root) :].strip("/") for entry in entries if entry.type == pafs.FileType.File)


def _by_table(files: Iterable[str]) -> dict[str, list[str]]:
    """The Parquet files of each table, as paths below it. A table is a folder with a log."""
    files = list(files)
    tables: dict[str, list[str]] = {path.partition("/")[0]: [] for path in files if path.split("/")[1:2] == [LOG]}
    for path in files:
        name, _, rest = path.partition("/")
        if name in tables and rest.endswith(".parquet") and not rest.startswith(f"{LOG}/"):
            tables[name].append(rest)
    return tables
