"""Layout version 1, value by value: the file stays as it is, and every later package must read it.

`tests/data/state-v1.bin` holds two clients that sent the same three pushes: two cumulative sums and a histogram, then
an exponential histogram and a DELTA sum, then, after a gap, a DELTA sum. Its tables but `clients` aren't sorted.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kafka_telemetry_lake.udfs.conversion.state import SCHEMAS, ShardState

DATA = (Path(__file__).parents[2] / "data" / "state-v1.bin").read_bytes()
FIRST, SECOND = -7883369331782529959, -1160760173734859311
START = 1_800_000_000_000_000_000
SECONDS = 1_000_000_000


def rows(name: str, client: int) -> list[dict[str, Any]]:
    """Rows of one client, without the column that names it."""
    read = getattr(ShardState.from_bytes(DATA), name).to_pylist()
    return [{key: value for key, value in row.items() if key != "client"} for row in read if row["client"] == client]


def test_v1_begins_with_its_version() -> None:
    assert DATA[:4] == bytes([1, 0, 0, 0])


def test_v1_is_read_sorted_by_client() -> None:
    state = ShardState.from_bytes(DATA)
    sizes = {"clients": 1, "recent_pushes": 3, "lost_intervals": 1, "numbers": 2, "distributions": 2, "budgets": 0}
    for name in SCHEMAS:
        assert getattr(state, name).schema == SCHEMAS[name]
        assert getattr(state, name)["client"].to_pylist() == [FIRST] * sizes[name] + [SECOND] * sizes[name]


def test_v1_clients() -> None:
    expected = {
        "partition": -3114452267070408828,
        "landed_at": 1_800_000_003_000_000,
        "terminating": False,
        "evicted": False,
        "temporalities": 3,
        "last_temporality": 1,
        "last_time": START + 6 * SECONDS,
        "last_landed_at": 1_800_000_003_000_000,
        "heartbeat_at": 0,
        "delta_time": START + 6 * SECONDS,
        "tombstone_time": 0,
        "tombstone_until": 0,
        "principal": 0,
        "place": 0,
    }
    for client in (FIRST, SECOND):
        assert rows("clients", client) == [expected]


def test_v1_recent_pushes() -> None:
    digests = (-9118265689612746744, -8682731485697962841, 8807554482792280749)
    pushes = (5362177411201284978, -7673857091136326998, -2489973272815046071)
    for client in (FIRST, SECOND):
        assert rows("recent_pushes", client) == [
            {"digest": digest, "push": push, "last_time": START + second * SECONDS}
            for digest, push, second in zip(digests, pushes, (1, 2, 6), strict=True)
        ]


def test_v1_lost_intervals() -> None:
    for client in (FIRST, SECOND):
        assert rows("lost_intervals", client) == [{"start": START + 2 * SECONDS, "end": START + 5 * SECONDS}]


def test_v1_numbers() -> None:
    series = {
        FIRST: (4636424021730341079, 6207698091483760859),
        SECOND: (5856302575383847063, 6606178304206016003),
    }
    times = {"start": START, "time": START + SECONDS, "delta_since": False, "is_delta": False, "ahead": False}
    for client, (whole, double) in series.items():
        assert rows("numbers", client) == [
            {"series": whole, "value": 5, "is_int": True} | times,
            {"series": double, "value": 0x3FF8_0000_0000_0000, "is_int": False} | times,  # 1.5
        ]


def test_v1_distributions() -> None:
    series = {
        FIRST: (-1373671243110539679, -9063782374475192367),
        SECOND: (-118173717593280278, -2026529714020494862),
    }
    common = {
        "start": START,
        "delta_since": False,
        "is_delta": False,
        "ahead": False,
        "scale": 0,
        "zero_threshold": 0.0,
        "negative_offset": 0,
    }
    for client, (explicit, exponential) in series.items():
        assert rows("distributions", client) == [
            common
            | {
                "series": explicit,
                "time": START + SECONDS,
                "kind": 2,
                "count": 3,
                "sum": 3.0,
                "zero_count": 0,
                "positive_offset": 0,
                "bounds": [1.0, 2.0],
                "positive": [1, 2, 0],
                "negative": [],
            },
            common
            | {
                "series": exponential,
                "time": START + 2 * SECONDS,
                "kind": 3,
                "count": 8,
                "sum": None,
                "zero_count": 1,
                "positive_offset": -3,
                "bounds": [],
                "positive": [1, 2],
                "negative": [4],
            },
        ]


def test_v1_is_what_it_was_after_it_is_written_anew() -> None:
    state = ShardState.from_bytes(DATA)
    again = ShardState.from_bytes(state.to_bytes())
    for name in SCHEMAS:
        assert getattr(again, name).equals(getattr(state, name))
