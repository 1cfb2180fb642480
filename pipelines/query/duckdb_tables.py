"""Makes Delta tables readable for DuckDB: delta-rs reads the log for the list of files, and DuckDB reads the files.

DuckDB skips columns, row groups and partitions that a query doesn't need, and decodes the rest on all cores. Tables
that DuckDB can't read this way are read by delta-rs' Arrow datasets, which are several times slower.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

import duckdb
import pyarrow as pa
import pyarrow.dataset as pads
from deltalake import DeltaTable

FILE = "_file"  # name, used by no table, of the column with the path that a row was read from
NO_VALUE = ("", "__HIVE_DEFAULT_PARTITION__")  # texts for NULL in the names of partition folders
GLOB = re.compile(r"[*?\[]")


def register_table(
    connection: duckdb.DuckDBPyConnection, name: str, table: DeltaTable, columns: pa.Schema | None = None
) -> None:
    """Create a temporary view for the loaded version of a Delta table. The connection's time zone must be UTC.

    Args:
        columns: columns that the view must have. Those that the table lacks, if it is of an older release, are NULL.

    Raises:
        DeltaError: the table has a newer format, or can't be read.
    """
    select = native_select(connection, table, columns)
    if select is None:
        connection.register(name, dataset(table, columns))
    else:
        connection.execute(f"CREATE OR REPLACE TEMP VIEW {_quoted(name)} AS {select}")


def native_select(
    connection: duckdb.DuckDBPyConnection, table: DeltaTable, columns: pa.Schema | None = None
) -> str | None:
    """A SELECT that reads the table's files with DuckDB. It has the columns and types of `dataset`.

    Returns:
        None if only delta-rs can read the table: it isn't local, needs a reader version above 1, or has files outside
        the folder of their partition.
    """
    root = local_folder(table.table_uri)
    if root is None or table.protocol().min_reader_version > 1:
        return None
    empty = connection.from_arrow(_schema(table, columns).empty_table())
    types = {column: str(kind) for column, kind in zip(empty.columns, empty.types, strict=True)}
    partitions = table.metadata().partition_columns
    files = pa.table(table.get_add_actions())
    paths = [unquote(path) for path in files["path"].to_pylist()]
    if not paths:
        nothing = (f"CAST(NULL AS {kind}) AS {_quoted(column)}" for column, kind in types.items())
        return f"SELECT {', '.join(nothing)} WHERE FALSE"
    if partitions and not all(map(_is_in_partition, paths, files["partition"].to_pylist())):
        return None
    selected = [
        f"{_of_path(column, kind)} AS {_quoted(column)}" if column in partitions else _quoted(column)
        for column, kind in types.items()
    ]
    # With a schema, DuckDB opens no file before it needs its rows, and columns that a file lacks are NULL.
    stored = ", ".join(
        f"{_text(column)}: {{name: {_text(column)}, type: {_text(kind)}, default_value: NULL}}"
        for column, kind in types.items()
        if column not in partitions
    )
    listed = ", ".join(_text(GLOB.sub(r"[\g<0>]", f"{root}/{path}")) for path in paths)
    options = f"schema = MAP {{{stored}}}, filename = {_text(FILE)}"
    return f"SELECT {', '.join(selected)} FROM read_parquet([{listed}], {options})"


def dataset(table: DeltaTable, columns: pa.Schema | None = None) -> pads.Dataset:
    """The table's rows, read by delta-rs. Those of `columns` that the table lacks are NULL."""
    return table.to_pyarrow_dataset().replace_schema(_schema(table, columns))


def local_folder(uri: str) -> Path | None:
    """The folder that a path or `file:` URI names; None for another kind of URI."""
    if "://" not in uri:
        return Path(uri)
    parts = urlsplit(uri)
    return Path(url2pathname(parts.path)) if parts.scheme == "file" and not parts.netloc else None


def _schema(table: DeltaTable, columns: pa.Schema | None) -> pa.Schema:
    own = pa.schema(table.schema().to_arrow())
    return pa.schema([*own, *(field for field in columns or () if field.name not in own.names)])


def _is_in_partition(path: str, partition: dict[str, object]) -> bool:
    folders = dict(folder.split("=", 1) for folder in path.split("/")[:-1] if "=" in folder)
    values = {column: None if unquote(text) in NO_VALUE else unquote(text) for column, text in folders.items()}
    return "://" not in path and values == {
        column: None if value is None else str(value) for column, value in partition.items()
    }


def _of_path(column: str, kind: str) -> str:
    """SQL for a partition's value, computed from the path. DuckDB evaluates it before opening files, to skip some."""
    folder = f"regexp_extract({FILE}, {_text(f'.*/{re.escape(column)}=([^/]*)/')}, 1)"
    return f"CAST(nullif(nullif(url_decode({folder}), ''), {_text(NO_VALUE[1])}) AS {kind})"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
