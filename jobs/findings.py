"""``telemetry-lake findings``: evaluates findings and prints those that are open; or takes a remark; or lists rules."""

from __future__ import annotations

import sys
import time

import duckdb
import pyarrow as pa
from deltalake.exceptions import DeltaError

from kafka_telemetry_lake.jobs.settings.base import UsageError
from kafka_telemetry_lake.jobs.settings.findings import FindingsSettings
from kafka_telemetry_lake.jobs.support.locks import FINDINGS, LakeBusyError, only
from kafka_telemetry_lake.jobs.support.running import JobFailedError
from kafka_telemetry_lake.pipelines.findings.evaluation.evaluator import Evaluator
from kafka_telemetry_lake.pipelines.findings.evaluation.lake_hours import LakeHours
from kafka_telemetry_lake.pipelines.findings.model import Overrides
from kafka_telemetry_lake.pipelines.findings.overrides import read_overrides
from kafka_telemetry_lake.pipelines.findings.remarks import remark, summary
from kafka_telemetry_lake.pipelines.findings.rules import rules
from kafka_telemetry_lake.pipelines.lake.place import no_lake
from kafka_telemetry_lake.pipelines.query.formats import TEXT_FORMATS
from kafka_telemetry_lake.pipelines.query.lake_query import is_lake, run_query
from kafka_telemetry_lake.pipelines.query.printable import printable
from kafka_telemetry_lake.udfs.findings.remarks import ACKNOWLEDGED, MUTED, UNMUTED, end_of_mute

FOR_PEOPLE = "severity, state, finding, subject, owner, opened_at, open_hours, evidence, finding_id"
OPEN = """
    SELECT {columns} FROM open_findings
    ORDER BY CASE severity WHEN 'error' THEN 0 WHEN 'warning' THEN 1 ELSE 2 END, opened_at, finding_id"""


def run_job(settings: FindingsSettings) -> int:
    """List the rules, take a remark, or evaluate and print what is open."""
    write = TEXT_FORMATS[settings.format]
    if settings.lake is None:
        write(_rules().to_reader(), sys.stdout)
        return 0
    if not is_lake(settings.lake):
        raise UsageError(no_lake(settings.lake))
    overrides = read_overrides(settings.rules)
    now = time.time_ns() // 1000
    try:
        if settings.acknowledge or settings.mute or settings.unmute:
            _take_remark(settings.lake, settings, now)
            return 0
        _evaluate(settings.lake, overrides)
    except (DeltaError, duckdb.Error, OSError, pa.ArrowException) as error:
        raise JobFailedError(f"findings: {' '.join(str(error).split())}; run it again") from error
    columns = FOR_PEOPLE if settings.format == "table" else "*"
    count = write(run_query(settings.lake, OPEN.format(columns=columns)), sys.stdout)
    sys.stdout.flush()
    print(f"{count:,} finding{'' if count == 1 else 's'} open", file=sys.stderr)
    return 0


def evaluate(lake: str, overrides: Overrides) -> None:
    """Evaluate what is new in the lake, under the lock `FINDINGS`.

    It alone is needed: an evaluation reads versions of tables and adds rows, so `maintain`, which holds `UPKEEP`, may
    merge and delete files meanwhile. A replay and an erasure hold both locks, as they replace the rows that are read.
    """
    Evaluator(lake, LakeHours(lake, overrides)).evaluate(time.time_ns() // 1000)


def _evaluate(lake: str, overrides: Overrides) -> None:
    """Evaluate. If another process does, or replaces the lake's rows, print what is known."""
    try:
        with only(
            FINDINGS, lake, "another process evaluates the findings of this lake, or a replay or forget runs on it"
        ):
            evaluate(lake, overrides)
    except LakeBusyError as busy:
        print(f"not evaluated now: {busy}; what was evaluated before follows", file=sys.stderr)


def _take_remark(lake: str, settings: FindingsSettings, now: int) -> None:
    finding_id = settings.acknowledge or settings.mute or settings.unmute
    assert finding_id is not None  # ensured by the caller
    assert settings.by is not None  # ensured by `check_together`
    change = ACKNOWLEDGED if settings.acknowledge else MUTED if settings.mute else UNMUTED
    until = None if settings.until is None else end_of_mute(settings.until)
    print(printable(summary(remark(lake, finding_id, change, now, settings.by, settings.why, until))))


def _rules() -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "id": rule.id,
                "severity": "/".join(rule.severities),
                "libraries": ", ".join(rule.judged),
                "scope": rule.scope,
                "title": rule.title,
            }
            for rule in rules().values()
        ]
    )
