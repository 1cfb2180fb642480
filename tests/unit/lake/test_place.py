"""Where a lake may be: what was tested is let through, all else is one line before anything is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_telemetry_lake.jobs import cli
from kafka_telemetry_lake.jobs.cli import COMMANDS, settings_of
from kafka_telemetry_lake.jobs.settings.base import PLACES_BESIDE
from kafka_telemetry_lake.pipelines.lake import place as module
from kafka_telemetry_lake.pipelines.lake.place import PLACES, PlaceError, check_place, check_uri

REFUSED = [
    # another store, with or without what its libraries would want
    ("gs://bucket/x", "gs://bucket/x: gs:// is not supported; allowed: a folder, or a URI that begins with file:///, "),
    ("abfss://c@account.dfs.core.windows.net/x", "docs/storage.md says what is missing for Azure's and"),
    ("hdfs://name/x", "hdfs:// is not supported; allowed: a folder, or a URI that begins with file:///, s3:// or s3a://;"),
    ("s3n://bucket/x", "s3n:// is not supported"),
    ("memory://x", "memory:// is not supported"),
    ("jdbc+x://host/x", "jdbc+x:// is not supported"),
    # half a URI
    ("dbfs:/x", "dbfs:/x is neither a folder nor a URI"),
    ("s3:bucket", "neither a folder nor a URI"),
    ("S3A:bucket", "neither a folder nor a URI"),
    ("file:/tmp/x", "neither a folder nor a URI"),
    ("unknown:/x", "neither a folder nor a URI"),
    # letters
    ("S3A://bucket/x", "S3A:// is not supported; allowed: a folder, or a URI that begins with file:///, s3:// or s"),
    ("FILE:///tmp/x", "write it in small letters"),
    ("GS://bucket/x", "GS:// is not supported"),
    # parts of a URI
    ("s3://", "it names no bucket"),
    ("s3a:///x", "it names no bucket"),
    ("s3://bucket/x?region=a", "s3://bucket/x: names of tables are added to it, so it can't have a query or fragment"),
    ("s3://bucket/x?a=b&access_key=hunter2&c=d", "query or fragment"),
    ("s3://bucket/x#a", "query or fragment"),
    ("s3://me:hunter2@bucket/x", "s3://...@bucket/x: keys, hosts and ports are no part of it: set AWS_ACCESS_KEY_ID"),
    ("s3://me:hun/ter2@bucket/x", "keys, hosts and ports are no part of it"),
    ("s3://me@bucket/x", "keys, hosts and ports are no part of it"),
    ("s3://bucket:9000/x", "keys, hosts and ports are no part of it"),
    ("gs://me:hunter2@bucket/x", "gs://...@bucket/x: gs:// is not supported"),
    ("file://lake", "after file:// comes an absolute path, so there are three slashes"),
    ("file:///tmp/x?a=b", "it can't have a query or fragment"),
    ("file:///tmp/x#a", "it can't have a query or fragment"),
    # names that Spark, delta-rs and Arrow read differently
    ("s3://bucket//x", "allowed between its slashes: letters, digits, and - _ . ="),
    ("s3://bucket/a/../x", "not . or .. alone"),
    ("s3://bucket/./x", "not . or .. alone"),
    ("s3://bucket/a%20b", "allowed between its slashes"),
    ("s3://bucket/a b", "allowed between its slashes"),
    ("s3://bucket/a*", "allowed between its slashes"),
    ("s3://bucket/é", "allowed between its slashes"),
    ("s3://b*/x", "allowed between its slashes"),
    ("a\nb", "it has a character that can't be seen"),
    ("a\0b", "it has a character that can't be seen"),
    ("", "the name is empty"),
    (" ", "the name is empty"),
]  # fmt: skip


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The stores that are asked."""
    asked: list[str] = []
    monkeypatch.setattr(module, "check_store", asked.append)
    return asked


@pytest.mark.parametrize(("place", "said"), REFUSED)
def test_a_place_that_was_not_tested_is_refused_before_it_is_asked(place: str, said: str, asked: list[str]) -> None:
    with pytest.raises(PlaceError) as error:
        check_uri(place, "checkpoints")
    assert said in str(error.value)
    assert str(error.value).startswith("checkpoints: ")
    assert "hunter2" not in str(error.value)
    assert len(str(error.value)) < 300
    assert asked == []


@pytest.mark.parametrize(
    "place",
    ["s3://bucket", "s3a://bucket/", "s3a://my-bucket.1/a/b_c/d=1/", "s3://bucket/x//"],
)
def test_a_store_is_asked(place: str, asked: list[str]) -> None:
    check_place(place)
    assert asked == [place]


@pytest.mark.parametrize("name", ["x", "a b", "a:b", "(1)", "x#z% 20", "é", "12:30", "s3", "x/"])
def test_a_folder_may_be_called_anything_else(name: str, tmp_path: Path, asked: list[str]) -> None:
    check_place(str(tmp_path / name))
    check_place(name)
    check_place((tmp_path / name).as_uri())
    (tmp_path / "file").touch()
    with pytest.raises(PlaceError, match="file is a file; name a folder"):
        check_place(f"file://{tmp_path}/file")
    assert asked == []


CLOUDS = (
    "gs://bucket/x", "gcs://bucket/x", "az://c/x", "abfs://c@account/x", "abfss://c@account.dfs.core.windows.net/x",
    "wasb://c@account/x", "wasbs://c@account.blob.core.windows.net/x", "adl://account/x",
)  # fmt: skip
LINES = (
    "ingest --source kafka --bootstrap-servers 127.0.0.1:1 --lake {}", "query --lake {} FROM|pushes",
    "sync --lake {} --bootstrap-servers 127.0.0.1:1", "quality --lake {}", "maintain --lake {}",
    "replay --lake {} --from earliest", "what-if quota --lake {} --client-id app --produce 5",
    "what-if subscription --lake {} --name all --interval-ms 60000",
    "compare --lake {} --application a --at 2026-11-30",
    "reshard --lake {} --shards 2", "forget --lake {} --principal User:a", "export --lake {}", "mcp --lake {}",
    "dashboard --lake {}", "findings --lake {}", "notify --lake {} --notify no.yml", "iceberg --lake {}",
    "doctor --lake {}", "doctor --lake {} --bootstrap-servers 127.0.0.1:1",
    "connect --lake {} --bootstrap-servers 127.0.0.1:1", "demo --lake {}", "views --lake {} --database x",
    "ingest --source kafka --bootstrap-servers 127.0.0.1:1 --lake x --checkpoints {}",
    "ingest --source files:. --catalog a --schema b --checkpoints {}",
    "maintain --catalog a --schema b --checkpoints {}", "maintain --lake x --checkpoints {}",
    "replay --lake x --from earliest --checkpoints {}", "reshard --lake x --shards 2 --checkpoints {}",
    "forget --lake x --principal User:a --checkpoints {}", "iceberg --lake x --to {}",
    "ingest --source files:{} --lake x", "ingest --source {} --lake x", "check-landing {}",
    "quality --lake x --docs {}",
    "ingest --source files:. --lake x --health-file {}",
)  # fmt: skip


@pytest.mark.parametrize("line", LINES)
def test_every_command_refuses_a_place_in_a_cloud_in_a_line(
    line: str, asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "no.yml").touch()
    before = sorted(tmp_path.iterdir())
    for started in ("socket.socket.connect", "subprocess.Popen.__init__"):  # a broker, a store, a JVM
        monkeypatch.setattr(started, lambda *_, **__: asked.append("started"))
    for place in CLOUDS:
        assert cli.main([word.replace("|", " ") for word in line.format(place).split()]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert len(err.splitlines()) == 1
        assert place.partition("://")[2] in err
        assert "allowed" in err
    assert asked == []
    assert sorted(tmp_path.iterdir()) == before


def test_no_command_with_a_lake_or_checkpoints_is_left_out() -> None:
    tried = {(line.split()[0], word[2:]) for line in LINES for word in line.split() if word.startswith("--")}
    for command in COMMANDS:
        settings = settings_of(command)
        names = {"lake", *PLACES_BESIDE} & settings.model_fields.keys()
        assert {(command, name) for name in names} <= tried, command


def test_docs_say_which(capsys: pytest.CaptureFixture[str]) -> None:
    text = Path("docs/storage.md").read_text(encoding="utf-8")
    assert all(scheme in text for scheme in ("`abfss://`", "`gs://`"))
    assert PLACES == "a folder, or a URI that begins with file:///, s3:// or s3a://"
