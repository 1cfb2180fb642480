"""deploy/: container, systemd units, Kubernetes manifests and alert rules. None is run here; each is checked."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points, metadata
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from prometheus_client import generate_latest

from kafka_telemetry_lake.jobs.cli import COMMANDS, settings_of
from kafka_telemetry_lake.jobs.settings.base import parse
from kafka_telemetry_lake.pipelines.observe.metrics_server import JobMetrics
from kafka_telemetry_lake.pipelines.runtime.jars import BUNDLES

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
DOCKERFILE = (DEPLOY / "container" / "Dockerfile").read_text("utf-8")
ALERTS = DEPLOY / "prometheus" / "alerts.yml"
UNITS = sorted((DEPLOY / "systemd").iterdir())
PROGRAM = "/opt/telemetry-lake/bin/telemetry-lake"
MANIFESTS: list[dict[str, Any]] = list(
    yaml.safe_load_all((DEPLOY / "kubernetes" / "telemetry-lake.yaml").read_text("utf-8"))
)


def containers(manifest: Any) -> Iterator[dict[str, Any]]:
    if isinstance(manifest, dict):
        yield from manifest.get("containers", [])
        for value in manifest.values():
            yield from containers(value)


def commands() -> Iterator[tuple[str, list[str]]]:
    """Each command line of deploy/: where it is, and the words after the program's name."""
    compose = yaml.safe_load((DEPLOY / "container" / "compose.yaml").read_text("utf-8"))
    for name, service in compose["services"].items():
        yield f"compose {name}", service["command"]
    for manifest in MANIFESTS:
        for container in containers(manifest):
            yield f"kubernetes {container['name']}", container["args"]
    for unit in UNITS:
        for line in re.findall(r"^ExecStart=(.+)$", unit.read_text("utf-8"), re.MULTILINE):
            program, *words = shlex.split(line)
            assert program == PROGRAM
            yield unit.name, words


@pytest.mark.parametrize(
    ("place", "words"), list(commands()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_command_is_one_that_runs(
    place: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the settings file that belongs to it, or the one that conf/ has of that name."""
    monkeypatch.setenv("TELEMETRY_LAKE_BOOTSTRAP_SERVERS", "127.0.0.1:9092")
    command, *flags = words
    assert command in COMMANDS
    config = next(manifest["data"] for manifest in MANIFESTS if manifest["kind"] == "ConfigMap")
    for at, word in enumerate(flags):
        if word.endswith(".yml"):
            name = word.rpartition("/")[2]
            text = config[name] if place.startswith("kubernetes") else (ROOT / "conf" / name).read_text("utf-8")
            flags[at] = str(tmp_path / name)
            (tmp_path / name).write_text(text, "utf-8")
    settings = parse(settings_of(command), flags, command)
    settings.check_together()
    assert str(getattr(settings, "lake", "")) in (
        "/lake/telemetry", "/var/lib/telemetry-lake/lake", "my-lake",  # my-lake: conf/ingest.yml, to be changed
    )  # fmt: skip


def test_the_dockerfile_passes_hadolint() -> None:
    hadolint = Path(sys.executable).parent / "hadolint"
    done = subprocess.run(
        [hadolint, "--format", "json", DEPLOY / "container" / "Dockerfile"], capture_output=True, text=True, check=False
    )
    assert [(found["line"], found["code"]) for found in json.loads(done.stdout)] == []


def test_what_the_dockerfile_names_is_there(tmp_path: Path) -> None:
    (wheel,) = set(re.findall(r"dist/(kafka_telemetry_lake-[\w.]+-py3-none-any\.whl)", DOCKERFILE))
    assert wheel == f"kafka_telemetry_lake-{metadata('kafka-telemetry-lake')['Version']}-py3-none-any.whl"
    extras = re.search(r"\.whl\[([\w,]+)\]'", DOCKERFILE)
    assert extras
    assert set(extras[1].split(",")) <= set(metadata("kafka-telemetry-lake").get_all("Provides-Extra") or [])
    bundles = re.search(r"-m kafka_telemetry_lake\.pipelines\.runtime\.jars (.+?) \\", DOCKERFILE)
    assert bundles
    assert set(bundles[1].split()) <= BUNDLES.keys()
    (program,) = re.findall(r'^ENTRYPOINT \["tini", "--", "(.+)"\]$', DOCKERFILE, re.MULTILINE)
    assert program in {point.name for point in entry_points(group="console_scripts")}

    versions = re.search(r"RUN (sed .+?) /tmp/install/requirements.lock >", DOCKERFILE)
    assert versions
    printed = subprocess.run(
        [*shlex.split(versions[1]), ROOT / "requirements.lock"], capture_output=True, text=True, check=True
    ).stdout
    locked = re.findall(r"^[^\s#]+==[^\s\\;]+", (ROOT / "requirements.lock").read_text("utf-8"), re.MULTILINE)
    assert printed.split() == locked


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda manifest: manifest["kind"])
def test_a_manifest_is_as_kubernetes_wants_it(manifest: dict[str, Any]) -> None:
    kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)


def test_a_wrong_manifest_would_be_found() -> None:
    wrong = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "x"}, "spec": {"port": 1}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, kubernetes_validate.latest_version(), strict=True)


def test_the_volumes_of_a_pod_are_there() -> None:
    claims = {"lake"}  # of the StatefulSet's template
    for manifest in MANIFESTS:
        if manifest["kind"] in ("StatefulSet", "CronJob"):
            text = json.dumps(manifest)
            mounted = {mount["name"] for each in containers(manifest) for mount in each["volumeMounts"]}
            named = set(re.findall(r'\{"name": "(\w+)", "(?:configMap|persistentVolumeClaim)"', text))
            assert mounted == named | (claims if manifest["kind"] == "StatefulSet" else set())


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    for unit in UNITS:
        (tmp_path / unit.name).write_text(unit.read_text("utf-8").replace(PROGRAM, "/bin/true"), "utf-8")
    names = [str(tmp_path / unit.name) for unit in UNITS]
    done = subprocess.run(["systemd-analyze", "verify", *names], capture_output=True, text=True, check=False)
    assert (done.returncode, [line for line in done.stderr.splitlines() if str(tmp_path) in line]) == (0, [])


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(ALERTS.read_text("utf-8"))["groups"]
    return list(group["rules"])


def test_an_alert_asks_for_metrics_that_the_job_has() -> None:
    exported = set(re.findall(rb"^# TYPE (\w+)", generate_latest(JobMetrics().registry), re.MULTILINE))
    names = {name.decode() for name in exported} | {"up", "probe_success"}
    for rule in rules():
        used = set(re.findall(r"\b(?:telemetry_lake_\w+|up|probe_success)\b(?=[{ [)]|$)", rule["expr"]))
        assert used
        assert used <= names, rule["alert"]


def test_every_alert_is_explained_and_tried() -> None:
    names = [rule["alert"] for rule in rules()]
    assert re.findall(r"^\| `(TelemetryLake\w+)` \|", (ROOT / "docs" / "operate.md").read_text("utf-8"), re.M) == names
    tried = (ROOT / "tests" / "data" / "alerts_test.yml").read_text("utf-8")
    assert [name for name in names if name not in tried] == ["TelemetryLakeUnhealthy", "TelemetryLakeBatchesTakeLong"]
    assert all(rule["labels"]["severity"] in ("page", "ticket") and rule["annotations"]["summary"] for rule in rules())


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool")
@pytest.mark.parametrize("name", ["alerts", "fleet-alerts"])
def test_prometheus_takes_the_rules_and_they_fire(name: str) -> None:
    tests = ROOT / "tests" / "data" / f"{name.replace('-', '_')}_test.yml"
    for kind, file in {"check": ALERTS.with_name(f"{name}.yml"), "test": tests}.items():
        done = subprocess.run(["promtool", kind, "rules", file], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
