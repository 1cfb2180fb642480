"""The receiver's jar, built from a checkout."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

from filelock import FileLock

from kafka_telemetry_lake.sandbox.cluster.java import compile_java, kafka_class_path
from kafka_telemetry_lake.udfs.errors import CannotRunError

RECEIVER = Path(__file__).resolve().parents[2] / "receiver"
_KAFKA = "4.3.1"  # as in receiver/pom.xml, and so is the release of Java
_RELEASE = 11


class ReceiverUnavailableError(CannotRunError):
    """There are neither a jar nor its sources."""


def receiver_jar() -> Path:
    """The jar named by ``TELEMETRY_LAKE_RECEIVER``, else Maven's, else one of newer sources, compiled here.

    Maven would fetch its plugins first, and needs a JDK.
    Raises ``ReceiverUnavailableError``, ``CompileError``, ``JarsUnavailableError``.
    """
    if configured := os.environ.get("TELEMETRY_LAKE_RECEIVER"):
        return Path(configured)
    project = RECEIVER / "pom.xml"
    if not project.exists():
        raise ReceiverUnavailableError("no receiver/ here: set TELEMETRY_LAKE_RECEIVER to the plugin's jar")
    modules = RECEIVER / "core", RECEIVER / "plugin"  # into one jar, as Maven does
    sources = sorted(source for module in modules for source in (module / "src" / "main").rglob("*.java"))
    projects = project, *(module / "pom.xml" for module in modules)
    built = _built_by_maven()
    if built is not None and built.stat().st_mtime >= max(each.stat().st_mtime for each in (*projects, *sources)):
        return built
    classes = compile_java(sources, kafka_class_path(_KAFKA), _RELEASE)
    jar = classes.with_suffix(".jar")
    with FileLock(classes.with_suffix(".lock")):
        if not jar.exists():
            part = classes.with_suffix(".part")
            with zipfile.ZipFile(part, "w") as archive:
                for each in sorted(classes.rglob("*.class")):
                    archive.write(each, each.relative_to(classes))
            part.rename(jar)
    return jar


def _built_by_maven() -> Path | None:
    jars = [
        jar for jar in (RECEIVER / "target").glob("*.jar") if not jar.stem.endswith(("-javadoc", "-sources", "-tests"))
    ]
    return max(jars, key=lambda jar: jar.stat().st_mtime, default=None)
