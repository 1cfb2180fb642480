#!/bin/bash
# pyiceberg can't find NaN in a file that has other numbers too, and can't ask whether a list or a map is NULL.
#
# Version: pyiceberg 0.12.0 (extras sql-sqlite and pyarrow), pyarrow 26.0.1
# Behaviour: the files that pyiceberg writes have no count of NaN (nan_value_count None) and bounds without NaN. "d is nan"
#   leaves such a file out unless it has nothing but NaN, so the answer depends on NaN's neighbours; a negated comparison
#   does too: "not d > 5" has the row of NaN beside 0.0 and not beside 9.0. A filter "m is null" on a column of maps or lists
#   is a ValueError, "Cannot explicitly project List or Map types".
# Right: "d is nan" is 1, 1, 2.
# Output (2026-11-27):
#   [nan, 0.0]: nan_value_count None, d is nan 0, not d > 5 2
#   [nan, 9.0]: nan_value_count None, d is nan 0, not d > 5 0
#   [nan, nan]: nan_value_count None, d is nan 2, not d > 5 2
#   m is null: ValueError Cannot explicitly project List or Map types
#   l is null: ValueError Cannot explicitly project List or Map types
set -euo pipefail
script=$(realpath "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check 'pyiceberg[sql-sqlite,pyarrow]==0.12.0' pyarrow==26.0.1
cat > ask.py <<'E'
import os
import warnings

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

warnings.simplefilter("ignore")
catalog = SqlCatalog("here", uri="sqlite:///catalog.db", warehouse=f"file://{os.getcwd()}")
catalog.create_namespace("n")
nan = float("nan")
for name, numbers in enumerate(([nan, 0.0], [nan, 9.0], [nan, nan])):
    rows = pa.table({"d": pa.array(numbers)})
    table = catalog.create_table(f"n.t{name}", schema=rows.schema)
    table.append(rows)
    [file] = table.inspect.files().to_pylist()
    found = (f"{text} {table.scan(row_filter=text).to_arrow().num_rows}" for text in ("d is nan", "not d > 5"))
    print(f"{numbers}: nan_value_count {file['readable_metrics']['d']['nan_value_count']},", ", ".join(found))
collections = {
    "m": pa.array([None, []], pa.map_(pa.string(), pa.string())),
    "l": pa.array([None, []], pa.list_(pa.string())),
}
rows = pa.table(collections)
table = catalog.create_table("n.collections", schema=rows.schema)
table.append(rows)
for text in ("m is null", "l is null"):
    try:
        print(text, table.scan(row_filter=text).to_arrow().num_rows)
    except ValueError as error:
        print(f"{text}: ValueError {str(error).split(',')[0]}")
E
venv/bin/python ask.py | tee seen
diff <(sed -n '/^# Output/,/^set/s/^#   //p' "$script") seen
