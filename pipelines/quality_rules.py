"""What must hold in every lake: one list of rules, each with the sentence that a person reads when it is broken.

A rule is SQL of DuckDB. It looks at the rows that are new since the last check, and at other tables only for the landed
dates that these rows are of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from udfs.rows import PUSH_KEY
from udfs.shard_rows import INCREMENT_STATUSES, KINDS, STATUSES

KEYS = [field.name for field in PUSH_KEY]
KEY = ", ".join(f'"{name}"' for name in KEYS)  # an offset of a topic made again is another push
_SAME = " AND ".join(f'a."{field.name}" IS NOT DISTINCT FROM b."{field.name}"' for field in PUSH_KEY)
_PARTITION = ("source", "cluster_id", "topic", "partition")
_SAME_PARTITION = " AND ".join(f'a."{name}" IS NOT DISTINCT FROM b."{name}"' for name in _PARTITION)
_NEWEST = "SELECT max(landed_at) FROM newest WHERE table_name ="
_GRACE = "INTERVAL 10 MINUTE"  # streams follow each other within a batch or two


@dataclass(frozen=True)
class Rule:
    """What must hold of a table.

    Attributes:
        says: the rule in words.
        do: what to do when it is broken.
        breaks: a condition that a row of the table breaks the rule by; or
        select: rows that break it, over `added` (the table's rows that are new), the tables of `reads` (all their rows
            from the first landed date that is looked at on), `first_days` (table_name, landed_date), `newest`
            (table_name, landed_at), `days` (landed_date, rows: of this table) and `asked` (now, stale_hours).
        in_batch: how many rows of a micro-batch break it, of its tasks' counts: pushes in_files, those of them that are
            repeated or judged, rows written to a table by its name, outcome_points and outcomes_rejected.
        open_from: the first landed date that the next check must look at again, over the same relations.
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

    @property
    def sentence(self) -> str:
        """`says` with a capital, unless it begins with the name of a column."""
        return self.says if "_" in self.says.split()[0] else self.says[0].upper() + self.says[1:]


def _among(column: str, *allowed: str) -> str:
    return f"coalesce({column}, '') NOT IN ({', '.join(map(repr, allowed))})"


def _once(table: str) -> str:
    return f"SELECT {KEY}, count(*) AS times FROM {table} GROUP BY {KEY} HAVING count(*) > 1"


def _within(table: str) -> str:
    """Landed dates that a table's retention hasn't dropped."""
    return f"coalesce(a.landed_date >= (SELECT landed_date FROM first_days WHERE table_name = '{table}'), TRUE)"


# Rows of pushes that table `pushes` doesn't have.
_WITHOUT_PUSH = f"SELECT DISTINCT {KEY} FROM added AS a ANTI JOIN pushes AS b ON {_SAME} WHERE {_within('pushes')}"
_UNJUDGED = f"SELECT * FROM pushes AS a ANTI JOIN push_outcomes AS b ON {_SAME}"
_STATUSES = STATUSES.to_pylist()
_COUNTED = ", ".join(map(repr, _STATUSES[: INCREMENT_STATUSES + 1]))
_REPLAY = "make its rows anew: telemetry-lake replay"
_REPORT = "this must not be: report it, with the rows named here"

RULES = (
    Rule(
        "pushes_once",
        "pushes",
        "no (source, cluster, topic, partition, offset, landing time) stands twice",
        f"{_REPORT}; sums over these pushes count twice until then",
        select=_once("pushes"),
        reads=("pushes",),
    ),
    Rule(
        "pushes_judged",
        "pushes",
        "every push has an outcome, or the stream of points hasn't come that far",
        _REPLAY,
        # Passed over: a later push of its partition has been judged, which landed well after it or when nothing waits
        # any more (the newest push of all has been judged; bounds in a table's log are rounded).
        select=f"""SELECT a.* EXCLUDE (payload) FROM ({_UNJUDGED}) AS a
            WHERE EXISTS (SELECT 1 FROM (SELECT {", ".join(_PARTITION)}, max(landed_at) AS judged, max("offset") AS last
                                         FROM push_outcomes GROUP BY ALL) AS b
                          WHERE {_SAME_PARTITION} AND (
                            b.judged > a.landed_at + {_GRACE} OR b.last > a."offset" AND ({_NEWEST} 'pushes')
                              <= ({_NEWEST} 'push_outcomes') + INTERVAL 1 SECOND))""",
        reads=("pushes", "push_outcomes"),
        in_batch=lambda totals: totals["in_files"] - totals["judged"],
        open_from=f"SELECT min(landed_date) FROM ({_UNJUDGED})",
    ),
    Rule(
        "pushes_volume",
        "pushes",
        "the last whole day has between half and twice the pushes of the median of the 7 days before",
        "who stopped or started: SELECT * FROM client_events WHERE event LIKE 'mass_%'; and the brokers' receivers",
        select="""SELECT landed_date, rows AS pushes, usual FROM (
              SELECT landed_date, rows, row_number() OVER (ORDER BY landed_date DESC) AS age,
                     median(rows) OVER before AS usual, count(*) OVER before AS known
              FROM days WINDOW before AS (ORDER BY landed_date ROWS BETWEEN 7 PRECEDING AND 1 PRECEDING))
            WHERE age = 2 AND known >= 3 AND rows NOT BETWEEN usual / 2 AND usual * 2""",
    ),
    Rule(
        "pushes_fresh",
        "pushes",
        "the newest push landed within --stale-hours, where these are given",
        "is the job running, do the brokers' receivers land (SELECT * FROM pipeline_health), do clients push?",
        select="""SELECT newest.landed_at AS newest_push, asked.now FROM newest, asked
            WHERE table_name = 'pushes' AND newest.landed_at < now - to_seconds(CAST(stale_hours * 3600 AS BIGINT))""",
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
        "every outcome is of a push that is stored",
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
        "a push that was rejected, whole or in points, has rows in quarantine that say why",
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
        "is the job's lifecycle stream behind (SELECT * FROM pipeline_health)? Else: " + _REPORT,
        select=f"""SELECT DISTINCT a.cluster_id, a.client_instance_id, a.client_id FROM added AS a
            ANTI JOIN (SELECT DISTINCT cluster_id, client_instance_id FROM all_client_changes) AS b
            ON a.client_instance_id = b.client_instance_id AND a.cluster_id IS NOT DISTINCT FROM b.cluster_id
            WHERE a.outcome IN ('points', 'heartbeat')
              AND a.landed_at + {_GRACE} < (SELECT landed_at FROM newest WHERE table_name = 'client_changes')""",
        reads=("client_changes",),
    ),
    Rule(
        "outcomes_keep_up",
        "push_outcomes",
        "the newest judged push is at most an hour behind the newest landed one",
        "is the job running? Its log's last line says why the stream of points stands still",
        select="""SELECT a.landed_at AS judged_to, b.landed_at AS landed_to FROM newest AS a, newest AS b
            WHERE a.table_name = 'push_outcomes' AND b.table_name = 'pushes'
              AND a.landed_at < b.landed_at - INTERVAL 1 HOUR""",
    ),
    Rule(
        "outcomes_known",
        "push_outcomes",
        "outcome is one of docs/semantics.md",
        _REPORT,
        breaks=_among("outcome", "points", "heartbeat", "duplicate", "too_late", "quarantined", "dropped"),
    ),
    Rule(
        "points_have_a_push",
        "metric_points",
        "every data point is of a push that is stored",
        _REPORT,
        select=_WITHOUT_PUSH,
        reads=("pushes",),
    ),
    Rule(
        "points_status_known",
        "metric_points",
        "delta_status is one of docs/semantics.md",
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
        "temporality is delta or cumulative, and NULL for gauges and summaries alone",
        _REPORT,
        breaks="CASE WHEN kind IN ('gauge', 'summary') THEN temporality IS NOT NULL "
        f"ELSE {_among('temporality', 'delta', 'cumulative')} END",
    ),
    Rule(
        "points_never_fall",
        "metric_points",
        "no monotonic sum has a negative delta, but those that a client itself told (status negative)",
        _REPORT,
        breaks="is_monotonic AND delta_status <> 'negative' "
        "AND (delta < 0 OR delta_int < 0 OR count_delta < 0 OR zero_count_delta < 0)",
    ),
    Rule(
        "points_counted_have_a_delta",
        "metric_points",
        "a delta stands with the statuses that count, and with no other",
        _REPORT,
        breaks=f"(coalesce(delta, count_delta) IS NOT NULL) <> (delta_status IN ({_COUNTED}))",
    ),
    Rule(
        "points_delta_spans_time",
        "metric_points",
        "a delta is the increment over (delta_start, time], which never runs backwards",
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
        "every row of quarantine is of a push that is stored",
        _REPORT,
        select=_WITHOUT_PUSH,
        reads=("pushes",),
    ),
    Rule(
        "quarantine_says_why",
        "quarantine",
        "a row of quarantine has scope push or point, and a reason",
        _REPORT,
        breaks=f"{_among('scope', 'push', 'point')} OR coalesce(reason, '') = ''",
    ),
    Rule(
        "receivers_add_up",
        "receiver_health",
        "received = landed + dropped + queued in each status of a receiver",
        "look into the log of that broker's receiver plugin",
        breaks="problem IS NULL AND received <> landed + dropped_total + queue_depth",
    ),
    Rule(
        "receivers_speak_plainly",
        "receiver_health",
        "every record of the status topic is a status of a known version",
        "a receiver plugin newer than this job? Bring them to one version; else see who writes to that topic",
        breaks="problem IS NOT NULL",
    ),
    Rule(
        "rollups_add_up",
        "metric_rollups_1h",
        "a rollup has no more values or refused points than points, and covers no negative time",
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
        "does a program other than the receiver plugin write to the topic of quota samples?",
        breaks=f"{_among('quota_type', 'produce', 'fetch', 'request')} OR quota_limit < 0",
    ),
    Rule(
        "versions_end_after_they_begin",
        "subscriptions",
        "a version of a subscription ends after it began, and asks for a positive interval",
        "has the clock of the machine that runs `telemetry-lake sync` been set back?",
        breaks="valid_to <= valid_from OR interval_ms <= 0",
    ),
    Rule(
        "quota_versions_end_after_they_begin",
        "quotas",
        "a version of a quota ends after it began",
        "has the clock of the machine that runs `telemetry-lake sync` been set back?",
        breaks="valid_to <= valid_from",
    ),
)


def tables_with_rules() -> list[str]:
    """In the order that they are looked at; a table comes before those whose rows are written earlier."""
    order = ("push_outcomes", "metric_points", "quarantine")
    return [*order, *dict.fromkeys(rule.table for rule in RULES if rule.table not in order)]
