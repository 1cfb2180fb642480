"""Rules about pushes: when they come, and what is in them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from statistics import median

from kafka_telemetry_lake.sandbox.conformance.lives import ALL, INTERVAL_S
from kafka_telemetry_lake.sandbox.conformance.metrics import content
from kafka_telemetry_lake.sandbox.conformance.seen import (
    BROKEN,
    EARLY,
    LATE,
    NO_RULE,
    NOT_SEEN,
    OBEYED,
    Found,
    Lives,
    after_answers,
    disturbed,
    since,
    subscribed_pushes,
    text_count,
    text_range,
)

FEWEST = 3  # first pushes that tell
SPREAD = 0.02  # first pushes that are nearer together than this aren't random
# GetTelemetrySubscriptionsResponse.json, as the KIP: "Array[0] empty string: All metrics subscribed".
STAR = '"*", as brokers ask; by the text of the protocol it is ""'
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
LABELS = frozenset(
    ("client_rack", "group_id", "group_instance_id", "group_member_id", "transactional_id", "application_id")
)


def first_push(lives: Lives) -> Found:
    """At random between 0.5 and 1.5 intervals after the first answer, and not later after the other ones.

    The KIP gives the 0.5 a purpose at a client's start only: that not all clients push at the same time.
    """
    first: list[float] = []
    every: list[float] = []
    for life in lives.values():
        for asked, then in after_answers(life):
            waited = since(asked, then)
            every.append(waited)
            if asked is life.exchanges[0]:
                first.append(waited)
    if not every:
        return NOT_SEEN, "no push after a subscription"
    text = f"{text_range(every)} intervals after {text_count(len(every), 'subscription')}"
    if len(every) < FEWEST:
        return NOT_SEEN, text
    if min(first, default=1.0) < 0.5 - EARLY or max(every) > 1.5 + LATE or median(every) > 1.5 + EARLY:
        return BROKEN, text
    if len(first) >= FEWEST and max(first) - min(first) < SPREAD:
        return BROKEN, f"{text}; not at random, a client's first ones {text_range(first)}"
    return OBEYED, text


def interval(lives: Lives) -> Found:
    """No push too early; one that keeps to the interval after one that came late isn't early."""
    gaps: list[float] = []
    early = made_up = 0
    for life in lives.values():
        for at, (before, then) in enumerate(pairwise(life.exchanges)):
            between_pushes = before.push and then.push and not (before.error or then.push.terminating)
            if not between_pushes or disturbed(life, before, then):
                continue
            gaps.append((then.at - before.at) / INTERVAL_S)
            if gaps[-1] < 1 - 2 * EARLY:
                last = life.exchanges[at - 1] if at else before
                in_time = last.push is not None and (then.at - last.at) / INTERVAL_S >= 2 - 2 * EARLY
                made_up += in_time
                early += not in_time
    if not gaps:
        return NOT_SEEN, "no two pushes after one another"
    text = f"{text_range(gaps)} intervals between pushes, median {median(gaps):.2f} of {len(gaps)}"
    if made_up:
        text += f"; {made_up} short after a long one"
    return (BROKEN if early or median(gaps) > 1 + LATE / 4 else OBEYED), text


def names(lives: Lives) -> Found:
    names = foreign = 0
    example = ""
    for _, push, subscription in subscribed_pushes(lives):
        for name in sorted({point.name for point in content(push).points}):
            names += 1
            if subscription.metrics != ALL and not name.startswith(subscription.metrics):
                foreign += 1
                example = name
    if not names:
        return NOT_SEEN, "no push with a metric"
    if foreign:
        return BROKEN, f"{foreign} of {names} names not asked for, such as {example}"
    return OBEYED, f"{names} names, all asked for"


def all_metrics(lives: Lives) -> Found:
    """What ``*`` gets: the KIP's word for all metrics is another one than that of brokers."""
    counts = [
        len({point.name for point in content(push).points})
        for _, push, subscription in subscribed_pushes(lives)
        if subscription.metrics == ALL and not push.terminating
    ]
    if not counts:
        return NOT_SEEN, "no push of that subscription"
    return NO_RULE, f"{max(counts)} names in a push when asked for {STAR}"


def no_metrics(lives: Lives) -> Found:
    """Asked for none it pushes none, and asks for the subscription again after the interval."""
    for life in lives.values():
        asked = [each for each in life.exchanges if each.subscription is not None and not each.subscription.metrics]
        if not asked:
            continue
        pushed = sum(not subscription.metrics for _, _, subscription in subscribed_pushes({"": life}))
        waits = [(then.at - before.at) / INTERVAL_S for before, then in pairwise(asked)]
        text = text_count(pushed, "push", "pushes")
        if not waits:
            return BROKEN, f"{text}; it doesn't ask again"
        kept = not pushed and min(waits) >= 1 - 2 * EARLY and max(waits) <= 1.5 + LATE
        return (OBEYED if kept else BROKEN), f"{text}; asks again after {text_range(waits)} intervals"
    return NOT_SEEN, "it didn't ask for the subscription"


def temporality(delta: bool) -> Callable[[Lives], Found]:
    def look(lives: Lives) -> Found:
        seen = [
            point.temporality
            for _, push, subscription in subscribed_pushes(lives)
            if subscription.delta == delta
            for point in content(push).points
            if point.temporality is not None
        ]
        if not seen:
            return NOT_SEEN, "no sum in a push"
        asked = "DELTA" if delta else "CUMULATIVE"
        right = seen.count(asked)
        return (OBEYED if right == len(seen) else BROKEN), f"{right} of {len(seen)} sums {asked}"

    return look


def counted_once(lives: Lives) -> Found:
    """Whether deltas after a changed subscription are the totals of those before: all counters would show it."""
    for life in lives.values():
        pushes = [
            (exchange, push)
            for exchange, push, own in subscribed_pushes({"": life})
            if own.delta and not exchange.error
        ]
        first = pushes[0][1].subscription_id if pushes else 0
        before = [push for _, push in pushes if push.subscription_id == first]
        after = next((push for _, push in pushes if push.subscription_id != first), None)
        if len(before) < 4 or after is None:
            continue
        totals: dict[tuple[str, str], float] = {}
        for push in before:
            for point in content(push).sums():
                totals[point.series] = totals.get(point.series, 0.0) + point.value
        next_values = {point.series: point.value for point in content(after).sums()}
        counters = {series: total for series, total in totals.items() if total > 0}
        if not counters:
            return NOT_SEEN, "no counter has increased"
        again = [series for series, total in counters.items() if next_values.get(series, 0.0) >= total]
        largest = max(counters, key=lambda series: counters[series])
        figures = f"of {counters[largest]:g} in {len(before)} pushes, then {next_values.get(largest, 0.0):g}"
        text = f"{len(again)} of {text_count(len(counters), 'counter')} counted again: {figures}"
        return (BROKEN if len(again) == len(counters) else OBEYED), text
    return NOT_SEEN, "no push after a changed subscription"


def codec(lives: Lives) -> Found:
    refused = 0
    used: dict[str, int] = {}
    for _, push, subscription in subscribed_pushes(lives):
        name = CODECS[push.codec] if 0 <= push.codec < len(CODECS) else str(push.codec)
        used[name] = used.get(name, 0) + 1
        refused += push.codec not in (0, *subscription.codecs)
    if not used:
        return NOT_SEEN, "no push"
    text = ", ".join(f"{name} {count}" for name, count in sorted(used.items()))
    return (BROKEN, f"{refused} of another codec; {text}") if refused else (OBEYED, text)


def readable(lives: Lives) -> Found:
    problems = [problem for _, push, _ in subscribed_pushes(lives) if (problem := content(push).problem) is not None]
    count = sum(1 for _ in subscribed_pushes(lives))
    if not count:
        return NOT_SEEN, "no push"
    return (BROKEN, f"{len(problems)} of {count}: {problems[0]}") if problems else (OBEYED, f"all {count} pushes")


def labels(lives: Lives) -> Found:
    """Labels of members of a group; the KIP doesn't forbid others."""
    pushes = [(life, content(push)) for life in lives.values() for _, push, _ in subscribed_pushes({"": life})]
    seen = {label for _, each in pushes for label in each.resource}
    text = ", ".join(sorted(seen)) or "none"
    if "group_id" not in seen and any(life.in_group and each.points for life, each in pushes):
        return BROKEN, f"{text}: a member of a group without group_id"
    if foreign := seen - LABELS:
        return NO_RULE, f"{text}; not named by the KIP: {', '.join(sorted(foreign))}"
    return (OBEYED, text) if seen else (NOT_SEEN, text)
