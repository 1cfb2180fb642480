"""Faults beside the driver's death, one function each: they strike, and wait until the job goes on.

The tests let each strike once or twice, ``make soak`` more often; what it did to the rows the run's ledger tells.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psutil
import pyspark
from confluent_kafka.admin import AdminClient, NewPartitions

from benchmarks.suspension import suspended
from kafka_telemetry_lake.sandbox.cluster.ports import ReservedPorts
from tests.support.ledger_run import KafkaRun, Run, below
from tests.support.patience import PATIENCE_S, wait_until
from tests.support.s3_proxy import Fault, proxied
from tests.support.spark_cluster import HOST, spark_cluster

LOCAL = ("--master", "local[2,3]")
FOLLOW = ("--trigger-seconds", "0.2")
RESTART_S = 5.0
# Spark forgets an executor after three seconds, not two minutes; the executor ends its JVM after 60 heartbeats in vain.
IMPATIENT = {
    "PYSPARK_SUBMIT_ARGS": "--conf spark.executor.heartbeatInterval=100ms --conf spark.network.timeout=3s "
    "--conf spark.network.timeoutInterval=100ms pyspark-shell"
}
STILL_S, GIVES_UP_S = 9.0, 12.0


def kill_workers(run: Run, times: int) -> None:
    """A Python worker dies in the middle of a batch: its task runs again."""
    run.land()
    job = run.start(*FOLLOW, *LOCAL)
    run.wait(lambda: run.judged() > 0, job)
    for _ in range(times):
        before, begun = _files(run), time.monotonic()
        judged = run.judged()
        run.land()
        run.wait(partial(_more_files, run, before), job)
        for worker in below(job.pid, "pyspark.daemon"):
            worker.kill()
        run.wait(partial(_judged_more, run, judged), job)
        run.recoveries_s.append(time.monotonic() - begun)
    run.end(job)


def _files(run: Run) -> int:
    return len(list(run.lake.glob("metric_points/landed_date=*/*")))


def _more_files(run: Run, before: int) -> bool:
    return _files(run) > before


def _judged_more(run: Run, before: int) -> bool:
    return run.judged() > before


def kill_executors(run: Run, times: int) -> None:
    """An executor of a standalone cluster (a master, two workers) dies; the worker starts another."""
    ports = ReservedPorts(1)
    master = f"spark://127.0.0.1:{ports.numbers[0]}"
    launcher = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    deploy = "org.apache.spark.deploy"
    address = ("--host", "127.0.0.1", "--webui-port", "0")
    run.start(command=(launcher, f"{deploy}.master.Master", "--port", str(ports.numbers[0]), *address))
    workers = [
        run.start(
            command=(launcher, f"{deploy}.worker.Worker", "--cores", "1", "--memory", "1g", "--work-dir",
                     str(run.folder / f"worker-{number}"), *address, master)
        )
        for number in range(2)
    ]  # fmt: skip
    run.land()
    job = run.start(*FOLLOW, "--master", master, "--shards", "2")
    run.wait(lambda: run.judged() > 0, job)
    for number in range(times):
        worker = workers[number % 2]
        run.wait(partial(below, worker.pid, "CoarseGrainedExecutorBackend"), job)
        run.land()
        time.sleep(0.3 * (number % 3))
        below(worker.pid, "CoarseGrainedExecutorBackend")[0].kill()
        run.land()
        run.recover(job)
        run.wait_for_all(job)
    run.end(job)
    for worker in workers:
        worker.terminate()
    ports.release()


def lose_workers(run: Run, endpoint: str) -> None:
    """Workers of a standalone cluster of four die, come, are cut off, or are refused by the store, in mid-batch.

    Args:
        run: its lake is in a store.
        endpoint: of the store.
    """
    with (
        spark_cluster(run) as cluster,
        proxied(endpoint, HOST) as store,
        proxied(endpoint, HOST) as store_of_one,
    ):
        run.environment["AWS_ENDPOINT_URL"] = store.endpoint
        refused = cluster.add({**run.environment, "AWS_ENDPOINT_URL": store_of_one.endpoint})
        workers = [refused, *(cluster.add(run.environment) for _ in range(3))]
        run.land()
        flags = ("--master", cluster.master, "--shards", "4")
        job = run.start("--trigger-seconds", "0.5", *flags, environment=cluster.driver())
        run.wait_for_all(job)
        for worker in workers:
            run.wait(worker.executors, job)

        def strike(name: str, fault: Callable[[], object]) -> None:
            run.land()
            time.sleep(0.4)  # its batch has begun
            fault()
            run.land()
            run.recover(job)
            run.wait_for_all(job)
            print(f"{name}: judged again after {run.recoveries_s[-1]:.1f} s", flush=True)

        _, second, third, fourth = workers
        strike("an executor is killed", second.executors()[0].kill)
        strike("Python workers are killed", partial(_kill, third.python_workers))
        strike("a worker is lost", third.kill)
        added = cluster.add(run.environment)
        strike("a worker is added", lambda: run.wait(added.executors, job))
        strike("a worker is cut off", fourth.cut)
        strike("it is back", fourth.mend)
        strike("the store refuses a worker", lambda: store_of_one.strike(Fault.UNAVAILABLE, "PUT", "", times=3))
        run.end(job)


def _kill(processes: Callable[[], list[psutil.Process]]) -> None:
    for process in processes():
        process.kill()


def suspend_job(run: Run, times: int) -> None:
    """All of the job's processes stop for longer than Spark waits for a heartbeat, as on a machine that sleeps."""
    run.land()
    job = run.start(*FOLLOW, *LOCAL, environment=IMPATIENT)
    run.wait(lambda: run.judged() > 0, job)
    for _ in range(times):
        with suspended(job.pid):
            time.sleep(STILL_S)
        run.land()
        run.recover(job)
    time.sleep(GIVES_UP_S)
    run.land()
    run.wait_for_all(job)
    run.end(job)


@contextmanager
def small_disk(folder: Path) -> Iterator[str | None]:
    """A file system of its own in a folder; gives why there is none, if so."""
    if os.geteuid() != 0:
        yield "mounting a small file system needs root"
        return
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode:
        yield f"can't mount a tmpfs here: {mounted.stderr.strip()}"
        return
    try:
        yield None
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill_disk(run: Run, shares: tuple[float, ...]) -> None:
    """The run's lake lies on a `small_disk`, which has only so much of what the lake needs; then it gets larger."""
    for _ in range(8):
        run.land()
    disk, run.lake = run.lake, run.folder / "roomy"
    assert run.start("--once", *LOCAL).wait(PATIENCE_S) == 0, run.log.read_text()[-3000:]
    needed = sum(file.stat().st_blocks * 512 for file in run.lake.rglob("*"))
    run.lake = disk
    for share in shares:
        subprocess.run(["mount", "-o", f"remount,size={round(share * needed)}", str(disk)], check=True)
        job = run.start("--once", *LOCAL)
        assert job.wait(PATIENCE_S) == 1, run.log.read_text()[-3000:]
        assert "No space left" in run.log.read_text().splitlines()[-1]
    subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
    begun = time.monotonic()
    assert run.start("--once", *LOCAL).wait(PATIENCE_S) == 0, run.log.read_text()[-3000:]
    run.recoveries_s.append(time.monotonic() - begun)


def refuse_second_job(run: Run, times: int) -> None:
    """Another job on the same lake ends with exit code 2 and says why; the first doesn't notice."""
    run.land()
    job = run.start(*FOLLOW, *LOCAL)
    run.wait(lambda: run.judged() > 0, job)
    for number in range(times):
        log = run.folder / f"second-{number}.log"
        assert run.start("--once", *LOCAL, log=log).wait(PATIENCE_S) == 2, log.read_text()
        assert "another job is writing this lake" in log.read_text().splitlines()[-1]
        run.land()
        run.recover(job)
    run.wait_for_all(job)
    run.end(job)


@contextmanager
def following(run: KafkaRun) -> Iterator[subprocess.Popen[bytes]]:
    """The job follows the topic, and has judged a first round; it is ended cleanly."""
    run.land()
    job = run.start("--trigger-seconds", "0.5", *LOCAL)
    run.wait_for_all(job)
    yield job
    run.end(job)


def kill_brokers(run: KafkaRun, job: subprocess.Popen[bytes], times: int) -> None:
    """A broker is killed -9 and started again, while the receivers go on landing."""
    for number in range(times):
        broker = run.cluster.brokers[-1 - number % len(run.cluster.brokers)]
        broker.kill()
        time.sleep(RESTART_S)
        broker.start()
        begun = time.monotonic()
        run.land()
        run.wait_for_all(job)
        run.recoveries_s.append(time.monotonic() - begun)


def add_partitions(run: KafkaRun, job: subprocess.Popen[bytes], *numbers: int) -> None:
    """The landing topic gets more partitions: clients move."""
    admin = AdminClient({"bootstrap.servers": run.cluster.bootstrap_servers})
    for partitions in numbers:
        admin.create_partitions([NewPartitions("client-telemetry", partitions)])["client-telemetry"].result(PATIENCE_S)
        wait_until(partial(_all_brokers_know, run, partitions))
        run.fleet.grow(partitions)
        begun = time.monotonic()
        run.land()
        run.wait_for_all(job)
        run.recoveries_s.append(time.monotonic() - begun)


def _all_brokers_know(run: KafkaRun, partitions: int) -> bool:
    admins = [AdminClient({"bootstrap.servers": server}) for server in run.cluster.bootstrap_servers.split(",")]
    topics = [admin.list_topics("client-telemetry").topics["client-telemetry"] for admin in admins]
    return all(len(topic.partitions) == partitions for topic in topics)


def land_by_two_brokers(run: KafkaRun, job: subprocess.Popen[bytes], rounds: int) -> None:
    """Each push comes by one of two receivers: they overtake each other, and some come twice."""
    for _ in range(rounds):
        begun = time.monotonic()
        run.land(receivers=2)
        run.wait_for_all(job)
        run.recoveries_s.append(time.monotonic() - begun)
