"""Each header and JSON field with values that can't be: NULL or a problem's text, never a failed batch."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, unquote_to_bytes

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kafka_telemetry_lake.pipelines.ingest.broker_records import with_quota_sample, with_receiver_health
from kafka_telemetry_lake.pipelines.ingest.landing_rows import to_landed, to_pushes
from kafka_telemetry_lake.pipelines.lake.privacy import UNCHANGED
from kafka_telemetry_lake.udfs.landing import contract
from tests.support.landed import LANDED_SCHEMA
from tests.support.landing_records import GOOD_ID, LANDED_AT, SCHEMA, record
from tests.support.quick_session import quick_session
from tests.unit.landing.test_landing_problems import MISTAKES, made

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LATEST_MS, MAX_COUNT = 4_102_444_800_000, 10**15
HUGE = b"9" * (1 << 20)
HOSTILE_TEXT: tuple[bytes, ...] = (
    b"", b" ", b"0", b"-1", b" 7 ", b"+7", b"1.5", b"1e3", b"NaN", b"Infinity", b"0x10", b"null", b"true", b"\x00",
    b"\xff\xfe", b"\x1b[2J", b"1\n2", b"\xe2\x80\xae1", b"\xd9\xa1", b"2147483647", b"2147483648", b"-2147483648",
    b"9223372036854775807", b"-9223372036854775808", b"9223372036854775808", b"253402300800000", b"4102444799999",
    b"4102444800000", b"[1]", b'{"a":1}', HUGE,
)  # fmt: skip
NUMBERS = {  # header to column, type's bounds, bounds of what is stored
    "push_interval_ms": (1, 86_400_000),
    "subscription_id": (-(2**31), 2**31 - 1),
    "client_port": (0, 65_535),
    "broker_id": (-(2**31), 2**31 - 1),
    "correlation_id": (-(2**31), 2**31 - 1),
    "record_version": (-(2**31), 2**31 - 1),
    "payload_bytes": (0, 2**31 - 1),
    "received_at_ms": (0, LATEST_MS - 1),
}
TEXTS = ("client_id", "content_type", "compression_type", "principal", "listener", "security_protocol",
         "client_address", "client_software_name", "client_software_version", "cluster_id", "dropped")  # fmt: skip
# Any bits of 64, the edges of what is accepted, and what only looks like a number.
MILLIS = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.sampled_from([0, -1, LATEST_MS - 1, LATEST_MS, 2**63 - 1, -(2**63), 2**64])
)


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    return quick_session(spark)


def answers(
    session: SparkSession, records: list[dict[str, Any]], transformation: Callable[[DataFrame], DataFrame]
) -> list[dict[str, Any]]:
    """The rows that one batch of these records gives, by offset."""
    for offset, each in enumerate(records):
        each["offset"] = offset
    table = pa.Table.from_pylist(records, SCHEMA)
    rows: pa.Table = transformation(session.createDataFrame(table)).toArrow()
    return sorted(rows.to_pylist(), key=lambda row: int(row["offset"]))


def pushes_of(session: SparkSession, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of `pushes` that the records become, by offset: in Spark and in the task after it."""
    landed = answers(session, records, lambda frame: to_landed(frame, "s"))
    rows: list[dict[str, Any]] = to_pushes(pa.RecordBatch.from_pylist(landed, LANDED_SCHEMA), UNCHANGED).to_pylist()
    return rows


def to_receiver_health(records: DataFrame, source: str) -> DataFrame:
    return with_receiver_health(records, source, F.lit(True)).select("receiver_health.*")


def to_quota_samples(records: DataFrame, source: str) -> DataFrame:
    return with_quota_sample(records, source, None, F.lit(True)).select("quota_sample.*")


def push(headers: dict[str, bytes]) -> dict[str, Any]:
    fields: dict[str, Any] = {"client_id": None, "terminating": None} | headers
    return record(0, b"x", **fields)


def number(text: bytes | None, bounds: tuple[int, int]) -> int | None:
    digits = None if text is None else re.fullmatch(rb"[\x00-\x20\x7f]*([+-]?[0-9]+)[\x00-\x20\x7f]*", text)
    if digits is None or len(digits[1]) > 4000:
        return None
    return value if bounds[0] <= (value := int(digits[1])) <= bounds[1] else None


def time(ms: int | None) -> datetime | None:
    return None if ms is None else EPOCH + timedelta(milliseconds=ms)


def check_push(row: dict[str, Any], headers: dict[str, bytes], timestamp: datetime | None) -> None:
    """A row of `pushes` by the contract: a header that isn't what it should be is NULL, the push itself counts."""
    received = time(number(headers.get("received_at_ms"), NUMBERS["received_at_ms"]))
    expected = {name: number(headers.get(name), bounds) for name, bounds in NUMBERS.items()}
    del expected["received_at_ms"]
    if expected["payload_bytes"] is None:
        expected["payload_bytes"] = len(row["payload"])
    assert {name: row[name] for name in expected} == expected
    assert row["received_at"] == received
    assert row["landed_at"] == (timestamp or received or EPOCH)
    for name in TEXTS:
        text = headers.get(name)
        if text is None:
            assert row[name] is None
        elif text.isascii():
            assert row[name] == text.decode()[:1024]
        else:
            assert len(row[name]) <= 1024
    assert row["client_instance_id"] == GOOD_ID
    if headers.get("record_version", b"1") != b"1" and headers["record_version"].isascii():
        assert row["reject_reason"] == "INVALID_RECORD"


def test_each_header_with_each_hostile_text(session: SparkSession) -> None:
    cases = [(name, text) for name in (*NUMBERS, *TEXTS) for text in HOSTILE_TEXT]
    records = [push({name: text}) for name, text in cases]
    rows = pushes_of(session, records)
    assert len(rows) == len(cases)
    for row, (name, text) in zip(rows, cases, strict=True):
        check_push(row, {name: text}, LANDED_AT)


def test_headers_that_repeat_or_are_missing_and_keys_that_are_nothing(session: SparkSession) -> None:
    twice = record(0, b"", received_at_ms="1")
    twice["headers"] += [{"key": "received_at_ms", "value": b"9" * 19}, {"key": "", "value": b"1"}]
    no_headers = record(0, b"") | {"headers": None}
    no_value = record(0, b"")
    no_value["headers"].append({"key": "received_at_ms", "value": None})
    bad_key = record(0, b"", client_instance_id=None) | {"key": b"\xff" * 22}
    long_key = record(0, b"", client_instance_id=None) | {"key": HUGE}
    rows = pushes_of(session, [twice, no_headers, no_value, bad_key, long_key])
    assert [row["received_at"] for row in rows] == [None] * 5
    assert [row["reject_reason"] for row in rows] == [None, None, None, "INVALID_REQUEST", "INVALID_REQUEST"]
    assert len(rows[4]["reject_detail"]) < 200


@pytest.mark.parametrize("transformation", [to_landed, to_receiver_health, to_quota_samples])
def test_landing_times_that_no_reader_can_hold_are_left_out(
    session: SparkSession, transformation: Callable[..., DataFrame]
) -> None:
    bits = [-(2**63), -1, 0, LATEST_MS * 1000 - 1000, LATEST_MS * 1000, 253402300800 * 10**6, 2**63 - 1]
    frame = session.createDataFrame([(bit,) for bit in bits], "micros bigint").selectExpr(
        f"CAST('{GOOD_ID}' AS BINARY) AS key", "CAST('' AS BINARY) AS value", "'t' AS topic", "0 AS partition",
        "micros AS offset", "timestamp_micros(micros) AS timestamp", "0 AS timestampType",
        "array(struct('received_at_ms' AS key, CAST('5000' AS BINARY) AS value)) AS headers",
    )  # fmt: skip
    rows = {row["offset"]: row["landed_at"] for row in transformation(frame, "s").toArrow().to_pylist()}
    otherwise = time(5000 if transformation is to_landed else 0)
    good = {0: EPOCH, bits[3]: time(LATEST_MS - 1)}
    assert rows == {bit: good.get(bit, otherwise) for bit in bits}


# --- statuses

STATUS = {"version": 1, "cluster_id": "c", "broker_id": 3, "time_ms": 2000, "started_ms": 1000, "received": 9,
          "landed": 7, "dropped": {"queue_full": 2}, "queue_depth": 0}  # fmt: skip
HOSTILE_JSON: tuple[str, ...] = (
    "-1", "1.5", "1e400", "NaN", "-Infinity", '"text"', '"NaN"', "true", "[]", "[1]", "{}", '{"a": 1}', '{"a": null}',
    '{"a": -1}', '{"a": 9223372036854775807, "b": 9223372036854775807}', '{"a": "1"}', '{"a": {"b": 1}}',
    "2147483648", "9223372036854775807", "-9223372036854775808", "9223372036854775808", "1" * 5000,
    "253402300800000", "4102444800000", '"\\u0000\\u001b[2J"', "[" * 100 + "]" * 100, "[" * 5000 + "]" * 5000,
    '{"a":' * 5000 + "1" + "}" * 5000, '"' + "x" * (1 << 20) + '"',
)  # fmt: skip
WHOLE = (  # records that aren't JSON objects of their kind
    b"", b" ", b"null", b"1", b'"x"', b"[]", b'[{"version": 1}]', b"{", b'{"version"', b"\xff\xfe", b"\x00" * 9,
    b"[" * 100_000, b'{"a":' * 100_000, b"9" * (1 << 20), b"\xef\xbb\xbf{}",
)  # fmt: skip


def json_record(value: bytes | None) -> dict[str, Any]:
    return record(0, value) | {"headers": []}


def with_field(base: dict[str, Any], name: str, text: str) -> bytes:
    return json.dumps(base | {name: "@"}).replace('"@"', text).encode()


def test_each_field_of_a_status_with_each_hostile_value(session: SparkSession) -> None:
    cases = [(name, text) for name in STATUS for text in HOSTILE_JSON]
    records = [json_record(with_field(STATUS, name, text)) for name, text in cases]
    records += [json_record(value) for value in WHOLE] + [json_record(None)]
    rows = answers(session, records, lambda frame: to_receiver_health(frame, "s"))
    assert len(rows) == len(records)
    for row, (name, text) in zip(rows, cases, strict=False):
        expected = status_row(STATUS | {name: parsed(text)})
        assert {key: row[key] for key in expected} == expected, (name, text[:80])
        assert (row["problem"] is None) == (row["received"] is not None), (name, text[:80])
    for row in rows[len(cases) :]:
        assert (row["received"], row["dropped_total"]) == (None, None)
        assert row["problem"] is not None
        assert len(row["problem"]) <= 1000


def parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return UNREADABLE


UNREADABLE = object()


def status_row(status: dict[str, Any]) -> dict[str, Any]:
    """Columns of `receiver_health` by the contract."""

    def whole(value: Any, least: int, most: int) -> bool:
        return value is None or (isinstance(value, int) and not isinstance(value, bool) and least <= value <= most)

    dropped = status.get("dropped")
    counts = ("received", "landed", "queue_depth", "quota_samples_landed", "quota_samples_lost")
    sound = (
        status.get("version") == 1 and not isinstance(status["version"], bool | float)
        and status.get("received") is not None
        and all(whole(status.get(name), 0, MAX_COUNT) for name in counts)
        and all(whole(status.get(name), 0, LATEST_MS - 1) for name in ("time_ms", "started_ms"))
        and whole(status.get("broker_id"), -(2**31), 2**31 - 1)
        and (dropped is None or isinstance(dropped, dict))
        and all(n is not None and whole(n, 0, MAX_COUNT) for n in (dropped or {}).values())
        and status.get("cluster_id") is not UNREADABLE
    )  # fmt: skip
    if not sound:
        return dict.fromkeys((*counts, "dropped_total", "broker_id", "reported_at", "started_at"))
    return {name: status.get(name) for name in counts} | {
        "dropped_total": None if dropped is None else sum(dropped.values()),
        "broker_id": status.get("broker_id"),
        "reported_at": time(status.get("time_ms")),
        "started_at": time(status.get("started_ms")),
        "problem": None,
    }


# --- quota samples

SAMPLE = {"version": 1, "cluster_id": "c", "broker_id": 3, "time_ms": 2000, "quota_type": "fetch", "user": "u",
          "client_id": "x", "observed_rate": 5.0, "quota_limit": 10.0, "throttle_time_ms": 1.5}  # fmt: skip


def sample_row(sample: dict[str, Any]) -> dict[str, Any] | None:
    """The row of `quota_samples` by the contract; None: it belongs in quarantine."""

    def double(value: Any) -> float | None:
        return None if value is None or not math.isfinite(value) else float(value)

    numbers = ("observed_rate", "quota_limit", "throttle_time_ms")
    if any(isinstance(sample.get(name), bool) or not isinstance(sample.get(name), int | float | None)
           for name in numbers):  # fmt: skip
        return None
    rate, limit, throttle = (double(sample.get(name)) for name in numbers)
    whole = all(
        type(sample.get(name)) is int and least <= sample[name] <= most
        for name, least, most in (("version", 1, 1), ("broker_id", -(2**31), 2**31 - 1), ("time_ms", 0, LATEST_MS - 1))
    )
    signed = [sample.get(name) for name in ("quota_limit", "throttle_time_ms")]
    if (
        not whole
        or sample.get("quota_type") not in ("produce", "fetch", "request")
        or any(value is not None and value < 0 for value in signed)
        or (rate is None and throttle is None)
    ):
        return None
    return {"time": time(sample["time_ms"]), "broker_id": sample["broker_id"], "observed_rate": rate,
            "quota_limit": limit, "throttle_time_ms": throttle, "quota_type": sample["quota_type"]}  # fmt: skip


def quota_answers(
    session: SparkSession, records: list[dict[str, Any]]
) -> tuple[dict[int, dict[str, Any]], dict[int, str]]:
    rows = answers(session, records, lambda frame: to_quota_samples(frame, "s"))
    good = {row["offset"]: row for row in rows if row["reason"] is None}
    return good, {row["offset"]: row["detail"] for row in rows if row["reason"] is not None}


def test_each_field_of_a_quota_sample_with_each_hostile_value(session: SparkSession) -> None:
    cases = [(name, text) for name in SAMPLE for text in HOSTILE_JSON]
    records = [json_record(with_field(SAMPLE, name, text)) for name, text in cases]
    records += [json_record(value) for value in WHOLE] + [json_record(None)]
    good, bad = quota_answers(session, records)
    assert sorted([*good, *bad]) == list(range(len(records)))
    for offset, (name, text) in enumerate(cases):
        if name in ("cluster_id", "user", "client_id"):
            assert offset in bad or len(good[offset][name]) <= 1024
            continue
        value = parsed(text)
        expected = None if value is UNREADABLE else sample_row(SAMPLE | {name: value})
        if text in ("NaN", '"NaN"', "-Infinity", "1e400") and name in (
            "observed_rate",
            "quota_limit",
            "throttle_time_ms",
        ):
            continue  # Spark reads some as infinity, some as damage: either way no number is stored
        assert (offset in good) == (expected is not None), (name, text[:80], bad.get(offset))
        if expected is not None:
            assert {key: good[offset][key] for key in expected} == expected, (name, text[:80])
    assert all(offset in bad for offset in range(len(cases), len(records)))
    assert all(len(detail) < 200 for detail in bad.values())


def test_a_long_name_is_cut_as_in_pushes(session: SparkSession) -> None:
    name = "ü" * 3000
    records = [json_record(json.dumps(SAMPLE | {"user": quote(name), "client_id": name}).encode()),
            json_record(json.dumps(SAMPLE | {"user": "%ff%fe%zz"}).encode()),
            json_record(json.dumps(SAMPLE | {"user": "%ff"}).encode())]  # fmt: skip
    good, _ = quota_answers(session, records)
    assert (good[0]["user"], good[0]["client_id"]) == (name[:1024], name[:1024])
    assert good[1]["user"] == "%ff%fe%zz"
    assert good[2]["user"] == unquote_to_bytes("%ff").decode("utf-8", "replace")


# --- all fields at once

SMALL = st.one_of(st.none(), st.integers(-5, 5), st.floats(allow_nan=False, allow_infinity=False), st.booleans(),
                  st.text(max_size=5), MILLIS)  # fmt: skip
JSON_VALUE = st.one_of(SMALL, st.dictionaries(st.text(max_size=3), SMALL, max_size=3), st.lists(SMALL, max_size=2))


def mostly(good: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """A good record of which up to three fields are replaced, and some are missing."""
    return st.builds(
        lambda changed, missing: {key: value for key, value in (good | changed).items() if key not in missing},
        st.dictionaries(st.sampled_from(sorted(good)), JSON_VALUE, max_size=3),
        st.sets(st.sampled_from(sorted(good)), max_size=1),
    )


HEADERS = st.dictionaries(
    st.sampled_from([*NUMBERS, *TEXTS]),
    st.one_of(MILLIS.map(lambda n: str(n).encode()), st.binary(max_size=20), st.sampled_from(HOSTILE_TEXT[:-1])),
    max_size=6,
)


@pytest.mark.slow
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.large_base_example,
                                                  HealthCheck.data_too_large, HealthCheck.too_slow])  # fmt: skip
@given(
    pushes=st.lists(HEADERS, min_size=20, max_size=60),
    statuses=st.lists(mostly(STATUS | {"quota_samples_lost": 1}), min_size=20, max_size=60),
    quotas=st.lists(mostly(SAMPLE), min_size=20, max_size=60),
)
def test_whole_batches_by_the_contract(
    session: SparkSession,
    pushes: list[dict[str, bytes]],
    statuses: list[dict[str, Any]],
    quotas: list[dict[str, Any]],
) -> None:
    records = [push(headers) for headers in pushes]
    rows = pushes_of(session, records)
    for row, headers in zip(rows, pushes, strict=True):
        check_push(row, headers, LANDED_AT)
    records = [json_record(json.dumps(status).encode()) for status in statuses]
    for row, status in zip(
        answers(session, records, lambda frame: to_receiver_health(frame, "s")), statuses, strict=True
    ):
        expected = status_row(status)
        assert {key: row[key] for key in expected} == expected
        assert (row["problem"] is None) == (row["received"] is not None)
    good, bad = quota_answers(session, [json_record(json.dumps(sample).encode()) for sample in quotas])
    for offset, sample in enumerate(quotas):
        stored = sample_row(sample)
        assert (offset in good) == (stored is not None), bad.get(offset)
        if stored is not None:
            assert {key: good[offset][key] for key in stored} == stored


def test_the_job_rejects_what_check_landing_calls_an_error(session: SparkSession) -> None:
    """Of all that is decided before a value is read."""
    cases = [(changes, severity, field) for changes, severity, field, _ in MISTAKES if changes.get("time", 0) == 0]
    records = []
    for changes, _, _ in cases:
        own = made(**changes)
        headers = [{"key": name, "value": value} for name, value in own.headers]
        records.append(record(0, own.value) | {"key": own.key, "headers": headers})
    rejecting = {name for name, header in contract.HEADERS.items() if header.rejects} - {"compression_type"}
    rows = pushes_of(session, records)
    for row, (changes, severity, field) in zip(rows, cases, strict=True):
        is_rejected = severity == "error" and (field in rejecting or (field == "value" and changes["value"] is None))
        assert (row["reject_reason"] is not None) == is_rejected, changes
