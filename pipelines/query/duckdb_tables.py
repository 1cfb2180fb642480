"""Makes Delta tables readable for DuckDB: delta-rs reads the log for the list of files, and DuckDB reads the files.

DuckDB skips columns, row groups and partitions that a query doesn't need, and decodes the rest on all cores. Tables
that DuckDB can't read this way are read by delta-rs' Arrow datasets, which are several times slower.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
from deltalake import DeltaTable

from kafka_telemetry_lake.pipelines.lake.stored_files import files_table
from kafka_telemetry_lake.pipelines.tables.catalog import CATALOG
from kafka_telemetry_lake.pipelines.tables.table import FORMAT_PROPERTY, LANDED_DATE

FILE = "_file"  # name, used by no table, of the column with the path that a row was read from
NO_VALUE = ("", "__HIVE_DEFAULT_PARTITION__")  # texts for NULL in the names of partition folders
MILLISECOND = timedelta(milliseconds=1)
GLOB = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class Times:
    """The rows of a table that are asked for: those whose `column` is in one of `spans`, each without its end."""

    column: str
    spans: tuple[tuple[datetime, datetime], ...]

    @property
    def sql(self) -> str:
        time = _quoted(self.column)
        spans = (f"{time} >= {_time(low)} AND {time} < {_time(high)}" for low, high in self.spans)
        return f"({' OR '.join(spans)})"

    def may_be_in(self, least: datetime | None, most: datetime | None) -> bool:
        """Whether a file with these extremes can have such rows. Delta's statistics end at milliseconds."""
        if least is None or most is None:
            return True
        return any(least < high and most + MILLISECOND >= low for low, high in self.spans)


def register_table(
    connection: duckdb.DuckDBPyConnection,
    name: str,
    table: DeltaTable,
    times: Times | None = None,
    days: Collection[str] | None = None,
) -> None:
    """Create a temporary view for the loaded version of a Delta table. The connection's time zone must be UTC.

    Args:
        times: the view has only these rows; files that have none of them by the table's statistics aren't opened.
        days: the view has only files of these landed dates; None: of all.

    Raises:
        DeltaError: the table has a newer format, or can't be read.
    """
    select = native_select(connection, table, times, days)
    if select is None:
        rows = dataset(table, days)
        connection.register(name, rows if times is None else rows.filter(_expression(times, rows.schema)))
    else:
        where = "" if times is None else f"SELECT * FROM ({select}) WHERE {times.sql}"
        connection.execute(f"CREATE OR REPLACE TEMP VIEW {_quoted(name)} AS {where or select}")


def native_select(
    connection: duckdb.DuckDBPyConnection,
    table: DeltaTable,
    times: Times | None = None,
    days: Collection[str] | None = None,
    only: Collection[str] | None = None,
) -> str | None:
    """A SELECT that reads the table's files with DuckDB. It has the columns and types of `dataset`.

    Args:
        times: files that have none of these rows are left out; others may have further rows.
        days: files of other landed dates are left out; None: none.
        only: files whose path isn't one of these are left out; None: none. Paths as in `file_bounds`.

    Returns:
        None if only delta-rs can read the table: it isn't local, needs a reader version above 1, or has files outside
        the folder of their partition.
    """
    root = local_folder(table.table_uri)
    if root is None or table.protocol().min_reader_version > 1:
        return None
    types = _types(connection, table_columns(table))
    partitions = table.metadata().partition_columns
    files = _files(table, times, days)
    if only is not None:
        files = files.filter(pc.is_in(files["path"], pa.array(sorted(only), pa.string())))
    paths = files["path"].to_pylist()
    if any("%" in path for path in paths):
        paths = [unquote(path) for path in paths]
    if not paths:
        return _no_rows(types)
    if partitions and not _are_in_partitions(paths, files["partition"]):
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
    plain = "\0".join([str(root), *paths])
    if "'" in plain or GLOB.search(plain):
        listed = ", ".join(_text(GLOB.sub(r"[\g<0>]", f"{root}/{path}")) for path in paths)
    else:  # a large table has 300,000 files
        listed = f"'{root}/" + f"', '{root}/".join(paths) + "'"
    options = f"schema = MAP {{{stored}}}, filename = {_text(FILE)}"
    return f"SELECT {', '.join(selected)} FROM read_parquet([{listed}], {options})"


def select_nothing(connection: duckdb.DuckDBPyConnection, columns: pa.Schema) -> str:
    """A SELECT of these columns that has no rows.

    An empty table of DuckDB's own is no substitute: if a condition of an outer join can't hold by the statistics of
    such a table, DuckDB 2.0.0 takes it that the join has no rows at all, and leaves out a LIMIT over it.
    """
    return _no_rows(_types(connection, columns))


def _types(connection: duckdb.DuckDBPyConnection, columns: pa.Schema) -> dict[str, str]:
    """DuckDB's type of each column."""
    empty = connection.from_arrow(columns.empty_table())
    return {column: str(kind) for column, kind in zip(empty.columns, empty.types, strict=True)}


def _no_rows(types: Mapping[str, str]) -> str:
    nothing = (f"CAST(NULL AS {kind}) AS {_quoted(column)}" for column, kind in types.items())
    return f"SELECT {', '.join(nothing)} WHERE FALSE"


def _files(table: DeltaTable, times: Times | None, days: Collection[str] | None) -> pa.Table:
    files = files_table(table)
    if days is not None:
        files = files.filter(pc.is_in(files["day"], pa.array(sorted(days), pa.string())))
    if times is None or not files.num_rows:
        return files
    extremes = [_statistic(files, which, times.column) for which in ("min", "max")]
    return files.filter(pa.array([times.may_be_in(*each) for each in zip(*extremes, strict=True)], pa.bool_()))


def file_bounds(table: DeltaTable, column: str) -> dict[str, tuple[datetime | None, datetime | None]]:
    """Path of each file, and the least and greatest time of a column by its statistics; None: not known."""
    files = files_table(table)
    bounds = (_statistic(files, which, column) for which in ("min", "max"))
    return dict(zip(files["path"].to_pylist(), zip(*bounds, strict=True), strict=True))


def _statistic(files: pa.Table, which: str, column: str) -> list[datetime | None]:
    known = which in files.column_names and files.schema.field(which).type.get_field_index(column) >= 0
    return pc.struct_field(files[which], column).to_pylist() if known else [None] * files.num_rows


def _expression(times: Times, schema: pa.Schema) -> pads.Expression:
    time, kind = pads.field(times.column), schema.field(times.column).type
    spans = ((time >= pa.scalar(low, kind)) & (time < pa.scalar(high, kind)) for low, high in times.spans)
    return functools.reduce(operator.or_, spans)


def dataset(table: DeltaTable, days: Collection[str] | None = None) -> pads.Dataset:
    """The table's rows, read by delta-rs.

    Args:
        days: only these landed dates; None: all.
    """
    partitions = None if days is None else [(LANDED_DATE.name, "in", sorted(days) or [NO_VALUE[1]])]
    return table.to_pyarrow_dataset(partitions=partitions).replace_schema(table_columns(table))


def local_folder(uri: str) -> Path | None:
    """The folder that a path or `file:` URI names; None for another kind of URI."""
    if "://" not in uri:
        return Path(uri)
    parts = urlsplit(uri)
    return Path(url2pathname(parts.path)) if parts.scheme == "file" and not parts.netloc else None


def table_columns(table: DeltaTable) -> pa.Schema:
    """The table's columns, and those of this build that an earlier release didn't have: they are NULL."""
    stored, about = pa.schema(table.schema().to_arrow()), table.metadata()
    known = CATALOG.get(about.name) if FORMAT_PROPERTY in about.configuration else None
    return stored if known is None else pa.schema([*stored, *(each for each in known if each.name not in stored.names)])


def _are_in_partitions(paths: list[str], partitions: pa.ChunkedArray) -> bool:
    """Whether each file is in the folder of its partition. Most tables have one folder for many files."""
    folders = pa.array([path.rpartition("/")[0] for path in paths])
    columns = {field.name: pc.struct_field(partitions, field.name) for field in partitions.type}
    table = pa.table({"": folders, **columns})
    distinct = table.group_by(table.column_names).aggregate([]).to_pylist()
    return all(_is_in_partition(f"{row.pop('')}/file", row) for row in distinct)


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


def _time(value: datetime) -> str:
    return _text(value.isoformat())


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
