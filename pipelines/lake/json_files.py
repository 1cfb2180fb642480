"""Small JSON files in the folders of tables and checkpoints.

In a table's folder their names begin with an underscore, because Delta readers and VACUUM ignore such names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow.fs as pafs

from kafka_telemetry_lake.pipelines.lake.durable import sync


def write_json(filesystem: pafs.FileSystem, path: str, content: Mapping[str, Any], *, durable: bool = True) -> None:
    """Write a file atomically: under a temporary name, then rename it.

    Args:
        durable: return when it is on the disk.
    """
    text = json.dumps(content)
    with filesystem.open_output_stream(f"{path}.tmp") as stream:
        stream.write(text.encode())
    if durable:
        sync(filesystem, [f"{path}.tmp"])
    filesystem.move(f"{path}.tmp", path)
    if durable:
        sync(filesystem, [path])


def read_json(filesystem: pafs.FileSystem, path: str) -> dict[str, Any] | None:
    """The content of a file; None if there is no file."""
    try:
        with filesystem.open_input_file(path) as stream:
            content: dict[str, Any] = json.loads(stream.read())
    except FileNotFoundError:
        return None
    return content
