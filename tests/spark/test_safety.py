"""Personal data, secrets and sizes: what a lake must not hold."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.conftest import Ingest
from tests.support.lake_tables import table
from tests.support.landing_records import captured, record, write

PRINCIPAL, ADDRESS = "User:CN=alice.liddell", "203.0.113.77"
KEY = "a key that stands nowhere"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    payload = bytes(captured()["value"][0].as_py())
    who = {"principal": PRINCIPAL, "client_address": ADDRESS}
    long = "x" * (1 << 20)
    records = [
        record(0, payload, **who),
        record(1, b"\xff\xff not protobuf", **who),
        record(2, payload + b"", principal=None, client_address=None, client_id=long, client_software_name=long),
        record(3, payload, content_type=long, **who),
    ]
    write(tmp_path_factory.mktemp("personal") / "in", "a.parquet", records)
    return tmp_path_factory.getbasetemp() / "personal0" / "in"


@pytest.mark.parametrize("how", ["hash", pytest.param("drop", marks=pytest.mark.slow)])
def test_principals_and_addresses_are_hashed_or_left_out(
    ingest: Ingest, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setenv("TELEMETRY_LAKE_PERSONAL_DATA_KEY", KEY)
    ingest(folder, tmp_path / "lake", "--personal-data", how)
    rows = sorted(table(tmp_path / "lake", "pushes").to_pylist(), key=lambda row: row["offset"])
    hashed = hashlib.sha256(f"{KEY}\0{PRINCIPAL}".encode()).hexdigest()[:32]
    assert [row["principal"] for row in rows] == ([hashed, hashed, None, hashed] if how == "hash" else [None] * 4)
    assert rows[0]["client_address"] != ADDRESS
    # Nowhere else either: not in a table, a log or a checkpoint, compressed pages apart.
    for file in (tmp_path / "lake").rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            assert not any(text.encode() in content for text in (PRINCIPAL, ADDRESS, KEY)), file
    for name in ("quarantine", "push_outcomes", "client_events", "metric_points", "client_changes"):
        assert PRINCIPAL not in str(table(tmp_path / "lake", name).to_pylist())
        assert ADDRESS not in str(table(tmp_path / "lake", name).to_pylist())
    # Headers of a mebibyte are cut; what is wrong with a record is described in one line.
    assert rows[2]["client_id"] == rows[2]["client_software_name"] == "x" * 1024
    assert (rows[3]["reject_reason"], len(rows[3]["reject_detail"])) == ("INVALID_RECORD", len("content type ''") + 100)
