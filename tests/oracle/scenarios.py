"""Random clients: their pushes as a lossy, repeating, reordering transport lands them.

Every draw comes from the `random.Random` that is passed in: hypothesis' own (`st.randoms`), which shrinks, or
a seeded one for long runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random

from tests.oracle.instruments import Instrument, Report, instruments, reordered
from tests.oracle.model import (
    CUMULATIVE,
    DELTA,
    HOUR_NS,
    NO_RECORDED_VALUE,
    SECOND_NS,
    Attributes,
    Distribution,
    Point,
    Push,
)
from tests.oracle.points import NUMBERS, TEMPORAL
from tests.oracle.wire import payload

START_NS = 1_760_000_000 * SECOND_NS


@dataclass(frozen=True)
class Features:
    """What may happen; a scenario picks among them."""

    clients: int = 3
    pushes: int = 8
    ordered: bool = False  # time order is offset order: no late points, no late pushes
    repeats: bool = True  # points of the last push again, some with another value or time
    resets: bool = True
    flips: bool = True
    loss: bool = True
    redelivery: bool = True
    defects: bool = True  # broken, unrecorded, non-finite points
    silence: bool = True
    skew: bool = True
    same_ids: bool = True
    moves: bool = True  # between partitions, so that pushes are not judged in the order of landing
    unknown_starts: bool = True
    distributions: bool = True
    temporalities: tuple[int, ...] = (DELTA, CUMULATIVE)
    styles: tuple[str, ...] = ("java", "librdkafka", "kgo")


@dataclass
class Landing:
    """A push on its way to the topic."""

    client: Client
    points: tuple[Point, ...]
    payload: bytes
    resource: Attributes
    terminating: bool
    landed_ns: int = 0
    partition: int = 0


@dataclass
class Client:
    """One simulated client instance. `temporality` is what the broker asked for last."""

    name: str
    style: str
    random: Random
    features: Features
    clock_ns: int
    resolution_ns: int
    interval_ns: int
    temporality: int
    instruments: list[Instrument] = field(default_factory=list)
    landings: list[Landing] = field(default_factory=list)
    recent: list[Landing] = field(default_factory=list)
    delayed: list[Landing] = field(default_factory=list)
    last_points: tuple[Point, ...] = ()
    reported: bool = False  # landed a push since the last flip
    cluster_id: str | None = "c1"
    flips: bool = False
    heartbeats: bool = False
    moves: bool = False  # between partitions
    holds: bool = False  # some pushes back, to land later
    skew_ns: int = 0  # the broker's clock is ahead of the client's by so much

    def chance(self, one_in: int) -> bool:
        return self.random.randrange(one_in) == 0

    def run(self, pushes: int) -> None:
        for _ in range(pushes):
            self.step()
        for landing in self.delayed:
            self.land(landing, self.clock_ns + self.random.randrange(1, 100) * SECOND_NS)

    def step(self) -> None:
        features = self.features
        self.advance_clock()
        if self.flips and self.reported and self.chance(6):
            self.flip()
        if features.resets and self.chance(8):
            for instrument in self.instruments:
                instrument.restart(self.random, self.clock_ns)
        if self.chance(20):
            if self.heartbeats:
                self.deliver((), terminating=self.chance(3))
            return
        points = self.collect()
        if features.defects and not self.flips and self.chance(5):
            points = self.spoil(points)
        if features.repeats and not features.ordered and self.last_points and self.chance(5):
            points = self.repeat_some(points)
        self.last_points = points
        self.deliver(points, terminating=self.chance(15))

    def advance_clock(self) -> None:
        step = self.interval_ns
        if self.features.silence and not self.moves and self.chance(12):
            # What lands after an eviction though it is older is judged by the tombstone, and by how the batch is cut.
            silence = self.random.choice([2 * HOUR_NS, 25 * HOUR_NS, 26 * HOUR_NS, 40 * 24 * HOUR_NS])
            evicts = silence > 2 * HOUR_NS or any(landing.terminating for landing in self.landings)
            self.recent, self.delayed, self.last_points = [], [], ()
            if self.holds and not evicts:
                self.hold_back()
            step += silence
        step += self.random.randrange(1000) * self.resolution_ns
        self.clock_ns += step

    def hold_back(self) -> None:
        """A push that lands after more than H."""
        points, resource = self.collect(), resource_of(self.name, self.random)
        self.delayed.append(Landing(self, points, payload(points, resource), resource, terminating=False))

    def flip(self) -> None:
        self.reported = False
        self.delayed, self.last_points = [], ()  # disorder across a flip is left open by the rules
        self.temporality = DELTA if self.temporality == CUMULATIVE else CUMULATIVE
        for instrument in self.instruments:
            instrument.flip(self.style, self.clock_ns + self.random.choice([0, 0, self.resolution_ns]))

    def collect(self) -> tuple[Point, ...]:
        points: list[Point] = []
        spread = self.random.choice([0, 0, 3, 200]) * 1_000_000 if self.style == "java" else 0
        for instrument in self.instruments:
            instrument.record(self.random)
            time_ns = self.clock_ns + (self.random.randrange(spread + 1) // self.resolution_ns * self.resolution_ns)
            point = instrument.collect(Report(self.temporality, time_ns, self.style))
            if point is not None:
                points.append(reordered(point, self.random))
        self.clock_ns += spread
        return tuple(points)

    def spoil(self, points: tuple[Point, ...]) -> tuple[Point, ...]:
        result = list(points)
        for _ in range(self.random.randrange(1, 4)):
            if result:
                index = self.random.randrange(len(result))
                result[index] = spoiled(result[index], self.random, self.features.ordered)
        return tuple(result)

    def repeat_some(self, points: tuple[Point, ...]) -> tuple[Point, ...]:
        """Points of the last push again: as they were, with another value, or somewhat older."""
        result = list(points)
        for point in self.last_points:
            if point.temporality != CUMULATIVE or point.time_ns == 0 or not self.chance(3):
                continue
            older = point.time_ns - self.interval_ns // 3
            repeats = [point, replace(point, time_ns=older)]
            if point.number is not None:
                repeats.append(replace(point, number=point.number // 2))
            result.insert(self.random.randrange(len(result) + 1), self.random.choice(repeats))
        return tuple(result)

    def deliver(self, points: tuple[Point, ...], terminating: bool) -> None:
        features, random = self.features, self.random
        resource = resource_of(self.name, random)
        data = payload(points, resource, one_by_one=self.style == "java")
        landing = Landing(self, points, data, resource, terminating)
        if features.loss and self.chance(8):
            if self.holds and self.chance(2):
                self.delayed.append(landing)
            return
        self.reported |= bool(points)
        self.land(landing, self.clock_ns + random.randrange(1, 900) * 1_000_000)
        if self.delayed and self.chance(2):
            self.land(self.delayed.pop(0), self.clock_ns + SECOND_NS)
        if features.redelivery and self.recent and self.chance(5):
            self.land(random.choice(self.recent[-6:]), self.clock_ns + 2 * SECOND_NS)

    def land(self, landing: Landing, at_ns: int) -> None:
        partition = self.random.randrange(2) if self.moves else int(self.name[-1]) % 2
        self.landings.append(replace(landing, landed_ns=at_ns + self.skew_ns, partition=partition))
        self.recent.append(landing)


def scenario(random: Random, features: Features | None = None) -> list[Push]:
    """Landed pushes of some clients, in the order of landing; offsets rise with it."""
    return landed_of(simulate(random, features or Features()))


def simulate(random: Random, features: Features) -> list[Client]:
    clients = []
    for number in range(random.randrange(1, features.clients + 1)):
        clients.append(make_client(f"client-{number}", random, features))
        clients[-1].run(random.randrange(1, features.pushes + 1))
    return clients


def landed_of(clients: list[Client]) -> list[Push]:
    landings = [landing for client in clients for landing in client.landings]
    return number_offsets(sorted(landings, key=lambda landing: landing.landed_ns))


def number_offsets(landings: list[Landing]) -> list[Push]:
    """Offsets of two partitions, rising with landed_at; a client's pushes are all in one, unless it moves about."""
    offsets = [100, 100]
    pushes = []
    for landing in landings:
        pushes.append(
            Push(
                client_instance_id=landing.client.name,
                offset=offsets[landing.partition],
                landed_at_us=landing.landed_ns // 1000,
                points=landing.points,
                payload=landing.payload,
                resource=landing.resource,
                terminating=landing.terminating,
                client_id=landing.client.style,
                cluster_id=landing.client.cluster_id,
                partition=landing.partition,
            )
        )
        offsets[landing.partition] += 1
    return pushes


def make_client(name: str, random: Random, features: Features) -> Client:
    style = random.choice(features.styles)
    cluster_id = random.choice(["c1", "c1", "c2", None])
    if features.same_ids and random.randrange(4) == 0:
        name, cluster_id = "client-0", name  # an instance id is unique within its cluster only
    nature = random.randrange(4)  # see READINGS.md, known differences
    late = not features.ordered and nature >= 2 and style != "kgo"  # franz-go's unchanged counters are heartbeats
    client = Client(
        name=name,
        style=style,
        random=random,
        features=features,
        clock_ns=START_NS,
        resolution_ns={"java": 1_000_000, "librdkafka": 1000, "kgo": 1}[style],
        interval_ns=random.choice([1, 30, 300]) * SECOND_NS,
        temporality=random.choice(features.temporalities),
        cluster_id=cluster_id,
        flips=features.flips and nature == 0,
        heartbeats=nature == 1,
        moves=features.moves and late and nature == 2,
        holds=late,
        skew_ns=random.choice([0, 0, 30, 3 * 3600, -1800, -3 * 3600]) * SECOND_NS if features.skew else 0,
    )
    client.instruments = instruments(
        style, random, START_NS - 5 * SECOND_NS, features.unknown_starts, features.distributions
    )
    return client


def resource_of(name: str, random: Random) -> Attributes:
    pairs = [("client_rack", "r1"), ("member_id", name), ("group_id", "g")]
    random.shuffle(pairs)
    return tuple(pairs[: random.randrange(len(pairs) + 1)])


def spoiled(point: Point, random: Random, ordered: bool) -> Point:
    """The point with one of the defects of P3, P5, P6 and P8."""
    shift = (
        HOUR_NS * 28 if ordered or point.temporality == DELTA else random.choice([28 * HOUR_NS, 50 * 60 * SECOND_NS])
    )
    variants = [
        replace(point, flags=NO_RECORDED_VALUE, number=None),
        replace(point, flags=2),  # a bit that says nothing
        replace(point, time_ns=0),
        replace(point, time_ns=point.time_ns and point.time_ns + shift),
        replace(point, start_ns=point.time_ns + random.choice([1, SECOND_NS, SECOND_NS + 1])),
    ]
    if point.kind in NUMBERS:
        variants += [replace(point, number=number) for number in (None, float("nan"), float("inf"))]
    if point.kind in TEMPORAL:
        variants += [replace(point, temporality=temporality) for temporality in (0, 3)]
    if point.distribution is not None:
        variants.append(replace(point, distribution=spoiled_distribution(point.distribution, random)))
    return random.choice(variants)


def spoiled_distribution(d: Distribution, random: Random) -> Distribution:
    return random.choice(
        [
            replace(d, count=(d.count + 1) % 2**64),
            replace(d, count=2**64 - 1),
            replace(d, bounds=tuple(reversed(d.bounds))),
            replace(d, bounds=d.bounds[:-1]),
            replace(d, sum=float("nan")),
            replace(d, sum=None, min=None, max=None),
        ]
    )
