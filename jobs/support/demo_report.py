"""The demo's report: the answers to a few SQL queries over the lake."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kafka_telemetry_lake.pipelines.query.lake_query import run_query
from kafka_telemetry_lake.pipelines.query.printable import printable

REPORT = {
    "Who pushed: ten of {clients} client instances": """
        SELECT client_id, any_value(client_software_name) AS software, any_value(client_software_version) AS version,
               count(*) AS pushes, max(landed_at) AS last_push, bool_or(terminating) AS terminated
        FROM pushes WHERE reject_reason IS NULL GROUP BY client_instance_id, client_id ORDER BY pushes DESC, client_id
        LIMIT 10""",
    "Counters that grew most, by the sum of their deltas": """
        SELECT client_id, replace(metric, 'org.apache.kafka.', '') AS metric, count(*) AS points,
               round(sum(delta)) AS increase, string_agg(DISTINCT delta_status, ', ' ORDER BY delta_status) AS statuses
        FROM metric_points
        WHERE delta IS NOT NULL AND cardinality(attributes) = 0
              AND metric LIKE '%.total' AND metric NOT LIKE '%time.%total'
        GROUP BY client_instance_id, client_id, metric ORDER BY increase DESC, client_id LIMIT 10""",
    "Data points by delta status": """
        SELECT kind, temporality, delta_status, count(*) AS points FROM metric_points
        GROUP BY ALL ORDER BY points DESC""",
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
        "WHERE metric = 'org.apache.kafka.producer.record.send.total' GROUP BY 1 ORDER BY 2 DESC, 1"
    ),
    "How long did the slowest request of each producer take, in ms?": (
        "SELECT client_id, max(value) AS slowest_ms FROM metric_points "
        "WHERE metric = 'org.apache.kafka.producer.request.latency.max' GROUP BY 1 HAVING max(value) > 0 "
        "ORDER BY 2 DESC, 1"
    ),
    "Who stopped pushing without a word, and why?": (
        "SELECT client_id, likely_cause, last_seen, silent_at FROM client_liveness WHERE state = 'silent' ORDER BY 1"
    ),
    "Who went back to the bootstrap servers, or lost all brokers?": (
        "SELECT client_id, event, at FROM rebootstraps ORDER BY at, client_id"
    ),
    "What is wrong with which client, and what helps?": (
        "SELECT client_id, finding, evidence, advice FROM findings WHERE severity <> 'info' ORDER BY 1, 2"
    ),
}
MOST_ROWS = 10


def report(lake: str) -> None:
    """Print the report of a lake, then five questions with their answers."""
    console = Console(width=max(Console().width, 120))
    (counted,) = _answer(lake, "SELECT count(DISTINCT client_instance_id) AS clients FROM push_outcomes")
    for title, sql in REPORT.items():
        console.print(f"\n{title.format(**counted)}", style="bold", highlight=False)
        _print(console, _answer(lake, sql))
    console.print("\nFive questions; ask your own in the same way:", style="bold")
    for question, sql in QUESTIONS.items():
        console.print(f"\n# {question}", highlight=False)
        console.print(
            f'{program(sys.argv[0])} query --lake {shlex.quote(lake)} "{sql}"', soft_wrap=True, highlight=False
        )
        rows = _answer(lake, sql)
        _print(console, rows[:MOST_ROWS])
        if len(rows) > MOST_ROWS:
            console.print(f"and {len(rows) - MOST_ROWS} more", highlight=False)


def program(started_as: str) -> str:
    """How to call this program again: by the relative path of a checkout, else by its name."""
    path = Path(started_as)
    return started_as if path.name == "telemetry-lake" and not path.is_absolute() else "telemetry-lake"


def _print(console: Console, rows: list[dict[str, Any]]) -> None:
    table = Table()
    for name in rows[0] if rows else ["nothing"]:
        table.add_column(name.replace("_", " "), justify="right" if rows and _is_number(rows[0][name]) else "left")
    for row in rows:
        table.add_row(*(Text(printable(_text(value))) for value in row.values()))  # else rich reads its markup
    console.print(table)


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
