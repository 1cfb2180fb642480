"""How long a finding takes from the push that shows it to the message in a sink, step by step.

A real producer exceeds its quota; the job follows the landing topic, evaluates findings every 15 s and posts to a
webhook. A minute of quota windows would tell as much of the client as of the path: the first throttled push counts.
"""

from __future__ import annotations

import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.compute as pc
import yaml
from deltalake import DeltaTable

from benchmarks.figures import print_figures
from benchmarks.job import Job
from kafka_telemetry_lake.pipelines.tables.findings import FINDING_CHANGES
from kafka_telemetry_lake.pipelines.tables.operator import METRIC_POINTS
from kafka_telemetry_lake.sandbox.clients import LocalClients
from kafka_telemetry_lake.sandbox.cluster import LocalCluster
from kafka_telemetry_lake.sandbox.cluster.plugin import receiver_jar
from tests.unit.notify.changed_findings import http_sink

CLIENT, FINDING = "telemetry-exceeds-its-quota", "throttled"
THROTTLED = "org.apache.kafka.producer.produce.throttle.time.max"
INTERVAL_MS, FINDINGS_MINUTES = 5000, 0.25
LIMIT_S = 240
LOOK_S = 0.2


def first_throttled(lake: Path) -> datetime | None:
    """When the first push landed that shows a throttled client; None: no row shows it yet."""
    if not DeltaTable.is_deltatable(METRIC_POINTS.uri(str(lake))):
        return None
    of_client = (pc.field("client_id") == CLIENT) & (pc.field("metric") == THROTTLED) & (pc.field("value") > 0)
    landed = DeltaTable(METRIC_POINTS.uri(str(lake))).to_pyarrow_dataset().to_table(["landed_at"], filter=of_client)
    first: datetime | None = pc.min(landed["landed_at"]).as_py()
    return first


def opened(lake: Path) -> datetime:
    """When the finding was recorded as opened."""
    is_it = (pc.field("client_id") == CLIENT) & (pc.field("finding") == FINDING) & (pc.field("change") == "opened")
    rows = DeltaTable(FINDING_CHANGES.uri(str(lake))).to_pyarrow_dataset().to_table(["recorded_at"], filter=is_it)
    recorded: datetime = pc.min(rows["recorded_at"]).as_py()
    return recorded


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as scratch,
        LocalCluster(plugin=receiver_jar()) as cluster,
        LocalClients(cluster) as clients,
        http_sink() as sink,
    ):
        folder = Path(scratch)
        notify = folder / "notify.yml"
        one = {"type": "webhook", "url": sink.url, "match": {"finding": FINDING}}
        notify.write_text(yaml.safe_dump({"sinks": {"one": one}}))
        cluster.subscribe("all", ["*"], INTERVAL_MS)
        cluster.set_quota(client_id=CLIENT, producer_byte_rate=50_000)
        cluster.create_topic("orders")
        flags = ("--findings-minutes", str(FINDINGS_MINUTES), "--notify", str(notify))
        with Job(cluster.bootstrap_servers, folder / "lake", *flags) as job:
            clients.producer("java", "orders", "telemetry-healthy", rate=1)
            job.wait_for(1)  # the job's own start isn't on the path
            clients.producer("java", "orders", CLIENT, rate=100, value_bytes=1000)
            end = time.monotonic() + LIMIT_S
            visible = received = None
            while received is None and time.monotonic() < end:
                time.sleep(LOOK_S)
                job.check()
                if visible is None and first_throttled(job.lake):
                    visible = datetime.now(UTC)
                received = datetime.now(UTC) if sink.requests else None
            landed = first_throttled(job.lake)
            assert landed is not None, "no push shows a throttled client"
            assert visible is not None
            assert received is not None, "no message came"
            recorded = opened(job.lake)
    print_figures(
        {
            "finding_path_rows_s": (visible - landed).total_seconds(),
            "finding_path_opened_s": (recorded - landed).total_seconds(),
            "finding_path_message_s": (received - landed).total_seconds(),
        }
    )


if __name__ == "__main__":
    main()
