"""``telemetry-lake demo``: real clients, a real broker with the receiver plugin, the job, and a report.

Exit codes: those of ``telemetry-lake ingest``.
"""

from __future__ import annotations

import logging
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from jobs import ingest
from jobs.demo_report import report
from jobs.settings import JobSettings, UsageError, fail, parse

if TYPE_CHECKING:
    from jobs.local_clients import LocalClients

DATA = Path(__file__).parent / "data"
PUSH_INTERVAL_MS = 1000

log = logging.getLogger("telemetry-lake")


class DemoSettings(JobSettings):
    """Start a broker with the receiver plugin and real clients, ingest what they push, and print what came of it."""

    lake: str = "demo-lake"
    """folder of the demo's lake; a lake that is already there goes on"""
    files: bool = False
    """no broker: ingest captured pushes of real clients (every codec, both temporalities, damaged ones beside them)"""
    seconds: Annotated[float, Field(ge=3, le=600)] = 12
    """how long the clients work"""
    driver_memory: str = "1g"
    """memory of the local Spark driver"""


def main(argv: list[str] | None = None) -> int:
    """Run the demo; `argv` without the program's name. Gives the exit code."""
    try:
        settings = parse(DemoSettings, sys.argv[1:] if argv is None else argv, "telemetry-lake demo")
    except UsageError as error:
        return fail(str(error), 2)
    code = _from_files(settings) if settings.files else _from_clients(settings)
    if code == 0:
        report(settings.lake)
    return code


def _ingest(settings: DemoSettings, *source: str) -> int:
    flags = ["--lake", settings.lake, "--once", "--driver-memory", settings.driver_memory, "--master", "local[2]"]
    return ingest.main([*source, *flags])


def _from_files(settings: DemoSettings) -> int:
    with tempfile.TemporaryDirectory(prefix="telemetry-lake-demo-") as folder:
        for file in (DATA / "captured" / "landed.parquet", DATA / "damaged.parquet"):
            shutil.copy(file, folder)
        return _ingest(settings, "--source", f"files:{folder}", "--source-name", "files:demo")


def _from_clients(settings: DemoSettings) -> int:
    from jobs.local_clients import ClientError, ClientUnavailableError, LocalClients  # noqa: PLC0415  # not needed for --files
    from jobs.local_cluster import BrokerError, KafkaToolError, LocalCluster  # noqa: PLC0415
    from jobs.local_cluster.plugin import ReceiverUnavailableError, receiver_jar  # noqa: PLC0415
    from pipelines.jars import JarsUnavailableError  # noqa: PLC0415
    from pipelines.session import JavaMissingError, check_java  # noqa: PLC0415

    ingest.log_to_stdout("INFO")
    try:
        check_java()
        log.info("demo: starting a Kafka broker with the receiver plugin")
        properties = {"client.telemetry.lander.status.interval.ms": 2000}
        with LocalCluster(plugin=receiver_jar(), properties=properties) as cluster:
            cluster.subscribe("everything", metrics=["org.apache.kafka."], interval_ms=PUSH_INTERVAL_MS)
            cluster.create_topic("orders", partitions=2)
            cluster.set_quota(client_id="throttled-importer", producer_byte_rate=60_000)
            with LocalClients(cluster) as clients:
                _work(clients, settings.seconds)
            # Each demo has a broker of its own, so its topic is another one than the last demo's.
            flags = ["--bootstrap-servers", cluster.bootstrap_servers, "--source-name", f"kafka:{cluster.folder.name}"]
            flags += ["--checkpoints", f"{settings.lake}/_checkpoints/{cluster.folder.name}"]
            return _ingest(settings, "--source", "kafka", *flags)
    except (JavaMissingError, BrokerError, KafkaToolError, ClientError) as error:
        return fail(str(error), 2)
    except (JarsUnavailableError, ReceiverUnavailableError, ClientUnavailableError) as error:
        return fail(f"{error}\nThe demo without a broker: telemetry-lake demo --files", 2)


def _work(clients: LocalClients, seconds: float) -> None:
    """A small fleet: one throttled by its quota, one killed, the others closed like any program."""
    log.info("demo: clients at work: Java and librdkafka producers, a consumer group, one throttled, one soon killed")
    orders = clients.producer("java", "orders", "orders-service", rate=200)
    payments = clients.producer("librdkafka", "orders", "payments-service", rate=100)
    importer = clients.producer("java", "orders", "throttled-importer", rate=200, value_bytes=500)
    crashing = clients.producer("librdkafka", "orders", "crashing-service", rate=50)
    billing = clients.consumer("java", "orders", "billing-1", group="billing")
    billing_2 = clients.consumer("librdkafka", "orders", "billing-2", group="billing")
    time.sleep(seconds / 2)
    crashing.kill()
    log.info("demo: crashing-service was killed (-9); the others go on")
    time.sleep(seconds / 2)
    for client in (orders, payments, importer, billing, billing_2):
        client.close()
    log.info("demo: the others are closed; now the job takes what they pushed from the topic")


if __name__ == "__main__":
    sys.exit(main())
