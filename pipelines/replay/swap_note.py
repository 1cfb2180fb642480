"""The note of a swap: a replay has written all its rows, and each table is about to get them in one commit."""

from __future__ import annotations

from kafka_telemetry_lake.pipelines.lake.durable import read_json
from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of

SWAP = "points-swap.json"  # in the folder of checkpoints


def is_swapping(checkpoints: str) -> bool:
    """Whether a replay was interrupted in its swap."""
    return read_json(*filesystem_of(f"{checkpoints}/{SWAP}")) is not None
