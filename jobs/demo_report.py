"""The demo's report: the answers to a few SQL queries over the lake."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kafka_telemetry_lake.pipelines.query.lake_query import run_query
from kafka_telemetry_lake.pipelines.query.printable import printable

REPORT = {
    "Who pushed: ten of {clients} client instances": """
        SELECT client_id, any_value(client_software_name) AS software, count(*) AS pushes, max(landed_at) AS last_push,
               bool_or(terminating) AS terminated
        FROM pushes WHERE reject_reason IS NULL GROUP BY client_instance_id, client_id ORDER BY pushes DESC, client_id
        LIMIT 10""",
    "Counters that grew most, by the sum of their deltas": """
        SELECT client_id, replace(metric, 'org.apache.kafka.', '') AS metric, count(*) AS points,
               round(sum(delta)) AS increase, string_agg(DISTINCT delta_status, ', ' ORDER BY delta_status) AS statuses
        FROM metric_points
        WHERE delta IS NOT NULL AND cardinality(attributes) = 0
              AND metric LIKE '%.total' AND metric NOT LIKE '%time.%total'
        GROUP BY client_instance_id, client_id, metric ORDER BY increase DESC, client_id LIMIT 10""",
    "Throttled clients, by their longest throttle time (ms)": """
        SELECT client_id, max(value) AS throttle_ms,
               count(DISTINCT (source, topic, partition, "offset")) AS pushes_throttled
        FROM metric_points WHERE metric LIKE '%throttle.time.max' AND value > 0
        GROUP BY client_id ORDER BY throttle_ms DESC LIMIT 5""",
    "Data points by delta status": """
        SELECT kind, temporality, delta_status, count(*) AS points FROM metric_points
        GROUP BY ALL ORDER BY points DESC""",
    "Clients that sent a terminating push, by client software": """
        SELECT client_software_name AS software, client_software_version AS version,
               count(DISTINCT client_instance_id) AS clients,
               count(DISTINCT client_instance_id) FILTER (WHERE terminating) AS terminated
        FROM pushes WHERE reject_reason IS NULL GROUP BY ALL ORDER BY clients DESC""",
    "Quarantined rows: whatever is rejected gets a row with its reason": """
        SELECT reason, partition, "offset", detail FROM quarantine ORDER BY landed_at, partition, "offset" LIMIT 20""",
    "Receiver health: received = landed + dropped + waiting": """
        SELECT broker_id, count(*) AS statuses, max(received) AS received, max(landed) AS landed,
               max(dropped_total) AS dropped, arg_max(queue_depth, reported_at) AS waiting
        FROM receiver_health GROUP BY source, broker_id, started_at ORDER BY max(reported_at) DESC LIMIT 3""",
}

# Metrics are named in full: Java pushes `producer.topic.record.send.total` too, which counts the same records again.
QUESTIONS = {
    "How many records did each Java producer send? (librdkafka doesn't push this counter)": (
        "SELECT client_id, sum(delta) AS records FROM metric_points "
        "WHERE metric = 'org.apache.kafka.producer.record.send.total' GROUP BY 1 ORDER BY 1"
    ),
    "How long did the producers' requests take, in ms?": (
        "SELECT client_id, time, value FROM metric_points "
        "WHERE metric = 'org.apache.kafka.producer.request.latency.avg' ORDER BY time, client_id LIMIT 20"
    ),
    "Which intervals did a client measure, but its push never landed?": (
        "SELECT client_id, landed_at, lost_start, lost_end FROM push_outcomes WHERE lost_start IS NOT NULL"
    ),
}


def report(lake: str) -> None:
    """Print the report of a lake, and example queries to try next."""
    console = Console(width=max(Console().width, 120))
    (counted,) = _answer(lake, "SELECT count(DISTINCT client_instance_id) AS clients FROM push_outcomes")
    for title, sql in REPORT.items():
        rows = _answer(lake, sql)
        console.print(f"\n{title.format(**counted)}", style="bold", highlight=False)
        table = Table()
        for name in rows[0] if rows else ["nothing"]:
            table.add_column(name.replace("_", " "), justify="right" if rows and _is_number(rows[0][name]) else "left")
        for row in rows:
            table.add_row(*(Text(printable(_text(value))) for value in row.values()))  # else rich reads its markup
        console.print(table)
    console.print("Go on with your own questions:", style="bold")
    for question, sql in QUESTIONS.items():
        console.print(f"  # {question}", highlight=False)
        console.print(f'  .venv/bin/telemetry-lake query --lake {lake} "{sql}"', soft_wrap=True, highlight=False)


def _answer(lake: str, sql: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = run_query(lake, sql).read_all().to_pylist()
    return rows


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return f"{value:,.0f}"
    return f"{value:%H:%M:%S}" if hasattr(value, "strftime") else str(value)
