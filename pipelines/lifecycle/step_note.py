"""The note of the lifecycle: what its table doesn't say of the state, and which step is under way."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from kafka_telemetry_lake.pipelines.lake.epoch_notes import EpochNote
from kafka_telemetry_lake.udfs.errors import OTHER_LAKE, check_format

FORMAT = 1


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


def read_note(file: EpochNote) -> Note | None:
    """The note; None: there is none.

    Raises:
        OtherFormatError: it has another format.
    """
    content = file.read()
    if content is None:
        return None
    check_format(file.path, content.pop("format", None), FORMAT, OTHER_LAKE)
    ends = {name: content[name] and StepEnd(**content[name]) for name in ("done", "under_way")}
    clocks = tuple((place[0], place[1], place[2], place[3]) for place in content["clocks"])
    return Note(**(content | ends | {"clocks": clocks}))


def write_note(file: EpochNote, note: Note) -> None:
    """Replace the note."""
    file.write({"format": FORMAT, **asdict(note)})
