"""What a lake holds against a fleet's own books: lost, doubled, unexplained. Imports nothing of the project's code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
from deltalake import DeltaTable

from tests.support.ledger import HOSTILE_ID, Ledger

Key = tuple[int, int]
OUTCOMES = {"points": "points", "heartbeat": "heartbeat", "garbage": "quarantined", "again": "duplicate"}


@dataclass
class Verdict:
    """Rows too few and too many, over all tables, and what doesn't add up in words."""

    lost: int = 0
    doubled: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def right(self) -> bool:
        return not (self.lost or self.doubled or self.problems)

    def compare(self, what: str, found: Counter[Key], truth: Counter[Key]) -> None:
        lost, doubled = truth - found, found - truth
        self.lost += lost.total()
        self.doubled += doubled.total()
        if lost:
            self.problems.append(f"{what}: {lost.total()} rows lost, such as {sorted(lost)[:3]}")
        if doubled:
            self.problems.append(f"{what}: {doubled.total()} rows too many, such as {sorted(doubled)[:3]}")


def check(lake: Path, ledger: Ledger) -> Verdict:
    """Judge a lake that has been worked off to its end."""
    verdict = Verdict()
    every = Counter((each.partition, each.offset) for each in ledger.landed)
    assert max(every.values()) == 1, "the ledger itself names an offset twice"
    hostile = [*{each.client for each in ledger.landed if each.kind == "hostile"}]
    points = Counter({(each.partition, each.offset): each.points for each in ledger.landed if each.points})
    garbage = Counter((each.partition, each.offset) for each in ledger.landed if each.kind == "garbage")
    verdict.compare("pushes", _keys(lake, "pushes"), every)
    verdict.compare("push_outcomes", _keys(lake, "push_outcomes"), every)
    verdict.compare("metric_points", _keys(lake, "metric_points", hostile), points)
    verdict.compare("quarantine", _quarantined(lake, hostile), garbage)
    _check_outcomes(lake, ledger, verdict)
    _check_sums(lake, ledger, verdict)
    return verdict


def _check_outcomes(lake: Path, ledger: Ledger, verdict: Verdict) -> None:
    rows = _rows(lake, "push_outcomes", "partition", "offset", "outcome")
    outcomes = {(partition, offset): outcome for partition, offset, outcome in rows}
    for each in ledger.landed:
        outcome = outcomes.get((each.partition, each.offset))
        if outcome is not None and each.kind != "hostile" and outcome != OUTCOMES[each.kind]:
            verdict.problems.append(f"{each}: outcome {outcome}")


def _check_sums(lake: Path, ledger: Ledger, verdict: Verdict) -> None:
    """Conservation: the increments of a counter add up to what the client counted; in points and in rollups."""
    sums: Counter[tuple[str, str]] = Counter()
    known = {client for client, _ in ledger.increments}
    hostile = [*{each.client for each in ledger.landed if each.kind == "hostile"}]
    columns = ("client_instance_id", "metric", "delta_int")
    for client, metric, delta in _rows(lake, "metric_points", *columns, but=("client_instance_id", hostile)):
        if client not in known:
            verdict.problems.append(f"{client}: points of a client that never pushed any")
        sums[client, metric] += delta or 0
    for key, total in ledger.increments.items():
        if sums[key] != total:
            verdict.problems.append(f"{key}: increments add up to {sums[key]}, the client counted {total}")
    for rollup in ("metric_rollups_1m", "metric_rollups_1h"):
        rows = _rows(lake, rollup, "points", "increase_int", but=("client_id", [HOSTILE_ID]))
        found = sum(row[0] for row in rows), sum(row[1] or 0 for row in rows)
        truth = sum(each.points for each in ledger.landed), ledger.increments.total()
        if found != truth:
            verdict.problems.append(f"{rollup}: points and increase {found}, the ledger says {truth}")


def _keys(lake: Path, table: str, hostile: Sequence[str] = ()) -> Counter[Key]:
    but = ("client_instance_id", hostile)
    return Counter((partition, offset) for partition, offset in _rows(lake, table, "partition", "offset", but=but))


def _quarantined(lake: Path, hostile: Sequence[str]) -> Counter[Key]:
    """The pushes that quarantine names; its other rows are of quota samples."""
    rows = _rows(lake, "quarantine", "topic", "partition", "offset", but=("client_instance_id", hostile))
    return Counter((partition, offset) for topic, partition, offset in rows if topic != "client-quotas")


def _rows(lake: Path, table: str, *columns: str, but: tuple[str, Sequence[str]] = ("", ())) -> list[tuple[Any, ...]]:
    """Columns of a table's rows, but for those with one of these values in a column."""
    wanted = ~ds.field(but[0]).isin(but[1]) if but[1] else None
    rows = DeltaTable(str(lake / table)).to_pyarrow_dataset().to_table(list(columns), filter=wanted)
    return list(zip(*(rows[name].to_pylist() for name in columns), strict=True))
