"""The lakes of earlier releases, as their own builds wrote them (`make_kept_lake.py`), and what they answered then."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kafka_telemetry_lake.pipelines.query.lake_query import run_query
from kafka_telemetry_lake.pipelines.tables.catalog import CATALOG
from tests.support.lake_tables import table
from tests.support.landing_records import captured

SOURCE = "file:///tmp/kept-lake/in"  # in Spark's checkpoint: the folder that was read
FOLDER = Path(__file__).parents[1] / "data" / "kept"
LAKES = sorted(FOLDER.glob("*.tar.gz"))
CLIENTS = {
    "java-producer_zstd-cumulative",
    "java-consumer_zstd-cumulative",
    "java-txn-producer_zstd-cumulative",
    "java-streams_zstd-cumulative-admin",
    "java-producer_zstd-delta",
    "java-none-producer_stop",
    "librdkafka-producer_zstd-cumulative",
    "librdkafka-consumer_zstd-cumulative",
    "franz-go-producer_none-delta",
}
CLUSTER = "kept-cluster"
BEGIN = datetime(2026, 11, 21, 12, 7, 50, tzinfo=UTC)
ENDS = tuple(BEGIN + timedelta(seconds=second) for second in (21, 25, 32))  # of the batches, by landing time
REDELIVERED = 1_000_000  # added to the offset of a push that landed twice
TOTALS = "min(time) AS time, count(*) AS points, round(sum(delta), 6) AS delta, round(sum(value), 3) AS value"
QUESTIONS = {
    "rows": " UNION ALL ".join(f"SELECT '{name}', count(*) FROM {name}" for name in CATALOG) + " ORDER BY ALL",
    "totals": f"SELECT metric, kind, temporality, delta_status, {TOTALS} FROM metric_points GROUP BY ALL ORDER BY ALL",
    "payloads": 'SELECT partition, "offset", md5(payload) AS payload FROM pushes ORDER BY ALL',
    "outcomes": "SELECT outcome, count(*), sum(points) FROM push_outcomes GROUP BY ALL ORDER BY ALL",
    "minutes": "SELECT metric, round(sum(increase), 6) AS increase FROM metric_rollups_1m GROUP BY ALL ORDER BY ALL",
    "hours": "SELECT metric, round(sum(increase), 6) AS increase FROM metric_rollups_1h GROUP BY ALL ORDER BY ALL",
    "clients": """SELECT client_id, client_instance_id, client_software_name, first_seen, last_seen, pushes
        FROM clients ORDER BY ALL""",
    "liveness": "SELECT client_id, state, last_seen FROM client_liveness ORDER BY ALL",
    "events": "SELECT event, client_id, at FROM client_events ORDER BY ALL",
    "quotas": """SELECT window_start, window_seconds, quota_type, "user", client_id, source, observed_rate, used_percent
        FROM quota_usage ORDER BY ALL""",
    "limits": 'SELECT "user", client_id, quota_type, quota_limit, valid_from FROM quota_history ORDER BY ALL',
    "subscriptions": "SELECT name, metrics, interval_ms, valid_to FROM subscriptions ORDER BY ALL",
    "aliases": "SELECT client_id, application, owner FROM client_aliases ORDER BY ALL",
    "findings": "SELECT finding, subject, state, window_start, measure FROM open_findings ORDER BY ALL",
    "groups": "SELECT group_id, topic, partition, committed_offset, rewound_from FROM group_offsets ORDER BY ALL",
}


def batches() -> tuple[list[dict[str, Any]], ...]:
    """Captured pushes of some clients: the two batches that a kept lake has, and those that land afterwards."""
    rows = [row for row in captured().to_pylist() if header(row, "client_id") in CLIENTS]
    bounds = zip((BEGIN, *ENDS), ENDS, strict=False)
    return tuple([row for row in rows if begin <= row["timestamp"] < end] for begin, end in bounds)


def header(row: dict[str, Any], name: str) -> str | None:
    """The text of a landing record's header; None: it has none."""
    return next((each["value"].decode() for each in row["headers"] if each["key"] == name), None)


def records_of(rows: list[dict[str, Any]]) -> pa.Table:
    """Landing records: the pushes, and what a broker's receiver says of itself and its quotas in between."""
    at, number = rows[0]["timestamp"], len(rows)
    known = {"version": 1, "cluster_id": CLUSTER, "broker_id": 1, "time_ms": int(at.timestamp() * 1000)}
    connection = {"listener": "L", "client_software_name": "apache-kafka-java", "client_software_version": "4.3.1"}
    status = known | {"received": number, "connections": [connection | {"connections": 4}]}
    sample = known | {"quota_type": "produce", "user": "", "client_id": "java-producer_zstd-cumulative",
                      "observed_rate": 500.0, "quota_limit": 1000.0}  # fmt: skip
    bad = sample | {"quota_type": "unheard-of"}
    others = [
        {"topic": topic, "partition": 0, "offset": number * 2 + place, "timestamp": at, "timestampType": 0,
         "value": json.dumps(value).encode()}
        for topic, place, value in (
            ("client-telemetry-status", 0, status), ("client-quotas", 0, sample), ("client-quotas", 1, bad),
        )
    ]  # fmt: skip
    return pa.Table.from_pylist([*rows, *others], captured().schema)


Answers = dict[str, list[list[Any]]]


def answers(lake: Path, names: Iterable[str] = QUESTIONS) -> Answers:
    """The rows of questions, as JSON has them."""
    found = {name: run_query(str(lake), QUESTIONS[name]).read_all().to_pylist() for name in names}
    rows = {name: [list(row.values()) for row in each] for name, each in found.items()}
    plain: Answers = json.loads(json.dumps(rows, default=str))
    return plain


def write_answers(archive: Path, lake: Path) -> None:
    """Write what the lake answers beside its archive, a row a line."""
    known = {name: ",\n".join(map(json.dumps, rows)) for name, rows in answers(lake).items()}
    content = ",\n".join(f"{json.dumps(name)}: [\n{rows}\n]" for name, rows in known.items())
    answers_of(archive).write_text(f"{{\n{content}\n}}\n", "utf-8")


def answers_of(archive: Path) -> Path:
    """The file with what the lake answered to the build that wrote it."""
    return archive.with_name(archive.name.replace(".tar.gz", ".json"))


def later(lake: Path) -> list[dict[str, Any]]:
    """What lands after a kept lake was made: pushes of its clients and, once more, those that its last batch has."""
    erased = {header(row, "client_instance_id") for row in batches()[1]} - set(instances(lake))
    _, stored, new = ([with_cluster(row) for row in batch] for batch in batches())
    again = [row | {"offset": row["offset"] + REDELIVERED} for row in stored]
    return [row for row in (*again, *new) if header(row, "client_instance_id") not in erased]


def instances(lake: Path) -> list[str]:
    """The client instances that a lake knows."""
    rows = run_query(str(lake), "SELECT client_instance_id FROM clients ORDER BY ALL").read_all()
    known: list[str] = rows["client_instance_id"].to_pylist()
    return known


def with_cluster(row: dict[str, Any]) -> dict[str, Any]:
    """A landing record that names the cluster of a kept lake."""
    return row | {"headers": [*row["headers"], {"key": "cluster_id", "value": CLUSTER.encode()}]}


def unpacked(archive: Path, folder: Path) -> Path:
    """The lake, below a folder that gets the release's other files too."""
    with tarfile.open(archive) as packed:
        if hasattr(tarfile, "data_filter"):  # Python 3.11.4
            packed.extraction_filter = tarfile.data_filter
        packed.extractall(folder)
    return folder / "lake"


def asked(lake: Path, sql: str) -> list[tuple[Any, ...]]:
    """The rows of a question."""
    return [tuple(row.values()) for row in run_query(str(lake), sql).read_all().to_pylist()]


def assert_continued(lake: Path, known: list[str], new: int, again: int) -> None:
    """Check that a kept lake goes on: its counters, client instances and pushes.

    Args:
        new: number of pushes that landed since.
        again: of pushes that landed once more.
    """
    outcomes = dict(asked(lake, "SELECT outcome, count(*) FROM push_outcomes GROUP BY ALL"))
    assert (outcomes["duplicate"], outcomes["points"]) == (again, 77 + new)
    pushes = table(lake, "pushes").select(["partition", "offset"])
    assert pushes.num_rows == pushes.group_by(["partition", "offset"]).aggregate([]).num_rows == 89 + new + again
    series = asked(
        lake,
        """SELECT sum(delta), max_by(value, time), count(*) FILTER (delta_status = 'first'), count(*),
                count(DISTINCT time) FROM metric_points
            WHERE temporality = 'cumulative' AND delta_status <> 'duplicate' GROUP BY client_instance_id, series_id""",
    )
    assert len(series) == 113
    for total, last, first, points, times in series:
        assert total == pytest.approx(last, rel=1e-12), "an increment was lost or counted twice"
        assert (first, points) == (1, times), "the series began anew"
    assert instances(lake) == known
    names = ", ".join(f"'{name}'" for name in known)
    sql = f"SELECT count(*) FROM client_events WHERE event = 'first_seen' AND client_instance_id IN ({names})"
    assert asked(lake, sql) == [(len(known),)]
