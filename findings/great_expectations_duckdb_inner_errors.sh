#!/bin/bash
# Great Expectations over DuckDB: each expectation that needs a query fails by an inner error and says success=False; nothing is raised.
#
# Version: great-expectations 1.24.1, duckdb-engine 0.17.0, duckdb 1.5.5, SQLAlchemy 2.0.44, pandas 2.3.3
# Behaviour: through a SQL data source of DuckDB (the dialect that duckdb-engine registers), results of queries are empty, which GX
#   takes apart: "list index out of range", "'NoneType' object is not subscriptable". validate() returns, with success False
#   like that of a table that breaks the rule; only exception_info tells the two apart. Expectations about columns alone, which
#   need no query, succeed. SQLAlchemy itself gets the rows. The same with SQLAlchemy 2.1.9 and DuckDB 2.0.1.
# Right: the table has ten rows, i is 0 to 9 and never NULL: all succeed, or an error is raised.
# Output (2026-11-27):
#   SQLAlchemy counts 10
#   ExpectTableRowCountToEqual: success False, list index out of range
#   ExpectColumnValuesToNotBeNull: success False, list index out of range
#   ExpectColumnMaxToBeBetween: success False, list index out of range
#   UnexpectedRowsExpectation: success False, 'NoneType' object is not subscriptable
#   ExpectColumnToExist: success True, no error
set -euo pipefail
script=$(realpath "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check great-expectations==1.24.1 duckdb-engine==0.17.0 duckdb==1.5.5 \
    SQLAlchemy==2.0.44 pandas==2.3.3
cat > ask.py <<'E'
import great_expectations as gx
import sqlalchemy

engine = sqlalchemy.create_engine("duckdb:///rows.db")
with engine.begin() as connection:
    connection.execute(sqlalchemy.text("CREATE TABLE t AS SELECT range AS i FROM range(10)"))
    print("SQLAlchemy counts", connection.execute(sqlalchemy.text("SELECT count(*) FROM t")).scalar())
engine.dispose()
source = gx.get_context(mode="ephemeral").data_sources.add_sql("d", connection_string="duckdb:///rows.db")
batch = source.add_table_asset("t", table_name="t").add_batch_definition_whole_table("whole").get_batch()
of = gx.expectations
for expectation in (
    of.ExpectTableRowCountToEqual(value=10),
    of.ExpectColumnValuesToNotBeNull(column="i"),
    of.ExpectColumnMaxToBeBetween(column="i", max_value=9),
    of.UnexpectedRowsExpectation(unexpected_rows_query="SELECT * FROM {batch} WHERE i > 9"),
    of.ExpectColumnToExist(column="i"),
):
    result = batch.validate(expectation)
    info = result.exception_info
    errors = [info] if "exception_message" in info else list(info.values())
    message = errors[0]["exception_message"] or "no error"
    print(f"{type(expectation).__name__}: success {result.success}, {message}")
E
GX_ANALYTICS_ENABLED=false venv/bin/python ask.py 2> warnings | tee seen
diff <(sed -n '/^# Output/,/^set/s/^#   //p' "$script") seen
