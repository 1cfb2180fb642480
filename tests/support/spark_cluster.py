"""A standalone Spark cluster on this machine. Each worker has its own network, one cable long, and its own folders."""

from __future__ import annotations

import itertools
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyspark

from tests.support.ledger_run import Run, below

HOST = "10.77.0.1"  # of the master, of the driver and of the store; nothing outside of this machine reaches it
SPARK_CLASS = str(Path(str(pyspark.__file__)).parent / "bin" / "spark-class")
DEPLOY = "org.apache.spark.deploy"
EXECUTOR = "CoarseGrainedExecutorBackend"
# Of the driver: what doesn't answer is lost after seconds, not two minutes; a slow task runs twice.
SETTINGS = {
    "spark.driver.host": HOST,
    "spark.driver.bindAddress": HOST,
    "spark.executor.memory": "900m",
    "spark.executor.heartbeatInterval": "1s",
    "spark.network.timeout": "8s",
    "spark.network.timeoutInterval": "1s",
    "spark.speculation": "true",
    "spark.speculation.interval": "200ms",
    "spark.speculation.quantile": "0.5",
}


def missing() -> str | None:
    """Why this machine can't have such a cluster; None: it can."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return "networks of their own need root and iproute2"
    return None


@dataclass(frozen=True)
class Worker:
    """A worker with one core and its executor."""

    process: subprocess.Popen[bytes]
    namespace: str
    cable: str

    def executors(self) -> list[psutil.Process]:
        return below(self.process.pid, EXECUTOR)

    def python_workers(self) -> list[psutil.Process]:
        return below(self.process.pid, "pyspark.daemon")

    def kill(self) -> None:
        """As a machine that loses its power."""
        family = [*psutil.Process(self.process.pid).children(recursive=True), psutil.Process(self.process.pid)]
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def cut(self) -> None:
        ip("link", "set", self.cable, "down")

    def mend(self) -> None:
        ip("link", "set", self.cable, "up")


class SparkCluster:
    """A master, and workers that are added.

    Args:
        run: starts the processes, and ends those that are left.
    """

    def __init__(self, run: Run) -> None:
        self._run, self._names = run, itertools.count(1)
        self._id = f"tl{os.getpid() % 10_000}"
        self._namespaces: list[str] = []
        ip("link", "add", self._id, "type", "bridge")
        ip("addr", "add", f"{HOST}/24", "dev", self._id)
        ip("link", "set", self._id, "up")
        with socket.socket() as free:
            free.bind((HOST, 0))
            port = str(free.getsockname()[1])
        self.master = f"spark://{HOST}:{port}"
        run.start(
            command=(SPARK_CLASS, f"{DEPLOY}.master.Master", "--host", HOST, "--port", port, "--webui-port", "0"),
            log=run.folder / "master.log", environment={"SPARK_LOCAL_IP": HOST},
        )  # fmt: skip

    def add(self, environment: Mapping[str, str]) -> Worker:
        """Start a worker in a network of its own.

        Args:
            environment: of its processes, and of those of its executor.
        """
        number = next(self._names)
        name, cable, address = f"{self._id}-{number}", f"{self._id}c{number}", f"10.77.0.{10 + number}"
        ip("netns", "add", name)
        self._namespaces.append(name)
        ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", name)
        ip("link", "set", cable, "master", self._id)
        ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            ip("-n", name, "link", "set", device, "up")
        ip("link", "set", cable, "up")
        folder = self._run.folder / f"worker-{number}"
        folder.mkdir()
        command = (
            "ip", "netns", "exec", name, SPARK_CLASS, f"{DEPLOY}.worker.Worker", "--host", address, "--webui-port", "0",
            "--cores", "1", "--memory", "1g", "--work-dir", str(folder / "work"), self.master,
        )  # fmt: skip
        own = {"SPARK_LOCAL_IP": address, "SPARK_LOCAL_DIRS": str(folder / "local"), "TMPDIR": str(folder)}
        process = self._run.start(command=command, log=folder.with_suffix(".log"), environment={**environment, **own})
        return Worker(process, name, cable)

    def driver(self, settings: Mapping[str, str] | None = None) -> dict[str, str]:
        """The environment of a job on this cluster."""
        options = " ".join(f"--conf {name}={value}" for name, value in {**SETTINGS, **(settings or {})}.items())
        return {"SPARK_LOCAL_IP": HOST, "PYSPARK_SUBMIT_ARGS": f"{options} pyspark-shell"}

    def remove(self) -> None:
        """Remove the networks."""
        for name in self._namespaces:
            ip("netns", "del", name)
        ip("link", "del", self._id)


@contextmanager
def spark_cluster(run: Run) -> Iterator[SparkCluster]:
    """A master without workers, while the block runs."""
    cluster = SparkCluster(run)
    try:
        yield cluster
    finally:
        run.close()
        cluster.remove()


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
