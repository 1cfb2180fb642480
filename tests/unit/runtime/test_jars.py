"""Jars are the ones whose checksums are committed, or they are not installed."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import cast

import pytest

from kafka_telemetry_lake.pipelines.runtime import jars as module
from kafka_telemetry_lake.pipelines.runtime.jars import (
    BUNDLES,
    CHECKSUMS,
    DEFAULT_LINE,
    DELTA,
    SPARK_LINES,
    JarsUnavailableError,
    bundle_of_installed_spark,
    checksums,
    installed_spark,
    jars,
    main,
)

BUNDLE = "kafka-logging"
RELOAD4J, BINDING = (
    "ch/qos/reload4j/reload4j/1.2.25/reload4j-1.2.25.jar",
    "org/slf4j/x/1.7.36/slf4j-reload4j-1.7.36.jar",
)
FILES = {RELOAD4J: b"logs", BINDING: b"binds"}
NAMES = {path.rsplit("/", 1)[1]: content for path, content in FILES.items()}


class Repository(ThreadingHTTPServer):
    """A Maven repository: what it has, what was asked for, and how many requests it refuses first."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.files, self.asked, self.refuses = dict(FILES), list[str](), 0
        self.users = set[str | None]()
        self.url = f"http://127.0.0.1:{self.server_port}/maven2"


class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        repository = cast(Repository, self.server)
        path = self.path.removeprefix("/maven2/")
        repository.asked.append(path)
        repository.users.add(self.headers.get("Authorization"))
        repository.refuses -= 1
        content = repository.files.get(path, b"")
        self.send_response(503 if repository.refuses >= 0 else 200 if path in repository.files else 404)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Nothing on stderr."""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Repository]:
    """A repository with ``FILES``; the committed checksums are theirs."""
    lines = [f"{hashlib.sha256(content).hexdigest()}  {BUNDLE}/{path}\n" for path, content in FILES.items()]
    lock = tmp_path / "jars.sha256"
    lock.write_text("".join(lines), encoding="utf-8")
    monkeypatch.setattr(module, "CHECKSUMS", lock)
    monkeypatch.setenv("TELEMETRY_LAKE_JARS", str(tmp_path / "home"))
    with Repository() as server:
        monkeypatch.setenv("TELEMETRY_LAKE_MAVEN", server.url + "/")
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_every_bundle_has_checksums_of_its_own_files() -> None:
    text = CHECKSUMS.read_text(encoding="utf-8")
    for name, bundle in BUNDLES.items():
        files = checksums(text, name)
        end = f"-{bundle.classifier}" if bundle.classifier else ""
        direct = {
            f"{group.replace('.', '/')}/{artifact}/{version}/{artifact}-{version}{end}.{bundle.kind}"
            for group, artifact, version in map(_parts, bundle.coordinates)
        }
        assert direct <= files.keys()
        assert bundle.transitive or direct == files.keys()
        assert all(len(bytes.fromhex(checksum)) == 32 for checksum in files.values())
        assert len({path.rsplit("/", 1)[1] for path in files}) == len(files)  # a folder has them side by side


def import_spark(version: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = folder / "pyspark"
    package.mkdir(exist_ok=True)
    (package / "version.py").write_text(f"# a comment\n__version__: str = '{version}'\n", encoding="utf-8")
    monkeypatch.setattr(module, "spark_package", lambda: package)


@pytest.mark.parametrize("line", SPARK_LINES)
def test_the_spark_that_is_imported_chooses_its_jars(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import_spark(f"{line}.9", tmp_path, monkeypatch)
    name, s3 = map(bundle_of_installed_spark, ("spark", "spark-s3"))
    assert (name == "spark") == (line == DEFAULT_LINE)
    assert s3 == f"{name}-s3"
    assert f"io.delta:delta-spark_{line}_2.13:{DELTA}" in BUNDLES[name].coordinates
    assert f"org.apache.hadoop:hadoop-aws:{SPARK_LINES[line].hadoop}" in BUNDLES[s3].coordinates
    assert bundle_of_installed_spark("maven") == "maven"


def test_a_spark_without_jars_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import_spark("4.3.0", tmp_path, monkeypatch)
    monkeypatch.setattr(module, "version", lambda _: "4.3.0")
    assert main(["spark"]) == 1
    line = "pyspark 4.3.0 is installed, but there are jars for Spark 4.0, 4.1, 4.2 only: pip install 'pyspark==4.0.5'\n"
    assert capsys.readouterr().err == line
    import_spark("3.5.1", tmp_path, monkeypatch)  # as `/opt/spark/python` on PYTHONPATH
    assert main(["spark"]) == 1
    assert capsys.readouterr().err.startswith(f"pyspark 3.5.1 is imported from {tmp_path / 'pyspark'}, but there are ")


def test_jars_may_be_fetched_for_another_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "spark_package", lambda: None)
    assert bundle_of_installed_spark("spark-s3") == "spark-s3"


def test_what_goes_with_a_spark_is_what_its_package_brings_and_the_lock_has_the_default_line() -> None:
    installed = find_spec("pyspark")
    assert installed is not None
    assert installed.origin is not None
    of = SPARK_LINES[".".join(version("pyspark").split(".")[:2])]
    assert version("pyspark") == of.pyspark
    assert installed_spark() == of.pyspark
    assert (Path(installed.origin).parent / "jars" / f"hadoop-client-api-{of.hadoop}.jar").is_file()
    lock = (Path(__file__).parents[3] / "requirements.lock").read_text(encoding="utf-8")
    assert f"\npyspark=={SPARK_LINES[DEFAULT_LINE].pyspark} " in lock


def _parts(coordinate: str) -> tuple[str, str, str]:
    group, artifact, version = coordinate.split(":")
    return group, artifact, version


def test_files_with_the_committed_checksums_are_installed(repository: Repository) -> None:
    assert {jar.name: jar.read_bytes() for jar in jars(BUNDLE)} == NAMES
    assert [jar.name for jar in jars(BUNDLE)] == list(NAMES)
    assert sorted(repository.asked) == sorted(FILES)  # once each
    assert [file.name for file in module.jars_home().iterdir()] == [BUNDLE]  # and nothing else stays


def test_a_repository_that_is_busy_is_asked_again(repository: Repository) -> None:
    repository.refuses = 2
    assert {jar.name: jar.read_bytes() for jar in jars(BUNDLE)} == NAMES
    assert len(repository.asked) == 4


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"evil", "reload4j-1.2.25.jar is not the expected file: its SHA-256 is "),
        (None, "could not fetch kafka-logging/reload4j-1.2.25.jar from http://127.0.0.1:"),
    ],
)
def test_another_file_or_none_is_one_line_that_names_it_and_it_is_not_installed(
    repository: Repository, content: bytes | None, error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    del repository.files[RELOAD4J]
    repository.files |= {RELOAD4J: content} if content else {}
    assert main([BUNDLE]) == 1
    line = capsys.readouterr().err
    assert error in line
    assert line.count("\n") == 1
    assert not (module.jars_home() / BUNDLE / "reload4j-1.2.25.jar").exists()
    with pytest.raises(JarsUnavailableError):
        jars(BUNDLE)


def test_a_mirror_s_password_is_in_no_message(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    del repository.files[RELOAD4J]
    for url in (repository.url, "http://127.0.0.1:1"):
        monkeypatch.setenv("TELEMETRY_LAKE_MAVEN", url.replace("//", "//me:secret@"))
        monkeypatch.setattr(module, "TRIES", 0)
        with pytest.raises(JarsUnavailableError, match="could not fetch") as raised:
            jars(BUNDLE)
        assert "secret" not in str(raised.value)


def test_another_version_replaces_what_was_installed_and_the_rest_is_not_fetched_again(repository: Repository) -> None:
    jars(BUNDLE)
    for files in (repository.files, repository.asked):
        files.clear()
    repository.files[RELOAD4J.replace("1.2.25", "1.2.26")] = b"logs"
    lock = module.CHECKSUMS
    lock.write_text(lock.read_text(encoding="utf-8").replace("1.2.25", "1.2.26"), encoding="utf-8")
    assert [jar.name for jar in jars(BUNDLE)] == ["reload4j-1.2.26.jar", "slf4j-reload4j-1.7.36.jar"]
    assert repository.asked == [RELOAD4J.replace("1.2.25", "1.2.26")]


def test_a_file_that_was_changed_is_fetched_again(repository: Repository) -> None:
    (binding,) = (jar for jar in jars(BUNDLE) if jar.name.startswith("slf4j"))
    binding.write_bytes(b"cut o")
    (binding.parent / ".complete").unlink()
    assert {jar.name: jar.read_bytes() for jar in jars(BUNDLE)} == NAMES
    assert repository.asked[2:] == [BINDING]


def test_the_user_of_a_mirror_is_the_one_in_its_url(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login another password secret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("TELEMETRY_LAKE_MAVEN", repository.url.replace("//", "//me:mine@"))
    assert {path.name for path in jars(BUNDLE)} == NAMES.keys()
    assert repository.users == {f"Basic {base64.b64encode(b'me:mine').decode()}"}
