"""A lake in an S3-compatible store: what Spark needs to know of it.

delta-rs and Arrow read the store's address and keys from the environment themselves (``AWS_ENDPOINT_URL``,
``AWS_REGION``, ``AWS_ACCESS_KEY_ID``, ...); Hadoop's S3A gets them from the same variables: they are said once.
"""

from __future__ import annotations

import os

SCHEMES = ("s3a://", "s3://")


def in_s3(uri: str) -> bool:
    """Whether a lake or folder lies in an S3-compatible store."""
    return uri.startswith(SCHEMES)


def s3a_settings() -> dict[str, str]:
    """Spark settings for the store that the environment names; the keys S3A reads from the environment itself."""
    settings = {"spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem"}
    if region := os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"):
        settings["spark.hadoop.fs.s3a.endpoint.region"] = region
    if endpoint := os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL"):
        settings["spark.hadoop.fs.s3a.endpoint"] = endpoint
        # A store of one's own seldom has a host name for each bucket.
        settings["spark.hadoop.fs.s3a.path.style.access"] = "true"
    return settings


class StoreUnavailableError(RuntimeError):
    """The store doesn't answer as it must; the message says what was asked and what to look at."""


def check_store(uri: str) -> None:
    """Whether the bucket of an S3 lake answers; other homes aren't looked at. Raises ``StoreUnavailableError``."""
    if not in_s3(uri):
        return
    import pyarrow.fs as pafs  # noqa: PLC0415  # takes a while, and most lakes don't need it here

    bucket = uri.partition("://")[2].partition("/")[0]
    where = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or "AWS"
    try:
        filesystem, path = pafs.FileSystem.from_uri(f"s3://{bucket}")
        found = filesystem.get_file_info(path).type
    except OSError as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise StoreUnavailableError(
            f"{uri} can't be read at {where}: {reason}. Look at AWS_ENDPOINT_URL, AWS_REGION, "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (docs/storage.md)"
        ) from error
    if found == pafs.FileType.NotFound:
        raise StoreUnavailableError(f"there is no bucket {bucket} at {where}: make it, or name another with --lake")
