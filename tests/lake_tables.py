"""Reading a lake in tests, without Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable


def table(lake: Path, name: str) -> pa.Table:
    """A Delta table's rows, read without Spark."""
    return DeltaTable(str(lake / name)).to_pyarrow_table()
