"""Answers of Kafka's Admin about the items of a list, each by itself: one that fails doesn't fail the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError

from kafka_telemetry_lake.pipelines.runtime.kafka_admin import root_of

GONE = ("GroupIdNotFoundException", "UnknownTopicOrPartitionException", "UnknownTopicIdException")
MOST_NAMED = 20


@dataclass(frozen=True)
class Answer:
    """What the brokers said about an item.

    Attributes:
        value: None if there is none.
        problem: why not: the name of the exception.
        is_undecoded: the brokers answered, but Kafka's client can't read what they said. Then no item of the same
            response has a value: ask again for each by itself.
    """

    value: Any = None
    problem: str | None = None
    is_undecoded: bool = False

    @property
    def is_gone(self) -> bool:
        """Whether the item was deleted after it was listed."""
        return self.problem in GONE

    @property
    def may_come(self) -> bool:
        """Whether the same question may have an answer soon: it was neither refused nor unreadable."""
        return self.problem is not None and "Authorization" not in self.problem and not self.is_undecoded


def answer_of(future: Any) -> Answer:
    """Wait for the answer about an item, a `KafkaFuture`."""
    try:
        return Answer(future.get())
    except Py4JJavaError as error:
        kind = root_of(error).getClass()
        return Answer(None, str(kind.getSimpleName()), ".common.errors." not in kind.getName())


def named(problems: Mapping[str, str]) -> str:
    """Items with their problems, each problem once: ``a, b (GroupAuthorizationException)``."""
    by_problem: dict[str, list[str]] = {}
    for item in sorted(problems):
        by_problem.setdefault(problems[item], []).append(item)
    return "; ".join(
        f"{', '.join(items[:MOST_NAMED])}{f' and {len(items) - MOST_NAMED} more' if len(items) > MOST_NAMED else ''}"
        f" ({problem})"
        for problem, items in sorted(by_problem.items())
    )
