"""A job that stops itself (SIGSTOP) at a chosen step of what it writes, as one that is cut off.

    python -m tests.support.stopped_job STEP STEPS_FILE [without-spark] ingest FLAGS

Each file that the driver adds, renames or deletes is a step; their names go to STEPS_FILE. Signs of life are left out:
the job must not learn from them that it was taken over, but from what it writes. STEP is a name, or a number: the
so-manieth step once there is a file STEPS_FILE.armed.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kafka_telemetry_lake.jobs import cli
from kafka_telemetry_lake.pipelines.ingest import offset_log, operator, streams
from kafka_telemetry_lake.pipelines.lake import durable, fence, notes
from kafka_telemetry_lake.pipelines.lake.log_files import NewFiles
from kafka_telemetry_lake.pipelines.state import manifest, snapshots
from tests.support.job_without_spark import replace_spark

WITHOUT_SPARK = "without-spark"


def main(step: str, steps: Path, argv: list[str]) -> int:
    """Run a command; returns its exit code."""
    waits, armed = True, steps.with_name(f"{steps.name}.armed")
    left = int(step) if step.isdecimal() else 0

    def before(name: str) -> None:
        nonlocal waits, left
        with steps.open("a") as file:
            file.write(f"{name}\n")
        if left and armed.exists():
            left -= 1
            is_due = left == 0
        else:
            is_due = name == step
        if waits and is_due:
            waits = False
            # Not to the process: another thread may take it there, and this one writes on until it does.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)

    def stepping(real: Callable[..., Any], name_of: Callable[..., str]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            before(name_of(*args))
            return real(*args, **named)

        return call

    def end(path: str) -> str:
        return "/".join(path.rsplit("/", 2)[1:])

    fence.BEAT_S = 3600
    NewFiles.add = stepping(NewFiles.add, lambda self, name, _: f"add {end(self.uri)}/{name}")  # type: ignore[method-assign]  # the step is noted first
    noted = stepping(durable.write_json, lambda _, path, *__: f"note {end(path)}")
    for module in (notes, manifest, snapshots, operator):
        module.write_json = noted  # type: ignore[attr-defined]  # the step is noted first
    manifest.StateFolder._sweep = stepping(manifest.StateFolder._sweep, lambda _: "sweep")  # type: ignore[method-assign]  # the step is noted first
    noted_by_spark = stepping(offset_log.entries, lambda _, batch: f"begun offsets/{batch}")
    streams.entries = noted_by_spark  # type: ignore[attr-defined]  # the step is noted first
    if argv[0] == WITHOUT_SPARK:
        replace_spark()
        argv = argv[1:]
    return cli.main(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:]))
