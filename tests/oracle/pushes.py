"""Rules about whole pushes: C12 (eviction), D2 (redelivery), D3 (gaps), D6 (too late), C9 for the client."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.oracle.model import DELTA, Judged, Push, Settings
from tests.oracle.points import TEMPORAL

Span = tuple[int, int]


@dataclass
class Client:
    """What is kept of a client instance; all but the tombstone is gone when it is evicted."""

    life: int = 0  # series of another life are not the same series any more
    landed_at_us: int | None = None
    terminated: bool = False
    last_time: int | None = None
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
    verdict = describe(push, points)
    verdict.life = client.life
    verdict.tombstone_time = tombstone(client, push, settings)
    verdict.sent_before = frozenset(client.sent)
    verdict.last_delta_time = client.last_delta_time
    client.landed_at_us = max(push.landed_at_us, client.landed_at_us or push.landed_at_us)
    client.terminated = push.terminating
    if not points:
        verdict.outcome = "heartbeat"
    elif push.payload in client.digests:
        d2_duplicate(verdict)
    elif not verdict.accepted:
        verdict.outcome = "quarantined"
    elif d6_too_late(client, verdict, settings):
        verdict.outcome = "too_late"
        verdict.events.append(("too_late", None))
        mark_all(verdict, "too_late")
    elif verdict.last_time is not None:
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
        last = max((t for t in (client.last_time, client.tombstone_time) if t is not None), default=None)
        landed = client.landed_at_us if client.last_time is not None else client.tombstone_landed_at_us
        client.__init__(life=client.life + 1, tombstone_time=last, tombstone_landed_at_us=landed)  # type: ignore[misc]


def tombstone(client: Client, push: Push, settings: Settings) -> int | None:
    age = push.landed_at_us - client.tombstone_landed_at_us
    return client.tombstone_time if age <= settings.tombstone_us else None


def describe(push: Push, points: list[Judged]) -> PushVerdict:
    """Temporality and times of the push, from the points that hold a value and are not in quarantine."""
    verdict = PushVerdict(push, points)
    used = [judged.point for judged in points if judged.reason is None and judged.status is None]
    temporal = {point.temporality for point in used if point.kind in TEMPORAL}
    verdict.temporality = {0: None, 1: "delta" if DELTA in temporal else "cumulative", 2: "mixed"}[
        len(temporal)
    ]
    deltas = [point for point in used if point.kind in TEMPORAL and point.temporality == DELTA]
    verdict.first_start = min((point.start_ns for point in deltas if point.start_ns > 0), default=None)
    verdict.first_time = min((point.time_ns for point in used), default=None)
    verdict.last_time = max((point.time_ns for point in used), default=None)
    return verdict


def has_delta(verdict: PushVerdict) -> bool:
    return verdict.temporality in ("delta", "mixed")


def d2_duplicate(verdict: PushVerdict) -> None:
    verdict.outcome = "duplicate"
    mark_all(verdict, "duplicate")


def mark_all(verdict: PushVerdict, status: str) -> None:
    for judged in verdict.accepted:
        judged.status = status


def d6_too_late(client: Client, verdict: PushVerdict, settings: Settings) -> bool:
    if not has_delta(verdict) or client.last_time is None:
        return False
    assert verdict.last_time is not None
    return verdict.last_time < client.last_time - settings.window_ns


def d3_gaps(client: Client, verdict: PushVerdict) -> None:
    """A start of the client's own flip (start >= time, C9) opens no gap: it says when the client flipped."""
    if not has_delta(verdict) or client.last_time is None:
        return
    assert verdict.first_time is not None
    assert verdict.last_time is not None
    start = flipless_start(verdict)
    spread = verdict.last_time - verdict.first_time
    if verdict.last_time > client.last_time:
        if start is not None and start > client.last_time + spread:
            verdict.lost = (client.last_time, start)
            verdict.events.append(("lost_interval", verdict.lost))
            client.gaps.append(verdict.lost)
        return
    covered = (start if start is not None else verdict.first_time, verdict.last_time)
    for gap in list(client.gaps):
        if covered[0] < gap[1] and covered[1] > gap[0]:
            verdict.fills_gap = True
            client.gaps.remove(gap)
            rest = [(gap[0], covered[0]), (covered[1], gap[1])]
            client.gaps += [(a, b) for a, b in rest if b - a > spread]
    if verdict.fills_gap:
        verdict.events.append(("lost_interval_closed", covered))


def flipless_start(verdict: PushVerdict) -> int | None:
    points = [judged.point for judged in verdict.accepted if judged.status is None]
    flips = 2 in verdict.sent_before
    starts = [
        point.start_ns
        for point in points
        if point.kind in TEMPORAL and point.temporality == DELTA and point.start_ns > 0
        and not (flips and point.start_ns >= point.time_ns)
    ]  # fmt: skip
    return min(starts, default=None)


def c9_client(client: Client, verdict: PushVerdict) -> None:
    if verdict.temporality is None:
        return
    if {client.temporality, verdict.temporality} == {"delta", "cumulative"}:
        verdict.events.append(("temporality_flip", None))
    if verdict.temporality != "mixed":
        client.temporality = verdict.temporality
    client.sent |= {"delta": {1}, "cumulative": {2}, "mixed": {1, 2}}[verdict.temporality]
    if has_delta(verdict):
        assert verdict.last_time is not None
        client.last_delta_time = max(verdict.last_time, client.last_delta_time or 0)


def remember(client: Client, verdict: PushVerdict, settings: Settings) -> None:
    """D2: digests of the pushes in the last H, and of the latest 16 at least."""
    assert verdict.last_time is not None
    client.digests[verdict.push.payload] = verdict.last_time
    client.last_time = max(verdict.last_time, client.last_time or 0)
    horizon = client.last_time - settings.window_ns
    latest = sorted(client.digests.values(), reverse=True)[: settings.window_pushes]
    keep_from = min(horizon, latest[-1])
    client.digests = {payload: time for payload, time in client.digests.items() if time >= keep_from}
