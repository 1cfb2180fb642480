"""Instruments of a simulated client: what they have counted and how each client library reports it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random

from tests.oracle.model import DELTA, Attributes, Distribution, Point

Number = int | float
RESTART_NS = 400_000_000  # before the collection that follows, after the one before it


@dataclass(frozen=True)
class Report:
    """What a client collects for: the temporality asked for, the point's time, and whose code collects."""

    temporality: int
    time_ns: int
    style: str


@dataclass
class Instrument:
    """`start_ns`: begin of the cumulative total; `reported_ns`: end of the last reported interval."""

    point: Point
    start_ns: int
    reported_ns: int
    knows_start: bool = True
    flip_ns: int | None = None

    def record(self, random: Random) -> None:
        raise NotImplementedError

    def restart(self, random: Random, now_ns: int) -> None:
        """The process counts from zero again; the wire doesn't always say so."""

    def flip(self, style: str, now_ns: int) -> None:
        """A subscription requested the other temporality; Java forgets what it has reported (F4)."""

    def collect(self, report: Report) -> Point | None:
        raise NotImplementedError


@dataclass
class Gauge(Instrument):
    as_int: bool = False

    def record(self, random: Random) -> None:
        number: Number = random.randrange(-5, 100)
        self.point = replace(self.point, number=number if self.as_int else number / 4)

    def collect(self, report: Report) -> Point | None:
        start = self.reported_ns if report.style == "librdkafka" else 0
        self.reported_ns = report.time_ns
        return replace(self.point, start_ns=start, time_ns=report.time_ns)


@dataclass
class Summary(Instrument):
    count: int = 0

    def record(self, random: Random) -> None:
        self.count += random.randrange(4)

    def collect(self, report: Report) -> Point | None:
        quantiles = ((0.5, 1.5), (0.99, self.count / 2))
        d = Distribution(count=self.count, sum=self.count * 0.5, quantiles=quantiles)
        return replace(self.point, distribution=d, start_ns=self.start_ns, time_ns=report.time_ns)


@dataclass
class Counter(Instrument):
    """A sum. `number_type`: int, float, or mixed (int and float by turns)."""

    falls: bool = False  # an up-down counter; franz-go's counters only say that they may fall
    number_type: str = "int"
    step: int = 10
    total: Number = 0
    reported: Number = 0
    turn: int = 0

    def record(self, random: Random) -> None:
        self.turn += 1
        low = -2 if self.falls else 0
        increment: Number = random.randrange(low, self.step)
        if self.number_type == "float":
            increment = increment / 3
        self.total += increment

    def restart(self, random: Random, now_ns: int) -> None:
        how = random.randrange(5)
        if how == 4:
            return
        self.total = self.reported = type(self.total)(0)
        self.reported_ns = now_ns
        if how == 1:  # the start moves, but to a moment before the last report: so does the value fall
            self.start_ns += 1_000_000
        elif how == 2:
            self.start_ns = now_ns - RESTART_NS
        elif how == 3:
            self.start_ns = now_ns + 500_000_000  # the clock was set back since

    def flip(self, style: str, now_ns: int) -> None:
        if style == "java":
            self.flip_ns = now_ns

    def collect(self, report: Report) -> Point | None:
        if self.flip_ns is not None:
            start, value = max(self.flip_ns, report.time_ns), self.total
            self.start_ns = start
            self.flip_ns = None
        elif report.temporality == DELTA:
            start, value = self.reported_ns, self.total - self.reported
            if report.style == "kgo" and self.reported == 0:
                start = 0
        else:
            start, value = (self.start_ns if self.knows_start else 0), self.total
        unchanged = self.total == self.reported
        self.reported, self.reported_ns = self.total, report.time_ns
        if report.style == "kgo" and unchanged and report.temporality == DELTA:
            return None
        number: Number | None = value
        if self.number_type == "mixed" and self.turn % 3 == 2:
            number = float(value)
        if report.style == "kgo" and number == 0:
            number = None  # proto3 leaves it out
        return replace(
            self.point, temporality=report.temporality, number=number, start_ns=start, time_ns=report.time_ns
        )


@dataclass
class Histogram(Instrument):
    bounds: tuple[float, ...] = ()
    buckets: list[int] = field(default_factory=list)
    sum: float | None = 0.0
    reported: tuple[tuple[int, ...], float | None] | None = None

    def record(self, random: Random) -> None:
        self.buckets = self.buckets or [0] * (len(self.bounds) + 1)
        for _ in range(random.randrange(4)):
            self.buckets[random.randrange(len(self.buckets))] += 1
        if self.sum is not None:
            self.sum += random.randrange(-3, 8) / 2
        if random.randrange(15) == 0:
            self.sum = None if self.sum is not None else 0.0
        if random.randrange(15) == 0:
            self.change_bounds(random)

    def change_bounds(self, random: Random) -> None:
        count = sum(self.buckets)
        self.bounds = random.choice([(1.0,), (1.0, 5.0), (2.0, 5.0), ()])
        self.buckets = [0] * len(self.bounds) + [count]
        self.reported = None

    def restart(self, random: Random, now_ns: int) -> None:
        how = random.randrange(4)
        self.reported = None
        if how == 0 and self.buckets:  # one bucket falls, the count doesn't
            moved = min(self.buckets[0], 1)
            self.buckets[0] -= moved
            self.buckets[-1] += moved + random.randrange(2)
            return
        self.buckets = [0] * (len(self.bounds) + 1)
        if how == 1:
            self.start_ns = now_ns - RESTART_NS

    def collect(self, report: Report) -> Point | None:
        buckets, total = tuple(self.buckets), self.sum
        start = self.start_ns if self.knows_start else 0
        if report.temporality == DELTA:
            before = self.reported or ((0,) * len(buckets), None)
            start = self.reported_ns
            shown = tuple(max(a - b, 0) for a, b in zip(buckets, before[0], strict=True))
        else:
            shown = buckets
        self.reported, self.reported_ns = (buckets, total), report.time_ns
        count = sum(shown)
        if not self.bounds and count % 2:
            shown = ()  # no buckets at all is valid too
        d = Distribution(count=count, sum=total, min=0.5, max=9.0, bounds=self.bounds, buckets=shown)
        return replace(
            self.point, temporality=report.temporality, distribution=d, start_ns=start, time_ns=report.time_ns
        )


@dataclass
class ExponentialHistogram(Instrument):
    """Buckets by index at `scale`, which falls (and sometimes rises) while it runs."""

    scale: int = 3
    zero_count: int = 0
    zero_threshold: float = 0.0
    positive: dict[int, int] = field(default_factory=dict)
    negative: dict[int, int] = field(default_factory=dict)

    def record(self, random: Random) -> None:
        for _ in range(random.randrange(4)):
            side = self.positive if random.randrange(3) else self.negative
            index = random.randrange(-12, 20)
            side[index] = side.get(index, 0) + 1
        self.zero_count += random.randrange(2)
        change = random.randrange(12)
        if change == 0 and self.scale > -4:
            self.scale -= 1
            self.positive, self.negative = halved(self.positive), halved(self.negative)
        elif change == 1:
            self.scale += 1
        elif change == 2:
            self.raise_threshold(random)
        elif change == 3:
            self.zero_threshold = 0.0
        self.swallow()

    def raise_threshold(self, random: Random) -> None:
        """To the bound of a bucket, into a populated one, or to anything."""
        bound = 2.0 ** (random.randrange(-6, 6) * 2.0**-self.scale)
        self.zero_threshold = max(self.zero_threshold, random.choice([0.25, 1.0, 2.0, bound * 1.01]))

    def swallow(self) -> None:
        """Buckets within the zero threshold are part of the zero bucket."""
        for side in (self.positive, self.negative):
            for index in list(side):
                if 2.0 ** ((index + 1) * 2.0**-self.scale) <= self.zero_threshold:
                    self.zero_count += side.pop(index)

    def restart(self, random: Random, now_ns: int) -> None:
        self.positive, self.negative, self.zero_count = {}, {}, 0
        if random.randrange(2):
            self.start_ns = now_ns - RESTART_NS

    def collect(self, report: Report) -> Point | None:
        offset, counts = row(self.positive, report.time_ns % 3)
        negative_offset, negative = row(self.negative, 0)
        d = Distribution(
            count=sum(counts) + sum(negative) + self.zero_count,
            sum=float(sum(counts)),
            scale=self.scale,
            zero_count=self.zero_count,
            zero_threshold=self.zero_threshold,
            positive_offset=offset,
            positive=counts,
            negative_offset=negative_offset,
            negative=negative,
        )
        start = self.start_ns if self.knows_start else 0
        if report.temporality == DELTA:
            start = self.reported_ns
            self.positive, self.negative, self.zero_count = {}, {}, 0
        self.reported_ns = report.time_ns
        return replace(
            self.point, temporality=report.temporality, distribution=d, start_ns=start, time_ns=report.time_ns
        )


def halved(buckets: dict[int, int]) -> dict[int, int]:
    result: dict[int, int] = {}
    for index, n in buckets.items():
        result[index >> 1] = result.get(index >> 1, 0) + n
    return result


def row(buckets: dict[int, int], padding: int) -> tuple[int, tuple[int, ...]]:
    """Offset and counts of an OTLP Buckets message, with empty buckets around them."""
    if not buckets:
        return 0, ()
    low, high = min(buckets) - padding, max(buckets) + padding
    return low, tuple(buckets.get(index, 0) for index in range(low, high + 1))


def instruments(
    style: str, random: Random, start_ns: int, unknown_starts: bool, distributions: bool
) -> list[Instrument]:
    scope = {"java": None, "librdkafka": "rdkafka#producer-1", "kgo": "kgo"}[style]
    result: list[Instrument] = []
    for number in range(random.randrange(1, 5)):
        attributes = attributes_of(style, random, number)
        knows_start = not unknown_starts or random.randrange(4) > 0
        kinds = ["counter"] * 5 + ["gauge", "up_down", "summary"]
        kinds += ["histogram", "histogram", "exponential_histogram", "exponential_histogram"] if distributions else []
        kind = random.choice(kinds)
        name = f"org.apache.kafka.{kind}.{number // 2}.total"
        point = Point(name, attributes=attributes, scope=scope)
        common = (start_ns, start_ns, knows_start)
        match kind:
            case "gauge":
                gauge = replace(point, kind="gauge", temporality=0, is_monotonic=False)
                result.append(Gauge(gauge, *common, as_int=random.randrange(2) == 0))
            case "summary":
                result.append(Summary(replace(point, kind="summary", temporality=0, is_monotonic=False), *common))
            case "histogram":
                bounds = random.choice([(1.0, 5.0), (), (0.5,)])
                result.append(Histogram(replace(point, kind="histogram"), *common, bounds=bounds))
            case "exponential_histogram":
                histogram = replace(point, kind="exponential_histogram")
                result.append(ExponentialHistogram(histogram, *common, scale=random.randrange(-2, 5)))
            case _:
                monotonic = kind == "counter" and style != "kgo"
                falls = kind == "up_down"
                if falls:
                    point = replace(point, metric=name.removesuffix(".total"))
                result.append(counter(replace(point, is_monotonic=monotonic), falls, style, random, common))
    return result


def counter(point: Point, falls: bool, style: str, random: Random, common: tuple[int, int, bool]) -> Counter:
    number_type = "float" if style == "java" else random.choice(["int", "int", "mixed"])
    step = random.choice([3, 1000, 2**40])
    total: Number = random.choice([0, 0, 7, 2**53 + 1, 2**62 - 2**45, -(2**63)])
    if falls:
        total = 0
    if number_type == "float":
        total = float(random.choice([0, 5, 10**6]))
    return Counter(point, *common, falls=falls, number_type=number_type, step=step, total=total)


def attributes_of(style: str, random: Random, number: int) -> Attributes:
    """Attributes that no other instrument of the client has; some with a repeated key."""
    pairs = node_attributes(style, random) if random.randrange(2) else []
    pairs += [("topic", f"t{number % 2}"), ("partition", str(number))]
    if random.randrange(8) == 0:
        pairs.append(("topic", "t9"))
    return tuple(pairs)


def node_attributes(style: str, random: Random) -> list[tuple[str, str | int]]:
    broker = random.choice([1, -1, 2147483646, 1001])
    if random.randrange(8) == 0:
        if random.randrange(2):
            return [("node_id", broker), ("node.id", random.choice(["7", "node-007", "-0", "node-2147473646"]))]
        return [("node_id", random.choice(["x", "node-", "7", "", "node--2147483648"]))]
    if style == "java":
        return [("node_id", f"node-{broker}")]
    return [("node.id" if style == "librdkafka" else "node_id", broker)]


def reordered(point: Point, random: Random) -> Point:
    """The same attributes in another order, when the order says nothing."""
    pairs = list(point.attributes)
    names = {key.replace(".", "_") for key, _ in pairs}
    if len(names) == len(pairs):
        random.shuffle(pairs)
    return replace(point, attributes=tuple(pairs))
