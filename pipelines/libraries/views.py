"""SQL about client libraries, made of ``sql/versions/client_versions.yml``: which one a client is of, what is known.

KIP-511: a client sends ClientSoftwareName and ClientSoftwareVersion, which bindings of a library choose freely. So the
library and its version are worked out in one place, for views `clients`, `client_versions`, `client_releases`,
`known_client_bugs`, `rebootstrap_readiness` and `telemetry_coverage`, and for columns of `instance_hours`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kafka_telemetry_lake.pipelines.libraries.versions import NEVER, UNKNOWN, Bug, Software, number, versions
from kafka_telemetry_lake.pipelines.sql_text import quoted

# The patch release of a version that names none is taken for the last: then it has only bugs that all of them have.
LAST_PATCH = 999
_BARE = "^v?([0-9]+[.][0-9]+(?:[.][0-9]+)?)"


def library_columns(name: str, version: str) -> dict[str, tuple[str, str]]:
    """Columns that say which library a client is of, each with its expression and its meaning.

    Args:
        name, version: the columns with ClientSoftwareName and ClientSoftwareVersion.
    """
    known = [(_recognises(each, name, version), each) for each in versions().software]
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
    """The expression for the number of the version in a column: see ``versions.number``."""
    major, minor, patch = (f"CAST(TRY_CAST(split_part({version}, '.', {part}) AS INT) AS BIGINT)" for part in (1, 2, 3))
    return f"({major} * 1000 + {minor}) * 1000 + coalesce({patch}, {LAST_PATCH})"


def version_of(number: str) -> str:
    """The expression for the version that a number is of; NULL for 0."""
    parts = (f"floor({number} / 1000000)", f"floor({number} / 1000) % 1000", f"{number} % 1000")
    text = ", '.', ".join(f"CAST(CAST({part} AS INT) AS STRING)" for part in parts)
    return f"CASE WHEN {number} > 0 THEN concat({text}) END"


def _recognises(software: Software, name: str, version: str) -> str:
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


def library_hours() -> dict[str, tuple[str, str]]:
    """Columns of `instance_hours` about the client's library and its known bugs, each with expression and meaning."""
    of_findings = [bug for bug in versions().bugs if bug.finding]
    texts = ", ".join(f"CASE WHEN {_shows(bug)} THEN {quoted(f'{bug.summary} ({bug.id})')} END" for bug in of_findings)
    fixes = ", ".join(
        f"CASE WHEN {_between(bug, *each)} THEN {number(each[1])} ELSE 0 END"
        for bug in of_findings
        for each in bug.ranges
    )
    return library_columns("software_name", "software_version") | {
        "version_bugs": (
            f"nullif(concat_ws('; ', {texts}), '')",
            "known bugs of its version that spoil its telemetry, by sql/versions/client_versions.yml",
        ),
        "version_without_bugs": (
            version_of(_known(f"greatest({fixes})")),
            "the first version of its library without them",
        ),
        "versions_as_of": (quoted(str(versions().as_of)), "the date of what is known about versions"),
    }


def version_values() -> dict[str, dict[str, str]]:
    """The values of the markers of each view that is made of the file, by the view's name."""
    known = versions()
    as_of = quoted(str(known.as_of))
    bugs = [
        (
            bug.library, bug.id, bug.affects, bug.summary, first, None if fixed == NEVER else fixed, number(first),
            number(fixed), bug.source,
        )
        for bug in known.bugs
        for first, fixed in bug.ranges
    ]  # fmt: skip
    releases = [
        (library, minor, end.by, str(end.at) if end.at else None, each.support_source)
        for library, each in known.libraries.items()
        for minor, end in each.ended.items()
    ]
    libraries = [
        (library, each.latest, number(each.works_with_brokers_4_from or NEVER), number(each.supported_from or NEVER))
        for library, each in known.libraries.items()
    ]
    recognised = {
        name: sql for name, (sql, _) in library_columns("client_software_name", "client_software_version").items()
    }
    pushing = [
        (library, number(NEVER if each.pushes_from == "never" else each.pushes_from))
        for library, each in known.libraries.items()
        if each.pushes_from
    ]
    return {
        "clients": recognised,
        "telemetry_coverage": recognised | {"rows": _rows(pushing), "never": str(number(NEVER))},
        "rebootstrap_readiness": {"as_of": as_of},
        "known_client_bugs": {"as_of": as_of, "rows": _rows(bugs)},
        "client_releases": {"as_of": as_of, "rows": _rows(releases)},
        "client_versions": {
            "as_of": as_of,
            "rows": _rows(libraries),
            "fixed": version_of(_known("max(b.fixed_number)")),
            "never": str(number(NEVER)),
        },
    }


def _shows(bug: Bug) -> str:
    has = " OR ".join(_between(bug, *each) for each in bug.ranges)
    return f"({has}) AND silent_after IS NOT NULL AND reads_batches IS NULL" if bug.finding == "silent" else has


def _between(bug: Bug, first: str, fixed: str) -> str:
    range_ = f"library_number >= {number(first)} AND library_number < {number(fixed)}"
    return f"library = {quoted(bug.library)} AND {range_}"


def _known(fixed: str) -> str:
    """The number of the first version without bugs; NULL if none is known."""
    return f"nullif({fixed}, {number(NEVER)})"


def _rows(rows: Iterable[tuple[Any, ...]]) -> str:
    return ",\n    ".join(f"({', '.join(_literal(value) for value in row)})" for row in rows)


def _literal(value: str | int | None) -> str:
    return quoted(value) if isinstance(value, str) else "CAST(NULL AS STRING)" if value is None else str(value)
