"""What identifies a push, and queries on stored pushes, without Spark: for tasks, replay and maintenance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of
from kafka_telemetry_lake.udfs.rows import PUSH_KEY, PUSHES_IN

# The columns that identify a push (rule D1). cluster_id may be NULL. The record's time is included because a topic that
# was deleted and created again uses the same offsets for other records.
IDENTITY = ("source", "cluster_id", "topic", "partition", "offset", "landed_at")

# The application id in table `pushes` whose version is the first retained day, as days since 1970. A transaction of
# the table outlives its log.
DROPPED_BEFORE = "kafka-telemetry-lake:dropped-before"


def same_push(left: str, right: str) -> str:
    """SQL condition on two relations, given by name: their rows are of the same push."""
    return " AND ".join(f'{left}."{name}" IS NOT DISTINCT FROM {right}."{name}"' for name in IDENTITY)


def ask(query: str, **tables: Any) -> list[tuple[Any, ...]]:
    """Run a DuckDB query on Arrow tables, datasets or scanners, given by name, and return its rows."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name, table in tables.items():
            connection.register(name, table)
        rows: list[tuple[Any, ...]] = connection.execute(query).fetchall()
    return rows


KEYS = pa.schema([field for field in PUSH_KEY if field.name in IDENTITY])
ROWS_PER_GROUP = 1 << 16
NAMES = ", ".join(f'"{name}"' for name in KEYS.names)


@dataclass(frozen=True)
class StoredOffsets:
    """Pushes whose rows a table has, in a Parquet file of their own: a table's version lives only as long as its log.

    The file at a URI, as plain values that tasks can be sent. Its rows are sorted by partition and offset.
    """

    NAME: ClassVar[str] = "stored-before.parquet"

    uri: str

    def exists(self) -> bool:
        filesystem, path = filesystem_of(self.uri)
        return bool(filesystem.get_file_info(path).type == pafs.FileType.File)

    def write(self, rows: pads.Dataset) -> StoredOffsets:
        """Write the identities of all rows, each once. DuckDB sorts them, on disk if they don't fit into memory."""
        filesystem, path = filesystem_of(self.uri)
        filesystem.create_dir(path.rpartition("/")[0], recursive=True)
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            connection.register("stored", rows)
            ordered = connection.sql(f'SELECT DISTINCT {NAMES} FROM stored ORDER BY "partition", "offset"')
            with pq.ParquetWriter(f"{path}.tmp", KEYS, filesystem=filesystem, compression="zstd") as writer:
                for batch in ordered.to_arrow_reader(ROWS_PER_GROUP):
                    writer.write_table(pa.Table.from_batches([batch]).cast(KEYS))
        filesystem.move(f"{path}.tmp", path)
        return self

    def within(self, pushes: pa.Table) -> pa.Table:
        """The identities (columns `IDENTITY`) of the stored pushes within the offset ranges of `pushes`."""
        filesystem, path = filesystem_of(self.uri)
        stored, identities = pads.dataset(path, filesystem=filesystem, format="parquet"), KEYS.empty_table()
        for partition in pc.unique(pushes["partition"]).to_pylist():
            span = pc.min_max(pushes.filter(pc.field("partition") == partition)["offset"]).as_py()
            wanted = (pads.field("partition") == partition) & (pads.field("offset") >= span["min"])
            wanted &= pads.field("offset") <= span["max"]
            identities = pa.concat_tables([identities, stored.to_table(filter=wanted).cast(KEYS)])
        return identities

    def delete(self) -> None:
        """Delete the file, if there is one."""
        if self.exists():
            filesystem, path = filesystem_of(self.uri)
            filesystem.delete_file(path)


def without(rows: pa.Table, stored: pa.Table) -> pa.Table:
    """The rows whose pushes are not in `stored` (columns `IDENTITY`)."""
    if stored.num_rows == 0 or rows.num_rows == 0:
        return rows

    def keys(table: pa.Table) -> pa.Table:  # Arrow's join doesn't match NULLs and doesn't accept dictionaries
        plain = table.select(IDENTITY).cast(pa.schema([PUSHES_IN.field(name) for name in IDENTITY]))
        return plain.set_column(1, "cluster_id", pc.fill_null(plain["cluster_id"], ""))

    numbered = keys(rows).append_column("row", pa.array(range(rows.num_rows), pa.int64()))
    unstored = numbered.join(keys(stored), list(IDENTITY), join_type="left anti")["row"]
    return rows.take(pc.take(unstored, pc.sort_indices(unstored)))
