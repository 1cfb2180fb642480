"""The franz-go counterpart of ``TelemetryClient.java``, built by Go where it is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from filelock import FileLock

from kafka_telemetry_lake.pipelines.runtime.jars import jars_home
from kafka_telemetry_lake.sandbox.clients.clients import ClientUnavailableError

_SOURCE = Path(__file__).parent / "go"


def franz_go_driver() -> Path:
    """The program, built again if its sources are newer. Raises ``ClientUnavailableError``."""
    return go_program(_SOURCE, "franz-go")


def go_program(source: Path, name: str) -> Path:
    """A program of the module in folder ``source``, built again if that is newer. Raises ``ClientUnavailableError``."""
    if shutil.which("go") is None:
        raise ClientUnavailableError("Go is not installed")
    folder = jars_home() / name
    folder.mkdir(parents=True, exist_ok=True)
    binary = folder / "telemetryclient"
    with FileLock(folder / ".lock"):
        if not binary.exists() or binary.stat().st_mtime < max(each.stat().st_mtime for each in source.iterdir()):
            # It sends some records a second: code that isn't optimised compiles in 25 instead of 44 CPU-s.
            command = ["go", "build", "-gcflags=all=-N -l -dwarf=false", "-ldflags=-s -w", "-o", str(binary), "."]
            environment = {**os.environ, "CGO_ENABLED": "0"}
            built = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True, check=False)
            if built.returncode:
                lines = built.stderr.strip().splitlines() or [f"status {built.returncode}"]
                raise ClientUnavailableError(f"go build failed: {lines[-1]}")
    return binary
