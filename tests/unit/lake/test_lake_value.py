"""A lake as a value: what it opens is its own, and its lease stays in its process."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from kafka_telemetry_lake.pipelines.lake.errors import FencedError
from kafka_telemetry_lake.pipelines.lake.fence import APP_ID, JOB, Leases, this_process
from kafka_telemetry_lake.pipelines.lake.lake import Lake
from kafka_telemetry_lake.pipelines.lake.stored_files import files_table
from kafka_telemetry_lake.pipelines.tables.operator import PUSH_OUTCOMES, PUSHES

NOON = datetime(2026, 11, 27, 12, tzinfo=UTC)


def test_it_opens_its_tables_as_they_are_now(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    assert not lake.has(PUSHES)
    with pytest.raises(TableNotFoundError):
        lake.table(PUSHES)
    assert lake.create(PUSHES).version() == 0
    assert (lake.has(PUSHES), lake.has(PUSH_OUTCOMES)) == (True, False)
    assert lake.folder(PUSHES)[1] == str(tmp_path / "pushes")
    for number in range(2):
        files = lake.files(PUSHES)
        files.write(pa.Table.from_pylist([{"landed_at": NOON, "partition": 0, "offset": number}], PUSHES.schema))
        lake.log(PUSHES).commit(files.close(), "test", number)
    assert [lake.table(PUSHES, version).version() for version in (None, 1)] == [2, 1]
    assert (lake.rows(PUSHES).count_rows(), lake.rows(PUSHES, 1).count_rows()) == (2, 1)
    assert lake.rows_in(PUSHES, files_table(lake.table(PUSHES, 1))).count_rows() == 1


def test_it_commits_and_writes_notes_under_its_lease(tmp_path: Path) -> None:
    place = str(tmp_path)
    leases = Leases(place, JOB)
    before, after = (Lake(place, leases.acquire(this_process("ingest"), take_over=True)) for _ in range(2))
    before.create(PUSHES)
    assert before.note(PUSHES, "_test", ("at",), "delete it").path.endswith("/pushes/_test-e000000000001.json")
    late = before.log(PUSHES)
    after.log(PUSHES)
    assert DeltaTable(PUSHES.uri(place)).transaction_version(APP_ID) == 2
    with pytest.raises(FencedError):
        late.commit([], "test", 0, {})


def test_a_lease_stays_in_its_process(tmp_path: Path) -> None:
    place = str(tmp_path)
    assert pickle.loads(pickle.dumps(Lake(place))) == Lake(place)
    with pytest.raises(TypeError, match="pickle"):
        pickle.dumps(Lake(place, Leases(place, JOB).acquire(this_process("ingest"))))
