"""``telemetry-lake check-landing``: says what is wrong with the landing records of another receiver."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kafka_telemetry_lake.jobs.settings.check_landing import CheckLandingSettings
from kafka_telemetry_lake.pipelines.landing.check import Checked, check
from kafka_telemetry_lake.pipelines.landing.records import Placed, records_of
from kafka_telemetry_lake.pipelines.query.printable import printable, printable_json
from kafka_telemetry_lake.udfs.landing.contract import HEADERS
from kafka_telemetry_lake.udfs.landing.problems import Problem


def run_job(settings: CheckLandingSettings) -> int:
    """Print each problem and a summary. Returns 1 if a record has an error, or there is no record."""
    checked = Checked()
    printed = 0
    with _records(settings) as records:
        others = frozenset((settings.status_topic, settings.quotas_topic))
        for place, problem in check(records, others, checked):
            if printed < settings.max_problems:
                print(_line(settings, place, problem))
            printed += 1
    if settings.format == "jsonl":
        print(printable_json(_counts(checked)))
    else:
        left_out = printed - settings.max_problems
        lines = [f"... and {left_out:,} more problems: --max-problems prints them"] if left_out > 0 else []
        print("\n".join([*lines, *_summary(checked)]))
    return 1 if checked.with_errors or not checked.records else 0


@contextmanager
def _records(settings: CheckLandingSettings) -> Iterator[Iterable[Placed]]:
    if settings.bootstrap_servers is None:
        yield records_of(Path(settings.target))
        return
    # Files need neither Java nor pyspark.
    from kafka_telemetry_lake.pipelines.landing.topic_records import newest_records  # noqa: PLC0415  # see above
    from kafka_telemetry_lake.pipelines.runtime.java_machine import java_machine  # noqa: PLC0415  # see above
    from kafka_telemetry_lake.pipelines.runtime.kafka_reach import check_brokers  # noqa: PLC0415  # see above

    check_brokers(settings.bootstrap_servers, settings.kafka_options)
    with java_machine() as java:
        yield newest_records(
            java, settings.bootstrap_servers, settings.kafka_options, settings.target, settings.max_records
        )


def _line(settings: CheckLandingSettings, place: str, problem: Problem) -> str:
    if settings.format == "jsonl":
        return printable_json({"place": place} | vars(problem))
    return printable(f"{place}: {problem.severity}: {problem.field}: {problem.message}")


def _counts(checked: Checked) -> dict[str, object]:
    return {
        "records": checked.records,
        "with_errors": checked.with_errors,
        "points": checked.points,
        "not_checked": checked.others,
        "problems": [
            {"severity": severity, "field": field, "kind": kind, "records": count}
            for (severity, field, kind), count in _worst_first(checked)
        ],
        "headers": {name: checked.with_header[name] for name in HEADERS},
    }


def _summary(checked: Checked) -> Iterator[str]:
    """How many records have which problem, and what the lake lacks because headers are missing."""
    others = f"; {checked.others:,} records of other topics were not checked" if checked.others else ""
    counts = f"{checked.records:,} records, {checked.points:,} data points"
    yield f"{counts}, {checked.with_errors:,} records with errors{others}"
    for (severity, field, kind), count in _worst_first(checked):
        yield printable(f"  {severity:<7}  {count:>6,}  {field}: {kind}")
    for name, header in HEADERS.items():
        missing = checked.records - checked.with_header[name]
        if missing and name != "dropped":
            yield f"  {'absent':<7}  {missing:>6,}  {name}: {header.without}"


def _worst_first(checked: Checked) -> list[tuple[tuple[str, str, str], int]]:
    order = ("error", "warning", "note")
    return sorted(checked.by_kind.items(), key=lambda item: (order.index(item[0][0]), -item[1], item[0]))
