"""Rules about what a client does after answers: who it says it is, errors, lost connections, its end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from kafka_telemetry_lake.sandbox.conformance.lives import (
    CLOSING,
    ENDED,
    GZIP,
    HEARD,
    INTERVAL_S,
    MOVED,
    THROTTLED,
    TOO_LARGE,
    UNSUPPORTED_COMPRESSION,
    Life,
)
from kafka_telemetry_lake.sandbox.conformance.push_rules import CODECS
from kafka_telemetry_lake.sandbox.conformance.receiver import Exchange
from kafka_telemetry_lake.sandbox.conformance.seen import (
    BROKEN,
    EARLY,
    LATE,
    NO_RULE,
    NOT_SEEN,
    OBEYED,
    Found,
    Lives,
    after_errors,
    cut_short,
    since,
    subscribed_pushes,
    text_count,
    text_range,
)
from kafka_telemetry_lake.sandbox.conformance.wire import NO_INSTANCE

AT_ONCE = 0.4  # intervals
# From a throttled push to the next one: an interval, then perhaps a subscription and its first push, on a busy machine.
THROTTLED_LONGEST = 2.5 + LATE


def well_formed(lives: Lives) -> Found:
    problems = [each for life in lives.values() for each in life.malformed]
    if problems:
        return BROKEN, f"{len(problems)} can't be read: {problems[0]}"
    count = sum(len(life.exchanges) for life in lives.values())
    return (OBEYED, f"all {count} telemetry requests") if count else (NOT_SEEN, "no telemetry request")


def instance(lives: Lives) -> Found:
    """No id in the first request, then that of the first answer."""
    return _ids([exchange for life in lives.values() for exchange in life.exchanges[:1]], lives, lambda _: 0.0)


def id_after(mark: str) -> Callable[[Lives], Found]:
    def look(lives: Lives) -> Found:
        marked = {name: life for name, life in lives.items() if mark in life.marks}
        later = [each for life in marked.values() for each in life.exchanges if each.at > life.marks[mark]]
        pushed = [each for each in later if each.push and not each.push.terminating]
        if not pushed:
            return NOT_SEEN, "it pushed no more" if marked else "not tried"
        waited = min(
            each.at - life.marks[mark] for life in marked.values() for each in pushed if each in life.exchanges
        )
        verdict, text = _ids([], marked, lambda life: life.marks[mark])
        return verdict, f"{text}; pushes again after {waited:.1f} s"

    return look


def _ids(firsts: Sequence[Exchange], lives: Lives, since: Callable[[Life], float]) -> Found:
    asked = [each for life in lives.values() for each in life.exchanges]
    if not asked:
        return NOT_SEEN, "no telemetry request"
    early = [each for each in firsts if each.instance != NO_INSTANCE]
    assigned = {name: life.exchanges[0].assigned_instance for name, life in lives.items() if life.exchanges}
    later = [(name, each) for name, life in lives.items() for each in life.exchanges[1:] if each.at > since(life)]
    without = sum(each.instance == NO_INSTANCE for _, each in later)
    other = sum(each.instance not in (NO_INSTANCE, assigned[name]) for name, each in later)
    if early or without or other:
        first = f"{len(early)} first ones with one"
        return BROKEN, f"{without} later requests without the id, {other} with another, {first}"
    return OBEYED, f"{text_count(len(later), 'later request')} with the id of the first answer"


def asks_at_once(error: int) -> Callable[[Lives], Found]:
    def look(lives: Lives) -> Found:
        waits: list[float] = []
        other = 0
        for life, refused, then in after_errors(lives, error):
            if cut_short(life, refused, then):
                continue
            if then is None or then.push is not None:
                other += 1
            else:
                waits.append(since(refused, then))
        if not waits and not other:
            return NOT_SEEN, "no push was answered so"
        if not waits:
            return BROKEN, "doesn't ask again"
        text = f"asks again after {text_range(waits)} intervals"
        if other:
            return BROKEN, f"{text}, and {text_count(other, 'time')} not"
        return (OBEYED if median(waits) <= AT_ONCE else BROKEN), text

    return look


def other_codec(lives: Lives) -> Found:
    """It asks at once, and then uses the codec that is left, or none."""
    verdict, text = asks_at_once(UNSUPPORTED_COMPRESSION)(lives)
    used = {push.codec for _, push, own in subscribed_pushes(lives) if own.codecs == (GZIP,) and not push.terminating}
    if verdict == NOT_SEEN:
        return verdict, text
    if not used:
        return BROKEN, f"{text}; no push with a codec that is left"
    return (verdict if used <= {0, GZIP} else BROKEN), f"{text}, then pushes {_all_of(used)}"


def _all_of(codecs: set[int]) -> str:
    return " and ".join(CODECS[codec] for codec in sorted(codecs))


def throttled(lives: Lives) -> Found:
    """The next push comes an interval later, not earlier, and telemetry goes on."""
    for life, refused, then in after_errors(lives, THROTTLED):
        later = (each for each in life.exchanges if each.at > refused.at)
        pushed = next((each for each in later if each.push is not None and not each.push.terminating), None)
        if then is None or pushed is None:
            if life.marks.get(CLOSING, float("inf")) - refused.at < THROTTLED_LONGEST * INTERVAL_S:
                continue  # it was closed before it had to push
            return BROKEN, "it pushes no more"
        asked = "" if then.push is not None else f"asks again after {since(refused, then):.2f}, "
        waited = since(refused, pushed)
        return (BROKEN if waited < 1 - 2 * EARLY else OBEYED), f"{asked}pushes after {waited:.2f} intervals"
    return NOT_SEEN, "no push was answered so"


def too_large(lives: Lives) -> Found:
    """Of the pushes after the first refusal; nothing at all tells only of a client that lives on."""
    for life in lives.values():
        given = {each.subscription.id: each.subscription for each in life.exchanges if each.subscription is not None}
        limit = min((each.max_bytes for each in given.values()), default=0)
        if len({each.max_bytes for each in given.values()}) < 2:
            continue
        small = {each.id for each in given.values() if each.max_bytes == limit}
        of_small = [(each, each.push) for each in life.exchanges if each.push and each.push.subscription_id in small]
        pushed = [(each, len(push.metrics)) for each, push in of_small if not push.terminating]
        refused = next((at for at, (each, _) in enumerate(pushed) if each.error == TOO_LARGE), None)
        if refused is not None:
            text = f"at most {limit} bytes: refused with {pushed[refused][1]}, then "
            sizes = [size for _, size in pushed[refused + 1 :]]
            last = pushed[refused][0].at
        else:
            text = f"at most {limit} bytes: "
            sizes = [size for _, size in pushed]
            last = next(
                each.at for each in life.exchanges if each.subscription is not None and each.subscription.id in small
            )
        if sizes:
            range_ = f"{min(sizes)} to {max(sizes)}" if len(set(sizes)) > 1 else f"{sizes[0]}"
            return (
                BROKEN if max(sizes) > limit else OBEYED
            ), f"{text}{text_count(len(sizes), 'push', 'pushes')} of {range_}"
        if life.marks.get(HEARD, 0.0) - last < INTERVAL_S:
            return NOT_SEEN, f"{text}no push, and no other request"
        return OBEYED, f"{text}no push, but other requests"
    return NOT_SEEN, "it didn't ask for the subscription"


def stops(error: int) -> Callable[[Lives], Found]:
    def look(lives: Lives) -> Found:
        for life, refused, _ in after_errors(lives, error):
            later = [each for each in life.exchanges if each.at > refused.at]
            pushes = [each.push for each in later if each.push is not None]
            still = sum(not push.terminating for push in pushes)
            watched = (life.marks.get(CLOSING, refused.at) - refused.at) / INTERVAL_S
            text = f"{text_count(still, 'push', 'pushes')} in {watched:.0f} intervals"
            if len(pushes) > still:
                text += ", and one terminating"
            return (BROKEN if still else OBEYED), text
        return NOT_SEEN, "no push was answered so"

    return look


def left_open(error: int) -> Callable[[Lives], Found]:
    def look(lives: Lives) -> Found:
        for life, refused, then in after_errors(lives, error):
            if then is None or then.at > life.marks.get(CLOSING, then.at):
                return NO_RULE, "no request in 4 intervals"
            what = "asks again" if then.push is None else "pushes"
            return NO_RULE, f"{what} after {since(refused, then):.2f} intervals"
        return NOT_SEEN, "no push was answered so"

    return look


def goodbye(lives: Lives) -> Found:
    """Of those lives at whose end it had a subscription and no error."""
    said = ended = 0
    for life in lives.values():
        before = [each for each in life.exchanges if each.at < life.marks.get(CLOSING, 0.0)]
        if MOVED in life.marks and not any(each.at > life.marks[MOVED] for each in life.exchanges):
            continue  # it never found the broker again, so there was nobody to tell
        if ENDED in life.marks and before and before[-1].push is not None and not before[-1].error:
            ended += 1
            said += _says_goodbye(life)
    if not ended:
        return NOT_SEEN, "it never ended with a subscription"
    return (OBEYED if said == ended else BROKEN), f"{said} of {ended} ends have a terminating push"


def goodbye_while_throttled(lives: Lives) -> Found:
    for life, refused, _ in after_errors(lives, THROTTLED):
        if CLOSING in life.marks and life.marks[CLOSING] - refused.at < INTERVAL_S:
            said = _says_goodbye(life)
            return (OBEYED if said else BROKEN), "a terminating push" if said else "no terminating push"
    return NOT_SEEN, "no push was throttled right before the end"


def _says_goodbye(life: Life) -> bool:
    return any(each.push and each.push.terminating and each.at >= life.marks[CLOSING] for each in life.exchanges)
