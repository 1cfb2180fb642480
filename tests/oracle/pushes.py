"""Rules about whole pushes: C12 (eviction), D2 (redelivery), D3 (gaps), D6 (too late), C9 for the client."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.oracle.model import CUMULATIVE, DELTA, SECOND_NS, Judged, Push, Settings
from tests.oracle.points import TEMPORAL

Span = tuple[int, int]
HEARTBEAT_TOLERANCE_NS = SECOND_NS


@dataclass
class Client:
    """The state of a client instance. Eviction removes all of it but the tombstone."""

    life: int = 0  # series of another life are not the same series any more
    landed_at_us: int | None = None
    terminated: bool = False
    last_time: int | None = None
    landed_after_ns: int | None = None  # how long after its last time its last push landed
    heartbeat_time: int | None = None
    digests: dict[bytes, int] = field(default_factory=dict)  # payload to last time, oldest first
    gaps: list[Span] = field(default_factory=list)
    sent: set[int] = field(default_factory=set)  # temporalities
    temporality: str | None = None  # of its last push that was one or the other
    last_delta_time: int | None = None
    tombstone_time: int | None = None
    tombstone_landed_at_us: int = 0


@dataclass
class PushVerdict:
    """A push with its judged points, and what its client had done before it."""

    push: Push
    points: list[Judged]
    left_out: int = 0  # points beyond the first that is TOO_MANY_POINTS
    life: int = 0
    outcome: str = "points"
    first_start: int | None = None
    first_time: int | None = None
    last_time: int | None = None
    temporality: str | None = None
    lost: Span | None = None
    fills_gap: bool = False
    sent_before: frozenset[int] = frozenset()
    last_delta_time: int | None = None
    tombstone_time: int | None = None
    events: list[tuple[str, Span | None]] = field(default_factory=list)

    @property
    def accepted(self) -> list[Judged]:
        return [judged for judged in self.points if judged.reason is None]


def judge_push(client: Client, push: Push, points: list[Judged], settings: Settings) -> PushVerdict:
    c12_evict(client, push, settings)
    c12_expire(client, push, settings)
    verdict = describe(push, points)
    verdict.life = client.life
    verdict.tombstone_time = client.tombstone_time
    verdict.sent_before = frozenset(client.sent)
    verdict.last_delta_time = client.last_delta_time
    client.landed_at_us = max(push.landed_at_us, client.landed_at_us or push.landed_at_us)
    terminated, client.terminated = client.terminated, push.terminating
    if not points:
        verdict.outcome = "heartbeat"
        d3_heartbeat(client, push)
    elif push.payload in client.digests:
        d2_duplicate(verdict)
        client.terminated = terminated
    elif d6_too_late(client, verdict, settings):
        verdict.outcome = "too_late"
        verdict.events.append(("too_late", None))
        mark_all(verdict, "too_late")
    elif verdict.accepted:
        d3_gaps(client, verdict)
        c9_client(client, verdict)
        remember(client, verdict, settings)
    return verdict


def c12_evict(client: Client, push: Push, settings: Settings) -> None:
    """Judged at the client's next push, by landed_at alone."""
    if client.landed_at_us is None:
        return
    limit = settings.evict_terminated_after_us if client.terminated else settings.evict_after_us
    if push.landed_at_us - client.landed_at_us > limit:
        last = latest(client.last_time, client.tombstone_time)
        landed = client.landed_at_us if client.last_time is not None else client.tombstone_landed_at_us
        client.__init__(  # type: ignore[misc]  # the same object, as if it were new
            life=client.life + 1,
            landed_after_ns=client.landed_after_ns,
            sent=client.sent,
            last_delta_time=client.last_delta_time,
            tombstone_time=last,
            tombstone_landed_at_us=landed,
        )


def c12_expire(client: Client, push: Push, settings: Settings) -> None:
    """The tombstone, and with it what the client had sent before its eviction, is forgotten after 30 days."""
    if client.tombstone_time is None or push.landed_at_us - client.tombstone_landed_at_us <= settings.tombstone_us:
        return
    client.tombstone_time = None
    if client.last_time is None:
        client.sent, client.last_delta_time, client.landed_after_ns = set(), None, None


def describe(push: Push, points: list[Judged]) -> PushVerdict:
    """Temporality of the push, by its points outside quarantine, and its times, by those with a value.

    P5 lets points through whose time P3 or P8 would refuse: they must not say when the push was. A start that is
    not before the point's time (Java's flip, C9) says nothing about the interval.
    """
    verdict = PushVerdict(push, points)
    temporal = {judged.point.temporality for judged in verdict.accepted if judged.point.kind in TEMPORAL}
    names = {(True, True): "mixed", (True, False): "delta", (False, True): "cumulative"}
    verdict.temporality = names.get((DELTA in temporal, CUMULATIVE in temporal))
    valued = [judged.point for judged in verdict.accepted if judged.status is None]
    deltas = [point for point in valued if point.kind in TEMPORAL and point.temporality == DELTA]
    starts = [point.start_ns for point in deltas if 0 < point.start_ns < point.time_ns]
    verdict.first_start = min(starts, default=None)
    verdict.first_time = min((point.time_ns for point in valued), default=None)
    verdict.last_time = max((point.time_ns for point in valued), default=None)
    return verdict


def latest(*times: int | None) -> int | None:
    return max((time for time in times if time is not None), default=None)


def has_delta(verdict: PushVerdict) -> bool:
    return verdict.temporality in ("delta", "mixed")


def d2_duplicate(verdict: PushVerdict) -> None:
    verdict.outcome = "duplicate"
    mark_all(verdict, "duplicate")


def mark_all(verdict: PushVerdict, status: str) -> None:
    for judged in verdict.accepted:
        judged.status = status


def d6_too_late(client: Client, verdict: PushVerdict, settings: Settings) -> bool:
    """Behind H, or, when the client was evicted, behind its tombstone: no digest is left to tell."""
    if not has_delta(verdict) or verdict.last_time is None:
        return False
    if verdict.tombstone_time is not None and verdict.last_time <= verdict.tombstone_time:
        return True
    return client.last_time is not None and verdict.last_time < window_begin(client, settings)


def window_begin(client: Client, settings: Settings) -> int:
    """A clock that ran ahead doesn't move H beyond the client's landings."""
    return min(client.last_time or 0, (client.landed_at_us or 0) * 1000) - settings.window_ns


def d3_gaps(client: Client, verdict: PushVerdict) -> None:
    last_time = latest(client.last_time, verdict.tombstone_time)
    start, end = verdict.first_start, verdict.last_time
    if last_time is None or start is None or end is None:
        return
    if end > last_time:
        tolerance = 0
        if client.heartbeat_time is not None and client.heartbeat_time > last_time:
            last_time, tolerance = client.heartbeat_time, HEARTBEAT_TOLERANCE_NS
        if start > last_time + tolerance:
            verdict.lost = (last_time, start)
            verdict.events.append(("lost_interval", verdict.lost))
            client.gaps.append(verdict.lost)
        return
    for gap in list(client.gaps):
        if start < gap[1] and end > gap[0]:
            verdict.fills_gap = True
            client.gaps.remove(gap)
            client.gaps += [rest for rest in ((gap[0], start), (end, gap[1])) if rest[0] < rest[1]]
    if verdict.fills_gap:
        verdict.events.append(("lost_interval_closed", (start, end)))


def d3_heartbeat(client: Client, push: Push) -> None:
    """A heartbeat covers the time up to it, and has none but landed_at: brought to the client's clock."""
    if client.landed_after_ns is not None:
        client.heartbeat_time = max(push.landed_at_us * 1000 - client.landed_after_ns, client.heartbeat_time or 0)


def c9_client(client: Client, verdict: PushVerdict) -> None:
    if verdict.temporality is None:
        return
    time, last_time = verdict.last_time, latest(client.last_time, verdict.tombstone_time)
    if last_time is None or (time is not None and time > last_time):
        if {client.temporality, verdict.temporality} == {"delta", "cumulative"}:
            verdict.events.append(("temporality_flip", None))
        client.temporality = verdict.temporality
    client.sent |= {"delta": {1}, "cumulative": {2}, "mixed": {1, 2}}[verdict.temporality]
    if has_delta(verdict) and time is not None:
        client.last_delta_time = max(time, client.last_delta_time or 0)


def remember(client: Client, verdict: PushVerdict, settings: Settings) -> None:
    """D2: digests of the pushes in the last H, and of the latest 16 at least."""
    time = verdict.last_time
    if time is None:
        time = client.last_time or 0  # points without a value only
    elif client.last_time is None or time >= client.last_time:
        client.last_time = time
        client.landed_after_ns = verdict.push.landed_at_us * 1000 - time
    client.digests[verdict.push.payload] = time
    horizon = window_begin(client, settings)
    recent = sorted(client.digests.values(), reverse=True)[: settings.window_pushes]
    keep_from = min(horizon, recent[-1])
    client.digests = {payload: time for payload, time in client.digests.items() if time >= keep_from}
