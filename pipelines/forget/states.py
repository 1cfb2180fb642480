"""Rewrites the operator's state files without the rows of an erased client or principal.

A state file is never overwritten, since workers map it. So the others' rows go to a new file, then each manifest and
snapshot names that one, then the old file goes. After a crash in between, the next run does the rest.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pyarrow.fs as pafs
import xxhash

from kafka_telemetry_lake.pipelines.lake.durable import sync, write_json
from kafka_telemetry_lake.pipelines.lake.errors import StateError
from kafka_telemetry_lake.pipelines.lake.notes import CHECKSUM, sealed
from kafka_telemetry_lake.pipelines.state.manifest import REBUILD
from kafka_telemetry_lake.udfs.conversion.state import (
    SCHEMAS,
    DamagedStateError,
    ShardState,
    write_tables,
)
from kafka_telemetry_lake.udfs.errors import OtherFormatError
from kafka_telemetry_lake.udfs.kernels.arrays import Int64s, column

Sizes = list[tuple[int, int]]


def forget_in_states(
    filesystem: pafs.FileSystem, folders: Sequence[str], keys: Int64s, erasure: str, write: bool
) -> Sizes:
    """Remove clients and budgets from all state files.

    Args:
        folders: that of the state, then those of snapshots, which name its files too.
        keys: of `Subject.keys`.
        erasure: makes the names of new files.
        write: False: only look.

    Returns:
        For each file that had rows of them, its size in bytes before and after; in a dry run both are the same.

    Raises:
        StateError: a state file is damaged; all others are rewritten.
    """
    folder, new = folders[0], dict[str, str]()
    sizes: Sizes = []
    damaged: list[str] = []
    entries = filesystem.get_file_info(pafs.FileSelector(folder, allow_not_found=True))
    for entry in sorted(entries, key=lambda entry: entry.base_name):
        if entry.extension != "state":
            continue
        try:
            state = _read(filesystem, entry.path)
        except (DamagedStateError, OtherFormatError):
            damaged.append(entry.base_name)
            continue
        if any(np.isin(column(getattr(state, name), "client"), keys).any() for name in SCHEMAS):
            new[entry.base_name] = _new_name(entry.base_name, erasure)
            size = entry.size
            if write:
                size = _write(filesystem, f"{folder}/{new[entry.base_name]}", state.without(keys))
            sizes.append((entry.size, size))
    if write and new:
        for each in folders:
            _rename(filesystem, each, new)
        for name in new:
            filesystem.delete_file(f"{folder}/{name}")
    if damaged:
        raise StateError(
            f"state file {damaged[0]} below {folder} is damaged, so what it has can't be erased. Run `{REBUILD}`, then "
            "the same command again"
        )
    return sizes


def _new_name(name: str, erasure: str) -> str:
    """``shard-<shard>-batch-<batch>-<eight hex digits>.state`` with other digits."""
    return f"{name.rpartition('-')[0]}-{xxhash.xxh3_64_hexdigest(f'{erasure}{name}'.encode())[:8]}.state"


def _read(filesystem: pafs.FileSystem, path: str) -> ShardState:
    with filesystem.open_input_file(path) as stream:
        return ShardState.from_bytes(stream.read_buffer(), path.rpartition("/")[2])


def _write(filesystem: pafs.FileSystem, path: str, state: ShardState) -> int:
    with filesystem.open_output_stream(f"{path}.part") as stream:
        write_tables(stream, ((each, getattr(state, each)) for each in SCHEMAS), path.rpartition("/")[2])
        size = int(stream.tell())
    sync(filesystem, [f"{path}.part"])
    filesystem.move(f"{path}.part", path)
    return size


def _rename(filesystem: pafs.FileSystem, folder: str, new: dict[str, str]) -> None:
    """Let manifests and snapshots name the new files. A damaged one stays as it is: no batch starts from it."""
    for entry in filesystem.get_file_info(pafs.FileSelector(folder)):
        if entry.extension != "json":
            continue
        with filesystem.open_input_file(entry.path) as stream:
            data = stream.read()
        try:
            content = json.loads(data)
            states = content["states"]
            plain = {name: value for name, value in content.items() if name != CHECKSUM}
            if content[CHECKSUM] != sealed(plain)[CHECKSUM]:
                continue
            renamed = {shard: [new.get(name, name) for name in names] for shard, names in states.items()}
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
        if renamed != states:
            plain["states"] = renamed
            write_json(filesystem, entry.path, sealed(plain))
