"""The note of the lifecycle: what its table doesn't say of the state, and which step is under way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any


@dataclass(frozen=True)
class StepEnd:
    """Where a step's input ends: the last versions of both tables that it reads.

    Attributes:
        now: µs; all pushes until then are known to have been read from a live source; None: not known.
        part: the step reads this part of `StoredRows` instead, from 1 on; 0: it reads commits.
    """

    pushes: int = -1
    outcomes: int = -1
    now: int | None = None
    part: int = 0


@dataclass(frozen=True)
class Note:
    """The state after a step that `client_changes` doesn't contain, and the end of the step under way."""

    step: int = 0
    done: StepEnd = field(default_factory=StepEnd)
    clocks: tuple[tuple[str, str, int, int], ...] = ()  # source, topic, partition, µs
    event_counts: dict[str, int] = field(default_factory=dict)
    waves: dict[str, Any] = field(default_factory=dict)
    under_way: StepEnd | None = None

    @staticmethod
    def of(content: Mapping[str, Any]) -> Note:
        """The note with a stored content."""
        ends = {name: content[name] and StepEnd(**content[name]) for name in ("done", "under_way")}
        clocks = tuple((place[0], place[1], place[2], place[3]) for place in content["clocks"])
        return Note(**(dict(content) | ends | {"clocks": clocks}))


FIELDS = tuple(each.name for each in fields(Note))
