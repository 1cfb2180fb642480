"""Bad records: a quarantine row with Kafka's error name and the offset each; the rest of the batch is untouched."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tests.conftest import Ingest
from tests.support.lake_tables import table
from tests.support.landing_records import GOOD_ID, captured, captured_index, record, write

OTHER_ID = "pjXftqdsQJioN8NYDF8OQg"


@pytest.fixture(scope="module")
def good() -> bytes:
    """An uncompressed push of librdkafka: 15 points."""
    row = captured().slice(0, 1).to_pylist()[0]
    assert captured_index()[0]["points"] == 15
    return bytes(row["value"])


@pytest.fixture(scope="module")
def lake(ingest: Ingest, good: bytes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bad")
    records = [
        record(0, b"\xff\xff not protobuf"),
        record(1, good[:-7]),
        record(2, gzip.compress(good)[:-9], compression_type="gzip"),
        record(3, good, compression_type="lz4"),
        record(4, good, compression_type="brotli"),
        record(5, good, compression_type="7"),
        record(6, gzip.compress(bytes(20 << 20)), compression_type="gzip"),
        record(7, good, key=None),
        record(8, good, client_instance_id=OTHER_ID),
        record(9, good, key="AAAAAAAAAAAAAAAAAAAAAA"),
        record(10, good, key="tooshort"),
        record(11, good, content_type="application/json"),
        record(12, None),
        record(13, b"", compression_type="zstd"),
        record(14, b"\n\x00"),
        record(15, good, content_type="application/x-protobuf;type=otlp+metrics0.11"),
        record(16, good, client_id=b"caf\xe9", push_interval_ms="soon", content_type=None),
        record(17, None, dropped="too_large", payload_bytes="5242880"),
        record(18, good, record_version="9"),
        record(19, gzip.compress(good), compression_type="1", client_instance_id=None, terminating="TRUE"),
    ]
    records[19]["headers"].append({"key": "x-unknown", "value": b"1"})
    records[16]["headers"].append({"key": "client_id", "value": b"last-wins"})
    write(folder / "in", "bad.parquet", records)
    ingest(folder / "in", folder / "lake")
    return folder / "lake"


def test_each_bad_push_has_its_row_with_kafkas_error_name(lake: Path) -> None:
    found = {row["offset"]: row for row in table(lake, "quarantine").to_pylist()}
    assert {offset: row["reason"] for offset, row in found.items()} == {
        0: "INVALID_RECORD",
        1: "INVALID_RECORD",
        2: "INVALID_RECORD",
        3: "INVALID_RECORD",
        4: "UNSUPPORTED_COMPRESSION_TYPE",
        5: "UNSUPPORTED_COMPRESSION_TYPE",
        6: "TELEMETRY_TOO_LARGE",
        7: "INVALID_REQUEST",
        8: "INVALID_REQUEST",
        9: "INVALID_REQUEST",
        10: "INVALID_REQUEST",
        11: "INVALID_RECORD",
        12: "INVALID_RECORD",
        18: "INVALID_RECORD",
    }
    assert all(row["scope"] == "push" and row["topic"] == "client-telemetry" for row in found.values())
    assert "application/json" in found[11]["detail"]
    assert "brotli" in found[4]["detail"]
    assert OTHER_ID in found[8]["detail"]
    assert GOOD_ID in found[8]["detail"]
    assert found[12]["detail"] == "null value"
    assert found[0]["payload"] == b"\xff\xff not protobuf"


def test_heartbeats_are_rows_in_pushes_and_never_quarantined(lake: Path) -> None:
    outcomes = {row["offset"]: row["outcome"] for row in table(lake, "push_outcomes").to_pylist()}
    assert (outcomes[13], outcomes[14], outcomes[17]) == ("heartbeat", "heartbeat", "dropped")
    pushes = {row["offset"]: row for row in table(lake, "pushes").to_pylist()}
    assert len(pushes) == 20
    assert (pushes[17]["dropped"], pushes[17]["payload_bytes"]) == ("too_large", 5242880)


def test_good_pushes_beside_them_are_whole(lake: Path) -> None:
    counted: dict[int, int] = {}
    for row in table(lake, "metric_points").to_pylist():
        counted[row["offset"]] = counted.get(row["offset"], 0) + 1
    assert counted == {15: 15, 16: 15, 19: 15}
    pushes = {row["offset"]: row for row in table(lake, "pushes").to_pylist()}
    assert pushes[16]["client_id"] == "last-wins"
    assert pushes[16]["push_interval_ms"] is None
    assert pushes[19]["client_instance_id"] == GOOD_ID
    assert pushes[19]["terminating"] is True
