"""HotSpot's archive of the classes that the job loads (class data sharing, JEP 350).

With it a local session takes 7 CPU-s less to start, write and read a table, but writing it takes 11. So the first job
that finds none leaves a note, and the next one the archive: its JVM writes it when it ends, after the command. Brief
jobs (`session`) do neither. The next sessions with the same class path and the same Java use it. HotSpot itself ignores
an archive of other jars or of another Java.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pyspark

from kafka_telemetry_lake.pipelines.runtime.jars import jars_home
from kafka_telemetry_lake.pipelines.runtime.java import java_home

# HotSpot would print that it can't use the archive.
QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
MAGIC_BYTES = 4


def class_archive(class_path: str) -> Path:
    """The file for sessions with this class path, with the Java and the Spark that are found now."""
    java = java_home()
    release = java / "release"
    parts = (class_path, pyspark.__file__, str(java), release.read_text() if release.is_file() else "")
    return jars_home() / f"classes-{hashlib.sha256(chr(10).join(parts).encode()).hexdigest()[:16]}.jsa"


def note_of(archive: Path) -> Path:
    """The file that says that a job has missed the archive: another one may come."""
    return archive.with_suffix(".missed")


def archive_options(class_path: str, *, write: bool) -> tuple[str, ...]:
    """Options of the JVM of a local session.

    Args:
        write: have the JVM write the archive when it ends, if there is none yet and a job has missed it before.
    """
    archive = class_archive(class_path)
    if _is_whole(archive):
        return (f"-XX:SharedArchiveFile={archive}", *QUIET)
    # An archive adds to the one that Java brings; some builds of Java bring none.
    if write and (java_home() / "lib" / "server" / "classes.jsa").exists() and os.access(archive.parent, os.W_OK):
        if note_of(archive).exists():
            return (f"-XX:ArchiveClassesAtExit={archive}", *QUIET)
        note_of(archive).touch()
    return ()


def _is_whole(archive: Path) -> bool:
    """Whether a JVM has ended writing: the header, which begins with a number, comes last."""
    try:
        with archive.open("rb") as content:
            return any(content.read(MAGIC_BYTES))
    except OSError:
        return False
