"""The Spark engine and the fast one give the same tables, however pushes come, and whatever ends a run."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from deltalake import DeltaTable

from kafka_telemetry_lake.jobs import cli
from kafka_telemetry_lake.jobs.running import StreamFailedError
from kafka_telemetry_lake.pipelines.spark_engine import output
from kafka_telemetry_lake.pipelines.spark_engine.output import WRITTEN
from tests.conftest import Ingest
from tests.support.documented_commands import ROOT
from tests.support.landing_records import CAPTURED
from tests.support.two_engines import Record, compare, land, made_up, rounds, stored

SPARK = ("--engine", "spark", "--shards", "3")
FAST = ("--shards", "3")


class CutOffError(Exception):
    """The job ends here."""


def run_both(ingest: Ingest, folder: Path, parts: list[list[Record]], ending: Callable[[int], None]) -> None:
    """Let both engines read each round; `ending` runs the Spark engine's after its number."""
    for number, part in enumerate(parts):
        land(folder / "source", number, part)
        ingest(folder / "source", folder / "fast", *FAST)
        ending(number)


def report(seed: int, rows: dict[str, int]) -> None:
    print(f"seed {seed}: {sum(rows.values()):,} rows of both engines are the same: {rows}")


@pytest.mark.slow
@pytest.mark.soak  # tests/unit/spark_engine/test_both_engines.py compares them for more seeds without Spark
@pytest.mark.parametrize("seed", range(1, 5))
def test_whole_tables_are_the_same(ingest: Ingest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Three rounds of pushes, shuffled and redelivered. The second one is cut off after some of its commits."""
    random = Random(seed)
    parts = rounds(random, made_up(random, int(os.environ.get("ENGINE_SCENARIOS", "12"))), 3)
    place, rows_of = random.randrange(len(WRITTEN)), output.rows_of

    def cut_off(batch: Any, table: Any, found: Any) -> Any:
        if WRITTEN.index(table) >= place:
            raise CutOffError("cut off here")
        return rows_of(batch, table, found)

    def spark_engine(number: int) -> None:
        if number == 1:
            with monkeypatch.context() as patch:
                patch.setattr(output, "rows_of", cut_off)
                with pytest.raises(StreamFailedError, match="cut off here"):
                    ingest(tmp_path / "source", tmp_path / "spark", *SPARK)
        ingest(tmp_path / "source", tmp_path / "spark", *SPARK)

    run_both(ingest, tmp_path, parts, spark_engine)
    compared = compare(stored(tmp_path / "fast"), stored(tmp_path / "spark"))
    report(seed, compared.rows)
    assert compared.differences == {}
    assert compared.rows["metric_points"] > 100
    assert min(compared.rows[name] for name in ("quarantine", "client_events", "receiver_health")) > 0


@pytest.mark.slow
def test_captured_pushes_and_what_reads_them(
    ingest: Ingest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As docs/engines.md prints it, beside a lake of the fast engine."""
    for lake, flags in (("fast", FAST), ("spark", SPARK)):
        ingest(CAPTURED, tmp_path / lake, *flags)
    compared = compare(stored(tmp_path / "fast"), stored(tmp_path / "spark"))
    report(0, compared.rows)
    assert compared.differences == {}
    assert compared.rows["metric_points"] == 157_260
    assert (tmp_path / "spark" / "_checkpoints" / "spark" / "state").is_dir()
    capsys.readouterr()
    answers = []
    for lake in ("fast", "spark"):
        query = "SELECT client_instance_id, state, pushes, labels FROM clients ORDER BY 1"
        assert cli.main(["query", "--lake", str(tmp_path / lake), "--format", "jsonl", query]) == 0
        answers.append(capsys.readouterr().out)
    assert answers[0] == answers[1]
    assert answers[0].count("\n") == 139
    assert cli.main(["maintain", "--lake", str(tmp_path / "spark")]) == 0
    assert compare(stored(tmp_path / "fast"), stored(tmp_path / "spark")).differences == {}
    checked = []
    for lake in ("fast", "spark"):
        code = cli.main(["quality", "--lake", str(tmp_path / lake)])
        checked.append((code, re.sub(r"\S*/(fast|spark)\b", "", capsys.readouterr().out)))
    assert checked[0] == checked[1]
    assert checked[0][0] == 0


@pytest.mark.slow
def test_a_job_that_is_killed_goes_on(ingest: Ingest, tmp_path: Path) -> None:
    """In a process of its own, at the first commit of its second batch that can be seen."""
    random = Random(11)
    parts = rounds(random, made_up(random, 6), 2)
    argv = [sys.executable, "-m", "kafka_telemetry_lake", "ingest", "--source", f"files:{tmp_path / 'source'}",
            "--lake", str(tmp_path / "spark"), "--once", "--source-name", "test", *SPARK]  # fmt: skip
    for number, part in enumerate(parts):
        land(tmp_path / "source", number, part)
        ingest(tmp_path / "source", tmp_path / "fast", *FAST)
        if number == 0:
            subprocess.run(argv, check=True, cwd=ROOT)
            continue
        before = DeltaTable(tmp_path / "spark" / "pushes").version()
        with subprocess.Popen(argv, cwd=ROOT, start_new_session=True) as job:
            while DeltaTable(tmp_path / "spark" / "pushes").version() == before and job.poll() is None:
                time.sleep(0.05)
            with suppress(ProcessLookupError):  # it has just ended
                os.killpg(job.pid, signal.SIGKILL)
        assert DeltaTable(tmp_path / "spark" / "pushes").version() > before
        subprocess.run(argv, check=True, cwd=ROOT)
    compared = compare(stored(tmp_path / "fast"), stored(tmp_path / "spark"))
    report(11, compared.rows)
    assert compared.differences == {}
