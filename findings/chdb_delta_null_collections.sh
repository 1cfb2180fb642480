#!/bin/bash
# chdb's deltaLakeLocal reads NULL maps and lists as empty ones, and drops the zone of timestamps; file() keeps the zone.
#
# Version: chdb 4.4.0 (ClickHouse 26.9), deltalake 1.6.6, pyarrow 26.0.1
# Behaviour: ClickHouse's maps and arrays can't be NULL, so a NULL one of a Delta table is read as empty without a word:
#   IS NULL finds none. A key that a map of Nullable values lacks is NULL. A Delta timestamp, which is UTC, becomes a
#   DateTime64 without a zone, so its text and its hour are those of the server's zone; over the same Parquet file, the
#   function file() gives UTC.
# Right: one map and one list are NULL; the hour is 3 in both.
# Output (2026-11-27):
#   maps that are NULL: 0; lists: 0; empty maps: 2
#   a key that is lacking, NULL: 1
#   deltaLakeLocal: Nullable(DateTime64(6)) 2026-01-01 22:04:05.678901, hour 22, epoch 1767323045678901
#   file: Nullable(DateTime64(6, 'UTC')) 2026-01-02 03:04:05.678901, hour 3, epoch 1767323045678901
set -euo pipefail
script=$(realpath "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check chdb==4.4.0 chdb-core==26.9.0 deltalake==1.6.6 pyarrow==26.0.1
cat > ask.py <<'E'
import datetime
import os

import chdb
import pyarrow as pa
from deltalake import write_deltalake

time = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=datetime.timezone.utc)
columns = {
    "m": pa.array([None, [], [("a", "b")]], pa.map_(pa.string(), pa.string())),
    "l": pa.array([None, [], ["x"]], pa.list_(pa.string())),
    "t": pa.array([time] * 3, pa.timestamp("us", "UTC")),
}
write_deltalake("table", pa.table(columns))
table = f"deltaLakeLocal('{os.getcwd()}/table')"


def ask(question: str) -> list[str]:
    return str(chdb.query(question, "TSVRaw")).strip().split("\t")


counts = ask(f"SELECT countIf(m IS NULL), countIf(l IS NULL), countIf(empty(m)) FROM {table}")
print("maps that are NULL: {}; lists: {}; empty maps: {}".format(*counts))
print("a key that is lacking, NULL:", *ask(f"SELECT m['z'] IS NULL FROM {table} LIMIT 1"))
for name, source in (("deltaLakeLocal", table), ("file", f"file('{os.getcwd()}/table/*.parquet')")):
    row = ask(f"SELECT toTypeName(t), t, toHour(t), toUnixTimestamp64Micro(assumeNotNull(t)) FROM {source} LIMIT 1")
    print(name + ": {} {}, hour {}, epoch {}".format(*row))
E
TZ=America/New_York venv/bin/python ask.py | tee seen
diff <(sed -n '/^# Output/,/^set/s/^#   //p' "$script") seen
