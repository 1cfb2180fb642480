"""Checks the facts of a cluster: pure functions, one line each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from kafka_telemetry_lake.pipelines.doctor.check import Check, Status, age_text, listed
from kafka_telemetry_lake.pipelines.doctor.cluster_facts import BrokerFacts, ClusterFacts, ReceiverStatus, TopicFacts
from kafka_telemetry_lake.pipelines.runtime.kafka_reach import (
    GET_TELEMETRY_SUBSCRIPTIONS,
    PUSH_TELEMETRY,
    Advertised,
)
from kafka_telemetry_lake.udfs.subscriptions.matching import ALL_METRICS, CLIENTS, Subscription, matching

# The highest metadata.version of each release (Kafka's MetadataVersion): what a broker supports shows its release.
RELEASES = {
    7: "3.3", 8: "3.4", 11: "3.5", 14: "3.6", 19: "3.7", 20: "3.8", 21: "3.9", 25: "4.0", 27: "4.1", 29: "4.2",
    30: "4.3", 33: "4.4",
}  # fmt: skip
LEAST_RELEASE, EXPORTER_RELEASE = "3.7", "4.2"
LEAST_MESSAGE_BYTES = (1 << 20) + (64 << 10)  # the broker's default telemetry.max.bytes, and headers
LEAST_RETENTION_MS = 86_400_000
STATUS_AGE_S, CLOCK_AHEAD_S = 60.0, 5.0
PUSH_AGE_S = 900.0  # the default push interval is five minutes
WANTED_RIGHTS = ("READ", "DESCRIBE")


def release_of(found: Advertised) -> str | None:
    """The release of a broker, such as 4.2; with a + if it is newer than those known here; None: not KRaft."""
    level = found.features.get("metadata.version")
    if level is None:
        return None
    return next((release for highest, release in RELEASES.items() if level <= highest), f"{RELEASES[max(RELEASES)]}+")


def check_cluster(facts: ClusterFacts, topics: Sequence[str], now_ms: int) -> Iterator[Check]:
    """Check brokers, the landing topics (pushes, statuses, quota samples: in this order) and this user's rights."""
    yield _brokers(facts.brokers)
    answering = [broker for broker in facts.brokers if broker.advertised is not None]
    if answering:
        yield _releases(answering)
        yield _plugin(answering)
    for number, name in enumerate(topics):
        if (problem := facts.undescribed.get(name)) is not None:
            text = f"the brokers list it and don't describe it ({problem})"
            yield Check(f"topic {name}", "failed", text, "look at the brokers, and at this user's ACLs")
        else:
            yield _topic(name, facts.topics.get(name), len(facts.brokers), is_landing=number == 0)
    yield _rights(facts, topics)
    if topics[0] in facts.topics:
        yield _pushes(facts.topics[topics[0]].newest_ms, now_ms)


def _brokers(brokers: Sequence[BrokerFacts]) -> Check:
    silent = [broker for broker in brokers if broker.advertised is None]
    if silent:
        reasons = listed(f"{broker.node_id} at {broker.address} ({broker.problem})" for broker in silent)
        return Check(
            "brokers",
            "failed",
            f"{len(silent)} of {len(brokers)} brokers don't answer: {reasons}",
            "start them, or let this machine reach their advertised listeners",
        )
    slowest = max(broker.ms for broker in brokers)
    return Check("brokers", "ok", f"{_number(brokers, 'broker')} answered, the slowest within {slowest:.0f} ms")


def _releases(brokers: Sequence[BrokerFacts]) -> Check:
    releases = {broker.node_id: release_of(broker.advertised) for broker in brokers if broker.advertised}
    unknown = [node_id for node_id, release in releases.items() if release is None]
    old = [node_id for node_id, release in releases.items() if release and _order(release) < _order(LEAST_RELEASE)]
    counts = Counter(f"Kafka {release}" if release else "no KRaft" for release in releases.values())
    text = ", ".join(f"{name} on {_number(range(count), 'broker')}" for name, count in sorted(counts.items()))
    if unknown or old:
        those = _brokers_named([*unknown, *old])
        advice = f"client telemetry needs Kafka {LEAST_RELEASE} or newer in KRaft mode: update {those}"
        return Check("versions", "failed", text, advice)
    return Check("versions", "ok", text)


def brokers_without_plugin(brokers: Iterable[BrokerFacts]) -> list[BrokerFacts]:
    """The brokers that answer and don't advertise telemetry."""
    needed = {GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY}
    return [broker for broker in brokers if broker.advertised and not needed <= broker.advertised.api_keys]


def plugin_class(brokers: Iterable[BrokerFacts]) -> str:
    """The plugin's entry class that works on all of these brokers."""
    releases = [release_of(broker.advertised) or "0" for broker in brokers if broker.advertised]
    is_new = all(_order(release) >= _order(EXPORTER_RELEASE) for release in releases)
    return f"io.github.kafkatelemetrylake.receiver.ClientTelemetryLake{'Exporter' if is_new else 'Receiver'}"


def _plugin(brokers: Sequence[BrokerFacts]) -> Check:
    without = brokers_without_plugin(brokers)
    if without:
        return Check(
            "plugin",
            "failed",
            f"none on {_brokers_named(broker.node_id for broker in without)}: clients push nothing there",
            f"put the jar into libs/, set metric.reporters={plugin_class(without)}, restart: docs/receiver.md",
        )
    return Check("plugin", "ok", f"{_number(brokers, 'broker')} with GetTelemetrySubscriptions and PushTelemetry")


def _topic(name: str, topic: TopicFacts | None, brokers: int, *, is_landing: bool) -> Check:
    line = f"topic {name}"
    if topic is None:
        create = f"kafka-topics.sh --create --topic {name}" + (
            f" --partitions 12 --config max.message.bytes={LEAST_MESSAGE_BYTES}" if is_landing else " --partitions 1"
        )
        return Check(
            line,
            "failed" if is_landing else "warning",
            "doesn't exist, or this user may not see it",
            f"`telemetry-lake connect` creates it, or {create} --replication-factor {min(3, brokers)}",
        )
    text = f"{_number(range(topic.partitions), 'partition')}, {topic.replication_factor} replicas"
    if not topic.config:
        return Check(
            line, "warning", f"{text}; its limits can't be seen", "give this user DescribeConfigs on the topic"
        )
    most, least_isr = int(topic.config["max.message.bytes"]), int(topic.config["min.insync.replicas"])
    retention_ms = int(topic.config["retention.ms"])
    kept = "for ever" if retention_ms < 0 else f"for {age_text(retention_ms / 1000)}"
    text += f" ({least_isr} in sync needed), messages up to {most:,} bytes, stored {kept}"
    for status, wrong, advice in _problems_of_topic(topic, brokers, most, least_isr, retention_ms, is_landing):
        return Check(line, status, f"{text}: {wrong}", advice)
    return Check(line, "ok", text)


def _problems_of_topic(
    topic: TopicFacts, brokers: int, most: int, least_isr: int, retention_ms: int, is_landing: bool
) -> Iterator[tuple[Status, str, str]]:
    """Status, what is wrong, and what to do; the worst first."""
    if topic.without_leader:
        yield (
            "failed",
            f"{topic.without_leader} partitions have no leader",
            "start the brokers that have their replicas",
        )
    if least_isr > topic.replication_factor:
        yield (
            "failed",
            "it takes no record: more replicas must be in sync than there are",
            f"set min.insync.replicas={max(1, topic.replication_factor - 1)}, or add replicas",
        )
    if "compact" in topic.config["cleanup.policy"]:
        yield "failed", "it is compacted, which removes records of one key", "set cleanup.policy=delete"
    if is_landing and most < LEAST_MESSAGE_BYTES:
        yield (
            "warning",
            "a push of a MiB may not fit",
            f"set max.message.bytes={LEAST_MESSAGE_BYTES} (the brokers' telemetry.max.bytes and 64 KiB)",
        )
    if 0 <= retention_ms < LEAST_RETENTION_MS:
        yield (
            "warning",
            "a job that is down for longer loses records",
            f"set retention.ms={LEAST_RETENTION_MS} or more",
        )
    if topic.under_replicated:
        yield "warning", f"{topic.under_replicated} partitions have replicas out of sync", "look at the brokers"
    if brokers > 1 and topic.replication_factor == 1:
        yield "warning", "a single broker that fails takes records with it", "give it two or three replicas"
    elif brokers > 1 and least_isr == topic.replication_factor:
        yield (
            "warning",
            "while one broker is down, nothing lands",
            f"set min.insync.replicas={topic.replication_factor - 1}, or add a replica",
        )


def _rights(facts: ClusterFacts, topics: Sequence[str]) -> Check:
    missing = [
        f"{operation.capitalize()} on topic {name}"
        for name in topics
        if name in facts.topics
        for operation in WANTED_RIGHTS
        if not facts.topics[name].operations & {operation, "ALL"}
    ]
    if missing:
        return Check("rights", "failed", f"this user lacks {listed(missing)}", "add ACLs: docs/operate.md")
    if not facts.operations & {"DESCRIBE_CONFIGS", "ALL"}:
        return Check(
            "rights",
            "warning",
            "enough for `ingest`; `sync` can't read subscriptions and quotas",
            "give this user DescribeConfigs on the cluster",
        )
    all_of_them = {"CREATE", "ALTER_CONFIGS"} <= facts.operations or "ALL" in facts.operations
    connect = ", and for `connect`" if all_of_them else "; not for `connect` (Create and AlterConfigs on the cluster)"
    return Check("rights", "ok", f"enough for `ingest` and `sync`{connect}")


def _pushes(newest_ms: int | None, now_ms: int) -> Check:
    if newest_ms is None:
        return Check(
            "pushes",
            "warning",
            "the landing topic has no records",
            "a client that asked before a subscription matched it asks again after five minutes; else restart one",
        )
    age_s = (now_ms - newest_ms) / 1000
    if age_s > PUSH_AGE_S:
        return Check(
            "pushes",
            "warning",
            f"the newest push landed {age_text(age_s)} ago",
            "look whether clients run, the plugin is on every broker and a subscription matches",
        )
    return Check("pushes", "ok", f"the newest push landed {age_text(max(0, age_s))} ago")


def check_subscriptions(subscriptions: Iterable[Subscription], clients: pa.Table | None) -> Iterator[Check]:
    """Check what each subscription requests from whom.

    Args:
        clients: columns of ``matching.CLIENTS`` of the clients that the lake knows as active; None: there is no lake.
    """
    requesting = False
    known = clients if clients is not None else CLIENTS.empty_table()
    matched = pa.array([False] * known.num_rows, pa.bool_())
    for subscription in subscriptions:
        line = f"subscription {subscription.name}"
        whom = ", ".join(f"{key}={pattern}" for key, pattern in subscription.match) or "all clients"
        whom = whom if subscription.unread is None else "some clients"
        if subscription.unread is not None and not subscription.metrics:
            requesting = True
            yield Check(line, "warning", "what it requests, and from whom, is unknown here", subscription.unread)
            matched = pa.nulls(known.num_rows, pa.bool_())
            continue
        if not subscription.metrics:
            yield Check(line, "warning", f"requests no metrics from {whom}", "name metrics: docs/subscriptions.md")
            continue
        requesting = True
        interval_ms = subscription.interval_ms
        every = f"{interval_ms} ms" if interval_ms < 1000 else age_text(interval_ms / 1000)
        what = "all metrics" if ALL_METRICS in subscription.metrics else listed(subscription.metrics)
        text = f"requests {what} every {every} from {whom}"
        if subscription.problem is not None:
            yield Check(line, "warning", f"{text}; whom it matches is unknown here", subscription.problem)
            matched = pa.nulls(known.num_rows, pa.bool_())
            continue
        if known.num_rows:
            these = matching(known, subscription)
            matched = pc.or_kleene(matched, these)
            text += f"; it matches {pc.sum(these).as_py() or 0} of {_number(range(known.num_rows), 'active client')}"
        yield Check(line, "ok", text)
    without = known.filter(pc.equal(matched, False))["client_id"].to_pylist()
    if not requesting:
        yield Check(
            "subscriptions",
            "failed",
            "no subscription requests metrics: clients push nothing",
            "`telemetry-lake connect` creates one, or kafka-configs.sh: docs/receiver.md",
        )
    elif without:
        yield Check(
            "subscriptions",
            "warning",
            f"none matches {_number(without, 'active client')}: {listed(without)}",
            "they stop pushing; widen the match of a subscription",
        )


def check_statuses(
    statuses: Mapping[int | None, ReceiverStatus], brokers: Sequence[BrokerFacts], now_ms: int
) -> Iterator[Check]:
    """Check what the receivers report, and the brokers' clocks.

    Args:
        statuses: the latest of each broker; at None that of receivers which tell no broker, and may be before any.
    """
    missing = [] if None in statuses else [each.node_id for each in brokers if each.node_id not in statuses]
    ages = {node_id: (now_ms - status.time_ms) / 1000 for node_id, status in statuses.items()}
    late = {node_id: age for node_id, age in ages.items() if age > STATUS_AGE_S}
    dropped: Counter[str] = Counter()
    for status in statuses.values():
        dropped.update(status.dropped)
    if missing:
        yield Check(
            "receivers",
            "failed",
            f"no status of {_brokers_named(missing)}",
            "the first comes ten seconds after a start; else look for ClientTelemetryLander in the broker's log",
        )
    elif late:
        oldest = age_text(max(late.values()))
        yield Check(
            "receivers",
            "failed",
            f"the last status of {_brokers_named(late)} is {oldest} old",
            "look whether the broker runs and its receiver lands, or whether its clock is behind",
        )
    elif dropped:
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in dropped.most_common())
        yield Check(
            "receivers", "warning", f"pushes were dropped since the brokers' start: {reasons}", "docs/receiver.md"
        )
    else:
        landed, waiting = (sum(getattr(each, name) for each in statuses.values()) for name in ("landed", "queue_depth"))
        yield Check(
            "receivers", "ok", f"{landed:,} pushes landed since the brokers' start, none dropped, {waiting:,} waiting"
        )
    ahead = {node_id: -age for node_id, age in ages.items() if age < -CLOCK_AHEAD_S}
    if ahead:
        yield Check(
            "clocks",
            "warning",
            f"{_brokers_named(ahead)}: {age_text(max(ahead.values()))} ahead of this machine's clock",
            "synchronise the clocks (NTP): ages and silences are computed from the brokers' time",
        )
    elif ages and not late:
        yield Check("clocks", "ok", f"the brokers' clocks are at most {max(ages.values()):.0f} s behind this machine's")


def _brokers_named(node_ids: Iterable[int | None]) -> str:
    given = set(node_ids)
    ids = [*map(str, sorted(each for each in given if each is not None)), *["unknown"] * (None in given)]
    return f"{'broker' if len(ids) == 1 else 'brokers'} {listed(ids)}"


def _number(items: Sequence[object] | range, name: str) -> str:
    return f"{len(items)} {name}{'' if len(items) == 1 else 's'}"


def _order(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.rstrip("+").split("."))
