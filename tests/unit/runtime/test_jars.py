"""Jars are the ones whose checksums are committed, or they are not installed."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from kafka_telemetry_lake.pipelines.runtime import jars as module
from kafka_telemetry_lake.pipelines.runtime.jars import BUNDLES, CHECKSUMS, JarsUnavailableError, checksums, jars, main

BUNDLE = "kafka-logging"
FILES = {"reload4j-1.2.25.jar": b"logs", "slf4j-reload4j-1.7.36.jar": b"binds"}


@pytest.fixture
def fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """What a fetch puts into its folder; the committed checksums are those of ``FILES``."""
    files = dict(FILES)
    lines = [f"{hashlib.sha256(content).hexdigest()}  {BUNDLE}/{name}\n" for name, content in FILES.items()]
    lock = tmp_path / "jars.sha256"
    lock.write_text("".join(lines), encoding="utf-8")
    monkeypatch.setattr(module, "CHECKSUMS", lock)
    monkeypatch.setenv("TELEMETRY_LAKE_JARS", str(tmp_path / "home"))

    def retrieve(_bundle: object, folder: Path) -> None:
        for name, content in files.items():
            (folder / name).write_bytes(content)

    monkeypatch.setattr(module, "_retrieve", retrieve)
    return files


def test_every_bundle_has_checksums_of_its_own_files() -> None:
    text = CHECKSUMS.read_text(encoding="utf-8")
    for name, bundle in BUNDLES.items():
        files = checksums(text, name)
        direct = {f"{artifact}-{version}.{bundle.kind}" for _, artifact, version in map(_parts, bundle.coordinates)}
        assert direct <= files.keys()
        assert bundle.transitive or direct == files.keys()
        assert all(len(bytes.fromhex(checksum)) == 32 for checksum in files.values())


def _parts(coordinate: str) -> tuple[str, str, str]:
    group, artifact, version = coordinate.split(":")
    return group, artifact, version


def test_files_with_the_committed_checksums_are_installed(fetched: dict[str, bytes]) -> None:
    assert {jar.name: jar.read_bytes() for jar in jars(BUNDLE)} == FILES
    fetched.clear()
    assert [jar.name for jar in jars(BUNDLE)] == list(FILES)  # not fetched again


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        ("reload4j-1.2.25.jar", b"evil", "reload4j-1.2.25.jar is not the expected file: its SHA-256 is "),
        ("extra-1.jar", b"more", "extra-1.jar was fetched, but jars.sha256 has no checksum for it"),
    ],
)
def test_any_other_file_is_one_line_that_names_it_and_nothing_is_installed(
    fetched: dict[str, bytes], name: str, content: bytes, error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fetched[name] = content
    assert main([BUNDLE]) == 1
    line = capsys.readouterr().err
    assert line.startswith(f"{BUNDLE}/{error}")
    assert line.count("\n") == 1
    assert not list((module.jars_home() / BUNDLE).glob("*.jar"))
    with pytest.raises(JarsUnavailableError):
        jars(BUNDLE)


def test_a_missing_file_is_named(fetched: dict[str, bytes]) -> None:
    del fetched["reload4j-1.2.25.jar"]
    with pytest.raises(JarsUnavailableError, match=r"^kafka-logging/reload4j-1\.2\.25\.jar is in jars\.sha256, but"):
        jars(BUNDLE)


def test_another_version_replaces_what_was_installed(fetched: dict[str, bytes]) -> None:
    jars(BUNDLE)
    fetched["reload4j-1.2.26.jar"] = fetched.pop("reload4j-1.2.25.jar")
    lock = module.CHECKSUMS
    lock.write_text(lock.read_text(encoding="utf-8").replace("1.2.25", "1.2.26"), encoding="utf-8")
    assert [jar.name for jar in jars(BUNDLE)] == ["reload4j-1.2.26.jar", "slf4j-reload4j-1.7.36.jar"]


def test_lock_writes_the_checksums_of_what_is_fetched(
    fetched: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BUNDLES", {BUNDLE: BUNDLES[BUNDLE]})
    fetched["reload4j-1.2.25.jar"] = b"rebuilt"
    assert main(["--lock"]) == 0
    assert {jar.name: jar.read_bytes() for jar in jars(BUNDLE)} == {**FILES, "reload4j-1.2.25.jar": b"rebuilt"}
