"""Both engines over the same pushes: made-up ones, cut, shuffled and redelivered, and whole tables to compare."""

from __future__ import annotations

import base64
import gzip
import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import lz4.frame
import pyarrow as pa
import snappy
import zstandard

from kafka_telemetry_lake.pipelines.tables.operator import BROKER_CONNECTIONS, QUOTA_SAMPLES, TABLES
from kafka_telemetry_lake.udfs.rows import METRIC_ROLLUPS
from tests.oracle.model import Push
from tests.oracle.scenarios import scenario
from tests.oracle.wire import EPOCH
from tests.support.lake_tables import table
from tests.support.landing_records import record, write

Record = dict[str, Any]
Rows = dict[str, pa.Table]  # by table
CODECS = {
    "none": bytes,
    "gzip": lambda payload: gzip.compress(payload, mtime=0),
    "lz4": lz4.frame.compress,
    "snappy": snappy.compress,
    "zstd": zstandard.compress,
}
# Rollups may be in several rows of a window. What each of their numbers is when such rows become one.
KEYS = METRIC_ROLLUPS.names[: METRIC_ROLLUPS.names.index("points")]
WIDEST = {"value_min": min, "value_max": max, "landed_at": max}


def made_up(random: Random, scenarios: int) -> list[Record]:
    """Landing records of some scenarios of the oracle, each with clients and partitions of its own; and bad ones."""
    records = []
    for number in range(scenarios):
        records += [_landing(push, number, random) for push in scenario(random)]
    clients = [each["key"].decode() for each in records[:3]]
    for offset, client in enumerate(clients):
        records += [
            record(900 + 10 * offset, b"\xff not a message", client, compression_type="none"),
            record(901 + 10 * offset, b"\xff not a frame", client, compression_type="zstd"),
            record(902 + 10 * offset, b"x", client, compression_type="brotli"),
            record(903 + 10 * offset, None, client),
            record(904 + 10 * offset, b"", client),
            record(905 + 10 * offset, b"x", None, client_instance_id="not an id"),
            record(906 + 10 * offset, b"{}", None) | {"topic": "client-telemetry-status"},
            record(907 + 10 * offset, b"{}", None) | {"topic": "client-quotas"},
        ]
    return records


def _landing(push: Push, number: int, random: Random) -> Record:
    codec = random.choice(list(CODECS))
    digest = hashlib.blake2b(f"{number} {push.client_instance_id}".encode(), digest_size=16).digest()
    client = base64.urlsafe_b64encode(digest)[:22].decode()
    headers = {"cluster_id": push.cluster_id, "compression_type": codec, "push_interval_ms": "1000"}
    headers |= {"client_id": push.client_id, "terminating": str(push.terminating).lower()}
    landed = record(push.offset, CODECS[codec](push.payload), client, **headers)
    place = {"partition": 2 * number + push.partition, "timestamp": EPOCH + timedelta(microseconds=push.landed_at_us)}
    return landed | place


def rounds(random: Random, records: Sequence[Record], number: int) -> list[list[Record]]:
    """The records in the order of landing, cut into some rounds; shuffled within each; some of earlier ones again."""
    ordered = sorted(records, key=lambda each: (each["timestamp"], each["topic"], each["partition"], each["offset"]))
    cuts = sorted(random.sample(range(1, len(ordered)), number - 1))
    parts = [ordered[first:last] for first, last in zip([0, *cuts], [*cuts, len(ordered)], strict=True)]
    result, seen = [], list[Record]()
    for part in parts:
        seen += part
        result.append([*part, *random.sample(seen, len(seen) // 4)])
        random.shuffle(result[-1])
    return result


def land(folder: Path, number: int, records: Sequence[Record]) -> None:
    """A round's records in two files."""
    half = len(records) // 2
    write(folder, f"{number}-a.parquet", list(records[:half]))
    write(folder, f"{number}-b.parquet", list(records[half:]))


@dataclass(frozen=True)
class Compared:
    """How many rows were compared of each table, and where both lakes differ; empty: nowhere."""

    rows: dict[str, int]
    differences: dict[str, list[str]]


def stored(lake: Path) -> Rows:
    """All rows of all tables that an engine writes."""
    there = [each.name for each in (*TABLES, BROKER_CONNECTIONS, QUOTA_SAMPLES) if (lake / each.name).exists()]
    return {name: table(lake, name) for name in there}


def compare(one: Rows, other: Rows) -> Compared:
    """Compare all rows and columns of tables, in whatever order and files they are."""
    rows, differences = dict[str, int](), dict[str, list[str]]()
    for name in one.keys() | other.keys():
        bags = [_bag(rows_of[name], name) if name in rows_of else Counter[str]() for rows_of in (one, other)]
        rows[name] = bags[0].total()
        if bags[0] != bags[1]:
            first, second = bags
            only = [*(f"first: {row}" for row in first - second), *(f"second: {row}" for row in second - first)]
            differences[name] = only[:10]
    return Compared(dict(sorted(rows.items())), differences)


def _bag(stored_rows: pa.Table, name: str) -> Counter[str]:
    names = sorted(stored_rows.column_names)
    rows = stored_rows.to_pylist()
    if name.startswith("metric_rollups"):
        rows = _summed(rows)
    return Counter(repr([_plain(row[each]) for each in names]) for row in rows)


def _summed(rows: Sequence[Record]) -> list[Record]:
    """One row for each window and key."""
    summed: dict[tuple[Any, ...], Record] = {}
    for row in rows:
        key = tuple(row[name] for name in KEYS)
        if key not in summed:
            summed[key] = dict(row)
            continue
        own = summed[key]
        exact = own["increase_int"] is not None and row["increase_int"] is not None
        for name in set(row) - set(KEYS) - {"landed_date"}:
            values = [each for each in (own[name], row[name]) if each is not None]
            own[name] = WIDEST.get(name, sum)(values) if values else None
        if not exact:
            own["increase_int"] = None
    return list(summed.values())


def _plain(value: Any) -> Any:
    """Floats in twelve digits: sums of them depend on their order."""
    if isinstance(value, float):
        return f"{value:.12g}"
    return sorted(value) if isinstance(value, list) and value and isinstance(value[0], tuple) else value
