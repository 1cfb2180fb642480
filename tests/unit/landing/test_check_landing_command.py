"""``telemetry-lake check-landing`` over files: problems, a summary, an exit code; and the published schemas."""

from __future__ import annotations

import base64
import io
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kafka_telemetry_lake.jobs.cli import run_command
from kafka_telemetry_lake.udfs.landing.contract import HEADERS
from tests.support.landing_records import GOOD_ID, SCHEMA, record, write
from tests.unit.landing.test_landing_problems import MISTAKES, NOW_MS, OTLP, SOUND, made
from tools import landing_schemas as schemas

Capture = pytest.CaptureFixture[str]


def run(capsys: Capture, *words: str | Path) -> tuple[int, list[str], str]:
    code = run_command("check-landing", [str(word) for word in words])
    out, err = capsys.readouterr()
    return code, out.splitlines(), err


def line(**changes: Any) -> dict[str, Any]:
    """A record as a line of JSON."""
    each = made(**changes)
    return {
        "key": each.key.decode() if each.key else None,
        "value": None if each.value is None else base64.b64encode(each.value).decode(),
        "headers": {name: value.decode("utf-8", "replace") for name, value in each.headers if value is not None},
        "topic": "client-telemetry", "partition": 0, "offset": 7, "timestamp": each.timestamp_ms,
    }  # fmt: skip


def test_parquet_with_two_mistakes(capsys: Capture, tmp_path: Path) -> None:
    records = [
        record(0, OTLP, record_version="1", compression_type="none"),
        record(1, OTLP, record_version="1", compression_type="zstd"),
        record(2, OTLP, record_version="3"),
        record(3, b"{}", key=None) | {"topic": "client-telemetry-status"},
    ]
    code, out, err = run(capsys, write(tmp_path, "landed.parquet", records))
    assert (code, err) == (1, "")
    assert out[0].startswith("landed.parquet, row 1, partition 0, offset 1: error: value: not decompressible as zstd")
    assert out[1] == "landed.parquet, row 2, partition 0, offset 2: error: record_version: got '3', allowed: 1"
    points = out[2].split()[2]
    assert out[2] == (
        f"3 records, {points} data points, 2 records with errors; 1 records of other topics were not checked"
    )
    assert out[3:5] == ["  error         1  record_version: unknown", "  error         1  value: unreadable"]
    assert f"  absent        3  broker_id: {HEADERS['broker_id'].without}" in out


def test_a_folder_of_both_kinds_without_errors(capsys: Capture, tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", [record(0, OTLP, record_version="1")])
    (tmp_path / "b.jsonl").write_text(f"{json.dumps(line())}\n\n{json.dumps(line())}\n", "utf-8")
    (tmp_path / "_half.jsonl").write_text("{", "utf-8")
    (tmp_path / "notes.txt").write_text("nothing", "utf-8")
    code, out, _ = run(capsys, tmp_path)
    assert code == 0
    assert out[0].startswith("3 records, ")


def test_jsonl_for_programs_counts_what_is_not_printed(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    lines = [line(terminating="yes"), line(terminating="no"), line(value=b""), "nonsense", ["list"], {"headers": 3}]
    path.write_text("".join(f"{each if isinstance(each, str) else json.dumps(each)}\n" for each in lines), "utf-8")
    code, out, _ = run(capsys, path, "--format", "jsonl", "--max-problems", "1")
    assert code == 1
    first, counts = map(json.loads, out)
    assert first == {
        "place": "a.jsonl, line 1",
        "severity": "error", "field": "terminating", "kind": "not true or false", "message": "got 'yes', read as false",
    }  # fmt: skip
    assert (counts["records"], counts["with_errors"]) == (6, 5)
    assert counts["problems"] == [
        {"severity": "error", "field": "record", "kind": "not a record", "records": 3},
        {"severity": "error", "field": "terminating", "kind": "not true or false", "records": 2},
        {"severity": "note", "field": "value", "kind": "empty", "records": 1},
    ]
    assert counts["headers"]["client_id"] == 3


def test_times_of_any_unit_and_far_off(capsys: Capture, tmp_path: Path) -> None:
    at = SCHEMA.get_field_index("timestamp")
    for unit, seconds in (("ms", 1_780_000_000), ("us", 1_780_000)):
        kind = pa.timestamp(unit, "UTC")
        table = pa.Table.from_pylist([record(0, OTLP, record_version="1")], SCHEMA)
        number = seconds * {"ms": 1000, "us": 1_000_000}[unit]
        table = table.set_column(at, pa.field("timestamp", kind), pa.array([number], pa.int64()).cast(kind))
        pq.write_table(table, tmp_path / f"{unit}.parquet")
    code, out, _ = run(capsys, tmp_path)
    assert code == 1
    assert out[0] == "us.parquet, row 0, partition 0, offset 0: error: timestamp: got 1780000000: " + (
        "Kafka's record time is in milliseconds since 1970"
    )


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("no.parquet", None, "does not exist; to check a topic, add --bootstrap-servers"),
        ("empty", "folder", "has no file of Parquet"),
        ("cut.parquet", b"PAR1abc", "is not a Parquet file that can be read"),
    ],
)
def test_what_is_no_file_of_records(capsys: Capture, tmp_path: Path, name: str, content: Any, said: str) -> None:
    if content == "folder":
        (tmp_path / name).mkdir()
    elif content is not None:
        (tmp_path / name).write_bytes(content)
    code, out, err = run(capsys, tmp_path / name)
    assert (code, out, len(err.splitlines())) == (2, [], 1)
    assert said in err


def test_other_columns_are_named(capsys: Capture, tmp_path: Path) -> None:
    pq.write_table(pa.table({"key": ["text"], "value": [b"x"], "timestamp": [1]}), tmp_path / "a.parquet")
    code, _, err = run(capsys, tmp_path / "a.parquet")
    assert code == 2
    for said in ("column key is string", "column headers is missing", "column timestamp is missing, or no timestamp"):
        assert said in err


def test_no_record_is_no_success(capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").touch()
    assert run(capsys, tmp_path / "a.jsonl")[:2] == (1, ["0 records, 0 data points, 0 records with errors"])


def test_the_published_schemas_are_those_of_the_contract() -> None:
    folder = files("kafka_telemetry_lake.pipelines.landing")
    assert (folder / "landing-record.schema.json").read_text("utf-8") == schemas.text_of(schemas.json_schema())
    assert (folder / "landing-record.avsc").read_text("utf-8") == schemas.text_of(schemas.avro_schema())
    page = (Path(__file__).parents[3] / "docs" / "landing.md").read_text("utf-8")
    for header in HEADERS.values():
        assert f"| `{header.name}` | {header.meaning} | {header.without} |" in page


def test_the_json_schema_agrees_with_the_checker() -> None:
    """What the schema refuses is a problem; what only a reader of values can see, it can't refuse."""
    validator = jsonschema.Draft202012Validator(schemas.json_schema())
    jsonschema.Draft202012Validator.check_schema(schemas.json_schema())
    for changes in SOUND:
        usual = {"also": (), "terminating": "false"} | {key: value for key, value in changes.items() if key != "also"}
        if changes.get("compression_type") != " GZIP " and changes.get("terminating") != "TRUE":
            assert [error.message for error in validator.iter_errors(line(**usual))] == []
    assert validator.is_valid(line())
    refused = [number for number, (changes, *_) in enumerate(MISTAKES) if not validator.is_valid(line(**changes))]
    said = {MISTAKES[number][2] for number in refused}
    assert said >= {"client_instance_id", "record_version", "content_type", "compression_type", "terminating", "value",
                    "broker_id", "push_interval_ms", "timestamp"}  # fmt: skip
    assert all(MISTAKES[number][1] in ("error", "warning") for number in refused)


def test_a_record_goes_through_avro(capsys: Capture, tmp_path: Path) -> None:
    fastavro = pytest.importorskip("fastavro", reason="fastavro isn't installed")
    parsed = fastavro.parse_schema(schemas.avro_schema())
    own = line()
    file = io.BytesIO()
    fastavro.writer(file, parsed, [own | {"value": OTLP}])
    file.seek(0)
    (read,) = fastavro.reader(file)
    assert (read["value"], read["headers"], read["key"]) == (OTLP, own["headers"], GOOD_ID)
    assert round(read["timestamp"].timestamp() * 1000) == NOW_MS
