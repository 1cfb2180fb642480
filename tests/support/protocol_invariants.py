"""What holds at every state of the jobs of `model_jobs` (docs/commit-protocol.md), and a lake that recovers from it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from typing import Any

from kafka_telemetry_lake.pipelines.lake import moments
from kafka_telemetry_lake.pipelines.lake.erased_files import APP_ID as FORGET_ID
from kafka_telemetry_lake.pipelines.lake.fence import APP_ID
from kafka_telemetry_lake.pipelines.tables.operator import METRIC_POINTS, PUSH_OUTCOMES, PUSHES
from tests.support.interleavings import Node, Process, run_alone
from tests.support.model_forget import FORGET, forget
from tests.support.model_jobs import LAKE, QUERY, ROOT, TABLES, follow, ingest
from tests.support.model_store import LOG, Delta, Disk, Step, actions_of, active_files, log_of, transaction_version

POINTS_ID = f"kafka-telemetry-lake:points:{QUERY}"
LATEST = 3  # epoch of the second of two processes after another one
MAINTAIN = "maintain"  # a process that has no epoch: its commits change no row
NEVER_WRITTEN = (
    "/_last_checkpoint", "/metadata", "/topics.json", ".alive", "/offsets-before.json", "/_forget/history",
)  # fmt: skip


# Lets a job take over and read so many records, and returns the disk after that.
Recover = Callable[[Disk, int], Disk]


def recover(disk: Disk, records: int, **flags: Any) -> Disk:
    """By `model_jobs.ingest`, with these flags."""
    after, end = run_alone(f"r{records}", lambda: ingest(records, records, take_over=True, **flags), disk)
    assert end == "done", f"recovery: {end}"
    return after


def recover_with_shards(disk: Disk, records: int) -> Disk:
    """By a job that asks for the number of shards that counts: that of the last committed batch."""
    last = transaction_version(_actions(disk, PUSH_OUTCOMES.name), POINTS_ID)
    return recover(disk, records, shards=None if last is None else _manifest(disk, last)["shards"])


class Invariants:
    """Judges the states of an exploration.

    Args:
        records: of the source; a job that recovers the lake reads all.
        wake: let the processes go on after the recovery, one after the other.
        recover: what a job does that takes over, given the disk, and how many records it reads.
        erased: pushes that `forget` erases.
    """

    def __init__(
        self, records: int, *, wake: bool = True, recover: Recover = recover, erased: Collection[int] = ()
    ) -> None:
        self._records, self._wake, self._recover, self._erased = records, wake, recover, frozenset(erased)
        self._recovered: dict[int, Disk] = {}
        self._woken: set[tuple[int, ...]] = set()
        self._read: set[frozenset[tuple[str, bytes]]] = set()

    def __call__(self, disk: Disk, nodes: tuple[Node, ...], processes: Sequence[Process]) -> None:
        if disk.key not in self._recovered:
            self._check(disk)
            after = self._recover(disk, self._records)
            self._check(after)
            self._check_whole(after, self._records)
            self._recovered[disk.key] = after
            if self._erased:
                self._check_erasure(after)
        if any(each.name == FORGET and node.end == "done" for each, node in zip(processes, nodes, strict=True)):
            _check_gone(disk, self._erased)
        if self._wake:
            self._check_woken(self._recovered[disk.key], nodes, processes)

    def _check_erasure(self, disk: Disk) -> None:
        """An erasure that was cut off is finished by the next one, and the job goes on after it."""
        after, end = run_alone("f", forget, disk)
        assert end == "done", f"the next erasure: {end}"
        _check_gone(after, self._erased)
        more = self._records + 1
        for each, records in ((after, self._records), (self._recover(after, more), more)):
            self._check(each)
            self._check_whole(each, records)
        _check_moments(each, self._erased, newest_only=True)

    def _check_woken(self, disk: Disk, nodes: tuple[Node, ...], processes: Sequence[Process]) -> None:
        """Who is behind changes nothing that counts, whenever it goes on."""
        for process, node in zip(processes, nodes, strict=True):
            key = (disk.key, node.number)
            if node.step is None or key in self._woken:
                continue
            self._woken.add(key)
            after, _ = process.run_on(node, disk)
            self._check(after)
            self._check_whole(after, self._records)

    def _check(self, disk: Disk) -> None:
        _check(disk, self._erased)
        logs = frozenset(item for item in disk.files.items() if LOG in item[0])
        if logs not in self._read:  # a reader looks at nothing else
            self._read.add(logs)
            if not any(FORGET_ID.encode() in data for _, data in logs):
                _check_moments(disk)

    def _check_whole(self, disk: Disk, records: int) -> None:
        for table in TABLES:
            pushes = sorted(row[0] for row in _rows(disk, table.name) if row[0] not in self._erased)
            expected = [push for push in range(records) if push not in self._erased]
            assert pushes == expected, f"{table.name} has the rows of pushes {pushes}"


class Followed:
    """Judges the states of processes that follow so many pushes (`model_jobs.follow`)."""

    def __init__(self, pushes: int) -> None:
        self._pushes = pushes
        self._recovered: set[int] = set()

    def __call__(self, disk: Disk, nodes: tuple[Node, ...], processes: Sequence[Process]) -> None:  # noqa: ARG002  # a check takes them
        if disk.key in self._recovered:
            return
        self._recovered.add(disk.key)
        _check_epochs(disk, METRIC_POINTS.name, _epochs(disk))
        after, end = run_alone("r", lambda: follow(self._pushes, self._pushes, take_over=True), disk)
        assert end == "done", f"recovery: {end}"
        for each, most in ((disk, 0), (after, self._pushes)):
            pushes = sorted(row[0] for row in _rows(each, METRIC_POINTS.name))
            assert len(pushes) >= most, f"the rows of pushes {pushes}"
            assert pushes == list(range(len(pushes))), f"the rows of pushes {pushes}"


def _check(disk: Disk, erased: frozenset[int]) -> None:
    rows, epochs = {table.name: _rows(disk, table.name) for table in TABLES}, _epochs(disk)
    for name, own in rows.items():
        pushes = [row[0] for row in own]
        assert len(pushes) == len(set(pushes)), f"{name} has rows twice: {pushes}"
        for push, *before in own:
            expected = [] if name == PUSHES.name else [[each for each in range(push) if each not in erased]]
            found = [[each for each in pushes if each not in erased] for pushes in before]
            assert found == expected, f"{name} has a row from a wrong state: {[push, *before]}"
        _check_epochs(disk, name, epochs)
    stored, points, outcomes = (
        {row[0] for row in rows[table.name]} - erased for table in (PUSHES, METRIC_POINTS, PUSH_OUTCOMES)
    )
    assert outcomes <= points <= stored, f"readers see outcomes {outcomes}, points {points}, pushes {stored}"
    _check_state(disk, outcomes, erased)


def _check_moments(disk: Disk, erased: frozenset[int] = frozenset(), *, newest_only: bool = False) -> None:
    """A reader sees the same pushes in all tables: at the newest moment, and at those that were the newest before.

    After an erasure those before it can't be had.
    """
    found: list[tuple[int, Mapping[str, int]]] = []

    def look() -> str:
        noted = [] if newest_only else list(moments.noted_moments(LAKE))
        older = [moments.Moment(LAKE, each.number, each.versions[PUSHES.name]) for each in noted]
        for moment in [moments.newest_moment(LAKE), *older]:
            latest: dict[str, Any] = {table.name: Delta(table.uri(LAKE)) for table in TABLES}
            versions = {name: moment.at(name, table).version() for name, table in latest.items()}
            found.append((moment.number, versions))
        found.extend((each.number, each.versions) for each in noted)
        return "done"

    run_alone("reader", look, disk)
    for number, versions in found:
        seen = [{row[0] for row in _rows(disk, table.name, versions[table.name])} - erased for table in TABLES]
        assert seen[0] == seen[1] == seen[2], f"moment {number}: readers see pushes {seen}"
    newest = found[0][1][PUSH_OUTCOMES.name]
    outcomes = [{row[0] for row in _rows(disk, PUSH_OUTCOMES.name, version)} - erased for version in (newest, None)]
    assert outcomes[0] == outcomes[1], f"the newest moment lacks outcomes {outcomes[1] - outcomes[0]}"


def _check_state(disk: Disk, outcomes: set[int], erased: frozenset[int]) -> None:
    """The state of the last committed batch is there, and is that of the rows."""
    last = transaction_version(_actions(disk, PUSH_OUTCOMES.name), POINTS_ID)
    if last is None:
        return
    folder = f"{checkpoints(disk)}/points-state"
    state: list[int] = []
    for names in _manifest(disk, last)["states"].values():
        for name in names:
            assert f"{folder}/{name}" in disk.files, f"state file {name} of the last committed batch is gone"
            state += _read(disk.files[f"{folder}/{name}"])
    assert sorted({*state} - erased) == sorted(outcomes), (
        f"the state has pushes {state}, the rows are of {sorted(outcomes)}"
    )


def _manifest(disk: Disk, batch: int) -> Any:
    folder = f"{checkpoints(disk)}/points-state"
    manifest = disk.files.get(f"{folder}/manifest-{batch:010d}.json")
    assert manifest is not None, f"the manifest of batch {batch}, which is committed, is gone from {folder}"
    return _read(manifest)


def _check_gone(disk: Disk, erased: frozenset[int]) -> None:
    """No file that the lake has for its readers or its next job has a trace of what was erased.

    Files that only earlier versions name may have, if the erasure says that they will go.
    """
    history = f"{ROOT}/_forget/history/"
    notes = [_read(data) for path, data in disk.files.items() if path.startswith(history)]
    going = {f"{ROOT}/{table}/{old}" for note in notes for table, files in note["files"].items() for old in files}
    data = [path for path in disk.files if "/landed_date=" in path and _is_named(disk, path) and path not in going]
    states = [path for path in disk.files if path.startswith(checkpoints(disk)) and path.endswith(".state")]
    for path in data + states:
        pushes = [each if path.endswith(".state") else each[0] for each in _read(disk.files[path])]
        assert not erased & {*pushes}, f"the erasure has ended, and {path} has pushes {pushes}"
    for table in TABLES:
        assert not erased & {row[0] for row in _rows(disk, table.name)}, f"{table.name} has rows that were erased"
    stays = [path for path in disk.files if path.startswith(f"{ROOT}/_forget/") and not path.startswith(history)]
    assert not stays, f"the note of the erasure stays: {stays}"


def _is_named(disk: Disk, path: str) -> bool:
    """Whether a version of its table has the file."""
    _, table, name = path.split("/", 2)
    return any(action["add"]["path"] == name for action in _actions(disk, table) if "add" in action)


def _check_epochs(disk: Disk, table: str, epochs: Mapping[str, int]) -> None:
    """After a commit of an epoch no process with a lower one commits."""
    highest = 0
    for action in _actions(disk, table):
        if "txn" in action and action["txn"]["appId"] == APP_ID:
            highest = max(highest, action["txn"]["version"])
        if "commitInfo" in action:
            process = action["commitInfo"]["txnId"].rpartition("-")[0]
            if process == MAINTAIN:
                continue
            own = epochs.get(process, 0)
            assert own >= highest, f"{table}: {process} of epoch {own} has committed after epoch {highest}"


def _epochs(disk: Disk) -> dict[str, int]:
    """The epoch of each process that has taken a lease."""
    prefix = f"{ROOT}/_writers/job-"
    leases = [path for path in disk.files if path.startswith(prefix) and path.endswith(".json")]
    return {_read(disk.files[path])["token"].rpartition("-")[0]: int(path[len(prefix) : -5]) for path in leases}


@cache
def _read(data: bytes) -> Any:
    """The content of a file. Nobody changes what is returned."""
    return json.loads(data)


def checkpoints(disk: Disk) -> str:
    """The folder that a job which starts now would use."""
    root = f"{ROOT}/_checkpoints"
    return max((path[: -len("/_whole")] for path in disk.files if path.endswith("/_whole")), default=root)


def _actions(disk: Disk, table: str, version: int | None = None) -> list[dict[str, Any]]:
    return actions_of(log_of(disk, f"{ROOT}/{table}")[: None if version is None else version + 1])


def _rows(disk: Disk, table: str, version: int | None = None) -> list[Any]:
    rows = []
    for path in active_files(_actions(disk, table, version)):
        data = disk.files.get(f"{ROOT}/{table}/{path}")
        assert data is not None, f"{table} names file {path}, which is gone"
        rows += _read(data)
    return rows


def is_invisible(name: str, step: Step, disk: Disk, latest: int = LATEST) -> bool:
    """Whether no other process can tell when a step of this one is taken.

    The folder of the latest copy of the checkpoints, that of the last epoch of a process's lease, is looked into by
    its process alone, which is checked.
    """
    verb, path, *more = step
    target = more[0] if verb in ("copy", "move") else path
    if (folder := re.match(rf"{ROOT}/_checkpoints/epoch-({latest:012d})/", target)) and not target.endswith("/_whole"):
        lease = json.loads(disk.files[f"{ROOT}/_writers/job-{folder[1]}.json"])
        assert lease["token"].startswith(f"{name}-"), f"{name} uses the folder of another process: {step}"
        return bool(verb != "copy")
    if path.endswith(NEVER_WRITTEN) and (verb in ("read", "list") or path.endswith(".alive")):
        return True
    if "/landed_date=" in path:  # a name that nobody knows before the commit of its process
        return True
    # What is there for good.
    return path in disk.files and verb in ("read", "create") and (LOG in path or "/_writers/" in path)


def is_invisible_beside_forget(_: str, step: Step, disk: Disk) -> bool:
    """The same where another process changes files of rows and logs, and looks into all folders: few steps are."""
    verb, path = step[:2]
    return (
        (verb == "put" and "/landed_date=" in path)
        or (verb == "create" and path in disk.files)
        or path.endswith(".alive")
        or (verb == "read" and (path.endswith(NEVER_WRITTEN) or (path in disk.files and "/_writers/" in path)))
    )
