"""Which engine writes a lake. Each has its own state, so a lake belongs to the first one for good.

A property of table `pushes` says so, where `DESCRIBE DETAIL` and each reader of Delta logs shows it.
"""

from __future__ import annotations

from typing import Literal

from deltalake import DeltaTable

from kafka_telemetry_lake.pipelines.lake.errors import OtherEngineError
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES

Engine = Literal["fast", "spark"]
PROPERTY = "kafka_telemetry_lake.engine"
NAMES: dict[Engine, str] = {"fast": "the fast engine", "spark": "the Spark engine"}


def engine_of(pushes: DeltaTable) -> Engine:
    """The engine of the lake that this table `pushes` is of."""
    return "spark" if pushes.metadata().configuration.get(PROPERTY) == "spark" else "fast"


def engine_of_lake(lake: str) -> Engine:
    """The same, of a lake that may lack the table."""
    uri = PUSHES.uri(lake)
    return engine_of(DeltaTable(uri)) if DeltaTable.is_deltatable(uri) else "fast"


def check_engine(lake: str, engine: Engine) -> None:
    """Raise ``OtherEngineError`` if a lake, should it exist, belongs to another engine. Changes nothing."""
    if DeltaTable.is_deltatable(PUSHES.uri(lake)):
        _must_claim(lake, engine, DeltaTable(PUSHES.uri(lake)))


def claim_engine(lake: str, engine: Engine, pushes: DeltaTable) -> None:
    """Let a lake without pushes belong to an engine.

    Args:
        pushes: its table, open.

    Raises:
        OtherEngineError: it belongs to another one.
    """
    if _must_claim(lake, engine, pushes):
        pushes.alter.set_table_properties({PROPERTY: engine}, raise_if_not_exists=False)


def _must_claim(lake: str, engine: Engine, pushes: DeltaTable) -> bool:
    own = engine_of(pushes)
    if own == engine:
        return False
    if engine == "spark" and pushes.count() == 0:
        return True
    raise OtherEngineError(
        f"{lake} is a lake of {NAMES[own]}, which keeps other state: go on with --engine {own}, or write to a new lake"
    )


def require_fast(lake: str, command: str) -> None:
    """Raise ``OtherEngineError`` if a command that changes the fast engine's state is used on another lake."""
    if engine_of_lake(lake) != "fast":
        raise OtherEngineError(
            f"{lake} is a lake of the Spark engine: `{command}` can't change the state in Spark's checkpoint, so it "
            "works on lakes of the fast engine only"
        )
