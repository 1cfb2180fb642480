#!/bin/bash
# delta-rs leaves rows out of an Arrow dataset if a file holds an infinite number.
#
# Version: deltalake 1.6.6, pyarrow 26.0.1, duckdb 2.0.0, polars 2.1.0
# Behaviour: for a file with infinity, write_deltalake notes the upper bound null, which JSON has instead of Infinity.
#   DeltaTable.to_pyarrow_dataset turns it into "d <= null", and so no row of the file passes any filter by this column:
#   silently, for Arrow and (filters that it pushes down) for DuckDB. NaN isn't in the bounds at all, so a filter which the other numbers
#   pass lets NaN through too. Polars, which reads the log itself, answers rightly.
# Right: of [inf, 0.0], one is <= 5 and one is > 5. Of [nan, 0.0], one is <= 5.
# Output (2026-11-27):
#   [inf, 0.0] statistics min -0.0 max None
#     d <= 5: Arrow 0, DuckDB 0, Polars 1
#     d > 5: Arrow 0, DuckDB 1, Polars 1
#   [nan, 0.0] statistics min -0.0 max 0.0
#     d <= 5: Arrow 2, DuckDB 2, Polars 1
#     d > 5: Arrow 0, DuckDB 1, Polars 1
#   [9.0, 0.0] statistics min -0.0 max 9.0
#     d <= 5: Arrow 1, DuckDB 1, Polars 1
#     d > 5: Arrow 1, DuckDB 1, Polars 1
set -euo pipefail
script=$(realpath "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check deltalake==1.6.6 pyarrow==26.0.1 duckdb==2.0.0 polars==2.1.0
cat > ask.py <<'E'
import json

import duckdb
import polars
import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable, write_deltalake

for name, numbers in enumerate(([float("inf"), 0.0], [float("nan"), 0.0], [9.0, 0.0])):
    write_deltalake(f"table{name}", pa.table({"d": pa.array(numbers)}))
    log = open(f"table{name}/_delta_log/00000000000000000000.json")
    [stats] = [json.loads(row["add"]["stats"]) for row in map(json.loads, log) if "add" in row]
    print(numbers, "statistics min", stats["minValues"]["d"], "max", stats["maxValues"]["d"])
    dataset = DeltaTable(f"table{name}").to_pyarrow_dataset()
    for text, arrow, pl in (
        ("d <= 5", ds.field("d") <= 5, polars.col("d") <= 5),
        ("d > 5", ds.field("d") > 5, polars.col("d") > 5),
    ):
        [(by_duckdb,)] = duckdb.sql(f"SELECT count(*) FROM dataset WHERE {text}").fetchall()
        by_polars = polars.scan_delta(f"table{name}").filter(pl).collect().height
        print(f"  {text}: Arrow {dataset.count_rows(filter=arrow)}, DuckDB {by_duckdb}, Polars {by_polars}")
E
venv/bin/python ask.py | tee seen
diff <(sed -n '/^# Output/,/^set/s/^#   //p' "$script") seen
