"""The output formats of ``telemetry-lake query``. Each writer returns the number of rows that it wrote."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO, TextIO

import pyarrow as pa
import pyarrow.parquet as pq

from kafka_telemetry_lake.pipelines.query.plain_values import plain_values
from kafka_telemetry_lake.pipelines.query.printable import printable, printable_json
from kafka_telemetry_lake.pipelines.query.query_errors import QueryError, of_reading, one_line

COLUMN_WIDTH = 60  # characters; only the table format cuts longer values
DIGITS = 6  # significant digits of a float in the formats for people


def write_jsonl(rows: pa.RecordBatchReader, out: TextIO) -> int:
    """Write one JSON object per line: NaN as null, exact bigints, timestamps as ISO 8601 in UTC, maps as objects."""
    count = 0
    for row in plain_rows(rows):
        count += 1
        out.write(printable_json(dict(zip(rows.schema.names, row, strict=True)), separators=(",", ":")) + "\n")
    return count


def write_csv(rows: pa.RecordBatchReader, out: TextIO) -> int:
    """Write CSV with a header line. NULL is empty; maps and lists are JSON; on a terminal all text is printable."""
    shown = printable if out.isatty() else str
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(rows.schema.names)
    count = 0
    for row in plain_rows(rows):
        count += 1
        writer.writerow([shown(_cell(value)) for value in row])
    return count


def write_table(rows: pa.RecordBatchReader, out: TextIO) -> int:
    """Write aligned columns for people: long values are cut and floats rounded. Programs should read another format."""
    names = [printable(name) for name in rows.schema.names]
    lines = [[_short(_cell(rounded(value))) for value in row] for row in plain_rows(rows)]
    number = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    numeric = [any(is_it(field.type) for is_it in number) for field in rows.schema]
    widths = [max(len(line[i]) for line in [names, *lines]) for i in range(len(names))]

    def put(line: list[str]) -> None:
        cells = (
            text.rjust(width) if number else text.ljust(width)
            for text, width, number in zip(line, widths, numeric, strict=True)
        )
        out.write("  ".join(cells).rstrip() + "\n")

    if names:
        put(names)
        put(["-" * width for width in widths])
    for line in lines:
        put(line)
    return len(lines)


def write_vertical(rows: pa.RecordBatchReader, out: TextIO) -> int:
    """Write a line per column for people, for rows wider than the screen: values in full, floats rounded."""
    names = [printable(name) for name in rows.schema.names]
    width = max(map(len, names), default=0)
    count = 0
    for count, row in enumerate(plain_rows(rows), 1):
        out.write(f"--- row {count} ---\n")
        for name, value in zip(names, row, strict=True):
            out.write(f"{name.ljust(width)}  {_one_line_of(_cell(rounded(value)))}".rstrip() + "\n")
    return count


def write_arrow(rows: pa.RecordBatchReader, out: BinaryIO) -> int:
    """Write an Arrow IPC stream, with the types that DuckDB gives."""
    return _write(rows, pa.ipc.new_stream(out, rows.schema))


def write_parquet(rows: pa.RecordBatchReader, out: BinaryIO) -> int:
    """Write a Parquet file, with the types that DuckDB gives.

    Raises:
        QueryError: Parquet has no such type, for example for an interval.
    """
    try:
        return _write(rows, pq.ParquetWriter(out, rows.schema, compression="zstd"))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise QueryError(f"Parquet can't hold this result: {one_line(error)}; cast the column") from error


TEXT_FORMATS: dict[str, Callable[[pa.RecordBatchReader, TextIO], int]] = {
    "table": write_table,
    "vertical": write_vertical,
    "csv": write_csv,
    "jsonl": write_jsonl,
}
BINARY_FORMATS: dict[str, Callable[[pa.RecordBatchReader, BinaryIO], int]] = {
    "parquet": write_parquet,
    "arrow": write_arrow,
}


def with_distinct_names(rows: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """The rows, with columns of one name (``a``, ``a``) renamed (``a``, ``a_1``), as DuckDB does in subqueries."""
    names = distinct(rows.schema.names)
    if names == rows.schema.names:
        return rows
    schema = pa.schema([field.with_name(name) for field, name in zip(rows.schema, names, strict=True)])
    return pa.RecordBatchReader.from_batches(schema, (batch.rename_columns(names) for batch in rows))


def distinct(names: Iterable[str]) -> list[str]:
    """Names that differ by more than upper and lower case; those that differ already are unchanged."""
    given = list(names)
    taken = {name.lower() for name in given}
    seen: set[str] = set()
    result = []
    for name in given:
        new, number = name, 0
        while new.lower() in (seen if number == 0 else taken | seen):
            number += 1
            new = f"{name}_{number}"
        seen.add(new.lower())
        result.append(new)
    return result


def rounded(value: Any) -> Any:
    """A value for people: floats have six significant digits, but all digits before the point."""
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    if not isinstance(value, float) or value == 0:
        return int(value) if isinstance(value, float) else value
    before = math.floor(math.log10(abs(value))) + 1
    short = round(value, DIGITS - min(before, DIGITS))
    return int(short) if short.is_integer() and abs(short) < 10**15 else short


def _write(rows: pa.RecordBatchReader, writer: Any) -> int:
    count = 0
    with writer:
        for batch in _batches(rows):
            writer.write_batch(batch)
            count += batch.num_rows
    return count


def plain_rows(rows: pa.RecordBatchReader) -> Iterator[tuple[Any, ...]]:
    """Yield each row's values as JSON has them: see `write_jsonl`. Raises ``QueryError``, while it is read."""
    for batch in _batches(rows):
        yield from zip(*map(plain_values, batch.columns), strict=True)


def _batches(rows: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """Yield the batches. DuckDB computes them while they are read, so errors from damaged files occur here."""
    try:
        yield from rows
    except (OSError, pa.ArrowException) as error:
        raise of_reading(error) from error


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else printable_json(value)


def _short(text: str) -> str:
    text = _one_line_of(text)
    return text if len(text) <= COLUMN_WIDTH else text[: COLUMN_WIDTH - 1] + "…"


def _one_line_of(text: str) -> str:
    return printable(text.replace("\n", " "))
