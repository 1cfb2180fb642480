"""A broker's quota arithmetic event by event, as Kafka's sources have it, for one client on one connection.

Written from Kafka's classes, not from the product: ``SampledStat`` and ``Rate`` (samples of a second, eleven of them,
a rate over ten seconds at least) and ``QuotaUtils.throttleTime`` ((O - T) / T x W).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

STEP_S = 0.002


class Run(NamedTuple):
    """What a run left: samples as (seconds, rate), and the sum of throttle times, s."""

    samples: list[tuple[float, float]]
    throttled_s: float


class Sensor:
    def __init__(self) -> None:
        self.samples: list[list[float]] = []  # start, amount

    def record(self, now: float, amount: float) -> None:
        if not self.samples or now - self.samples[-1][0] >= 1:
            self.samples = [*self.samples, [now, 0.0]][-11:]
        self.samples[-1][1] += amount

    def rate(self, now: float) -> tuple[float, float]:
        """The rate, and the seconds that it is over."""
        self.samples = [each for each in self.samples if now - each[0] < 11] or [[now, 0.0]]
        elapsed = now - self.samples[0][0]
        elapsed += max(0, 10 - int(elapsed))
        return sum(amount for _, amount in self.samples) / elapsed, elapsed


def run(loads: Sequence[float], request: float, limit: float | None, interval: float) -> Run:
    """A client that sends each second's bytes evenly, in requests of one size, as soon as it isn't muted.

    Args:
        loads: bytes of each second.
        limit: bytes a second, or None.
        interval: seconds between samples.
    """
    sensor, waiting, muted, throttled = Sensor(), 0.0, 0.0, 0.0
    samples: list[tuple[float, float]] = []
    for step in range(1, round(len(loads) / STEP_S) + 1):
        now = step * STEP_S
        waiting += loads[int((step - 1) * STEP_S)] * STEP_S
        while waiting >= request and now >= muted:
            waiting -= request
            sensor.record(now, request)
            rate, window = sensor.rate(now)
            if limit is not None and rate > limit:
                muted = now + (rate - limit) / limit * window
                throttled += min(muted, len(loads)) - now
        if now > interval * (len(samples) + 1) - STEP_S / 2:
            samples.append((now, sensor.rate(now)[0]))
    return Run(samples, throttled)
