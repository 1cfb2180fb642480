"""A fleet of Kafka Streams, Connect, a share group and a transactional producer: its pushes, and what it did.

`python -m tests.clients.kinds` runs it against a real broker and stores its landing records and the truth in
`tests/data`, for tests that start nothing. It takes about two minutes. `python -m tests.clients.kinds LAKE` makes a
lake of what is stored.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, TopicPartition

from kafka_telemetry_lake.pipelines.lifecycle.follower import Lifecycle
from kafka_telemetry_lake.pipelines.query.lake_query import run_query
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES
from kafka_telemetry_lake.sandbox.clients import LocalClients
from kafka_telemetry_lake.sandbox.cluster import LocalCluster
from kafka_telemetry_lake.sandbox.cluster.plugin import receiver_jar
from tests.support.captured_lake import push_row, write_lake
from tests.support.landing_records import SCHEMA

DATA = Path(__file__).parents[1] / "data"
LANDED, TRUTH = DATA / "client_kinds.parquet", DATA / "client_kinds.json"
LINES, ORDERS, TRANSFERS = 200, 100, 120
PER_TRANSACTION, ABORT_EVERY, REJECT_EVERY = 10, 4, 5
INTERVAL_S = 1
_FILE = "org.apache.kafka.connect.file.FileStream"
_SENT, _COMMIT, _ABORT = _TRANSACTIONS = ("record.send.total", "txn.commit.time.ns.total", "txn.abort.time.ns.total")
_COMPARED = ("org.apache.kafka.stream.thread.", *(f"org.apache.kafka.producer.{name}" for name in _TRANSACTIONS))


def run(cluster: LocalCluster, clients: LocalClients) -> dict[str, Any]:
    """Start the fleet, let it work and rest for some push intervals, close it. Returns what it says about itself."""
    for topic, partitions in (("lines", 2), ("word-counts", 1), ("orders", 2), ("transfers", 1), ("copied", 1)):
        cluster.create_topic(topic, partitions)
    cluster.tool(
        "kafka.admin.ConfigCommand", "--alter", "--entity-type", "groups", "--entity-name", "packers",
        "--add-config", "share.auto.offset.reset=earliest",
    )  # fmt: skip
    source, sink = cluster.folder / "in.txt", cluster.folder / "out.txt"
    source.write_text("".join(f"line {n}\n" for n in range(LINES)))
    worker = clients.connect_worker(
        "copiers",
        {
            "read-file": {"connector.class": f"{_FILE}SourceConnector", "file": source, "topic": "copied"},
            "write-file": {"connector.class": f"{_FILE}SinkConnector", "file": sink, "topics": "copied"},
        },
    )
    # A process that ends leaves its tasks to the others only when its session ends.
    streams = {
        "client.id": "", "num.stream.threads": 2, "consumer.session.timeout.ms": 6000,
        "consumer.heartbeat.interval.ms": 1000,
    }  # fmt: skip
    counts = clients.word_count("lines", "word-counts", "word-count", properties=streams)
    packers = [
        clients.share_consumer("orders", f"packer-{n}", group="packers", reject_every=REJECT_EVERY) for n in (1, 2)
    ]
    transactions = {
        "transactional.id": "transfers",
        "driver.transaction_records": PER_TRANSACTION,
        "driver.abort_every": ABORT_EVERY,
    }
    first = counts.wait_for("started")["client_instance_ids"]
    bank = clients.producer("java", "transfers", "bank", records=TRANSFERS, rate=20, properties=transactions)
    writer = clients.producer(
        "java", "lines", "writer", records=LINES, rate=50, value_bytes=0
    )  # one word, an empty one
    shop = clients.producer("java", "orders", "shop", records=ORDERS, rate=25)
    for each in (bank, writer, shop):
        each.wait_for("done")
    # Another process of the same application takes the tasks of the first, whose state it must restore.
    other = clients.word_count("lines", "word-counts", "word-count", properties=streams, name="word-count-other")
    second = other.wait_for("started")["client_instance_ids"]
    for packer in packers:
        packer.wait_for("started")
    _until(lambda: sink.exists() and len(sink.read_text().splitlines()) == LINES)
    time.sleep(6 * INTERVAL_S)
    ended = counts.close()
    time.sleep(20 * INTERVAL_S)
    truth = {
        "streams": [{**ended, "clients": first}, {**other.close(), "clients": second}],
        "share": {each.client_id: each.close() for each in packers},
        "producers": {each.client_id: each.close() for each in (bank, writer, shop)},
        "copied": len(sink.read_text().splitlines()),
    }
    worker.close()
    return truth


def _until(holds: Callable[[], bool], limit: float = 60) -> None:
    end = time.monotonic() + limit
    while not holds():
        assert time.monotonic() < end, f"not within {limit:.0f} s"
        time.sleep(0.2)


def landed(cluster: LocalCluster) -> pa.Table:
    """All landing records of a cluster, in the shape of Spark's Kafka source."""
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "capture", "enable.metrics.push": False}
    )
    topic = "client-telemetry"
    places = [TopicPartition(topic, number, 0) for number in consumer.list_topics(topic).topics[topic].partitions]
    ends = sum(consumer.get_watermark_offsets(place)[1] for place in places)
    consumer.assign(places)
    rows: list[dict[str, Any]] = []
    while len(rows) < ends:
        for message in consumer.consume(1000, 1.0):
            headers = message.headers()
            assert message.error() is None
            assert isinstance(headers, list)
            rows.append(
                {
                    "key": message.key(), "value": message.value(), "topic": topic, "partition": message.partition(),
                    "offset": message.offset(), "timestamp": message.timestamp()[1] * 1000, "timestampType": 0,
                    "headers": [{"key": name, "value": value} for name, value in headers],
                }
            )  # fmt: skip
    consumer.close()
    return pa.Table.from_pylist(sorted(rows, key=lambda row: row["timestamp"]), SCHEMA)


def capture() -> tuple[pa.Table, dict[str, Any]]:
    """Run the fleet against a broker of its own. Returns the landing records, and the truth (`run`)."""
    with LocalCluster(plugin=receiver_jar()) as cluster, LocalClients(cluster) as clients:
        cluster.subscribe("all", ["org.apache.kafka."], INTERVAL_S * 1000)
        truth = run(cluster, clients)
        time.sleep(2)  # the last pushes are on their way
        return landed(cluster), truth


def lake_of(folder: Path, records: pa.Table, clusters: Sequence[str] = ("one",)) -> Path:
    """A lake of the landing records, the same in each of these clusters, up to the lifecycle."""
    rows = [
        push_row(record) | {"cluster_id": cluster, "partition": 10 * number + record["partition"]}
        for record in records.to_pylist()
        for number, cluster in enumerate(clusters)
    ]
    lake = write_lake(folder, pa.Table.from_pylist(rows, PUSHES.schema))
    Lifecycle(str(lake)).catch_up()
    return lake


def check(lake: Path, truth: dict[str, Any], cluster: str = "one") -> None:
    """Assert that the views per kind say what the fleet of a cluster did."""

    def ask(columns: str, view: str, more: str = "") -> list[tuple[Any, ...]]:
        sql = f"SELECT {columns} FROM {view} WHERE cluster_id = '{cluster}' {more}"
        return [tuple(row.values()) for row in run_query(str(lake), sql).read_all().to_pylist()]

    _check_streams(ask, truth["streams"])

    acknowledged = {name: each["accepted"] + each["rejected"] for name, each in truth["share"].items()}
    assert sum(acknowledged.values()) == ORDERS
    columns = "client_id, sum(records_consumed), sum(acknowledgements), sum(failed_acknowledgements)"
    found = ask(columns, "share_group_members", "AND group_id = 'packers' GROUP BY 1")
    assert sorted(found) == [(name, number, number, 0) for name, number in sorted(acknowledged.items())]
    assert ask("max(members)", "share_group_members") == [(2,)]

    bank = truth["producers"]["bank"]
    sums = {metric: sum(value for _, value in _values(bank, f"producer.{metric}")) for metric in _TRANSACTIONS}
    columns = "sum(records_sent), sum(commit_ms), sum(abort_ms), sum(commits_at_least), sum(aborts_at_least)"
    ((*found, commits, aborts),) = ask(columns, "transactions", "AND transactional_id = 'transfers'")
    assert found == pytest.approx([sums[_SENT], sums[_COMMIT] / 1e6, sums[_ABORT] / 1e6])
    ended = TRANSFERS // PER_TRANSACTION
    aborted = ended // ABORT_EVERY
    assert 1 < commits <= ended - aborted + 1  # the last one, which is empty, is committed at the end
    assert 0 < aborts <= aborted
    assert ask("DISTINCT transactional_id", "transactions") == [("transfers",)]

    assert truth["copied"] == LINES
    columns = "connector, task, role, worker_group, group_id, sum(records)"
    assert ask(columns, "connect_tasks", "GROUP BY ALL ORDER BY 1") == [
        ("read-file", 0, "source", "copiers", None, LINES),
        ("write-file", 0, "sink", "copiers", "connect-write-file", LINES),
    ]
    assert ask("worker_group, groups_of_address", "connect_workers") == [("copiers", 1)]


def _check_streams(ask: Callable[..., list[tuple[Any, ...]]], applications: list[dict[str, Any]]) -> None:
    names = {"process.total": "records_processed", "task.created.total": "tasks_created", "commit.total": "commits"}
    for metric, column in names.items():
        counted = {
            (application["clients"][f"{thread}-consumer"], value)
            for application in applications
            for thread, value in _values(application, f"stream.thread.{metric}", "thread_id")
        }
        assert len(counted) == 4
        assert set(ask(f"client_instance_id, sum({column})", "streams_threads", "GROUP BY 1")) == counted, column
    # Each line is read once by either part of the topology, whichever task and thread had it.
    parts = "left(task_id, 1), sum(records_consumed), sum(dropped_records)"
    assert ask(parts, "streams_tasks", "GROUP BY 1 ORDER BY 1") == [("0", LINES, 0), ("1", LINES, 0)]
    columns = "application_id, client_instance_id, sum(running_pushes) > 0, sum(failed_threads)"
    found = ask(columns, "streams_processes", "AND NOT debug_metrics GROUP BY ALL")
    expected = [("word-count", each["clients"]["admin"], True, 0) for each in applications]
    assert sorted(found) == sorted(expected), found
    # The last push of a process's last minute may be the one of its shutdown, which finds no thread alive.
    states = ask("client_instance_id, state, alive_threads", "streams_processes")
    assert {each["clients"]["admin"] for each in applications} == {process for process, *_ in states}
    assert all(alive == 2 or state in {"PENDING_SHUTDOWN", "NOT_RUNNING"} for _, state, alive in states), states
    alive = "AND metric = 'org.apache.kafka.stream.alive.stream.threads' GROUP BY 1"
    assert {most for _, most in ask("client_instance_id, max(value)", "counted_points", alive)} == {2}
    # The second process takes over all four tasks. Results and changelog are written together, and the changelog is
    # restored, at a rate over Kafka's window of 30 to 60 s.
    other = set(applications[1]["clients"].values())
    tasks = ask("task_id, client_instance_id", "streams_tasks")
    assert {task for task, instance in tasks if instance in other} == {"0_0", "0_1", "1_0", "1_1"}
    rates = dict(ask("client_instance_id, max(restored_records_per_s)", "streams_threads", "GROUP BY 1"))
    ((written,),) = ask("sum(records_produced)", "streams_tasks", "AND left(task_id, 1) = '1'")
    assert written / 60 <= max(rates[instance] for instance in rates if instance in other) <= written / 30
    assert {rates[instance] for instance in rates if instance not in other} == {0}


def _values(closing: dict[str, Any], metric: str, attribute: str = "client_id") -> list[tuple[str, float]]:
    """A client's own values of a metric, each with the value of an attribute."""
    named = [each for each in closing["sums"] if each["metric"] == f"org.apache.kafka.{metric}"]
    return [(each["attributes"][attribute], each["value"]) for each in named]


def _without_others(truth: dict[str, Any]) -> dict[str, Any]:
    """The truth without the metrics that `check` doesn't read."""
    for each in (*truth["streams"], *truth["producers"].values(), *truth["share"].values()):
        each["sums"] = [
            value
            for value in each["sums"]
            if value["metric"].startswith(_COMPARED) and "topic" not in value["attributes"]
        ]
    return truth


def main(argv: list[str]) -> None:
    if argv:
        lake_of(Path(argv[0]), pq.read_table(LANDED))
        return
    records, truth = capture()
    pq.write_table(records, LANDED, compression="zstd", compression_level=19)
    TRUTH.write_text(json.dumps(_without_others(truth), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
