"""Records the history of a cluster's configuration by polling it: one row for each version of an entry.

A poll returns what is configured at one moment. The history (M6) gives bounds for each version's time in force: it
began in ``(not_seen_at, valid_from]`` and ended in ``(last_seen_at, valid_to]``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import TableNotFoundError

from kafka_telemetry_lake.pipelines.lake.durable import read_json, write_json
from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of
from kafka_telemetry_lake.pipelines.lake.transactions import transaction
from kafka_telemetry_lake.pipelines.tables.table import CLUSTER, HistoryTable, Row

Unknown = Callable[[Row], bool]


def all_known(_: Row) -> bool:
    """For a poll that returned all entries: those that it lacks have ended."""
    return False


def none_known(_: Row) -> bool:
    """For a poll that may lack any entry."""
    return True


@dataclass(frozen=True)
class ConfigChanges:
    """Differences between a poll and the one before: versions that ended and versions that began, as table rows."""

    ended: tuple[Row, ...]
    begun: tuple[Row, ...]

    def __bool__(self) -> bool:
        return bool(self.ended or self.begun)


def changes(
    table: HistoryTable,
    in_force: Iterable[Row],
    polled: Iterable[Row],
    cluster_id: str | None,
    now: datetime,
    polled_at: datetime | None,
    is_unknown: Unknown = all_known,
) -> ConfigChanges:
    """Compare the entries of a poll with the versions in force.

    Args:
        in_force: the cluster's rows of the table without `valid_to`.
        polled: the entries of the poll, with the table's keys and values; each key once.
        now: time of the poll, UTC.
        polled_at: time of the previous poll; None: this is the first.
        is_unknown: whether the poll says nothing about an entry; then its version doesn't end.
    """
    before = {table.key(row): row for row in in_force}
    after = {table.key(row): row for row in polled}
    ended = [
        {**row, "valid_to": now, "last_seen_at": polled_at and max(polled_at, row["valid_from"])}
        for key, row in before.items()
        if (key not in after and not is_unknown(row)) or (key in after and table.value(after[key]) != table.value(row))
    ]
    begun = [
        {
            **{name: row[name] for name in (*table.keys, *table.values)},
            "cluster_id": cluster_id,
            "valid_from": now,
            "valid_to": None,
            "not_seen_at": polled_at,
            "last_seen_at": None,
        }
        for key, row in after.items()
        if key not in before or table.value(before[key]) != table.value(row)
    ]
    return ConfigChanges(tuple(ended), tuple(begun))


def check(
    table: HistoryTable,
    lake: str,
    cluster_id: str | None,
    polled: Iterable[Row],
    now: datetime,
    began: datetime | None = None,  # noqa: ARG001  # same signature as `record`; only a later poll would use it
    is_unknown: Unknown = all_known,
) -> ConfigChanges:
    """The changes that `record` would write. Doesn't change the lake."""
    polled_at = _polls(table, lake).get(cluster_id or "")
    try:
        in_force = _in_force(DeltaTable(table.uri(lake)), cluster_id)
    except TableNotFoundError:
        in_force = []
    return changes(table, in_force, polled, cluster_id, _not_before(now, polled_at), polled_at, is_unknown)


def record(
    table: HistoryTable,
    lake: str,
    cluster_id: str | None,
    polled: Iterable[Row],
    now: datetime,
    began: datetime | None = None,
    is_unknown: Unknown = all_known,
) -> ConfigChanges:
    """Update the history with a poll, in one commit if anything changed.

    Recording the same poll again changes nothing. A poll whose clock is behind the previous poll gets that poll's time.

    Args:
        polled: the entries of the poll, with the table's keys and values; each key once.
        now: when the poll ended: its entries are certain to be in force by then.
        began: when the poll began: other entries are certain to be absent until then; None: same as `now`.
        is_unknown: whether the poll says nothing about an entry in force that isn't in `polled`. Its version goes on,
            and the bounds of what changes next are those of the last poll that knew all.

    Raises:
        deltalake.exceptions.CommitFailedError: another process recorded a change at the same time.
    """
    delta = table.create(lake)
    polls = _polls(table, lake)
    polled_at = polls.get(cluster_id or "")
    now = _not_before(now, polled_at)
    polled, in_force = list(polled), _in_force(delta, cluster_id)
    differences = changes(table, in_force, polled, cluster_id, now, polled_at, is_unknown)
    if differences:
        _write(table, delta, differences, now)
    # After the commit: if this note is lost, only the span in which the next version may have begun gets wider.
    known = {table.key(row) for row in polled}
    if not any(is_unknown(row) for row in in_force if table.key(row) not in known):
        _note_polls(table, lake, {**polls, cluster_id or "": _not_before(began or now, polled_at)})
    return differences


def _not_before(now: datetime, polled_at: datetime | None) -> datetime:
    return now if polled_at is None else max(now, polled_at)


def _in_force(delta: DeltaTable, cluster_id: str | None) -> list[Row]:
    rows: list[Row] = delta.to_pyarrow_table().to_pylist()
    return [row for row in rows if row["valid_to"] is None and row["cluster_id"] == cluster_id]


def _write(table: HistoryTable, delta: DeltaTable, differences: ConfigChanges, now: datetime) -> None:
    """Rewrite the whole history, a small table, in one commit. delta-rs' MERGE writes text that Arrow can't filter."""

    def version(row: Row) -> tuple[Any, ...]:
        return row[CLUSTER.name], *table.key(row), row["valid_from"]

    rows: list[Row] = delta.to_pyarrow_table().to_pylist()
    versions = {version(row): row for row in (*rows, *differences.ended, *differences.begun)}
    write_deltalake(
        delta,
        table.with_partition(pa.Table.from_pylist(list(versions.values()), schema=table.schema)),
        mode="overwrite",
        # Concurrent commits with one application id conflict, so no version is recorded twice or lost.
        commit_properties=transaction({f"kafka-telemetry-lake:{table.name}": int(now.timestamp() * 1000)}),
    )


def _note(table: HistoryTable, lake: str) -> tuple[pafs.FileSystem, str]:
    filesystem, root = filesystem_of(table.uri(lake))
    return filesystem, f"{root}/_polled.json"


def _polls(table: HistoryTable, lake: str) -> dict[str, datetime]:
    """When each cluster was last polled."""
    filesystem, path = _note(table, lake)
    polls = read_json(filesystem, path) or {}
    return {cluster: datetime.fromisoformat(at).astimezone(UTC) for cluster, at in polls.items()}


def _note_polls(table: HistoryTable, lake: str, polls: Mapping[str, datetime]) -> None:
    filesystem, path = _note(table, lake)
    write_json(filesystem, path, {cluster: at.isoformat() for cluster, at in polls.items()})
