"""The headers of landing records as columns, and the records that are rejected before a value is read."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import pyarrow as pa
import pytest

from kafka_telemetry_lake.pipelines.ingest.landing_rows import to_pushes
from kafka_telemetry_lake.pipelines.lake.privacy import UNCHANGED, Privacy
from kafka_telemetry_lake.udfs.landing.headers import Headers, valid_text, whole_numbers
from tests.support.landed import RAW, landed
from tests.support.landing_records import GOOD_ID, record

LISTS = RAW.field("headers").type


def headers(*records: Sequence[tuple[str | None, bytes | None]] | None) -> Headers:
    rows = [None if each is None else [{"key": key, "value": value} for key, value in each] for each in records]
    return Headers(pa.array(rows, LISTS))


def pushes(*records: dict[str, Any], privacy: Privacy = UNCHANGED) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = to_pushes(landed(records), privacy).to_pylist()
    return rows


def test_the_last_of_repeated_headers_counts_and_unknown_ones_do_not() -> None:
    given = headers(
        [("client_id", b"first"), ("client_id", b"last"), ("x", b"1"), (None, b"2")],
        None,
        [],
        [("client_id", b"a"), ("client_id", None)],
        [("listener", b"L"), ("client_id", b"")],
    )
    assert given.text("client_id").to_pylist() == ["last", None, None, None, ""]
    assert given.text("listener").to_pylist() == [None, None, None, None, "L"]


def test_headers_of_a_part_of_a_batch() -> None:
    rows = [[{"key": "client_id", "value": b"%d" % number}] * number for number in range(6)]
    part = Headers(pa.array(rows, LISTS).slice(2, 3))
    assert part.text("client_id").to_pylist() == ["2", "3", "4"]
    assert Headers(pa.array([], LISTS)).text("client_id").to_pylist() == []


def test_entries_below_a_missing_list_are_nobodys() -> None:
    entries = pa.array([{"key": "client_id", "value": b"%d" % number} for number in range(4)], LISTS.value_type)
    given = pa.ListArray.from_arrays(pa.array([0, 1, 3, 4], pa.int32()), entries, mask=pa.array([False, True, False]))
    assert Headers(given).text("client_id").to_pylist() == ["0", None, "3"]


def test_pushes_do_not_keep_large_headers_of_their_records_in_memory() -> None:
    def is_copy(header: str) -> bool:
        records = landed(record(offset, b"payload" * 10, unknown=header) for offset in range(5))
        stored = to_pushes(records, UNCHANGED)["payload"]
        return bool(stored.buffers()[-1].address != records["value"].buffers()[-1].address)

    assert [is_copy("x"), is_copy("x" * 100_000)] == [False, True]


def test_bytes_that_are_no_utf8_are_replaced_and_long_texts_cut() -> None:
    long = "ü" * 2000
    given = headers([("client_id", b"a\xffb")], [("client_id", long.encode())], [("client_id", b"\xe2\x82")])
    assert given.text("client_id").to_pylist() == ["a\ufffdb", "ü" * 1024, "\ufffd"]
    assert given.whole("client_id").to_pylist()[1] == long
    assert valid_text(pa.array([None, b"\x00"], pa.binary())).to_pylist() == [None, "\0"]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0), ("-0", 0), ("007", 7), (" +7\t\x7f", 7), ("\x001\x1f", 1), ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)), ("9223372036854775808", None), ("0" * 5000 + "1", 1), ("9" * 5000, None),
        ("", None), (" ", None), ("+", None), ("1.5", None), ("1e3", None), ("0x10", None), ("1\n2", None),
        ("\u0661", None), ("\u20031", None), ("--1", None), ("+-1", None), ("NaN", None),
    ],
)  # fmt: skip
def test_a_whole_number_is_digits_within_blanks(text: str, number: int | None) -> None:
    assert whole_numbers(pa.array([text, None, "5"])).to_pylist() == [number, None, 5]


def test_numbers_beyond_the_bounds_of_the_contract_are_missing() -> None:
    texts = (b"0", b"1", b"86400000", b"86400001", b"-1", b"2147483648")
    given = headers(*([("push_interval_ms", text), ("broker_id", text)] for text in texts))
    assert given.number("push_interval_ms", pa.int32()).to_pylist() == [None, 1, 86_400_000, None, None, None]
    assert given.number("broker_id", pa.int32()).to_pylist() == [0, 1, 86_400_000, 86_400_001, -1, None]


OTHER_ID = "B" * 22
REJECTED: dict[str, dict[str, Any]] = {
    "no client instance id in header or key": {"client_instance_id": None, "key": None},
    f"client instance id differs: header '{OTHER_ID}', key '{GOOD_ID}'": {"client_instance_id": OTHER_ID},
    "the client instance id is the zero UUID": {"client_instance_id": None, "key": "A" * 22},
    f"not a client instance id of 22 base64 characters: '{'x' * 100}'": {"client_instance_id": None, "key": "x" * 999},
    f"not a client instance id of 22 base64 characters: '{GOOD_ID}\n'": {
        "client_instance_id": None, "key": f"{GOOD_ID}\n",
    },
    "landing record of unknown version '2'": {"record_version": "2", "content_type": "x"},
    "content type 'text/plain'": {"content_type": "text/plain"},
    "null value": {"value": None},
}  # fmt: skip


@pytest.mark.parametrize("detail", REJECTED)
def test_a_record_that_is_no_push_says_why(detail: str) -> None:
    changes = dict(REJECTED[detail])
    bad = record(1, changes.pop("value", b"x"), **{"key": GOOD_ID} | changes)
    before, row, after = pushes(record(0, b"a"), bad, record(2, b"b"))
    is_request = "client instance id" in detail
    reason = "INVALID_REQUEST" if is_request else "INVALID_RECORD"
    assert (row["reject_reason"], row["reject_detail"]) == (reason, detail)
    assert row["client_instance_id"] == (None if is_request else GOOD_ID)
    assert [(each["reject_reason"], each["reject_detail"]) for each in (before, after)] == [(None, None)] * 2


@pytest.mark.parametrize(
    "content_type",
    [
        "OTLP",
        "otlp",
        " o t\tl\vp",
        "application/x-protobuf; type=otlp+metrics",
        "Application/X-Protobuf;type=otlp+metrics-v1",
    ],
)
def test_forms_of_otlp(content_type: str) -> None:
    (row,) = pushes(record(0, b"x", content_type=content_type))
    assert (row["reject_reason"], row["content_type"]) == (None, content_type)


def test_a_push_whose_value_was_dropped_is_a_push() -> None:
    (row,) = pushes(record(0, None, dropped="too_large", payload_bytes="9"))
    assert (row["reject_reason"], row["payload"], row["payload_bytes"], row["dropped"]) == (None, None, 9, "too_large")


def test_the_size_is_the_receivers_or_the_values() -> None:
    rows = pushes(record(0, b"four"), record(1, b"four", payload_bytes="7"), record(2, b"four", payload_bytes="-1"))
    assert [row["payload_bytes"] for row in rows] == [4, 7, 4]


@pytest.mark.parametrize(
    ("text", "is_last"), [("true", True), ("TRUE", True), ("1", False), (" true", False), (None, False)]
)
def test_a_push_is_terminating_if_it_says_true(text: str | None, is_last: bool) -> None:
    (row,) = pushes(record(0, b"x", terminating=text))
    assert row["terminating"] is is_last


def test_principals_and_addresses_are_stored_as_asked() -> None:
    given = [
        record(0, b"x", principal="User:a", client_address="10.0.0.1"), record(1, b"x", principal="User:a"),
        record(2, b"x"),
    ]  # fmt: skip

    def stored(privacy: Privacy) -> list[tuple[str | None, str | None]]:
        return [(row["principal"], row["client_address"]) for row in pushes(*given, privacy=privacy)]

    user, address = (sha256(f"k\0{text}".encode()).hexdigest()[:32] for text in ("User:a", "10.0.0.1"))
    assert stored(UNCHANGED) == [("User:a", "10.0.0.1"), ("User:a", None), (None, None)]
    assert stored(Privacy("hash", "k")) == [(user, address), (user, None), (None, None)]
    assert stored(Privacy("drop")) == [(None, None)] * 3
