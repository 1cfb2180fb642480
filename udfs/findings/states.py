"""States of findings: which of an hour's findings open, change or are resolved.

A state belongs to one finding of one subject. Hours are numbers since 1970 (UTC), of landing times. A finished hour is
advanced over once; an hour that isn't finished yet may be advanced over any number of times before. What follows
depends only on the hours and their rows: not on when, or in how many runs, they were evaluated.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypedDict

HOUR_US = 3_600_000_000
OPENED, CHANGED, RESOLVED = "opened", "changed", "resolved"
RANKS = {"info": 1, "warning": 2, "error": 3}


class Identity(TypedDict):
    """Which finding of which subject."""

    cluster_id: str | None
    finding: str
    scope: str
    subject: str | None


class FindingRow(Identity):
    """A row of view `findings` in its hour, and whose it is; the fields have the meaning of table `finding_changes`."""

    severity: str
    client_id: str | None
    principal: str | None
    application: str | None
    owner: str | None
    measure: float | None
    instances: int | None
    instances_affected: int | None
    worst_instance: str | None
    evidence: str
    advice: str


@dataclass(frozen=True)
class Hysteresis:
    """How many hours a change waits for, so that a finding that comes and goes stays one finding.

    Attributes:
        open_after: hours with the finding, with none between in which the subject was seen without it.
        resolve_after: finished hours since the last one with the finding, in which the subject was seen without it. A
            lower severity waits as many consecutive hours with the finding.
        gone_after: consecutive finished hours in which the subject wasn't seen, though its cluster was.
    """

    open_after: int = 1
    resolve_after: int = 2
    gone_after: int = 24


DEFAULT = Hysteresis()


@dataclass
class FindingState:
    """A finding of one subject, from its first hour until it is resolved.

    Attributes:
        latest: its latest row of view `findings`.
        first, last: its first and latest hour.
        hours: hours with the finding, until it opens.
        severity: as recorded; None: not open yet.
        clean, unseen: finished hours since then in which the subject was seen without it, or wasn't seen.
        lower, lower_severity: consecutive finished hours with a lower severity, and the highest of those.
    """

    latest: FindingRow
    first: int
    last: int
    hours: int = 1
    severity: str | None = None
    clean: int = 0
    unseen: int = 0
    lower: int = 0
    lower_severity: str = "info"


@dataclass(frozen=True)
class FindingChange:
    """A change to record: of which state, what, when (µs), and why it is resolved."""

    state: FindingState
    change: str
    at: int
    reason: str | None = None


def rank(severity: str) -> int:
    """The order of severities; one that isn't known is the lowest."""
    return RANKS.get(severity, 0)


def finding_id(row: Identity) -> str:
    """The stable id of a finding of one subject: 32 hex digits."""
    identity = json.dumps([row["finding"], row["cluster_id"], row["scope"], row["subject"]])
    return hashlib.blake2b(identity.encode(), digest_size=16).hexdigest()


def advance(
    states: dict[str, FindingState],
    hour: int,
    found: Iterable[FindingRow],
    was_seen: Callable[[FindingState], bool],
    finished: bool,
    rules: Callable[[str], Hysteresis] = lambda _: DEFAULT,
    lingers: Callable[[FindingState], bool] = lambda _: False,
) -> list[FindingChange]:
    """Advance the states of one cluster over an hour, in place.

    Args:
        states: by finding id.
        hour: later than every finished hour before.
        found: the hour's rows of view `findings`.
        was_seen: whether a state's subject was seen in this hour; asked only about a finished hour.
        finished: False: rows of the hour may still land. Then findings open and their severity rises; nothing else.
        rules: how long the changes of a finding wait, by its rule.
        lingers: whether a subject that doesn't have the finding in this hour is still above the bound at which it
            closes. Such an hour is no reason to open a finding, and none to resolve it.
    """
    changes: list[FindingChange] = []
    worst: dict[str, FindingRow] = {}
    for row in sorted(found, key=lambda row: (rank(row["severity"]), str(row["evidence"]))):
        worst[finding_id(row)] = row
    for key, row in sorted(worst.items()):
        if key in states:
            state = states[key]
            state.hours += state.last < hour
            state.latest, state.last = row, hour
        else:
            state = states[key] = FindingState(row, hour, hour)
        state.clean = state.unseen = 0
        changes += _with_finding(state, hour, finished, rules(row["finding"]))
    if finished:
        for key in sorted(states.keys() - worst.keys()):
            state = states[key]
            if state.severity is not None and lingers(state):
                state.clean = state.unseen = 0
                continue
            done, resolved = _without_finding(state, hour, was_seen(state), rules(state.latest["finding"]))
            changes += resolved
            if done:
                del states[key]
    return changes


def _with_finding(state: FindingState, hour: int, finished: bool, rules: Hysteresis) -> list[FindingChange]:
    severity = state.latest["severity"]
    if state.severity is None:
        if state.hours < rules.open_after:
            return []
        state.severity = severity
        return [FindingChange(state, OPENED, hour * HOUR_US)]
    if rank(severity) > rank(state.severity):
        state.severity, state.lower = severity, 0
        return [FindingChange(state, CHANGED, hour * HOUR_US)]
    if not finished or severity == state.severity:
        state.lower *= not finished
        return []
    state.lower_severity = max(severity, state.lower_severity, key=rank) if state.lower else severity
    state.lower += 1
    if state.lower < rules.resolve_after:
        return []
    state.severity, state.lower = state.lower_severity, 0
    return [FindingChange(state, CHANGED, (hour + 1) * HOUR_US)]


def _without_finding(state: FindingState, hour: int, seen: bool, rules: Hysteresis) -> tuple[bool, list[FindingChange]]:
    """Whether the state ends with this finished hour, and the change that says so: none of a finding not yet open."""
    if seen:
        state.clean, state.unseen = state.clean + 1, 0
    else:
        state.unseen += 1
    end = (hour + 1) * HOUR_US
    if seen and (state.severity is None or state.clean >= rules.resolve_after):
        reason = f"seen in {hours(state.clean)} without this finding"
    elif state.unseen >= rules.gone_after:
        reason = f"not seen in {hours(state.unseen)} in which its cluster was"
    else:
        return False, []
    return True, [] if state.severity is None else [FindingChange(state, RESOLVED, end, reason)]


def hours(count: int) -> str:
    """A number of hours in words."""
    return f"{count} hour{'' if count == 1 else 's'}"
