"""Which library a client is of, and which version: the one answer to this question, as SQL over what clients send.

KIP-511: a client sends ClientSoftwareName and ClientSoftwareVersion, which bindings of a library choose freely. The
rules are entries of ``software`` in ``sql/versions/client_versions.yml``.
"""

from __future__ import annotations

from kafka_telemetry_lake.pipelines.libraries.versions import UNKNOWN, Software, versions
from kafka_telemetry_lake.pipelines.sql_text import quoted

# The patch release of a version that names none is taken for the last: then it has only bugs that all of them have.
LAST_PATCH = 999
_BARE = "^v?([0-9]+[.][0-9]+(?:[.][0-9]+)?)"


def library_columns(name: str, version: str) -> dict[str, tuple[str, str]]:
    """Columns that say which library a client is of, each with its expression and its meaning.

    Args:
        name, version: the columns with ClientSoftwareName and ClientSoftwareVersion.
    """
    known = [(_fits(each, name, version), each) for each in versions().software]
    libraries = " ".join(f"WHEN {fits} THEN {quoted(each.library)}" for fits, each in known)
    numbers = " ".join(f"WHEN {fits} THEN {_version(each, version)}" for fits, each in known)
    return {
        "library": (
            f"CASE {libraries} ELSE {quoted(UNKNOWN)} END",
            "its client library, by its software name and version: sql/versions/client_versions.yml",
        ),
        "library_version": (f"CASE {numbers} END", "version of this library; NULL: its client doesn't send it"),
        "library_number": (
            number_of("library_version"),
            "the same as a number, such as 2010001 for 2.10.1; a release whose patch isn't sent is the last: 3007999",
        ),
    }


def number_of(version: str) -> str:
    """The expression for the number of the version in a column: see ``client_versions.number``."""
    major, minor, patch = (f"CAST(TRY_CAST(split_part({version}, '.', {part}) AS INT) AS BIGINT)" for part in (1, 2, 3))
    return f"({major} * 1000 + {minor}) * 1000 + coalesce({patch}, {LAST_PATCH})"


def version_of(number: str) -> str:
    """The expression for the version that a number is of; NULL for 0."""
    parts = (f"floor({number} / 1000000)", f"floor({number} / 1000) % 1000", f"{number} % 1000")
    text = ", '.', ".join(f"CAST(CAST({part} AS INT) AS STRING)" for part in parts)
    return f"CASE WHEN {number} > 0 THEN concat({text}) END"


def _fits(software: Software, name: str, version: str) -> str:
    conditions = {name: software.name and f"^(?:{software.name})$", version: software.within}
    return " AND ".join(f"{column} RLIKE {quoted(text)}" for column, text in conditions.items() if text is not None)


def _version(software: Software, version: str) -> str:
    if software.within is None and not software.bare:
        return "NULL"
    found = f"nullif(regexp_extract({version}, {quoted(software.within or _BARE)}, 1), '')"
    if not software.minus:
        return found
    major, minor = (f"TRY_CAST(split_part({found}, '.', {part}) AS INT)" for part in (1, 2))
    return f"concat(CAST({major} - {software.minus} AS STRING), '.', CAST({minor} AS STRING))"
