"""A landing topic that was deleted and made again is refused, or read from its beginning when asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kafka_telemetry_lake.pipelines.ingest.checkpoint import landing_name
from kafka_telemetry_lake.pipelines.ingest.earlier_streams import guard_folder, take_over
from kafka_telemetry_lake.pipelines.ingest.topic_ids import TopicReplacedError, check_topic_ids, replaced_topics
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES, QUARANTINE, QUOTA_SAMPLES, RECEIVER_HEALTH

from .test_earlier_streams import noted, store

BEFORE, AFTER = {"t": "old-id", "s": "status-id"}, {"t": "new-id", "s": "status-id"}
NOTES = tuple(table.name for table in (PUSHES, RECEIVER_HEALTH, QUOTA_SAMPLES, QUARANTINE))


def landing(folder: Path, *batches: dict[str, Any], done: int) -> None:
    """As Spark leaves the checkpoint of a query with two sources."""
    for name in ("offsets", "commits", "sources/0", "sources/1", *NOTES):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "metadata").write_text('{"id":"query"}')
    for number, offsets in enumerate(batches):
        lines = [json.dumps({topic: own}) for topic, own in offsets.items()]
        text = "\n".join(["v1", '{"batchWatermarkMs":0,"conf":{"spark.sql.x":"1"}}', *lines])
        (folder / "offsets" / str(number)).write_text(text)
    for number in range(done):
        (folder / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    for name in NOTES:
        (folder / name / "offsets-before.json").write_text('{"version": 0, "ranges": []}')


def test_a_topic_with_another_id_is_refused_with_what_to_do(tmp_path: Path) -> None:
    checkpoints = str(tmp_path)
    check_topic_ids(checkpoints, BEFORE)
    check_topic_ids(checkpoints, BEFORE)
    for _ in range(2):  # nothing is noted by a refused start
        with pytest.raises(TopicReplacedError, match=r"^topic t .*topic id new-id, before old-id.* --new-topic"):
            check_topic_ids(checkpoints, AFTER)
    check_topic_ids(checkpoints, BEFORE)


def test_topics_that_appear_vanish_or_have_no_id_are_not_refused(tmp_path: Path) -> None:
    checkpoints = str(tmp_path)
    check_topic_ids(checkpoints, {"t": "old-id"})
    check_topic_ids(checkpoints, BEFORE)  # the status topic was made
    check_topic_ids(checkpoints, {"t": "old-id"})  # and deleted
    check_topic_ids(checkpoints, {})  # as brokers before 2.8 and files sources have it
    with pytest.raises(TopicReplacedError, match="topic s "):
        check_topic_ids(checkpoints, BEFORE | {"s": "another"})


def test_a_new_topic_is_read_from_its_beginning_and_the_others_go_on(tmp_path: Path) -> None:
    lake, old = tmp_path / "lake", tmp_path / "checkpoints"
    check_topic_ids(str(old), BEFORE)
    landing(old / "landing", {"t": {"0": 5}, "s": {"0": 3}}, {"t": {"0": 9}, "s": {"0": 4}}, done=1)
    store(lake, PUSHES, "t", (0, 4), (0, 7))
    store(lake, RECEIVER_HEALTH, "s", (0, 2), (0, 3))  # the second is of the batch that was cut off
    for table in (QUOTA_SAMPLES, QUARANTINE):
        table.create(str(lake))
    check_topic_ids(str(old), AFTER, new_topic=True)
    assert landing_name(str(old)) == "landing-2"
    assert guard_folder(str(old), PUSHES).endswith("/landing-2/pushes")
    for _ in range(2):  # the first start was killed before its first batch
        assert take_over(str(lake), str(old)) == {"t": {}, "s": {0: 3}}
    assert noted(old, RECEIVER_HEALTH) == [("s", 0, 3, 3)]
    assert noted(old, PUSHES) == []
    landing(old / "landing-2", {"t": {"0": 1}, "s": {"0": 4}}, done=0)
    assert take_over(str(lake), str(old)) == {}
    check_topic_ids(str(old), AFTER)


def test_a_topic_is_replaced_again_before_and_after_the_new_checkpoint_has_begun(tmp_path: Path) -> None:
    old = tmp_path / "checkpoints"
    check_topic_ids(str(old), BEFORE)
    landing(old / "landing", {"t": {"0": 5}, "s": {"0": 3}}, done=1)
    check_topic_ids(str(old), AFTER, new_topic=True)
    check_topic_ids(str(old), {"t": "new-id", "s": "another"}, new_topic=True)
    assert landing_name(str(old)) == "landing-2"
    assert replaced_topics(str(old)) == ("landing", frozenset({"s", "t"}))
    landing(old / "landing-2", {"t": {"0": 5}, "s": {"0": 3}}, done=1)
    check_topic_ids(str(old), {"t": "third", "s": "another"}, new_topic=True)
    assert landing_name(str(old)) == "landing-3"
    assert replaced_topics(str(old)) == ("landing-2", frozenset({"t"}))


def test_asking_for_a_new_topic_that_is_not_new_changes_nothing(tmp_path: Path) -> None:
    check_topic_ids(str(tmp_path), BEFORE)
    check_topic_ids(str(tmp_path), BEFORE, new_topic=True)
    assert landing_name(str(tmp_path)) == "landing"
