"""Commits beside the table's other writers: the next free version, no transaction twice, no file removed twice."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaProtocolError

from kafka_telemetry_lake.pipelines.lake.delta_log import CommitLog, TableLog, files_of
from kafka_telemetry_lake.pipelines.lake.errors import DamagedLogError
from kafka_telemetry_lake.pipelines.lake.table_files import TableFiles
from kafka_telemetry_lake.pipelines.tables.operator import PUSH_OUTCOMES
from tests.support.expired_logs import expire_log
from tests.unit.lake.conftest import Overtaken
from tests.unit.lifecycle.test_lifecycle import push


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    PUSH_OUTCOMES.create(str(tmp_path))
    return tmp_path


def append(lake: Path, log: TableLog, version: int, app_id: str = "job") -> bool:
    """A commit with one row."""
    files = TableFiles(PUSH_OUTCOMES, str(lake))
    row = {name: value for name, value in push(version, version).items() if name in PUSH_OUTCOMES.schema.names}
    files.write(pa.Table.from_pylist([row], PUSH_OUTCOMES.schema))
    return log.commit(files.close(), app_id, version)


def opened(lake: Path) -> DeltaTable:
    return DeltaTable(str(lake / "push_outcomes"))


def test_delta_rs_reads_what_is_committed(lake: Path) -> None:
    log = TableLog(PUSH_OUTCOMES, str(lake))
    assert append(lake, log, 7)
    assert not append(lake, log, 7)
    assert not append(lake, TableLog(PUSH_OUTCOMES, str(lake)), 6)
    assert log.commit([], "other", 3, {"read": 9})
    table = opened(lake)
    assert (table.version(), table.count(), log.version) == (2, 1, 2)
    assert [table.transaction_version(name) for name in ("job", "other", "read", "none")] == [7, 3, 9, None]
    (file,) = files_of(table)
    assert (file["num_records"], file["partition"], file["min"]["offset"]) == (1, {"landed_date": "2026-11-21"}, 7)
    table.create_checkpoint()
    expire_log(lake / "push_outcomes")
    assert opened(lake).count() == 1
    assert TableLog(PUSH_OUTCOMES, str(lake)).transaction_version("job") == 7


def test_commits_of_others_are_followed(lake: Path) -> None:
    first, second = (TableLog(PUSH_OUTCOMES, str(lake)) for _ in range(2))
    for version in range(3):
        assert append(lake, first, version, "first")
        assert append(lake, second, version, "second")
        opened(lake).optimize.compact()
    assert opened(lake).count() == 6
    assert second.transaction_version("first") == 2


def test_of_two_with_one_transaction_one_fails(lake: Path, overtaken: Overtaken) -> None:
    mine, other = (TableLog(PUSH_OUTCOMES, str(lake)) for _ in range(2))
    overtaken(lambda: append(lake, other, 1))
    with pytest.raises(CommitFailedError, match="concurrent transaction of job"):
        append(lake, mine, 1)
    assert opened(lake).count() == 1


def test_a_file_that_another_has_removed_is_not_replaced(lake: Path, overtaken: Overtaken) -> None:
    log = TableLog(PUSH_OUTCOMES, str(lake))
    append(lake, log, 1)
    rows = files_of(opened(lake))
    overtaken(lambda: opened(lake).delete("offset = 1"))
    with pytest.raises(CommitFailedError, match="another process has removed landed_date=2026-11-21/part-"):
        log.rearrange(rows, [])
    assert opened(lake).count() == 0


def test_columns_that_change_meanwhile_end_the_commit(lake: Path, overtaken: Overtaken) -> None:
    log, other = TableLog(PUSH_OUTCOMES, str(lake)), {"delta.logRetentionDuration": "interval 9 days"}
    overtaken(lambda: opened(lake).alter.set_table_properties(other))
    with pytest.raises(CommitFailedError, match="columns or settings have changed"):
        append(lake, log, 1)


def test_a_log_that_forgot_commits_since_the_last_look_is_opened_again(lake: Path) -> None:
    log = TableLog(PUSH_OUTCOMES, str(lake))
    append(lake, log, 1)
    other = TableLog(PUSH_OUTCOMES, str(lake))
    for version in range(3):
        append(lake, other, version, "other")
    expire_log(lake / "push_outcomes")  # a commit of a forgotten version would be lost
    assert append(lake, log, 2)
    assert opened(lake).count() == 5
    assert opened(lake).version() == 5
    assert log.transaction_version("other") == 2


def test_concurrent_writers_lose_no_commit(lake: Path) -> None:
    def write(name: str) -> None:
        log = TableLog(PUSH_OUTCOMES, str(lake))
        for version in range(10):
            append(lake, log, version, name)

    threads = [threading.Thread(target=write, args=(name,)) for name in ("a", "b", "c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert opened(lake).count() == 30
    assert opened(lake).version() == 30


def test_a_commit_costs_the_same_whatever_the_table_has(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = TableLog(PUSH_OUTCOMES, str(lake))
    append(lake, log, 0)
    opens: list[str] = []
    monkeypatch.setattr("kafka_telemetry_lake.pipelines.lake.delta_log.DeltaTable", opens.append)
    for version in range(1, 20):
        append(lake, log, version)
    assert (opens, log.version) == ([], 20)
    assert not list((lake / "push_outcomes" / "_delta_log").glob("*.tmp"))


@pytest.mark.parametrize("damage", [b"", b'{"add":{"pa', b"[]\n", b"\x00" * 40])
def test_a_damaged_commit_is_one_line(lake: Path, damage: bytes) -> None:
    log = TableLog(PUSH_OUTCOMES, str(lake))
    (lake / "push_outcomes" / "_delta_log" / f"{1:020d}.json").write_bytes(damage)
    with pytest.raises(DamagedLogError, match=r"push_outcomes: version 1 of the table's log is damaged: restore"):
        append(lake, log, 1)


@pytest.mark.parametrize("content", [b"", b"{}", b'{"version": "x"}'])
def test_a_damaged_note_of_the_last_checkpoint_costs_time_only(lake: Path, content: bytes) -> None:
    log = TableLog(PUSH_OUTCOMES, str(lake))
    append(lake, log, 0)
    opened(lake).create_checkpoint()
    (lake / "push_outcomes" / "_delta_log" / "_last_checkpoint").write_bytes(content)
    assert append(lake, log, 1)
    assert log.version == 2


def test_a_table_with_features_of_others_is_refused(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "t"), pa.table({"a": [1]}), configuration={"delta.enableChangeDataFeed": "true"})
    CommitLog(str(tmp_path / "t")).append([], {"x": 1})
    first = tmp_path / "t" / "_delta_log" / f"{0:020d}.json"
    lines = [json.loads(line) for line in first.read_text().splitlines()]
    features = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["columnMapping"],
                "writerFeatures": ["columnMapping"]}  # fmt: skip
    lines = [{"protocol": features} if "protocol" in line else line for line in lines]
    first.write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(DeltaProtocolError, match="features that this job can't write: columnMapping"):
        CommitLog(str(tmp_path / "t"))
