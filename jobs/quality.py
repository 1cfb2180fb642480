"""``telemetry-lake quality``: checks the data quality rules on rows added since the last check."""

from __future__ import annotations

import sys
from datetime import UTC, datetime

import duckdb
import pyarrow as pa
from deltalake.exceptions import DeltaError

from kafka_telemetry_lake.jobs.settings.base import UsageError
from kafka_telemetry_lake.jobs.settings.quality import QualitySettings
from kafka_telemetry_lake.jobs.support.locks import UPKEEP, only
from kafka_telemetry_lake.jobs.support.running import JobFailedError
from kafka_telemetry_lake.pipelines.lake.place import no_lake
from kafka_telemetry_lake.pipelines.quality.checks import FAILED, NO_TABLE, PASSED, CheckedLake, Finding, QualityError
from kafka_telemetry_lake.pipelines.quality.expectations import judge
from kafka_telemetry_lake.pipelines.quality.note import CheckNote
from kafka_telemetry_lake.pipelines.quality.page import write_page
from kafka_telemetry_lake.pipelines.quality.rules import RULES, tables_with_rules
from kafka_telemetry_lake.pipelines.query.lake_query import is_lake
from kafka_telemetry_lake.pipelines.query.printable import printable
from kafka_telemetry_lake.pipelines.tables.quality import QUALITY_RESULTS

DATA_DOCS = "data-docs"


def run_job(settings: QualitySettings) -> int:
    """Check the lake. Returns 1 if a rule is broken."""
    check_tables(settings.tables)
    if not is_lake(settings.lake):
        raise UsageError(no_lake(settings.lake))
    busy = f"maintain or a replay is running on {settings.lake}: check again after it has finished"
    try:
        with only(UPKEEP, settings.lake, busy):
            asked = {"tables": settings.tables, "full": settings.full, "stale_hours": settings.stale_hours}
            return _check(settings, CheckNote(settings.lake, asked))
    except duckdb.Error as error:  # delta-rs' DELETE writes string views, which Arrow can't compare
        reason = " ".join(str(error).split())
        raise QualityError(
            f"quality: a table's files can't be read: {reason}. Has another program rewritten them?"
        ) from error
    except (DeltaError, OSError) as error:
        raise JobFailedError(f"quality: {' '.join(str(error).split())}; run it again") from error


def check_tables(names: list[str]) -> None:
    """Raise ``UsageError`` for tables that have no rules."""
    if unknown := sorted(set(names) - set(tables_with_rules())):
        raise UsageError(f"tables: no rules for {', '.join(unknown)}; allowed: {', '.join(tables_with_rules())}")


def _check(settings: QualitySettings, note: CheckNote) -> int:
    lake = CheckedLake(settings.lake, full=settings.full, begun=note)
    if missing := [name for name in settings.tables if name not in lake.tables]:
        raise UsageError(
            f"tables: this lake has no {', '.join(missing)} yet; it has: {', '.join(lake.tables)}. "
            "Omit --tables to check all tables that exist"
        )
    if note.goes_on:
        print(f"quality: goes on with the check of {note.checked_at:%Y-%m-%d %H:%M}Z", file=sys.stderr)
    now = datetime.now(UTC)
    names = settings.tables or tables_with_rules()
    findings = [each for name in lake.tables if name in names for each in lake.check(name, now, settings.stale_hours)]
    passed = judge(findings, settings.docs and settings.docs / DATA_DOCS)
    rows = [_row(each, PASSED if passed[each.rule.name] else FAILED) for each in findings]
    for rule in RULES:
        if rule.table in names and rule.table not in lake.tables:
            rows.append({"table_name": rule.table, "rule": rule.name, "says": rule.says, "status": NO_TABLE})
    for row in rows:
        row["checked_at"] = note.checked_at
    note.end(pa.Table.from_pylist(rows, QUALITY_RESULTS.schema))
    missing = sorted(set(names) - set(lake.tables))
    _report(findings, passed, missing)
    if settings.docs is not None:
        data_docs = f"{DATA_DOCS}/index.html"
        print(f"report: {write_page(settings.docs, settings.lake, now, findings, passed, missing, data_docs)}")
    return 0 if all(passed.values()) else 1


def _row(finding: Finding, status: str) -> dict[str, object]:
    return {
        "table_name": finding.rule.table,
        "rule": finding.rule.name,
        "says": finding.rule.says,
        "status": status,
        "rows_checked": finding.rows,
        "broken": finding.broken,
        "examples": list(finding.examples),
        "from_version": finding.from_version,
        "to_version": finding.to_version,
        "open_from": finding.open_from,
        "seconds": finding.seconds,
    }


def _report(findings: list[Finding], passed: dict[str, bool], missing: list[str]) -> None:
    """Print one line per table on stdout, and each broken rule with advice on stderr."""
    for name in dict.fromkeys(each.rule.table for each in findings):
        rules = [each for each in findings if each.rule.table == name]
        satisfied = sum(passed[each.rule.name] for each in rules)
        since = "in total" if rules[0].from_version is None else f"new since version {rules[0].from_version}"
        print(f"{name}: {rules[0].rows:,} rows {since}, {satisfied} of {len(rules)} rules passed")
    if missing:
        print(f"not in this lake yet: {', '.join(missing)}")
    for each in findings:
        if not passed[each.rule.name]:
            print(
                f"BROKEN {each.rule.table}: {each.rule.says}. {each.broken:,} rows break this rule"
                f", for example: {printable('; '.join(each.examples))}\n  What to do: {each.rule.do}",
                file=sys.stderr,
            )
