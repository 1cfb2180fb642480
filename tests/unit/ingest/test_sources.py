"""When a batch starts: how often the job looks at its topics, and how long records wait for others."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kafka_telemetry_lake.pipelines.ingest import sources
from kafka_telemetry_lake.pipelines.ingest.sources import SMALL_BYTES, FilesSource, KafkaSource, SourceError
from tests.support.landing_records import SCHEMA


@dataclass
class Reader:
    """Notes the options of a stream."""

    given: dict[str, Any] = field(default_factory=dict)
    _jvm: Any = field(default_factory=MagicMock)

    @property
    def readStream(self) -> Reader:  # noqa: N802  # Spark's name
        return self

    def format(self, name: str) -> Reader:
        assert name == "kafka"
        return self

    def option(self, name: str, value: Any) -> Reader:
        self.given[name] = value
        return self

    def options(self, **values: Any) -> Reader:
        self.given |= values
        return self

    def load(self) -> dict[str, Any]:
        return self.given


def waits(source: KafkaSource, reader: str) -> tuple[int, int] | None:
    options: Any = getattr(source, reader)(Reader(), {})
    if "minOffsetsPerTrigger" not in options:
        assert "maxTriggerDelay" not in options
        return None
    return int(options["minOffsetsPerTrigger"]), int(options["maxTriggerDelay"].removesuffix("ms"))


@pytest.mark.parametrize(
    ("wait_s", "look_s", "enough", "delay_ms"),
    [(5.0, 2.5, 50, 3750), (0.2, 0.1, 50, 150), (5.1, 2.5, 50_000, 3850), (60.0, 2.5, 50_000, 58_750)],
)
def test_few_pushes_wait_for_two_looks_and_50_for_one_unless_the_job_may_wait_longer(
    wait_s: float, look_s: float, enough: int, delay_ms: int
) -> None:
    """The delay ends half a look early, as no look is exactly on time: at the look that comes after `wait_s`."""
    source = KafkaSource("b:9092", max_wait_s=wait_s)
    assert source.poll_s(wait_s) == look_s
    assert waits(source, "pushes") == (enough, delay_ms)


def test_no_batch_needs_more_pushes_than_it_may_have() -> None:
    assert waits(KafkaSource("b:9092", max_wait_s=5.0, max_offsets_per_trigger=10), "pushes") == (10, 3750)


@pytest.mark.parametrize(("wait_s", "delay_ms"), [(5.0, 28_750), (60.0, 58_750)])
def test_statuses_and_samples_wait_half_a_minute(monkeypatch: pytest.MonkeyPatch, wait_s: float, delay_ms: int) -> None:
    source = KafkaSource("b:9092", max_wait_s=wait_s)
    monkeypatch.setattr(sources, "existing_topics", lambda *_: {"client-telemetry-status", "client-quotas"})
    assert waits(source, "others") == (50_000, delay_ms)


def test_all_that_is_there_is_taken_at_once_by_a_job_that_ends_then() -> None:
    assert waits(KafkaSource("b:9092"), "pushes") is None


@pytest.mark.parametrize(("options", "records"), [({}, 50), ({"kafka.max.poll.records": "7"}, "7")])
def test_a_consumer_has_few_records_at_hand_unless_it_is_asked_for_more(options: dict[str, str], records: Any) -> None:
    given: Any = KafkaSource("b:9092", options=options).pushes(Reader(), {})  # type: ignore[arg-type]  # a stand-in
    assert given["kafka.max.poll.records"] == records


BAD_FILES: dict[str, tuple[Any, str]] = {
    "nanoseconds": (SCHEMA.set(5, pa.field("timestamp", pa.timestamp("ns", "UTC"))), r"timestamp is timestamp\[ns"),
    "a date": (SCHEMA.set(5, pa.field("timestamp", pa.date32())), "column timestamp is date32"),
    "no offset": (SCHEMA.remove(4), "column offset is missing, expected int64"),
    "text": (SCHEMA.set(1, pa.field("value", pa.string())), "column value is string, expected binary"),
    "headers as a map": (
        SCHEMA.set(7, pa.field("headers", pa.map_(pa.string(), pa.binary()))), "column headers is map<string, binary",
    ),
    "headers of text": (
        SCHEMA.set(7, pa.field("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())])))),
        "column headers is list<element: struct<key: string, value: string>>, expected list<struct<key: string, value",
    ),
    "a wide type": (SCHEMA.set(6, pa.field("timestampType", pa.int64())), "timestampType is int64, expected int32"),
    "an empty file": (b"", "is not a Parquet file"),
    "another format": (b"key,value\n", "is not a Parquet file"),
    "a part of one": (b"PAR1", "is not a Parquet file"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD_FILES)
def test_a_file_that_is_no_source_is_named_before_spark(kind: str, tmp_path: Path) -> None:
    content, said = BAD_FILES[kind]
    file = tmp_path / "it [1].parquet"
    if isinstance(content, bytes):
        file.write_bytes(content)
    else:
        pq.write_table(content.empty_table(), file)
    with pytest.raises(SourceError, match=said) as error:
        FilesSource(str(tmp_path), "files").check()
    assert str(error.value).startswith(str(file))
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize("left_out", [{"headers"}, {"timestampType"}, {"headers", "timestampType"}])
def test_what_spark_reads_as_null_may_be_missing(left_out: set[str], tmp_path: Path) -> None:
    pq.write_table(SCHEMA.empty_table().drop_columns(sorted(left_out)), tmp_path / "a.parquet")
    FilesSource(str(tmp_path), "files").check()


def test_files_are_small_together(tmp_path: Path) -> None:
    source = FilesSource(str(tmp_path), "files")
    for name, size in (("a.parquet", SMALL_BYTES - 7), ("b.parquet", 7), ("_c.parquet", SMALL_BYTES), ("d.txt", 9)):
        with (tmp_path / name).open("wb") as file:
            file.truncate(size)
    assert source.is_small()
    (tmp_path / "e.parquet").write_bytes(b"1")
    assert not source.is_small()
    assert FilesSource(str(tmp_path / "b.parquet"), "files").is_small()
    assert not KafkaSource("127.0.0.1:1").is_small()
