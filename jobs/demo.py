"""``telemetry-lake demo``: real clients, a real broker with a receiver in it or in a proxy, the job, and a report."""

from __future__ import annotations

import logging
import shutil
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from importlib.resources import files
from pathlib import Path

from kafka_telemetry_lake.jobs.cli import run_command
from kafka_telemetry_lake.jobs.settings.demo import DemoSettings
from kafka_telemetry_lake.jobs.support.console import log_to_stdout
from kafka_telemetry_lake.jobs.support.demo_report import report
from kafka_telemetry_lake.jobs.support.demo_story import PUSH_INTERVAL_MS, Story
from kafka_telemetry_lake.jobs.support.signals import stop_at_signals
from kafka_telemetry_lake.jobs.support.waits import WaitLines
from kafka_telemetry_lake.pipelines.runtime.jars import JarsUnavailableError
from kafka_telemetry_lake.pipelines.runtime.java import check_java
from kafka_telemetry_lake.sandbox.clients import ClientUnavailableError, LocalClients
from kafka_telemetry_lake.sandbox.cluster import LocalCluster
from kafka_telemetry_lake.sandbox.cluster.kroxylicious import TelemetryProxy, filter_config, proxy_class_path
from kafka_telemetry_lake.sandbox.cluster.plugin import ReceiverUnavailableError, receiver_jar
from kafka_telemetry_lake.sandbox.cluster.tools import tool_classes
from kafka_telemetry_lake.udfs.errors import CannotRunError, TelemetryLakeError

BROKER_S = 15.0

DATA = Path(str(files("kafka_telemetry_lake.sandbox") / "data"))

log = logging.getLogger("telemetry-lake")


def run_job(settings: DemoSettings) -> int:
    """Run the demo; with `files` the exit code is that of its `telemetry-lake ingest`."""
    stop = stop_at_signals("demo: stopped")
    try:
        code = _from_files(settings) if settings.files else _from_clients(settings, stop)
    except (TelemetryLakeError, OSError):
        if not stop.is_set():  # else the signal has ended the broker or a client too
            raise
    if stop.is_set():
        log.info("demo: stopped")
        return 0
    if code == 0:
        report(settings.lake)
    return code


def _from_files(settings: DemoSettings) -> int:
    with tempfile.TemporaryDirectory(prefix="telemetry-lake-demo-") as folder:
        for file in (DATA / "captured" / "landed.parquet", DATA / "damaged.parquet"):
            shutil.copy(file, folder)
        flags = ["--source", f"files:{folder}", "--source-name", "files:demo", "--lake", settings.lake, "--once"]
        return run_command("ingest", [*flags, "--driver-memory", settings.driver_memory, "--master", "local[2]"])


def _from_clients(settings: DemoSettings, stop: threading.Event) -> int:
    log_to_stdout("INFO")
    try:
        check_java()
        log.info("demo: starting a Kafka broker with%s the receiver plugin", "out" if settings.proxy else "")
        properties = {"client.telemetry.lander.status.interval.ms": 2000}
        with WaitLines("demo") as waits:
            waits.wait_for("the broker and its topics", BROKER_S)
            with ThreadPoolExecutor(1) as pool:
                pool.submit(tool_classes)
                plugin = None if settings.proxy else receiver_jar()
                if settings.proxy:
                    proxy_class_path()  # compiled before anything waits for it
            # One partition: the clock of its records shows soon that a client is silent.
            with LocalCluster(plugin=plugin, properties=properties, landing_partitions=1) as cluster:
                log.info("demo: starting the job, which stores what lands")
                receiver = _proxy(cluster) if settings.proxy else None
                sync = partial(run_command, "sync")
                story = Story(cluster, settings.lake, settings.driver_memory, stop, waits, sync, receiver)
                try:
                    log.info("demo: creating a subscription that requests all metrics of all clients each second")
                    cluster.subscribe("everything", metrics=["org.apache.kafka."], interval_ms=PUSH_INTERVAL_MS)
                    if receiver:
                        log.info("demo: starting a proxy, whose filter answers the clients and lands what they push")
                        log.info("demo: it knows no client's address and port, and no broker: views say unknown there")
                    by = receiver.bootstrap_servers if receiver else None
                    with receiver or nullcontext(), LocalClients(cluster, by) as clients:
                        story.tell(clients, settings.seconds, with_franz_go=settings.franz_go)
                finally:
                    story.end()
    except (JarsUnavailableError, ReceiverUnavailableError, ClientUnavailableError) as error:
        raise CannotRunError(f"{error}\nTo run the demo without a broker: telemetry-lake demo --files") from error
    return 0


def _proxy(cluster: LocalCluster) -> TelemetryProxy:
    """Not started yet. It reads the broker's subscriptions when it starts, so these come first."""
    config = filter_config(cluster.bootstrap_servers, "brokers", require_sasl=False)
    return TelemetryProxy(cluster.folder / "proxy", cluster.bootstrap_servers, config)
