"""What a client under test lives through: each life is one start of the client, and a script of answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from kafka_telemetry_lake.sandbox.conformance.receiver import Exchange, ScriptedReceiver
from kafka_telemetry_lake.sandbox.conformance.wire import Subscription
from kafka_telemetry_lake.udfs.errors import CannotRunError

INTERVAL_S = 1.0
START_S = 60.0  # until the first push, on a busy machine
WATCH_S = 0.25  # between two looks at whether the client still runs
AWAY_S = 20.0  # until it pushes again after its connections have ended
PATIENCE = 3  # times as long as a client that obeys needs on an idle machine
# What most libraries have a counter for, and not all that any has.
NARROW = tuple(
    f"org.apache.kafka.{name}."
    for name in ("producer.connection", "producer.record", "consumer.connection", "consumer.fetch")
)
WIDE, ALL = ("org.apache.kafka.",), ("*",)
GZIP = 1
FIRST = Subscription(1, round(INTERVAL_S * 1000), NARROW)

THROTTLED, UNSUPPORTED_COMPRESSION, TOO_LARGE, UNKNOWN_SUBSCRIPTION = 89, 76, 118, 117
INVALID_REQUEST, INVALID_RECORD, NOT_AUTHORIZED = 42, 87, 31
ERRORS = {
    THROTTLED: "THROTTLING_QUOTA_EXCEEDED",
    UNSUPPORTED_COMPRESSION: "UNSUPPORTED_COMPRESSION_TYPE",
    TOO_LARGE: "TELEMETRY_TOO_LARGE",
    UNKNOWN_SUBSCRIPTION: "UNKNOWN_SUBSCRIPTION_ID",
    INVALID_REQUEST: "INVALID_REQUEST",
    INVALID_RECORD: "INVALID_RECORD",
    NOT_AUTHORIZED: "CLUSTER_AUTHORIZATION_FAILED",
}
CUT, MOVED, CLOSING, ENDED, HEARD = "cut", "moved", "closing", "ended", "heard"


@dataclass(frozen=True)
class Life:
    """What a client did in one life: its telemetry requests, and when the script did what, in seconds of one clock.

    Attributes:
        marks: of ``CUT``, ``MOVED``, ``CLOSING`` (it was asked to end), ``ENDED`` (it has ended), and ``HEARD``
            (its last request of any kind before it was asked to end).
        software: name and version that it says (KIP-511).
        malformed: requests that can't be read, and why.
        in_group: whether it was a member of a group, or wanted to be.
    """

    exchanges: tuple[Exchange, ...]
    marks: Mapping[str, float] = field(default_factory=dict)
    software: tuple[str, str] = ("", "")
    malformed: tuple[str, ...] = ()
    in_group: bool = False


class ClientEndedError(CannotRunError):
    """A client ended before it was asked to; the message has the end of its log."""


class Stage:
    """What a script has: the receiver before one client, and a way to end that client.

    Args:
        close: tells the client to end, and returns when it has.
        ended: how the client ended; None: it runs.
    """

    def __init__(self, receiver: ScriptedReceiver, close: Callable[[], None], ended: Callable[[], str | None]) -> None:
        self.receiver, self._close, self._ended = receiver, close, ended
        self.marks: dict[str, float] = {}

    def life(self) -> Life:
        receiver = self.receiver
        exchanges, malformed = tuple(receiver.exchanges), tuple(receiver.malformed)
        return Life(exchanges, dict(self.marks), receiver.software, malformed, receiver.in_group)

    def pushes(self, subscription_id: int | None = None, *, error: int = 0, after: str | None = None) -> list[Exchange]:
        """Answered pushes so far, of a subscription, with this error code, and after a mark."""
        since = self.marks[after] if after is not None else 0.0
        return [
            each
            for each in self.receiver.exchanges
            if each.push is not None
            and each.answered is not None
            and each.error == error
            and each.at > since
            and subscription_id in (None, each.push.subscription_id)
        ]

    def until(self, condition: Callable[[], bool], limit_s: float) -> None:
        """Returns as soon as it holds, or after the limit: that nothing comes is what the card tells.

        Raises:
            ClientEndedError: the client runs no more.
        """
        deadline = time.monotonic() + limit_s
        with self.receiver.changed:
            while not condition() and (left := deadline - time.monotonic()) > 0:
                self._check()
                self.receiver.changed.wait(min(left, WATCH_S))

    def watch(self, seconds: float) -> None:
        """Lets the client go on for so long."""
        self.until(lambda: False, seconds)

    def _check(self) -> None:
        if (how := self._ended()) is not None:
            raise ClientEndedError(how)

    def first_pushes(self, count: int) -> None:
        self.until(lambda: bool(self.pushes()), START_S)
        self.wait_pushes(FIRST.id, count)

    def wait_pushes(self, subscription_id: int, count: int) -> None:
        """Waits for so many pushes; before them the client may need two and a half intervals to learn of a change."""
        self.until(lambda: len(self.pushes(subscription_id)) >= count, PATIENCE * (count + 2.5) * INTERVAL_S)

    def subscribe(self, subscription: Subscription, count: int) -> None:
        """Changes the subscription, of which the client learns at its next push; waits for pushes of the new one."""
        self.receiver.subscription = subscription
        self.wait_pushes(subscription.id, count)

    def refuse(self, error: int) -> None:
        """Answers the next push with an error; waits for it."""
        before = len(self.pushes(error=error))
        self.receiver.errors.append(error)
        self.until(lambda: len(self.pushes(error=error)) > before, PATIENCE * 1.5 * INTERVAL_S)

    def mark(self, what: str) -> None:
        self.marks[what] = time.monotonic()

    def close(self) -> None:
        self._check()
        self.marks[HEARD] = self.receiver.heard
        self.mark(CLOSING)
        self._close()
        self.mark(ENDED)


def obeys(stage: Stage) -> None:
    """A reconnect, which most libraries count, and four more subscriptions: deltas again, cumulative, none, all."""
    stage.first_pushes(2)
    stage.mark(CUT)
    stage.receiver.cut_all()
    stage.until(lambda: len(stage.pushes(after=CUT)) >= 3, AWAY_S)
    stage.subscribe(replace(FIRST, id=2, metrics=WIDE), 3)
    stage.subscribe(replace(FIRST, id=3, metrics=WIDE, delta=False), 2)
    empty = replace(FIRST, id=4, metrics=())
    stage.receiver.subscription = empty
    stage.until(
        lambda: sum(each.subscription == empty for each in stage.receiver.exchanges) >= 3, PATIENCE * 4 * INTERVAL_S
    )
    stage.subscribe(replace(FIRST, id=5, metrics=ALL), 2)
    stage.watch(0.3 * INTERVAL_S)
    stage.close()


def is_throttled(stage: Stage) -> None:
    """A push is throttled, and later another; right after that the client is closed."""
    stage.first_pushes(2)
    stage.refuse(THROTTLED)
    before = len(stage.pushes())
    stage.until(lambda: len(stage.pushes()) >= before + 2, PATIENCE * 3.5 * INTERVAL_S)
    stage.refuse(THROTTLED)
    stage.watch(0.2 * INTERVAL_S)
    stage.close()


def has_another_codec(stage: Stage) -> None:
    """The codec is refused, and from then on gzip alone is accepted."""
    stage.first_pushes(2)
    stage.receiver.subscription = replace(FIRST, id=2, codecs=(GZIP,))
    stage.refuse(UNSUPPORTED_COMPRESSION)
    stage.wait_pushes(2, 2)
    stage.watch(0.3 * INTERVAL_S)
    stage.close()


def is_too_large(stage: Stage) -> None:
    """A new subscription allows half the size of the smallest push so far."""
    stage.first_pushes(2)
    sizes = [len(each.push.metrics) for each in stage.pushes() if each.push is not None]
    stage.receiver.subscription = replace(FIRST, id=2, max_bytes=max(1, min(sizes, default=2) // 2))
    stage.until(lambda: len(stage.pushes(error=TOO_LARGE)) >= 3, 7 * INTERVAL_S)
    stage.close()


def is_refused(error: int) -> Callable[[Stage], None]:
    """A push gets an error; then four intervals show what the client does."""

    def script(stage: Stage) -> None:
        stage.first_pushes(2)
        stage.refuse(error)
        stage.watch(4 * INTERVAL_S)
        stage.close()

    return script


def rebootstraps(stage: Stage) -> None:
    """The broker gets another address, and its connections end: only the bootstrap address leads to it."""
    stage.first_pushes(2)
    stage.mark(MOVED)
    stage.receiver.move(with_bootstrap=True)
    stage.until(lambda: len(stage.pushes(after=MOVED)) >= 2, AWAY_S)
    stage.close()


LIVES: Mapping[str, Callable[[Stage], None]] = {
    "obeys": obeys,
    "throttled": is_throttled,
    "codec": has_another_codec,
    "too-large": is_too_large,
    "invalid-record": is_refused(INVALID_RECORD),
    "invalid-request": is_refused(INVALID_REQUEST),
    "not-authorized": is_refused(NOT_AUTHORIZED),
    "rebootstraps": rebootstraps,
}
