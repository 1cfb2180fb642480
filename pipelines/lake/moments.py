"""Moments of a lake: snapshot versions across its tables, each with the rows of a batch and of no later one.

A batch is committed table by table, that of `push_outcomes` last. Its commits carry one number, the moment's (Delta's
``txn``, application `MOMENT`), so a table's log says of which moment its latest rows are, and the number of table
`push_outcomes` is that of the newest moment whose tables are all committed. A table with a higher number is read as it
was before that number's commit. Other commits carry none: merging, retention and `forget` change a moment's files, not
its number, and what they have erased is in no moment. A checkpoint of a log has the number too, so nothing depends on
old entries of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from kafka_telemetry_lake.pipelines.lake.erased_files import APP_ID as ERASURE
from kafka_telemetry_lake.pipelines.lake.log_files import Action, LogFiles
from kafka_telemetry_lake.pipelines.tables.operator import OPERATOR_TABLES, PUSH_OUTCOMES, PUSHES
from kafka_telemetry_lake.pipelines.tables.table import table_uri
from kafka_telemetry_lake.udfs.errors import TelemetryLakeError

MOMENTS = "moments"  # the relation by which readers learn their numbers
MOMENT = "kafka-telemetry-lake:moment"
READ = f"{MOMENT}:pushes"
"""The application under which `push_outcomes` notes the version of table `pushes` that all its outcomes are of."""
# The last one says that the batch is done.
COMMIT_ORDER = (*(table for table in OPERATOR_TABLES if table is not PUSH_OUTCOMES), PUSH_OUTCOMES)
LOOKS = 16  # at the last commits of a log, before the table is opened
OF_MOMENTS = (PUSHES, *COMMIT_ORDER)


class NoMomentError(TelemetryLakeError):
    """The lake doesn't have the moment that was asked for, or no longer; the message says which it has."""


@dataclass(frozen=True)
class Moment:
    """A moment: a snapshot version of the whole lake.

    Attributes:
        number: 0: before the first one.
        pushes: the version of table `pushes` whose pushes have outcomes; None: not noted.
    """

    lake: str
    number: int
    pushes: int | None

    @classmethod
    def of(cls, lake: str, outcomes: DeltaTable | None) -> Moment:
        """The newest moment, by table `push_outcomes`. Other tables must be opened after this one."""
        return cls(lake, 0, None) if outcomes is None else cls(lake, number_of(outcomes), _read_version(outcomes))

    def at(self, name: str, latest: DeltaTable) -> DeltaTable:
        """A table at this moment.

        Args:
            latest: the table, opened after this moment was the newest.

        Returns:
            `latest` of a table that batches don't write, and where it can't be read as it was before a later batch any
            more: rows were erased since, or the log has forgotten the commits since.
        """
        if name == PUSHES.name:
            before = latest if self.pushes is None else _before_new_pushes(PUSHES.uri(self.lake), latest, self.pushes)
        elif any(table.name == name for table in COMMIT_ORDER):
            before = _before_later_moments(table_uri(self.lake, name), latest, self.number)
        else:
            before = latest
        return latest if before is None else before


def newest_moment(lake: str) -> Moment:
    """The newest moment. Tables that are read at it must be opened afterwards."""
    log = LogFiles(PUSH_OUTCOMES.uri(lake))
    latest, known = log.latest(), dict[str, int]()
    # Nearly always the last commit says it, and no list of a table's files is made.
    for version in range(-1 if latest is None else latest, -1 if latest is None else max(latest - LOOKS, -1), -1):
        for action in log.read(version) or ():
            if "txn" in action:
                known.setdefault(action["txn"]["appId"], int(action["txn"]["version"]))
        if MOMENT in known and READ in known:
            return Moment(lake, known[MOMENT], known[READ])
    try:
        return Moment.of(lake, DeltaTable(PUSH_OUTCOMES.uri(lake)))
    except TableNotFoundError:
        return Moment.of(lake, None)


def number_of(table: DeltaTable) -> int:
    """The number of the moment that a table's latest rows are of."""
    return int(table.transaction_version(MOMENT) or 0)


def note_of(number: int, versions: Mapping[str, int]) -> str:
    """What a moment's commit of `push_outcomes` notes in the table's history: the other tables' versions."""
    return json.dumps({"moment": number, "versions": dict(versions)})


@dataclass(frozen=True)
class NotedMoment:
    """A moment as the history of table `push_outcomes` has it: the version of each table."""

    number: int
    committed_at: datetime
    versions: Mapping[str, int]


def noted_moments(lake: str) -> Iterator[NotedMoment]:
    """The moments that the log of table `push_outcomes` reaches back to, the newest first.

    Those before an erasure are not among them: their versions have what was erased, until the log forgets them.
    """
    uri = PUSH_OUTCOMES.uri(lake)
    try:
        version = int(DeltaTable(uri).version())
    except TableNotFoundError:
        return
    log = LogFiles(uri)
    while version >= 0 and (actions := log.read(version)) is not None:
        if any("txn" in action and action["txn"]["appId"] == ERASURE for action in actions):
            return
        for action in actions:
            if (noted := _noted(action, version)) is not None:
                yield noted
        version -= 1


def noted_moment(lake: str, number: int) -> NotedMoment:
    """The moment of a number, of those that `noted_moments` has.

    Raises:
        NoMomentError: it isn't among them.
    """
    numbers = []
    for noted in noted_moments(lake):
        if noted.number == number:
            return noted
        numbers.append(noted.number)
    known = f"it has those from {numbers[-1]} to {numbers[0]}" if numbers else "it has none"
    raise NoMomentError(f"the log of table {PUSH_OUTCOMES.name} has no moment {number}: {known}")


def moments_table(lake: str) -> pa.Table:
    """Relation `moments`: number, time, and the version of each table."""
    rows = [{"moment": each.number, "committed_at": each.committed_at, **each.versions} for each in noted_moments(lake)]
    fields = [("moment", pa.int64()), ("committed_at", pa.timestamp("us", "UTC"))]
    return pa.Table.from_pylist(rows, pa.schema([*fields, *((table.name, pa.int64()) for table in OF_MOMENTS)]))


def _read_version(outcomes: DeltaTable) -> int | None:
    version = outcomes.transaction_version(READ)
    return None if version is None else int(version)


def _noted(action: Action, version: int) -> NotedMoment | None:
    about = action.get("commitInfo", {})
    try:
        content = json.loads(about["userMetadata"])
        versions = {**content["versions"], PUSH_OUTCOMES.name: version}
        return NotedMoment(content["moment"], datetime.fromtimestamp(about["timestamp"] / 1000, UTC), versions)
    except (KeyError, TypeError, ValueError):  # another program's
        return None


def _before_later_moments(uri: str, latest: DeltaTable, number: int) -> DeltaTable | None:
    """The table before the commits of later moments; None: it can't be read so any more."""
    table: DeltaTable | None = latest
    log, version = LogFiles(uri), int(latest.version())
    while table is not None and number_of(table) > number:
        while (actions := log.read(version)) is not None and not _has_moment(actions):
            if _erases(actions):
                return None
            version -= 1
        version -= 1
        table = None if actions is None else _opened(uri, version)
    return table


def _before_new_pushes(uri: str, latest: DeltaTable, processed: int) -> DeltaTable | None:
    """Table `pushes` before its first new pushes after a version; None: it can't be read so any more."""
    log, before = LogFiles(uri), None
    for version in range(processed + 1, int(latest.version()) + 1):
        actions = log.read(version)
        if actions is None:
            return None
        if _erases(actions):
            if before is not None:
                return None
        elif before is None and _adds(actions):
            before = version - 1
    return latest if before is None else _opened(uri, before)


def _opened(uri: str, version: int) -> DeltaTable | None:
    try:
        return DeltaTable(uri, version=version)
    except DeltaError:  # the log doesn't reach back to it
        return None


def _has_moment(actions: list[Action]) -> bool:
    return any(action["txn"]["appId"] == MOMENT for action in actions if "txn" in action)


def _adds(actions: list[Action]) -> bool:
    return any(action["add"].get("dataChange", True) for action in actions if "add" in action)


def _erases(actions: list[Action]) -> bool:
    return any(action["remove"].get("dataChange", True) for action in actions if "remove" in action)
