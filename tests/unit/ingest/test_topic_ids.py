"""A landing topic that was deleted and made again is refused, or read from its beginning when asked."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from kafka_telemetry_lake.pipelines.ingest.checkpoint import landing_name
from kafka_telemetry_lake.pipelines.ingest.replaced_topics import (
    TopicReplacedError,
    check_topic_ids,
    guard_folder,
    replaced_topics,
    take_over,
)
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES, QUARANTINE, QUOTA_SAMPLES, RECEIVER_HEALTH
from kafka_telemetry_lake.pipelines.tables.table import Table

BEFORE, AFTER = {"t": "old-id", "s": "status-id"}, {"t": "new-id", "s": "status-id"}
AT = datetime(2026, 11, 21, tzinfo=UTC)
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


def store(lake: Path, to: Table, topic: str, *offsets: tuple[int, int]) -> None:
    identity = {"source": "kafka", "topic": topic, "landed_at": AT, "landed_date": AT.date()}
    rows = [identity | {"partition": partition, "offset": offset} for partition, offset in offsets]
    write_deltalake(to.create(str(lake)), pa.Table.from_pylist(rows, to.stored), mode="append")


def noted(checkpoints: Path, table: Table) -> list[tuple[str, int, int, int]]:
    note = json.loads((Path(guard_folder(str(checkpoints), table)) / "offsets-before.json").read_text())
    return sorted((each["topic"], each["partition"], each["low"], each["high"]) for each in note["ranges"])


def test_a_topic_with_another_id_is_refused_with_what_to_do(tmp_path: Path) -> None:
    checkpoints = str(tmp_path)
    check_topic_ids(checkpoints, BEFORE)
    check_topic_ids(checkpoints, BEFORE)
    for _ in range(2):  # nothing is noted by a refused start
        with pytest.raises(TopicReplacedError, match=r"^topic t .*topic id new-id, before old-id.* --new-topic"):
            check_topic_ids(checkpoints, AFTER)
    check_topic_ids(checkpoints, BEFORE)
    check_topic_ids(checkpoints, BEFORE, new_topic=True)  # it isn't new, which changes nothing
    assert landing_name(checkpoints) == "landing"


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


def test_what_is_read_already_is_not_looked_for_again(tmp_path: Path) -> None:
    """Each range that is looked for makes a batch a join with the table."""
    lake, old = tmp_path / "lake", tmp_path / "checkpoints"
    check_topic_ids(str(old), BEFORE)
    landing(old / "landing", {"t": {"0": 5}, "s": {"0": 5, "1": 7}}, done=1)
    ranges = [("s", 0, 0, 4), ("s", 0, 0, 5), ("s", 1, 0, 6), ("s", 2, 0, 3), ("other", 0, 0, 3), ("t", 0, 0, 9)]
    (old / "landing" / RECEIVER_HEALTH.name / "offsets-before.json").write_text(json.dumps({"version": 3, "ranges": [
        {"source": "kafka", "topic": topic, "partition": partition, "low": low, "high": high}
        for topic, partition, low, high in ranges
    ]}))  # fmt: skip
    RECEIVER_HEALTH.create(str(lake))
    check_topic_ids(str(old), AFTER, new_topic=True)
    take_over(str(lake), str(old))
    assert noted(old, RECEIVER_HEALTH) == [("other", 0, 0, 3), ("s", 0, 0, 5), ("s", 2, 0, 3)]


def test_a_checkpoint_that_finished_no_batch_is_continued_at_its_first_offset(tmp_path: Path) -> None:
    lake, old = tmp_path / "lake", tmp_path / "checkpoints"
    check_topic_ids(str(old), BEFORE)
    landing(old / "landing", {"t": {"0": 5}, "s": {"0": 90}}, done=0)
    (old / "landing" / "sources" / "0" / "0").write_bytes(b'\x00v1\n{"s":{"0":40}}')
    check_topic_ids(str(old), AFTER, new_topic=True)
    assert take_over(str(lake), str(old)) == {"t": {}, "s": {0: 40}}


def test_a_new_lake_has_nothing_to_take_over(tmp_path: Path) -> None:
    assert take_over(str(tmp_path / "lake"), str(tmp_path / "checkpoints")) == {}
    assert not (tmp_path / "checkpoints").exists()


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
