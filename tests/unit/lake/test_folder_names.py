"""Which folders a lake may be in: a name that a library takes for something else is refused before Spark."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from kafka_telemetry_lake.jobs.settings.base import parse
from kafka_telemetry_lake.jobs.settings.maintain import MaintainSettings
from kafka_telemetry_lake.pipelines.ingest.sources import FilesSource, SourceError
from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of, hadoop_path, literal
from kafka_telemetry_lake.pipelines.lake.place import PlaceError, check_place, no_lake
from kafka_telemetry_lake.pipelines.query.lake_query import run_query
from kafka_telemetry_lake.pipelines.tables.operator import RECEIVER_HEALTH
from tests.support.landing_records import record, write

pytestmark = pytest.mark.lake

USABLE = (
    "a b", "it's", 'a "b"', "a#b", "{a,b}", "a%", "a%zz", "a+b", "a:b", "a;b", "a&b", "a=b", "-a", "größe", "$HOME",
    "a`b", "a@b", "<a>", "(a)", "a,b", "a~",
)  # fmt: skip
UNUSABLE = (
    "in-[1]",
    "a?b",
    "a*b",
    "a]",
    "a^b",
    "a|b",
    "a\\b",
    "a%41b",
    "a%2Fb",
    "a\nb",
    "a\tb",
    "a\x7fb",
    os.fsdecode(b"\xff"),
)


@pytest.mark.parametrize("name", USABLE)
def test_a_lake_is_read_in_a_folder_of_this_name(name: str, tmp_path: Path) -> None:
    (tmp_path / "aXb").mkdir()  # a pattern would match it, too
    for folder in (tmp_path / name, tmp_path / "aXb"):
        rows = pa.Table.from_pylist([{"received": 1, "partition": 0}], RECEIVER_HEALTH.stored)
        write_deltalake(RECEIVER_HEALTH.uri(str(folder)), rows)
    for lake in (str(tmp_path / name), f"{tmp_path / name}/", (tmp_path / name).as_uri()):
        check_place(lake)
        assert run_query(lake, "SELECT received FROM receiver_health").read_all().to_pylist() == [{"received": 1}]
        filesystem, path = filesystem_of(lake)
        assert filesystem.get_file_info(f"{path.rstrip('/')}/{RECEIVER_HEALTH.name}").is_file is False


@pytest.mark.parametrize("name", UNUSABLE)
def test_a_folder_that_delta_rs_would_take_for_another_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to(tmp_path / name, target_is_directory=True)
    below = str(tmp_path / name / "lake")
    for lake in (str(tmp_path / name), below, str(tmp_path / "link"), (tmp_path / name).as_uri()):
        with pytest.raises(
            PlaceError, match=r"(?s)^lake: .*(: name one without \[ \] \^ \| \\ \* \? and |can't be seen)"
        ):
            check_place(lake)
    monkeypatch.chdir(tmp_path / name)
    with pytest.raises(PlaceError, match=r"^lake: lake: its whole path "):
        check_place("lake")


def test_what_is_refused_is_what_delta_rs_cannot_do(tmp_path: Path) -> None:
    """A name that it learns to take is to be allowed."""
    (tmp_path / "a%41b").mkdir()
    with pytest.raises(Exception, match="not found"):
        write_deltalake(str(tmp_path / "a%41b"), pa.table({"a": [1]}))
    assert not DeltaTable.is_deltatable(str(tmp_path / "in-[1]"))


def test_a_command_that_is_printed_can_be_typed() -> None:
    assert no_lake("a b's").endswith("""create one with `telemetry-lake ingest --lake 'a b'"'"'s'`""")


@pytest.mark.parametrize(
    ("path", "given"), [("/in-[1]/{a,b}*?", r"/in-\[1\]/\{a,b\}\*\?"), ("a\\b", r"a\\b"), ("ü %#", "ü %#")]
)
def test_a_path_is_no_pattern_for_spark(path: str, given: str) -> None:
    assert literal(path) == given


def test_a_file_that_spark_cannot_open_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "in-[1]"
    write(folder, "a [1]{*}.parquet", [record(0, b"")])
    FilesSource(str(folder), "files").check()
    write(folder, "12:00.parquet", [record(1, b"")])
    with pytest.raises(SourceError, match=r"in-\[1\]/12:00.parquet: Spark can't read files with a colon"):
        FilesSource(str(folder), "files").check()


def test_a_folder_that_spark_can_name_in_no_way_is_refused(tmp_path: Path) -> None:
    for name in ("in:1", "in-[1]"):
        write(tmp_path / name, "a.parquet", [record(0, b"")])
        FilesSource(str(tmp_path / name), "files").check()
    (tmp_path / "in:[1]").mkdir()
    with pytest.raises(SourceError, match=r"in:\[1\] has a colon and one of"):
        FilesSource(str(tmp_path / "in:[1]"), "files").check()


def test_spark_gets_a_folder_with_a_colon_or_of_a_uri_as_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "a b#é"
    flags = ["--lake", folder.as_uri(), "--checkpoints", "run:1"]
    settings = parse(MaintainSettings, flags, "telemetry-lake maintain")
    assert (settings.lake, settings.checkpoints) == (str(folder), str(tmp_path / "run:1"))
    settings = parse(MaintainSettings, ["--lake", "s3a", "--checkpoints", "s/t"], "telemetry-lake maintain")
    assert (settings.lake, settings.checkpoints) == ("s3a", "s/t")


def test_a_tilde_is_replaced_nowhere() -> None:
    with pytest.raises(PlaceError, match=r"^checkpoints: ~/x: ~ is for the shell to replace, and it didn't"):
        parse(MaintainSettings, ["--lake", "x", "--checkpoints=~/x"], "telemetry-lake maintain")


def test_spark_is_given_a_path_without_escapes() -> None:
    for path in ("/a b#%41é{x}", "file:///a%20b%23%2541%C3%A9%7Bx%7D"):
        assert hadoop_path(path) == "file:///a b#%41é{x}"
    assert hadoop_path("s3a://bucket/x") == "s3a://bucket/x"
