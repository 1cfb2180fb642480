"""Checks where a lake and its checkpoints are, or shall be, before a command loads anything slow.

delta-rs and Arrow read an object store's address and keys from the environment (``AWS_ENDPOINT_URL``, ``AWS_REGION``,
``AWS_ACCESS_KEY_ID``, ...). Spark's S3A is configured from the same variables, so users set them in one place.
"""

from __future__ import annotations

import os
import re
import shlex
import uuid
from pathlib import Path
from urllib.parse import unquote_to_bytes, urlsplit

from kafka_telemetry_lake.udfs.errors import CannotRunError

S3 = ("s3a://", "s3://")


def in_s3(uri: str) -> bool:
    """Whether a lake or folder is in an S3-compatible store."""
    return uri.startswith(S3)


def s3a_settings() -> dict[str, str]:
    """Spark settings for the store that the environment names. S3A itself reads the keys from the environment."""
    settings = {"spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem"}
    if region := os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"):
        settings["spark.hadoop.fs.s3a.endpoint.region"] = region
    if endpoint := os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL"):
        settings["spark.hadoop.fs.s3a.endpoint"] = endpoint
        # A self-hosted store rarely has a host name for each bucket.
        settings["spark.hadoop.fs.s3a.path.style.access"] = "true"
    return settings


class StoreUnavailableError(CannotRunError):
    """The store can't be read, or has no such bucket. The message says which settings to check."""


def check_store(uri: str) -> None:
    """Raise ``StoreUnavailableError`` if an S3 lake's bucket can't be read. Does nothing for other lakes."""
    if not in_s3(uri):
        return
    import pyarrow.fs as pafs  # noqa: PLC0415  # slow to import, and most lakes don't need it here

    folder = uri.partition("://")[2].rstrip("/")
    bucket = folder.partition("/")[0]
    where = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or "AWS"
    try:
        filesystem, path = pafs.FileSystem.from_uri(f"s3://{bucket}")
        file_type = filesystem.get_file_info(path).type
        # A web server, such as a store's console, answers every request with success: an empty listing, a file taken.
        has_any_file = filesystem.get_file_info(f"{folder}/_{uuid.uuid4().hex}").type == pafs.FileType.File
    except OSError as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise StoreUnavailableError(
            f"{uri} can't be read at {where}: {reason}. Check AWS_ENDPOINT_URL, AWS_REGION, "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (docs/storage.md)"
        ) from error
    if has_any_file:
        raise StoreUnavailableError(
            f"{uri}: what answers at {where} is no S3 store: it has a file of any name. Is AWS_ENDPOINT_URL the "
            "address of a web page, such as the store's console?"
        )
    if file_type == pafs.FileType.NotFound:
        raise StoreUnavailableError(f"there is no bucket {bucket} at {where}: create it, or name another with --lake")


PLACES = "a folder, or a URI that begins with file:///, s3:// or s3a://"
# What somebody may write with other slashes than a URI's, and is no name of a folder then.
SCHEMES = re.compile(r"(s3[an]?|gc?s|abfss?|adl|az|wasbs?|r2|oss|hdfs|dbfs|file|https?|memory)", re.IGNORECASE)
HADOOP = ("hdfs", "viewfs")
CLOUDS = ("abfs", "abfss", "adl", "az", "gcs", "gs", "wasb", "wasbs")
# Spark, delta-rs and Arrow read other characters in different ways: as escapes, patterns, lists or parts of the URI.
BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
KEY = re.compile(r"[A-Za-z0-9._=-]+")
# Anywhere in a path, delta-rs panics at the first four, takes a backslash for a slash, decodes %41 to A and then opens
# another folder, and refuses characters that are no text. DuckDB lets no query read below a folder with a * or ?.
UNUSABLE = re.compile(r"[\[\]^|\\*?\x00-\x1f\x7f\ud800-\udfff]|%[0-9A-Fa-f]{2}")


class PlaceError(CannotRunError):
    """There can't be a lake at this place; the message says which places there can be."""


def check_place(lake: str) -> None:
    """Raise an error unless a lake can be at this folder or URI. The lake needn't exist.

    Raises:
        PlaceError: it is a file, another kind of URI, or may not be read.
        StoreUnavailableError: its object store doesn't answer.
    """
    check_uri(lake, "lake")
    if not in_s3(lake):
        folder = local_path(lake)
        _check_folder(folder)
        _check_characters(lake, os.path.abspath(folder))  # noqa: PTH100  # absolute() keeps .., resolve() follows links
        _check_characters(lake, str(folder.resolve()))


def no_lake(lake: str) -> str:
    """The message that there is no lake at a folder or URI."""
    return f"no lake at {lake}: create one with `telemetry-lake ingest --lake {shlex.quote(lake)}`"


def check_uri(place: str, setting: str) -> None:
    """Raise an error unless what belongs to a lake can be there, as far as its name and its store say.

    Args:
        setting: that names the place, for the message.

    Raises:
        PlaceError: it is neither a folder's name nor a URI of a store that was tested.
        StoreUnavailableError: its object store doesn't answer.
    """
    problem = _problem(place)
    if problem is not None:
        raise PlaceError(f"{setting}: {_shown(place)}{problem}")
    if in_s3(place):
        check_store(place)


def local_path(place: str) -> Path:
    """The path of a folder, or of a ``file:`` URI."""
    return Path(os.fsdecode(unquote_to_bytes(urlsplit(place).path))) if place.startswith("file://") else Path(place)


def plain(place: str) -> str:
    """This place as all libraries read it: Spark takes ``a:b`` for a URI, and %20 in a ``file:`` URI as it is."""
    return str(local_path(place).absolute()) if ":" in place and not in_s3(place) else place


def _problem(place: str) -> str | None:
    if not place.strip():
        return f"the name is empty; allowed: {PLACES}"
    if not place.isprintable():
        return f": it has a character that can't be seen; allowed: {PLACES}"
    if place.startswith("~"):
        return ": ~ is for the shell to replace, and it didn't: write the folder in full"
    scheme, colon, rest = place.partition(":")
    if not colon or not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]+", scheme):
        return None
    if rest.startswith("//"):
        of_scheme = {"s3": _problem_in_s3, "s3a": _problem_in_s3, "file": _problem_of_file}
        return of_scheme[scheme](rest[2:]) if scheme in of_scheme else _unsupported(scheme)
    is_folder = not rest.startswith("/") and not SCHEMES.fullmatch(scheme)
    return None if is_folder else f" is neither a folder nor a URI; allowed: {PLACES}"


def _unsupported(scheme: str) -> str:
    advice = ""
    if scheme.lower() in ("s3", "s3a", "file"):
        advice = "; write it in small letters"
    if scheme.lower() in CLOUDS:
        advice = "; docs/storage.md says what is missing for Azure's and Google's stores"
    if scheme.lower() in HADOOP:
        advice = "; on Hadoop, put the lake into an object store"
    return f": {scheme}:// is not supported; allowed: {PLACES}{advice}"


def _problem_in_s3(rest: str) -> str | None:
    bucket, *folders = rest.rstrip("/").split("/")
    if not bucket:
        return ": it names no bucket; allowed: s3://BUCKET/FOLDER"
    if "@" in bucket or ":" in bucket:
        return (
            ": keys, hosts and ports are no part of it: set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and "
            "AWS_ENDPOINT_URL (docs/storage.md)"
        )
    if "?" in rest or "#" in rest:
        return ": names of tables are added to it, so it can't have a query or fragment; settings are AWS_... variables"
    fits = BUCKET.fullmatch(bucket) and all(KEY.fullmatch(each) and each not in (".", "..") for each in folders)
    return (
        None if fits else ": allowed between its slashes: letters, digits, and - _ . = (not . or .. alone, or nothing)"
    )


def _problem_of_file(rest: str) -> str | None:
    if not rest.startswith("/"):
        return ": after file:// comes an absolute path, so there are three slashes"
    if "?" in rest or "#" in rest:
        return ": it can't have a query or fragment; in a path write %3F for ? and %23 for #, or name the folder itself"
    return None


def _shown(place: str) -> str:
    """The place without what may be a secret: a password before a host, a query."""
    return re.sub(r"//[^/]*:[^/]*@", "//...@", place).partition("?")[0] if "://" in place else place


def _check_characters(lake: str, path: str) -> None:
    if match := UNUSABLE.search(path):
        raise PlaceError(
            f"lake: {lake}: its whole path {path} has {match[0]!r}, by which delta-rs or DuckDB fail, or open another "
            r"folder: name one without [ ] ^ | \ * ? and control characters, and without % before two hexadecimal "
            "digits"
        )


def _check_folder(folder: Path) -> None:
    try:
        exists = folder.exists()
        if exists and not folder.is_dir():
            raise PlaceError(f"lake: {folder} is a file; name a folder")
    except PermissionError:
        exists = True
    if exists and not os.access(folder, os.R_OK | os.X_OK):
        raise PlaceError(f"lake: {folder} can't be read by this user: give it the right to, or run as another user")
