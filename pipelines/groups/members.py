"""Reads consumer groups from Kafka's Admin: classic and KIP-848 groups, including members that push nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from kafka_telemetry_lake.pipelines.groups.logs import Log, read_logs
from kafka_telemetry_lake.pipelines.runtime.kafka_admin import HasJvm, admin_client
from kafka_telemetry_lake.pipelines.runtime.kafka_classes import kafka_package

if TYPE_CHECKING:
    from kafka_telemetry_lake.pipelines.lake.privacy import Privacy


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

    `logs` are those that the groups read, by topic and partition, as of `read_at` (UTC).
    """

    cluster_id: str
    states: tuple[dict[str, Any], ...]
    members: tuple[dict[str, Any], ...]
    committed: tuple[Committed, ...]
    logs: Mapping[tuple[str, int], Log]
    read_at: datetime


def read_groups(java: HasJvm, bootstrap_servers: str, options: Mapping[str, str], privacy: Privacy) -> ConsumerGroups:
    """Read all consumer groups of a cluster. Needs Describe on the groups: brokers hide the others.

    Raises:
        KafkaUnavailableError: the cluster or a coordinator isn't available; partial results are never returned.
    """
    jvm = java._jvm
    with admin_client(java, bootstrap_servers, options) as client:
        cluster_id = str(client.describeCluster().clusterId().get())
        ids = [str(listing.groupId()) for listing in client.listConsumerGroups().all().get()]
        group_ids, specs = jvm.java.util.ArrayList(), jvm.java.util.HashMap()
        spec = kafka_package(jvm).clients.admin.ListConsumerGroupOffsetsSpec()
        for group_id in ids:
            group_ids.add(group_id)
            specs.put(group_id, spec)
        described = client.describeConsumerGroups(group_ids).describedGroups()
        offsets = client.listConsumerGroupOffsets(specs)
        groups = [group for group_id in ids if (group := _unless_gone(described[group_id])) is not None]
        committed = [
            each
            for group in groups
            for each in _committed(
                group.groupId(), _unless_gone(offsets.partitionsToOffsetAndMetadata(group.groupId()))
            )
        ]
        members = [row for group in groups for row in _members(group, privacy)]
        # After the committed offsets: an end is never before what was read of it.
        logs = read_logs(jvm, client, ((each.topic, each.partition) for each in committed))
        read_at = datetime.now(UTC)
        states = tuple(map(_state, groups))
        return ConsumerGroups(cluster_id, states, tuple(members), tuple(committed), logs, read_at)


def _unless_gone(future: Any) -> Any:
    """The result for a group; None if the group was deleted after it was listed."""
    try:
        return future.get()
    except Py4JJavaError as error:
        if "GroupIdNotFoundException" not in str(error.java_exception):
            raise
        return None


def _state(group: Any) -> dict[str, Any]:
    node = group.coordinator()
    return {
        "group_id": group.groupId(),
        "group_type": str(group.type().toString()).lower(),
        "state": str(group.state().toString()),
        "protocol": group.partitionAssignor(),
        "coordinator_id": node.id(),
        "coordinator": f"{node.host()}:{node.port()}",
    }


def _members(group: Any, privacy: Privacy) -> Iterator[dict[str, Any]]:
    for member in group.members():
        yield {
            "group_id": group.groupId(),
            "member_id": member.consumerId(),
            "client_id": member.clientId(),
            "host": _stored(member.host().removeprefix("/"), privacy),
            "group_instance_id": member.groupInstanceId().orElse(None),
            "assignment": _partitions(str(member.assignment().topicPartitions().toString())),
        }


def _partitions(text: str) -> list[str]:
    """Parse a Java set's text: one call instead of three per partition. Topic names have no commas or spaces."""
    names = [name for name in text.strip("[]").split(", ") if name]
    return sorted(names, key=lambda name: (name.rpartition("-")[0], int(name.rpartition("-")[2])))


def _stored(host: str, privacy: Privacy) -> str | None:
    """Treat addresses like ``Privacy.column`` does for pushes, so that both compare equal."""
    if privacy.how == "keep":
        return host
    return sha256(f"{privacy.key}\0{host}".encode()).hexdigest()[:32] if privacy.how == "hash" else None


def _committed(group_id: str, offsets: Any) -> Iterator[Committed]:
    for entry in offsets.entrySet() if offsets is not None else ():
        if entry.getValue() is not None:  # None: nothing committed
            place = entry.getKey()
            yield Committed(group_id, place.topic(), place.partition(), entry.getValue().offset())
