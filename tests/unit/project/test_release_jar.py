"""What a release has of the receivers: jars, sources, javadoc and bills of materials, the same bytes in each build."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tomllib
import zipfile
from pathlib import Path

import pytest

from kafka_telemetry_lake.pipelines.runtime.jars import maven
from tests.support.patience import PATIENCE_S

ROOT = Path(__file__).parents[3]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
NAME = f"client-telemetry-lake-receiver-{VERSION}"
FILTER = f"client-telemetry-lake-proxy-{VERSION}"
PACKAGE = "io/github/kafkatelemetrylake/receiver"


def released(folder: Path, time_zone: str) -> Path:
    """Build a copy of the sources, and return the folder of the results."""
    shutil.copytree(ROOT / "receiver", folder, ignore=shutil.ignore_patterns("target"))
    command = [str(maven()), "-q", "-B", "-DskipTests", "-Prelease", "-f", str(folder / "pom.xml"), "package"]
    # A build takes half a minute: HotSpot's second compiler would pay too late.
    environment = os.environ | {"TZ": time_zone, "MAVEN_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stdout[-2000:]
    for each in (folder / "proxy" / "target").glob(f"{FILTER}*"):
        shutil.copy(each, folder / "target")
    return folder / "target"


def test_the_job_and_the_receivers_have_one_version() -> None:
    poms = [ROOT / "receiver" / "pom.xml", *(ROOT / "receiver").glob("*/pom.xml")]
    versions = {pom.parent.name: re.search(r"<version>(.*?)</version>", pom.read_text("utf-8")) for pom in poms}
    assert {name: found and found[1] for name, found in versions.items()} == dict.fromkeys(versions, VERSION)
    assert len(versions) > 1


@pytest.mark.slow
def test_two_builds_of_the_receivers_are_the_same_bytes(tmp_path: Path) -> None:
    first = released(tmp_path / "here", "UTC")
    second = released(tmp_path / "somewhere" / "else", "Asia/Tokyo")
    files = [f"{NAME}.jar", f"{NAME}-sources.jar", f"{NAME}-javadoc.jar", f"{NAME}-sbom.json"]
    files += [f"{FILTER}-sbom.json", f"{FILTER}.jar"]
    for name in files:
        sums = {hashlib.sha256((folder / name).read_bytes()).hexdigest() for folder in (first, second)}
        assert len(sums) == 1, name

    names = {name: set(zipfile.ZipFile(first / name).namelist()) for name in (*files[:3], files[-1])}
    assert {f"{PACKAGE}/Lander.class", f"{PACKAGE}/proxy/TelemetryFilter.class"} <= names[files[-1]]
    assert not [name for name in names[files[-1]] if name.endswith(".class") and not name.startswith(PACKAGE)]
    assert f"{PACKAGE}/Lander.class" in names[f"{NAME}.jar"]
    assert not [name for name in names[f"{NAME}.jar"] if "subscriptions" in name]
    assert not [name for name in names[f"{NAME}.jar"] if name.endswith(".class") and not name.startswith(PACKAGE)]
    assert f"{PACKAGE}/Lander.java" in names[f"{NAME}-sources.jar"]
    assert f"{PACKAGE}/ClientTelemetryLakeExporter.html" in names[f"{NAME}-javadoc.jar"]
    parts = {}
    for name in (NAME, FILTER):
        materials = json.loads((first / f"{name}-sbom.json").read_text("utf-8"))
        assert materials["bomFormat"] == "CycloneDX"
        parts[name] = {part["name"]: part["version"] for part in materials["components"]}
    assert parts[NAME]["kafka-clients"] == "4.3.1"
    assert (parts[FILTER]["kafka-clients"], parts[FILTER]["kroxylicious-api"]) == ("4.0.0", "0.12.0")
