"""A lake that is damaged: each command says in one line what is, and what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable

from kafka_telemetry_lake.jobs import cli
from kafka_telemetry_lake.pipelines.lake.damage import damage_of
from tests.support.expired_logs import expire_log
from tests.support.ledger_check import check
from tests.support.local_stream import stream_of

pytestmark = pytest.mark.lake

COMMANDS = (["query", "SELECT min(landed_at) FROM push_outcomes"], ["quality"], ["maintain"])


def hole(table: Path) -> None:
    (table / "_delta_log" / f"{2:020d}.json").unlink()


def truncated_checkpoint(table: Path) -> None:
    DeltaTable(str(table)).create_checkpoint()
    for path in (table / "_delta_log").glob("*.checkpoint.parquet"):
        path.write_bytes(path.read_bytes()[:200])


def truncated_checkpoint_alone(table: Path) -> None:
    expire_log(table)
    truncated_checkpoint(table)


def vanished_file(table: Path) -> None:
    next(iter(table.glob("landed_date=*/*.parquet"))).unlink()


@pytest.mark.parametrize(
    ("damage", "line"),
    [
        (hole, "version 2 of its log is missing, and later ones are there: restore the lake and its checkpoints"),
        (truncated_checkpoint, "is damaged: delete it and _last_checkpoint, since the log has every commit"),
        (truncated_checkpoint_alone, "is damaged: restore the lake and its checkpoints from one backup"),
        (vanished_file, "which its log names, is gone: restore this file, or run `telemetry-lake replay`"),
    ],
)
def test_each_command_says_what_is_damaged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: Callable[[Path], None], line: str
) -> None:
    stream, _ = stream_of(tmp_path, clients=2, batches=3)
    damage(stream.lake / "push_outcomes")
    for argv in COMMANDS:
        assert cli.main([*argv, "--lake", str(stream.lake)]) != 0
        last = capsys.readouterr().err.strip().splitlines()[-1]
        assert last.startswith(f"telemetry-lake: {argv[0]}: "), last
        assert "table push_outcomes: " in last
        assert line in last


def test_what_it_advises_for_a_checkpoint_helps(tmp_path: Path) -> None:
    stream, fleet = stream_of(tmp_path, clients=2, batches=3)
    table = stream.lake / "push_outcomes"
    truncated_checkpoint(table)
    for path in (*(table / "_delta_log").glob("*.checkpoint.parquet"), table / "_delta_log" / "_last_checkpoint"):
        path.unlink()
    assert damage_of(str(stream.lake), "") is None
    assert check(stream.lake, fleet.ledger).problems == []
