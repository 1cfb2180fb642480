"""Landing records to be checked: of Parquet files of a files source, of JSON lines, or the newest of a topic."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kafka_telemetry_lake.udfs.errors import CannotRunError
from kafka_telemetry_lake.udfs.landing.problems import LandingRecord

# Columns of Spark's Kafka source, with what Arrow may give for each. The other columns aren't needed for a check.
COLUMNS = {"key": pa.types.is_binary, "value": pa.types.is_binary, "headers": pa.types.is_list}
NAMES = ["key", "value", "headers", "timestamp", "topic", "partition", "offset"]
LONGEST_LINE = 64 << 20  # bytes: a value of Kafka's largest messages in base64


class RecordsError(CannotRunError):
    """There are no records that can be read; the message says what to change."""


@dataclass(frozen=True)
class Placed:
    """A record, where it is, and its topic; `broken`: why it isn't a record at all."""

    place: str
    topic: str | None
    record: LandingRecord | None
    broken: str | None = None


def records_of(path: Path) -> Iterator[Placed]:
    """The records of a file, or of all Parquet and JSON-lines files of a folder, in the order of their names.

    Raises:
        RecordsError: there is no such file, or it has another form.
    """
    if not path.exists():
        raise RecordsError(f"{path} does not exist; to check a topic, add --bootstrap-servers host:port")
    # As for ingest: others write files whose names begin so, and rename them when they are whole.
    files = [path] if path.is_file() else sorted(file for file in path.glob("[!_.]*") if _is_known(file))
    if not files:
        raise RecordsError(f"{path} has no file of Parquet (.parquet) or JSON lines (.jsonl, .ndjson, .json)")
    for file in files:
        yield from _of_parquet(file) if _is_parquet(file) else _of_lines(file)


def _is_known(file: Path) -> bool:
    return file.suffix in (".parquet", ".jsonl", ".ndjson", ".json")


def _is_parquet(file: Path) -> bool:
    with file.open("rb") as stream:
        return stream.read(4) == b"PAR1"


def _of_parquet(file: Path) -> Iterator[Placed]:
    try:
        with pq.ParquetFile(file) as parquet:
            _check_columns(file, parquet.schema_arrow)
            names = [name for name in NAMES if name in parquet.schema_arrow.names]
            number = 0
            for batch in parquet.iter_batches(256, columns=names):
                for row in _plain(batch).to_pylist():
                    yield _of_row(f"{file.name}, row {number}", row)
                    number += 1
    except (pa.ArrowException, OSError) as error:
        raise RecordsError(f"{file} is not a Parquet file that can be read: {str(error).splitlines()[0]}") from error


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Times as whole microseconds: Python has none beyond year 9999."""
    at = batch.schema.get_field_index("timestamp")
    micros = batch.column(at).cast(pa.timestamp("us", batch.schema.field(at).type.tz), safe=False)
    return batch.set_column(at, "timestamp", micros.view(pa.int64()))


def _check_columns(file: Path, schema: pa.Schema) -> None:
    wrong = [
        f"column {name} is {schema.field(name).type if name in schema.names else 'missing'}"
        for name, is_right in COLUMNS.items()
        if name not in schema.names or not (is_right(schema.field(name).type) or _is_large(schema.field(name).type))
    ]
    if "timestamp" not in schema.names or not pa.types.is_timestamp(schema.field("timestamp").type):
        wrong.append("column timestamp is missing, or no timestamp")
    elif schema.field("timestamp").type.unit == "ns":
        wrong.append("column timestamp is in nanoseconds, needed: microseconds")
    if wrong:
        raise RecordsError(f"{file} does not have the columns of Spark's Kafka source: {'; '.join(wrong)}")


def _is_large(kind: pa.DataType) -> bool:
    return bool(pa.types.is_large_binary(kind) or pa.types.is_large_list(kind))


def _of_row(place: str, row: Mapping[str, Any]) -> Placed:
    if row.get("offset") is not None:
        place += f", partition {row.get('partition')}, offset {row['offset']}"
    headers = [(each["key"], each["value"]) for each in row["headers"] or () if each and each["key"] is not None]
    micros = row["timestamp"]
    time = None if micros is None else micros // 1000
    return Placed(place, row.get("topic"), LandingRecord(row["key"], row["value"], headers, time))


def _of_lines(file: Path) -> Iterator[Placed]:
    """Records as lines of JSON by ``landing-record.schema.json``. A line that isn't one is a record that is broken."""
    with file.open("rb") as stream:
        number = 0
        while line := stream.readline(LONGEST_LINE):
            number += 1
            place = f"{file.name}, line {number}"
            if not line.strip():
                continue
            try:
                yield _of_object(place, json.loads(line))
            except (ValueError, RecursionError, TypeError) as error:
                yield Placed(place, None, None, f"not a landing record: {' '.join(str(error).split())[:200]}")


def _of_object(place: str, value: Any) -> Placed:
    if not isinstance(value, dict):
        raise TypeError("a JSON object is needed")
    headers = value.get("headers", {})
    if not isinstance(headers, dict) or not all(isinstance(text, str | None) for text in headers.values()):
        raise TypeError("headers: an object of texts is needed")
    key, data, time = value.get("key"), value.get("value"), value.get("timestamp")
    if not isinstance(key, str | None) or not isinstance(data, str | None):
        raise TypeError("key and value: texts are needed, the value in base64")
    if time is not None and (not isinstance(time, int) or isinstance(time, bool)):
        raise TypeError("timestamp: a whole number of milliseconds is needed")
    try:
        raw = None if data is None else base64.b64decode(data, validate=True)
    except binascii.Error as error:
        raise ValueError(f"value: not base64: {error}") from error
    pairs = [(name, None if text is None else text.encode("utf-8", "surrogatepass")) for name, text in headers.items()]
    topic = value.get("topic")
    record = LandingRecord(None if key is None else key.encode("utf-8", "surrogatepass"), raw, pairs, time)
    return Placed(place, topic if isinstance(topic, str) else None, record)
