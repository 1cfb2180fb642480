"""``telemetry-lake demo``: real clients, a real broker with the receiver plugin, the job, and a report."""

from __future__ import annotations

import logging
import shutil
import tempfile
import threading
from importlib.resources import files
from pathlib import Path

from kafka_telemetry_lake.jobs.demo_report import report
from kafka_telemetry_lake.jobs.demo_settings import DemoSettings
from kafka_telemetry_lake.jobs.entry import run_command
from kafka_telemetry_lake.jobs.logs import log_to_stdout
from kafka_telemetry_lake.jobs.signals import ends_soon, stop_at_signals
from kafka_telemetry_lake.pipelines.lake.paths import checkpoints_of
from kafka_telemetry_lake.pipelines.runtime.jars import JarsUnavailableError
from kafka_telemetry_lake.pipelines.runtime.session import check_java
from kafka_telemetry_lake.pipelines.tables.table import table_uri
from kafka_telemetry_lake.sandbox.clients import ClientUnavailableError, LocalClients
from kafka_telemetry_lake.sandbox.cluster import LocalCluster
from kafka_telemetry_lake.sandbox.cluster.plugin import ReceiverUnavailableError, receiver_jar
from kafka_telemetry_lake.udfs.errors import CannotRunError

DATA = Path(str(files("kafka_telemetry_lake.sandbox") / "data"))
PUSH_INTERVAL_MS = 1000

log = logging.getLogger("telemetry-lake")


def run_job(settings: DemoSettings) -> int:
    """Run the demo; the exit code is that of its `telemetry-lake ingest`."""
    stop = stop_at_signals()
    try:
        with ends_soon(stop, "demo: stopped"):
            code = _from_files(settings) if settings.files else _from_clients(settings, stop)
    except (CannotRunError, OSError):
        if not stop.is_set():  # else the signal has ended the broker or a client too
            raise
    if stop.is_set():
        log.info("demo: stopped")
        return 0
    if code == 0:
        report(settings.lake)
    return code


def _ingest(settings: DemoSettings, *source: str) -> int:
    flags = ["--lake", settings.lake, "--once", "--driver-memory", settings.driver_memory, "--master", "local[2]"]
    return run_command("ingest", [*source, *flags])


def _from_files(settings: DemoSettings) -> int:
    with tempfile.TemporaryDirectory(prefix="telemetry-lake-demo-") as folder:
        for file in (DATA / "captured" / "landed.parquet", DATA / "damaged.parquet"):
            shutil.copy(file, folder)
        return _ingest(settings, "--source", f"files:{folder}", "--source-name", "files:demo")


def _from_clients(settings: DemoSettings, stop: threading.Event) -> int:
    log_to_stdout("INFO")
    try:
        check_java()
        log.info("demo: starting a Kafka broker with the receiver plugin")
        properties = {"client.telemetry.lander.status.interval.ms": 2000}
        with LocalCluster(plugin=receiver_jar(), properties=properties) as cluster:
            cluster.subscribe("everything", metrics=["org.apache.kafka."], interval_ms=PUSH_INTERVAL_MS)
            cluster.create_topic("orders", partitions=2)
            cluster.set_quota(client_id="throttled-importer", producer_byte_rate=60_000)
            with LocalClients(cluster) as clients:
                _work(clients, settings.seconds, stop)
            if stop.is_set():
                return 0
            # Every demo starts a new broker, so its topic must not share a source name or checkpoints with the last.
            flags = ["--bootstrap-servers", cluster.bootstrap_servers, "--source-name", f"kafka:{cluster.folder.name}"]
            flags += ["--checkpoints", table_uri(checkpoints_of(settings.lake), cluster.folder.name)]
            return _ingest(settings, "--source", "kafka", *flags)
    except (JarsUnavailableError, ReceiverUnavailableError, ClientUnavailableError) as error:
        raise CannotRunError(f"{error}\nTo run the demo without a broker: telemetry-lake demo --files") from error


def _work(clients: LocalClients, seconds: float, stop: threading.Event) -> None:
    """Run a small fleet: one client is throttled by its quota, one is killed, the others close normally."""
    log.info("demo: running Java and librdkafka producers and a consumer group; one is throttled, one will be killed")
    orders = clients.producer("java", "orders", "orders-service", rate=200)
    payments = clients.producer("librdkafka", "orders", "payments-service", rate=100)
    importer = clients.producer("java", "orders", "throttled-importer", rate=200, value_bytes=500)
    crashing = clients.producer("librdkafka", "orders", "crashing-service", rate=50)
    billing = clients.consumer("java", "orders", "billing-1", group="billing")
    billing_2 = clients.consumer("librdkafka", "orders", "billing-2", group="billing")
    if stop.wait(seconds / 2):
        return
    crashing.kill()
    log.info("demo: crashing-service was killed (-9); the others keep running")
    if stop.wait(seconds / 2):
        return
    for client in (orders, payments, importer, billing, billing_2):
        client.close()
    log.info("demo: the other clients have closed; ingesting what they pushed to the topic")
