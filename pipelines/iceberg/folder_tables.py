"""Iceberg tables in a folder, without a catalog's server: the highest of a table's metadata files counts.

The layout is that of Iceberg's file system tables (specification, "File System Tables"; `HadoopTables` in Iceberg's
Java library): ``<table>/metadata/v<N>.metadata.json``, and ``version-hint.text`` with a recent N. A commit is a file of
the next number, which is written only if there is none.
"""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pyarrow.fs as pafs
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from pyiceberg.manifest import read_manifest_list
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import TableRequirement, TableUpdate, update_table_metadata
from pyiceberg.typedef import Identifier

from kafka_telemetry_lake.pipelines.iceberg.places import HINT, location_of
from kafka_telemetry_lake.pipelines.lake.durable import sync
from kafka_telemetry_lake.pipelines.lake.log_files import NewFiles
from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of

VERSION = re.compile(r"v(\d+)\.metadata\.json")
GRACE_S = 600.0  # for readers that have begun: so long what a commit has replaced stays


class LakeFiles(PyArrowFileIO):
    """Files as the lake's other readers open them, by the same settings of the environment."""

    def __init__(self) -> None:
        super().__init__()
        self._written: list[str] = []

    def _initialize_fs(self, scheme: str, netloc: str | None = None) -> pafs.FileSystem:
        if scheme == "file":
            return super()._initialize_fs(scheme, netloc)
        return filesystem_of(f"{scheme}://{netloc}")[0]

    def new_output(self, location: str) -> PyArrowFile:
        self._written.append(location)
        return super().new_output(location)

    def sync(self) -> None:
        """Return when what was written is on the disk."""
        for location in self._written:
            filesystem, path = filesystem_of_location(location)
            sync(filesystem, [path])
        self._written.clear()


def filesystem_of_location(location: str) -> tuple[pafs.FileSystem, str]:
    """Arrow's file system for a location in Iceberg's metadata, which isn't percent-encoded, and the path in it."""
    return filesystem_of(location.removeprefix("file://"))


class FolderTables(NoopCatalog):
    """The Iceberg tables in a folder.

    Args:
        root: folder or URI; it needn't exist.
    """

    def __init__(self, root: str) -> None:
        super().__init__("folder")
        self._location = location_of(root)
        self.io = LakeFiles()

    def create(self, name: str, schema: Schema, spec: PartitionSpec, properties: dict[str, str]) -> Table:
        """Create a table without a snapshot, unless there is one."""
        metadata = new_table_metadata(schema, spec, UNSORTED_SORT_ORDER, f"{self._location}/{name}", properties)
        filesystem, folder = self._folder(name)
        filesystem.create_dir(folder, recursive=True)
        self._add(name, 1, metadata)
        self._point(name, 1)
        return self.load_table(name)

    def version(self, name: str) -> int | None:
        """The number of a table's metadata; None: there is no table."""
        return max(self._versions(name), default=None)

    def load_table(self, identifier: str | Identifier) -> Table:
        """The table as its highest metadata has it. A hint that a killed process has left behind is corrected."""
        (name,) = self.identifier_to_tuple(identifier)
        version = max(self._versions(name))
        if self._hint(name) != version:
            self._point(name, version)
        location = self._metadata_location(name, version)
        metadata = FromInputFile.table_metadata(self.io.new_input(location))
        return Table((name,), metadata, location, self.io, self)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Write the next metadata.

        Raises:
            CommitFailedException: another process has committed since the table was loaded.
        """
        (name,), base = table.name(), table.metadata
        for requirement in requirements:
            requirement.validate(base)
        metadata = update_table_metadata(base, updates, metadata_location=table.metadata_location)
        version = version_of(table) + 1
        self.io.sync()  # what the metadata names
        if not self._add(name, version, metadata):
            raise CommitFailedException(f"{table.metadata_location}: another process has committed after it")
        self._point(name, version)
        location = self._metadata_location(name, version)
        return CommitTableResponse.model_validate({"metadata": metadata, "metadata-location": location})

    def tidy(self, table: Table) -> int:
        """Delete metadata that no reader needs who began in the last ten minutes; returns how many files.

        These are files of expired snapshots and earlier metadata, and what killed processes have left.
        """
        (name,) = table.name()
        filesystem, folder = self._folder(name)
        times = {info.base_name: info.mtime_ns / 1e9 for info in self._files(name)}
        versions = sorted(self._versions(name))
        old = time.time() - GRACE_S
        replaced_at = {each: times[f"v{each + 1}.metadata.json"] for each in versions if each + 1 in versions}
        used = [each for each in versions if replaced_at.get(each, old) >= old]
        needed, lists = {HINT}, set[str]()
        for version in used:
            needed.add(f"v{version}.metadata.json")
            content = self._json(name, version)
            lists |= {snapshot["manifest-list"] for snapshot in content.get("snapshots", ())}
        for location in lists:
            needed.add(_base_name(location))
            for manifest in read_manifest_list(self.io.new_input(location)):
                needed.add(_base_name(manifest.manifest_path))
        unneeded = [each for each, at in times.items() if each not in needed and at < old]
        for each in unneeded:
            filesystem.delete_file(f"{folder}/{each}")
        return len(unneeded)

    def _folder(self, name: str) -> tuple[pafs.FileSystem, str]:
        return filesystem_of_location(f"{self._location}/{name}/metadata")

    def _files(self, name: str) -> list[pafs.FileInfo]:
        filesystem, folder = self._folder(name)
        entries = filesystem.get_file_info(pafs.FileSelector(folder, allow_not_found=True))
        return [entry for entry in entries if entry.type == pafs.FileType.File]

    def _versions(self, name: str) -> list[int]:
        return [int(match[1]) for entry in self._files(name) if (match := VERSION.fullmatch(entry.base_name))]

    def _metadata_location(self, name: str, version: int) -> str:
        return f"{self._location}/{name}/metadata/v{version}.metadata.json"

    def _add(self, name: str, version: int, metadata: TableMetadata) -> bool:
        """Write a metadata file, unless there is one of this version; returns whether it is there as given."""
        data = metadata.model_dump_json(exclude_none=True).encode()
        filesystem, folder = self._folder(name)
        uri = folder if isinstance(filesystem, pafs.LocalFileSystem) else f"{self._location}/{name}/metadata"
        # A store's answer may be lost: then its own file is found there.
        return NewFiles(uri).add(f"v{version}.metadata.json", data) or self._json(name, version) == json.loads(data)

    def _json(self, name: str, version: int) -> dict[str, Any]:
        with self.io.new_input(self._metadata_location(name, version)).open() as stream:
            content: dict[str, Any] = json.loads(stream.read())
        return content

    def _hint(self, name: str) -> int | None:
        filesystem, folder = self._folder(name)
        try:
            with filesystem.open_input_file(f"{folder}/{HINT}") as stream:
                return int(stream.read())
        except (FileNotFoundError, ValueError):
            return None

    def _point(self, name: str, version: int) -> None:
        """Let the hint name a version."""
        filesystem, folder = self._folder(name)
        path = f"{folder}/{HINT}"
        with filesystem.open_output_stream(f"{path}.tmp") as stream:
            stream.write(str(version).encode())
        sync(filesystem, [f"{path}.tmp"])
        filesystem.move(f"{path}.tmp", path)


def version_of(table: Table) -> int:
    """The number of a table's metadata file."""
    match = VERSION.fullmatch(_base_name(table.metadata_location))
    assert match is not None
    return int(match[1])


def _base_name(location: str) -> str:
    return location.rpartition("/")[2]
