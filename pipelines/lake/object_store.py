"""Settings for a lake in an S3-compatible store.

delta-rs and Arrow read the store's address and keys from the environment (``AWS_ENDPOINT_URL``, ``AWS_REGION``,
``AWS_ACCESS_KEY_ID``, ...). Spark's S3A is configured from the same variables, so users set them in one place.
"""

from __future__ import annotations

import os
import uuid

from kafka_telemetry_lake.udfs.errors import CannotRunError

SCHEMES = ("s3a://", "s3://")


def in_s3(uri: str) -> bool:
    """Whether a lake or folder is in an S3-compatible store."""
    return uri.startswith(SCHEMES)


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
