"""Arrow tables as bytes in a column, by which they pass Spark without being taken apart.

A row of a DataFrame with such a blob is thousands of rows of a table. Spark's own way would make a row, or a pandas
object, of each of them each time that they go from a Python worker to the JVM and back.
"""

from __future__ import annotations

import pyarrow as pa

COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")
PLAIN = pa.ipc.IpcWriteOptions()


def to_blob(rows: pa.Table, options: pa.ipc.IpcWriteOptions = COMPRESSED) -> bytes:
    """The rows as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=options) as stream:
        stream.write_table(rows.combine_chunks())
    return bytes(sink.getvalue())


def from_blob(blob: bytes | pa.Buffer) -> pa.Table:
    """The rows of `to_blob`."""
    return pa.ipc.open_stream(pa.py_buffer(blob)).read_all()
