"""What each client id added to each window of a plot, kept in the database: a new range or commit reads only new files.

Files of rollups never change, and sums of their rows can be added up. A window that lies in a range as a whole has the
same sums in every such range, so they are kept for all client ids. A commit's new files are added to them. Windows of
which a commit removed a file, such as by merging or erasure, are summed up again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import duckdb
from deltalake import DeltaTable

from kafka_telemetry_lake.dashboards.questions import CHOSEN_IDS, ROLLUPS, Grain, question
from kafka_telemetry_lake.pipelines.query.duckdb_tables import Times, file_bounds, native_select
from kafka_telemetry_lake.pipelines.tables.operator import METRIC_ROLLUPS_1H, METRIC_ROLLUPS_1M

TABLES: dict[Grain, str] = {"minutes": METRIC_ROLLUPS_1M.name, "hours": METRIC_ROLLUPS_1H.name}
MOST_KEPT = 3  # lengths of windows
MOST_ROWS = 2_000_000  # of a length, of 120 bytes each: with more, only windows of the range that is asked for stay
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Span = tuple[datetime, datetime]
Bounds = Mapping[str, tuple[datetime | None, datetime | None]]


@dataclass
class _Kept:
    """A table with the sums of `windows`, by number since 1970, of the rows in `files`."""

    name: str
    windows: set[int] = field(default_factory=set)
    files: Bounds = field(default_factory=dict)


class KeptWindows:
    """Sums of all client ids by window, in tables of a database's schema `shared`. For one thread at a time."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()
        self._made = 0

    def rollups(
        self, cursor: duckdb.DuckDBPyConnection, table: DeltaTable, grain: Grain, step: timedelta,
        metrics: Sequence[str], start: datetime, stop: datetime, everybody: bool = False,
    ) -> None:  # fmt: skip
        """Create the cursor's view `rollups`: sums of the client ids in relation `chosen_ids` in the range's windows.

        Args:
            table: of rollups of this grain, whose files DuckDB can read.
            metrics: to sum up, always the same.
            everybody: sums of all client ids.
        """
        one = _WindowSums(cursor, table, grain, step, metrics)
        # The windows that lie in the range as a whole.
        wanted = range(-((EPOCH - start) // step), (stop - EPOCH) // step)
        key = grain, step, tuple(metrics)
        known = self._kept.get(key)
        if known is None:
            self._made += 1
            known = _Kept(f"shared.windows_{self._made}")
            one.create(known.name)
        kept = _Kept(known.name, set(known.windows), known.files)
        cursor.begin()
        try:
            one.follow(kept)
            one.fill(kept, wanted)
            cursor.commit()
        except BaseException:  # what is known stays as it was
            cursor.rollback()
            raise
        self._kept[key] = kept
        self._kept.move_to_end(key)
        while len(self._kept) > MOST_KEPT:
            _, oldest = self._kept.popitem(last=False)
            cursor.execute(f"DROP TABLE {oldest.name}")
        one.create("window_ends", "TEMP")
        ends = [(start, EPOCH + wanted.start * step), (EPOCH + wanted.stop * step, stop)] if wanted else [(start, stop)]
        for begin, end in ends:
            if begin < end:
                one.add("window_ends", (begin, end))
        whole = f"SELECT * FROM {kept.name} WHERE {_at(one.spans(wanted))} UNION ALL BY NAME " if wanted else ""
        ids = "coalesce(cluster_id, ''), client_id"
        is_chosen = "TRUE" if everybody else f"({ids}) IN (SELECT {ids} FROM {CHOSEN_IDS})"
        one.see(f"{whole}SELECT * FROM window_ends", is_chosen)


class _WindowSums:
    """Sums up the rows of a table of rollups in windows of one length."""

    def __init__(
        self,
        cursor: duckdb.DuckDBPyConnection,
        table: DeltaTable,
        grain: Grain,
        step: timedelta,
        metrics: Sequence[str],
    ) -> None:
        self._cursor, self._table, self._name, self._step = cursor, table, TABLES[grain], step
        self._asked = {"step_ms": step // timedelta(milliseconds=1), "metrics": list(metrics)}
        self._of_files, self._of_sums = question("client_windows", grain, True), question("client_windows", "windows")

    def create(self, name: str, kind: str = "") -> None:
        """Create a table for sums."""
        self._read((EPOCH, EPOCH), ())
        nothing = self._asked | {"first_window": EPOCH, "stop": EPOCH}
        self._cursor.execute(f"CREATE OR REPLACE {kind} TABLE {name} AS {self._of_files.duckdb}", nothing)

    def add(self, name: str, span: Span, only: Collection[str] | None = None) -> None:
        """Add to a table of sums those of the rows in a span of time; of all files, or only of these."""
        self._read(span, only)
        asked = self._asked | {"first_window": span[0], "stop": span[1]}
        self._cursor.execute(f"INSERT INTO {name} BY NAME {self._of_files.duckdb}", asked)

    def see(self, select: str, condition: str) -> None:
        self._cursor.execute(f"CREATE OR REPLACE TEMP VIEW {ROLLUPS} AS SELECT * FROM ({select}) WHERE {condition}")

    def spans(self, windows: Iterable[int]) -> list[Span]:
        """The spans of time that windows cover."""
        spans = list[Span]()
        for number in sorted(windows):
            begin = EPOCH + number * self._step
            if spans and spans[-1][1] == begin:
                begin = spans.pop()[0]
            spans.append((begin, EPOCH + (number + 1) * self._step))
        return spans

    def follow(self, kept: _Kept) -> None:
        """Let kept sums be those of the table's files."""
        files = file_bounds(self._table, "window_start")
        gone, new = kept.files.keys() - files.keys(), files.keys() - kept.files.keys()
        self._forget(kept, self._touched(kept.windows, (kept.files[path] for path in gone)))
        kept.files = files
        touched = self._touched(kept.windows, (files[path] for path in new))
        if not touched:
            return
        self.create("new_sums", "TEMP")
        for span in self.spans(touched):
            self.add("new_sums", span, new)
        before = _at(self.spans(touched))
        self._cursor.execute(f"INSERT INTO new_sums SELECT * FROM {kept.name} WHERE {before}")
        self._cursor.execute(f"DELETE FROM {kept.name} WHERE {before}")
        self.see("SELECT * FROM new_sums", "TRUE")
        self._cursor.execute(f"INSERT INTO {kept.name} BY NAME {self._of_sums.duckdb}", self._asked)

    def fill(self, kept: _Kept, wanted: range) -> None:
        """Add the windows that aren't kept."""
        (rows,) = self._cursor.execute(f"SELECT count(*) FROM {kept.name}").fetchall()[0]
        if rows > MOST_ROWS:
            self._forget(kept, kept.windows - {*wanted})
        for span in self.spans({*wanted} - kept.windows):
            self.add(kept.name, span)
        kept.windows |= {*wanted}

    def _forget(self, kept: _Kept, windows: set[int]) -> None:
        if windows:
            self._cursor.execute(f"DELETE FROM {kept.name} WHERE {_at(self.spans(windows))}")
            kept.windows -= windows

    def _touched(self, windows: Iterable[int], bounds: Iterable[tuple[datetime | None, datetime | None]]) -> set[int]:
        """The windows, of some, that files with these bounds may have rows of."""
        all_bounds = list(bounds)
        of_window = {number: Times("window_start", tuple(self.spans([number]))) for number in windows}
        return {number for number, times in of_window.items() if any(times.may_be_in(*each) for each in all_bounds)}

    def _read(self, span: Span, only: Collection[str] | None) -> None:
        """Let the cursor see only files that may have rows of this span, and only these."""
        times = Times("window_start", (span,))
        select = native_select(self._cursor, self._table, times, only=only)
        self._cursor.execute(f'CREATE OR REPLACE TEMP VIEW "{self._name}" AS {select}')


def _at(spans: Iterable[Span]) -> str:
    return Times("at", tuple(spans)).sql
