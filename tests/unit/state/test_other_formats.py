"""What has another format than this build writes is refused in one line, and nothing of the lake is changed."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from deltalake import DeltaTable

from kafka_telemetry_lake.jobs.cli import run_command
from kafka_telemetry_lake.pipelines.events.feed import EventFeed
from kafka_telemetry_lake.pipelines.findings.evaluation.evaluator import Evaluator
from kafka_telemetry_lake.pipelines.forget.erasure import Erasure
from kafka_telemetry_lake.pipelines.ingest.checkpoint import check_checkpoints
from kafka_telemetry_lake.pipelines.ingest.streams import JobLake
from kafka_telemetry_lake.pipelines.lake.notes import CHECKSUM, sealed
from kafka_telemetry_lake.pipelines.lifecycle.follower import Lifecycle
from kafka_telemetry_lake.pipelines.notify.file import Match
from kafka_telemetry_lake.pipelines.notify.messages import Messages
from kafka_telemetry_lake.pipelines.query.lake_query import run_query
from kafka_telemetry_lake.pipelines.query.query_errors import QueryError
from kafka_telemetry_lake.pipelines.state import chain as state_chain
from kafka_telemetry_lake.pipelines.state.manifest import StateFolder
from kafka_telemetry_lake.pipelines.state.snapshots import Snapshots
from kafka_telemetry_lake.pipelines.tables.operator import CLIENT_EVENTS, METRIC_POINTS, PUSHES, TABLES
from kafka_telemetry_lake.pipelines.tables.table import FORMAT, FORMAT_PROPERTY
from kafka_telemetry_lake.udfs.errors import OtherFormatError
from tests.support.ledger import Fleet
from tests.support.local_stream import LocalStream
from tests.unit.export.made_lake import counting

pytestmark = pytest.mark.lake

NOTHING: Callable[[Any], None] = lambda _: None  # noqa: E731  # sends no event


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with a file of each kind."""
    folder = tmp_path_factory.mktemp("formats")
    stream = LocalStream(folder)
    lake, checkpoints = str(stream.lake), str(stream.checkpoints)
    stream.batch(Fleet(clients=2).round())
    stream.snapshot()
    check_checkpoints(lake, checkpoints)
    Lifecycle(lake).catch_up()
    Evaluator(lake)._write_note(Evaluator(lake)._note)
    EventFeed(lake, NOTHING)
    counting(lake).close()
    outbox(lake).take()
    return folder


def outbox(lake: str) -> Messages:
    return Messages(lake, "one", Match())


@pytest.fixture
def stream(made: Path, tmp_path: Path) -> LocalStream:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    state_chain._cached.clear()
    stream = LocalStream(tmp_path)
    stream.batch_id = 1
    return stream


def files(stream: LocalStream) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in stream.lake.rglob("*") if path.is_file()}


class Kind(NamedTuple):
    """A file of a lake, what reads it, and what the line says to do."""

    file: str
    read: Callable[[LocalStream], Any]
    advice: str


NEW_CHECKPOINTS = (
    "name a new folder with --checkpoints (the source is read from its beginning, nothing is stored twice)"
)
KINDS = {
    "checkpoint": Kind(
        "_checkpoints/lake.json", lambda it: check_checkpoints(str(it.lake), str(it.checkpoints)), NEW_CHECKPOINTS
    ),
    "manifest": Kind(
        "_checkpoints/points-state/manifest-*.json",
        lambda it: StateFolder(str(it.checkpoints / "points-state"), None, 1), NEW_CHECKPOINTS,
    ),
    "snapshot": Kind(
        "_checkpoints/points-snapshots/*/snapshot.json", lambda it: Snapshots(str(it.checkpoints)).all(),
        "delete its folder (a replay then starts from an older snapshot or from the first push)",
    ),
    "lifecycle": Kind(
        "client_changes/_lifecycle-e*.json", lambda it: Lifecycle(str(it.lake)),
        "delete the folder of table client_changes to process all pushes of the lake again",
    ),
    "findings": Kind(
        "finding_changes/_findings-e*.json", lambda it: Evaluator(str(it.lake)),
        "delete the folder of table finding_changes",
    ),
    "event feed": Kind(
        "client_events/_event_feed-e*.json", lambda it: EventFeed(str(it.lake), NOTHING),
        "delete it, and the feed begins with the next event",
    ),
    "outbox": Kind(
        "finding_changes/_notify/one-e*.json", lambda it: outbox(str(it.lake)),
        "delete it, and the sink is sent all open findings again",
    ),
    "exporter": Kind(
        "metric_points/_export-prometheus-e*.json",
        lambda it: counting(str(it.lake)),
        "delete it, and counters begin at the table's totals again",
    ),
}  # fmt: skip


@pytest.mark.parametrize("number", [2, None])
@pytest.mark.parametrize("kind", KINDS)
def test_a_note_of_another_format_is_refused(stream: LocalStream, kind: str, number: int | None) -> None:
    pattern, read, advice = KINDS[kind]
    (path,) = stream.lake.glob(pattern)
    read(stream)
    content = json.loads(path.read_text())
    plain = {name: value for name, value in content.items() if name not in ("format", CHECKSUM)}
    if number is not None:
        plain["format"] = number
    path.write_text(json.dumps(sealed(plain) if CHECKSUM in content and number is not None else plain))
    before = files(stream)
    with pytest.raises(OtherFormatError) as refused:
        read(stream)
    line = str(refused.value)
    stored = "format 2" if number else "no format number"
    assert f" has {stored}, and this build reads format 1 only: " in line
    assert advice in line
    assert "use the build that wrote it" in line
    assert "\n" not in line
    assert files(stream) == before


def test_a_state_file_of_another_format_is_refused(stream: LocalStream) -> None:
    for path in stream.checkpoints.glob("points-state/*.state"):
        data = path.read_bytes()
        path.unlink()  # mapped pages of this process stay as they are
        path.write_bytes(bytes([2]) + data[1:])
    stream.land(Fleet(clients=2).round())
    before = files(stream)
    with pytest.raises(
        OtherFormatError, match=r"^state file \S+\.state has format 2, .* only: .*--rebuild-state`, .*$"
    ):
        stream.judge(stream.paths())
    assert files(stream) == before


def test_an_erasure_of_another_format_is_refused(stream: LocalStream) -> None:
    note = stream.lake / "_forget" / "0a1b2c3d.json"
    note.parent.mkdir()
    note.write_text(json.dumps({"format": 2}))
    with pytest.raises(OtherFormatError, match=r"0a1b2c3d\.json has format 2, .*: finish the erasure with the build"):
        Erasure(str(stream.lake)).under_way()


@pytest.mark.parametrize("number", [FORMAT - 1, FORMAT + 1])
def test_a_table_of_another_format_is_refused_by_job_and_readers(stream: LocalStream, number: int) -> None:
    """In format 1, `series_id` was a hash of the client, too."""
    points = DeltaTable(METRIC_POINTS.uri(str(stream.lake)))
    assert (points.metadata().configuration[FORMAT_PROPERTY], FORMAT) == ("2", 2)
    points.alter.set_table_properties({FORMAT_PROPERTY: str(number)}, raise_if_not_exists=False)
    shutil.rmtree(stream.lake / CLIENT_EVENTS.name)
    before = files(stream)
    line = (
        rf"^table metric_points at \S*{re.escape(str(stream.lake))}/metric_points/? has format {number}, and this "
        r"build reads format 2 only: start a new lake \(`telemetry-lake ingest` reads the landing topic again\), or "
        "use the build that wrote it$"
    )
    with pytest.raises(OtherFormatError, match=line):
        JobLake(str(stream.lake), str(stream.checkpoints)).create_tables()
    with pytest.raises(QueryError, match=line):
        run_query(str(stream.lake), "FROM fleet_quantiles_1h JOIN metric_points")
    run_query(str(stream.lake), "FROM pushes")
    assert files(stream) == before, "not even a table that is missing was created"


def test_another_programs_table_that_lacks_a_column_is_refused(tmp_path: Path) -> None:
    lake, missing = str(tmp_path), "received_at"
    schema = PUSHES.stored.remove(PUSHES.stored.get_field_index(missing))
    DeltaTable.create(PUSHES.uri(lake), schema, partition_by=["landed_date"])
    for read in (lambda: PUSHES.create(lake), lambda: run_query(lake, "FROM pushes")):
        with pytest.raises(
            (OtherFormatError, QueryError), match=r"pushes at .* lacks column received_at, which this build"
        ):
            read()
    assert TABLES[0] is PUSHES


def test_a_command_ends_with_the_line(stream: LocalStream, capsys: pytest.CaptureFixture[str]) -> None:
    note = stream.checkpoints / "lake.json"
    note.write_text(json.dumps(json.loads(note.read_text()) | {"format": 7}))
    assert run_command("reshard", ["--lake", str(stream.lake), "--shards", "3"]) == 2
    assert capsys.readouterr().err == (
        f"telemetry-lake: the checkpoint below {stream.checkpoints} has format 7, and this build reads format 1 only: "
        f"{NEW_CHECKPOINTS}, or use the build that wrote it\n"
    )
