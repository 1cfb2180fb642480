"""How well rebootstraps of real clients are detected (KIP-1102), and the cost of detection to the job.

Real Java and librdkafka producers and consumers lose a real cluster's addresses in every way that KIP-1102 describes.
Their own logs are the ground truth. An episode is a scene in which a client starts to rebootstrap and pushes after it.
It is detected if an event `rebootstrap` follows before the scene's end. An event is false if its client's log has no
rebootstrap since the previous event. Clients with strategy none, restarts of brokers, and quiet scenes are included.
A Java client whose push or request for a subscription was cut off waits for five minutes, whatever its interval
(ClientTelemetryReporter). So it may say nothing about an episode: those are counted apart.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.figures import print_figures
from benchmarks.rebootstrap_scenes import Run, play
from kafka_telemetry_lake.pipelines.lake.followed_table import FollowedTable
from kafka_telemetry_lake.pipelines.lake.table_files import TableFiles
from kafka_telemetry_lake.pipelines.tables.operator import PUSH_OUTCOMES
from kafka_telemetry_lake.udfs import rows
from kafka_telemetry_lake.udfs.conversion import push_rows
from kafka_telemetry_lake.udfs.conversion.shard import process
from kafka_telemetry_lake.udfs.conversion.state import ShardState
from kafka_telemetry_lake.udfs.identity import client_keys_of
from kafka_telemetry_lake.udfs.lifecycle.clients import Clients
from kafka_telemetry_lake.udfs.lifecycle.events import event_rows
from kafka_telemetry_lake.udfs.lifecycle.labels import LABELS_IN
from kafka_telemetry_lake.udfs.lifecycle.rebootstrap import take_signals
from kafka_telemetry_lake.udfs.lifecycle.step import OUTCOMES_IN
from tests.support.landing_records import captured

# Clients with strategy none can reach their brokers until the first scene that changes addresses.
SCENES = ("quiet", "one_restarts", "all_restart", "required", "quiet", "refused", "unanswered", "refused_everywhere")
# Log and landing times are from two clocks, and librdkafka writes its log lines only at a poll.
SLACK_S = 0.5
KINDS = ("java-producer", "java-consumer", "librdkafka-producer", "librdkafka-consumer")
JOB_US_PER_POINT, POINTS_PER_PUSH = 4.1, 102  # of the whole job, measured once


@dataclass
class Score:
    """Counts of one family or kind of clients; `mute` counts rebootstraps without a push before the scene's end."""

    episodes: int = 0
    mute: int = 0
    detected: int = 0
    events: int = 0
    false: int = 0
    missed: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @property
    def recall(self) -> float:
        return self.detected / self.episodes if self.episodes else 1.0

    @property
    def precision(self) -> float:
        return 1 - self.false / self.events if self.events else 1.0


def detected_events(run: Run) -> list[dict[str, Any]]:
    """The events that the job derives from a run's pushes."""
    pushes = pa.Table.from_pylist(list(_pushes(run.landed)), rows.PUSHES_IN)
    outcomes = process(pushes, ShardState.empty())[0].push_outcomes.select(OUTCOMES_IN.names).cast(OUTCOMES_IN)
    clients = Clients()
    keys, first = np.unique(client_keys_of(outcomes), return_index=True)
    slots = clients.add(keys)
    names = pushes.select(["client_instance_id", "client_id"]).to_pylist()
    by_id = {row["client_instance_id"]: row["client_id"] for row in names}
    clients.objects["client_instance_id"][slots] = outcomes["client_instance_id"].take(pa.array(first)).to_pylist()
    clients.objects["client_id"][slots] = [by_id[name] for name in clients.objects["client_instance_id"][slots]]
    events: list[dict[str, Any]] = event_rows(clients, take_signals(clients, outcomes, 1)[1]).to_pylist()
    return events


def _pushes(landed: pa.Table) -> Iterator[dict[str, Any]]:
    for record in landed.to_pylist():
        headers = {each["key"]: each["value"].decode() for each in record["headers"]}
        yield {
            "source": "kafka", "cluster_id": headers["cluster_id"], "landed_at": record["timestamp"],
            "payload": record["value"], "client_port": int(headers["client_port"]),
            **{name: record[name] for name in ("topic", "partition", "offset")},
            **{name: headers[name] for name in ("client_instance_id", "client_id", "compression_type")},
        }  # fmt: skip


def scores(run: Run, events: Sequence[dict[str, Any]]) -> dict[str, Score]:
    """Scores by kind of client, and of the clients with strategy none."""
    by_kind = {kind: Score() for kind in (*KINDS, "none")}
    detected: dict[str, list[float]] = {}
    for event in events:
        if event["event"] == "rebootstrap":
            detected.setdefault(event["client_id"], []).append(event["at"].timestamp())
    logged: dict[str, list[float]] = {}
    for client, moment in run.rebootstraps:
        logged.setdefault(client, []).append(moment)
    pushed: dict[str, list[float]] = {}
    for record in run.landed.select(["headers", "timestamp"]).to_pylist():
        client = next(each["value"].decode() for each in record["headers"] if each["key"] == "client_id")
        pushed.setdefault(client, []).append(record["timestamp"].timestamp())
    ends = [*(begin for _, begin in run.scenes[1:]), run.ended]
    for client in sorted(detected.keys() | logged.keys()):
        score = by_kind[_kind(client)]
        at, true = sorted(detected.get(client, [])), logged.get(client, [])
        score.events += len(at)
        for before, moment in zip([0.0, *at], at, strict=False):
            if not any(before - SLACK_S < each <= moment + SLACK_S for each in true):
                score.false += 1
                score.wrong.append(f"{client} {_scene(run, moment)}")
        for (scene, begin), end in zip(run.scenes, ends, strict=True):
            own = [each for each in true if begin <= each < end]
            if own and not any(min(own) - SLACK_S < each < end for each in pushed.get(client, [])):
                score.mute += 1
            elif own:
                is_detected = any(min(own) - SLACK_S < each < end for each in at)
                score.episodes += 1
                score.detected += is_detected
                score.missed += [] if is_detected else [f"{client} {scene}"]
    return by_kind


def _kind(client: str) -> str:
    family, *strategy, kind, _number = client.split("-")
    return "none" if strategy else f"{family}-{kind}"


def _scene(run: Run, moment: float) -> str:
    return [name for name, begin in run.scenes if begin <= moment][-1]


def summed(parts: Sequence[Score]) -> Score:
    """The sum of several scores."""
    names = ("episodes", "mute", "detected", "events", "false")
    counts = {name: sum(getattr(each, name) for each in parts) for name in names}
    return Score(**counts, missed=[text for each in parts for text in each.missed],
                 wrong=[text for each in parts for text in each.wrong])  # fmt: skip


def cost(clients: int = 100_000) -> dict[str, float]:
    """CPU of detection in µs per push (the shard's signals, their columns, the rules), and its share of the job's."""
    spent = {"shard": 0.0}
    original = push_rows.push_signals

    def timed(batch: Any) -> dict[str, pa.Array]:
        before = time.process_time()
        columns = original(batch)
        spent["shard"] += time.process_time() - before
        return columns

    landed = captured().slice(0, 1200)
    pushes = pa.Table.from_pylist([_captured_push(record) for record in landed.to_pylist()], rows.PUSHES_IN)
    push_rows.push_signals = timed
    try:
        process(pushes, ShardState.empty())
        spent["shard"] = 0.0
        for _ in range(5):
            outcomes = process(pushes, ShardState.empty())[0].push_outcomes
    finally:
        push_rows.push_signals = original
    shard = 1e6 * spent["shard"] / (5 * pushes.num_rows)
    columns = _columns(pa.concat_tables([outcomes] * 20).combine_chunks())
    judging = _judging(outcomes.select(OUTCOMES_IN.names).cast(OUTCOMES_IN), clients)
    job = JOB_US_PER_POINT * POINTS_PER_PUSH
    return {
        "rebootstrap_shard_us_per_push": shard,
        "rebootstrap_columns_us_per_push": columns,
        "rebootstrap_judge_us_per_push": judging,
        "rebootstrap_share_of_job_percent": 100 * (shard + columns + judging) / job,
    }


def _captured_push(record: dict[str, Any]) -> dict[str, Any]:
    headers = {each["key"]: each["value"].decode() for each in record["headers"] if each["value"] is not None}
    named = {name: headers.get(name) for name in ("client_instance_id", "client_id", "compression_type")}
    place = {name: record[name] for name in ("topic", "partition", "offset")}
    return {**place, **named, "source": "files", "landed_at": record["timestamp"], "payload": record["value"]}


def _columns(outcomes: pa.Table) -> float:
    """µs per push to write and read the signals, in addition to the other columns of `push_outcomes`."""
    bare = outcomes
    for name in rows.CONNECTION_SIGNALS.names:
        place = bare.schema.get_field_index(name)
        bare = bare.set_column(place, bare.schema.field(place), pa.nulls(bare.num_rows, bare.schema.field(place).type))
    spent = {"with": 0.0, "without": 0.0}
    for _ in range(4):
        for name, table, schema in (("with", outcomes, OUTCOMES_IN), ("without", bare, LABELS_IN)):
            with tempfile.TemporaryDirectory() as lake:
                before = time.process_time()
                files = TableFiles(PUSH_OUTCOMES, lake)
                files.write(table)
                FollowedTable(PUSH_OUTCOMES.uri(lake)).read([file.path for file in files.close()], schema)
                spent[name] += time.process_time() - before
    return 1e6 * (spent["with"] - spent["without"]) / (4 * len(outcomes))


def _judging(captured: pa.Table, size: int) -> float:
    """µs per push of steps in which each client of a large fleet pushes once, with the captured clients' signals."""
    outcomes = captured.take(pa.array(np.arange(size) % captured.num_rows))
    names = pa.array([f"client-{number}" for number in range(size)])
    outcomes = outcomes.set_column(outcomes.schema.get_field_index("client_instance_id"), "client_instance_id", names)
    outcomes = outcomes.set_column(outcomes.schema.get_field_index("offset"), "offset", pa.array(np.arange(size)))
    clients = Clients()
    clients.add(client_keys_of(outcomes))
    take_signals(clients, outcomes, 1)
    before = time.process_time()
    for step in range(2, 7):
        take_signals(clients, outcomes, step)
    return 1e6 * (time.process_time() - before) / (5 * size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=6, help="of each kind, one of them with strategy none")
    parser.add_argument("--interval", type=float, nargs="+", default=[1.0, 5.0], help="push intervals, s: a run each")
    parser.add_argument("--cost", action="store_true", help="measure only the cost")
    arguments = parser.parse_args()
    print_figures(cost())
    if arguments.cost:
        return
    runs = [play(SCENES, arguments.clients, 1, interval, 15 + 2 * interval) for interval in arguments.interval]
    report([scores(run, detected_events(run)) for run in runs])


def report(runs: Sequence[dict[str, Score]]) -> None:
    """Print the table and the missed episodes, and store the figures."""
    by_kind = {kind: summed([each[kind] for each in runs]) for kind in (*KINDS, "none")}
    figures: dict[str, float] = {}
    for family in ("java", "librdkafka"):
        score = summed([by_kind[kind] for kind in KINDS if kind.startswith(family)])
        figures |= {
            f"rebootstrap_episodes_{family}": score.episodes,
            f"rebootstrap_mute_{family}": score.mute,
            f"rebootstrap_recall_{family}": score.recall,
            f"rebootstrap_precision_{family}": score.precision,
        }
    figures["rebootstrap_false_strategy_none"] = by_kind["none"].false
    for kind, score in by_kind.items():
        print(
            f"{kind}: {score.episodes} episodes (and {score.mute} without a push), recall {score.recall:.3f}, "
            f"{score.events} events, precision {score.precision:.3f}; "
            f"missed: {dict(Counter(text.split()[1] for text in score.missed))}"
        )
    every = summed(list(by_kind.values()))
    print(f"missed: {', '.join(every.missed) or 'none'}; false: {', '.join(every.wrong) or 'none'}")
    print_figures(figures)


if __name__ == "__main__":
    main()
