"""Groups that can't be described, decoded or asked for: the others are there, and each problem is named once."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_telemetry_lake.pipelines.groups import members
from kafka_telemetry_lake.pipelines.groups.logs import Log
from kafka_telemetry_lake.pipelines.groups.members import ConsumerGroups
from kafka_telemetry_lake.pipelines.lake.privacy import Privacy
from kafka_telemetry_lake.pipelines.runtime.kafka_admin import KafkaUnavailableError
from kafka_telemetry_lake.pipelines.runtime.kafka_answers import Answer, answer_of, named
from kafka_telemetry_lake.pipelines.runtime.kafka_topics import TopicDescription
from tests.support.kafka_futures import ERRORS, PROTOCOL, Future, RaisedError

REFUSED, UNREADABLE = f"{ERRORS}GroupAuthorizationException", f"{PROTOCOL}SchemaException"


def text(value: str) -> Any:
    return SimpleNamespace(toString=lambda: value)


def optional(value: Any) -> Any:
    return SimpleNamespace(orElse=lambda other: other if value is None else value)


def group(group_id: str) -> Any:
    member = SimpleNamespace(
        consumerId=lambda: f"{group_id}-1", clientId=lambda: "app", host=lambda: "/10.0.0.1",
        groupInstanceId=lambda: optional(None),
        assignment=lambda: SimpleNamespace(topicPartitions=lambda: text("[orders-0]")),
    )  # fmt: skip
    return SimpleNamespace(
        groupId=lambda: group_id, type=lambda: text("Classic"), state=lambda: text("Stable"),
        partitionAssignor=lambda: "range", members=lambda: [member],
        coordinator=lambda: SimpleNamespace(id=lambda: 1, host=lambda: "kafka", port=lambda: 9092),
    )  # fmt: skip


def offsets(offset: int) -> Any:
    place = SimpleNamespace(topic=lambda: "orders", partition=lambda: 0)
    entry = SimpleNamespace(getKey=lambda: place, getValue=lambda: SimpleNamespace(offset=lambda: offset))
    return SimpleNamespace(entrySet=lambda: [entry])


class Cluster:
    """An Admin client of a cluster with groups a, b, c, ... of which some have problems.

    Like Kafka's, it decodes a response as a whole: a group that can't be decoded spoils those asked for with it.
    """

    def __init__(
        self, groups: str, refused: str = "", undecoded: str = "", silent: str = "", unlisted: tuple[str, ...] = ()
    ) -> None:
        self.groups, self.refused, self.undecoded, self.silent = groups, refused, undecoded, silent
        self.unlisted = unlisted
        self.topics: dict[str, TopicDescription] = {}
        self.waited: list[Any] = []
        self.asked: list[list[str]] = []

    def describeCluster(self) -> Any:  # noqa: N802  # Kafka's name
        return SimpleNamespace(clusterId=lambda: Future("c"))

    def listConsumerGroups(self) -> Any:  # noqa: N802  # Kafka's name
        listings = [
            SimpleNamespace(
                groupId=lambda each=each: each, state=lambda: optional(text("Stable")), type=lambda: optional(None)
            )
            for each in self.groups
        ]
        errors = [RaisedError(ERRORS + name).java_exception for name in self.unlisted]
        return SimpleNamespace(valid=lambda: Future(listings), errors=lambda: Future(errors))

    def describeConsumerGroups(self, ids: Iterable[str]) -> Any:  # noqa: N802  # Kafka's name
        assert not self.waited or len(list(ids)) == 1, "all are asked before any is waited for"
        self.asked.append(list(ids))
        spoilt = UNREADABLE if set(ids) & set(self.undecoded) else None
        return SimpleNamespace(describedGroups=lambda: {each: self._future(group(each), each, spoilt) for each in ids})

    def listConsumerGroupOffsets(self, specs: dict[str, Any]) -> Any:  # noqa: N802  # Kafka's name
        assert not self.waited
        futures = {each: self._future(offsets(7), each, None) for each in specs}
        return SimpleNamespace(partitionsToOffsetAndMetadata=futures.__getitem__)

    def _future(self, value: Any, group_id: str, spoilt: str | None) -> Future:
        error = REFUSED if group_id in self.refused else spoilt
        if group_id in self.silent:
            error = f"{ERRORS}CoordinatorNotAvailableException"
        return Future(value, error, self.waited)


class JavaList(list[Any]):
    add = list.append


class JavaMap(dict[Any, Any]):
    put = dict.__setitem__


@pytest.fixture
def jvm(monkeypatch: pytest.MonkeyPatch) -> Any:
    logs = {("orders", 0): Log(0, 9, 9), ("orders", 1): Log(problem="no leader")}
    monkeypatch.setattr(members, "read_logs", lambda *_: logs)
    monkeypatch.setattr(members, "describe_topics", lambda _, cluster, *__, **___: (cluster.topics, {}))
    admin = SimpleNamespace(ListConsumerGroupOffsetsSpec=object)
    monkeypatch.setattr(members, "kafka_package", lambda _: SimpleNamespace(clients=SimpleNamespace(admin=admin)))
    return SimpleNamespace(java=SimpleNamespace(util=SimpleNamespace(ArrayList=JavaList, HashMap=JavaMap)))


def read(jvm: Any, cluster: Cluster) -> ConsumerGroups:
    return members._read(jvm, cluster, Privacy())


def problems(groups: ConsumerGroups) -> dict[str, str | None]:
    return {row["group_id"]: row["problem"] for row in groups.states}


def test_a_group_that_may_not_be_described_is_a_row_and_one_warning(jvm: Any) -> None:
    groups = read(jvm, Cluster("abcd", refused="bd"))
    assert problems(groups) == {
        "a": None, "b": "GroupAuthorizationException", "c": None, "d": "GroupAuthorizationException",
    }  # fmt: skip
    assert [(each.group_id, each.offset) for each in groups.committed] == [("a", 7), ("c", 7)]
    assert [row["member_id"] for row in groups.members] == ["a-1", "c-1"]
    assert groups.without_offsets.keys() == {"b", "d"}
    assert groups.warnings == (
        "consumer groups: can't be described: b, d (GroupAuthorizationException); needed: Describe on the group",
        "consumer groups: partitions whose lag is unknown: orders-1 (no leader)",
    )
    assert not groups.has_unknown_members({"group_id": "b"})  # nobody is going to know more
    assert not groups.has_unknown_offsets("b")


def test_members_that_cannot_be_decoded_spoil_no_other_group(jvm: Any) -> None:
    cluster = Cluster("abc", undecoded="b")
    groups = read(jvm, cluster)
    assert problems(groups) == {"a": None, "c": None, "b": "SchemaException"}
    assert [each.group_id for each in groups.committed] == ["a", "b", "c"]  # its offsets are known
    assert groups.warnings[0] == "consumer groups: can't be described: b (SchemaException)"
    assert cluster.asked == [["a", "b", "c"], ["a"], ["b"], ["c"]]


def test_a_coordinator_that_does_not_answer_is_asked_once_and_ends_nothing(jvm: Any) -> None:
    cluster = Cluster("abc", silent="b")
    groups = read(jvm, cluster)
    assert problems(groups)["b"] == "CoordinatorNotAvailableException"
    assert len(cluster.asked) == 1
    assert [groups.has_unknown_members({"group_id": each}) for each in "abc"] == [False, True, False]
    assert [groups.has_unknown_offsets(each) for each in "abc"] == [False, True, False]


def test_a_broker_that_lists_nothing_ends_no_group(jvm: Any) -> None:
    groups = read(jvm, Cluster("ab", unlisted=("TimeoutException",)))
    assert problems(groups) == {"a": None, "b": None}
    assert [groups.has_unknown_state({"group_id": each}) for each in "abz"] == [False, False, True]
    assert "not all coordinators list their groups (TimeoutException: 1)" in groups.warnings[0]
    with pytest.raises(KafkaUnavailableError, match=r"no broker lists its groups \(TimeoutException\)"):
        read(jvm, Cluster("", unlisted=("TimeoutException",)))


def test_groups_without_a_coordinator_are_not_taken_to_have_ended(jvm: Any) -> None:
    """No broker lists the groups of a partition of __consumer_offsets that has no leader, and none says so."""
    cluster = Cluster("a")
    cluster.topics = {members.GROUP_TOPIC: TopicDescription("", 50, frozenset({3, 7}), None)}
    groups = read(jvm, cluster)
    assert [groups.has_unknown_state({"group_id": each}) for each in "az"] == [False, True]
    assert [groups.has_unknown_offsets(each) for each in "az"] == [False, True]
    assert "(no leader of __consumer_offsets: 2)" in groups.warnings[0]


def test_what_an_answer_says() -> None:
    assert answer_of(Future(3)) == Answer(3)
    gone = answer_of(Future(error=f"{ERRORS}GroupIdNotFoundException"))
    refused, late, spoilt = (
        answer_of(Future(error=name)) for name in (REFUSED, f"{ERRORS}TimeoutException", UNREADABLE)
    )
    assert [each.is_gone for each in (gone, refused, late, spoilt)] == [True, False, False, False]
    assert [each.may_come for each in (refused, late, spoilt)] == [False, True, False]
    assert [each.is_undecoded for each in (refused, late, spoilt)] == [False, False, True]
    assert named({"b": "X", "a": "X", "c": "Y"}) == "a, b (X); c (Y)"
    assert named({f"{number:03}": "X" for number in range(22)}).endswith("019 and 2 more (X)")
