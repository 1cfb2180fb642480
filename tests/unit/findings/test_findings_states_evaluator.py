"""The evaluation of hours into table `finding_changes`: any cut, restarts, crashes, late rows."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_telemetry_lake.pipelines.findings.evaluation import evaluator as evaluation
from kafka_telemetry_lake.pipelines.findings.evaluation.evaluator import GRACE_US, Evaluator
from kafka_telemetry_lake.pipelines.findings.evaluation.lake_hours import (
    ClusterHour,
    Hours,
    LandedHour,
    LingersIn,
    SeenIn,
    Subject,
)
from kafka_telemetry_lake.pipelines.lake import notes
from kafka_telemetry_lake.pipelines.lake.errors import StateMissingError
from kafka_telemetry_lake.pipelines.lake.follower import Position
from kafka_telemetry_lake.udfs.findings.states import HOUR_US, FindingRow, Hysteresis
from tests.support.lake_tables import table

NOW = 10**6 * HOUR_US
Found = dict[str, str]  # severity by subject
Hour = tuple[Found, set[str]]  # what is found, and who is seen without it


class MadeHours(Hours):
    """Some hours of one cluster."""

    def __init__(self, hours: dict[int, Hour]) -> None:
        self._hours = hours

    def found(self) -> dict[ClusterHour, list[FindingRow]]:
        common = {"cluster_id": "c", "finding": "buffer_full", "scope": "client_id", "advice": "more", "instances": 1}
        rows = {
            ("c", hour): [
                common | {"subject": name, "client_id": name, "severity": severity, "evidence": f"hour {hour}"}
                for name, severity in found.items()
            ]
            for hour, (found, _) in self._hours.items()
        }
        return cast(dict[ClusterHour, list[FindingRow]], rows)

    def seen(self, subjects: Collection[Subject]) -> set[SeenIn]:
        return {
            ("c", hour, "client_id", name)
            for hour, (found, others) in self._hours.items()
            for name in found.keys() | others
            if ("c", "client_id", name) in subjects
        }


class MadeLake:
    """Hours that land one by one; each landing has a version, as commits have."""

    def __init__(self) -> None:
        self.hours_: dict[int, Hour] = {}
        self._landed: list[LandedHour] = []
        self.read: list[tuple[int, int]] = []
        self.asked: list[tuple[int, int]] = []
        self.lingering_: dict[int, Collection[str]] = {}  # who is above the lower bound, by hour

    def land(self, hour: int, found: Found, seen: Collection[str] = (), minute: float = 30) -> None:
        self.hours_[hour] = (found, set(seen))
        self._landed.append(LandedHour("c", hour, hour * HOUR_US + int(minute * 60e6), 10))

    def end(self, hour: int) -> None:
        """A push so late in the next hour that this one is finished."""
        self._landed.append(LandedHour("c", hour + 1, (hour + 1) * HOUR_US + GRACE_US, 1))

    def landed(self, after: Position) -> tuple[Position, list[LandedHour]]:
        return Position(len(self._landed)), self._landed[max(after.version, 0) :]

    @contextmanager
    def hours(self, first: int, last: int) -> Iterator[Hours]:
        self.read.append((first, last))
        yield MadeHours({hour: each for hour, each in self.hours_.items() if first <= hour <= last})

    def lingering(self, first: int, last: int, asked: Collection[tuple[Subject, str]]) -> set[LingersIn]:
        self.asked.append((first, last))
        assert {subject[1] for subject, _ in asked} <= {"client_id"}
        return {
            ("c", hour, "client_id", name, finding)
            for (_, _, name), finding in asked
            for hour, names in self.lingering_.items()
            if first <= hour <= last and name in names
        }


def changes(lake: Path | str) -> list[tuple[Any, ...]]:
    """Subject, change, severity, hours of at, opened_at and window_start, and evidence, in order of the subjects."""
    rows = table(Path(lake), "finding_changes").sort_by([("recorded_at", "ascending")]).to_pylist()
    said = []
    for row in rows:
        hours = (row[name].timestamp() / 3600 for name in ("at", "opened_at", "window_start"))
        said.append((row["subject"], row["change"], row["severity"], *hours, row["evidence"]))
    return sorted(said, key=lambda each: (each[0], each[3], each[5]))


@pytest.fixture
def made() -> MadeLake:
    return MadeLake()


@pytest.fixture
def evaluator(tmp_path: Path, made: MadeLake) -> Evaluator:
    return Evaluator(str(tmp_path), made)


def test_a_finding_from_its_first_hour_to_its_end(tmp_path: Path, made: MadeLake, evaluator: Evaluator) -> None:
    made.land(100, {"orders": "warning"})
    assert evaluator.evaluate(NOW) == 1  # its hour isn't finished
    for hour, found in ((101, {"orders": "error"}), (102, {}), (103, {}), (104, {})):
        made.end(hour - 1)
        made.land(hour, found, ["orders"])
        evaluator.evaluate(NOW + hour)
    assert changes(tmp_path) == [
        ("orders", "opened", "warning", 100, 100, 100, "hour 100"),
        ("orders", "changed", "error", 101, 100, 101, "hour 101"),
        ("orders", "resolved", "error", 104, 100, 101, "seen in 2 hours without this finding; before: hour 101"),
    ]
    rows = table(tmp_path, "finding_changes").to_pylist()
    assert rows[0] == rows[0] | {"client_id": "orders", "advice": "more", "instances": 1, "until": None, "by": None}
    assert len({row["finding_id"] for row in rows}) == 1


def test_an_hour_is_evaluated_once_when_finished_and_only_with_new_rows_before(
    tmp_path: Path, made: MadeLake, evaluator: Evaluator
) -> None:
    for hour in range(100, 103):
        made.land(hour, {"orders": "warning"})
    evaluator.evaluate(NOW)
    assert made.read == [(100, 101), (102, 102)]
    assert evaluator.evaluate(NOW) == 0
    assert Evaluator(str(tmp_path), made).evaluate(NOW) == 0
    assert made.read == [(100, 101), (102, 102)]
    made.land(102, {"orders": "warning"}, minute=50)
    evaluator.evaluate(NOW)
    assert made.read[2:] == [(102, 102)]


def test_a_finding_stays_open_between_its_two_bounds(tmp_path: Path, made: MadeLake, evaluator: Evaluator) -> None:
    """The lower bound is asked about only where it can matter."""
    for hour, found in enumerate(({"orders": "warning"}, {"orders": "warning"}, {}, {}, {}, {}), 100):
        made.land(hour, found, ["orders", "bills"])
        evaluator.evaluate(NOW + hour)
        made.lingering_ = {102: {"orders", "bills"}, 103: {"orders"}}
    made.end(105)
    evaluator.evaluate(NOW + 200)
    assert [row[:4] for row in changes(tmp_path)] == [
        ("orders", "opened", "warning", 100), ("orders", "resolved", "warning", 106)
    ]  # fmt: skip
    assert made.asked == [(102, 102), (103, 103), (104, 104), (105, 105)]
    whole = MadeLake()
    whole.hours_, whole._landed, whole.lingering_ = made.hours_, made._landed, made.lingering_
    Evaluator(str(tmp_path / "whole"), whole).evaluate(NOW)
    assert changes(tmp_path / "whole") == changes(tmp_path)
    assert whole.asked == [(100, 105)]


def test_the_next_hour_waits_until_the_one_before_is_finished(
    tmp_path: Path, made: MadeLake, evaluator: Evaluator
) -> None:
    made.land(100, {"orders": "warning"})
    made.land(101, {"bills": "warning"}, minute=9.9)
    assert evaluator.evaluate(NOW) == 1
    made.land(101, {"bills": "warning"}, minute=10)
    assert evaluator.evaluate(NOW) == 1
    assert [row[:2] for row in changes(tmp_path)] == [("bills", "opened"), ("orders", "opened")]


def test_the_next_hour_is_evaluated_also_if_its_rows_are_not_new(
    tmp_path: Path, made: MadeLake, evaluator: Evaluator
) -> None:
    """Those were read while they had to wait."""
    made.land(100, {"orders": "warning"})
    made.land(101, {"bills": "warning"}, minute=5)
    assert evaluator.evaluate(NOW) == 1
    made.land(102, {}, minute=5)
    assert evaluator.evaluate(NOW) == 1
    assert [row[:2] for row in changes(tmp_path)] == [("bills", "opened"), ("orders", "opened")]


def test_late_rows_change_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = MadeLake()
    made.land(100, {}, ["orders"])
    made.end(100)
    evaluator = Evaluator(str(tmp_path), made)
    evaluator.evaluate(NOW)
    made.land(100, {"orders": "warning"}, minute=59)
    with caplog.at_level("INFO"):
        assert evaluator.evaluate(NOW) == 0
        # Another start doesn't read them again.
        Evaluator(str(tmp_path), made).evaluate(NOW)
    assert caplog.messages == ["findings: 10 pushes of hours that were evaluated before are passed over"]
    made.land(101, {"orders": "warning"})
    assert Evaluator(str(tmp_path), made).evaluate(NOW) == 1
    assert changes(tmp_path) == [("orders", "opened", "warning", 101, 101, 101, "hour 101")]


def test_a_push_from_the_future_finishes_no_hour(tmp_path: Path, made: MadeLake, evaluator: Evaluator) -> None:
    made.land(100, {"orders": "warning"}, minute=10)
    made.land(110, {"bills": "warning"})
    assert evaluator.evaluate(102 * HOUR_US) == 1
    for hour, minute in ((100, 50), (101, 30), (102, 30)):  # hour 100 wasn't finished, so it counts as it is at its end
        made.land(hour, {}, ["orders"], minute)
    assert evaluator.evaluate(103 * HOUR_US) == 1
    assert [row[:4] for row in changes(tmp_path)] == [
        ("orders", "opened", "warning", 100), ("orders", "resolved", "warning", 102)
    ]  # fmt: skip
    made.land(110, {"bills": "warning"}, minute=31)
    assert evaluator.evaluate(111 * HOUR_US) == 1, "its time has come"


def test_a_clock_that_is_minutes_ahead_finishes_no_hour(tmp_path: Path) -> None:
    made = MadeLake()
    made.land(100, {"orders": "warning"})
    made.land(101, {"bills": "warning"}, minute=59)
    assert Evaluator(str(tmp_path), made).evaluate(101 * HOUR_US + GRACE_US // 2) == 1
    assert [row[0] for row in changes(tmp_path)] == ["orders"]


def test_a_year_of_hours_is_read_in_steps(tmp_path: Path) -> None:
    made = MadeLake()
    for hour in (1, 2, 25, 26, 9000):
        made.land(hour, {"orders": "info"})
    Evaluator(str(tmp_path), made).evaluate(NOW)
    assert made.read == [(1, 2), (25, 26), (9000, 9000)]


def test_a_lake_that_nothing_landed_in(tmp_path: Path) -> None:
    made = MadeLake()
    assert Evaluator(str(tmp_path), made).evaluate(NOW) == 0
    assert (changes(tmp_path), made.read) == ([], [])


def test_without_its_note_the_table_is_refused(tmp_path: Path) -> None:
    made = MadeLake()
    made.land(100, {"orders": "warning"})
    Evaluator(str(tmp_path), made).evaluate(NOW)
    (tmp_path / "finding_changes" / "_findings-e000000000000.json").unlink()
    with pytest.raises(StateMissingError, match=r"_findings-e0+\.json is missing: restore it with the table, or"):
        Evaluator(str(tmp_path), made)


# A client id of a kilobyte of control characters.
AWKWARD = "".join(map(chr, range(1, 33))) * 32 + "\u202e"
HOURS = st.lists(
    st.one_of(
        st.none(),  # an hour without data
        st.tuples(
            st.dictionaries(st.sampled_from(["a", AWKWARD]), st.sampled_from(["info", "warning", "error"])),
            st.sets(st.sampled_from(["a", AWKWARD, ""])),
            st.sets(st.sampled_from(["a", AWKWARD])),  # who is above the lower bound
        ),
    ),
    min_size=1, max_size=12,
)  # fmt: skip
# After each hour: is it evaluated, is it evaluated before it has all its rows, does the program start again?
CUTS = st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), min_size=12, max_size=12)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(hours=HOURS, cuts=CUTS, rules=st.builds(Hysteresis, st.integers(1, 3), st.integers(1, 3), st.integers(1, 4)))
def test_any_cut_gives_the_rows_of_one_pass(
    hours: list[tuple[Found, set[str], set[str]] | None], cuts: list[tuple[bool, bool, bool]], rules: Hysteresis
) -> None:
    """Evaluated hour by hour, or several at once, before an hour's end or not, with restarts: always the same rows."""
    with tempfile.TemporaryDirectory() as whole, tempfile.TemporaryDirectory() as parts:
        made, all_at_once = MadeLake(), MadeLake()
        evaluator = Evaluator(parts, made, lambda _: rules)
        for hour, (each, (evaluated, early, restarted)) in enumerate(zip(hours, cuts, strict=False), 100):
            if each is None:
                continue
            found, seen, lingering = each
            if early:
                made.land(hour, dict(list(found.items())[:1]), [], 10)
                evaluator.evaluate(NOW + 2 * hour)
            for lake in (made, all_at_once):
                lake.land(hour, found, seen)
                lake.lingering_[hour] = lingering
            if evaluated:
                evaluator.evaluate(NOW + 2 * hour + 1)
            if restarted:
                evaluator = Evaluator(parts, made, lambda _: rules)
        for lake in (made, all_at_once):
            lake.end(99 + len(hours))
        evaluator.evaluate(NOW + 1000)
        Evaluator(whole, all_at_once, lambda _: rules).evaluate(NOW)
        assert changes(parts) == changes(whole)


@pytest.mark.parametrize(
    ("owner", "step", "after", "rows_then"),
    [
        (notes, "write_json", False, 0),
        (notes, "write_json", True, 0),
        (evaluation, "append_once", False, 0),
        (evaluation, "append_once", True, 2),
    ],
)
def test_killed_between_the_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: ModuleType, step: str, after: bool, rows_then: int
) -> None:
    """Killed before and after the note, and before and after the rows: the next start has them once."""
    made, own = MadeLake(), getattr(owner, step)
    for hour in range(100, 104):
        made.land(hour, {"orders": "warning"} if hour < 101 else {}, ["orders"])
    killed = Evaluator(str(tmp_path), made)

    def die(*args: Any, **named: Any) -> None:
        if after:
            own(*args, **named)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(owner, step, die)
        with pytest.raises(KeyboardInterrupt):
            killed.evaluate(NOW + 104)
    assert DeltaTable(str(tmp_path / "finding_changes")).to_pyarrow_table().num_rows == rows_then
    made.land(104, {}, ["orders"])
    Evaluator(str(tmp_path), made).evaluate(NOW + 105)
    assert [row[1:4] for row in changes(tmp_path)] == [("opened", "warning", 100), ("resolved", "warning", 103)]
