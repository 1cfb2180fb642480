"""``telemetry-lake quality``: the rules that every lake must keep, checked over the rows that are new.

Exit codes: 0 all rules hold, 1 a rule is broken or the results could not be written, 2 can't run as asked.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import pyarrow as pa
from filelock import Timeout
from pydantic import Field

from jobs.settings import JobSettings, UsageError, fail, parse

if TYPE_CHECKING:
    from pipelines.quality import Finding, Lake

DATA_DOCS = "data-docs"


class QualitySettings(JobSettings):
    """Check the rows that are new since the last check: nothing lost or doubled, tables that fit, known values."""

    lake: str
    """folder or URI of the lake"""
    tables: Annotated[list[str], Field(default_factory=list)]
    """tables to check [all that have rules]"""
    full: bool = False
    """look at all rows, not only at those that are new since the last check"""
    stale_hours: Annotated[float, Field(gt=0)] | None = None
    """the newest push must have landed within so many hours [not looked at]"""
    docs: Path | None = None
    """folder for a report, index.html, and below it Great Expectations' Data Docs [no pages]"""


def main(argv: list[str] | None = None) -> int:
    """Run the job; `argv` without the program's name. Gives the exit code."""
    try:
        settings = parse(QualitySettings, sys.argv[1:] if argv is None else argv, "telemetry-lake quality")
        if find_spec("great_expectations") is None:
            raise UsageError("quality needs Great Expectations: pip install 'kafka-telemetry-lake[quality]'")
        return _run(settings)
    except UsageError as error:
        return fail(str(error), 2)


def _run(settings: QualitySettings) -> int:
    # DuckDB, pandas and Great Expectations take seconds to import: a wrong flag is told before that.
    import duckdb  # noqa: PLC0415
    from deltalake.exceptions import DeltaError  # noqa: PLC0415

    from jobs.locks import only_upkeep  # noqa: PLC0415
    from pipelines.lake_query import is_lake  # noqa: PLC0415
    from pipelines.quality import Lake, QualityError  # noqa: PLC0415

    check_tables(settings.tables)
    if not is_lake(settings.lake):
        return fail(f"no lake at {settings.lake}: make one with `telemetry-lake ingest --lake {settings.lake}`", 2)
    try:
        with only_upkeep(settings.lake):
            return _check(settings, Lake(settings.lake, full=settings.full))
    except Timeout:
        return fail(f"maintain or a replay is at work on {settings.lake}: check it when that has ended", 2)
    except QualityError as error:
        return fail(str(error), 2)
    except duckdb.Error as error:  # delta-rs' DELETE leaves text of a kind that Arrow can't compare
        reason = " ".join(str(error).split())
        return fail(f"quality: a table's files can't be read: {reason}. Has another program rewritten them?", 2)
    except (DeltaError, OSError) as error:
        return fail(f"quality: {' '.join(str(error).split())}; run it again", 1)


def check_tables(names: list[str]) -> None:
    """Raise ``UsageError`` for tables that have no rules."""
    from pipelines.quality_rules import tables_with_rules  # noqa: PLC0415

    if unknown := sorted(set(names) - set(tables_with_rules())):
        raise UsageError(f"tables: no rules for {', '.join(unknown)}; there are for: {', '.join(tables_with_rules())}")


def _check(settings: QualitySettings, lake: Lake) -> int:
    from pipelines.quality import FAILED, NO_TABLE, PASSED  # noqa: PLC0415
    from pipelines.quality_expectations import judge  # noqa: PLC0415
    from pipelines.quality_page import write_page  # noqa: PLC0415
    from pipelines.quality_results import QUALITY_RESULTS, append_results  # noqa: PLC0415
    from pipelines.quality_rules import RULES, tables_with_rules  # noqa: PLC0415

    if missing := [name for name in settings.tables if name not in lake.tables]:
        raise UsageError(
            f"tables: this lake has no {', '.join(missing)} yet; it has: {', '.join(lake.tables)}. "
            "Leave --tables out to check what is there"
        )
    now = datetime.now(UTC)
    asked = settings.tables or tables_with_rules()
    found = [each for name in lake.tables if name in asked for each in lake.check(name, now, settings.stale_hours)]
    passed = judge(found, settings.docs and settings.docs / DATA_DOCS)
    rows = [_row(each, PASSED if passed[each.rule.name] else FAILED) for each in found]
    for rule in RULES:
        if rule.table in asked and rule.table not in lake.tables:
            rows.append({"table_name": rule.table, "rule": rule.name, "says": rule.says, "status": NO_TABLE})
    for row in rows:
        row["checked_at"] = now
    append_results(settings.lake, pa.Table.from_pylist(rows, QUALITY_RESULTS.schema), now)
    missing = sorted(set(asked) - set(lake.tables))
    _tell(found, passed, missing)
    if settings.docs is not None:
        own = f"{DATA_DOCS}/index.html"
        print(f"pages: {write_page(settings.docs, settings.lake, now, found, passed, missing, own)}")
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


def _tell(found: list[Finding], passed: dict[str, bool], missing: list[str]) -> None:
    """A line a table on stdout, and on stderr what is broken and what to do."""
    for name in dict.fromkeys(each.rule.table for each in found):
        rules = [each for each in found if each.rule.table == name]
        held = sum(passed[each.rule.name] for each in rules)
        since = "in all" if rules[0].from_version is None else f"new since version {rules[0].from_version}"
        print(f"{name}: {rules[0].rows:,} rows {since}, {held} of {len(rules)} rules hold")
    if missing:
        print(f"not in this lake yet: {', '.join(missing)}")
    for each in found:
        if not passed[each.rule.name]:
            print(
                f"BROKEN {each.rule.table}: {each.rule.says}. {each.broken:,} rows don't keep to it"
                f", such as: {'; '.join(each.examples)}\n  What to do: {each.rule.do}",
                file=sys.stderr,
            )


if __name__ == "__main__":
    sys.exit(main())
