"""What rules look at in a client's lives, and how they say what they saw."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, zip_longest

from kafka_telemetry_lake.sandbox.conformance.lives import CLOSING, CUT, INTERVAL_S, MOVED, Life
from kafka_telemetry_lake.sandbox.conformance.receiver import Exchange
from kafka_telemetry_lake.sandbox.conformance.wire import Push, Subscription

OBEYED, BROKEN, NOT_SEEN, NO_RULE = "obeyed", "broken", "not seen", "no rule"
# In intervals: what clocks may take from the KIP's 0.5, 1.5 and 1, or add to them; and what a busy machine may add.
EARLY, LATE = 0.05, 1.0

Lives = Mapping[str, Life]
Found = tuple[str, str]  # verdict and evidence


def subscribed_pushes(lives: Lives) -> Iterator[tuple[Exchange, Push, Subscription]]:
    """All pushes with the subscription that they are of, but those of one that the client never got."""
    for life in lives.values():
        given: dict[int, Subscription] = {}
        for exchange in life.exchanges:
            if exchange.subscription is not None:
                given[exchange.subscription.id] = exchange.subscription
            elif exchange.push is not None and exchange.push.subscription_id in given:
                yield exchange, exchange.push, given[exchange.push.subscription_id]


def after_answers(life: Life) -> Iterator[tuple[Exchange, Exchange]]:
    """Each answer with metrics, and the push that is the next request."""
    for asked, then in pairwise(life.exchanges):
        has_metrics = asked.subscription is not None and asked.subscription.metrics and asked.answered is not None
        if has_metrics and then.push and not then.push.terminating and not disturbed(life, asked, then):
            yield asked, then


def after_errors(lives: Lives, error: int) -> Iterator[tuple[Life, Exchange, Exchange | None]]:
    """Each push that got this error, and the next request, if there is one."""
    for life in lives.values():
        for exchange, then in zip_longest(life.exchanges, life.exchanges[1:]):
            if exchange.error == error and exchange.push is not None and not exchange.push.terminating:
                yield life, exchange, then


def disturbed(life: Life, before: Exchange, then: Exchange) -> bool:
    """Whether the script ended connections, or the client, between two requests."""
    return any(before.at < life.marks[mark] < then.at for mark in (CUT, MOVED, CLOSING) if mark in life.marks)


def cut_short(life: Life, before: Exchange, then: Exchange | None) -> bool:
    """Whether an answer may not have arrived, or connections ended right after it, before the next request."""
    end = float("inf") if then is None else then.at
    ends = (life.marks[mark] for mark in (CUT, MOVED, CLOSING) if mark in life.marks)
    return before.answered is None or any(before.at < at < min(end, before.at + INTERVAL_S) for at in ends)


def since(before: Exchange, then: Exchange) -> float:
    """Intervals from an answer to a later request."""
    return (then.at - (before.answered if before.answered is not None else before.at)) / INTERVAL_S


def text_range(values: Sequence[float]) -> str:
    low, high = f"{min(values):.2f}", f"{max(values):.2f}"
    return low if low == high else f"{low} to {high}"


def text_count(number: int, one: str, more: str | None = None) -> str:
    return f"{number} {one if number == 1 else more or f'{one}s'}"
