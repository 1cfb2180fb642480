"""The receiver's jar, built from a checkout."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from filelock import FileLock

from kafka_telemetry_lake.pipelines.runtime.jars import jars_home, maven
from kafka_telemetry_lake.udfs.errors import CannotRunError

_RECEIVER = Path(__file__).resolve().parents[2] / "receiver"


class ReceiverUnavailableError(CannotRunError):
    """There are neither a jar nor its sources, or Maven's build failed; the message has Maven's last lines."""


def receiver_jar() -> Path:
    """The jar named by ``TELEMETRY_LAKE_RECEIVER``, else the checkout's, rebuilt by Maven if its sources are newer."""
    if configured := os.environ.get("TELEMETRY_LAKE_RECEIVER"):
        return Path(configured)
    project = _RECEIVER / "pom.xml"
    if not project.exists():
        raise ReceiverUnavailableError("no receiver/ here: set TELEMETRY_LAKE_RECEIVER to the plugin's jar")
    sources = [project, *(path for path in (_RECEIVER / "src" / "main").rglob("*") if path.is_file())]
    with FileLock(jars_home() / "receiver.lock"):
        jar = _built_jar()
        if jar is None or jar.stat().st_mtime < max(source.stat().st_mtime for source in sources):
            command = [str(maven()), "-q", "-B", "-DskipTests", "-f", str(project), "package"]
            result = subprocess.run(command, capture_output=True, text=True, check=False)
            jar = _built_jar()
            if result.returncode or jar is None:
                lines = (result.stdout + result.stderr).splitlines()
                raise ReceiverUnavailableError("mvn package failed:\n" + "\n".join(lines[-20:]))
    return jar


def _built_jar() -> Path | None:
    jars = [
        jar for jar in (_RECEIVER / "target").glob("*.jar") if not jar.stem.endswith(("-javadoc", "-sources", "-tests"))
    ]
    return max(jars, key=lambda jar: jar.stat().st_mtime, default=None)
