"""What Delta's own cleanup does to a lake that is left alone: its tables' logs forget all but their checkpoints."""

from __future__ import annotations

from pathlib import Path

from deltalake import DeltaTable


def expire_log(table: Path) -> None:
    """Leave of a table's log its latest commit and a checkpoint of it, as the cleanups of Spark and delta-rs may."""
    delta = DeltaTable(str(table))
    delta.create_checkpoint()
    for file in (table / "_delta_log").glob("0*"):
        if int(file.name.partition(".")[0]) < delta.version():
            file.unlink()


def expire_logs(lake: Path) -> None:
    """The same for all tables of a lake."""
    for log in lake.glob("*/_delta_log"):
        expire_log(log.parent)
