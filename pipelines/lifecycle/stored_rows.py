"""The input of the lifecycle where a table's log no longer has the next commits: the files that the tables have now.

They are listed in a file in the folder of `client_changes` before the first step that reads them, in parts of one step
each. So a step that was cut off is repeated with the same input, and what is stored meanwhile follows by its commits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import unquote

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
from deltalake import DeltaTable

from kafka_telemetry_lake.pipelines.lake.delta_log import files_of
from kafka_telemetry_lake.pipelines.lake.follower import Position
from kafka_telemetry_lake.pipelines.lake.lake import Lake
from kafka_telemetry_lake.pipelines.lake.notes import FencedNote
from kafka_telemetry_lake.pipelines.lake.stored_pushes import IDENTITY
from kafka_telemetry_lake.pipelines.tables.lifecycle import CLIENT_CHANGES
from kafka_telemetry_lake.pipelines.tables.operator import CLIENT_EVENTS, PUSH_OUTCOMES, PUSHES
from kafka_telemetry_lake.udfs.lifecycle.clients import PLACE

NAME, FIELDS = "_lifecycle_files", ("pushes", "outcomes", "parts", "reached")
ANEW = f"delete the folder of table {CLIENT_CHANGES.name} to process all pushes of the lake again"
EVENT = (*IDENTITY, "client_instance_id", "event", "at")  # what identifies an event


@dataclass(frozen=True)
class Part:
    """Files of `pushes` and `push_outcomes` that a step reads, as paths below the tables."""

    pushes: tuple[str, ...]
    outcomes: tuple[str, ...]


@dataclass(frozen=True)
class Reached:
    """How far the steps before have read a partition: its greatest offset and landing time (µs)."""

    source: str
    topic: str
    partition: int
    offset: int
    landed_at: int


@dataclass(frozen=True)
class StoredRows:
    """The files of both tables at positions `pushes` and `outcomes`, and which of their rows are new."""

    pushes: Position
    outcomes: Position
    parts: tuple[Part, ...]
    reached: tuple[Reached, ...]

    @staticmethod
    def now(lake: Lake, reached: Sequence[Reached], part_rows: int) -> StoredRows:
        """List the files that the tables have now, in the order of landing, in parts of about so many pushes."""
        outcomes, pushes = lake.table(PUSH_OUTCOMES), lake.table(PUSHES)
        unread, parts = _by_landing(outcomes), list[Part]()
        waiting, rows = list[str](), 0
        stored = _by_landing(pushes)
        for file in stored:
            waiting.append(file.path)
            rows += file.rows
            is_last = file is stored[-1]
            if rows < part_rows and not is_last:
                continue
            own = [each for each in unread if is_last or each.last <= file.last]
            unread = [each for each in unread if each not in own]
            parts.append(Part(tuple(waiting), tuple(each.path for each in own)))
            waiting, rows = [], 0
        ends = [Position(table.version(), str(table.metadata().id)) for table in (pushes, outcomes)]
        return StoredRows(ends[0], ends[1], tuple(parts or [Part((), ())]), tuple(reached))

    @staticmethod
    def read(lake: Lake) -> StoredRows | None:
        """The list that steps are reading; None: they follow the commits."""
        content = _note(lake).read()
        if content is None:
            return None
        parts = tuple(Part(tuple(each["pushes"]), tuple(each["outcomes"])) for each in content["parts"])
        reached = tuple(Reached(**each) for each in content["reached"])
        return StoredRows(Position.of(content["pushes"]), Position.of(content["outcomes"]), parts, reached)

    def write(self, lake: Lake) -> None:
        """Write the list in place of the one before."""
        ends = {"pushes": self.pushes.stored(), "outcomes": self.outcomes.stored()}
        _note(lake).write(asdict(self) | ends)

    def unread(self, rows: pa.Table) -> pa.Table:
        """The rows of pushes that the steps before haven't read."""
        if not self.reached:
            return rows
        number = pa.array(range(rows.num_rows), pa.int64())
        keys = rows.select([*PLACE, "offset", "landed_at"]).append_column("row", number)
        bounds = pa.Table.from_pylist([asdict(each) for each in self.reached])
        bounds = bounds.rename_columns([*PLACE, "last_offset", "last_landed"]).cast(
            pa.schema(
                [
                    *(rows.schema.field(name).remove_metadata() for name in PLACE),
                    ("last_offset", pa.int64()),
                    ("last_landed", pa.int64()),
                ]
            )
        )
        joined = keys.join(bounds, list(PLACE), join_type="left outer")
        is_new = pc.or_kleene(
            pc.greater(joined["offset"], joined["last_offset"]),
            pc.greater(joined["landed_at"].cast(pa.int64()), joined["last_landed"]),
        )
        new = joined["row"].filter(pc.fill_null(is_new, True))
        return rows.take(new.take(pc.sort_indices(new)))


def unstored_events(lake: Lake, events: pa.Table) -> pa.Table:
    """The events that `client_events` doesn't have: it has those of pushes that were read once before."""
    stored = lake.rows(CLIENT_EVENTS)
    if events.num_rows == 0:
        return events
    bounds = pc.min_max(events["landed_at"]).as_py()
    within = (pads.field("landed_at") >= bounds["min"]) & (pads.field("landed_at") <= bounds["max"])
    near = stored.to_table(list(EVENT), filter=within)
    names = ", ".join(f'new."{name}"' for name in events.column_names)
    same = " AND ".join(f'new."{name}" IS NOT DISTINCT FROM near."{name}"' for name in EVENT)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("new", events)
        connection.register("near", near)
        return connection.sql(f"SELECT {names} FROM new ANTI JOIN near ON {same}").to_arrow_table().cast(events.schema)


def drop_stored_rows(lake: Lake) -> None:
    """Delete the list, if there is one."""
    _note(lake).delete()


@dataclass(frozen=True)
class _File:
    path: str
    rows: int
    first: Any
    last: Any


def _by_landing(table: DeltaTable) -> list[_File]:
    files = [
        _File(unquote(row["path"]), row["num_records"], row["min"]["landed_at"], row["max"]["landed_at"])
        for row in files_of(table)
        if row["num_records"]
    ]
    return sorted(files, key=lambda file: (file.first, file.last, file.path))


def _note(lake: Lake) -> FencedNote:
    return lake.note(CLIENT_CHANGES, NAME, FIELDS, ANEW)
