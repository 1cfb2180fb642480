"""What is known about versions of client libraries, from ``sql/versions/client_versions.yml``, as SQL.

Views `known_client_bugs`, `client_releases` and `client_versions`, and columns of `instance_hours` for finding
`buggy_client_version`, are made of it, so that there is one list of bugs.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from datetime import date
from importlib.resources import files
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from sqlglot import exp

from kafka_telemetry_lake.pipelines.runtime.field_problems import field_problems
from kafka_telemetry_lake.udfs.errors import TelemetryLakeError

NAME = "client_versions.yml"
NEVER = "999999.0.0"
Text = Annotated[str, Field(min_length=1)]
Version = Annotated[str, Field(pattern=r"^[0-9]+[.][0-9]+[.][0-9]+$")]
Minor = Annotated[str, Field(pattern=r"^[0-9]+[.][0-9]+$")]
Library = Literal["java", "librdkafka"]
# Numbers of versions, such as 2010001 for 2.10.1, as columns of `instance_hours` have them.
NUMBERS: dict[Library, str] = {"java": "java_number", "librdkafka": "rdkafka_number"}


class VersionsError(TelemetryLakeError):
    """The file is invalid; the message names the file, the field and what is wrong."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Ended(_Model):
    """The release that ended the support of a minor release, and when, if it is known to the day."""

    by: Version
    at: date | None = None


class LibraryVersions(_Model):
    """Support of a library's releases, and the brokers that they work with."""

    latest: Version
    works_with_brokers_4_from: Version
    source: Text
    supported_from: Version | None = None
    support_source: Text
    ended: dict[Minor, Ended]


class Bug(_Model):
    """A bug, and the versions that have it: from the first one with it to the first one without."""

    id: Text
    library: Library
    versions: Annotated[list[Annotated[list[Version], Field(min_length=2, max_length=2)]], Field(min_length=1)]
    affects: Literal["telemetry", "connections", "process", "data", "security"]
    finding: bool
    summary: Text
    source: Text

    @model_validator(mode="after")
    def _ranges_rise(self) -> Bug:
        if any(number(first) >= number(fixed) for first, fixed in self.versions):
            raise ValueError("versions: the first version with the bug must be before the first one without")
        return self


class ClientVersions(_Model):
    """The file."""

    as_of: date
    libraries: dict[Library, LibraryVersions]
    bugs: list[Bug]


def number(version: str) -> int:
    """A version as a number that sorts as versions do: 2010001 for 2.10.1."""
    major, minor, patch = map(int, version.split("."))
    return (major * 1000 + minor) * 1000 + patch


def parse_versions(text: str) -> ClientVersions:
    """Read and check the file. Raises ``VersionsError``."""
    try:
        return ClientVersions.model_validate(yaml.safe_load(text))
    except yaml.YAMLError as error:
        raise VersionsError(f"{NAME}: not YAML: {' '.join(str(error).split())}") from None
    except ValidationError as error:
        raise VersionsError("\n".join(f"{NAME}: {problem}" for problem in field_problems(error))) from None


@functools.cache
def versions() -> ClientVersions:
    """The file's content. Raises ``VersionsError``."""
    return parse_versions((files("kafka_telemetry_lake.sql") / "versions" / NAME).read_text("utf-8"))


def bug_columns() -> dict[str, tuple[str, str]]:
    """Columns that the finding reads, each with its expression and its meaning."""
    judged = [bug for bug in versions().bugs if bug.finding]
    texts = ", ".join(f"CASE WHEN {_has(bug)} THEN {_text(f'{bug.summary} ({bug.id})')} END" for bug in judged)
    fixes = ", ".join(
        f"CASE WHEN {_between(bug.library, *each)} THEN {number(each[1])} ELSE 0 END"
        for bug in judged
        for each in bug.versions
    )
    least = f"greatest({fixes})"
    return {
        "version_bugs": (
            f"nullif(concat_ws('; ', {texts}), '')",
            "known bugs of its version that spoil its telemetry, by sql/versions/client_versions.yml",
        ),
        "version_without_bugs": (_version_text(least), "the first version of its library without them"),
    }


def version_views(rdkafka: str, rdkafka_number: str, java_number: str) -> dict[str, str]:
    """The text of each view, as a file of `sql/` would have it.

    Args:
        rdkafka, rdkafka_number, java_number: expressions over software_name and software_version, of `_measures.yml`.
    """
    known = versions()
    bugs = [
        (bug.library, bug.id, bug.affects, bug.summary, first, fixed, number(first), number(fixed), bug.source)
        for bug in known.bugs
        for first, fixed in bug.versions
    ]
    releases = [
        (library, minor, end.by, str(end.at) if end.at else None, each.support_source)
        for library, each in known.libraries.items()
        for minor, end in each.ended.items()
    ]
    libraries = [
        (library, each.latest, number(each.works_with_brokers_4_from), number(each.supported_from or NEVER))
        for library, each in known.libraries.items()
    ]
    return {
        "known_client_bugs": _BUGS.format(rows=_rows(bugs), as_of=known.as_of),
        "client_releases": _RELEASES.format(rows=_rows(releases), as_of=known.as_of),
        "client_versions": _VERSIONS.format(
            libraries=_rows(libraries),
            rdkafka=rdkafka,
            rdkafka_number=rdkafka_number,
            java_number=java_number,
            fixed=_version_text("max(b.fixed_number)"),
            never=number(NEVER),
            as_of=known.as_of,
        ),
    }


def _has(bug: Bug) -> str:
    return " OR ".join(_between(bug.library, *each) for each in bug.versions)


def _between(library: Library, first: str, fixed: str) -> str:
    column = NUMBERS[library]
    return f"{column} >= {number(first)} AND {column} < {number(fixed)}"


def _version_text(number: str) -> str:
    """A number as the version that it is of; NULL for 0."""
    parts = (f"floor({number} / 1000000)", f"floor({number} / 1000) % 1000", f"{number} % 1000")
    text = ", '.', ".join(f"CAST(CAST({part} AS INT) AS STRING)" for part in parts)
    return f"CASE WHEN {number} > 0 THEN concat({text}) END"


def _rows(rows: Iterable[tuple[Any, ...]]) -> str:
    return ",\n    ".join(f"({', '.join(_literal(value) for value in row)})" for row in rows)


def _literal(value: str | int | None) -> str:
    return _text(value) if isinstance(value, str) else "CAST(NULL AS STRING)" if value is None else str(value)


def _text(text: str) -> str:
    return exp.Literal.string(text).sql("spark")


_BUGS = """\
-- Which bugs of client libraries are known, in which versions? One row per bug and range of versions.
-- affects: telemetry, connections, process (the client crashes), data (records) or security. The list isn't complete.
SELECT
  library, bug, affects, summary, first_version, fixed_version, first_number, fixed_number, source,
  CAST('{as_of}' AS DATE) AS as_of
FROM VALUES
    {rows}
  AS t(library, bug, affects, summary, first_version, fixed_version, first_number, fixed_number, source)
"""
_RELEASES = """\
-- Which minor releases of client libraries are no longer supported, and since when? One row per minor release.
-- ended_by: the release that ended its support. end_of_life: when that was; NULL: it isn't known to the day.
SELECT
  library, minor_release, ended_by, CAST(end_of_life AS DATE) AS end_of_life, source, CAST('{as_of}' AS DATE) AS as_of
FROM VALUES
    {rows}
  AS t(library, minor_release, ended_by, end_of_life, source)
"""
_VERSIONS = """\
-- Which client libraries and versions are in use, by whom, and what is wrong with them? One row per cluster and
-- version. supported: NULL if it isn't known. bugs: known bugs of the version; fixed_in: the first version without any
-- of them. worst: what the worst of them affects: data, security, process, connections or telemetry.
-- works_with_brokers_4: brokers from 4.0 on refuse old protocols (KIP-896); NULL: unknown, also for members of consumer
-- groups that push no telemetry, which are the row without a software name: brokers before 4.0 count the requests that
-- 4.0 refuses as DeprecatedRequestsPerSec.
-- as_of: the date of what is known.
WITH seen AS (
  SELECT
    cluster_id, client_software_name AS software_name, client_software_version AS software_version, client_id,
    application, owner, state, last_seen
  FROM clients

  UNION ALL

  SELECT cluster_id, NULL, NULL, client_id, application, owner, 'active', NULL
  FROM consumer_group_members
  WHERE client_instance_id IS NULL
),

counted AS (
  SELECT
    cluster_id, software_name, software_version,
    count(*) AS instances,
    count(CASE WHEN state = 'active' THEN 1 END) AS active_instances,
    count(DISTINCT client_id) AS client_ids,
    coalesce(sort_array(collect_set(application)), array()) AS applications,
    coalesce(sort_array(collect_set(owner)), array()) AS owners,
    max(last_seen) AS last_seen
  FROM seen
  GROUP BY cluster_id, software_name, software_version
),

numbered AS (
  SELECT
    r.*,
    CASE WHEN rdkafka IS NOT NULL THEN 'librdkafka' WHEN software_name = 'apache-kafka-java' THEN 'java' END AS library,
    coalesce({rdkafka_number}, {java_number}) AS number
  FROM (SELECT c.*, {rdkafka} AS rdkafka FROM counted AS c) AS r
),

libraries AS (
  SELECT library, latest, floor_number, nullif(supported_number, {never}) AS supported_number
  FROM VALUES
    {libraries}
  AS t(library, latest, floor_number, supported_number)
),

buggy AS (
  SELECT
    n.cluster_id, n.software_name, n.software_version,
    sort_array(collect_set(b.bug)) AS bugs,
    {fixed} AS fixed_in,
    element_at(array('data', 'security', 'process', 'connections', 'telemetry'), CAST(min(
      CASE b.affects
        WHEN 'data' THEN 1 WHEN 'security' THEN 2 WHEN 'process' THEN 3 WHEN 'connections' THEN 4 ELSE 5
      END
    ) AS INT)) AS worst
  FROM numbered AS n
  JOIN known_client_bugs AS b
    ON b.library = n.library AND n.number >= b.first_number AND n.number < b.fixed_number
  GROUP BY n.cluster_id, n.software_name, n.software_version
)

SELECT
  n.cluster_id,
  n.library,
  n.software_name,
  n.software_version,
  n.instances,
  n.active_instances,
  n.client_ids,
  n.applications,
  n.owners,
  l.latest,
  n.number >= l.supported_number AS supported,
  e.end_of_life,
  coalesce(b.bugs, array()) AS bugs,
  b.worst,
  b.fixed_in,
  n.number >= l.floor_number AS works_with_brokers_4,
  n.last_seen,
  CAST('{as_of}' AS DATE) AS as_of
FROM numbered AS n
LEFT JOIN libraries AS l
  ON l.library = n.library
LEFT JOIN client_releases AS e
  ON e.library = n.library
  AND e.minor_release = concat(
    CAST(CAST(floor(n.number / 1000000) AS INT) AS STRING), '.',
    CAST(CAST(floor(n.number / 1000) % 1000 AS INT) AS STRING)
  )
LEFT JOIN buggy AS b
  ON coalesce(b.cluster_id, '') = coalesce(n.cluster_id, '')
  AND coalesce(b.software_name, '') = coalesce(n.software_name, '')
  AND coalesce(b.software_version, '') = coalesce(n.software_version, '')
"""
