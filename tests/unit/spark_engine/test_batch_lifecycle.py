"""The lifecycle of tables by name, over tables in this process: each batch counts once, whatever ends a run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kafka_telemetry_lake.pipelines.lake.notes import FencedNote
from kafka_telemetry_lake.pipelines.spark_engine import lifecycle
from kafka_telemetry_lake.pipelines.spark_engine.lifecycle import BatchLifecycle
from kafka_telemetry_lake.pipelines.tables.lifecycle import CLIENT_CHANGES
from kafka_telemetry_lake.pipelines.tables.operator import CLIENT_EVENTS
from kafka_telemetry_lake.pipelines.tables.table import Table
from kafka_telemetry_lake.udfs.errors import OtherFormatError
from kafka_telemetry_lake.udfs.lifecycle.push_sequences import LIFECYCLE_IN
from kafka_telemetry_lake.udfs.lifecycle.step import OUTCOMES_IN

pytestmark = pytest.mark.lake

BATCHES = 6
NO_OUTCOMES = OUTCOMES_IN.empty_table()
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


class KilledError(Exception):
    """The job ends here."""


class MemoryTables:
    """As `TablesByName`, with the rows in this process; `kill` names a table before whose next append it ends."""

    def __init__(self) -> None:
        self.stored = {table.name: table.schema.empty_table() for table in (CLIENT_EVENTS, CLIENT_CHANGES)}
        self.versions: dict[tuple[str, str], int] = {}
        self.kill: str | None = None
        self.replaced = 0

    def rows(self, table: Table, condition: str) -> pa.Table:
        last = int(condition.removeprefix("step <= "))
        return self.stored[table.name].filter(pa.compute.field("step") <= last)

    def frame(self, _: Table, rows: pa.Table) -> pa.Table:
        return rows

    def append(self, table: Table, rows: pa.Table, app_id: str, batch_id: int) -> None:
        if self.kill == table.name:
            raise KilledError
        if self.versions.get((table.name, app_id), -1) < batch_id:
            self.versions[table.name, app_id] = batch_id
            self.stored[table.name] = pa.concat_tables([self.stored[table.name], rows.cast(table.schema)])

    def replace(self, table: Table, rows: pa.Table) -> None:
        self.stored[table.name] = rows.cast(table.schema)
        self.replaced += 1

    def events(self) -> list[dict[str, Any]]:
        return sorted(self.stored[CLIENT_EVENTS.name].to_pylist(), key=repr)

    def clients(self) -> dict[str, dict[str, Any]]:
        rows = sorted(self.stored[CLIENT_CHANGES.name].to_pylist(), key=lambda row: row["step"])
        return {row["client_instance_id"]: row for row in rows}


def pushes(batch: int) -> pa.Table:
    """A push of each of two clients in each batch; the second one is silent in the third and fourth."""
    names = ["a"] if batch in (2, 3) else ["a", "b"]
    rows = [
        {
            "source": "test", "topic": "t", "partition": 0, "offset": 10 * batch + number, "cluster_id": "c",
            "landed_at": BEGAN + timedelta(minutes=10 * batch, seconds=number), "client_instance_id": name,
            "push_interval_ms": 60_000, "terminating": False,
        }
        for number, name in enumerate(names)
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, LIFECYCLE_IN)


def run(tables: MemoryTables, folder: Path, first: int = 0, last: int = BATCHES) -> None:
    """A run of the job over some batches."""
    judged = BatchLifecycle(tables, str(folder))  # type: ignore[arg-type]  # it has what is used of `TablesByName`
    for batch in range(first, last):
        judged.step("app", batch, pushes(batch), NO_OUTCOMES)


@pytest.fixture
def whole(tmp_path: Path) -> MemoryTables:
    """All batches in one run."""
    tables = MemoryTables()
    (tmp_path / "whole").mkdir()
    run(tables, tmp_path / "whole")
    return tables


def test_clients_are_judged_by_batch(whole: MemoryTables) -> None:
    found = {(row["client_instance_id"], row["event"]) for row in whole.events()}
    assert found >= {("a", "first_seen"), ("b", "first_seen"), ("b", "went_silent"), ("b", "resumed")}
    assert {name: row["pushes"] for name, row in whole.clients().items()} == {"a": 6, "b": 4}


@pytest.mark.parametrize("table", [CLIENT_EVENTS.name, CLIENT_CHANGES.name, "note"])
@pytest.mark.parametrize("batch", [0, 2, 4])
def test_a_batch_that_is_cut_off_counts_once(
    whole: MemoryTables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str, batch: int
) -> None:
    tables = MemoryTables()
    run(tables, tmp_path, last=batch)
    tables.kill = table

    def killed(*_: object) -> None:
        raise KilledError

    with monkeypatch.context() as patch:
        if table == "note":
            patch.setattr(FencedNote, "write", killed)
        with pytest.raises(KilledError):
            run(tables, tmp_path, batch)
    tables.kill = None
    run(tables, tmp_path, max(batch - 1, 0))  # Spark may repeat a batch that had ended, too
    assert tables.events() == whole.events()
    assert tables.clients() == whole.clients()


def test_changes_are_merged(whole: MemoryTables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "LEAST_CHANGES", 4)
    tables = MemoryTables()
    for batch in range(BATCHES):  # each batch is a run of its own
        run(tables, tmp_path, batch, batch + 1)
    assert tables.replaced > 0
    assert tables.stored[CLIENT_CHANGES.name].num_rows < whole.stored[CLIENT_CHANGES.name].num_rows
    assert tables.clients() == whole.clients()
    assert tables.events() == whole.events()


def test_a_note_of_another_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lifecycle-e000000000000.json").write_text('{"format": 2}', "utf-8")
    with pytest.raises(
        OtherFormatError, match=r"lifecycle-e0+\.json has format 2, and this build reads format 1 only: start"
    ):
        run(MemoryTables(), tmp_path)
