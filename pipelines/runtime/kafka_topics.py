"""Topics as Kafka's Admin describes them: one that can't be described, or has no leader, doesn't fail the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kafka_telemetry_lake.pipelines.runtime.kafka_admin import (
    HasJvm,
    KafkaUnavailableError,
    admin_client,
    is_leaderless,
)
from kafka_telemetry_lake.pipelines.runtime.kafka_answers import Answer, answer_of, named
from kafka_telemetry_lake.pipelines.runtime.kafka_classes import kafka_package

NO_ID = "A" * 22  # Uuid.ZERO_UUID: brokers before 2.8


@dataclass(frozen=True)
class TopicDescription:
    """A topic.

    Attributes:
        topic_id: as Kafka prints it; empty: the brokers tell none.
        partitions: number of partitions.
        without_leader: those of which no broker is the leader: nothing about their offsets is known, and to ask for
            them takes until the timeout.
        operations: names of the ACL operations that this user may do; None: the brokers don't tell.
        details: Admin's own object.
    """

    topic_id: str
    partitions: int
    without_leader: frozenset[int]
    operations: frozenset[str] | None
    details: Any = field(default=None, repr=False, compare=False)

    def may(self, operation: str) -> bool:
        """Whether this user may do that, or nobody knows."""
        return self.operations is None or not self.operations.isdisjoint({operation, "ALL"})


def describe_topics(
    jvm: Any, client: Any, topics: Iterable[str], *, internal: bool = False
) -> tuple[dict[str, TopicDescription], dict[str, str]]:
    """Describe those of the topics that exist and that this user may see.

    Args:
        internal: also internal ones, such as `__consumer_offsets`.

    Returns:
        Topics by name, and by name the problem of each that couldn't be described.

    Raises:
        py4j.protocol.Py4JJavaError: the topics can't be listed.
    """
    admin = kafka_package(jvm).clients.admin
    # Admin would ask for a topic that is gone until its timeout.
    there = set(client.listTopics(admin.ListTopicsOptions().listInternal(internal)).names().get())
    names = jvm.java.util.ArrayList()
    for topic in sorted(there.intersection(topics)):
        names.add(topic)
    options = admin.DescribeTopicsOptions().includeAuthorizedOperations(True)
    answers = {
        str(topic): answer_of(future)
        for topic, future in dict(client.describeTopics(names, options).topicNameValues()).items()
    }
    found = {topic: _described(answer.value) for topic, answer in answers.items() if answer.problem is None}
    problems = {
        topic: answer.problem for topic, answer in answers.items() if answer.problem is not None and not answer.is_gone
    }
    return found, problems


def _described(topic: Any) -> TopicDescription:
    partitions = list(topic.partitions())  # in the order of their numbers
    topic_id = str(topic.topicId().toString())
    operations = topic.authorizedOperations()
    return TopicDescription(
        "" if topic_id == NO_ID else topic_id,
        len(partitions),
        frozenset(number for number, each in enumerate(partitions) if is_leaderless(each.leader())),
        None if operations is None else frozenset(str(each.name()) for each in operations.toArray()),
        topic,
    )


def topics_of(
    java: HasJvm, bootstrap_servers: str, options: Mapping[str, str], topics: Sequence[str]
) -> dict[str, TopicDescription]:
    """Descriptions of the topics that exist, by name.

    Raises:
        KafkaUnavailableError: the cluster doesn't answer, or doesn't describe one of the topics that it lists.
    """
    with admin_client(java, bootstrap_servers, options) as client:
        found, problems = describe_topics(java._jvm, client, topics)
    if problems:
        raise KafkaUnavailableError(
            f"the brokers at {bootstrap_servers} list topics without describing them: {named(problems)}"
        )
    return found


def topic_ids(
    java: HasJvm, bootstrap_servers: str, options: Mapping[str, str], topics: Sequence[str]
) -> dict[str, str]:
    """The id of each of these topics that exists (KIP-516), as Kafka prints it. Raises ``KafkaUnavailableError``."""
    found = topics_of(java, bootstrap_servers, options, topics)
    return {name: topic.topic_id for name, topic in found.items() if topic.topic_id}


def earliest_offsets(
    java: HasJvm, bootstrap_servers: str, options: Mapping[str, str], topics: Sequence[str]
) -> dict[str, dict[int, int]]:
    """The first offset of each partition of these topics that exists.

    Raises:
        KafkaUnavailableError: the cluster doesn't answer, or the offsets of a partition aren't known, as it has no
            leader; the message names it. What isn't known must not be taken for gone.
    """
    with admin_client(java, bootstrap_servers, options) as client:
        found, unknown = describe_topics(java._jvm, client, topics)
        unknown |= {f"{name}-{number}": "no leader" for name, topic in found.items() for number in topic.without_leader}
        offsets: dict[str, dict[int, int]] = {}
        for (name, number), answer in _earliest(java._jvm, client, found).items():
            if answer.problem is None:
                offsets.setdefault(name, {})[number] = int(answer.value.offset())
            elif not answer.is_gone:
                unknown[f"{name}-{number}"] = answer.problem
    if unknown:
        raise KafkaUnavailableError(f"the first offsets of {named(unknown)} at {bootstrap_servers} aren't known")
    return offsets


def _earliest(jvm: Any, client: Any, topics: Mapping[str, TopicDescription]) -> dict[tuple[str, int], Answer]:
    kafka, asked = kafka_package(jvm), jvm.java.util.HashMap()
    places = {
        (name, number): kafka.common.TopicPartition(name, number)
        for name, topic in topics.items()
        for number in range(topic.partitions)
        if number not in topic.without_leader
    }
    for place in places.values():
        asked.put(place, kafka.clients.admin.OffsetSpec.earliest())
    result = client.listOffsets(asked)
    return {place: answer_of(result.partitionResult(partition)) for place, partition in places.items()}
