"""The note of the lifecycle: what its table doesn't say of the state, and which step is under way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from kafka_telemetry_lake.pipelines.lake.follower import Position


@dataclass(frozen=True)
class StepEnd:
    """Where a step's input ends.

    Attributes:
        pushes, outcomes: positions in both tables; their times are the newest landing before.
        now: µs; all pushes until then are known to have been read from a live source; None: not known.
        part: the step reads this part of `StoredRows` instead, from 1 on; 0: it reads commits.
    """

    pushes: Position = field(default_factory=Position)
    outcomes: Position = field(default_factory=Position)
    now: int | None = None
    part: int = 0

    def stored(self) -> dict[str, Any]:
        """What the note has of it."""
        return vars(self) | {"pushes": self.pushes.stored(), "outcomes": self.outcomes.stored()}

    @staticmethod
    def of(content: Mapping[str, Any]) -> StepEnd:
        """What the note has."""
        positions = {name: Position.of(content[name]) for name in ("pushes", "outcomes")}
        return StepEnd(**(dict(content) | positions))


@dataclass(frozen=True)
class StepNote:
    """The state after a step that `client_changes` doesn't contain, and the end of the step under way."""

    step: int = 0
    done: StepEnd = field(default_factory=StepEnd)
    clocks: tuple[tuple[str, str, int, int], ...] = ()  # source, topic, partition, µs
    event_counts: dict[str, int] = field(default_factory=dict)
    waves: dict[str, Any] = field(default_factory=dict)
    under_way: StepEnd | None = None

    def stored(self) -> dict[str, Any]:
        """The content of the file."""
        return vars(self) | {"done": self.done.stored(), "under_way": self.under_way and self.under_way.stored()}

    @staticmethod
    def of(content: Mapping[str, Any]) -> StepNote:
        """The note with a stored content."""
        ends = {name: content[name] and StepEnd.of(content[name]) for name in ("done", "under_way")}
        clocks = tuple((place[0], place[1], place[2], place[3]) for place in content["clocks"])
        return StepNote(**(dict(content) | ends | {"clocks": clocks}))


FIELDS = tuple(each.name for each in fields(StepNote))
