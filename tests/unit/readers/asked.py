"""23 questions about a lake, asked of libraries that read Delta or Iceberg: the answers must be the same rows.

``python -m tests.unit.readers.asked make LAKE`` makes the lake; ``... LAKE READER ...`` asks readers, and compares with
DuckDB over delta-rs' Arrow datasets. The latter needs nothing of this project, so it runs in an environment of its own.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

TABLES = ("pushes", "metric_points", "push_outcomes", "metric_rollups_1m", "client_events", "quarantine")
Row = tuple[Any, ...]
Ask = Callable[[str], list[Row]]
KEY = 'topic, "partition", "offset"'

# In SQL that all understand. {map} and {list} are what each has its own words for.
QUESTIONS = {
    "pushes": "SELECT count(*) AS n FROM pushes",
    "libraries": "SELECT client_software_name, count(*) AS n FROM pushes GROUP BY client_software_name",
    "intervals by codec": "SELECT compression_type, sum(push_interval_ms) AS n FROM pushes GROUP BY compression_type",
    "payloads": "SELECT sum({bytes}) AS n FROM pushes",
    "last pushes": "SELECT count(*) AS n FROM pushes WHERE terminating",
    "instances": "SELECT count(DISTINCT client_instance_id) AS n FROM pushes",
    "first and last": "SELECT min(landed_at) AS a, max(landed_at) AS b FROM pushes",
    "points by day": "SELECT landed_date, count(*) AS n FROM metric_points GROUP BY landed_date",
    "kinds": "SELECT kind, temporality, count(*) AS n FROM metric_points GROUP BY kind, temporality",
    "statuses": "SELECT delta_status, count(*) AS n FROM metric_points GROUP BY delta_status",
    "exact sums": "SELECT metric, sum(delta_int) AS n FROM metric_points WHERE delta_int IS NOT NULL GROUP BY metric",
    "largest": "SELECT max(value_int) AS a, min(value_int) AS b FROM metric_points",
    "no value": "SELECT count(*) AS n FROM metric_points WHERE value IS NULL OR delta IS NULL",
    "times": "SELECT min(start_time) AS a, max(time) AS b FROM metric_points",
    "one day": "SELECT client_id, count(*) AS n FROM metric_points WHERE landed_date = {day} GROUP BY client_id",
    "a span": "SELECT count(*) AS n FROM metric_points WHERE time >= {time}",
    "nodes": "SELECT {map} AS node, count(*) AS n FROM metric_points WHERE {map} IS NOT NULL GROUP BY {map}",
    "flags": "SELECT sum({list}) AS n FROM metric_points WHERE flags IS NOT NULL",
    "joined": f"SELECT sum(o.points) AS n FROM pushes p JOIN push_outcomes o USING ({KEY})",
    "rollups": "SELECT metric, sum(points) AS n FROM metric_rollups_1m GROUP BY metric",
    "no node": "SELECT count(*) AS n FROM metric_points WHERE {map} IS NULL",
    "no flags": "SELECT count(*) AS n FROM metric_points WHERE flags IS NULL",
    "not finite": "SELECT count(*) AS n FROM metric_points WHERE delta_status = 'non_finite' AND value IS NULL",
}
# What a reader answers otherwise, as docs/readers.md says: ClickHouse has no NULL lists in Delta tables.
OTHERWISE: dict[str, dict[str, list[Row]]] = {"chdb": {"no flags": [(0,)]}}
DAY, TIME = "2026-11-21", "2026-11-21 12:14:00"
WORDS = {
    "map": "attributes['node_id']",
    "list": "cardinality(flags)",
    "bytes": "octet_length(payload)",
    "day": f"DATE '{DAY}'",
    "time": f"TIMESTAMP '{TIME}+00:00'",
}


def sql(question: str, **words: str) -> str:
    """A question's SQL, with the words of a reader where they aren't the usual ones."""
    return QUESTIONS[question].format(**(WORDS | words))


def answers(ask: Ask) -> dict[str, list[Row]]:
    """The rows of each question, in an order that doesn't depend on the reader; times in UTC, without a zone."""
    return {question: sorted((tuple(map(_plain, row)) for row in ask(question)), key=repr) for question in QUESTIONS}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
    if isinstance(value, date) or value is None or isinstance(value, str):
        return value
    return int(value)


def make_lake(lake: Path) -> Path:
    """The lake of the captured pushes, and two points with lists, which those don't have."""
    from kafka_telemetry_lake.jobs import cli  # noqa: PLC0415  # see the module's text
    from kafka_telemetry_lake.pipelines.tables.operator import METRIC_POINTS  # noqa: PLC0415  # see the module's text
    from tests.support.captured_lake import captured_lake  # noqa: PLC0415  # the same

    captured_lake(lake)
    at = datetime.fromisoformat(f"{TIME}+00:00")
    usual = {"landed_at": at, "landed_date": at.date(), "time": at, "topic": "client-telemetry", "partition": 0}
    rows = [
        usual | {"offset": 10**6, "metric": "made", "flags": ["start_moved", "é"], "bucket_counts": [1, 2**53 + 1]},
        usual | {"offset": 10**6 + 1, "metric": "made", "flags": [], "value_int": 2**62 + 1, "delta_int": -(2**62)},
    ]
    table = pa.Table.from_pylist(rows, METRIC_POINTS.stored)
    write_deltalake(METRIC_POINTS.uri(str(lake)), table, mode="append")
    cli.main(["iceberg", "--lake", str(lake)])
    return lake


def duckdb_reader(lake: str) -> Ask:
    """DuckDB over delta-rs' Arrow datasets."""
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    for name in TABLES:
        connection.register(name, DeltaTable(f"{lake}/{name}").to_pyarrow_dataset())
    words = {"list": "len(flags)"}
    return lambda question: connection.execute(sql(question, **words)).fetchall()


def duckdb_delta_reader(lake: str) -> Ask:
    """DuckDB's own extension `delta`, from the packages that carry it."""
    connection = duckdb.connect()
    import_module("duckdb_extensions").import_extension("delta", con=connection)
    connection.execute("LOAD delta")
    connection.execute("SET TimeZone = 'UTC'")
    for name in TABLES:
        connection.execute(f"CREATE VIEW {name} AS SELECT * FROM delta_scan('{lake}/{name}')")
    return lambda question: connection.execute(sql(question, list="len(flags)")).fetchall()


def pyiceberg_reader(lake: str) -> Ask:
    """DuckDB over what pyiceberg's scans of the lake's Iceberg tables give."""
    tables: Any = import_module("pyiceberg.table").StaticTable
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    for name in TABLES:
        connection.register(name, tables.from_metadata(f"{lake}/_iceberg/{name}").scan().to_arrow())
    return lambda question: connection.execute(sql(question, list="len(flags)")).fetchall()


def duckdb_iceberg_reader(lake: str) -> Ask:
    """DuckDB's own extension `iceberg`, from the packages that carry it, on the lake's Iceberg tables."""
    connection = duckdb.connect()
    for extension in ("avro", "iceberg"):
        import_module("duckdb_extensions").import_extension(extension, con=connection)
        connection.execute(f"LOAD {extension}")
    connection.execute("SET TimeZone = 'UTC'")
    for name in TABLES:
        connection.execute(f"CREATE VIEW {name} AS SELECT * FROM iceberg_scan('{lake}/_iceberg/{name}')")
    return lambda question: connection.execute(sql(question, list="len(flags)")).fetchall()


def polars_reader(lake: str) -> Ask:
    """Polars' SQL over `scan_delta`."""
    polars: Any = import_module("polars")
    context = polars.SQLContext({name: polars.scan_delta(f"{lake}/{name}") for name in TABLES})
    points = polars.scan_delta(f"{lake}/metric_points").with_columns(
        node_id=polars.col("attributes").map.get("node_id"), flag_count=polars.col("flags").list.len()
    )
    context.register("metric_points", points)
    context.register(
        "pushes", polars.scan_delta(f"{lake}/pushes").with_columns(payload_size=polars.col("payload").bin.size())
    )
    words = {"map": "node_id", "list": "flag_count", "bytes": "payload_size"}

    def ask(question: str) -> list[Row]:
        if question == "a span":  # its SQL has no time with a zone
            later = polars.col("time") >= polars.lit(datetime.fromisoformat(f"{TIME}+00:00"))
            return [(points.filter(later).select(polars.len()).collect().item(),)]
        rows: list[Row] = context.execute(sql(question, **words), eager=True).rows()
        return rows

    return ask


def datafusion_reader(lake: str) -> Ask:
    """DataFusion over delta-rs' Arrow datasets."""
    context = import_module("datafusion").SessionContext()
    for name in TABLES:
        context.register_dataset(name, DeltaTable(f"{lake}/{name}").to_pyarrow_dataset())
    words = {
        "map": "map_extract(attributes, 'node_id')[1]", "list": "coalesce(array_length(flags), 0)",
        "bytes": "length(encode(payload, 'hex')) / 2",
    }  # fmt: skip

    def ask(question: str) -> list[Row]:
        batches = context.sql(sql(question, **words)).collect()
        return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]

    return ask


def chdb_reader(lake: str) -> Ask:
    """ClickHouse local, as the Python package chdb."""
    session = import_module("chdb.session").Session()
    session.query("SET session_timezone = 'UTC'")
    with contextlib.chdir(lake):  # it reads files below the working folder only
        for name in TABLES:
            session.query(f"CREATE VIEW {name} AS SELECT * FROM deltaLakeLocal('{lake}/{name}')")
    words = {
        "list": "length(flags)",
        "day": f"toDate('{DAY}')",
        "time": f"'{TIME}'",
    }

    def ask(question: str) -> list[Row]:
        with contextlib.chdir(lake):
            table = session.query(sql(question, **words), "ArrowTable")
        return [tuple(row.values()) for row in table.to_pylist()]

    return ask


def trino_reader(lake: str) -> Ask:
    """A Trino server on 127.0.0.1:8080, with the catalog `lake` of docs/readers.md."""
    connection = import_module("trino.dbapi").connect(host="127.0.0.1", port=8080, user="reader", catalog="lake")

    def execute(text: str) -> list[Row]:
        rows: list[list[Any]] = connection.cursor().execute(text).fetchall()
        return [tuple(row) for row in rows]

    execute("CREATE SCHEMA asked WITH (location = 'local:///unused')")
    for name in TABLES:
        execute(f"CALL system.register_table('asked', '{name}', 'local://{lake}/{name}')")
    words = {"map": "element_at(attributes, 'node_id')", "bytes": "length(payload)"}

    def ask(question: str) -> list[Row]:
        text = sql(question, **words)
        for name in TABLES:
            text = re.sub(rf"\b(FROM|JOIN) {name}\b", rf"\1 asked.{name}", text)
        return execute(text)

    return ask


def pandas_reader(lake: str) -> Ask:
    """pandas, by `DeltaTable.to_pyarrow_table` with Arrow's types: NumPy's would round integers beside NULL."""
    pandas: Any = import_module("pandas")
    frames = {
        name: DeltaTable(f"{lake}/{name}").to_pyarrow_table().to_pandas(types_mapper=pandas.ArrowDtype)
        for name in TABLES
    }
    pushes, points, outcomes, rollups = (frames[n] for n in TABLES[:4])

    def counted(frame: Any, *columns: str) -> list[Row]:
        counts = frame.groupby(list(columns), dropna=False).size().reset_index()
        return list(counts.itertuples(index=False, name=None))

    def summed(frame: Any, column: str, value: str) -> list[Row]:
        return list(frame.groupby(column, dropna=False)[value].sum(min_count=1).items())

    nodes = points["attributes"].dropna().map(lambda pairs: dict(pairs).get("node_id"))
    exact = points[points["delta_int"].notna()]
    asked: dict[str, Callable[[], list[Row]]] = {
        "pushes": lambda: [(len(pushes),)],
        "libraries": lambda: counted(pushes, "client_software_name"),
        "intervals by codec": lambda: summed(pushes, "compression_type", "push_interval_ms"),
        "payloads": lambda: [(sum(map(len, pushes["payload"])),)],
        "last pushes": lambda: [(pushes["terminating"].sum(),)],
        "instances": lambda: [(pushes["client_instance_id"].nunique(),)],
        "first and last": lambda: [(pushes["landed_at"].min(), pushes["landed_at"].max())],
        "points by day": lambda: counted(points, "landed_date"),
        "kinds": lambda: counted(points, "kind", "temporality"),
        "statuses": lambda: counted(points, "delta_status"),
        "exact sums": lambda: summed(exact, "metric", "delta_int"),
        "largest": lambda: [(points["value_int"].max(), points["value_int"].min())],
        "no value": lambda: [((points["value"].isna() | points["delta"].isna()).sum(),)],
        "times": lambda: [(points["start_time"].min(), points["time"].max())],
        "one day": lambda: counted(points[points["landed_date"] == date.fromisoformat(DAY)], "client_id"),
        "a span": lambda: [((points["time"] >= pandas.Timestamp(f"{TIME}+00:00")).sum(),)],
        "nodes": lambda: [(node, n) for node, n in nodes.dropna().value_counts().items()],
        "flags": lambda: [(sum(map(len, points["flags"].dropna())),)],
        "joined": lambda: [(pushes.merge(outcomes, on=["topic", "partition", "offset"])["points"].sum(),)],
        "rollups": lambda: summed(rollups, "metric", "points"),
        "no node": lambda: [(len(points) - nodes.notna().sum(),)],
        "no flags": lambda: [(points["flags"].isna().sum(),)],
        "not finite": lambda: [(((points["delta_status"] == "non_finite") & points["value"].isna()).sum(),)],
    }

    def ask(question: str) -> list[Row]:
        rows = asked[question]()
        return [tuple(None if pandas.isna(value) else _python(value) for value in row) for row in rows]

    return ask


def _python(value: Any) -> Any:
    return value.to_pydatetime() if hasattr(value, "to_pydatetime") else value


READERS: dict[str, Callable[[str], Ask]] = {
    "duckdb": duckdb_reader,
    "duckdb_delta": duckdb_delta_reader,
    "duckdb_iceberg": duckdb_iceberg_reader,
    "pyiceberg": pyiceberg_reader,
    "polars": polars_reader,
    "datafusion": datafusion_reader,
    "pandas": pandas_reader,
    "chdb": chdb_reader,
    "trino": trino_reader,
}


def main(lake: str, *readers: str) -> int:
    """Make a lake; or print for each reader the questions that it answers otherwise or not at all."""
    if lake == "make":
        make_lake(Path(readers[0]))
        return 0
    wanted = answers(duckdb_reader(lake))
    wrong = 0
    for reader in readers:
        ask = READERS[reader](str(Path(lake).absolute()))
        failed = []
        for question, rows in wanted.items():
            try:
                own = sorted((tuple(map(_plain, row)) for row in ask(question)), key=repr)
            except Exception as error:
                failed.append(f"{question}: {type(error).__name__}: {' '.join(str(error).split())[:200]}")
            else:
                if own != rows:
                    failed.append(f"{question}: {str(own)[:150]} != {str(rows)[:150]}")
        print(f"{reader}: {len(wanted) - len(failed)} of {len(wanted)} answers are equal", *failed, sep="\n  ")
        wrong += len(failed)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
