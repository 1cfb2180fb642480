"""Checks landing records: the problems of each, and how many records have which."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc

from kafka_telemetry_lake.pipelines.landing.records import Placed
from kafka_telemetry_lake.udfs.conversion.compression import decompress
from kafka_telemetry_lake.udfs.landing.contract import HEADERS
from kafka_telemetry_lake.udfs.landing.problems import Content, LandingRecord, Problem, problems, texts_of
from kafka_telemetry_lake.udfs.limits import DEFAULT_LIMITS, Limits
from kafka_telemetry_lake.udfs.otlp.decode import decode

AT_ONCE = 100  # records that are decompressed and decoded together


@dataclass
class Checked:
    """What was found so far: records, points, how many records have each problem and each header."""

    records: int = 0
    others: int = 0
    points: int = 0
    by_kind: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    with_header: Counter[str] = field(default_factory=Counter)
    with_errors: int = 0

    def note(self, own: list[Problem]) -> None:
        """Count a record with its problems."""
        self.records += 1
        self.by_kind.update({(each.severity, each.field, each.kind) for each in own})
        self.with_errors += any(each.severity == "error" for each in own)


def check(
    records: Iterable[Placed], other_topics: frozenset[str], checked: Checked, limits: Limits = DEFAULT_LIMITS
) -> Iterator[tuple[str, Problem]]:
    """Yield each problem with the place of its record, and count in `checked`.

    Args:
        other_topics: topics whose records aren't pushes; they are only counted.
    """
    pushes = _pushes(records, other_topics, checked)
    while some := list(islice(pushes, AT_ONCE)):
        readable = [placed.record for placed in some if placed.record is not None]
        contents = iter(_contents(readable, limits))
        for placed in some:
            if placed.record is None:
                own = [Problem("error", "record", "not a record", placed.broken or "")]
            else:
                content = next(contents)
                checked.points += content.points
                checked.with_header.update(texts_of(placed.record).keys() & HEADERS.keys())
                own = problems(placed.record, content)
            checked.note(own)
            yield from ((placed.place, problem) for problem in own)


def _pushes(records: Iterable[Placed], other_topics: frozenset[str], checked: Checked) -> Iterator[Placed]:
    for placed in records:
        if placed.topic in other_topics:
            checked.others += 1
        else:
            yield placed


def _contents(records: list[LandingRecord], limits: Limits) -> list[Content]:
    """What the job reads from each value."""
    texts = [texts_of(record) for record in records]
    values = pa.array(
        [None if "dropped" in text else each.value for each, text in zip(records, texts, strict=True)], pa.binary()
    )
    read = decompress(values, pa.array([text.get("compression_type") for text in texts], pa.string()), limits)
    decoded = decode(read.data, limits)
    errors = decoded.payloads["error"].to_pylist()
    points = [0] * len(records)
    for payload, count in zip(
        *(column.to_pylist() for column in pc.value_counts(decoded.points["payload"]).flatten()), strict=True
    ):
        points[payload] = count
    sizes = pc.fill_null(pc.binary_length(read.data), 0).to_pylist()
    return [
        Content(reason or (error and "INVALID_RECORD"), detail or error, size, count)
        for reason, detail, error, size, count in zip(
            read.reason.to_pylist(), read.detail.to_pylist(), errors, sizes, points, strict=True
        )
    ]
