"""Land a fleet's pushes in a topic, as the receiver's producer would, as fast as possible or at a steady rate.

python -m benchmarks.load --bootstrap-servers HOST:PORT --clients 100000 --pushes 20000
python -m benchmarks.load --bootstrap-servers HOST:PORT --clients 1000000 --seconds 900
"""

from __future__ import annotations

import argparse
import time

from confluent_kafka import Producer

from benchmarks.fleet import Fleet, Landing, captured_templates

TOPIC = "client-telemetry"
BEHIND_S = 0.05


class Lander:
    """A producer with the receiver plugin's own defaults."""

    def __init__(self, bootstrap_servers: str, topic: str = TOPIC) -> None:
        self._topic = topic
        self._failed = 0
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "compression.type": "zstd",
                "linger.ms": 50,
                "batch.size": 1 << 20,
                "enable.idempotence": True,
                "queue.buffering.max.kbytes": 256 * 1024,
                "message.max.bytes": 2 << 20,
                "partitioner": "murmur2_random",  # the Java client's
            }
        )

    def land(self, landing: Landing) -> None:
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    key=landing.client_instance_id,
                    value=landing.payload,
                    headers=list(landing.headers),
                    timestamp=landing.landed_ms,
                    on_delivery=self._count,
                )
            except BufferError:
                self._producer.poll(0.1)
            else:
                self._producer.poll(0)
                return

    def close(self) -> None:
        """Wait until all records have landed. Raises ``RuntimeError`` if some have not."""
        left = self._producer.flush(60)
        if left or self._failed:
            raise RuntimeError(f"{left + self._failed} records were not landed")

    def _count(self, error: object, _: object) -> None:
        self._failed += error is not None


def land(bootstrap_servers: str, fleet: Fleet, first: int, last: int, topic: str = TOPIC) -> int:
    """Land pushes number `first` to `last` - 1 as fast as possible; returns their number of points."""
    lander = Lander(bootstrap_servers, topic)
    points = 0
    for landing in fleet.landings(first, last):
        lander.land(landing)
        points += landing.points
    lander.close()
    return points


def land_at_pace(
    bootstrap_servers: str, fleet: Fleet, first: int, seconds: float, topic: str = TOPIC
) -> tuple[int, int, float]:
    """Land each push at its landing time, from now on; push `first` of the fleet must be due now.

    Returns:
        Pushes, points, and the mean delay in seconds from a push's landing time to its handover to the producer.
    """
    lander = Lander(bootstrap_servers, topic)
    per_second = fleet.clients * 1_000_000_000 / fleet.interval_ns
    begun = time.monotonic()
    number, points, late_s = first, 0, 0.0
    while (elapsed := time.monotonic() - begun) < seconds:
        due = first + int(elapsed * per_second)
        if due == number:
            time.sleep(BEHIND_S)
        while number < due:
            landing = fleet.landing(number)
            lander.land(landing)
            points += landing.points
            late_s += time.time() - landing.landed_ms / 1000
            number += 1
    lander.close()
    return number - first, points, late_s / max(number - first, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description="Land a fleet's pushes in a topic.")
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--clients", type=int, default=100_000)
    parser.add_argument("--cumulative", type=float, default=0.2)
    parser.add_argument("--interval", type=float, default=300.0)
    parser.add_argument("--first", type=int, default=0, help="number of the first push")
    parser.add_argument("--first-ms", type=int, help="landing time of push 0 [now]")
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--pushes", type=int, help="as fast as possible")
    how.add_argument("--seconds", type=float, help="at the fleet's own pace")
    arguments = parser.parse_args()
    captured_templates()  # takes a second, by which every push would be late
    now_ms = time.time_ns() // 1_000_000
    first_ms = arguments.first_ms or now_ms - int(arguments.first * arguments.interval * 1000 / arguments.clients)
    fleet = Fleet(arguments.clients, first_ms, arguments.interval, arguments.cumulative)
    begun, cpu = time.monotonic(), time.process_time()
    if arguments.pushes:
        pushes = arguments.pushes
        points = land(arguments.bootstrap_servers, fleet, arguments.first, arguments.first + pushes)
    else:
        pushes, points, late_s = land_at_pace(arguments.bootstrap_servers, fleet, arguments.first, arguments.seconds)
        print(f"late_s: {late_s:.3f}")
    seconds = time.monotonic() - begun
    print(f"pushes: {pushes}")
    print(f"points: {points}")
    print(f"points_per_s: {points / seconds:.0f}")
    print(f"cpu_share: {(time.process_time() - cpu) / seconds:.2f}")


if __name__ == "__main__":
    main()
