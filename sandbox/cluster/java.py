"""Java commands for the local cluster: class paths of downloaded jars, small heaps, cached compilation."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from filelock import FileLock

from kafka_telemetry_lake.pipelines.runtime.jars import jars, jars_home
from kafka_telemetry_lake.pipelines.runtime.java import LOWEST_JAVA, java_program
from kafka_telemetry_lake.udfs.errors import CannotRunError

_LOG_CONFIGURATION = Path(__file__).with_name("log4j.properties")


class CompileError(CannotRunError):
    """The compiler rejected a source file; the message is its own."""


def kafka_class_path(version: str, *extra: Path | str) -> str:
    """The class path of a Kafka version, ``extra`` first. Raises ``JarsUnavailableError``."""
    kafka = jars(f"kafka-{version}")
    parts = [*extra, kafka[0].parent / "*"]
    if not any(jar.name.startswith("slf4j-reload4j") for jar in kafka):
        parts += jars("kafka-logging")
    return os.pathsep.join(map(str, parts))


def java_command(
    class_path: str,
    main: str,
    *arguments: str | Path,
    log: Path,
    level: str = "INFO",
    heap_mb: int = 256,
    options: Sequence[str] = (),
) -> list[str]:
    """A JVM command that starts fast on a small machine, logs to ``log`` and writes nothing outside its folder."""
    return [
        java_program(), f"-Xmx{heap_mb}m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData",
        f"-Djava.io.tmpdir={log.parent}", f"-XX:ErrorFile={log.parent}/hs_err_%p.log",
        f"-Dlog4j.configuration={_LOG_CONFIGURATION.as_uri()}", f"-Dlog.file={log}", f"-Dlog.level={level}",
        "-Dlog4j2.statusLoggerLevel=OFF",  # Kafka 4 also initialises log4j 2, which has no configuration here
        *options, "-cp", class_path, main, *map(str, arguments),
    ]  # fmt: skip


def compile_java(sources: Sequence[Path], class_path: str, release: int = LOWEST_JAVA) -> Path:
    """The folder with the compiled classes, cached by the sources' content, the class path and the release.

    Args:
        release: of Java, whose class files these are to be. Their calls aren't checked against its library.
    """
    content = b"".join(source.read_bytes() for source in sources) + f"{class_path} {release}".encode()
    classes = jars_home() / "classes" / f"{sources[0].stem}-{hashlib.sha256(content).hexdigest()[:16]}"
    classes.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(classes.with_suffix(".lock")):
        if not classes.exists():
            with tempfile.TemporaryDirectory(dir=classes.parent) as scratch:
                command = [
                    java_program(), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-jar", str(jars("ecj")[0]),
                    f"-{release}", "-nowarn", "-proc:none", "-cp", _without_wildcards(class_path),
                    "-d", f"{scratch}/classes", *map(str, sources),
                ]  # fmt: skip
                try:
                    subprocess.run(command, check=True, capture_output=True, text=True)
                except subprocess.CalledProcessError as error:
                    raise CompileError(f"{sources[0].name}:\n{error.stdout}{error.stderr}") from None
                Path(scratch, "classes").rename(classes)
    return classes


def _without_wildcards(class_path: str) -> str:
    """A class path with the jars of its folders, which this compiler doesn't look for as Java does."""
    parts = [Path(part) for part in class_path.split(os.pathsep)]
    return os.pathsep.join(
        str(each) for part in parts for each in (sorted(part.parent.glob("*.jar")) if part.name == "*" else (part,))
    )
