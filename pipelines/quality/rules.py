"""The data quality rules, each with the sentence and advice that `telemetry-lake quality` prints when it is broken.

A rule is DuckDB SQL. It checks the rows added since the last check, one landed date after the other: all rows of a push
have its landed date, so what belongs together is compared, and memory follows a day.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kafka_telemetry_lake.udfs.conversion.point_rows import INCREMENT_STATUSES, KINDS, STATUSES
from kafka_telemetry_lake.udfs.rows import PUSH_KEY

KEYS = [field.name for field in PUSH_KEY]
KEY = ", ".join(f'"{name}"' for name in KEYS)  # offsets start again when a topic is recreated
_SAME = " AND ".join(f'a."{field.name}" IS NOT DISTINCT FROM b."{field.name}"' for field in PUSH_KEY)
_PARTITION = ("source", "cluster_id", "topic", "partition")
_SAME_PARTITION = " AND ".join(f'a."{name}" IS NOT DISTINCT FROM b."{name}"' for name in _PARTITION)
_NEWEST = "SELECT max(landed_at) FROM newest WHERE table_name ="
_GRACE = "INTERVAL 10 MINUTE"  # one stream follows another within a batch or two


@dataclass(frozen=True)
class Rule:
    """A data quality rule of a table.

    Attributes:
        says: the rule in words.
        do: what to do when it is broken.
        breaks: SQL condition, true for rows that break the rule; or
        select: SQL query for rows that break it, over `added` (new rows of the table), the tables of `reads` (all rows
            of the landed date), `first_days` (table_name, landed_date), `newest` (table_name, landed_at), `days`
            (landed_date, rows: of this table) and `parameters` (now, stale_hours).
        across: SQL query over all rows from the first landed date that is checked on; `select` reads its rows as
            `across`.
        at_once: `select` is asked once, for all landed dates that are checked.
        in_batch: number of rows of a micro-batch that break it, from the summed counts of its tasks: pushes `in_files`,
            `repeated` and `judged`, rows written by table name, `outcome_points` and `outcomes_rejected`.
        open_from: SQL query for the first landed date that the next check must include again.
    """

    name: str
    table: str
    says: str
    do: str
    breaks: str = ""
    select: str = ""
    reads: tuple[str, ...] = ()
    in_batch: Callable[[Mapping[str, int]], int] | None = None
    open_from: str = ""
    across: str = ""
    at_once: bool = False

    @property
    def sentence(self) -> str:
        """`says` with a capital first letter, unless it starts with a column name."""
        return self.says if "_" in self.says.split()[0] else self.says[0].upper() + self.says[1:]


def _among(column: str, *allowed: str) -> str:
    return f"coalesce({column}, '') NOT IN ({', '.join(map(repr, allowed))})"


def _once(table: str) -> str:
    return f"SELECT {KEY}, count(*) AS times FROM {table} GROUP BY {KEY} HAVING count(*) > 1"


def _within(table: str) -> str:
    """SQL condition: the landed date is still within a table's retention."""
    return f"coalesce(a.landed_date >= (SELECT landed_date FROM first_days WHERE table_name = '{table}'), TRUE)"


# Rows whose push isn't in table `pushes`.
_WITHOUT_PUSH = f"SELECT DISTINCT {KEY} FROM added AS a ANTI JOIN pushes AS b ON {_SAME} WHERE {_within('pushes')}"
_UNJUDGED = f"SELECT * FROM pushes AS a ANTI JOIN push_outcomes AS b ON {_SAME}"
_STATUSES = STATUSES.to_pylist()
_COUNTED = ", ".join(map(repr, _STATUSES[: INCREMENT_STATUSES + 1]))
_REPLAY = "run `telemetry-lake replay` to recreate its rows"
_REPORT = "this is a bug: report it with the rows named here"

RULES = (
    Rule(
        "pushes_once",
        "pushes",
        "each (source, cluster, topic, partition, offset, landing time) is unique",
        f"{_REPORT}; until it is fixed, sums count these pushes twice",
        select=_once("pushes"),
        reads=("pushes",),
    ),
    Rule(
        "pushes_judged",
        "pushes",
        "every push that the job has reached has an outcome",
        _REPLAY,
        # Skipped pushes: a later push of the partition has an outcome, and either it landed well after this one or the
        # newest push of all has an outcome too. Bounds in a table's log are rounded to milliseconds.
        select=f"""SELECT a.* EXCLUDE (payload) FROM ({_UNJUDGED}) AS a
            WHERE EXISTS (SELECT 1 FROM across AS b WHERE {_SAME_PARTITION} AND (
                            b.judged > a.landed_at + {_GRACE} OR b.last > a."offset" AND ({_NEWEST} 'pushes')
                              <= ({_NEWEST} 'push_outcomes') + INTERVAL 1 SECOND))""",
        reads=("pushes", "push_outcomes"),
        in_batch=lambda totals: totals["in_files"] - totals["judged"],
        open_from=f"SELECT min(landed_date) FROM ({_UNJUDGED})",
        across=f"""SELECT {", ".join(_PARTITION)}, max(landed_at) AS judged, max("offset") AS last FROM push_outcomes
            GROUP BY ALL""",
    ),
    Rule(
        "pushes_volume",
        "pushes",
        "the last complete day has between half and twice the median number of pushes of the 7 days before",
        "check the brokers' receivers, and SELECT * FROM client_events WHERE event LIKE 'mass_%'",
        select="""SELECT landed_date, rows AS pushes, usual FROM (
              SELECT landed_date, rows, row_number() OVER (ORDER BY landed_date DESC) AS age,
                     median(rows) OVER before AS usual, count(*) OVER before AS known
              FROM days WINDOW before AS (ORDER BY landed_date ROWS BETWEEN 7 PRECEDING AND 1 PRECEDING))
            WHERE age = 2 AND known >= 3 AND rows NOT BETWEEN usual / 2 AND usual * 2""",
        at_once=True,
    ),
    Rule(
        "pushes_fresh",
        "pushes",
        "the newest push landed within --stale-hours, if set",
        "check that the job runs, that receivers land pushes (SELECT * FROM pipeline_health) and that clients push",
        select="""SELECT newest.landed_at AS newest_push, parameters.now FROM newest, parameters
            WHERE table_name = 'pushes' AND newest.landed_at < now - to_seconds(CAST(stale_hours * 3600 AS BIGINT))""",
        at_once=True,
    ),
    Rule(
        "outcomes_once",
        "push_outcomes",
        "no push has two outcomes",
        _REPLAY,
        select=_once("push_outcomes"),
        reads=("push_outcomes",),
        in_batch=lambda totals: totals["repeated"],
    ),
    Rule(
        "outcomes_have_a_push",
        "push_outcomes",
        "the push of every outcome is stored",
        _REPORT,
        select=_WITHOUT_PUSH,
        reads=("pushes",),
    ),
    Rule(
        "outcomes_count_points",
        "push_outcomes",
        "a push has as many rows in metric_points as its outcome says",
        _REPLAY,
        select=f"""SELECT a.* EXCLUDE (labels, statuses), coalesce(b.stored, 0) AS stored FROM added AS a
            LEFT JOIN (SELECT {KEY}, count(*) AS stored FROM metric_points GROUP BY ALL) AS b ON {_SAME}
            WHERE {_within("metric_points")} AND coalesce(a.points, 0) <> coalesce(b.stored, 0)""",
        reads=("metric_points",),
        in_batch=lambda totals: totals["outcome_points"] - totals["metric_points"],
    ),
    Rule(
        "outcomes_have_quarantine_rows",
        "push_outcomes",
        "every push that was rejected, in whole or in part, has rows in quarantine that say why",
        _REPLAY,
        select=f"""SELECT a.* EXCLUDE (labels, statuses) FROM added AS a ANTI JOIN quarantine AS b ON {_SAME}
            WHERE {_within("quarantine")} AND (a.outcome = 'quarantined' OR a.quarantined_points > 0)""",
        reads=("quarantine",),
        in_batch=lambda totals: max(0, totals["outcomes_rejected"] - totals["quarantine"]),
    ),
    Rule(
        "outcomes_have_a_client",
        "push_outcomes",
        "every client that pushed is in view clients",
        "check whether the lifecycle stream is behind (SELECT * FROM pipeline_health); if not, " + _REPORT,
        select=f"""SELECT DISTINCT a.cluster_id, a.client_instance_id, a.client_id FROM added AS a
            ANTI JOIN (SELECT DISTINCT cluster_id, client_instance_id FROM all_client_changes) AS b
            ON a.client_instance_id = b.client_instance_id AND a.cluster_id IS NOT DISTINCT FROM b.cluster_id
            WHERE a.outcome IN ('points', 'heartbeat')
              AND a.landed_at + {_GRACE} < (SELECT landed_at FROM newest WHERE table_name = 'client_changes')""",
        reads=("client_changes",),
        at_once=True,
    ),
    Rule(
        "outcomes_keep_up",
        "push_outcomes",
        "the newest push with an outcome is at most an hour older than the newest landed push",
        "check that the job is running; the last line of its log says why it has stopped",
        select="""SELECT a.landed_at AS judged_to, b.landed_at AS landed_to FROM newest AS a, newest AS b
            WHERE a.table_name = 'push_outcomes' AND b.table_name = 'pushes'
              AND a.landed_at < b.landed_at - INTERVAL 1 HOUR""",
        at_once=True,
    ),
    Rule(
        "outcomes_known",
        "push_outcomes",
        "outcome is one of those in docs/semantics.md",
        _REPORT,
        breaks=_among("outcome", "points", "heartbeat", "duplicate", "too_late", "quarantined", "dropped"),
    ),
    Rule(
        "points_have_a_push",
        "metric_points",
        "the push of every data point is stored",
        _REPORT,
        select=_WITHOUT_PUSH,
        reads=("pushes",),
    ),
    Rule(
        "points_status_known",
        "metric_points",
        "delta_status is one of those in docs/semantics.md",
        _REPORT,
        breaks=_among("delta_status", *_STATUSES),
    ),
    Rule(
        "points_kind_known",
        "metric_points",
        "kind is gauge, sum, histogram, exponential_histogram or summary",
        _REPORT,
        breaks=_among("kind", *KINDS.to_pylist()),
    ),
    Rule(
        "points_temporality_known",
        "metric_points",
        "temporality is delta or cumulative, and NULL only for gauges and summaries",
        _REPORT,
        breaks="CASE WHEN kind IN ('gauge', 'summary') THEN temporality IS NOT NULL "
        f"ELSE {_among('temporality', 'delta', 'cumulative')} END",
    ),
    Rule(
        "points_never_fall",
        "metric_points",
        "no monotonic sum has a negative delta, except those the client itself sent (status negative)",
        _REPORT,
        breaks="is_monotonic AND delta_status <> 'negative' "
        "AND (delta < 0 OR delta_int < 0 OR count_delta < 0 OR zero_count_delta < 0)",
    ),
    Rule(
        "points_counted_have_a_delta",
        "metric_points",
        "a point has a delta if and only if its delta_status is one that counts",
        _REPORT,
        breaks=f"(coalesce(delta, count_delta) IS NOT NULL) <> (delta_status IN ({_COUNTED}))",
    ),
    Rule(
        "points_delta_spans_time",
        "metric_points",
        "delta_start is not after time: a delta is the increment over (delta_start, time]",
        _REPORT,
        breaks="delta_start > time",
    ),
    Rule(
        "points_not_from_the_future",
        "metric_points",
        "no point is more than a day later than its push landed",
        _REPORT,
        breaks="time > landed_at + INTERVAL 24 HOUR OR time IS NULL",
    ),
    Rule(
        "quarantine_has_a_push",
        "quarantine",
        "the push of every row of quarantine that is about a push or a point is stored",
        _REPORT,
        select=f"{_WITHOUT_PUSH} AND coalesce(a.scope, '') <> 'quota_sample'",
        reads=("pushes",),
    ),
    Rule(
        "quarantine_says_why",
        "quarantine",
        "a row of quarantine has scope push, point or quota_sample, and a reason",
        _REPORT,
        breaks=f"{_among('scope', 'push', 'point', 'quota_sample')} OR coalesce(reason, '') = ''",
    ),
    Rule(
        "receivers_add_up",
        "receiver_health",
        "received = landed + dropped + queued in each status of a receiver",
        "read that broker's log of the receiver plugin",
        breaks="problem IS NULL AND received <> landed + dropped_total + queue_depth",
    ),
    Rule(
        "receivers_speak_plainly",
        "receiver_health",
        "every record of the status topic is a receiver status of a known version",
        "if a receiver plugin is newer than this job, use one version for both; else find out who writes to that topic",
        breaks="problem IS NOT NULL",
    ),
    Rule(
        "rollups_add_up",
        "metric_rollups_1h",
        "a rollup has at most as many values and refused points as points, and covers no negative time",
        _REPORT,
        breaks="points < 1 OR value_count > points OR refused > points OR covered_s < 0 OR value_min > value_max",
    ),
    Rule(
        "quota_percentages",
        "quota_usage",
        "used_percent lies between 0 and 100, and usage_ratio isn't negative",
        _REPORT,
        breaks="used_percent NOT BETWEEN 0 AND 100 OR isnan(used_percent) OR usage_ratio < 0",
    ),
    Rule(
        "quota_types_known",
        "quota_usage",
        "quota_type is produce, fetch or request; source is broker, client or evidence",
        _REPORT,
        breaks=f"{_among('quota_type', 'produce', 'fetch', 'request')} OR "
        f"{_among('source', 'broker', 'client', 'evidence')}",
    ),
    Rule(
        "quota_samples_known",
        "quota_samples",
        "quota_type is produce, fetch or request, and no limit is negative",
        "check whether a program other than the receiver plugin writes to the topic of quota samples",
        breaks=f"{_among('quota_type', 'produce', 'fetch', 'request')} OR quota_limit < 0",
    ),
    Rule(
        "versions_end_after_they_begin",
        "subscriptions",
        "every version of a subscription ends after it began, and its interval is positive",
        "check whether the clock of the machine that runs `telemetry-lake sync` was set back",
        breaks="valid_to <= valid_from OR interval_ms <= 0",
    ),
    Rule(
        "quota_versions_end_after_they_begin",
        "quotas",
        "every version of a quota ends after it began",
        "check whether the clock of the machine that runs `telemetry-lake sync` was set back",
        breaks="valid_to <= valid_from",
    ),
    Rule(
        "records_read",
        "lost_records",
        "no landing record was gone before the job read it, none was skipped, and no day of a table was dropped unread",
        "give the landing topic and the tables a longer retention than the job's longest pause; SELECT * FROM "
        "lost_records says which offsets or days",
        breaks="records > 0 OR reason = 'dropped'",
    ),
)


def tables_with_rules() -> list[str]:
    """Tables in the order of checking: one whose rows are written later comes first."""
    order = ("push_outcomes", "metric_points", "quarantine")
    return [*order, *dict.fromkeys(rule.table for rule in RULES if rule.table not in order)]
