"""Formats are frozen: what a release has written has the numbers, columns and layouts that this build reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema

from kafka_telemetry_lake.pipelines.forget import erasure
from kafka_telemetry_lake.pipelines.ingest import checkpoint
from kafka_telemetry_lake.pipelines.lake import erased_files, notes
from kafka_telemetry_lake.pipelines.tables import table
from kafka_telemetry_lake.pipelines.tables.catalog import CATALOG
from kafka_telemetry_lake.udfs.conversion import state
from tests.support.kept_lakes import LAKES, unpacked
from tools.landing_schemas import json_schema

TO_DO = """
Lakes of this release are in use, and docs/upgrade.md promises that later builds read and continue them. Either
- leave the format as it is. A new column that may be NULL is allowed without anything else: `Table.create` adds it to
  the tables that there are, and their rows have NULL. So is a new table or a new note. CHANGELOG.md names new columns,
  since the build before can't write tables that have them; or
- read the old format beside the new one, raise its number, and extend tests/unit/lake/test_upgrade.py. CHANGELOG.md
  says so, since the build before can't read what was changed.
"""
Layout = dict[str, str]


@pytest.fixture(scope="module", params=LAKES, ids=lambda path: path.name.removesuffix(".tar.gz"))
def kept(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a release has left: its lake, and the contract of its landing records."""
    return unpacked(request.param, tmp_path_factory.mktemp("kept")).parent


def layout(schema: pa.Schema) -> Layout:
    """The type of each column."""
    return {field.name: str(field.type) for field in schema}


def columns(schema: Schema) -> Layout:
    """The type of each column of a Delta table."""
    return {field.name: str(field.type) for field in schema.fields}


def problems(name: str, before: Layout, now: Layout, *, may_grow: bool) -> list[str]:
    """What differs so that rows of before can't be read.

    Args:
        may_grow: columns may be added.
    """
    found = [f"{name} no longer has {column}" for column in before.keys() - now.keys()]
    found += [
        f"{name}.{column} is {now[column]}, and was {kind}"
        for column, kind in before.items()
        if now.get(column, kind) != kind
    ]
    if not may_grow:
        found += [f"{name} has {column}, too" for column in now.keys() - before.keys()]
    return sorted(found)


def state_file(path: Path) -> tuple[int, dict[str, Layout]]:
    """Number of the format of a state file, and the columns of its tables."""
    data = path.read_bytes()
    source = pa.BufferReader(data[state.HEADER_BYTES : -state.CHECKSUM_BYTES])
    tables = {name: layout(pa.ipc.open_stream(source).read_all().schema) for name in state.SCHEMAS}
    return int.from_bytes(data[: state.HEADER_BYTES // 2], "little"), tables


def test_tables_have_the_columns_of_the_release(kept: Path) -> None:
    found: list[str] = []
    for path in sorted((kept / "lake").glob("*/_delta_log")):
        name, delta = path.parent.name, DeltaTable(str(path.parent))
        if name not in CATALOG:
            found.append(f"there is no table {name} any more")
        else:
            found += problems(name, columns(delta.schema()), columns(Schema.from_arrow(CATALOG[name])), may_grow=True)
            found += [f"{name}.{field.name} may not be NULL" for field in CATALOG[name] if not field.nullable]
            number = delta.metadata().configuration[table.FORMAT_PROPERTY]
            found += [] if number == str(table.FORMAT) else [f"{name} has format {table.FORMAT}, and had {number}"]
    assert found == [], TO_DO


def test_the_state_has_the_layout_of_the_release(kept: Path) -> None:
    for path in (kept / "lake" / "_checkpoints" / "points-state").glob("*.state"):
        number, tables = state_file(path)
        found = [] if number == state.FORMAT else [f"a state has format {state.FORMAT}, and had {number}"]
        for name, before in tables.items():
            found += problems(name, before, layout(state.SCHEMAS[name]), may_grow=False)
        assert found == [], TO_DO


def test_notes_have_the_numbers_of_the_release(kept: Path) -> None:
    lake = kept / "lake"
    kinds = {
        "_checkpoints/lake.json": checkpoint.FORMAT,
        "_checkpoints/points-state/*.json": notes.FORMAT,
        "_checkpoints/points-snapshots/*/*.json": notes.FORMAT,
        "_forget/history/*.json": erased_files.FORMAT,
        "*/*-e000000*.json": notes.FORMAT,
        "finding_changes/_notify/*-e000000*.json": notes.FORMAT,
    }
    numbers = {path: (json.loads(path.read_text("utf-8"))["format"], now) for kind, now in kinds.items()
               for path in lake.glob(kind)}  # fmt: skip
    assert {path.name: pair for path, pair in numbers.items() if pair[0] != pair[1]} == {}, TO_DO
    others = {"_polled.json", "metadata", "batch.json", "offsets-before.json"}
    without = {
        str(path.relative_to(lake))
        for path in lake.rglob("*.json")
        if path not in numbers and "_delta_log" not in path.parts and path.name not in others
    }
    assert {path for path in without if not path.startswith("_writers/")} == set()
    assert erasure.FORMAT == 1, TO_DO  # of one that is under way


def test_landing_records_of_the_release_are_read(kept: Path) -> None:
    before = json.loads((kept / "landing-record.schema.json").read_text("utf-8"))
    assert no_longer(before, json_schema()) == [], TO_DO


def no_longer(before: Any, now: Any, at: str = "") -> list[str]:
    """What a JSON Schema says otherwise than before. Texts that describe may differ, and an enum may have more."""
    if isinstance(before, dict) and isinstance(now, dict):
        return [
            problem
            for key, value in before.items()
            if key not in ("description", "title")
            for problem in (no_longer(value, now[key], f"{at}/{key}") if key in now else [f"{at}/{key} is gone"])
        ]
    is_same = set(before) <= set(now) if at.endswith("/enum") else before == now
    return [] if is_same else [f"{at} is {now}, and was {before}"]
