"""Views of the findings, made of their rules: `instance_hours`, `instance_findings`, `findings`, `finding_groups`,
`finding_savings`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kafka_telemetry_lake.pipelines.findings.overrides import Overrides, overridden_rules
from kafka_telemetry_lake.pipelines.findings.rules import (
    INSTANCE,
    PREFIX,
    Measure,
    Rule,
    columns_of,
    measures,
)
from kafka_telemetry_lake.pipelines.findings.savings import finding_savings

KEY = ("cluster_id", "client_id", "client_instance_id", "landed_date", "window_start")
_KEY = "cluster_id, client_id, client_instance_id, landed_date, date_trunc('HOUR', landed_at) AS window_start"
_GROUP = _KEY.removesuffix(" AS window_start")
_METRIC = re.compile(rf"'({re.escape(PREFIX)}[a-z.]+)'")
_HOUR = "', in the hour from ', date_format(window_start, 'yyyy-MM-dd HH:mm'), ' UTC'"
# The groups that Spark names its consumers after; it assigns their partitions by hand.
SPARK_GROUP = "^spark-(kafka-(source|relation)|executor)-"
# The client ids of Streams' restore consumers, which are polled only while their thread's tasks lack state.
RESTORE_CONSUMER = "-StreamThread-[0-9]+-restore-consumer$"
# What the tables besides metric_points give to `instance_hours`: expressions over the rows of an instance and hour.
_SOURCES = {
    "push_outcomes": {
        "pushes": "count(*)",
        "quarantined": "sum(CASE WHEN outcome = 'quarantined' THEN 1 ELSE 0 END)",
        "lost_intervals": "count(lost_start)",
        "dropped": "sum(CASE WHEN outcome = 'dropped' THEN 1 ELSE 0 END)",
        "rejected_points": "sum(quarantined_points)",
        "push_bytes_max": "max(decompressed_bytes)",
        # Without coalesce DuckDB passes over a last push of unknown size, and Spark doesn't.
        "push_bytes_last": "max_by(coalesce(decompressed_bytes, 0), landed_at)",
        "last_push_at": "max(landed_at)",
        "is_member": "max(CASE WHEN element_at(labels, 'group_member_id') <> '' THEN 1 END)",
        "reads_batches": (
            f"max(CASE WHEN element_at(labels, 'group_id') RLIKE '{SPARK_GROUP}'"
            f" OR client_id RLIKE '{RESTORE_CONSUMER}' THEN 1 END)"
        ),
        "clock_ahead_s": "max(unix_micros(last_time) - unix_micros(landed_at)) / 1000000.0",
        "clock_behind_s": "min(unix_micros(landed_at) - unix_micros(last_time)) / 1000000.0",
    },
    "pushes": {
        "push_interval_s": "max(push_interval_ms) / 1000.0",
        # Brokers have `unknown` for a connection that names no software.
        "software_name": "max_by(client_software_name, CASE WHEN client_software_name <> 'unknown' THEN landed_at END)",
        "software_version": (
            "max_by(client_software_version, CASE WHEN client_software_name <> 'unknown' THEN landed_at END)"
        ),
    },
    "quarantine": {"set_aside": "sum(CASE WHEN scope = 'push' AND reason = 'PROCESSING_FAILED' THEN 1 ELSE 0 END)"},
    "client_events": {
        "duplicates": "sum(CASE WHEN event = 'duplicate_instance' THEN 1 ELSE 0 END)",
        "dead_paths": "sum(CASE WHEN event = 'data_path_dead' THEN 1 ELSE 0 END)",
        "silent_after": "max(CASE WHEN event = 'went_silent' THEN landed_at END)",
    },
}
_POINTS = (
    *("metric", "increase", "covered_s", "still_s", "quarters"),
    *("value_sum", "value_count", "value_min", "value_max"),
)
_INSTANCE_HOURS = """\
-- What did each client instance do in each hour in which its pushes landed? Counts, means and extremes of the hour.
-- docs/findings.md has the meaning of each column. NULL: its library doesn't push the metric.
-- Filter by landed_date, the UTC date of window_start: then other days aren't read.
WITH points AS (
  SELECT
    {key}, metric,
    sum(CASE WHEN kind = 'sum' THEN delta END) AS increase,
    sum(CASE WHEN kind = 'sum' AND delta IS NOT NULL THEN unix_micros(time) - unix_micros(delta_start) END) / 1000000.0
      AS covered_s,
    sum(CASE WHEN kind = 'sum' AND delta = 0 THEN unix_micros(time) - unix_micros(delta_start) END) / 1000000.0
      AS still_s,
    bit_or(
      CASE WHEN kind = 'sum' AND delta > 0 THEN CAST(pow(2, floor(unix_micros(landed_at) / 900000000) % 4) AS INT) END
    ) AS quarters,
    sum(CASE WHEN kind = 'gauge' THEN value END) AS value_sum,
    count(CASE WHEN kind = 'gauge' THEN value END) AS value_count,
    min(CASE WHEN kind = 'gauge' THEN value END) AS value_min,
    max(CASE WHEN kind = 'gauge' THEN value END) AS value_max
  FROM metric_points
  WHERE metric IN ({metrics})
    AND (metric NOT IN ({whole}) OR element_at(attributes, 'topic') IS NULL)
    AND (metric NOT IN ({since_1970}) OR value < 1000000000)
    AND delta_status NOT IN ('duplicate', 'conflict', 'too_late')
  GROUP BY {group}, metric
),

stacked AS (
{stacked}
),

measured AS (
  SELECT
    {names},
    {columns}
  FROM stacked
  GROUP BY {names}
  HAVING max(pushes) > 0
)

{select}
"""
# explode_outer: for explode, Spark infers filters, copies all conditions into them, and plans for minutes.
_INSTANCE_FINDINGS = """\
-- What is wrong with which client instance, what shows it, and what helps? One row per instance, hour and finding.
-- measure: the number that the rule compares; docs/findings.md has its unit. evidence ends with the hour it is about.
-- Filter by landed_date, the UTC date of window_start: then other days aren't read.
WITH detected AS (
  SELECT
    cluster_id, client_instance_id, client_id, window_start, landed_date,
    array(
      {structs}
    ) AS all_findings
  FROM instance_hours AS h
),

found AS (
  SELECT cluster_id, client_instance_id, client_id, window_start, landed_date, explode_outer(all_findings) AS f
  FROM detected
)

SELECT
  cluster_id, client_instance_id, client_id, window_start, f.finding, f.severity, f.measure,
  concat(f.evidence, {hour}) AS evidence, f.advice, landed_date
FROM found
WHERE f.finding IS NOT NULL
"""
_FINDINGS = """\
-- What is wrong with which client, what is the evidence, and what helps? One row per client id, hour and finding.
-- evidence ends with the hour that it is about; evidence and advice are those of worst_instance. client_id is NULL if
-- the finding isn't about one; scope and subject say what it is about. docs/findings.md explains the rules and
-- thresholds. severity: error (data or telemetry is lost, or soon will be), warning (costs time or money), info.
-- Filter by landed_date, the UTC date of window_start: then other days aren't read.
WITH placed AS (
  SELECT
    f.*,
    row_number() OVER (
      PARTITION BY cluster_id, client_id, landed_date, window_start, finding
      ORDER BY
        {worst}, client_instance_id
    ) AS place,
    count(*) OVER (PARTITION BY cluster_id, client_id, landed_date, window_start, finding) AS affected
  FROM instance_findings AS f
),

{hours},

shared AS (
  SELECT p.*, greatest(p.affected, coalesce(s.instances, 0)) AS instances
  FROM placed AS p
  LEFT JOIN outcome_hours AS s
    ON s.cluster_id <=> p.cluster_id AND s.client_id <=> p.client_id AND s.landed_date = p.landed_date
    AND s.window_start = p.window_start
  WHERE p.place = 1
)

SELECT
  cluster_id, client_id, window_start, finding, severity,
  CASE WHEN instances > 1 THEN concat(
    CAST(affected AS STRING), ' of ', CAST(instances AS STRING), ' client instances (',
    CAST(round(100.0 * affected / instances, 1) AS STRING), ' %), at worst ',
    coalesce(client_instance_id, 'one without id'), ': ', evidence
  ) ELSE evidence END AS evidence,
  advice, 'client_id' AS scope, client_id AS subject, instances, affected AS instances_affected,
  client_instance_id AS worst_instance, measure, landed_date
FROM shared

{others}
"""
# What the rules that aren't about client instances read: common table expressions, so that DuckDB reads each table
# once, however many rules there are. series_hours: gauges, and counters (increase, covered_s). reports counts values;
# those of busy_* are above 0. latest: of the last push. most_q1 to least_q4: of the quarter of the hour in which the
# push landed.
_HOURS = """\
outcome_hours AS (
  SELECT
    {client}, count(DISTINCT client_instance_id) AS instances, count(*) AS pushes,
    (unix_micros(max(landed_at)) - unix_micros(min(landed_at))) / 1000000.0 AS span_s
  FROM push_outcomes
  GROUP BY {client_group}
),

client_hours AS (
  SELECT
    {client}, count(DISTINCT client_instance_id) AS instances, max(push_interval_ms) / 1000.0 AS push_interval_s,
    count(DISTINCT CASE WHEN client_instance_id IS NOT NULL THEN principal END) AS principals,
    min(CASE WHEN client_instance_id IS NOT NULL THEN principal END) AS first_principal,
    max(CASE WHEN client_instance_id IS NOT NULL THEN principal END) AS last_principal,
    count(DISTINCT software) AS versions, min(software) AS first_version, max(software) AS last_version
  FROM (
    SELECT
      *, CASE WHEN client_instance_id IS NOT NULL AND client_software_name <> 'unknown'
        THEN concat(client_software_name, ' ', client_software_version) END AS software
    FROM pushes
  ) AS p
  GROUP BY {client_group}
),

series_hours AS (
  SELECT
    {key}, metric, element_at(attributes, 'topic') AS topic, element_at(attributes, 'partition') AS partition,
    element_at(attributes, 'node_id') AS node_id, count(value) AS reports, min(value) AS least, max(value) AS most,
    max(CASE WHEN hour_us < 900000000 THEN value END) AS most_q1,
    max(CASE WHEN hour_us >= 900000000 AND hour_us < 1800000000 THEN value END) AS most_q2,
    min(CASE WHEN hour_us >= 1800000000 AND hour_us < 2700000000 THEN value END) AS least_q3,
    min(CASE WHEN hour_us >= 2700000000 THEN value END) AS least_q4,
    max_by(value, landed_at) AS latest,
    avg(CASE WHEN value > 0 THEN value END) AS busy_mean, count(CASE WHEN value > 0 THEN 1 END) AS busy_reports,
    sum(delta) AS increase,
    sum(CASE WHEN delta IS NOT NULL THEN unix_micros(time) - unix_micros(delta_start) END) / 1000000.0 AS covered_s
  FROM (
    SELECT *, unix_micros(landed_at) % 3600000000 AS hour_us
    FROM metric_points
    WHERE metric IN ({metrics}) AND (kind = 'gauge' OR kind = 'sum' AND metric IN ({counters}))
      AND delta_status NOT IN ('duplicate', 'conflict', 'too_late')
  ) AS p
  GROUP BY
    {group}, metric, element_at(attributes, 'topic'), element_at(attributes, 'partition'),
    element_at(attributes, 'node_id')
)"""
# Aliases and rules for an hour's clients are those in force now, as in view clients: an owner is asked today. Pushes of
# no known client instance have the alias of their client id at most.
_GROUPS = """\
-- What is wrong with which application, and with the clients of which owner and principal? One row per group, hour and
-- finding.
-- scope: application, owner or principal; subject: its name. instances: client instances of it that
-- pushed in the hour; instances_affected and share: those that have the finding. evidence, advice and measure are
-- those of worst_instance, of worst_client_id. Only findings of client instances are grouped.
-- Filter by landed_date, the UTC date of window_start: then other days aren't read.
WITH members AS (
  SELECT {key}, max_by(principal, landed_at) AS principal
  FROM pushes
  GROUP BY {group}
),

named AS (
  SELECT
    m.*, CASE WHEN c.client_instance_id IS NULL THEN n.application ELSE c.application END AS application,
    CASE WHEN c.client_instance_id IS NULL THEN n.owner ELSE c.owner END AS owner,
    row_number() OVER (
      PARTITION BY m.cluster_id, m.client_id, m.client_instance_id, m.landed_date, m.window_start
      ORDER BY n.cluster_id DESC NULLS LAST
    ) AS place
  FROM members AS m
  LEFT JOIN clients AS c
    ON coalesce(c.cluster_id, '') = coalesce(m.cluster_id, '') AND c.client_instance_id = m.client_instance_id
  LEFT JOIN client_aliases AS n
    ON n.client_instance_id IS NULL AND n.client_id = m.client_id AND n.valid_to IS NULL
    AND coalesce(n.cluster_id, m.cluster_id, '') = coalesce(m.cluster_id, '')
),

grouped AS (
  SELECT *, 'application' AS scope, application AS subject FROM named WHERE place = 1 AND application IS NOT NULL

  UNION ALL

  SELECT *, 'owner' AS scope, owner AS subject FROM named WHERE place = 1 AND owner IS NOT NULL

  UNION ALL

  SELECT *, 'principal' AS scope, principal AS subject FROM named WHERE place = 1 AND principal IS NOT NULL
),

sizes AS (
  SELECT cluster_id, landed_date, window_start, scope, subject, count(*) AS instances
  FROM grouped
  GROUP BY cluster_id, landed_date, window_start, scope, subject
),

placed AS (
  SELECT
    f.*, g.scope, g.subject,
    row_number() OVER (
      PARTITION BY f.cluster_id, f.landed_date, f.window_start, f.finding, g.scope, g.subject
      ORDER BY {worst}, f.client_id, f.client_instance_id
    ) AS place,
    count(*) OVER (
      PARTITION BY f.cluster_id, f.landed_date, f.window_start, f.finding, g.scope, g.subject
    ) AS affected
  FROM instance_findings AS f
  JOIN grouped AS g
    ON g.cluster_id <=> f.cluster_id AND g.client_id <=> f.client_id
    AND g.client_instance_id <=> f.client_instance_id AND g.landed_date = f.landed_date
    AND g.window_start = f.window_start
)

SELECT
  p.cluster_id, p.scope, p.subject, p.window_start, p.finding, p.severity, s.instances,
  p.affected AS instances_affected, CAST(p.affected AS DOUBLE) / s.instances AS share, p.client_id AS worst_client_id,
  p.client_instance_id AS worst_instance, p.measure, p.evidence, p.advice, p.landed_date
FROM placed AS p
JOIN sizes AS s
  ON s.cluster_id <=> p.cluster_id AND s.landed_date = p.landed_date AND s.window_start = p.window_start
  AND s.scope = p.scope AND s.subject = p.subject
WHERE p.place = 1
"""
_WORST = """\
CASE severity WHEN 'error' THEN 3 WHEN 'warning' THEN 2 ELSE 1 END DESC,
        CASE WHEN finding IN ({less}) THEN -measure ELSE measure END DESC"""
_OTHER = """\
UNION ALL

SELECT
  cluster_id, client_id, window_start, '{id}' AS finding, {severity} AS severity,
  concat({evidence}, {hour}) AS evidence,
  {advice} AS advice, '{scope}' AS scope, subject, instances, instances_affected, worst_instance,
  CAST({measure} AS DOUBLE) AS measure, landed_date
FROM (
{reads}
) AS r
WHERE {condition}
"""
_AGGREGATES = {
    "increase": "sum(CASE WHEN {} THEN increase END)",
    "covered": "sum(CASE WHEN {} THEN covered_s END)",
    "still": "sum(CASE WHEN {} THEN still_s END)",
    "quarters": "bit_count(bit_or(CASE WHEN {} THEN quarters END))",
    "mean": "sum(CASE WHEN {0} THEN value_sum END) / nullif(sum(CASE WHEN {0} THEN value_count END), 0)",
    "max": "max(CASE WHEN {} THEN value_max END)",
    "min": "min(CASE WHEN {} THEN value_min END)",
    "points": "sum(CASE WHEN {} THEN value_count END)",
}


def finding_views(overrides: Overrides = (), closing: bool = False) -> dict[str, str]:
    """The text of each view, as a file of `sql/` would have it.

    Args:
        overrides: other bounds for some client ids.
        closing: judge with the bounds at which findings close, and only by rules that have such bounds.
    """
    known = overridden_rules(overrides)
    if closing:
        known = [rule.closing() for rule in known if rule.closes]
    judged = [rule for rule in known if rule.scope == INSTANCE]
    less = [f"'{rule.id}'" for rule in judged if rule.worse == "less"]
    worst = _WORST.format(less=", ".join(less) or "''")
    others = [_other(rule) for rule in known if rule.scope != INSTANCE]
    return {
        "instance_hours": _instance_hours(),
        "instance_findings": _INSTANCE_FINDINGS.format(structs=",\n      ".join(map(_struct, judged)), hour=_HOUR),
        "findings": _FINDINGS.format(worst=worst, hours=_hours(known), others="\n".join(others)),
        "finding_groups": _GROUPS.format(key=_KEY, group=_GROUP, worst=worst),
        "finding_savings": finding_savings(judged),
    }


def _hours(rules: Iterable[Rule]) -> str:
    read = {metric for rule in rules for metric in _METRIC.findall(rule.reads or "")}
    without = (each.replace(" client_instance_id,", "") for each in (_KEY, _GROUP))
    client, client_group = without
    counters = {metric for metric in read if metric.endswith(".total")}
    return _HOURS.format(
        key=_KEY, group=_GROUP, client=client, client_group=client_group,
        metrics=_listed(read) or "''", counters=_listed(counters) or "''",
    )  # fmt: skip


def _instance_hours() -> str:
    known = measures()
    whole = {PREFIX + metric for metric in known.whole}
    metrics = {PREFIX + metric for measure in known.measures.values() for metric in measure.metrics}
    own = [name for columns in _SOURCES.values() for name in columns]
    given = {name: f"max({name})" for name in own} | {
        "quarantined": "max(quarantined) - coalesce(max(set_aside), 0)", "set_aside": "coalesce(max(set_aside), 0)"
    }  # fmt: skip
    columns = given | {name: _aggregate(measure) for name, measure in known.measures.items()}
    stacked = [f"  SELECT {', '.join(KEY)}, {', '.join(_POINTS)}, {_nulls(own)}\n  FROM points"]
    for table, expressions in _SOURCES.items():
        selected = ", ".join(f"{expressions.get(name, 'NULL')} AS {name}" for name in own)
        stacked.append(f"  SELECT\n    {_KEY}, {_nulls(_POINTS)},\n    {selected}\n  FROM {table}\n  GROUP BY {_GROUP}")
    return _INSTANCE_HOURS.format(
        key=_KEY,
        group=_GROUP,
        names=", ".join(KEY),
        metrics=_listed(metrics),
        whole=_listed(whole),
        since_1970=_listed(PREFIX + metric for metric in known.since_1970),
        stacked="\n\n  UNION ALL\n\n".join(stacked),
        columns=",\n    ".join(f"{sql} AS {name}" for name, sql in columns.items()),
        select=_derived({name: each.sql for name, each in known.derived.items()}),
    )


def _derived(pending: dict[str, str]) -> str:
    """The SELECT that adds the derived columns, each after those that it reads."""
    select = "SELECT * FROM measured"
    while pending:
        ready = {name: sql for name, sql in pending.items() if not columns_of(sql) & pending.keys()}
        added = "".join(f",\n  {sql} AS {name}" for name, sql in ready.items())
        select = f"SELECT\n  m.*{added}\nFROM (\n{select}\n) AS m"
        pending = {name: sql for name, sql in pending.items() if name not in ready}
    return select


def _aggregate(measure: Measure) -> str:
    names = [PREFIX + metric for metric in measure.metrics]
    return _AGGREGATES[measure.how].format(f"metric IN ({_listed(names)})")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in sorted(names))


def _nulls(names: Iterable[str]) -> str:
    return ", ".join(f"NULL AS {name}" for name in names)


def _severity(rule: Rule) -> str:
    if rule.raised is None:
        return f"'{rule.severity}'"
    return f"CASE WHEN {rule.sql(rule.raised.when)} THEN '{rule.raised.to}' ELSE '{rule.severity}' END"


def _struct(rule: Rule) -> str:
    return (
        f"CASE WHEN {rule.condition_sql()} THEN struct(\n"
        f"        '{rule.id}' AS finding, {_severity(rule)} AS severity,\n"
        f"        CAST({rule.sql(rule.measure)} AS DOUBLE) AS measure,\n"
        f"        {rule.evidence_sql()} AS evidence,\n"
        f"        {rule.as_sql(rule.advice)} AS advice\n"
        "      ) END"
    )


def _other(rule: Rule) -> str:
    return _OTHER.format(
        id=rule.id,
        severity=_severity(rule),
        evidence=rule.evidence_sql(),
        hour=_HOUR,
        advice=rule.as_sql(rule.advice),
        scope=rule.scope,
        measure=rule.sql(rule.measure),
        reads=rule.sql(rule.reads or ""),
        condition=rule.condition_sql(),
    )
