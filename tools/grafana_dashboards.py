"""Writes Grafana's dashboards over the exporter's and the job's metrics, and its alert rules, into deploy/grafana.

    python tools/grafana_dashboards.py [DIR]

The alert rules are those of deploy/prometheus/*.yml.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
P = "telemetry_lake"
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH, HEIGHT, SMALL = 12, 8, 4
SCHEMA_VERSION = 38  # of Grafana 10
TOP = 10
OF_CLUSTER = 'cluster_id=~"$cluster"'

Panel = tuple[str, str, str, str, list[tuple[str, str]]]  # kind, title, unit, description, expressions and legends


def graph(title: str, unit: str, about: str, *queries: tuple[str, str]) -> Panel:
    return "timeseries", title, unit, about, list(queries)


def number(title: str, unit: str, about: str, expression: str, legend: str = "") -> Panel:
    return "stat", title, unit, about, [(expression, legend)]


def bars(title: str, unit: str, about: str, expression: str, legend: str) -> Panel:
    return "bargauge", title, unit, about, [(expression, legend)]


def rate(metric: str, by: str, labels: str = OF_CLUSTER, top: int | None = TOP) -> str:
    """The rate of a counter by labels. All series, the rest's too, add up to the fleet's."""
    summed = f"sum by ({by}) (rate({P}_{metric}_total{{{labels}}}[$__rate_interval]))"
    return summed if top is None else f"topk({top}, {summed})"


def most(metric: str, by: str, labels: str = OF_CLUSTER) -> str:
    """The greatest values of a gauge."""
    return f"topk({TOP}, max by ({by}) ({P}_{metric}{{{labels}}}))"


CLIENT, APPLICATION = "client_id", "application"


def by_client(title: str, unit: str, about: str, metric: str) -> Panel:
    return graph(title, unit, about, (rate(f"client_{metric}", CLIENT), "{{client_id}}"))


def worst_client(title: str, unit: str, about: str, metric: str) -> Panel:
    return graph(title, unit, about, (most(f"client_{metric}", CLIENT), "{{client_id}}"))


FLEET = [
    number("Active clients", "short", "Client instances that push.",
           f'sum({P}_clients{{{OF_CLUSTER}, state="active"}})'),
    number("Silent clients", "short", "Client instances that stopped to push without a word.",
           f'sum({P}_clients{{{OF_CLUSTER}, state="silent"}})'),
    number("Open findings", "short", "Findings that nobody has acknowledged or muted.",
           f'sum({P}_open_findings{{{OF_CLUSTER}, state="open"}})'),
    number("Throttled", "short", "Entities that a broker throttles now.",
           f"sum({P}_quota_throttled_entities{{{OF_CLUSTER}}})"),
    graph("Clients by state", "short", "Active, terminated and silent client instances.",
          (f"sum by (state) ({P}_clients{{{OF_CLUSTER}}})", "{{state}}")),
    graph("Bytes", "Bps", "Bytes of record batches as sent, and bytes fetched.",
          (rate("application_sent_bytes", "cluster_id", top=None), "sent {{cluster_id}}"),
          (rate("application_consumed_bytes", "cluster_id", top=None), "fetched {{cluster_id}}")),
    graph("Bytes sent by application", "Bps", "The busiest applications.",
          (rate("application_sent_bytes", APPLICATION), "{{application}}")),
    graph("Bytes sent by topic", "Bps", "The busiest topics.", (rate("topic_sent_bytes", "topic"), "{{topic}}")),
    bars("Open findings by rule", "short", "See telemetry-lake findings.",
         f'topk({TOP}, sum by (finding, severity) ({P}_open_findings_by_rule{{{OF_CLUSTER}, state="open"}}))',
         "{{finding}} ({{severity}})"),
    bars("Clients by version", "short", "Active client instances by library and version.",
         f"topk({TOP}, sum by (software_name, software_version) ("
         f'{P}_software_clients{{{OF_CLUSTER}, state="active"}}))',
         "{{software_name}} {{software_version}}"),
    graph("Connections opened", "cps", "Many connections of short life cost brokers.",
          (rate("client_connections_created", CLIENT), "{{client_id}}")),
    graph("Requests", "reqps", "Requests of any kind.", (rate("client_requests", CLIENT), "{{client_id}}")),
]  # fmt: skip
PRODUCERS = [
    by_client("Records sent", "recps", "Java producers; other libraries push no such count.", "records_sent"),
    by_client("Bytes sent", "Bps", "Bytes of record batches as sent.", "sent_bytes"),
    by_client("Records given up", "recps", "Records that could not be sent.", "record_errors"),
    by_client("Retries", "recps", "Sends of records that were retried.", "record_retries"),
    worst_client("Longest time in the queue", "s", "From send() to the request.", "queue_time_max_seconds"),
    worst_client("Mean time in the queue", "s", "From send() to the request.", "queue_time_mean_seconds"),
    worst_client("Longest request", "s", "From a request to its response.", "request_latency_max_seconds"),
    worst_client(
        "Compression", "percentunit", "Compressed by uncompressed size: 1 is not compressed.", "compression_ratio"
    ),
]
CONSUMERS = [
    by_client("Records fetched", "recps", "Java consumers; other libraries push no such count.", "records_consumed"),
    by_client("Bytes fetched", "Bps", "Bytes of records.", "consumed_bytes"),
    worst_client("Lag", "short", "Most records of a partition that a consumer still has to fetch.", "records_lag_max"),
    worst_client("Mean fetch", "s", "Time of a fetch request, with the wait for data.", "fetch_latency_mean_seconds"),
    graph("Share of time in poll()", "percentunit", "Near 0: the application's processing is the limit.",
          (f"bottomk({TOP}, min by (client_id) ({P}_client_poll_idle_ratio{{{OF_CLUSTER}}}))", "{{client_id}}")),
    by_client("Time in rebalances", "percentunit", "Seconds of rebalances a second.", "rebalance_seconds"),
    worst_client("Mean commit", "s", "Time of a commit of offsets.", "commit_latency_mean_seconds"),
    graph("Records fetched by topic", "recps", "The busiest topics.",
          (rate("topic_records_consumed", "topic"), "{{topic}}")),
]  # fmt: skip
OF_ENTITY = "{{quota_type}} {{user}} {{client_id}} broker {{broker_id}}"
ENTITY = "quota_type, user, client_id, broker_id"
QUOTAS = [
    bars("Closest to its quota", "percentunit", "Used part of a quota on a broker, in the newest window.",
         most("quota_used_ratio", ENTITY), OF_ENTITY),
    graph("Used part", "percentunit", "Used part of a quota on a broker.",
          (most("quota_used_ratio", ENTITY), OF_ENTITY)),
    graph("Headroom", "Bps", "What is left of a byte quota on a broker, the least first.",
          (f"bottomk({TOP}, min by ({ENTITY}) ({P}_quota_headroom_bytes_per_second{{{OF_CLUSTER}}}))", OF_ENTITY)),
    graph("Throttled entities", "short", "Once for each broker.",
          (f"sum by (quota_type) ({P}_quota_throttled_entities{{{OF_CLUSTER}}})", "{{quota_type}}")),
    worst_client("Longest delay by a quota", "s", "As clients report it.", "throttle_time_max_seconds"),
]  # fmt: skip
OF_APPLICATION = f'{OF_CLUSTER}, application=~"$application"'
APPLICATIONS = [
    number("Active clients", "short", "Client instances of the application.",
           f'sum({P}_application_clients{{{OF_APPLICATION}, state="active"}})'),
    graph("Clients by state", "short", "Client instances of the application.",
          (f"sum by (state) ({P}_application_clients{{{OF_APPLICATION}}})", "{{state}}")),
    graph("Records", "recps", "Records sent and fetched.",
          (rate("application_records_sent", APPLICATION, OF_APPLICATION, None), "sent {{application}}"),
          (rate("application_records_consumed", APPLICATION, OF_APPLICATION, None), "fetched {{application}}")),
    graph("Bytes", "Bps", "Bytes of record batches as sent, and bytes fetched.",
          (rate("application_sent_bytes", APPLICATION, OF_APPLICATION, None), "sent {{application}}"),
          (rate("application_consumed_bytes", APPLICATION, OF_APPLICATION, None), "fetched {{application}}")),
    graph("Records given up and retried", "recps", "What could not be sent, or not at once.",
          (rate("application_record_errors", APPLICATION, OF_APPLICATION, None), "given up {{application}}"),
          (rate("application_record_retries", APPLICATION, OF_APPLICATION, None), "retried {{application}}")),
    graph("Lag", "short", "Most records of a partition that a consumer still has to fetch.",
          (most("application_records_lag_max", APPLICATION, OF_APPLICATION), "{{application}}")),
    graph("Longest request", "s", "From a request to its response.",
          (most("application_request_latency_max_seconds", APPLICATION, OF_APPLICATION), "{{application}}")),
    graph("Longest delay by a quota", "s", "As clients report it.",
          (most("application_throttle_time_max_seconds", APPLICATION, OF_APPLICATION), "{{application}}")),
]  # fmt: skip
PIPELINE = [
    number("Freshness", "s", "Age of the newest rows when they became visible.", f"max({P}_freshness_seconds)"),
    number("Waiting", "short", "Records of the topic that are not read yet.",
           f'sum({P}_waiting_records{{stream="pushes"}})'),
    number("State", "bytes", "Size of the operator's state.", f"sum({P}_state_bytes)"),
    number("Figures read", "dateTimeFromNow", "When the exporter last read the lake.",
           f"max({P}_export_refreshed_timestamp_seconds) * 1000"),
    graph("Records read", "recps", "By stream.",
          (f"sum by (stream) (rate({P}_records_total[$__rate_interval]))", "{{stream}}")),
    graph("Points written", "recps", "By status: see docs/semantics.md.",
          (f"sum by (delta_status) (rate({P}_points_total[$__rate_interval]))", "{{delta_status}}")),
    graph("Batches", "s", "Duration of the last batch.", (f"max by (stream) ({P}_batch_seconds)", "{{stream}}")),
    graph("Waiting records", "short", "It should not grow.", (f"sum by (stream) ({P}_waiting_records)", "{{stream}}")),
    graph("Rejected", "recps", "Rows of the quarantine, and pushes that could not be processed.",
          (f"sum(rate({P}_quarantined_total[$__rate_interval]))", "quarantine"),
          (f"sum(rate({P}_set_aside_total[$__rate_interval]))", "set aside")),
    graph("Figures", "s", "Duration of the exporter's look at the lake.",
          (f"max({P}_export_refresh_seconds)", "seconds")),
]  # fmt: skip

DASHBOARDS = {
    "fleet": ("Kafka clients: fleet", FLEET, ["cluster"]),
    "producers": ("Kafka clients: producers", PRODUCERS, ["cluster"]),
    "consumers": ("Kafka clients: consumers", CONSUMERS, ["cluster"]),
    "quotas": ("Kafka clients: quotas", QUOTAS, ["cluster"]),
    "application": ("Kafka clients: one application", APPLICATIONS, ["cluster", "application"]),
    "pipeline": ("Kafka clients: the pipeline", PIPELINE, []),
}
VARIABLES = {"cluster": (f"{P}_clients", "cluster_id"), "application": (f"{P}_application_clients", "application")}


def dashboard(name: str) -> dict[str, Any]:
    """A dashboard as Grafana imports it."""
    title, panels, variables = DASHBOARDS[name]
    return {
        "uid": f"telemetry-lake-{name}",
        "title": title,
        "tags": ["kafka", "telemetry-lake"],
        "timezone": "browser",
        "editable": True,
        "graphTooltip": 1,
        "schemaVersion": SCHEMA_VERSION,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "links": [
            {
                "title": "Kafka clients", "type": "dashboards", "tags": ["telemetry-lake"], "asDropdown": True,
                "includeVars": True, "keepTime": True, "targetBlank": False, "icon": "external link", "tooltip": "",
                "url": "",
            }
        ],
        "templating": {"list": [_source(), *(_variable(each) for each in variables)]},
        "annotations": {"list": []},
        "panels": _panels(panels),
    }  # fmt: skip


def _source() -> dict[str, Any]:
    return {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "hide": 0}


def _variable(name: str) -> dict[str, Any]:
    metric, label = VARIABLES[name]
    query = f"label_values({metric}, {label})"
    return {
        "name": name, "type": "query", "datasource": SOURCE, "query": query, "refresh": 2,
        "includeAll": True, "allValue": ".*", "multi": True, "sort": 1, "hide": 0,
        "current": {"text": "All", "value": "$__all"},
    }  # fmt: skip


def _panels(panels: list[Panel]) -> list[dict[str, Any]]:
    result, x, y, height = list[dict[str, Any]](), 0, 0, 0
    for number_, (kind, title, unit, about, queries) in enumerate(panels, 1):
        width, tall = (6, SMALL) if kind == "stat" else (WIDTH, HEIGHT)
        if x + width > 24 or (height and tall != height):
            x, y = 0, y + height
        height = tall
        grid = {"x": x, "y": y, "w": width, "h": tall}
        result.append(_panel(number_, kind, title, unit, about, queries, grid))
        x += width
    return result


def _panel(
    number_: int, kind: str, title: str, unit: str, about: str, queries: list[tuple[str, str]], grid: dict[str, int]
) -> dict[str, Any]:
    is_instant = kind != "timeseries"
    options = {
        "timeseries": {
            "legend": {"displayMode": "table", "placement": "bottom", "showLegend": True, "calcs": ["lastNotNull"]},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "stat": {
            "reduceOptions": {"calcs": ["lastNotNull"], "values": False}, "graphMode": "none", "colorMode": "value",
            "justifyMode": "auto", "textMode": "auto", "orientation": "auto",
        },
        "bargauge": {
            "reduceOptions": {"calcs": ["lastNotNull"], "values": False}, "displayMode": "basic",
            "orientation": "horizontal", "showUnfilled": True, "valueMode": "color",
        },
    }[kind]  # fmt: skip
    return {
        "id": number_, "type": kind, "title": title, "description": about, "datasource": SOURCE, "gridPos": grid,
        "targets": [
            {
                "refId": chr(ord("A") + n), "datasource": SOURCE, "expr": expression, "legendFormat": legend,
                "instant": is_instant, "range": not is_instant, "editorMode": "code",
            }
            for n, (expression, legend) in enumerate(queries)
        ],
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "options": options,
    }  # fmt: skip


def alert_rules() -> dict[str, Any]:
    """The alert rules of Prometheus as Grafana provisions them."""
    groups = []
    for file in sorted((ROOT / "deploy" / "prometheus").glob("*.yml")):
        for group in yaml.safe_load(file.read_text("utf-8"))["groups"]:
            rules = [_grafana_rule(rule) for rule in group["rules"]]
            groups.append(
                {"orgId": 1, "name": group["name"], "folder": "Kafka clients", "interval": "1m", "rules": rules}
            )
    return {"apiVersion": 1, "groups": groups}


def _grafana_rule(rule: dict[str, Any]) -> dict[str, Any]:
    span = {"from": 600, "to": 0}
    return {
        "uid": rule["alert"], "title": rule["alert"], "condition": "C", "for": rule.get("for", "0s"),
        "noDataState": "OK", "execErrState": "Error", "labels": rule["labels"],
        "annotations": {key: text.replace("$value", "$values.A.Value") for key, text in rule["annotations"].items()},
        "data": [
            {
                "refId": "A", "datasourceUid": "prometheus", "relativeTimeRange": span,
                "model": {"refId": "A", "expr": rule["expr"].strip(), "instant": True, "range": False},
            },
            # The rule fires for what its expression finds, whatever the value is; a threshold needs one above 0.
            {
                "refId": "B", "datasourceUid": "__expr__", "relativeTimeRange": span,
                "model": {"refId": "B", "type": "math", "expression": "$A * 0 + 1"},
            },
            {
                "refId": "C", "datasourceUid": "__expr__", "relativeTimeRange": span,
                "model": {
                    "refId": "C", "type": "threshold", "expression": "B",
                    "conditions": [{"evaluator": {"type": "gt", "params": [0]}}],
                },
            },
        ],
    }  # fmt: skip


def main(folder: Path) -> None:
    """Write all files."""
    (folder / "dashboards").mkdir(parents=True, exist_ok=True)
    (folder / "provisioning").mkdir(parents=True, exist_ok=True)
    for name in DASHBOARDS:
        text = json.dumps(dashboard(name), indent=1)
        (folder / "dashboards" / f"{name}.json").write_text(f"{text}\n", "utf-8")
    head = "# Made by tools/grafana_dashboards.py of deploy/prometheus; its data source must have the uid prometheus.\n"
    text = yaml.safe_dump(alert_rules(), sort_keys=False, width=160)
    (folder / "provisioning" / "alert-rules.yml").write_text(head + text, "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "deploy" / "grafana")
