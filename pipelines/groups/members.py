"""Reads consumer groups from Kafka's Admin: classic and KIP-848 groups, including members that push nothing.

A group that may be listed but not described, whose coordinator doesn't answer or whose members Kafka's client can't
decode is a row with its problem; the other groups are there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kafka_telemetry_lake.pipelines.groups.logs import Log, read_logs
from kafka_telemetry_lake.pipelines.groups.next_records import At, NextRecords
from kafka_telemetry_lake.pipelines.runtime.kafka_admin import HasJvm, KafkaUnavailableError, admin_client
from kafka_telemetry_lake.pipelines.runtime.kafka_answers import Answer, answer_of, named
from kafka_telemetry_lake.pipelines.runtime.kafka_classes import kafka_package
from kafka_telemetry_lake.pipelines.runtime.kafka_topics import describe_topics

if TYPE_CHECKING:
    from kafka_telemetry_lake.pipelines.lake.privacy import Privacy

GROUP_TOPIC = "__consumer_offsets"


@dataclass(frozen=True)
class Committed:
    """A group's committed offset of a partition."""

    group_id: str
    topic: str
    partition: int
    offset: int


@dataclass(frozen=True)
class ConsumerGroups:
    """All consumer groups of a cluster at one moment: keys and values of both tables, and the committed offsets.

    Attributes:
        logs: those that the groups read, by topic and partition, as of `read_at` (UTC).
        listed: ids of the groups that the brokers listed.
        is_complete: whether all groups have a coordinator that listed them.
        without_offsets: groups whose committed offsets couldn't be read, each with the problem.
        without_members: groups of which nothing is known but that they exist, and may be soon.
        warnings: what couldn't be read, each item named once.
        next_records: see ``NextRecords.find``.
    """

    cluster_id: str
    states: tuple[dict[str, Any], ...]
    members: tuple[dict[str, Any], ...]
    committed: tuple[Committed, ...]
    logs: Mapping[tuple[str, int], Log]
    read_at: datetime
    listed: frozenset[str] = frozenset()
    is_complete: bool = True
    without_offsets: Mapping[str, str] = field(default_factory=dict)
    without_members: frozenset[str] = frozenset()
    warnings: tuple[str, ...] = ()
    next_records: Mapping[At, int] = field(default_factory=dict)

    def place(self, committed: Committed) -> At | None:
        """The offset at which a group goes on: the committed one, or the log's first after it; None: unknown."""
        log = self.logs.get((committed.topic, committed.partition))
        if log is None or log.start is None:
            return None
        return committed.topic, committed.partition, max(committed.offset, log.start)

    def has_unknown_state(self, row: Mapping[str, Any]) -> bool:
        """Whether the poll says nothing about the group of a row: its coordinator may be one that didn't answer."""
        return not self.is_complete and row["group_id"] not in self.listed

    def has_unknown_members(self, row: Mapping[str, Any]) -> bool:
        """Whether the poll says nothing about the members of the group of a row."""
        return row["group_id"] in self.without_members or self.has_unknown_state(row)

    def has_unknown_offsets(self, group_id: str) -> bool:
        """Whether the poll says nothing about the committed offsets of a group."""
        problem = self.without_offsets.get(group_id)
        refused = problem is not None and "Authorization" in problem
        return (problem is not None and not refused) or (not self.is_complete and group_id not in self.listed)


def read_groups(
    java: HasJvm,
    bootstrap_servers: str,
    options: Mapping[str, str],
    privacy: Privacy,
    records: NextRecords | None = None,
) -> ConsumerGroups:
    """Read all consumer groups of a cluster. Needs Describe on the groups: brokers hide the others.

    With Describe on the cluster brokers list all groups, and describe those with Describe on the group.

    Args:
        records: looks for the first unread record of groups that are behind; None: nobody looks.

    Raises:
        KafkaUnavailableError: no broker lists its groups.
    """
    with admin_client(java, bootstrap_servers, options) as client:
        groups = _read(java._jvm, client, privacy)
    if records is None:
        return groups
    found = records.find(
        java, bootstrap_servers, options, groups.logs, filter(None, map(groups.place, groups.committed))
    )
    if records.problems:
        warning = f"consumer groups: records can't be read: {named(records.problems)}"
        groups = replace(groups, warnings=(*groups.warnings, warning))
    return replace(groups, next_records=found)


def _read(jvm: Any, client: Any, privacy: Privacy) -> ConsumerGroups:
    cluster_id = str(client.describeCluster().clusterId().get())
    listing = client.listConsumerGroups()
    listings = {str(each.groupId()): each for each in listing.valid().get()}
    unlisted = Counter(str(error.getClass().getSimpleName()) for error in listing.errors().get())
    if unlisted and not listings:
        raise KafkaUnavailableError(f"no broker lists its groups ({', '.join(sorted(unlisted))})")
    # The groups of such a partition have no coordinator: no broker lists them, and none says so.
    coordinators = describe_topics(jvm, client, [GROUP_TOPIC], internal=True)[0].get(GROUP_TOPIC)
    if coordinators is not None and coordinators.without_leader:
        unlisted[f"no leader of {GROUP_TOPIC}"] = len(coordinators.without_leader)
    ids = list(listings)
    # Both are asked before either is waited for: what has no answer costs one timeout.
    futures = _asked(jvm, client, ids)
    offset_futures = client.listConsumerGroupOffsets(_specs(jvm, ids))
    described = _described(jvm, client, ids, futures)
    offsets = {group_id: answer_of(offset_futures.partitionsToOffsetAndMetadata(group_id)) for group_id in ids}
    there = [group_id for group_id in ids if not described[group_id].is_gone]
    groups = [answer.value for group_id in there if (answer := described[group_id]).problem is None]
    unknown = {group_id: problem for group_id in there if (problem := described[group_id].problem) is not None}
    without_offsets = {
        group_id: problem
        for group_id in there
        if (problem := offsets[group_id].problem) is not None and not offsets[group_id].is_gone
    }
    committed = [each for group_id in there for each in _committed(group_id, offsets[group_id].value)]
    # After the committed offsets: an end is never before what was read of it.
    logs = read_logs(jvm, client, ((each.topic, each.partition) for each in committed))
    read_at = datetime.now(UTC)
    states = [*map(_state, groups), *(_unknown_state(listings[group_id], unknown[group_id]) for group_id in unknown)]
    return ConsumerGroups(
        cluster_id,
        tuple(states),
        tuple(row for group in groups for row in _members(group, privacy)),
        tuple(committed),
        logs,
        read_at,
        frozenset(ids),
        not unlisted,
        without_offsets,
        frozenset(group_id for group_id in unknown if described[group_id].may_come),
        tuple(_warnings(unlisted, unknown, without_offsets, logs)),
    )


def _specs(jvm: Any, ids: Sequence[str]) -> Any:
    specs, spec = jvm.java.util.HashMap(), kafka_package(jvm).clients.admin.ListConsumerGroupOffsetsSpec()
    for group_id in ids:
        specs.put(group_id, spec)
    return specs


def _asked(jvm: Any, client: Any, ids: Sequence[str]) -> Mapping[str, Any]:
    """The futures of groups that are asked for in one request of each coordinator."""
    group_ids = jvm.java.util.ArrayList()
    for group_id in ids:
        group_ids.add(group_id)
    futures: Mapping[str, Any] = client.describeConsumerGroups(group_ids).describedGroups()
    return futures


def _described(jvm: Any, client: Any, ids: Sequence[str], futures: Mapping[str, Any]) -> dict[str, Answer]:
    """The answer about each group. Members that can't be decoded spoil the response that they are in."""
    answers = {group_id: answer_of(futures[group_id]) for group_id in ids}
    spoilt = [group_id for group_id in ids if answers[group_id].is_undecoded]
    again = {group_id: _asked(jvm, client, [group_id])[group_id] for group_id in spoilt}
    return answers | {group_id: answer_of(future) for group_id, future in again.items()}


def _warnings(
    unlisted: Mapping[str, int],
    unknown: Mapping[str, str],
    without_offsets: Mapping[str, str],
    logs: Mapping[tuple[str, int], Log],
) -> Iterator[str]:
    if unlisted:
        reasons = ", ".join(f"{reason}: {count}" for reason, count in sorted(unlisted.items()))
        yield (
            f"consumer groups: not all coordinators list their groups ({reasons}); "
            "the history of those that none lists is unchanged"
        )
    if unknown:
        needed = "; needed: Describe on the group" if any("Authorization" in each for each in unknown.values()) else ""
        yield f"consumer groups: can't be described: {named(unknown)}{needed}"
    if others := {each: problem for each, problem in without_offsets.items() if each not in unknown}:
        yield f"consumer groups: committed offsets can't be read: {named(others)}"
    problems = {f"{topic}-{number}": log.problem for (topic, number), log in logs.items() if log.problem is not None}
    if problems:
        yield f"consumer groups: partitions whose lag is unknown: {named(problems)}"


def _state(group: Any) -> dict[str, Any]:
    node = group.coordinator()
    return {
        "group_id": group.groupId(),
        "group_type": str(group.type().toString()).lower(),
        "state": str(group.state().toString()),
        "protocol": group.partitionAssignor(),
        "coordinator_id": node.id(),
        "coordinator": f"{node.host()}:{node.port()}",
        "problem": None,
    }


def _unknown_state(listing: Any, problem: str) -> dict[str, Any]:
    """What a listing alone says of a group."""
    kind, state = listing.type().orElse(None), listing.state().orElse(None)
    return {
        "group_id": str(listing.groupId()),
        "group_type": None if kind is None else str(kind.toString()).lower(),
        "state": None if state is None else str(state.toString()),
        "protocol": None,
        "coordinator_id": None,
        "coordinator": None,
        "problem": problem,
    }


def _members(group: Any, privacy: Privacy) -> Iterator[dict[str, Any]]:
    for member in group.members():
        yield {
            "group_id": group.groupId(),
            "member_id": member.consumerId(),
            "client_id": member.clientId(),
            "host": privacy.of(member.host().removeprefix("/")),
            "group_instance_id": member.groupInstanceId().orElse(None),
            "assignment": _partitions(str(member.assignment().topicPartitions().toString())),
        }


def _partitions(text: str) -> list[str]:
    """Parse a Java set's text: one call instead of three per partition. Topic names have no commas or spaces."""
    names = [name for name in text.strip("[]").split(", ") if name]
    return sorted(names, key=lambda name: (name.rpartition("-")[0], int(name.rpartition("-")[2])))


def _committed(group_id: str, offsets: Any) -> Iterator[Committed]:
    for entry in offsets.entrySet() if offsets is not None else ():
        if entry.getValue() is not None:  # None: nothing committed
            place = entry.getKey()
            yield Committed(group_id, place.topic(), place.partition(), entry.getValue().offset())
