"""Pushes and points as the oracle sees them, and what it says about each point."""

from __future__ import annotations

from dataclasses import dataclass, field

DELTA, CUMULATIVE = 1, 2  # AggregationTemporality (metrics.proto)
NO_RECORDED_VALUE = 1  # DataPointFlags, bit 0
SECOND_NS = 1_000_000_000
HOUR_NS = 3600 * SECOND_NS
HOUR_US = HOUR_NS // 1000

Attributes = tuple[tuple[str, str | int], ...]
PushKey = tuple[str, str | None, str, int, int]


@dataclass(frozen=True)
class Distribution:
    """The fields of HistogramDataPoint, ExponentialHistogramDataPoint and SummaryDataPoint."""

    count: int = 0
    sum: float | None = None
    min: float | None = None
    max: float | None = None
    bounds: tuple[float, ...] = ()
    buckets: tuple[int, ...] = ()
    scale: int = 0
    zero_count: int = 0
    zero_threshold: float = 0.0
    positive_offset: int = 0
    positive: tuple[int, ...] = ()
    negative_offset: int = 0
    negative: tuple[int, ...] = ()
    quantiles: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True)
class Point:
    """One data point. `number`: int for as_int, float for as_double, None when not set; times are ns."""

    metric: str
    kind: str = "sum"
    temporality: int = CUMULATIVE
    is_monotonic: bool = True
    start_ns: int = 0
    time_ns: int = 0
    number: int | float | None = None
    distribution: Distribution | None = None
    attributes: Attributes = ()
    scope: str | None = None
    flags: int = 0


@dataclass(frozen=True)
class Push:
    """One landed push; `payload` is the uncompressed MetricsData that holds `points`."""

    client_instance_id: str
    offset: int
    landed_at_us: int
    points: tuple[Point, ...] = ()
    payload: bytes = b""
    resource: Attributes = ()
    terminating: bool = False
    client_id: str = "client"
    source: str = "kafka"
    cluster_id: str | None = "c1"
    topic: str = "client-telemetry"
    partition: int = 0

    @property
    def key(self) -> PushKey:
        return (self.source, self.cluster_id, self.topic, self.partition, self.offset)

    @property
    def client(self) -> tuple[str | None, str]:
        return (self.cluster_id, self.client_instance_id)


@dataclass(frozen=True)
class Settings:
    max_points_per_push: int = 100_000
    window_ns: int = HOUR_NS  # H of D2 and D6
    window_pushes: int = 16
    evict_after_us: int = 24 * HOUR_US
    evict_terminated_after_us: int = HOUR_US
    tombstone_us: int = 30 * 24 * HOUR_US


@dataclass(frozen=True)
class Increment:
    """What a point adds over (start_ns, its time]; a member is None where there is no delta."""

    start_ns: int | None = None
    number: int | float | None = None
    count: int | None = None
    sum: float | None = None
    buckets: tuple[int, ...] | None = None
    positive: tuple[int, ...] | None = None
    negative: tuple[int, ...] | None = None
    zero_count: int | None = None


@dataclass
class Judged:
    """A point on its way through the rules; it ends with a `status` or a quarantine `reason`."""

    push: Push
    index: int
    point: Point
    attributes: dict[str, str]
    flags: list[str] = field(default_factory=list)
    reason: str | None = None
    status: str | None = None
    increment: Increment = Increment()

    @property
    def identity(self) -> tuple[object, ...]:
        """I1: without resource, description, unit, number type, bounds, scale and temporality (I2, I3)."""
        point = self.point
        return (*self.push.client, point.metric, tuple(sorted(self.attributes.items())), point.kind,
                point.is_monotonic, point.scope)  # fmt: skip
