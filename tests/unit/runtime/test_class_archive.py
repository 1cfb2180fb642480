"""The second job without an archive of its classes leaves one, and local sessions use it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_telemetry_lake.pipelines.runtime import class_archive
from kafka_telemetry_lake.pipelines.runtime.class_archive import QUIET, archive_options

CLASS_PATH = "/jars/a.jar:/jars/b.jar"


@pytest.fixture(autouse=True)
def java_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Java that brings an archive of its own, and an empty folder of jars."""
    home = tmp_path / "java"
    for file in (home / "bin" / "java", home / "lib" / "server" / "classes.jsa", home / "release"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(0o755)
    (tmp_path / "jars").mkdir()
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("TELEMETRY_LAKE_JARS", str(tmp_path / "jars"))
    return home


def test_only_a_job_writes_an_archive_and_not_the_first_one() -> None:
    archive = class_archive.class_archive(CLASS_PATH)
    assert archive_options(CLASS_PATH, write=False) == archive_options(CLASS_PATH, write=False) == ()
    assert archive_options(CLASS_PATH, write=True) == ()
    assert archive_options(CLASS_PATH, write=True) == (f"-XX:ArchiveClassesAtExit={archive}", *QUIET)
    assert archive_options(f"{CLASS_PATH}:/jars/c.jar", write=True) == ()


def test_an_archive_is_used_when_its_header_is_there_which_is_written_last() -> None:
    archive = class_archive.class_archive(CLASS_PATH)
    archive.write_bytes(bytes(4096))
    assert archive_options(CLASS_PATH, write=False) == ()
    archive.write_bytes(b"\xf0\x0b\xab\xa2" + bytes(4092))
    assert archive_options(CLASS_PATH, write=True) == (f"-XX:SharedArchiveFile={archive}", *QUIET)


def test_each_class_path_and_each_java_has_its_own(java_home: Path) -> None:
    archives = {class_archive.class_archive(CLASS_PATH), class_archive.class_archive(f"{CLASS_PATH}:/jars/c.jar")}
    (java_home / "release").write_text('JAVA_VERSION="21.0.9"\n')
    assert len(archives | {class_archive.class_archive(CLASS_PATH)}) == 3


def test_a_java_without_an_archive_of_its_own_is_asked_for_none(java_home: Path) -> None:
    (java_home / "lib" / "server" / "classes.jsa").unlink()
    assert [archive_options(CLASS_PATH, write=True) for _ in range(2)] == [(), ()]
