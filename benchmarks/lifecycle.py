"""The cost of the client lifecycle: CPU of a step by the number of known clients, and of merging its table.

A step covers ten seconds of a fleet at the default push interval of five minutes, so one client in thirty has pushed.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable
from functools import partial

import numpy as np
import pyarrow as pa

from kafka_telemetry_lake.pipelines.lake.delta_log import TableFiles
from kafka_telemetry_lake.pipelines.tables.lifecycle import CLIENT_CHANGES
from kafka_telemetry_lake.pipelines.tables.subscriptions import SUBSCRIPTIONS
from kafka_telemetry_lake.udfs.lifecycle.clients import Clients
from kafka_telemetry_lake.udfs.lifecycle.events import EventLimit, event_rows
from kafka_telemetry_lake.udfs.lifecycle.labels import LABELS_IN, label
from kafka_telemetry_lake.udfs.lifecycle.push_sequences import LIFECYCLE_IN, Clocks
from kafka_telemetry_lake.udfs.lifecycle.transitions import advance

INTERVAL_MS = 300_000
STEP_US = 10_000_000
STEPS = 12
PARTITIONS = 12
JOB_US_PER_POINT, POINTS_PER_PUSH = 4.1, 102  # docs/decisions.md, "Where a point's CPU goes"


class Fleet:
    """Clients that push in turn, each once per interval."""

    def __init__(self, size: int) -> None:
        ids = np.random.default_rng(7).bytes(16 * size)
        texts = [urlsafe_b64encode(ids[16 * i : 16 * i + 16])[:22].decode() for i in range(size)]
        self.ids = pa.array(texts)
        self.client_ids = pa.array([f"app-{i % 5000}-{i}" for i in range(size)])
        self.addresses = pa.array([f"10.{i >> 12 & 255}.{i >> 4 & 255}.{i & 15}" for i in range(size)])
        self.size, self._offset = size, 0

    def pushes(self, first: int, count: int, now: int) -> tuple[pa.Table, pa.Table]:
        rows = np.arange(first, first + count) % self.size
        taken, repeat = pa.array(rows), pa.repeat
        self._offset += count
        columns = {
            "source": repeat("kafka", count), "cluster_id": repeat("c", count), "topic": repeat("t", count),
            "partition": pa.array(rows % PARTITIONS), "offset": pa.array(self._offset + np.arange(count)),
            "landed_at": pa.array(now + np.arange(count) * STEP_US // count), "client_id": self.client_ids.take(taken),
            "client_instance_id": self.ids.take(taken), "client_address": self.addresses.take(taken),
            "client_software_name": repeat("apache-kafka-java", count), "principal": repeat("User:app", count),
            "client_software_version": repeat("4.3.1", count), "client_port": pa.array(rows % 60_000),
            "broker_id": pa.array(rows % 9), "push_interval_ms": repeat(INTERVAL_MS, count),
            "terminating": repeat(False, count),
        }  # fmt: skip
        labels = [[("group_id", f"g-{i % 5000}"), ("group_member_id", f"m-{i}")] for i in rows.tolist()]
        columns["labels"] = pa.array(labels, LABELS_IN.field("labels").type)
        named = {schema: [columns[name] for name in schema.names] for schema in (LIFECYCLE_IN, LABELS_IN)}
        first_in, second_in = (
            pa.table([each.cast(field.type) for each, field in zip(arrays, schema, strict=True)], schema)
            for schema, arrays in named.items()
        )
        return first_in, second_in


def cpu(work: Callable[[], object]) -> float:
    before = time.process_time()
    work()
    return time.process_time() - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, nargs="+", default=[100_000, 1_000_000])
    for size in parser.parse_args().clients:
        measure(size)


def measure(size: int) -> None:
    """Print the figures of a fleet of this size."""
    fleet, clients, clocks, event_limit = Fleet(size), Clients(), Clocks(), EventLimit()
    versions = SUBSCRIPTIONS.schema.empty_table()
    now = 1_790_000_000_000_000

    def step(pushes: pa.Table, outcomes: pa.Table, number: int, folder: str) -> None:
        advanced = advance(clients, clocks, pushes, versions, number)
        changed = np.union1d(advanced.changed, label(clients, outcomes, number))
        event_rows(clients, event_limit.apply(advanced.events))
        files = TableFiles(CLIENT_CHANGES, folder)
        files.write(clients.rows(changed))
        files.close()

    with tempfile.TemporaryDirectory() as folder:
        chunk = 100_000
        seen = [fleet.pushes(first, min(chunk, size - first), now) for first in range(0, size, chunk)]
        begun = sum(cpu(partial(step, *each, 1, folder)) for each in seen)
        del seen
        spent = []
        for number in range(STEPS):
            now += STEP_US
            both = fleet.pushes(number * size // 30, size // 30, now)
            spent.append(cpu(partial(step, *both, 2 + number, folder)))
        merge = cpu(lambda: TableFiles(CLIENT_CHANGES, folder).write(clients.rows(np.arange(size))))
    mean = float(np.mean(spent[2:]))
    per_push = 1e6 * mean / (size // 30)
    name = f"lifecycle_{size}_clients"
    print(f"{name}_step_cpu_s: {mean:.3f}")
    print(f"{name}_us_per_push: {per_push:.1f}")
    print(f"{name}_share_of_job_percent: {100 * per_push / (JOB_US_PER_POINT * POINTS_PER_PUSH):.1f}")
    print(f"{name}_first_seen_us_per_client: {1e6 * begun / size:.1f}")
    print(f"{name}_merge_cpu_s: {merge:.2f}")
    print(f"{name}_peak_memory_mb: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}")


if __name__ == "__main__":
    main()
