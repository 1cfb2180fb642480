"""Views of what is known about client libraries, made of ``sql/versions/client_versions.yml``.

Views `clients`, `known_client_bugs`, `client_releases`, `client_versions` and `rebootstrap_readiness`, and columns of
`instance_hours`, are made of it, so that there is one list of libraries and one of bugs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kafka_telemetry_lake.pipelines.libraries.columns import library_columns, version_of
from kafka_telemetry_lake.pipelines.libraries.versions import NEVER, Bug, number, versions
from kafka_telemetry_lake.pipelines.sql_text import quoted


def library_hours() -> dict[str, tuple[str, str]]:
    """Columns of `instance_hours` about the client's library and its known bugs, each with expression and meaning."""
    judged = [bug for bug in versions().bugs if bug.finding]
    texts = ", ".join(f"CASE WHEN {_shows(bug)} THEN {quoted(f'{bug.summary} ({bug.id})')} END" for bug in judged)
    fixes = ", ".join(
        f"CASE WHEN {_between(bug, *each)} THEN {number(each[1])} ELSE 0 END" for bug in judged for each in bug.ranges
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


def version_templates() -> dict[str, dict[str, dict[str, str]]]:
    """Templates of `sql/` that read the file: see ``views.TEMPLATES``."""
    sent = library_columns("client_software_name", "client_software_version")
    return {
        "_clients": {"clients": {name: sql for name, (sql, _) in sent.items()}},
        "_rebootstrap_readiness": {"rebootstrap_readiness": {"as_of": str(versions().as_of)}},
    }


def version_views() -> dict[str, str]:
    """The text of each view, as a file of `sql/` would have it."""
    known = versions()
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
        (
            library,
            each.latest,
            number(each.works_with_brokers_4_from or NEVER),
            number(each.supported_from or NEVER),
        )
        for library, each in known.libraries.items()
    ]
    return {
        "known_client_bugs": _BUGS.format(rows=_rows(bugs), as_of=known.as_of),
        "client_releases": _RELEASES.format(rows=_rows(releases), as_of=known.as_of),
        "client_versions": _VERSIONS.format(
            libraries=_rows(libraries),
            fixed=version_of(_known("max(b.fixed_number)")),
            never=number(NEVER),
            as_of=known.as_of,
        ),
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


_BUGS = """\
-- Which bugs of client libraries are known, in which versions? One row per bug and range of versions.
-- affects: telemetry, connections, process (the client crashes), data (records) or security. fixed_version: the first
-- one without it; NULL: none is known. The list isn't complete.
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
-- version. library: unknown, if sql/versions/client_versions.yml has no entry for the software; library_version: that
-- of the library, not of a binding. supported: NULL if it isn't known. bugs: known bugs of the version; fixed_in: the
-- first version without any of them. worst: what the worst of them affects: data, security, process, connections or
-- telemetry. works_with_brokers_4: brokers from 4.0 on refuse old protocols (KIP-896); NULL: unknown, also for members
-- of consumer groups that push no telemetry, which are the row without a software name: brokers before 4.0 count the
-- requests that 4.0 refuses as DeprecatedRequestsPerSec. as_of: the date of what is known.
WITH seen AS (
  SELECT
    cluster_id, client_software_name AS software_name, client_software_version AS software_version, library,
    library_version, library_number, client_id, application, owner, state, last_seen
  FROM clients

  UNION ALL

  SELECT cluster_id, NULL, NULL, 'unknown', NULL, NULL, client_id, application, owner, 'active', NULL
  FROM consumer_group_members
  WHERE client_instance_id IS NULL
),

counted AS (
  SELECT
    cluster_id, software_name, software_version, library, library_version, library_number AS number,
    count(*) AS instances,
    count(CASE WHEN state = 'active' THEN 1 END) AS active_instances,
    count(DISTINCT client_id) AS client_ids,
    coalesce(sort_array(collect_set(application)), array()) AS applications,
    coalesce(sort_array(collect_set(owner)), array()) AS owners,
    max(last_seen) AS last_seen
  FROM seen
  GROUP BY cluster_id, software_name, software_version, library, library_version, library_number
),

libraries AS (
  SELECT
    library, latest, nullif(floor_number, {never}) AS floor_number,
    nullif(supported_number, {never}) AS supported_number
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
  FROM counted AS n
  JOIN known_client_bugs AS b
    ON b.library = n.library AND n.number >= b.first_number AND n.number < b.fixed_number
  GROUP BY n.cluster_id, n.software_name, n.software_version
)

SELECT
  n.cluster_id,
  n.library,
  n.library_version,
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
FROM counted AS n
LEFT JOIN libraries AS l
  ON l.library = n.library
LEFT JOIN client_releases AS e
  ON e.library = n.library
  AND e.minor_release = concat(split_part(n.library_version, '.', 1), '.', split_part(n.library_version, '.', 2))
LEFT JOIN buggy AS b
  ON coalesce(b.cluster_id, '') = coalesce(n.cluster_id, '')
  AND coalesce(b.software_name, '') = coalesce(n.software_name, '')
  AND coalesce(b.software_version, '') = coalesce(n.software_version, '')
"""
