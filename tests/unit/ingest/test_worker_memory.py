"""A worker lives as long as the job: what makes it larger for good."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from kafka_telemetry_lake.pipelines.runtime import python_worker
from tests.support.patience import PATIENCE_S

ROOT = Path(__file__).parents[3]
# Prints the kernels that pushes of several kinds have loaded or compiled beyond those of a worker that starts.
PROGRAM = """
import json, sys
from pathlib import Path
from kafka_telemetry_lake.pipelines.ingest import operator_task
from tests.support.landing_records import captured, record
from tests.support.local_stream import LocalStream

def signatures():
    modules = {name: module for name, module in sys.modules.items() if name.startswith("kafka_telemetry_lake.udfs.")}
    return {
        f"{name}.{each}": list(map(str, value.stats.cache_hits + value.stats.cache_misses))
        for name, module in modules.items()
        for each, value in vars(module).items()
        if hasattr(value, "stats") and value.py_func.__module__ == name
    }

operator_task._compile()
before = signatures()
print(json.dumps({"of several types": [name for name, types in before.items() if len(types) != 1]}))
stream = LocalStream(Path(sys.argv[1]))
pushes = captured().slice(0, 200).to_pylist()
names = b"".join(b"\\x12\\x08\\x0a\\x06" + b"%06d" % n for n in range(20_000))
kinds = {
    "captured": pushes,
    "garbage alone, no point": [record(0, b"\\xff\\xff\\xff")],
    "one point": [record(1, pushes[0]["value"])],
    "for the reference decoder": [record(2, bytes.fromhex("0a0612040b0c0a00"))],
}
for kind, records in kinds.items():
    stream.batch([{**each, "offset": number} for number, each in enumerate(records)])
    after = signatures()
    print(json.dumps({kind: [name for name in after if after[name] != before.get(name)]}))
"""


@pytest.mark.slow
def test_a_worker_compiles_nothing_once_it_has_started(tmp_path: Path) -> None:
    """A compiler is 300 MB, and workers that compile at once must do it under the cache's lock.

    Nor is a kernel compiled for several types of arguments.
    """
    argv = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    output = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True, timeout=PATIENCE_S).stdout
    loaded = {kind: names for line in output.splitlines() for kind, names in json.loads(line).items()}
    assert len(loaded) == 5
    assert not any(loaded.values()), loaded


@pytest.mark.skipif(python_worker._MALLOC_TRIM is None, reason="needs glibc")
def test_a_tasks_freed_arrays_go_back_to_the_system() -> None:
    arrays = [np.ones(100_000, np.int8) for _ in range(3000)]  # too small for pages of their own
    last = arrays[-1]  # the heap can't shrink below it
    there = resident()
    del arrays
    python_worker.release_memory()
    assert there - resident() > 200_000_000
    assert last.all()


def resident() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4096
