"""How the proxy's benchmark fetches: the request's bytes, and the records in its answer."""

from __future__ import annotations

import struct

from benchmarks.proxy_load import fetch_request, fetched_bytes, interval_ms


def test_a_fetch_of_the_first_partition_from_its_beginning() -> None:
    request = fetch_request("work")
    assert struct.unpack_from(">ihhih5s", request) == (len(request) - 4, 1, 4, 7, 5, b"fetch")
    replica, wait, least, most, isolation, topics = struct.unpack_from(">iiiibi", request, 19)
    assert (replica, wait, least, most, isolation, topics) == (-1, 0, 1, 1 << 20, 0, 1)
    assert struct.unpack_from(">h4siiqi", request, 40) == (4, b"work", 1, 0, 0, 4096)
    assert len(request) == 40 + 26


def test_the_bytes_of_its_records() -> None:
    head = struct.pack(">iii", 7, 0, 1) + struct.pack(">h4sii", 4, b"work", 1, 0)
    for aborted in (-1, 0):
        answer = head + struct.pack(">hqqii", 0, 9, 9, aborted, 3) + b"abc"
        assert fetched_bytes(answer, "work") == 3


def test_so_many_clients_push_300_times_a_second() -> None:
    assert (interval_ms(30), interval_ms(9_600)) == (100, 32_000)
