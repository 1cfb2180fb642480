"""Checks where a lake is, or shall be, before a command loads anything slow."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from kafka_telemetry_lake.pipelines.lake.object_store import check_store, in_s3
from kafka_telemetry_lake.udfs.errors import CannotRunError

PLACES = "a folder, or a URI that begins with file://, s3://, s3a://, abfss:// or gs://"
STORES = ("abfs", "abfss", "gs")


class PlaceError(CannotRunError):
    """There can't be a lake at this place; the message says which places there can be."""


def check_place(lake: str) -> None:
    """Raise an error unless a lake can be at this folder or URI. The lake needn't exist.

    Raises:
        PlaceError: it is a file, another kind of URI, or may not be read.
        StoreUnavailableError: its object store doesn't answer.
    """
    if in_s3(lake):
        check_store(lake)
        return
    scheme, separator, _ = lake.partition("://")
    if separator and scheme != "file":
        _check_scheme(lake, scheme)
        return
    if not lake.strip():
        raise PlaceError(f"lake: the name is empty; allowed: {PLACES}")
    if not separator and re.match(r"[A-Za-z0-9]{2,}:/", lake):
        raise PlaceError(f"lake: {lake} is neither a folder nor a URI; allowed: {PLACES}")
    _check_folder(Path(unquote(urlsplit(lake).path)) if separator else Path(lake))


def _check_scheme(lake: str, scheme: str) -> None:
    if scheme in STORES:
        return
    hadoop = "; on Hadoop, put the lake into an object store" if scheme in ("hdfs", "viewfs") else ""
    raise PlaceError(f"lake: {lake}: {scheme}:// is not supported; allowed: {PLACES}{hadoop}")


def _check_folder(folder: Path) -> None:
    try:
        exists = folder.exists()
        if exists and not folder.is_dir():
            raise PlaceError(f"lake: {folder} is a file; name a folder")
    except PermissionError:
        exists = True
    if exists and not os.access(folder, os.R_OK | os.X_OK):
        raise PlaceError(f"lake: {folder} can't be read by this user: give it the right to, or run as another user")
