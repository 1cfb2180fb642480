#!/bin/bash
# delta-rs: a restored table still says that the transactions are done whose rows the restore took away.
#
# Version: deltalake 1.6.6, pyarrow 26.0.1
# Behaviour: DeltaTable.restore brings the files of an old version back, but not its application transactions:
#   transaction_version stays at the newest. A writer that skips what it has already written, as txn is meant for, never
#   writes the restored batches again, also after a checkpoint.
# Right: what an idempotent writer needs after a restore to a table of two batches is "2 done"; or the restore says that txn stays.
# Output (2026-11-27):
#   four batches: 4 rows, transaction 4
#   restored to the second: 2 rows, transaction 4
#   after a checkpoint: 2 rows, transaction 4
#   the table when it had two: 2 rows, transaction 2
set -euo pipefail
script=$(realpath "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check deltalake==1.6.6 pyarrow==26.0.1
cat > ask.py <<'E'
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake


def say(what: str, version: int | None = None) -> None:
    table = DeltaTable("table", version=version)
    print(f"{what}: {table.to_pyarrow_table().num_rows} rows, transaction {table.transaction_version('job')}")


for batch in range(1, 5):
    done = CommitProperties(app_transactions=[Transaction("job", batch)])
    write_deltalake("table", pa.table({"batch": [batch]}), mode="append", commit_properties=done)
say("four batches")
DeltaTable("table").restore(1)
say("restored to the second")
DeltaTable("table").create_checkpoint()
say("after a checkpoint")
say("the table when it had two", version=1)
E
venv/bin/python ask.py | tee seen
diff <(sed -n '/^# Output/,/^set/s/^#   //p' "$script") seen
