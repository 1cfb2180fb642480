"""``telemetry-lake quality``: each rule holds on a good lake and finds the row that breaks it."""

from __future__ import annotations

import re
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from kafka_telemetry_lake.jobs import cli
from kafka_telemetry_lake.pipelines.quality import note
from kafka_telemetry_lake.pipelines.quality.checks import COMMIT_TAKES, CheckedLake, Finding, QualityError
from kafka_telemetry_lake.pipelines.quality.note import CheckNote
from kafka_telemetry_lake.pipelines.quality.rules import RULES
from kafka_telemetry_lake.pipelines.tables.catalog import CATALOG
from kafka_telemetry_lake.pipelines.tables.quality import QUALITY_RESULTS
from tests.support.expired_logs import expire_log
from tests.support.lake_tables import table

pytestmark = pytest.mark.lake

T0 = datetime(2026, 11, 20, 12, tzinfo=UTC)
NOW = T0 + timedelta(hours=3)
Row = Mapping[str, Any]


def push(offset: int, at: datetime = T0, **other: Any) -> dict[str, Any]:
    place = {"source": "kafka", "cluster_id": "c", "topic": "t", "partition": 0, "offset": offset, "landed_at": at}
    return {**place, "landed_date": at.date(), "client_instance_id": "i", "client_id": "orders", **other}


def point(offset: int, at: datetime = T0, **other: Any) -> dict[str, Any]:
    number = {
        "metric": "m",
        "kind": "sum",
        "temporality": "cumulative",
        "is_monotonic": True,
        "delta_status": "converted",
    }
    return push(offset, at, **number, time=at, delta_start=at - timedelta(minutes=1), delta=2.0, delta_int=2) | other


def outcome(offset: int, at: datetime = T0, **other: Any) -> dict[str, Any]:
    return push(offset, at, outcome="points", points=1, quarantined_points=0) | other


def write(lake: Path, **tables: list[dict[str, Any]]) -> None:
    for name, rows in tables.items():
        by = ["landed_date"] if "landed_date" in CATALOG[name].names else None
        write_deltalake(lake / name, pa.Table.from_pylist(rows, CATALOG[name]), mode="append", partition_by=by)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pushes with a point each, the last one rejected, in all tables that have rules."""
    lake, read, bad = tmp_path_factory.mktemp("good"), range(2), 2
    write(
        lake,
        pushes=[push(each) for each in (*read, bad)],
        metric_points=[point(each) for each in read],
        quarantine=[
            push(bad, scope="push", reason="INVALID_RECORD"),
            push(7, topic="client-quotas", scope="quota_sample", reason="INVALID_RECORD"),  # its push is none
        ],
        push_outcomes=[*map(outcome, read), outcome(bad, outcome="quarantined", points=0)],
        client_changes=[push(bad, NOW, step=1)],
        receiver_health=[push(0, received=5, landed=3, dropped_total=1, queue_depth=1)],
        metric_rollups_1h=[{"landed_date": T0.date(), "points": 2, "value_count": 2, "refused": 0, "covered_s": 60.0}],
        quota_usage=[{"landed_date": T0.date(), "quota_type": "produce", "source": "broker", "used_percent": 100.0}],
        quota_samples=[push(0, quota_type="fetch", quota_limit=1e6)],
        subscriptions=[{"name": "s", "valid_from": T0, "interval_ms": 1000}],
        quotas=[{"user": "u", "valid_from": T0, "valid_to": NOW}],
        lost_records=[],
    )
    return lake


@pytest.fixture
def lake(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "lake")


def append(lake: Path, row: Row) -> None:
    """A result of an earlier check."""
    rows = QUALITY_RESULTS.with_partition(pa.Table.from_pylist([row], QUALITY_RESULTS.schema))
    write_deltalake(QUALITY_RESULTS.create(str(lake)), rows, mode="append")


def check(lake: Path, *, full: bool = False, stale_hours: float | None = None) -> dict[str, Finding]:
    checked = CheckedLake(str(lake), full=full)
    return {each.rule.name: each for name in checked.tables for each in checked.check(name, NOW, stale_hours)}


def broken(lake: Path, **settings: Any) -> dict[str, int]:
    return {name: each.broken for name, each in check(lake, **settings).items() if each.broken}


def test_a_good_lake_keeps_all_rules(lake: Path) -> None:
    found = check(lake, stale_hours=4)
    assert {name: each.broken for name, each in found.items()} == {rule.name: 0 for rule in RULES}
    assert {each.rows for each in found.values() if each.rule.table == "push_outcomes"} == {3}


LATER = T0 + timedelta(minutes=30)
BREAKS: dict[str, dict[str, list[dict[str, Any]]]] = {
    "pushes_once": {"pushes": [push(0)]},
    "pushes_judged": {
        "pushes": [push(7), push(8, LATER)], "push_outcomes": [outcome(8, LATER)], "metric_points": [point(8, LATER)],
    },
    "outcomes_once": {"push_outcomes": [outcome(0)]},
    "outcomes_have_a_push": {"push_outcomes": [outcome(9, points=0)]},
    "outcomes_count_points": {"metric_points": [point(0, metric="m2")]},
    "outcomes_have_quarantine_rows": {
        "pushes": [push(7)], "push_outcomes": [outcome(7, points=0, quarantined_points=2)],
    },
    "outcomes_have_a_client": {
        "pushes": [push(7)], "push_outcomes": [outcome(7, points=0, outcome="heartbeat", client_instance_id="unknown")],
    },
    "outcomes_keep_up": {"pushes": [push(9, NOW)]},
    "outcomes_known": {"pushes": [push(7)], "push_outcomes": [outcome(7, points=0, outcome="fine")]},
    "points_have_a_push": {"metric_points": [point(9)]},
    "quarantine_has_a_push": {"quarantine": [push(9, scope="push", reason="INVALID_RECORD")]},
    "quarantine_says_why": {"quarantine": [push(2, scope="point", reason=None)]},
    "receivers_add_up": {"receiver_health": [push(1, received=5, landed=3, dropped_total=1, queue_depth=0)]},
    "receivers_speak_plainly": {"receiver_health": [push(1, problem="version 7")]},
    "records_read": {"lost_records": [{"landed_date": T0.date(), "topic": "t", "partition": 0, "records": 4}]},
    "rollups_add_up": {"metric_rollups_1h": [{"landed_date": T0.date(), "points": 2, "value_count": 3}]},
    "quota_percentages": {
        "quota_usage": [{"landed_date": T0.date(), "quota_type": "produce", "source": "broker", "used_percent": 101.0}]
    },
    "quota_types_known": {"quota_usage": [{"landed_date": T0.date(), "quota_type": "bytes", "source": "broker"}]},
    "quota_samples_known": {"quota_samples": [push(1, quota_type="fetch", quota_limit=-1.0)]},
    "versions_end_after_they_begin": {"subscriptions": [{"name": "s", "valid_from": T0, "interval_ms": 0}]},
    "quota_versions_end_after_they_begin": {"quotas": [{"user": "u", "valid_from": NOW, "valid_to": T0}]},
}  # fmt: skip
POINTS: dict[str, dict[str, Any]] = {
    "points_status_known": {"delta_status": "sure", "delta": None, "delta_int": None},
    "points_kind_known": {"kind": "meter"},
    "points_temporality_known": {"temporality": None},
    "points_never_fall": {"delta": -1.0},
    "points_counted_have_a_delta": {"delta_status": "late"},
    "points_delta_spans_time": {"delta_start": T0 + timedelta(seconds=1)},
    "points_not_from_the_future": {"time": T0 + timedelta(hours=25)},
}


def volume(lake: Path, pushes_by_day: list[int]) -> None:
    for days, count in enumerate(pushes_by_day):
        at = T0 - timedelta(days=len(pushes_by_day) - days)
        write(lake, pushes=[push(100 * days + each, at, partition=1) for each in range(count)])


# Each in a table of its own rules, so one lake has all of them.
APART = {name for name, rows in BREAKS.items() if rows.keys().isdisjoint(("pushes", "push_outcomes", "metric_points"))}


@pytest.mark.parametrize("rule", [*(name for name in BREAKS if name not in APART), "pushes_volume", "pushes_fresh"])
def test_each_rule_finds_the_row_that_breaks_it(lake: Path, rule: str) -> None:
    if rule == "pushes_volume":
        volume(lake, [4, 5, 4, 1])
    elif rule in BREAKS:
        write(lake, **BREAKS[rule])
    assert broken(lake, stale_hours=2.9 if rule == "pushes_fresh" else None) == {rule: 1}


def test_each_rule_of_the_other_tables_finds_the_row_that_breaks_it(lake: Path) -> None:
    for rule in APART:
        write(lake, **BREAKS[rule])
    assert broken(lake) == dict.fromkeys(APART, 1)


def test_each_rule_of_points_finds_the_point_that_breaks_it(lake: Path) -> None:
    offsets = dict(enumerate(POINTS, 10))
    write(
        lake,
        pushes=[push(each) for each in offsets],
        push_outcomes=[outcome(each) for each in offsets],
        metric_points=[point(each, **POINTS[rule]) for each, rule in offsets.items()],
    )
    found = check(lake)
    assert {name: each.broken for name, each in found.items() if each.broken} == dict.fromkeys(POINTS, 1)
    for offset, rule in offsets.items():
        assert f"offset {offset}," in found[rule].examples[0]


def test_every_rule_has_such_a_row() -> None:
    assert {*BREAKS, *POINTS, "pushes_volume", "pushes_fresh"} == {rule.name for rule in RULES}
    assert len({rule.name for rule in RULES}) == len(RULES)


def test_days_that_retention_dropped_unread_break_the_rule_of_lost_records(lake: Path) -> None:
    write(lake, lost_records=[{"landed_date": T0.date(), "topic": "metric_points", "reason": "dropped"}])
    assert broken(lake) == {"records_read": 1}


def test_pushes_that_the_stream_of_points_has_not_reached_are_no_loss_but_looked_at_again(lake: Path) -> None:
    write(lake, pushes=[push(7, LATER)])
    found = check(lake)["pushes_judged"]
    assert (found.broken, found.open_from) == (0, date(2026, 11, 20))


def test_a_push_that_was_passed_over_is_found_as_soon_as_nothing_waits(lake: Path) -> None:
    soon, then = (T0 + timedelta(seconds=each) for each in (5, 10))
    write(lake, pushes=[push(7, soon), push(8, then), push(9, then)], push_outcomes=[outcome(8, soon, points=0)])
    assert "pushes_judged" not in broken(lake)  # 9 waits, and 7 may, too
    write(lake, push_outcomes=[outcome(9, then, points=0)])
    assert broken(lake)["pushes_judged"] == 2  # 7, and 8: its outcome is that of another record


def test_what_the_retention_of_pushes_has_dropped_is_not_missed(lake: Path) -> None:
    before = T0 - timedelta(days=1)
    write(lake, metric_points=[point(0, before)], push_outcomes=[outcome(0, before)])
    assert broken(lake) == {}


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = cli.main(["quality", *argv])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.slow
def test_a_check_takes_up_where_the_last_one_ended(
    lake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(lake, pushes=[push(5, LATER)])  # not judged yet
    code, out, err = run(capsys, "--lake", str(lake), "--docs", str(tmp_path / "pages"))
    assert (code, err) == (0, "")
    assert "metric_points: 2 rows in total, 8 of 8 rules passed" in out
    data_docs = tmp_path / "pages" / "data-docs"
    page = next((data_docs / "validations" / "metric_points").rglob("*.html")).read_text("utf-8")
    assert "No monotonic sum has a negative delta" in page
    assert (data_docs / "index.html").is_file()
    page = (tmp_path / "pages" / "index.html").read_text("utf-8")
    assert f"all {len(RULES)} rules passed" in page
    assert page.count("<td class=passed>passed") == len(RULES)
    assert re.findall(r"https?:|<script|<link", page) == []  # it can be read where there is no internet

    # Without a row more in pushes, the push that was left open has been passed over; and a sum has fallen.
    much_later = T0 + timedelta(hours=1)
    write(
        lake,
        pushes=[push(6, much_later)],
        push_outcomes=[outcome(6, much_later)],
        metric_points=[point(6, much_later, delta=-3.0)],
    )
    code, out, err = run(capsys, "--lake", str(lake), "--docs", str(tmp_path / "pages"))
    assert code == 1
    page = (tmp_path / "pages" / "index.html").read_text("utf-8")
    assert "2 of 30 rules are broken" in page
    assert "<li>cluster_id c, topic t, partition 0, offset 6, client_id orders, metric m, is_monotonic True, " in page
    assert "What to do: run `telemetry-lake replay` to recreate its rows" in page
    assert "metric_points <span class=soft>1 rows, new since version 0" in page
    assert "metric_points: 1 rows new since version 0, 7 of 8 rules passed" in out
    assert "BROKEN pushes: every push that the job has reached has an outcome" in err
    assert "partition 0, offset 5" in err
    assert "What to do: run `telemetry-lake replay` to recreate its rows" in err
    assert "BROKEN metric_points: no monotonic sum has a negative delta" in err
    failed = [row for row in table(lake, "quality_results").to_pylist() if row["status"] == "failed"]
    assert {(row["rule"], row["broken"]) for row in failed} == {("pushes_judged", 1), ("points_never_fall", 1)}

    # Broken rows are reported by one check, lost pushes by every check; --full checks all rows.
    code, _, err = run(capsys, "--lake", str(lake))
    assert (code, err.count("BROKEN")) == (1, 1)
    assert broken(lake, full=True) == {"pushes_judged": 1, "points_never_fall": 1}


class KilledError(Exception):
    """Stands for the end of the process."""


def checked_with(lake: Path, note: CheckNote) -> list[Finding]:
    checked = CheckedLake(str(lake), full=False, begun=note)
    return [replace(each, seconds=0) for name in checked.tables for each in checked.check(name, NOW, None)]


@pytest.mark.slow
def test_a_killed_check_goes_on_where_it_stopped(
    lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Killed at its first and last step and inside a table. Rows of two days break a rule, others come meanwhile."""
    tomorrow = T0 + timedelta(days=1)
    write(
        lake,
        pushes=[push(7), push(8, tomorrow)],
        push_outcomes=[outcome(7), outcome(8, tomorrow)],
        metric_points=[point(7, delta=-1.0), point(8, tomorrow, delta=-2.0)],
    )
    whole = checked_with(lake, CheckNote())
    assert {each.rule.name: (each.rows, each.broken) for each in whole if each.broken} == {"points_never_fall": (4, 2)}
    monkeypatch.setattr(note, "EVERY_S", 0)
    store, steps = CheckNote.checked, list[tuple[str, str | None]]()
    kill_at = 0

    def checked(self: CheckNote, name: str, day: str | None, *rest: Any) -> None:
        store(self, name, day, *rest)
        steps.append((name, day))
        if len(steps) == kill_at:
            raise KilledError

    monkeypatch.setattr(CheckNote, "checked", checked)
    checked_with(lake, CheckNote())
    in_all = list(steps)
    assert in_all.count(("metric_points", T0.date().isoformat())) == 1
    for kill_at in (1, 1 + in_all.index(("metric_points", T0.date().isoformat())), len(in_all)):
        copy = shutil.copytree(lake, tmp_path / f"killed-{kill_at}")
        steps.clear()
        begun = CheckNote(str(copy), {"full": False})
        with pytest.raises(KilledError):
            checked_with(copy, begun)
        write(copy, quarantine=[push(7, scope="point", reason=None)], metric_points=[point(7, delta=-5.0)])
        again = CheckNote(str(copy), {"full": False})
        assert (again.goes_on, again.checked_at) == (True, begun.checked_at)
        found = checked_with(copy, again)
        assert steps == in_all  # no step twice, none left out
        assert found == whole  # of the moment that the killed check had
        assert not CheckNote(str(copy), {"full": True}).goes_on
    assert "quality: metric_points: 1 of 2 days" in capsys.readouterr().err.splitlines()


def test_a_check_that_was_killed_after_its_commit_is_not_stored_twice(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(note, "EVERY_S", 0)
    file, asked = lake / "quality_results" / "_check-e000000000000.json", {"full": False}
    rows = pa.Table.from_pylist([{"rule": "pushes_once", "checked_at": NOW}], QUALITY_RESULTS.schema)
    for stored in (1, 2):
        begun = CheckNote(str(lake), asked)
        checked_with(lake, begun)
        kept = file.read_bytes()
        begun.end(rows)
        assert not file.exists()
        file.write_bytes(kept)
        again = CheckNote(str(lake), asked)
        assert again.goes_on
        again.end(rows)
        assert (len(table(lake, "quality_results")), file.exists()) == (stored, False)


def test_only_later_files_are_checked_where_the_log_has_forgotten_the_last_check(lake: Path) -> None:
    """A log keeps a day; a check of all rows after each longer pause would read years."""
    ended = datetime.now(UTC) + timedelta(seconds=1)
    row = {"checked_at": ended + COMMIT_TAKES, "table_name": "metric_points", "rule": "r", "status": "passed"}
    append(lake, row | {"to_version": 0})
    time.sleep(max(0.0, (ended - datetime.now(UTC)).total_seconds()))
    write(lake, metric_points=[point(6, delta=-3.0)])
    expire_log(lake / "metric_points")
    found = check(lake)["points_never_fall"]
    assert (found.rows, found.broken, found.from_version, found.to_version) == (1, 1, 0, 1)
    assert check(lake, full=True)["points_never_fall"].rows == 3


def test_a_lake_that_was_restored_from_an_older_copy_is_checked_whole(lake: Path) -> None:
    row = {"checked_at": NOW, "table_name": "metric_points", "rule": "r", "status": "passed", "to_version": 9}
    append(lake, row)
    found = check(lake)["points_kind_known"]
    assert (found.rows, found.from_version) == (2, None)


def test_a_lake_that_cannot_be_checked_is_said_in_a_line(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "--lake", str(lake / "none"))
    assert (code, "no lake at" in err, "telemetry-lake ingest" in err) == (2, True, True)
    code, _, err = run(capsys, "--lake", str(lake), "--tables", "metric_point")
    assert (code, "no rules for metric_point; allowed: push_outcomes" in err) == (2, True)


def test_a_suite_for_a_table_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, pushes=[push(0)])
    code, _, err = run(capsys, "--lake", str(tmp_path), "--tables", "quota_usage")
    assert (code, "this lake has no quota_usage yet; it has: pushes" in err) == (2, True)
    code, out, _ = run(capsys, "--lake", str(tmp_path))
    assert (code, "not in this lake yet: lost_records, metric_points" in out) == (0, True)
    rows = table(tmp_path, "quality_results").to_pylist()
    assert {row["status"] for row in rows if row["table_name"] == "quota_usage"} == {"no_table"}


def test_a_table_of_a_newer_version(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = lake / "metric_points" / "_delta_log" / f"{1:020d}.json"
    features = '"readerFeatures":["tomorrow"],"writerFeatures":["tomorrow"]'
    log.write_text('{"protocol":{"minReaderVersion":3,"minWriterVersion":7,' + features + "}}\n", "utf-8")
    with pytest.raises(QualityError, match=r"metric_points can't be read.*newer version"):
        CheckedLake(str(lake), full=False)
    code, _, err = run(capsys, "--lake", str(lake))
    assert (code, len(err.splitlines()), "Upgrade kafka-telemetry-lake here" in err) == (2, 1, True)


def test_files_that_another_program_has_rewritten(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    DeltaTable(lake / "push_outcomes").delete('"offset" = 1')
    code, _, err = run(capsys, "--lake", str(lake), "--tables", "push_outcomes")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "a table's files can't be read: " in err
    assert "Has another program rewritten them?" in err


def test_without_great_expectations(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("kafka_telemetry_lake.jobs.quality", "kafka_telemetry_lake.pipelines.quality.expectations"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "great_expectations", None)
    code, _, err = run(capsys, "--lake", str(tmp_path))
    assert (code, err) == (
        2, "telemetry-lake: quality needs great_expectations: pip install 'kafka-telemetry-lake[quality]'\n",
    )  # fmt: skip
