"""README from the beginning, as a newcomer does: a fresh copy, an empty home, and only what README says is needed."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_telemetry_lake.jobs.cli import settings_of
from kafka_telemetry_lake.jobs.settings.base import parse
from tests.support.patience import PATIENCE_S, idle_clock
from tests.support.ports import free_port

from .test_demo import check_story

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
COMMANDS = [line for block in BLOCKS for line in block.replace("\\\n", " ").splitlines() if line.strip()]
NOT_RUN = ("make test",)  # which this is a part of
OWN_CLUSTER = "--bootstrap-servers 127.0.0.1:9092"
SERVES = "telemetry-lake dashboard"
PASSED_ON = ("PATH", "JAVA_HOME", "LANG", "TMPDIR", "http_proxy", "https_proxy", "no_proxy")
LIMIT_S = 3600  # of all that it shows
DEMO = "make demo"
LONGER = {DEMO: "make demo LAKE='demo-lake --seconds 150'"}  # where all of the story happens on a busy machine, too


def environment(home: Path) -> dict[str, str]:
    """An empty home, also for Java, which takes it from the user's account; how pip reaches its index stays."""
    home.mkdir()
    names = [name for name in os.environ if name in PASSED_ON or name.startswith(("PIP_", "SSL_", "MAVEN_"))]
    clean = {name: os.environ[name] for name in names}
    return clean | {"HOME": str(home), "JAVA_TOOL_OPTIONS": f"-Duser.home={home}"}


def fresh_copy(folder: Path) -> Path:
    """What a clone has, changes that aren't committed included."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split("\0")  # fmt: skip
    files = [name for name in listed if name and os.path.lexists(ROOT / name)]
    archive = subprocess.run(["tar", "-cf", "-", "--", *files], cwd=ROOT, capture_output=True, check=True).stdout
    folder.mkdir()
    subprocess.run(["tar", "-xf", "-"], cwd=folder, input=archive, check=True)
    return folder


def answers(address: str, process: subprocess.Popen[str]) -> bool:
    """Whether a server that was started answers."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{address}/_stcore/health", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    return False


@pytest.mark.parametrize("command", [command for command in COMMANDS if OWN_CLUSTER in command])
def test_what_needs_a_cluster_of_the_users_own_is_a_command_that_runs(command: str) -> None:
    words = shlex.split(command)
    program = next(at for at, word in enumerate(words) if word.endswith(("telemetry-lake", "jobs/ingest.py")))
    script = words[program].endswith(".py")
    assert not script or (ROOT / words[program]).is_file()
    name, *flags = ["ingest", *words[program + 1 :]] if script else words[program + 1 :]
    settings = parse(settings_of(name), flags, name)
    settings.check_together()
    assert settings.model_dump()["bootstrap_servers"] == "127.0.0.1:9092"


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that is removed: what is installed there takes three gigabytes."""
    with tempfile.TemporaryDirectory(prefix="readme-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.mark.slow
def test_readme_from_the_beginning(place: Path) -> None:
    copy = fresh_copy(place / "copy")
    clean = environment(place / "home")
    port = free_port()
    with_port = [command.replace(SERVES, f"{SERVES} --port {port}") for command in COMMANDS]
    run = [command for command in with_port if command not in NOT_RUN and OWN_CLUSTER not in command]
    assert len(run) >= 5
    said, slowness = {}, {}
    for command in run:
        with (
            idle_clock() as clock,
            subprocess.Popen(
                ["sh", "-c", LONGER.get(command, command)], cwd=copy, env=clean, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True, start_new_session=True,
            ) as process,
        ):  # fmt: skip
            served = SERVES not in command or answers(f"http://127.0.0.1:{port}", process)
            if SERVES in command and process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
            try:
                out, error = process.communicate(timeout=LIMIT_S)
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
        assert served, f"{command}\n{error[-3000:]}"
        assert SERVES in command or process.returncode == 0, f"{command}\n{out[-3000:]}\n{error[-3000:]}"
        said[command], slowness[command] = out, clock.slowness
    check_story(said[DEMO], copy / "demo-lake", slowness[DEMO])
    (query,) = [out for command, out in said.items() if " query " in command]
    assert re.search(r"\d", query), "README's own question has no answer"
    assert (copy / "my-lake" / "metric_points" / "_delta_log").is_dir()
