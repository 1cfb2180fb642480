"""Orders of a row group's rows in which they take few bytes, since what repeats is together."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_telemetry_lake.pipelines.ingest.push_files import SLICE_BYTES, SORTABLE_SLICES
from kafka_telemetry_lake.udfs.conversion.point_rows import alike_together
from kafka_telemetry_lake.udfs.kernels.arrays import column, one_chunk, trimmed

BY_CLIENT = ("client_id", "client_instance_id", "partition", "offset")


def with_one_dictionary(rows: pa.Table) -> pa.Table:
    """The rows in one chunk, each column of texts with one dictionary of those that it has.

    Arrow spells texts out once a row group's dictionary changes, and writes entries that no row has.
    """
    rows = rows.unify_dictionaries().combine_chunks()
    columns = [
        trimmed(one_chunk(each)) if pa.types.is_dictionary(each.type) and len(each) else each for each in rows.columns
    ]
    return pa.table(columns, rows.schema)


def sorted_by_client(pushes: pa.Table) -> pa.Table:
    """The pushes of a row group sorted by client id and client instance: the payloads of an application are alike.

    zstd looks back a page of 1 MB at most, some sixty payloads, and as many applications lie between two pushes of one.
    Readers put the pushes in order again. Those of more bytes than a reader sorts stay as they are.

    Args:
        pushes: columns of table `pushes`; text may be dictionary-encoded.
    """
    if pushes.nbytes > SORTABLE_SLICES * SLICE_BYTES:
        return pushes
    keys = {name: pushes[name] for name in BY_CLIENT}
    keys |= {name: keys[name].cast(pa.string()) for name in BY_CLIENT[:2]}
    order = pc.sort_indices(pa.table(keys), [(name, "ascending") for name in BY_CLIENT])
    whole = pushes.combine_chunks() if pushes["payload"].num_chunks > 1 else pushes  # taking from chunks costs more
    return whole.take(order)


def interleaved(rows: pa.Table) -> pa.Table:
    """Points, sorted by push, in the order of `alike_together`."""
    rows = with_one_dictionary(rows)
    partition, offset = (column(rows, name, null=-1) for name in ("partition", "offset"))
    is_next = (np.diff(partition, prepend=partition[:1]) != 0) | (np.diff(offset, prepend=offset[:1]) != 0)
    metric = one_chunk(rows["metric"]).indices.fill_null(-1).to_numpy()
    order = alike_together(np.cumsum(is_next, dtype=np.int64), metric)
    return rows if order is None else rows.take(pa.array(order))
