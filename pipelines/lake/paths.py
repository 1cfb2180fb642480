"""Paths and URIs of a lake, its tables and checkpoints."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow.fs as pafs

from kafka_telemetry_lake.pipelines.lake.place import local_path
from kafka_telemetry_lake.pipelines.tables.table import table_uri


def checkpoints_root(lake: str, checkpoints: str | None = None) -> str:
    """The folder given for a lake's checkpoints, otherwise the one inside the lake."""
    return (checkpoints or table_uri(lake, "_checkpoints")).rstrip("/")


def absolute_uri(path: str) -> str:
    """A local path or a URI as a URI."""
    return path if "://" in path else Path(path).resolve().as_uri()


def hadoop_path(path: str) -> str:
    """A path or URI as Hadoop and Spark take it: in a ``file:`` URI they decode nothing, and nothing ends the path."""
    return path if "://" in path and not path.startswith("file://") else f"file://{local_path(path).resolve()}"


def literal(path: str) -> str:
    """A path or URI as Spark and Hadoop take it for one file or folder, and not for a pattern of several."""
    return re.sub(r"[\[\]{}*?\\]", r"\\\g<0>", path)


def filesystem_of(path: str) -> tuple[pafs.FileSystem, str]:
    """Arrow's file system for a local path or a URI, and the path in it. Hadoop's `s3a://` is `s3://` in Arrow."""
    if "://" not in path:
        return pafs.LocalFileSystem(), str(Path(path).resolve())
    filesystem_and_path: tuple[pafs.FileSystem, str] = pafs.FileSystem.from_uri(re.sub(r"^s3a://", "s3://", path))
    return filesystem_and_path
