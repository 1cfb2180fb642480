"""Commands of README and docs that need a broker, or a JVM of their own, work as they are printed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from kafka_telemetry_lake.sandbox.cluster import LocalCluster
from kafka_telemetry_lake.sandbox.cluster.ports import ReservedPorts
from tests.support.documented_commands import Command, commands
from tests.support.lake_tables import table
from tests.support.patience import PATIENCE_S

from .test_ingest_kafka import good_pushes, produce

ROOT = Path(__file__).parent.parent.parent


def printed(word: str) -> str:
    """The one command block of README that holds a word."""
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    (found,) = [block for block in blocks if "spark-submit" in block and word in block]
    return str(found)


@pytest.fixture(scope="module")
def home_of_java(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Settings of a JVM without what Maven and Ivy have stored for its user: packages come from the registry."""
    return {"SPARK_SUBMIT_OPTS": f"-Duser.home={tmp_path_factory.mktemp('home')}"}


def run(command: str, lake: Path, settings: dict[str, str]) -> str:
    assert "--lake my-lake" in command
    command = command.replace("--lake my-lake", f"--lake {lake}")
    done = subprocess.run(
        ["sh", "-c", command], cwd=ROOT, env={**os.environ, **settings}, capture_output=True, text=True, check=False,
        timeout=PATIENCE_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.soak  # test_readme.py runs it too
def test_spark_submit_from_files(home_of_java: dict[str, str], tmp_path: Path) -> None:
    assert "ingest: done" in run(printed("--source files:"), tmp_path / "lake", home_of_java)
    assert table(tmp_path / "lake", "metric_points").num_rows == 157_260


@pytest.mark.slow
def test_spark_submit_from_kafka(
    cluster: LocalCluster, topic: str, home_of_java: dict[str, str], tmp_path: Path
) -> None:
    produce(cluster, topic, good_pushes(0, 4))
    command = printed("--source kafka")
    assert "127.0.0.1:9092" in command
    command = command.replace("127.0.0.1:9092", f"{cluster.bootstrap_servers} --topic {topic}")
    run(command, tmp_path / "lake", home_of_java)
    assert table(tmp_path / "lake", "metric_points").num_rows == 60


KAFKA_TOOLS = {
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-get-offsets.sh": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-broker-api-versions.sh": "org.apache.kafka.tools.BrokerApiVersionsCommand",
}


def test_the_steps_of_the_plugins_install(cluster: LocalCluster) -> None:
    """Beside the cluster's own topics and subscription, and for its one broker."""
    said = {}
    for command in [each for page in ("receiver.md", "brokers.md") for each in commands() if each.page == page]:
        tool, *rest = command.words
        if tool not in KAFKA_TOOLS:
            continue
        text = " ".join(rest[: rest.index("|")] if "|" in rest else rest)
        text = text.replace("--bootstrap-server HOST:PORT", "")
        if "--create" in text or "--alter" in text:
            text = text.replace("--topic ", "--topic installed-").replace(
                "--entity-name all", "--entity-name installed"
            )
            text = text.replace("--replication-factor 3", "--replication-factor 1").replace("replicas=2", "replicas=1")
        if tool == "kafka-console-consumer.sh":
            text = text.replace("--max-messages 3", "--max-messages 1 --from-beginning")
        said[tool, text] = cluster.tool(KAFKA_TOOLS[tool], *text.split())
    assert len(said) == 7
    answers = {tool: answer for (tool, _), answer in said.items()}
    assert {"client-telemetry", "client-telemetry-status", "client-quotas"} == {
        text.split()[2].removeprefix("installed-") for tool, text in said if tool == "kafka-topics.sh"
    }
    assert {'"received":', '"landed":'} <= set(re.findall(r'"\w+":', answers["kafka-console-consumer.sh"]))
    assert re.search(r"^client-telemetry:0:\d+$", answers["kafka-get-offsets.sh"], re.MULTILINE)
    assert re.search(r"PushTelemetry\(72\): 0", answers["kafka-broker-api-versions.sh"])
    described = cluster.tool(KAFKA_TOOLS["kafka-topics.sh"], "--describe", "--topic", "installed-client-telemetry")
    assert "max.message.bytes=1114112" in described
    assert "min.insync.replicas=1" in described
    subscription = cluster.tool("org.apache.kafka.tools.ClientMetricsCommand", "--describe", "--name", "installed")
    assert "metrics=*" in subscription
    cluster.tool("org.apache.kafka.tools.ClientMetricsCommand", "--delete", "--name", "installed")
    cluster.tool(KAFKA_TOOLS["kafka-topics.sh"], "--delete", "--topic", "installed-.*")


def of_page(page: str, *words: str) -> Command:
    """The one command of a page that has these words."""
    (found,) = [each for each in commands() if each.page == page and all(word in each.text for word in words)]
    return found


@contextmanager
def started(command: str, log: Path, **environment: str) -> Iterator[Callable[[str], None]]:
    """A command in the background, ended with the block; gives what waits until it has said something."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            ["sh", "-c", f"exec {command}"], cwd=ROOT, env={**os.environ, **environment}, stdout=out, stderr=out
        )

        def wait_for(line: str) -> None:
            deadline = time.monotonic() + PATIENCE_S
            while line not in log.read_text("utf-8"):
                assert process.poll() is None, log.read_text("utf-8")[-2000:]
                assert time.monotonic() < deadline, log.read_text("utf-8")[-2000:]
                time.sleep(0.2)

        try:
            yield wait_for
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(PATIENCE_S)
            finally:
                process.kill()


@pytest.mark.slow
@pytest.mark.soak  # test_spark_submit_from_kafka is the same in a local session
def test_spark_submit_on_a_standalone_cluster(home_of_java: dict[str, str], tmp_path: Path) -> None:
    """docs/spark-submit.md: a master and two workers."""
    ports = ReservedPorts(1)
    port = str(ports.numbers[0])
    master = of_page("spark-submit.md", "deploy.master.Master").text.replace("7077", port)
    worker = of_page("spark-submit.md", "deploy.worker.Worker").text.replace("7077", port)
    job = of_page("spark-submit.md", "spark-submit --master spark://").text.replace("7077", port)
    folder = Path(str(pyspark.__file__)).parent
    settings = {"SPARK_HOME": str(folder), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_WORKER_DIR": str(tmp_path / "work"),
                "SPARK_MASTER_WEBUI_PORT": "0", "SPARK_WORKER_WEBUI_PORT": "0"}  # fmt: skip
    logs = [tmp_path / f"{name}.log" for name in ("master", "one", "two")]
    with started(master, logs[0], **settings) as wait_for:
        wait_for("I have been elected leader")
        with started(worker, logs[1], **settings) as first, started(worker, logs[2], **settings) as second:
            first("Successfully registered with master")
            second("Successfully registered with master")
            assert "/shared/my-lake" in job
            done = subprocess.run(
                ["sh", "-c", job.replace("/shared/my-lake", str(tmp_path / "lake"))], cwd=ROOT, capture_output=True,
                text=True, check=False, timeout=PATIENCE_S,
                env={**os.environ, **home_of_java, "SPARK_LOCAL_IP": "127.0.0.1"},
            )  # fmt: skip
            assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
            first("Asked to launch executor")
            second("Asked to launch executor")
    ports.release()
    assert "(2 shards)" in done.stdout
    assert table(tmp_path / "lake", "metric_points").num_rows == 157_260


@pytest.mark.slow
def test_sync_and_ingest(cluster: LocalCluster, topic: str, tmp_path: Path) -> None:
    """The example settings of conf/, with this broker and lake; flags win over the file."""
    cluster.subscribe("documented", ["org.apache.kafka."], 60_000, ["client_id=documented"])
    produce(cluster, topic, good_pushes(0, 4))
    lake = tmp_path / "lake"
    here = f" --lake {lake} --bootstrap-servers {cluster.bootstrap_servers}"

    def command(page: str, *words: str) -> str:
        text = of_page(page, *words).text.partition(" #")[0].replace("--lake my-lake", "")
        text = re.sub(r"--bootstrap-servers \S+", "", text)
        return f"{ROOT}/.venv/bin/{text.removeprefix('.venv/bin/')}{here}"

    def run_here(text: str) -> str:
        done = subprocess.run(
            ["sh", "-c", text], cwd=ROOT, capture_output=True, text=True, check=False, timeout=PATIENCE_S
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return done.stdout

    assert "documented" in run_here(command("subscriptions.md", "telemetry-lake sync", "--check"))
    assert not (lake / "subscriptions").exists()
    with started(command("subscriptions.md", "--conf conf/sync.yml"), tmp_path / "sync.log") as wait_for:
        wait_for("documented")  # new rows are printed until the command is stopped
    assert "documented" in table(lake, "subscriptions")["name"].to_pylist()
    assert "documented" not in run_here(command("operate.md", "telemetry-lake sync", "--bootstrap-servers"))
    run_here(f"{command('subscriptions.md', '--conf conf/ingest.yml')} --topic {topic} --once")
    assert table(lake, "metric_points").num_rows == 60
    cluster.unsubscribe("documented")
