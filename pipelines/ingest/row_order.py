"""Orders of a row group's rows in which they take few bytes, since what repeats is together."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from kafka_telemetry_lake.udfs.conversion.point_rows import alike_together
from kafka_telemetry_lake.udfs.kernels.arrays import column, one_chunk, trimmed


def with_one_dictionary(rows: pa.Table) -> pa.Table:
    """The rows in one chunk, each column of texts with one dictionary of those that it has.

    Arrow spells texts out once a row group's dictionary changes, and writes entries that no row has.
    """
    rows = rows.unify_dictionaries().combine_chunks()
    columns = [
        trimmed(one_chunk(each)) if pa.types.is_dictionary(each.type) and len(each) else each for each in rows.columns
    ]
    return pa.table(columns, rows.schema)


def interleaved(rows: pa.Table) -> pa.Table:
    """Points, sorted by push, in the order of `alike_together`."""
    rows = with_one_dictionary(rows)
    partition, offset = (column(rows, name, null=-1) for name in ("partition", "offset"))
    is_next = (np.diff(partition, prepend=partition[:1]) != 0) | (np.diff(offset, prepend=offset[:1]) != 0)
    metric = one_chunk(rows["metric"]).indices.fill_null(-1).to_numpy()
    order = alike_together(np.cumsum(is_next, dtype=np.int64), metric)
    return rows if order is None else rows.take(pa.array(order))
