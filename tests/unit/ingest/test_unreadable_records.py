"""Which failures of a batch are a timestamp's, and how the record is named; tests/kafka has the whole way."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_telemetry_lake.pipelines.ingest import unreadable_records
from kafka_telemetry_lake.pipelines.ingest.sources import FilesSource, KafkaSource
from kafka_telemetry_lake.pipelines.ingest.unreadable_records import UnreadableRecordError, is_overflow, naming
from kafka_telemetry_lake.pipelines.runtime.kafka_records import KafkaRecord

OVERFLOW = "Job aborted due to stage failure: ... (vm executor driver): java.lang.ArithmeticException: long overflow"
NANOSECONDS = 1_763_640_000_000_000_000
MOST = 9_223_372_036_854_775  # milliseconds that are a long as microseconds


class Offsets:
    def of_batch(self, batch: int) -> Any:
        assert batch == 7
        return {"t": {0: 3}}, {"t": {0: 9, 1: 2}, "u": {}}


def fail(_batch: object, _number: int) -> None:
    raise RuntimeError(OVERFLOW)


def named(monkeypatch: pytest.MonkeyPatch, source: object, *times: int) -> None:
    asked: list[tuple[Any, ...]] = []

    def records(_java: object, _servers: str, options: dict[str, str], *place: Any) -> Any:
        asked.append((*place, options["kafka.auto.offset.reset"]))
        return (KafkaRecord(None, None, place[0], place[1], place[2] + n, time, 0, []) for n, time in enumerate(times))

    monkeypatch.setattr(unreadable_records, "records_between", records)
    run: Any = naming(None, source, Offsets(), fail)  # type: ignore[arg-type]  # stand-ins
    try:
        run(None, 7)
    finally:
        assert asked[:1] in ([], [("t", 0, 3, 9, "none")])


@pytest.mark.parametrize(
    ("error", "is_one"),
    [
        (OVERFLOW, True),
        ("[KAFKA_MALFORMED_RECORD_TIMESTAMP] The record has a malformed timestamp", True),  # of later releases
        ("java.lang.ArithmeticException: / by zero", False),
        ("long overflow", False),
    ],
)
def test_failures_of_a_timestamp(error: str, *, is_one: bool) -> None:
    assert is_overflow(RuntimeError(error)) is is_one


@pytest.mark.parametrize("time", [NANOSECONDS, MOST + 1, -MOST - 1, -(2**62)])
def test_the_first_record_that_overflows_is_named_with_a_way_on(monkeypatch: pytest.MonkeyPatch, time: int) -> None:
    with pytest.raises(UnreadableRecordError, match=rf"^t/0: offset 5: its timestamp {time} is no time .* To go on, "):
        named(monkeypatch, KafkaSource("b:9092"), 0, -1, time, time)


def test_another_failure_stays_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match="long overflow"):
        named(monkeypatch, KafkaSource("b:9092"), 0, -1, MOST, -MOST)
    with pytest.raises(RuntimeError, match="long overflow"):
        named(monkeypatch, FilesSource("x", "files"), NANOSECONDS)
