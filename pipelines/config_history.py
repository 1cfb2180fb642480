"""History of a cluster's configuration, kept by asking for it again and again: one row for each version of an entry.

A poll tells what is configured at one moment; the history says what was in force when, as closely as polls can tell:
a version began in ``(not_seen_at, valid_from]`` and ended in ``(last_seen_at, valid_to]``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import TableNotFoundError

from pipelines.delta_log import lake_uri
from pipelines.tables import open_or_create
from udfs.rows import TIMESTAMP

Row = Mapping[str, Any]

CLUSTER = pa.field("cluster_id", pa.string(), metadata={"comment": "Kafka cluster that has the entry"})
VERSION_TIMES = tuple(
    pa.field(name, TIMESTAMP, metadata={"comment": meaning})
    for name, meaning in (
        ("valid_from", "first poll that found this version"),
        ("valid_to", "first poll that no longer found it; NULL: in force"),
        ("not_seen_at", "last poll that did not find it yet; NULL: the first poll of the cluster found it"),
        ("last_seen_at", "last poll that found it, told when it has ended"),
    )
)


@dataclass(frozen=True)
class ConfigTable:
    """A Delta table of versions: `keys` name an entry, `values` are what is configured for it. Keys may be NULL."""

    name: str
    meaning: str
    keys: tuple[pa.Field, ...]
    values: tuple[pa.Field, ...]

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([CLUSTER, *self.keys, *self.values, *VERSION_TIMES])

    def uri(self, lake: str) -> str:
        return f"{lake.rstrip('/')}/{self.name}"

    def create(self, lake: str) -> DeltaTable:
        """Open the table, creating it empty when it isn't there."""
        return open_or_create(self.uri(lake), schema=self.schema, name=self.name, description=self.meaning)

    def key(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[field.name] for field in self.keys)

    def value(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[field.name] for field in self.values)


@dataclass(frozen=True)
class Changes:
    """What a poll found other than before: versions that ended, and versions that began, as rows of the table."""

    ended: tuple[Row, ...]
    begun: tuple[Row, ...]

    def __bool__(self) -> bool:
        return bool(self.ended or self.begun)


def changes(
    table: ConfigTable,
    in_force: Iterable[Row],
    found: Iterable[Row],
    cluster_id: str | None,
    now: datetime,
    polled_at: datetime | None,
) -> Changes:
    """Compare what a poll found with the versions in force.

    Args:
        in_force: the cluster's rows of the table without `valid_to`.
        found: the entries that the poll found, each with the table's keys and values, each key once.
        now: time of the poll, UTC.
        polled_at: time of the poll before; None: there was none.
    """
    before = {table.key(row): row for row in in_force}
    after = {table.key(row): row for row in found}
    ended = [
        {**row, "valid_to": now, "last_seen_at": polled_at and max(polled_at, row["valid_from"])}
        for key, row in before.items()
        if key not in after or table.value(after[key]) != table.value(row)
    ]
    begun = [
        {
            **{field.name: row[field.name] for field in (*table.keys, *table.values)},
            "cluster_id": cluster_id,
            "valid_from": now,
            "valid_to": None,
            "not_seen_at": polled_at,
            "last_seen_at": None,
        }
        for key, row in after.items()
        if key not in before or table.value(before[key]) != table.value(row)
    ]
    return Changes(tuple(ended), tuple(begun))


def check(
    table: ConfigTable,
    lake: str,
    cluster_id: str | None,
    found: Iterable[Row],
    now: datetime,
    began: datetime | None = None,  # noqa: ARG001  # as for `record`: it tells the next poll only
) -> Changes:
    """What `record` would write; the lake isn't changed."""
    polled_at = _polls(table, lake).get(cluster_id or "")
    try:
        in_force = _in_force(DeltaTable(table.uri(lake)), cluster_id)
    except TableNotFoundError:
        in_force = []
    return changes(table, in_force, found, cluster_id, _not_before(now, polled_at), polled_at)


def record(
    table: ConfigTable,
    lake: str,
    cluster_id: str | None,
    found: Iterable[Row],
    now: datetime,
    began: datetime | None = None,
) -> Changes:
    """Bring the history up to a poll: one commit when something changed, else none.

    The same poll again changes nothing. One whose clock is behind the poll before counts as made at that one's time.

    Args:
        now: when the poll had its answers: what it found is sure to hold from then on.
        began: when it began to ask: what it didn't find is sure to be absent until then; None: it took no time.

    Raises:
        deltalake.exceptions.CommitFailedError: another process recorded a change meanwhile.
    """
    delta = table.create(lake)
    polls = _polls(table, lake)
    polled_at = polls.get(cluster_id or "")
    now = _not_before(now, polled_at)
    found_changes = changes(table, _in_force(delta, cluster_id), found, cluster_id, now, polled_at)
    if found_changes:
        _write(table, delta, found_changes, now)
    # After the commit: a poll that is forgotten only widens the span in which the next version may have begun.
    _note_polls(table, lake, {**polls, cluster_id or "": _not_before(began or now, polled_at)})
    return found_changes


def _not_before(now: datetime, polled_at: datetime | None) -> datetime:
    return now if polled_at is None else max(now, polled_at)


def _in_force(delta: DeltaTable, cluster_id: str | None) -> list[Row]:
    rows: list[Row] = delta.to_pyarrow_table().to_pylist()
    return [row for row in rows if row["valid_to"] is None and row["cluster_id"] == cluster_id]


def _write(table: ConfigTable, delta: DeltaTable, found: Changes, now: datetime) -> None:
    """One commit of the whole history, a small table. delta-rs' MERGE would leave text that Arrow can't filter by."""

    def version(row: Row) -> tuple[Any, ...]:
        return row[CLUSTER.name], *table.key(row), row["valid_from"]

    rows: list[Row] = delta.to_pyarrow_table().to_pylist()
    held = {version(row): row for row in (*rows, *found.ended, *found.begun)}
    write_deltalake(
        delta,
        pa.Table.from_pylist(list(held.values()), schema=table.schema),
        mode="overwrite",
        # Two processes that commit under one id at once conflict, so that no version begins twice and none is lost.
        commit_properties=CommitProperties(
            app_transactions=[Transaction(f"kafka-telemetry-lake:{table.name}", int(now.timestamp() * 1000))]
        ),
    )


def _note(table: ConfigTable, lake: str) -> tuple[pafs.FileSystem, str]:
    filesystem, root = pafs.FileSystem.from_uri(lake_uri(table.uri(lake)))
    return filesystem, f"{root}/_polled.json"  # Delta readers and vacuum leave names with an underscore alone


def _polls(table: ConfigTable, lake: str) -> dict[str, datetime]:
    """When each cluster was last polled."""
    filesystem, path = _note(table, lake)
    if filesystem.get_file_info(path).type == pafs.FileType.NotFound:
        return {}
    with filesystem.open_input_file(path) as stream:
        return {
            cluster: datetime.fromisoformat(at).astimezone(UTC) for cluster, at in json.loads(stream.read()).items()
        }


def _note_polls(table: ConfigTable, lake: str, polls: Mapping[str, datetime]) -> None:
    filesystem, path = _note(table, lake)
    with filesystem.open_output_stream(f"{path}.tmp") as stream:
        stream.write(json.dumps({cluster: at.isoformat() for cluster, at in polls.items()}).encode())
    filesystem.move(f"{path}.tmp", path)
