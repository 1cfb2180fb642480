"""The note of the lifecycle: what its table doesn't say of the state, and which step is under way."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from kafka_telemetry_lake.pipelines.lake.epoch_notes import EpochNote
from kafka_telemetry_lake.pipelines.lake.errors import StateVersionError

VERSION = 1
EVENT_COUNTS = "told"  # the file's name for `Note.event_counts`; a new name would need a new version


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
        StateVersionError: it was written by a release with another format.
    """
    content = file.read()
    if content is None:
        return None
    if content.pop("version") != VERSION:
        raise StateVersionError(f"{file.path}: written by another release, this one reads version {VERSION}")
    ends = {name: content[name] and StepEnd(**content[name]) for name in ("done", "under_way")}
    clocks = tuple((place[0], place[1], place[2], place[3]) for place in content["clocks"])
    event_counts = content.pop(EVENT_COUNTS)
    return Note(**(content | ends | {"clocks": clocks, "event_counts": event_counts}))


def write_note(file: EpochNote, note: Note) -> None:
    """Replace the note."""
    content = {"version": VERSION, **asdict(note)}
    for end in (content["done"], content["under_way"]):
        if end is not None and not end["part"]:  # earlier releases don't know it
            del end["part"]
    content[EVENT_COUNTS] = content.pop("event_counts")
    file.write(content)
