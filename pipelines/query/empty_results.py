"""Says why a query has no rows, where a table of the lake shows it: nobody recorded it, or nothing happened."""

from __future__ import annotations

import re

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from kafka_telemetry_lake.pipelines.tables.table import table_uri

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
        "no rules are known: give `telemetry-lake sync` an --aliases-file with rules", "the file has no rules"
    ),
    "prices": ("no prices are known: give `telemetry-lake sync` a --prices-file", "the price list is empty"),
    "brokers": (f"no brokers are known: {_SYNC}", "the cluster has no brokers"),
    "quality_results": ("`telemetry-lake quality` has not checked this lake", "no rule has run"),
    "quota_usage": ("neither brokers nor clients have reported quota use", "no quota use was measured"),
    "quota_samples": ("the receivers have landed no quota samples", "the receivers have landed no quota samples"),
    "receiver_health": ("the receivers have landed no status", "the receivers have landed no status"),
    "quarantine": (_PUSHED, "nothing is damaged: no push or point was rejected"),
    "finding_changes": (
        "findings were never evaluated: run `telemetry-lake findings`", "no finding has ever been open"
    ),
    "pipeline_metrics": ("no job has reported a batch", "no job has reported a batch"),
    "client_changes": ("no client is known yet: the lifecycle follows the pushes", "no client is known yet"),
    "push_outcomes": (_PUSHED, _PUSHED),
    "metric_points": (_PUSHED, "the pushes contain no data points"),
    "pushes": (_PUSHED, _PUSHED),
}  # fmt: skip
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
