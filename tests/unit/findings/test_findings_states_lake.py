"""Findings as states over a lake's own tables: the hours that are read, view open_findings, remarks, the command."""

from __future__ import annotations

import csv
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from kafka_telemetry_lake.jobs import cli
from kafka_telemetry_lake.jobs.support.locks import FINDINGS, UPKEEP, only
from kafka_telemetry_lake.pipelines.findings.evaluation.evaluator import Evaluator
from kafka_telemetry_lake.pipelines.findings.evaluation.lake_hours import Hours, LakeHours, LandedHour
from kafka_telemetry_lake.pipelines.findings.model import Override
from kafka_telemetry_lake.pipelines.lake.follower import Position
from kafka_telemetry_lake.pipelines.query.lake_query import run_query
from kafka_telemetry_lake.pipelines.tables.lifecycle import CLIENT_ALIASES
from kafka_telemetry_lake.pipelines.tables.operator import (
    METRIC_POINTS,
    METRIC_ROLLUPS_1H,
    PUSH_OUTCOMES,
    PUSHES,
    QUOTA_USAGE,
)
from kafka_telemetry_lake.pipelines.tables.table import Table
from kafka_telemetry_lake.pipelines.upkeep.maintenance import (
    BY_DAY,
    Maintenance,
    MaintenanceResult,
    MaintenanceSettings,
)
from kafka_telemetry_lake.udfs.findings.states import HOUR_US, finding_id
from tests.support.few_rules import judged_by
from tests.support.lake_tables import table
from tests.unit.findings.test_findings_states_evaluator import changes

pytestmark = pytest.mark.lake

START = datetime(2026, 11, 21, 12, tzinfo=UTC)
LATER = START + timedelta(hours=1)
FIRST = int(START.timestamp()) // 3600
NOW = (FIRST + 100) * HOUR_US
Rows = list[dict[str, Any]]


class SmallLake:
    """A lake in which pushes land; a damaged one is finding `unreadable_telemetry`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = str(path)
        for each in (PUSHES, PUSH_OUTCOMES):
            each.create(self.name)

    def land(self, hour: int, clients: Iterable[str], damaged: Iterable[str] = (), minute: int = 30) -> SmallLake:
        at = START + timedelta(hours=hour, minutes=minute)
        common = {"cluster_id": "c", "landed_at": at, "principal": "User:shop"}
        named = [(client, "points") for client in clients] + [(client, "quarantined") for client in damaged]
        outcomes = [
            common
            | {"client_id": client, "outcome": outcome, "client_instance_id": f"i{number}", "partition": 0}
            | {"offset": 100 * (hour + 300) + number}
            for number, (client, outcome) in enumerate(named)
        ]
        self.append(PUSHES, outcomes)
        return self.append(PUSH_OUTCOMES, outcomes)

    def append(self, to: Table, rows: Rows) -> SmallLake:
        named = [{name: row[name] for name in to.schema.names if name in row} for row in rows]
        stored = to.with_partition(pa.Table.from_pylist(named, to.schema))
        write_deltalake(to.create(self.name), stored, mode="append")
        return self

    def evaluate(self, now: int = NOW) -> SmallLake:
        Evaluator(self.name).evaluate(now)
        return self

    def ask(self, sql: str) -> Rows:
        rows: Rows = run_query(self.name, sql).read_all().to_pylist()
        return rows

    def open(self) -> dict[str, str]:
        """State by subject."""
        return {row["subject"]: row["state"] for row in self.ask("SELECT subject, state FROM open_findings")}


# The damaged pushes', one of each other scope, one with a bound where it closes, one that compares with a week before.
RULES = ("unreadable_telemetry", "greedy_principal", "one_slow_broker", "about_to_lose_data", "uneven_assignment",
         "quota_headroom_short", "costly_commits", "latency_regression")  # fmt: skip
ORDERS = finding_id({"cluster_id": "c", "finding": "unreadable_telemetry", "scope": "client_id", "subject": "orders"})


@pytest.fixture(autouse=True, scope="module")
def _few_rules() -> Iterator[None]:
    with judged_by(*RULES):
        yield


@pytest.fixture
def lake(tmp_path: Path) -> SmallLake:
    """One hour: `orders` has a finding, `bills` hasn't."""
    return SmallLake(tmp_path / "lake").land(0, ["bills"], ["orders"])


@pytest.mark.slow
def test_hour_by_hour(lake: SmallLake) -> None:
    lake.append(CLIENT_ALIASES, [
        {"client_id": "orders", "cluster_id": "c", "application": "old", "valid_from": LATER, "valid_to": LATER},
        {"client_id": "orders", "application": "any", "owner": "z", "valid_from": START},
        {"client_id": "orders", "cluster_id": "c", "application": "shop", "owner": "team-a", "valid_from": START},
        {"client_instance_id": "i0", "application": "other", "owner": "y", "valid_from": START},
    ])  # fmt: skip
    lake.evaluate()
    (row,) = lake.ask("SELECT * FROM open_findings")
    hours = row.pop("open_hours")
    assert hours == pytest.approx((time.time() - START.timestamp()) / 3600, abs=0.1)
    assert row.pop("advice") == "Table quarantine has reason, detail and payload of each."
    evidence = "1 of 1 pushes could not be read, in the hour from 2026-11-21 12:00 UTC"
    assert row == {
        "cluster_id": "c", "finding_id": ORDERS, "state": "open", "finding": "unreadable_telemetry",
        "severity": "error", "scope": "client_id", "subject": "orders", "client_id": "orders",
        "principal": "User:shop", "application": "shop", "owner": "team-a", "opened_at": START, "window_start": START,
        "measure": 1.0, "instances": 1, "instances_affected": 1, "worst_instance": "i1", "evidence": evidence,
        "until": None, "by": None, "why": None,
    }  # fmt: skip
    lake.land(1, ["orders", "bills"]).evaluate()
    assert lake.open() == {"orders": "open"}
    lake.land(2, ["orders"]).land(3, ["bills"]).evaluate(NOW + 1)
    assert lake.open() == {}
    assert [each[1:] for each in changes(lake.path)] == [
        ("opened", "error", FIRST, FIRST, FIRST, evidence),
        ("resolved", "error", FIRST + 3, FIRST, FIRST, f"seen in 2 hours without this finding; before: {evidence}"),
    ]
    lake.land(4, [], ["orders"]).evaluate(NOW + 2)
    (row,) = lake.ask("SELECT opened_at, finding_id FROM open_findings")
    assert row == {"opened_at": START + timedelta(hours=4), "finding_id": ORDERS}


@pytest.mark.slow
def test_a_principal_is_seen_by_its_pushes(tmp_path: Path) -> None:
    """`greedy_principal` has no client id."""
    lake = SmallLake(tmp_path)

    def land(hour: int, greedy: int) -> None:
        at = START + timedelta(hours=hour, minutes=30)
        sizes = {f"User:{number}": 10 for number in range(40)} | {"User:0": greedy}
        common = {"cluster_id": "c", "landed_at": at}
        lake.append(PUSHES, [common | {"principal": name, "payload_bytes": size} for name, size in sizes.items()])
        lake.append(PUSH_OUTCOMES, [common | {"client_id": "x", "outcome": "points"}])

    land(0, 100_000)
    lake.evaluate()
    (row,) = lake.ask(
        "SELECT scope, subject, client_id, principal FROM open_findings WHERE finding = 'greedy_principal'"
    )
    assert row == {"scope": "principal", "subject": "User:0", "client_id": None, "principal": "User:0"}
    for hour in (1, 2, 3):
        land(hour, 10)
    lake.evaluate(NOW + 1)
    assert "User:0" not in lake.open()


CONSUMER = "org.apache.kafka.consumer."
# By scope and subject of a finding: what shows it, as metric, client instance, attributes and values.
OF_NO_CLIENT: dict[tuple[str, str], list[tuple[str, str, list[tuple[str, str]], list[float]]]] = {
    ("broker", "3"): [
        ("org.apache.kafka.producer.node.request.latency.avg", f"i{n}", [("node_id", node)], [latency])
        for n in range(5)
        for node, latency in (("1", 10.0), ("2", 10.0), ("3", 90.0))
    ],
    ("topic", "t, client id orders"): [
        (f"{CONSUMER}fetch.manager.records.{name}", "i0", [("topic", "t"), ("partition", "0")], values)
        for name, values in (("lag", [5000.0] * 3), ("lead", [50.0, 52.0, 9.0]))
    ],
    ("group", "g"): [
        (f"{CONSUMER}coordinator.assigned.partitions", f"i{n}", [], [assigned] * 3)
        for n, assigned in enumerate((9.0, 1.0))
    ],
}


@pytest.mark.slow
def test_findings_about_no_client_id_open_and_are_resolved(tmp_path: Path) -> None:
    """A broker, a topic, a group and a quota are seen in each hour in which their cluster is."""
    lake = SmallLake(tmp_path)
    at: dict[str, Any] = {"cluster_id": "c", "landed_at": START + timedelta(minutes=30)}
    outcomes = [at | {"client_id": "orders", "client_instance_id": f"i{n}", "outcome": "points",
                      "labels": [("group_id", "g"), ("group_member_id", f"m{n}")]} for n in range(2)]  # fmt: skip
    points: Rows = [
        at | {"client_id": "orders", "client_instance_id": instance, "metric": metric, "attributes": attributes,
              "kind": "gauge", "delta_status": "value", "value": value, "time": START,
              "landed_at": START + timedelta(minutes=n)}
        for shown in OF_NO_CLIENT.values() for metric, instance, attributes, values in shown
        for n, value in enumerate(values)
    ]  # fmt: skip
    quota = {"cluster_id": "c", "client_id": "orders", "user": "u", "quota_type": "produce", "broker_id": 1,
             "source": "broker", "window_seconds": 10, "throttled": False, "used_percent": 90.0}  # fmt: skip
    usage = [quota | {"window_start": START + timedelta(seconds=10 * n)} for n in range(6)]
    # Another consumer of the topic has a state of its own.
    points += [point | {"client_id": "bills"} for point in points if ".records." in point["metric"]]
    outcomes.append(outcomes[0] | {"client_id": "bills"})
    subjects = {*OF_NO_CLIENT, ("topic", "t, client id bills"), ("quota", "produce quota of user u, client id orders")}
    lake.append(PUSH_OUTCOMES, outcomes).append(METRIC_POINTS, points).append(QUOTA_USAGE, usage).evaluate()
    named = {(row["scope"], row["subject"]) for row in lake.ask("SELECT scope, subject FROM open_findings")}
    assert named == subjects
    for hour in (1, 2, 3):
        lake.land(hour, ["orders"])
        lake.evaluate(NOW + hour)
        assert {(row["scope"], row["subject"]) for row in lake.ask("SELECT scope, subject FROM open_findings")} == (
            subjects if hour < 3 else set()
        ), hour
    lake.evaluate(NOW + 4)
    said = [
        (row["scope"], row["subject"], row["change"], row["at"])
        for row in table(tmp_path, "finding_changes").to_pylist()
    ]
    ended = START + timedelta(hours=3)
    assert sorted(said) == sorted(
        (*subject, *change) for subject in subjects for change in (("opened", START), ("resolved", ended))
    )


@pytest.mark.slow
def test_a_rule_that_compares_with_a_week_before(lake: SmallLake) -> None:
    common = {"cluster_id": "c", "client_id": "bills", "metric": "org.apache.kafka.producer.request.latency.avg",
              "kind": "gauge", "value_count": 1, "points": 1}  # fmt: skip
    week = timedelta(days=7)
    for hours, mean in ((0, 300.0), (1, 300.0), (2, 100.0)):
        start = START + timedelta(hours=hours)
        at = {"window_start": start, "landed_at": start, "value_sum": mean}
        before = {"window_start": start - week, "landed_at": start - week, "value_sum": 100.0}
        lake.land(hours, ["bills"]).append(METRIC_ROLLUPS_1H, [common | at, common | before])
    lake.evaluate()
    said = [each for each in changes(lake.path) if each[0] == "bills"]
    evidence = (
        "produce requests take 300 ms, 100 ms in the same hour a week before, in the hour from 2026-11-21 12:00 UTC"
    )
    assert said == [("bills", "opened", "warning", FIRST, FIRST, FIRST, evidence)]


@pytest.mark.slow
def test_a_measure_that_oscillates_is_one_finding(tmp_path: Path) -> None:
    """Commits open `costly_commits` at 1000 ms, and close it below 800; twice as much for batch-*."""
    latencies = {"orders": [1000, 999, 850, 1010, 800, 700, 700], "batch-1": [2000, 1650, 1600, 1600, 1599, 1500, 3000]}
    lake = SmallLake(tmp_path)
    overrides = (Override("batch-*", "costly_commits", (("latency", 2000),)),)
    for hour in range(8):
        lake.land(hour, [*latencies, "bills"])
        at = START + timedelta(hours=hour, minutes=30)
        lake.append(METRIC_POINTS, [
            {"cluster_id": "c", "client_id": name, "client_instance_id": f"i{n}", "landed_at": at, "time": at,
             "metric": "org.apache.kafka.consumer.coordinator.commit.latency.avg", "kind": "gauge",
             "delta_status": "value", "value": float(measures[hour])}
            for n, (name, measures) in enumerate(latencies.items()) if hour < len(measures)
        ])  # fmt: skip
        Evaluator(lake.name, LakeHours(lake.name, overrides)).evaluate(NOW + hour)
    assert [(*each[:2], each[3] - FIRST) for each in changes(lake.path)] == [
        ("batch-1", "opened", 0), ("batch-1", "resolved", 6), ("batch-1", "opened", 6),
        ("orders", "opened", 0), ("orders", "resolved", 7),
    ]  # fmt: skip


def test_which_hours_landed_since(lake: SmallLake) -> None:
    hours = LakeHours(lake.name)
    first = LandedHour("c", FIRST, NOW - 100 * HOUR_US + HOUR_US // 2, 2)
    position, landed = hours.landed(Position())
    assert landed == [first]
    assert hours.landed(position) == (position, [])
    lake.land(1, ["bills"])
    second = LandedHour("c", FIRST + 1, first.latest + HOUR_US, 1)
    after, landed = hours.landed(position)
    assert (after.version, after.table, landed) == (position.version + 1, position.table, [second])
    outcomes = DeltaTable(PUSH_OUTCOMES.uri(lake.name))
    outcomes.optimize.compact()
    assert hours.landed(position)[1] == [second], "compaction adds no rows"
    outcomes.vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert sorted(hours.landed(position)[1], key=lambda each: each.hour) == [first, second], (
        "all, as its files are gone"
    )


@pytest.mark.slow
def test_upkeep_leaves_the_note(lake: SmallLake) -> None:
    lake.evaluate()
    changed = DeltaTable(str(lake.path / "finding_changes"))
    changed.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    changed.optimize.compact()
    for hour in (1, 2, 3):
        lake.land(hour, ["orders"])
    lake.evaluate(NOW + 1)
    assert lake.open() == {}
    assert [each[1] for each in changes(lake.path)] == ["opened", "resolved"]


@pytest.mark.slow
def test_a_cluster_has_its_own_hours(lake: SmallLake) -> None:
    """One that is days behind, or names no cluster, is evaluated as if it were alone."""
    lake.land(50, ["bills"]).evaluate()
    behind = {"client_id": "orders", "landed_at": START + timedelta(minutes=30)}
    rows = [behind | {"outcome": "quarantined"}] + [
        behind | {"outcome": "points", "landed_at": START + timedelta(hours=hour, minutes=30)} for hour in (1, 2, 3)
    ]
    lake.append(PUSH_OUTCOMES, rows).append(PUSHES, rows).evaluate(NOW + 1)
    said = {(row["cluster_id"], row["change"], int(row["at"].timestamp()) // 3600 - FIRST)
            for row in table(lake.path, "finding_changes").to_pylist()}  # fmt: skip
    assert said == {("c", "opened", 0), (None, "opened", 0), (None, "resolved", 3)}


def run(lake: SmallLake, *argv: str) -> int:
    return cli.main(["findings", "--lake", lake.name, *argv])


@pytest.mark.slow
def test_acknowledged_until_it_is_resolved(lake: SmallLake, capsys: pytest.CaptureFixture[str]) -> None:
    lake.evaluate()
    assert run(lake, "--acknowledge", ORDERS, "--by", "ann\x1b", "--why", "a deploy") == 0
    assert capsys.readouterr().out == "unreadable_telemetry of client_id orders is acknowledged, by ann\\x1b\n"
    (row,) = lake.ask('SELECT state, "by", why, until, opened_at FROM open_findings')
    assert row == {"state": "acknowledged", "by": "ann\x1b", "why": "a deploy", "until": None, "opened_at": START}
    rows = table(lake.path, "finding_changes").to_pylist()
    (stored,) = [each for each in rows if each["change"] == "acknowledged"]
    assert (stored["finding_id"], stored["severity"], stored["evidence"]) == (ORDERS, "error", rows[0]["evidence"])
    assert stored["at"] == stored["recorded_at"]
    for hour in (1, 2, 3):
        lake.land(hour, ["orders"])
    lake.evaluate(NOW + 1)
    assert run(lake, "--acknowledge", ORDERS, "--by", "ann", "--why", "again") == 2
    assert f"finding {ORDERS} is resolved since 2026-11-21 15:00 UTC" in capsys.readouterr().err
    lake.land(4, [], ["orders"]).evaluate(NOW + 2)
    assert lake.open() == {"orders": "open"}, "an acknowledgement is of one opening"


@pytest.mark.slow
def test_muted_until_a_time_also_over_an_end(lake: SmallLake, capsys: pytest.CaptureFixture[str]) -> None:
    lake.evaluate()
    assert run(lake, "--mute", ORDERS, "--until", "2999-01-01T00:00Z", "--by", "ann", "--why", "known") == 0
    said = "unreadable_telemetry of client_id orders is muted until 2999-01-01 00:00 UTC, by ann\n"
    assert capsys.readouterr().out == said
    (row,) = lake.ask('SELECT state, until, "by", why FROM open_findings')
    assert row == {"state": "muted", "until": datetime(2999, 1, 1, tzinfo=UTC), "by": "ann", "why": "known"}
    for hour in (1, 2, 3):
        lake.land(hour, ["orders"])
    lake.land(4, [], ["orders"]).evaluate(NOW + 1)
    assert lake.open() == {"orders": "muted"}
    assert run(lake, "--unmute", ORDERS, "--by", "bob") == 0
    assert lake.open() == {"orders": "open"}
    assert run(lake, "--unmute", ORDERS, "--by", "bob") == 2
    assert f"finding {ORDERS} isn't muted" in capsys.readouterr().err


def test_a_mute_ends_by_itself(lake: SmallLake) -> None:
    lake.evaluate()
    for seconds in (1.5, 6, 24, 96):  # on a busy machine a look takes long
        soon = datetime.now(UTC) + timedelta(seconds=seconds)
        assert run(lake, "--mute", ORDERS, "--until", soon.isoformat(), "--by", "ann", "--why", "known") == 0
        muted = lake.open()
        if datetime.now(UTC) < soon:
            break
    assert muted == {"orders": "muted"}
    time.sleep(max(0, (soon - datetime.now(UTC)).total_seconds()) + 0.01)
    assert lake.open() == {"orders": "open"}
    assert run(lake, "--unmute", ORDERS, "--by", "ann") == 2


@pytest.mark.slow
def test_the_command_evaluates_and_prints(lake: SmallLake, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(lake, "--format", "csv") == 0
    out, err = capsys.readouterr()
    (row,) = csv.DictReader(out.splitlines())
    assert (row["finding_id"], row["subject"], row["opened_at"]) == (ORDERS, "orders", "2026-11-21T12:00:00Z")
    assert err == "1 finding open\n"
    lake.land(1, [], ["bills\x1b[31m" * 100])
    assert run(lake) == 0
    out, err = capsys.readouterr()
    header, _, *lines = out.splitlines()
    assert header.split() == [
        "severity", "state", "finding", "subject", "owner", "opened_at", "open_hours", "evidence", "finding_id"
    ]  # fmt: skip
    assert [line.split()[:3] for line in lines] == [["error", "open", "unreadable_telemetry"]] * 2
    assert "\x1b" not in out
    assert err == "2 findings open\n"


def test_a_busy_lake_shows_what_is_known(lake: SmallLake, capsys: pytest.CaptureFixture[str]) -> None:
    with only(FINDINGS, lake.name, ""):
        assert run(lake) == 0
        out, err = capsys.readouterr()
        assert len(out.splitlines()) == 2, "it isn't evaluated"
        assert err.startswith("not evaluated now: another process evaluates the findings of this lake, or a replay or ")
        assert err.endswith("; what was evaluated before follows\n0 findings open\n")
        assert cli.main(["replay", "--lake", lake.name, "--from", "earliest"]) == 2
        assert f"maintain, quality or findings is running on {lake.name}: stop" in capsys.readouterr().err
    with only(UPKEEP, lake.name, ""):  # maintain and quality may run beside it, and it doesn't keep them waiting
        assert run(lake) == 0
    assert capsys.readouterr().err == "1 finding open\n"


@pytest.mark.slow
@pytest.mark.parametrize("step", ["follows", "reads", "appends"])
def test_maintain_beside_an_evaluation_changes_nothing_of_it(tmp_path: Path, step: str) -> None:
    """It merges a day's files and drops another day, before a step of the evaluation."""
    alone, beside = (SmallLake(tmp_path / name) for name in ("alone", "beside"))
    done: dict[str, MaintenanceResult] = {}
    for each in (alone, beside):
        each.land(-240, [], ["gone"]).land(0, ["bills"], ["orders"]).evaluate()
        for hour in range(1, 7):
            each.land(hour, ["orders"], ["bills"])

    def maintain(before: str) -> None:
        if before != step or done:
            return
        settings = MaintenanceSettings(dict.fromkeys(BY_DAY, 5), 64 << 20, 24, 7)
        with only(UPKEEP, beside.name, ""):
            job = Maintenance(beside.name, f"{beside.name}/_checkpoints", settings, date(2026, 11, 23))
            done.update({name: job.maintain(name) for name in job.tables()})
        assert {name: each.problems for name, each in done.items() if each.problems} == {}
        assert done["push_outcomes"].dropped_days == ("2026-11-11",)
        assert done["push_outcomes"].compacted_files == 7

    class Beside(LakeHours):
        def landed(self, after: Position) -> tuple[Position, list[LandedHour]]:
            maintain("follows")
            return super().landed(after)

        @contextmanager
        def hours(self, first: int, last: int) -> Iterator[Hours]:
            with super().hours(first, last) as hours:
                maintain("reads")
                yield hours
            maintain("appends")

    with only(FINDINGS, beside.name, ""):
        Evaluator(beside.name, Beside(beside.name)).evaluate(NOW + 1)
    alone.evaluate(NOW + 1)
    found = [each for each in changes(alone.path) if each[0] != "gone"]
    assert [each for each in changes(beside.path) if each[0] != "gone"] == found
    assert {each[:2] for each in found} == {("orders", "opened"), ("orders", "resolved"), ("bills", "opened")}


def test_files_of_other_hours_are_not_opened(lake: SmallLake) -> None:
    first = {each.name: DeltaTable(each.uri(lake.name)).file_uris() for each in (PUSHES, PUSH_OUTCOMES)}
    lake.land(1, ["bills"]).land(2, [], ["bills"])
    for uris in first.values():
        Path(uris[0]).unlink()
    with LakeHours(lake.name).hours(FIRST + 1, FIRST + 2) as read:
        found = {at: [row["subject"] for row in rows] for at, rows in read.found().items()}
        assert found == {("c", FIRST + 2): ["bills"]}
        assert read.seen({("c", "client_id", "bills"), ("c", "client_id", "orders")}) == {
            ("c", FIRST + 1, "client_id", "bills"), ("c", FIRST + 2, "client_id", "bills")
        }  # fmt: skip
