"""A Delta table's rows for DuckDB: delta-rs reads the log and says which files count, DuckDB reads these by itself.

DuckDB then skips the columns, row groups and, by their partition, files that a query doesn't need, and decodes the rest
in all cores. delta-rs' Arrow datasets, several times slower, serve what DuckDB can't find or would misread.
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

FILE = "_file"  # a column that no table has: the path that a row was read from
NO_VALUE = ("", "__HIVE_DEFAULT_PARTITION__")  # how folders spell a partition of NULL
GLOB = re.compile(r"[*?\[]")


def register_table(
    connection: duckdb.DuckDBPyConnection, name: str, table: DeltaTable, columns: pa.Schema | None = None
) -> None:
    """Make a Delta table, as of its loaded version, a temporary view of the connection, whose time zone must be UTC.

    Args:
        columns: those that the view must have: what a table of an older version lacks of them is NULL.

    Raises:
        DeltaError: a table of a newer version, or one that can't be read.
    """
    select = native_select(connection, table, columns)
    if select is None:
        connection.register(name, dataset(table, columns))
    else:
        connection.execute(f"CREATE OR REPLACE TEMP VIEW {_quoted(name)} AS {select}")


def native_select(
    connection: duckdb.DuckDBPyConnection, table: DeltaTable, columns: pa.Schema | None = None
) -> str | None:
    """SELECT of the table's rows by DuckDB alone, with the columns and types of `dataset`.

    Returns:
        None if only delta-rs can read it: no local table, features beyond reader version 1, or files that don't lie
        where their partition says.
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
    if partitions and not all(map(_lies_there, paths, files["partition"].to_pylist())):
        return None
    selected = [
        f"{_of_path(column, kind)} AS {_quoted(column)}" if column in partitions else _quoted(column)
        for column, kind in types.items()
    ]
    # A schema, so that no file is opened before its rows are needed; what a file leaves out is NULL.
    stored = ", ".join(
        f"{_text(column)}: {{name: {_text(column)}, type: {_text(kind)}, default_value: NULL}}"
        for column, kind in types.items()
        if column not in partitions
    )
    listed = ", ".join(_text(GLOB.sub(r"[\g<0>]", f"{root}/{path}")) for path in paths)
    options = f"schema = MAP {{{stored}}}, filename = {_text(FILE)}"
    return f"SELECT {', '.join(selected)} FROM read_parquet([{listed}], {options})"


def dataset(table: DeltaTable, columns: pa.Schema | None = None) -> pads.Dataset:
    """The table's rows by delta-rs, with NULL for what it lacks of these columns."""
    return table.to_pyarrow_dataset().replace_schema(_schema(table, columns))


def local_folder(uri: str) -> Path | None:
    """The folder of a path or `file:` URI; None for a URI of another kind."""
    if "://" not in uri:
        return Path(uri)
    parts = urlsplit(uri)
    return Path(url2pathname(parts.path)) if parts.scheme == "file" and not parts.netloc else None


def _schema(table: DeltaTable, columns: pa.Schema | None) -> pa.Schema:
    own = pa.schema(table.schema().to_arrow())
    return pa.schema([*own, *(field for field in columns or () if field.name not in own.names)])


def _lies_there(path: str, partition: dict[str, object]) -> bool:
    folders = dict(folder.split("=", 1) for folder in path.split("/")[:-1] if "=" in folder)
    values = {column: None if unquote(text) in NO_VALUE else unquote(text) for column, text in folders.items()}
    return "://" not in path and values == {
        column: None if value is None else str(value) for column, value in partition.items()
    }


def _of_path(column: str, kind: str) -> str:
    """A partition's value by the path: DuckDB works it out before it opens a file, and leaves out files by it."""
    folder = f"regexp_extract({FILE}, {_text(f'.*/{re.escape(column)}=([^/]*)/')}, 1)"
    return f"CAST(nullif(nullif(url_decode({folder}), ''), {_text(NO_VALUE[1])}) AS {kind})"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
