"""Records travel as blobs by shard, none of them larger than Spark's Arrow batches can hold."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from kafka_telemetry_lake.pipelines.ingest.landing_rows import OTHERS
from kafka_telemetry_lake.pipelines.spark_engine import packing
from kafka_telemetry_lake.pipelines.spark_engine.packing import BLOB_BYTES, PackTask, from_blob, to_blob
from kafka_telemetry_lake.udfs.kernels.sharding import shards_of
from tests.support.landed import as_landed

IDS = [*(f"client-{number:015}" for number in range(40)), None]


def rows(payloads: Sequence[bytes | None]) -> pa.RecordBatch:
    ids = [IDS[number % len(IDS)] for number in range(len(payloads))]
    table = as_landed(pa.table({"client_instance_id": ids, "payload": pa.array(payloads, pa.binary())}))
    for name in OTHERS:
        table = table.append_column(name, pa.nulls(table.num_rows, pa.struct([])))
    return pa.RecordBatch.from_arrays([column.combine_chunks() for column in table.columns], schema=table.schema)


def packed(keys: tuple[int, ...], batch: pa.RecordBatch) -> list[tuple[int, pa.Table]]:
    return [(row["key"], from_blob(row["records"])) for each in PackTask(keys)([batch]) for row in each.to_pylist()]


def test_each_record_is_in_one_blob_of_its_shard_in_order() -> None:
    batch = rows([b"%d" % number for number in range(100)])
    found = packed((7, 5, 9), batch)
    assert sorted({key for key, _ in found}) == [5, 7, 9]
    assert pa.concat_tables([part for _, part in found]).num_rows == 100
    for key, part in found:
        assert set(shards_of(part["client_instance_id"].combine_chunks(), 3)) == {(7, 5, 9).index(key)}
        numbers = [int(payload) for payload in part["payload"].to_pylist()]
        assert numbers == sorted(numbers)


def test_a_blob_has_about_so_many_bytes_and_any_payload_fits() -> None:
    payloads = [*[bytes(BLOB_BYTES // 3)] * 7, None, b"", bytes(2 * BLOB_BYTES), b"x"]
    found = packed((0,), rows(payloads))
    assert [part.num_rows for _, part in found] == [3, 3, 3, 1, 1]
    assert [each for _, part in found for each in part["payload"].to_pylist()] == payloads


def test_nothing_to_pack() -> None:
    assert packed((0, 1), rows([])) == []
    assert packing.PACKED == "key int, records binary"


def test_a_blob_has_its_rows_and_dictionaries() -> None:
    table = pa.table({"text": pa.array(["a", "b", "a", None]).dictionary_encode(), "n": [1, 2, 3, 4]})
    assert from_blob(to_blob(table.slice(1))).equals(table.slice(1))
    assert from_blob(to_blob(table.slice(0, 0))).num_rows == 0
