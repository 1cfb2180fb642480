"""Evaluates findings: follows the hours of a lake, and adds each change of a finding's state to `finding_changes`.

An hour is finished when its cluster has a push that landed `GRACE_US` after the hour's end; landing times are the only
clock. A finished hour is evaluated once, and rows that land in it later don't change what was recorded. The hour after
it is evaluated whenever it has new rows, but until it is finished it only opens findings and raises severities.

The state is a note in the table's folder. A step writes the note first, together with the rows that it is about to
append. After a crash the next start appends them, unless the table has the step's number already.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Protocol

import pyarrow as pa
from deltalake import DeltaTable

from kafka_telemetry_lake.pipelines.findings.evaluation.lake_hours import (
    SEEN_SCOPES,
    ClusterHour,
    Hours,
    LakeHours,
    LandedHour,
    LingersIn,
    SeenIn,
    Subject,
)
from kafka_telemetry_lake.pipelines.findings.rules import rules
from kafka_telemetry_lake.pipelines.lake.errors import StateMissingError
from kafka_telemetry_lake.pipelines.lake.follower import Position
from kafka_telemetry_lake.pipelines.lake.notes import FencedNote
from kafka_telemetry_lake.pipelines.lake.transactions import append_once
from kafka_telemetry_lake.pipelines.tables.findings import FINDING_CHANGES
from kafka_telemetry_lake.udfs.findings.states import (
    DEFAULT,
    HOUR_US,
    FindingChange,
    FindingRow,
    FindingState,
    Hysteresis,
    advance,
    finding_id,
)

log = logging.getLogger(__name__)

APP_ID = "kafka-telemetry-lake:findings"
GRACE_US = 600_000_000
# A step evaluates whole hours until they have this many pushes, of at most this many hours.
STEP_PUSHES = 2_000_000
STEP_HOURS = 24
FIELDS = ("step", "position", "clusters", "rows")
ANEW = (
    f"delete the folder of table {FINDING_CHANGES.name} to evaluate all hours of the lake again; what people said is "
    "then lost"
)


def hysteresis_of(finding: str) -> Hysteresis:
    """How long the changes of a finding wait. A rule that an update has removed: the default."""
    rule = rules().get(finding)
    return DEFAULT if rule is None else rule.hysteresis


class Source(Protocol):
    """What is read of `LakeHours`."""

    def landed(self, after: Position) -> tuple[Position, list[LandedHour]]: ...

    def hours(self, first: int, last: int) -> AbstractContextManager[Hours]: ...

    def lingering(self, first: int, last: int, asked: Collection[tuple[Subject, str]]) -> set[LingersIn]: ...


@dataclass
class Cluster:
    """One cluster's part of the note.

    Attributes:
        evaluated: the last finished hour that was evaluated; -1: none.
        clock: latest landing (µs), as far as it isn't in the future.
        waiting: by hour that isn't evaluated: the latest landing (µs) and the number of pushes.
        states: by finding id.
    """

    cluster_id: str | None
    evaluated: int = -1
    clock: int = 0
    waiting: dict[int, tuple[int, int]] = field(default_factory=dict)
    states: dict[str, FindingState] = field(default_factory=dict)

    def add(self, landed: LandedHour) -> int:
        """Add pushes to the waiting hours; returns how many are late: their hour was evaluated before."""
        if landed.hour <= self.evaluated:
            return landed.pushes
        latest, pushes = self.waiting.get(landed.hour, (0, 0))
        self.waiting[landed.hour] = max(latest, landed.latest), pushes + landed.pushes
        return 0

    def advance_clock(self, now: int) -> None:
        begun = [min(latest, now) for hour, (latest, _) in self.waiting.items() if hour * HOUR_US <= now]
        self.clock = max([self.clock, *begun])

    def is_finished(self, hour: int) -> bool:
        return (hour + 1) * HOUR_US + GRACE_US <= self.clock


Pair = tuple[Cluster, int]  # a cluster and an hour


@dataclass(frozen=True)
class Note:
    """What is known after a step.

    Attributes:
        position: in `push_outcomes`.
        rows: that the step appends to `finding_changes`, with times in µs.
    """

    step: int = 0
    position: Position = field(default_factory=Position)
    clusters: tuple[Cluster, ...] = ()
    rows: tuple[dict[str, Any], ...] = ()


class Evaluator:
    """The states of a lake's findings. Only one process may use it at a time. After an exception make a new one.

    Raises:
        StateMissingError: the table has rows, but the note is missing.
        OtherFormatError: the note has another format.
    """

    def __init__(
        self, lake: str, source: Source | None = None, rules: Callable[[str], Hysteresis] = hysteresis_of
    ) -> None:
        self._uri = FINDING_CHANGES.uri(lake)
        self._source, self._rules = source or LakeHours(lake), rules
        table = FINDING_CHANGES.create(lake)
        self._note_file = _note_of(lake)
        note = self._read_note()
        if note is None and table.transaction_version(APP_ID) is not None:
            raise StateMissingError(f"{self._note_file.path} is missing: restore it with the table, or {ANEW}")
        self._note = note or Note()
        self._append()

    def evaluate(self, now: int) -> int:
        """Evaluate the hours that have finished since the last time, and those under way; returns how many changed.

        Args:
            now: µs; pushes that landed later don't finish an hour yet.
        """
        before = self._note.position
        position, landed = self._source.landed(before)
        self._note = replace(self._note, position=position)
        self._add(landed, now)
        new = {(each.cluster_id, each.hour) for each in landed}
        finished: list[Pair] = []
        under_way: list[Pair] = []
        for cluster in self._note.clusters:
            ended = [hour for hour in cluster.waiting if cluster.is_finished(hour)]
            finished += [(cluster, hour) for hour in ended]
            # A later hour waits for this one, as its rows would be taken for those of an hour before.
            following = min(cluster.waiting.keys() - ended, default=None)
            if (
                following is not None
                and following * HOUR_US <= now
                and (ended or (cluster.cluster_id, following) in new)
            ):
                under_way.append((cluster, following))
        changes = sum(self._step(group, now, finished=True) for group in _groups(finished))
        changes += sum(self._step(group, now, finished=False) for group in _groups(under_way))
        if position != before and not finished and not under_way:
            self._write_note(self._note)
        return changes

    def _add(self, landed: list[LandedHour], now: int) -> None:
        clusters = {cluster.cluster_id: cluster for cluster in self._note.clusters}
        late = sum(clusters.setdefault(hour.cluster_id, Cluster(hour.cluster_id)).add(hour) for hour in landed)
        for cluster in clusters.values():
            cluster.advance_clock(now)
        self._note = replace(self._note, clusters=tuple(clusters.values()))
        if late:
            log.info("findings: %s pushes of hours that were evaluated before are passed over", f"{late:,}")

    def _step(self, pairs: list[Pair], now: int, *, finished: bool) -> int:
        rows: list[dict[str, Any]] = []
        with self._source.hours(pairs[0][1], pairs[-1][1]) as hours:
            found = hours.found()
            asked = [row for rows_of_hour in found.values() for row in rows_of_hour]
            asked += [state.latest for cluster, _ in pairs for state in cluster.states.values()]
            subjects = {(row["cluster_id"], row["scope"], row["subject"]) for row in asked}
            seen = hours.seen(subjects) if finished else set()
        asked_again = _between_bounds(pairs, found) if finished else set()
        lingering = self._source.lingering(pairs[0][1], pairs[-1][1], asked_again) if asked_again else set()
        for cluster, hour in pairs:
            of_hour = found.get((cluster.cluster_id, hour), [])
            was_seen = partial(_was_seen, seen, cluster.cluster_id, hour)
            lingers = partial(_lingers, lingering, cluster.cluster_id, hour)
            changes = advance(cluster.states, hour, of_hour, was_seen, finished, self._rules, lingers)
            rows += [_row(change, now) for change in changes]
            if finished:
                cluster.evaluated = hour
                del cluster.waiting[hour]
        self._write_note(replace(self._note, step=self._note.step + 1, rows=tuple(rows)))
        self._append()
        if rows:
            log.info("findings: %d hours evaluated, %d changes", len(pairs), len(rows))
        return len(rows)

    def _append(self) -> None:
        """Append the note's rows to the table, unless it has them."""
        if self._note.rows:
            rows = pa.Table.from_pylist(list(self._note.rows), FINDING_CHANGES.schema)
            append_once(FINDING_CHANGES, DeltaTable(self._uri), rows, APP_ID, self._note.step)

    def _read_note(self) -> Note | None:
        content = self._note_file.read()
        if content is None:
            return None
        clusters = tuple(
            Cluster(
                cluster["cluster_id"],
                cluster["evaluated"],
                cluster["clock"],
                {int(hour): (latest, pushes) for hour, (latest, pushes) in cluster["waiting"].items()},
                {key: FindingState(**state) for key, state in cluster["states"].items()},
            )
            for cluster in content["clusters"]
        )
        return Note(content["step"], Position.of(content["position"]), clusters, tuple(content["rows"]))

    def _write_note(self, note: Note) -> None:
        clusters = [
            vars(cluster) | {"states": {key: vars(state) for key, state in cluster.states.items()}}
            for cluster in note.clusters
        ]
        self._note_file.write({**vars(note), "position": note.position.stored(), "clusters": clusters})
        self._note = note


def latest_rows(lake: str) -> dict[str, dict[str, Any]]:
    """The latest row of view `findings` of each state that isn't resolved, by finding id, as of the last evaluation.

    It reads a file, and evaluates nothing. `window_start` is the row's hour.

    Raises:
        StateError: the file is damaged.
        OtherFormatError: it has another format.
    """
    content = _note_of(lake).read() or {"clusters": []}
    return {
        key: state["latest"] | {"window_start": datetime.fromtimestamp(state["last"] * 3600, UTC)}
        for cluster in content["clusters"]
        for key, state in cluster["states"].items()
    }


def _note_of(lake: str) -> FencedNote:
    return FencedNote(FINDING_CHANGES.uri(lake), "_findings", FIELDS, ANEW)


def _groups(pairs: list[Pair]) -> Iterator[list[Pair]]:
    """Divide clusters and hours into those of one step each, in order of the hours."""
    group: list[Pair] = []
    pushes = 0
    for cluster, hour in sorted(pairs, key=lambda pair: pair[1]):
        if group and (pushes >= STEP_PUSHES or hour - group[0][1] >= STEP_HOURS):
            yield group
            group, pushes = [], 0
        group.append((cluster, hour))
        pushes += cluster.waiting[hour][1]
    if group:
        yield group


def _was_seen(seen: set[SeenIn], cluster_id: str | None, hour: int, state: FindingState) -> bool:
    """Whether a subject was seen in an hour in which its cluster was."""
    scope, subject = state.latest["scope"], state.latest["subject"]
    return scope not in SEEN_SCOPES or (cluster_id, hour, scope, subject) in seen


def _between_bounds(pairs: list[Pair], found: Mapping[ClusterHour, Sequence[FindingRow]]) -> set[tuple[Subject, str]]:
    """Findings that close elsewhere than they open, are or get open, and that some of the hours don't have."""
    has: dict[tuple[Subject, str], int] = {}
    for cluster, hour in pairs:
        for row in found.get((cluster.cluster_id, hour), []):
            has[_subject_and_finding(row)] = has.get(_subject_and_finding(row), 0) + 1
        for state in cluster.states.values():
            has.setdefault(_subject_and_finding(state.latest), 0)
    hours: dict[str | None, int] = {}
    for cluster, _ in pairs:
        hours[cluster.cluster_id] = hours.get(cluster.cluster_id, 0) + 1
    known = rules()
    return {
        each
        for each, count in has.items()
        if each[1] in known and known[each[1]].closes and count < hours.get(each[0][0], 0)
    }


def _subject_and_finding(row: FindingRow) -> tuple[Subject, str]:
    return (row["cluster_id"], row["scope"], row["subject"]), row["finding"]


def _lingers(lingering: set[LingersIn], cluster_id: str | None, hour: int, state: FindingState) -> bool:
    row = state.latest
    return (cluster_id, hour, row["scope"], row["subject"], row["finding"]) in lingering


def _row(change: FindingChange, now: int) -> dict[str, Any]:
    """The row of a change, with times in µs."""
    state = change.state
    evidence = state.latest["evidence"]
    return {
        **{name: value for name, value in state.latest.items() if name in FINDING_CHANGES.schema.names},
        "finding_id": finding_id(state.latest),
        "severity": state.severity,
        "change": change.change,
        "at": change.at,
        "opened_at": state.first * HOUR_US,
        "recorded_at": now,
        "window_start": state.last * HOUR_US,
        "evidence": evidence if change.reason is None else f"{change.reason}; before: {evidence}",
    }
