"""Small JSON files in the folders of tables and checkpoints.

In a table's folder their names begin with an underscore, because Delta readers and VACUUM ignore such names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow.fs as pafs


def write_json(filesystem: pafs.FileSystem, path: str, content: Mapping[str, Any]) -> None:
    """Write a file atomically: under a temporary name, then rename it."""
    text = json.dumps(content)
    with filesystem.open_output_stream(f"{path}.tmp") as stream:
        stream.write(text.encode())
    filesystem.move(f"{path}.tmp", path)


def read_json(filesystem: pafs.FileSystem, path: str) -> dict[str, Any] | None:
    """The content of a file; None if there is no file."""
    try:
        with filesystem.open_input_file(path) as stream:
            content: dict[str, Any] = json.loads(stream.read())
    except FileNotFoundError:
        return None
    return content
