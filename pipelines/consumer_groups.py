"""Consumer groups as Kafka's Admin knows them, members that push nothing included: classic groups and KIP-848's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError

from pipelines.config_history import ConfigTable
from pipelines.kafka_admin import admin_client
from udfs.rows import TEXT_LIST, column

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipelines.landing import Privacy

GROUP_STATES = ConfigTable(
    "group_states",
    "One version of a consumer group's state, as long as looks at the cluster found it.",
    keys=(column("group_id", pa.string(), "group.id"),),
    values=(
        column("group_type", pa.string(), "classic, or consumer (KIP-848)"),
        column("state", pa.string(), "Stable, Empty, PreparingRebalance, Assigning, ... as Admin calls them"),
        column("protocol", pa.string(), "assignor that distributes the partitions; empty: no members"),
        column("coordinator_id", pa.int32(), "broker that coordinates the group"),
        column("coordinator", pa.string(), "its host:port"),
    ),
)
GROUP_MEMBERS = ConfigTable(
    "group_members",
    "One version of a consumer group's member and its assignment, as long as looks at the cluster found it.",
    keys=(
        column("group_id", pa.string(), "group.id"),
        column("member_id", pa.string(), "member id that the coordinator or (KIP-848) the member has given"),
    ),
    values=(
        column("client_id", pa.string(), "client.id of the member"),
        column("host", pa.string(), "address of the member, treated as `personal_data` says"),
        column("group_instance_id", pa.string(), "group.instance.id of a static member; NULL: dynamic"),
        column("assignment", TEXT_LIST, "assigned partitions as topic-partition, sorted"),
    ),
)


@dataclass(frozen=True)
class Committed:
    """A group's committed offset of a partition."""

    group_id: str
    topic: str
    partition: int
    offset: int


@dataclass(frozen=True)
class ConsumerGroups:
    """All consumer groups of a cluster at one moment: keys and values of both tables, and the committed offsets."""

    cluster_id: str
    states: tuple[dict[str, Any], ...]
    members: tuple[dict[str, Any], ...]
    committed: tuple[Committed, ...]


def read_groups(
    spark: SparkSession, bootstrap_servers: str, options: Mapping[str, str], privacy: Privacy
) -> ConsumerGroups:
    """Ask a cluster for its consumer groups. Needs Describe on the groups: brokers show no others.

    Raises:
        KafkaUnavailableError: unreachable, or a coordinator that isn't ready; half a look is none.
    """
    jvm: Any = spark._jvm  # the session's gateway has no public name
    with admin_client(spark, bootstrap_servers, options) as client:
        cluster_id = str(client.describeCluster().clusterId().get())
        ids = [str(listing.groupId()) for listing in client.listConsumerGroups().all().get()]
        asked, specs = jvm.java.util.ArrayList(), jvm.java.util.HashMap()
        spec = jvm.org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec()
        for group_id in ids:
            asked.add(group_id)
            specs.put(group_id, spec)
        described = client.describeConsumerGroups(asked).describedGroups()
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
        return ConsumerGroups(cluster_id, tuple(map(_state, groups)), tuple(members), tuple(committed))


def _unless_gone(future: Any) -> Any:
    """The answer about a group; None: it was deleted since it was listed."""
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
    """Of a set as Java prints it, one call instead of three per partition; topic names have neither comma nor space."""
    names = [name for name in text.strip("[]").split(", ") if name]
    return sorted(names, key=lambda name: (name.rpartition("-")[0], int(name.rpartition("-")[2])))


def _stored(host: str, privacy: Privacy) -> str | None:
    """As ``Privacy.column`` treats the addresses of pushes, so that both are equal."""
    if privacy.how == "keep":
        return host
    return sha256(f"{privacy.key}\0{host}".encode()).hexdigest()[:32] if privacy.how == "hash" else None


def _committed(group_id: str, offsets: Any) -> Iterator[Committed]:
    for entry in offsets.entrySet() if offsets is not None else ():
        if entry.getValue() is not None:  # None: nothing committed
            place = entry.getKey()
            yield Committed(group_id, place.topic(), place.partition(), entry.getValue().offset())
