"""What a query says besides its rows: an error in one line, with what to write instead, or why there are no rows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import duckdb
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from kafka_telemetry_lake.pipelines.tables.table import table_uri
from kafka_telemetry_lake.udfs.errors import TelemetryLakeError
from kafka_telemetry_lake.udfs.nearest import did_you_mean

LONGEST = 300  # characters
# What DuckDB adds to a message: the query's text, all variants of a function, names of its own system tables.
ADDED = re.compile(r"\s*(?:\bLINE \d+:|\bCandidate (?:functions|bindings):|\bDid you mean \").*", re.DOTALL)
KIND = re.compile(r"^(?:Binder|Catalog|Conversion|Parser|Invalid Input) Error: ")
RELATION = re.compile(r"Table with name \"?(.+?)\"? does not exist")
COLUMN = re.compile(r'Referenced column "(.+?)" (?:was )?not found|does not have a column named "(.+?)"')
# Errors of values that the query converts, in contrast to those of files that can't be read.
OF_VALUES = re.compile(r"\b(?:Conversion|Out of Range|Invalid Input|Interrupt|Binder) Error: .*", re.DOTALL)


class QueryError(TelemetryLakeError):
    """The query failed; the message is one line for the user."""


def one_line(error: Exception) -> str:
    """The text of an error without line breaks."""
    return " ".join(str(error).split())


def explained(error: duckdb.Error, tables: Sequence[str], others: Iterable[str], columns: Iterable[str]) -> str:
    """What is wrong with a query, in one line.

    Args:
        tables: names of the lake's tables.
        others: names of views, and of tables that the lake doesn't have yet.
        columns: columns of the tables and views that the query names; used only if one of them may be meant.
    """
    text = str(error)
    if match := RELATION.search(text):
        if "/" in match[1] or match[1].endswith((".csv", ".json", ".parquet")):
            return f"{match[1]} is not a table; --allow-files lets a query read files"
        known = f" (this lake's tables: {', '.join(tables)}; SHOW TABLES lists the views too)"
        return f"no table or view is called {match[1]}{did_you_mean(match[1], [*tables, *others]) or known}"
    if match := COLUMN.search(text):
        return f"no column is called {match[1] or match[2]}{did_you_mean(match[1] or match[2], columns)}"
    message = short(text)
    if isinstance(error, duckdb.PermissionException):
        message += "; --allow-files allows files outside the lake"
    elif isinstance(error, duckdb.OutOfMemoryException):
        message = f"the query needs more than --memory and --spill allow: {message}"
    elif isinstance(error, duckdb.IOException) and "No files" in message:
        message += ": maintenance has just deleted it (repeat the query), or somebody did manually"
    return message


def of_reading(error: Exception) -> QueryError:
    """The error of rows that couldn't be computed or read, while they were fetched."""
    if match := OF_VALUES.search(str(error)):
        return QueryError(short(match[0]))
    return QueryError(f"a file of the lake can't be read: {short(str(error))}")


def short(text: str) -> str:
    """A message of DuckDB in one line, without what it repeats of the query."""
    line = " ".join(KIND.sub("", ADDED.sub("", text)).split())
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}…"


_SYNC = "`telemetry-lake sync` has recorded none in this lake"
_PUSHED = "no push has landed in this lake: check the subscription, the receiver plugin and the job"

# Table: the reason if the lake doesn't have it, and the reason if it has no rows.
REASONS: dict[str, tuple[str, str]] = {
    "subscriptions": (f"no subscriptions are known: {_SYNC}", "the cluster has no client-metrics subscription"),
    "quotas": (f"no quotas are known: {_SYNC}", "the cluster has no client quotas"),
    "group_states": (f"no consumer groups are known: {_SYNC}", "the cluster has no consumer groups"),
    "group_members": (f"no group members are known: {_SYNC}", "the consumer groups have no members"),
    "group_offsets": (f"no committed offsets are known: {_SYNC}", "the consumer groups have committed no offsets"),
    "group_lag_samples": (f"no lag is known: {_SYNC}", "the consumer groups have committed no offsets"),
    "client_aliases": ("no aliases are known: give `telemetry-lake sync` an --aliases-file", "the file has no aliases"),
    "application_rules": (
        "no rules are known: give `telemetry-lake sync` an --aliases-file with rules",
        "the file has no rules",
    ),
    "prices": ("no prices are known: give `telemetry-lake sync` a --prices-file", "the price list is empty"),
    "brokers": (f"no brokers are known: {_SYNC}", "the cluster has no brokers"),
    "quality_results": ("`telemetry-lake quality` has not checked this lake", "no rule has run"),
    "quota_usage": ("neither brokers nor clients have reported quota use", "no quota use was measured"),
    "quota_samples": ("the receivers have landed no quota samples", "the receivers have landed no quota samples"),
    "receiver_health": ("the receivers have landed no status", "the receivers have landed no status"),
    "broker_connections": (
        "no broker's receiver has reported connections: receivers of this release do, those in a proxy don't",
        "no broker's receiver has reported connections: receivers of this release do, those in a proxy don't",
    ),
    "quarantine": (_PUSHED, "nothing is damaged: no push or point was rejected"),
    "finding_changes": (
        "findings were never evaluated: run `telemetry-lake findings`",
        "no finding has ever been open",
    ),
    "pipeline_metrics": ("no job has reported a batch", "no job has reported a batch"),
    "client_changes": ("no client is known yet: the lifecycle follows the pushes", "no client is known yet"),
    "push_outcomes": (_PUSHED, _PUSHED),
    "metric_points": (_PUSHED, "the pushes contain no data points"),
    "pushes": (_PUSHED, _PUSHED),
}
# View: the tables without whose rows it has none, in the order in which they are looked at.
NEEDED: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("subscription_changes", "subscription_cost", "subscription_coverage", "subscription_events",
         "subscription_metrics", "subscription_uncertain_spans"),
        ("subscriptions", "push_outcomes"),
    ),
    **dict.fromkeys(("client_quotas", "quota_changes", "quota_enforcement", "quota_history"), ("quotas",)),
    **dict.fromkeys(
        ("quota_estimate_error", "quota_headroom", "quota_windows", "throttled_clients"),
        ("push_outcomes", "quota_usage"),
    ),
    **dict.fromkeys(
        ("client_liveness", "clients", "consumer_groups", "coverage", "rebootstrap_readiness", "rebootstraps",
         "unlimited_clients"),
        ("push_outcomes", "client_changes"),
    ),
    **dict.fromkeys(
        ("client_measures", "consumer_progress", "counted_points", "fleet_quantiles_1h", "metric_catalog",
         "metric_ranks_1h", "metric_rates_1h", "metric_rates_1m", "metric_week_over_week", "point_subscriptions",
         "producer_pipeline", "topic_clients", "topic_flows", "unsubscribed_metrics"),
        ("push_outcomes", "metric_points"),
    ),
    **dict.fromkeys(
        ("finding_savings", "findings", "instance_findings", "instance_hours", "push_discipline", "push_subscriptions"),
        ("push_outcomes",),
    ),
    "consumer_group_members": ("group_members",),
    "group_lag": ("group_lag_samples",),
    **dict.fromkeys(("open_findings", "open_finding_groups"), ("finding_changes",)),
    "pipeline_health": ("pipeline_metrics",),
    "quarantine_offenders": ("quarantine",),
    "telemetry_coverage": ("broker_connections",),
}  # fmt: skip
# What a view without rows says if its tables have rows.
NOTHING = {
    "finding_savings": "no rule of docs/findings.md found anything about a client instance",
    "findings": "no rule of docs/findings.md found anything",
    "instance_findings": "no rule of docs/findings.md found anything",
    "open_findings": "all findings are resolved",
    "rebootstraps": "no client went back to its bootstrap servers",
    "throttled_clients": "no client was throttled",
    "unsubscribed_metrics": "every metric was asked for by a subscription",
}


def why_empty(lake: str, sql: str) -> str | None:
    """The reason why a query has no rows; None: the tables that it names have rows, so its conditions exclude them."""
    named = list(dict.fromkeys(word.lower() for word in re.findall(r"\w+", sql)))
    asked = [name for name in named if name in REASONS or name in NEEDED]
    for name in asked:
        for table in NEEDED.get(name, (name,)):
            missing, empty = REASONS[table]
            if (rows := _rows(lake, table)) is None:
                return missing
            if rows == 0:
                return empty
    whole = len(asked) == 1 and not re.search(r"\b(where|having|limit|join)\b", sql, re.IGNORECASE)
    return NOTHING.get(asked[0]) if whole else None


def _rows(lake: str, table: str) -> int | None:
    """Rows of a table as its log has them; None: the lake has no such table."""
    try:
        counts = DeltaTable(table_uri(lake, table)).get_add_actions()["num_records"].to_pylist()
    except TableNotFoundError:
        return None
    except DeltaError:
        return 1
    return sum(1 if count is None else count for count in counts)
