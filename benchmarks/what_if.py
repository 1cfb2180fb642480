"""How well `telemetry-lake what-if quota` predicts: thirty loads without a quota, and once more with it.

python -m benchmarks.what_if
python -m benchmarks.what_if request

Real librdkafka producers on two real brokers, whose receiver samples the quota sensors. The loads run for two minutes
while no quota limits anybody; the lake predicts how long each would be throttled by the quota that is then set for it;
the same loads run again. Measured are the throttle times in the responses that clients got, and the rates that brokers
sampled. One load is that of a user with several clients.

Of request quotas: eight loads on one broker, a request for each message, limits from the recorded percentages. What a
request takes depends on what else the machine does, so two loads have no limit: how their mean differs between both
runs is what no prediction can know.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from confluent_kafka import Producer

from benchmarks.figures import print_figures, store_runs
from kafka_telemetry_lake.pipelines.query.lake_query import run_query
from kafka_telemetry_lake.pipelines.quotas.recorded import Proposal
from kafka_telemetry_lake.pipelines.quotas.what_if import what_if
from kafka_telemetry_lake.sandbox.cluster import LocalCluster
from kafka_telemetry_lake.sandbox.cluster.plugin import receiver_jar

SECONDS, TICK_S = 120, 0.1
REQUEST_LOADS, UNLIMITED = 8, 2
FACTORS = (0.6, 0.8, 1.1, 1.4, 0.8, 1.2)  # of the limits of requests, by the recorded mean
NO_PERCENT = 10_000.0
BROKERS, MESSAGE = 2, 1000
REST_S = 30.0  # until what waits is sent, and windows are empty
OF_ALICE = 6  # clients of one user, the first loads; they are compared together
PASSWORD = "secret"
NO_LIMIT = 1e9  # so that brokers have sensors
INTERVAL_MS = 1000


class Load(NamedTuple):
    client_id: str
    shape: str
    user: str
    bytes_by_second: tuple[float, ...]
    """of all brokers"""
    limit: float
    """bytes/s and broker, of the second run"""


def main() -> None:
    """Record, predict, measure; print and store the errors."""
    properties = {"client.telemetry.lander.quotas.interval.ms": INTERVAL_MS}
    with (
        tempfile.TemporaryDirectory(prefix="what-if-") as scratch,
        LocalCluster(
            brokers=BROKERS, plugin=receiver_jar(), properties=properties, sasl_users={"alice": PASSWORD}
        ) as cluster,
    ):
        lake, loads = Path(scratch) / "lake", list(_loads())
        cluster.create_topic("orders", 2 * BROKERS, replication_factor=1)
        cluster.set_quota(client_id="", producer_byte_rate=NO_LIMIT)
        cluster.set_quota(user="alice", producer_byte_rate=NO_LIMIT)
        recorded = _run(cluster, loads)
        for load in loads:
            if not load.user:
                cluster.set_quota(client_id=load.client_id, producer_byte_rate=load.limit)
        cluster.set_quota(user="alice", producer_byte_rate=_of_alice(loads))
        time.sleep(REST_S)
        again = _run(cluster, loads)
        time.sleep(3 * INTERVAL_MS / 1000)
        _ingest(cluster, lake)
        rows = [_compared(str(lake), load, loads, recorded, again) for load in loads[OF_ALICE - 1 :]]
    store_runs("what_if", {"loads": rows})
    for row in rows:
        print("  ".join(f"{value:.1f}" if isinstance(value, float) else str(value) for value in row.values()))
    print_figures(_errors(rows))


def requests() -> None:
    """The same of request quotas."""
    properties = {"client.telemetry.lander.quotas.interval.ms": INTERVAL_MS}
    with (
        tempfile.TemporaryDirectory(prefix="what-if-") as scratch,
        LocalCluster(plugin=receiver_jar(), properties=properties) as cluster,
    ):
        lake, loads = Path(scratch) / "lake", [load for load in _loads() if not load.user][:REQUEST_LOADS]
        cluster.create_topic("orders", 2)
        cluster.set_quota(client_id="", request_percentage=NO_PERCENT)
        recorded = _run(cluster, loads, ONE_BY_ONE)
        _ingest(cluster, lake)
        limits = {}
        for load, factor in zip(loads[UNLIMITED:], FACTORS, strict=True):
            limits[load.client_id] = round(factor * _mean(str(lake), load, recorded), 4)
            cluster.set_quota(client_id=load.client_id, request_percentage=limits[load.client_id])
        time.sleep(REST_S)
        again = _run(cluster, loads, ONE_BY_ONE)
        time.sleep(3 * INTERVAL_MS / 1000)
        _ingest(cluster, lake)
        rows = []
        for load in loads:
            means = [_mean(str(lake), load, ran) for ran in (recorded, again)]
            row: dict[str, Any] = {
                "client_id": load.client_id,
                "shape": load.shape,
                "mean": means[0],
                "again": means[1],
            }
            if (limit := limits.get(load.client_id)) is not None:
                proposal = Proposal("request", "", load.client_id, limit)
                (predicted,) = what_if(str(lake), proposal, recorded.start, recorded.end).rows.to_pylist()
                row |= {
                    "limit": limit,
                    "predicted_s": predicted["throttled_s"],
                    "measured_s": again.throttled_s[load.client_id],
                    "predicted_percent": predicted["used_percent"],
                    "measured_percent": _used(str(lake), load, limit, again, "request"),
                }
            rows.append(row)
    store_runs("what_if_requests", {"loads": rows})
    for row in rows:
        print("  ".join(f"{value:.3g}" if isinstance(value, float) else str(value) for value in row.values()))
    figures = _errors([row for row in rows if "limit" in row])
    changed = [row["again"] / row["mean"] - 1 for row in rows if "limit" not in row]
    print_figures(
        {name.replace("what_if", "what_if_request"): value for name, value in figures.items()}
        | {"what_if_request_unlimited_changed": float(np.mean(changed))}
    )


def _mean(lake: str, load: Load, ran: Ran) -> float:
    """Mean recorded percentage."""
    sql = f"""SELECT avg(observed_rate) AS rate FROM quota_samples
        WHERE quota_type = 'request' AND client_id = '{load.client_id}'
        AND time BETWEEN TIMESTAMPTZ '{ran.start.isoformat()}' AND TIMESTAMPTZ '{ran.end.isoformat()}'"""
    return float(run_query(lake, sql).read_all()["rate"][0].as_py())


def _loads() -> Iterator[Load]:
    """Steady, rising, in waves and in bursts, between 40 and 90 KB/s, with limits from far below to above the mean."""
    random, second = np.random.default_rng(13), np.arange(SECONDS)
    for number in range(29 + OF_ALICE):
        mean, period = float(random.uniform(40e3, 90e3)), float(random.integers(20, 60))
        shapes = {
            "steady": np.ones(SECONDS),
            "rising": np.linspace(0.2, 1.8, SECONDS),
            "waves": 1 + 0.8 * np.sin(2 * np.pi * second / period),
            "bursts": np.where(second % period < period / 3, 2.4, 0.3),
            "short bursts": np.where(second % period < 6, 4.0, 0.4),
            "random": random.exponential(1.0, SECONDS),
        }
        shape = list(shapes)[number % len(shapes)]
        amounts = mean * shapes[shape] / shapes[shape].mean()
        factor = (0.6, 0.7, 0.85, 1.1, 1.3, 1.6)[number // len(shapes)]
        user = "alice" if number < OF_ALICE else ""
        yield Load(f"load-{number}", shape, user, tuple(map(float, amounts)), float(int(factor * mean / BROKERS)))


def _of_alice(loads: list[Load]) -> float:
    return sum(load.limit for load in loads if load.user)


class Ran(NamedTuple):
    start: datetime
    end: datetime
    throttled_s: Mapping[str, float]


ONE_BY_ONE = {"linger.ms": 0, "batch.num.messages": 1}  # a request for each message


def _run(cluster: LocalCluster, loads: list[Load], more: Mapping[str, int] = MappingProxyType({})) -> Ran:
    """Produce all loads at the same time, each at its own pace, and wait for what they were delayed by."""
    throttled = dict.fromkeys((load.client_id for load in loads), 0.0)

    def producer(load: Load) -> Producer:
        def add(event: Any) -> None:
            if now() < SECONDS:
                throttled[load.client_id] += event.throttle_time

        sasl = {"sasl.username": "alice", "sasl.password": PASSWORD, "sasl.mechanism": "PLAIN",
                "security.protocol": "SASL_PLAINTEXT"}  # fmt: skip
        return Producer(
            {
                "bootstrap.servers": cluster.sasl_bootstrap_servers if load.user else cluster.bootstrap_servers,
                "client.id": load.client_id,
                "throttle_cb": add,
                "linger.ms": 50,
                "batch.size": 10_000,
                "compression.type": "none",
                "queue.buffering.max.kbytes": 1_000_000,
                "message.timeout.ms": 600_000,
                "request.timeout.ms": 280_000,
                "socket.timeout.ms": 290_000,
                "sticky.partitioning.linger.ms": 0,
                "enable.metrics.push": False,
            }
            | (sasl if load.user else {})
            | dict(more)
        )

    producers = [producer(load) for load in loads]
    sent = [0.0] * len(loads)
    value = b"x" * (MESSAGE - 70)  # with the record's and batch's own bytes
    start, begun = datetime.now(UTC), time.monotonic()

    def now() -> float:
        return time.monotonic() - begun

    while (at := now()) < SECONDS:
        for number, load in enumerate(loads):
            second = int(at)
            due = sum(load.bytes_by_second[:second]) + load.bytes_by_second[second] * (at - second)
            while sent[number] + MESSAGE <= due:
                producers[number].produce("orders", value)
                sent[number] += MESSAGE
            producers[number].poll(0)
        time.sleep(TICK_S / 2)
    end = datetime.now(UTC)
    for each in producers:
        each.purge()
        each.flush(1)
    return Ran(start, end, throttled)


def _ingest(cluster: LocalCluster, lake: Path) -> None:
    argv = [sys.executable, "-m", "kafka_telemetry_lake.jobs.cli", "ingest", "--source", "kafka", "--once"]
    subprocess.run([*argv, "--bootstrap-servers", cluster.bootstrap_servers, "--lake", str(lake)], check=True)


def _compared(lake: str, load: Load, loads: list[Load], recorded: Ran, again: Ran) -> dict[str, Any]:
    """Predicted and measured of one load; those of a user are predicted together, and measured so."""
    together = [each.client_id for each in loads if load.user and each.user] or [load.client_id]
    limit = _of_alice(loads) if load.user else load.limit
    proposal = Proposal("produce", load.user, "" if load.user else load.client_id, limit)
    predicted = what_if(lake, proposal, recorded.start, recorded.end).rows.to_pylist()
    clients = len(together) if load.user else 1
    return {
        "client_id": load.client_id,
        "shape": load.shape,
        "limit_by_mean": limit
        * BROKERS
        / np.mean(np.sum([each.bytes_by_second for each in loads if each.client_id in together], axis=0)),
        "predicted_s": sum(row["throttled_s"] for row in predicted),
        "measured_s": sum(again.throttled_s[name] for name in together) / clients,
        "predicted_percent": sum(row["used_percent"] for row in predicted) / BROKERS,
        "measured_percent": _used(lake, load, limit, again),
    }


def _used(lake: str, load: Load, limit: float, ran: Ran, quota_type: str = "produce") -> float:
    who = f"\"user\" = '{load.user}'" if load.user else f"client_id = '{load.client_id}'"
    sql = f"""SELECT avg(least(100, 100 * observed_rate / {limit})) AS used
        FROM quota_samples WHERE quota_type = '{quota_type}' AND {who}
        AND time BETWEEN TIMESTAMPTZ '{ran.start.isoformat()}' AND TIMESTAMPTZ '{ran.end.isoformat()}'"""
    (row,) = run_query(lake, sql).read_all().to_pylist()
    return float(row["used"])


def _errors(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Relative errors of loads that were throttled for a second at least; of all, percentage points."""
    predicted, measured = (np.array([row[f"{kind}_s"] for row in rows]) for kind in ("predicted", "measured"))
    throttled = measured > 1
    relative = np.abs(predicted[throttled] / measured[throttled] - 1)
    percent = np.array([row["predicted_percent"] - row["measured_percent"] for row in rows])
    return {
        "what_if_loads_throttled": float(throttled.sum()),
        "what_if_throttled_wrongly": float(((predicted > 1) & ~throttled).sum()),
        "what_if_throttle_error_median": float(np.median(relative)),
        "what_if_throttle_error_p90": float(np.quantile(relative, 0.9)),
        "what_if_throttle_within_10_percent": float((relative <= 0.1).mean()),
        "what_if_used_error_median_points": float(np.median(np.abs(percent))),
        "what_if_used_error_p90_points": float(np.quantile(np.abs(percent), 0.9)),
    }


if __name__ == "__main__":
    requests() if sys.argv[1:] == ["request"] else main()
