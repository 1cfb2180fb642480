"""The demo's story: what its clients do, while a job stores what they push."""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from kafka_telemetry_lake.jobs.support.new_rows import NewRows
from kafka_telemetry_lake.jobs.support.waits import WaitLines
from kafka_telemetry_lake.pipelines.events.subscriptions import add_subscription_events
from kafka_telemetry_lake.pipelines.lake.checkpoint_folders import checkpoints_of
from kafka_telemetry_lake.pipelines.lifecycle.follower import Lifecycle
from kafka_telemetry_lake.pipelines.query.lake_query import is_lake, run_query
from kafka_telemetry_lake.pipelines.runtime.java import SPARK_OPTIONS
from kafka_telemetry_lake.pipelines.subscriptions.client_matches import update_client_matches
from kafka_telemetry_lake.pipelines.tables.table import table_uri
from kafka_telemetry_lake.sandbox.clients import Client, ClientUnavailableError, LocalClients
from kafka_telemetry_lake.sandbox.clients.franz_go import franz_go_driver
from kafka_telemetry_lake.sandbox.cluster import LANDING_TOPICS, LocalCluster
from kafka_telemetry_lake.sandbox.cluster.kroxylicious import TelemetryProxy
from kafka_telemetry_lake.sandbox.cluster.process import Process
from kafka_telemetry_lake.sandbox.cluster.proxy import AddressProxy
from kafka_telemetry_lake.udfs.errors import TelemetryLakeError
from kafka_telemetry_lake.udfs.kernels import numba_cache

PUSH_INTERVAL_MS = 1000
CRASHING_PUSHES = 2  # after which it is killed
SILENT_S = 60.0  # after its last push (rule L3)
CLOSED_S = 6.0  # that the other clients take to close: the throttled one sends what it still has
MOVE_S, SYNC_S = 10.0, 15.0
LOOK_S, LOOK_AT_FINDINGS_S = 4.0, 12.0
MOVES = 4
CLOSE_S, LAST_ROWS_S = 60.0, 900.0  # at most, on a busy machine
# About, for who waits.
PUSHED_S, READY_S, FIRST_ROW_S, STORED_S = 5.0, 20.0, 10.0, 10.0
COMPILING_S, GO_S = 60.0, 30.0
READY = re.compile(r" ingest: kafka -> ")
# Lines of the job's log that the demo prints too.
RELAYED = re.compile(r"\S+ (ingest: compiling.+)")
# Two minutes are too short for HotSpot's optimizing compiler: its work costs more than it saves.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1"
CRASHING, MOVED, THROTTLED = "crashing-service", "relocated-service", "throttled-importer"
LAST = "payments-service"

log = logging.getLogger("telemetry-lake")


class DemoJobError(TelemetryLakeError):
    """The demo's job ended; the message has the end of its log."""


class Story:
    """A small fleet on a local cluster, and the job that reads its topic into a lake.

    Args:
        stop: ends the story early when it is set.
        waits: is told what the story waits for.
        sync: runs `sync` with these flags.
        receiver: the proxy that the clients come by; None: the broker receives itself.
    """

    def __init__(
        self,
        cluster: LocalCluster,
        lake: str,
        driver_memory: str,
        stop: threading.Event,
        waits: WaitLines,
        sync: Callable[[list[str]], object],
        receiver: TelemetryProxy | None = None,
    ) -> None:
        self._cluster, self._lake, self._stop, self._waits, self._sync = cluster, lake, stop, waits, sync
        self._receiver = receiver
        self._rows = NewRows(lake, log.info)
        checkpoints = table_uri(checkpoints_of(lake), cluster.folder.name)
        # Every demo starts a new broker, so its topic must not share a source name or checkpoints with the last.
        flags = ["--source", "kafka", "--bootstrap-servers", cluster.bootstrap_servers, "--lake", lake]
        flags += ["--source-name", f"kafka:{cluster.folder.name}", "--checkpoints", checkpoints]
        # The job's own consumers would be clients too.
        flags += ["--kafka-options", "kafka.enable.metrics.push=false"]
        flags += ["--trigger-seconds", "1", "--driver-memory", driver_memory, "--master", "local[2]"]
        command = [sys.executable, "-m", "kafka_telemetry_lake", "ingest", *flags]
        options = f"{os.environ.get(SPARK_OPTIONS, '')} {JAVA_OPTIONS}".strip()
        self._job = Process(command, cluster.folder / "ingest.log", variables={SPARK_OPTIONS: options})
        self._relayed = 0  # characters of the job's log
        self._look_at_findings = 0.0  # time.monotonic

    def tell(self, clients: LocalClients, seconds: float, *, with_franz_go: bool = False) -> None:
        """Run the clients beside the job, for `seconds` at most or until everything has happened.

        The client that is to fall silent comes first, as silence takes a minute, in which the rest happens. The
        broker's topic has what they push, however late the job is ready. Then they close, and the job ends when it has
        stored all that they pushed.
        """
        port = self._receiver.node_port if self._receiver else self._cluster.broker(1).port
        with AddressProxy([port], moves=MOVES) as proxy:
            began = time.monotonic()
            silent_at = self._crash(clients) + SILENT_S
            fleet = [] if self._stop.is_set() else self._start(clients, proxy)
            if with_franz_go:
                self._start_franz_go(clients, fleet)
            self._go_on(proxy, silent_at, began + seconds)
            if not self._stop.is_set():
                self._close(fleet, min(silent_at, began + seconds))
        if not self._stop.is_set():
            self._finish()

    def end(self) -> None:
        """End the job if it still runs: whatever it is doing, the demo has failed or shall stop."""
        self._job.kill()

    def _crash(self, clients: LocalClients) -> float:
        """Kill a client when some of its pushes have landed; returns when (time.monotonic)."""
        log.info("demo: running %s, a librdkafka producer", CRASHING)
        crashing = clients.producer("librdkafka", "orders", CRASHING, rate=10)
        # While its process starts: a client pushes before its topic is there, too.
        self._cluster.create_topic("orders", partitions=2)
        self._cluster.set_quota(client_id=THROTTLED, producer_byte_rate=60_000)
        self._waits.wait_for(f"the first pushes of {CRASHING}", PUSHED_S)
        while self._landed() < CRASHING_PUSHES and not self._stop.wait(0.3):
            self._check_job()
        crashing.kill()
        log.info("demo: %s was killed (-9); it counts as silent a minute after its last push", CRASHING)
        return time.monotonic()

    def _start(self, clients: LocalClients, proxy: AddressProxy) -> list[Client]:
        """Few records and requests a second: they tell as much, and all processes share this machine."""
        log.info("demo: running Java and librdkafka producers and a consumer group; %s has a quota", THROTTLED)
        relocated = {
            "bootstrap.servers": proxy.bootstrap_servers,
            "metadata.max.age.ms": 3000,
            "metadata.recovery.rebootstrap.trigger.ms": 5000,
            "reconnect.backoff.max.ms": 2000,
        }
        batched, fetched = {"linger.ms": 100}, {"fetch.min.bytes": 100_000}  # or what comes in half a second
        return [
            clients.producer("java", "orders", "orders-service", rate=40, properties=batched),
            # Of more than two batches at hand, one would always be sent before its telemetry.
            clients.producer(
                "java", "orders", THROTTLED, rate=20, value_bytes=5000, properties={"buffer.memory": 40_000}
            ),
            clients.producer("java", "orders", MOVED, rate=20, properties=relocated),
            clients.consumer("java", "orders", "billing-1", group="billing", properties=fetched),
            clients.consumer("librdkafka", "orders", "billing-2", group="billing", properties=fetched),
            clients.producer("librdkafka", "orders", LAST, rate=20, properties=batched),
        ]

    def _go_on(self, proxy: AddressProxy, silent_at: float, ends_at: float) -> None:
        """Let things happen until the clients should close. Times are those of time.monotonic."""
        began = time.monotonic()
        move_at, moves, synced, look_at = MOVE_S, 0, False, 0.0
        while not self._stop.is_set():
            now = time.monotonic()
            passed = now - began
            self._check_job()
            self._relay()
            is_ready = READY.search(self._job.log.read_text(errors="replace")) is not None
            is_due = passed >= move_at and (is_ready or not moves)  # it isn't known before whether the first was enough
            if is_due and moves < MOVES and ("rebootstrap", MOVED) not in self._rows.events:
                proxy.move()
                move_at, moves = passed + 2 * MOVE_S, moves + 1
                log.info("demo: the brokers' addresses changed for %s, as when they move to other hosts", MOVED)
            ends = now >= ends_at or (now >= silent_at - CLOSED_S and not self._awaited(is_ready=is_ready))
            if not synced and (ends or (is_ready and passed >= SYNC_S)):
                synced = True
                log.info("demo: `telemetry-lake sync` records subscriptions, quotas and consumer groups")
                self._sync(["--lake", self._lake, "--bootstrap-servers", self._cluster.bootstrap_servers])
            if ends:
                return
            if is_ready and now >= look_at:
                self._look()
                look_at = time.monotonic() + LOOK_S
            what, usual_s = self._awaited(is_ready=is_ready) or (f"{CRASHING} to count as silent", SILENT_S)
            self._waits.wait_for(what, usual_s)
            self._stop.wait(0.5)

    def _awaited(self, *, is_ready: bool) -> tuple[str, float] | None:
        """What the story waits for, besides the silence, and about how many seconds it takes; None: nothing."""
        if not is_ready:
            return "the job to be ready", READY_S
        if not self._rows.clients:
            return "the first rows", FIRST_ROW_S if numba_cache.is_filled() else COMPILING_S
        if ("rebootstrap", MOVED) not in self._rows.events:
            return f"{MOVED} to go back to its bootstrap servers", MOVE_S
        if ("throttled", THROTTLED) not in self._rows.findings:
            return f"the finding that {THROTTLED} is throttled", LOOK_AT_FINDINGS_S
        return None

    def _start_franz_go(self, clients: LocalClients, fleet: list[Client]) -> None:
        self._waits.wait_for("Go to compile the franz-go client", GO_S)
        try:
            driver = franz_go_driver()
        except ClientUnavailableError as error:
            log.info("demo: without a franz-go client: %s", error)
            return
        settings = {"driver.topic": "orders", "driver.records": -1, "driver.rate": 50, "driver.value_bytes": 100}
        fleet.append(clients.start("inventory-service", [driver, "producer"], settings))
        log.info("demo: inventory-service, a franz-go producer, has joined them")

    def _check_job(self) -> None:
        if not self._job.running:
            lines = self._job.log.read_text(errors="replace").strip().splitlines()
            raise DemoJobError(f"the demo's job has ended: {lines[-1] if lines else 'it printed nothing'}")

    def _look(self) -> None:
        """Print what is new. Findings, a CPU second to look at, come less often."""
        now = time.monotonic()
        with_findings = now >= self._look_at_findings
        self._rows.look(with_findings=with_findings)
        if with_findings:
            self._look_at_findings = now + LOOK_AT_FINDINGS_S

    def _relay(self) -> None:
        """Print what the job has said about its kernels since the last look."""
        text = self._job.log.read_text(errors="replace")
        end = text.rfind("\n") + 1
        for line in text[self._relayed : end].splitlines():
            if said := RELAYED.fullmatch(line):
                log.info("job: %s", said[1])
        self._relayed = end

    def _close(self, fleet: list[Client], silent_at: float) -> None:
        """Close the clients, one of them last: its pushes are the clock by which the killed one falls silent."""
        self._waits.wait_for("the clients to close", CLOSED_S)
        log.info(
            "demo: the other clients close; Java producers do so without a last push, so their last second is missing"
        )
        last = [client for client in fleet if client.client_id == LAST]
        others = [client for client in fleet if client not in last]
        with ThreadPoolExecutor(max(1, len(others))) as pool:
            counts = list(pool.map(lambda client: client.close(CLOSE_S)["records"], others))
        self._waits.wait_for(f"{CRASHING} to count as silent", SILENT_S)
        self._stop.wait(max(0.0, silent_at - time.monotonic()))
        landed, deadline = self._landed(), time.monotonic() + CLOSE_S
        while last and self._landed() == landed and time.monotonic() < deadline and not self._stop.wait(0.2):
            self._check_job()
        counts += [client.close(CLOSE_S)["records"] for client in last]
        closed = zip([*others, *last], counts, strict=True)
        said = ", ".join(f"{client.client_id} {count:,} records" for client, count in closed)
        log.info("demo: they counted themselves: %s", said)

    def _finish(self) -> None:
        """Wait until all pushes are in the lake, end the job, and complete what follows them."""
        self._waits.wait_for("all pushes to be in the lake", STORED_S)
        landed, deadline = self._landed(), time.monotonic() + LAST_ROWS_S
        while (stored := self._stored()) < landed and not self._stop.wait(0.5):
            if time.monotonic() > deadline:
                raise DemoJobError(f"{stored:,} of {landed:,} pushes are in the lake after {LAST_ROWS_S:g} s")
            self._check_job()
            self._relay()
        if self._stop.is_set():
            return
        self._waits.wait_for("the job to end", STORED_S)
        self._job.stop()
        if self._receiver:
            self._receiver.stop()
        self._cluster.broker(1).kill()  # nobody needs its data any more
        Lifecycle(self._lake).catch_up()
        update_client_matches(self._lake)
        add_subscription_events(self._lake)
        self._rows.look(with_findings=("throttled", THROTTLED) not in self._rows.findings)
        log.info("demo: all %s pushes of this run are in the lake", f"{self._stored():,}")

    def _landed(self) -> int:
        """Pushes that the receiver has written to its topic."""
        ends = self._cluster.tool("org.apache.kafka.tools.GetOffsetShell", "--topic", LANDING_TOPICS[0])
        return sum(int(line.rpartition(":")[2]) for line in ends.split())

    def _stored(self) -> int:
        if not is_lake(self._lake):
            return 0
        sql = f"SELECT count(*) AS n FROM push_outcomes WHERE source = 'kafka:{self._cluster.folder.name}'"
        return int(run_query(self._lake, sql).read_all()["n"][0].as_py())
