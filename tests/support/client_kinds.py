"""A fleet with each kind of Java client that is more than a producer or consumer, what it did, and its pushes.

`python -m tests.support.client_kinds` runs it against a real broker and stores the landing records and the truth in
`tests/data`, for tests that start nothing. Takes about two minutes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import Consumer, TopicPartition

from kafka_telemetry_lake.sandbox.clients import LocalClients
from kafka_telemetry_lake.sandbox.cluster import LocalCluster
from kafka_telemetry_lake.sandbox.cluster.plugin import receiver_jar
from tests.support.landing_records import SCHEMA

DATA = Path(__file__).parents[1] / "data"
PUSHES, TRUTH = DATA / "client_kinds.parquet", DATA / "client_kinds.json"
LINES, ORDERS, TRANSFERS = 200, 100, 120
PER_TRANSACTION, ABORT_EVERY, REJECT_EVERY = 10, 4, 5
INTERVAL_S = 1
_FILE = "org.apache.kafka.connect.file.FileStream"


def run(cluster: LocalCluster, clients: LocalClients) -> dict[str, Any]:
    """Start the fleet, let it work and then rest for some push intervals, close it. Returns what it says about itself."""
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
    packers = [clients.share_consumer("orders", f"packer-{n}", group="packers", reject_every=REJECT_EVERY) for n in (1, 2)]
    transactions = {
        "transactional.id": "transfers",
        "driver.transaction_records": PER_TRANSACTION,
        "driver.abort_every": ABORT_EVERY,
    }
    first = counts.wait_for("started")["client_instance_ids"]
    bank = clients.producer("java", "transfers", "bank", records=TRANSFERS, rate=20, properties=transactions)
    writer = clients.producer("java", "lines", "writer", records=LINES, rate=50, value_bytes=0)  # one word, an empty one
    shop = clients.producer("java", "orders", "shop", records=ORDERS, rate=25)
    for each in (bank, writer, shop):
        each.wait_for("done")
    # Another process of the same application takes the tasks of the first, whose state it must restore.
    other = clients.word_count("lines", "word-counts", "word-count", properties=streams, name="word-count-other")
    second = other.wait_for("started", 120)["client_instance_ids"]
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
            assert message.error() is None
            rows.append(
                {
                    "key": message.key(), "value": message.value(), "topic": topic, "partition": message.partition(),
                    "offset": message.offset(), "timestamp": message.timestamp()[1] * 1000, "timestampType": 0,
                    "headers": [{"key": name, "value": value} for name, value in message.headers() or []],
                }
            )  # fmt: skip
    consumer.close()
    return pa.Table.from_pylist(sorted(rows, key=lambda row: row["timestamp"]), SCHEMA)


def main() -> None:
    with LocalCluster(plugin=receiver_jar()) as cluster, LocalClients(cluster) as clients:
        cluster.subscribe("all", ["org.apache.kafka."], INTERVAL_S * 1000)
        truth = run(cluster, clients)
        time.sleep(2)  # the last pushes are on their way
        pq.write_table(landed(cluster), PUSHES, compression="zstd", compression_level=19)
    TRUTH.write_text(json.dumps(truth, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
