"""23 questions on one lake give equal rows in every library that reads Delta or Iceberg: docs/readers.md."""

from __future__ import annotations

import pytest

from kafka_telemetry_lake.pipelines.query.lake_query import run_query
from tests.unit.readers.asked import OTHERWISE, QUESTIONS, READERS, Row, answers, duckdb_reader, make_lake, sql

pytestmark = pytest.mark.lake

# Of those that aren't in this project's lock: the module that a test looks for.
MODULES = {
    "chdb": "chdb", "datafusion": "datafusion", "duckdb_delta": "duckdb_extension_delta",
    "duckdb_iceberg": "duckdb_extension_iceberg", "pandas": "pandas", "polars": "polars", "pyiceberg": "pyiceberg",
}  # fmt: skip


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_lake(tmp_path_factory.mktemp("readers") / "lake"))


@pytest.fixture(scope="module")
def wanted(lake: str) -> dict[str, list[Row]]:
    return answers(duckdb_reader(lake))


def test_the_questions_have_answers(wanted: dict[str, list[Row]]) -> None:
    assert len(QUESTIONS) == 23
    assert wanted["pushes"] == [(1415,)]
    assert wanted["libraries"] == [("apache-kafka-java", 981), ("confluent-kafka-python", 253), ("kgo", 181)]
    assert wanted["largest"][0][0] == 2**62 + 1
    assert ("made", -(2**62)) in wanted["exact sums"]
    assert wanted["flags"] == [(2,)]
    assert (wanted["no node"], wanted["no flags"], wanted["not finite"]) == ([(130254,)], [(157260,)], [(17600,)])
    assert all(rows and rows != [(None,)] for rows in wanted.values())


def test_the_command_query_reads_the_same(lake: str, wanted: dict[str, list[Row]]) -> None:
    def ask(question: str) -> list[Row]:
        rows = run_query(lake, sql(question, list="len(flags)")).read_all().to_pylist()
        return [tuple(row.values()) for row in rows]

    assert answers(ask) == wanted


# Trino needs a server, and has times in milliseconds: it is asked by hand.
@pytest.mark.parametrize("reader", sorted(READERS.keys() - {"duckdb", "trino"}))
def test_the_same_rows(reader: str, lake: str, wanted: dict[str, list[Row]]) -> None:
    pytest.importorskip(MODULES[reader], reason=f"{MODULES[reader]} isn't installed; docs/readers.md has its result")
    ask = READERS[reader](lake)
    assert answers(ask) == wanted | OTHERWISE.get(reader, {})
