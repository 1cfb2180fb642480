"""Where the Iceberg tables of a lake are, and how their metadata names places. Needs no Iceberg library."""

from __future__ import annotations

from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of
from kafka_telemetry_lake.udfs.errors import CannotRunError

FOLDER = "_iceberg"  # in the lake's folder, where it isn't taken for a table


class IcebergPlaceError(CannotRunError):
    """There can't be Iceberg tables at this place, or of a lake at this place."""


def location_of(place: str) -> str:
    """A folder or URI as metadata names it: absolute, `s3://` for `s3a://`, and not percent-encoded.

    Raises:
        IcebergPlaceError: readers would take a part of the name for another part of a URI.
    """
    scheme, separator, path = place.rstrip("/").partition("://")
    if not separator or scheme == "file":
        scheme, path = "file", filesystem_of(place.rstrip("/"))[1]
    if any(sign in path for sign in "#?%"):
        raise IcebergPlaceError(f"{place}: Iceberg's readers can't open a path with #, ? or %; name another folder")
    return f"{'s3' if scheme == 's3a' else scheme}://{path}"


def iceberg_root(lake: str, to: str | None = None) -> str:
    """The folder given for a lake's Iceberg tables, otherwise the one inside the lake.

    Raises:
        IcebergPlaceError: it is another folder inside the lake, which may be a table's.
    """
    inside = f"{lake.rstrip('/')}/{FOLDER}"
    if to is None:
        return inside
    below = f"{location_of(to)}/"
    if below.startswith(f"{location_of(lake)}/") and below != f"{location_of(inside)}/":
        raise IcebergPlaceError(
            f"to: inside the lake only {FOLDER} can have the Iceberg tables; name a folder elsewhere"
        )
    return to.rstrip("/")
