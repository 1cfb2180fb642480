"""Which topics a batch has records of, by what Spark notes of its offsets."""

from __future__ import annotations

from pathlib import Path

from kafka_telemetry_lake.pipelines.ingest.offset_log import OffsetLog

from .test_lost_records import checkpoint


def test_a_batch_has_records_of_the_topics_whose_offsets_it_moves(tmp_path: Path) -> None:
    folder = checkpoint(
        tmp_path / "c",
        {"t": {"0": 3}, "s": {"0": 7}},  # where a new checkpoint begins
        {"t": {"0": 4}, "s": {"0": 7}},
        {"t": {"0": 4}, "s": {"0": 8}},
        {"t": {"0": 4, "1": 0}, "s": {"0": 9}},  # a partition that is new
        {"t": {"0": 5, "1": 0}, "s": {"0": 9}, "q": {"0": 0}},  # a topic that is new
    )
    topics = [{"t"}, {"s"}, {"t", "s"}, {"t", "q"}]
    one = OffsetLog(folder)
    assert [one.topics_of_batch(batch) for batch in (0, 1, 1, 2, 3)] == [topics[0], topics[1], *topics[1:]]
    # After a restart a batch is the first that is asked for.
    assert [OffsetLog(folder).topics_of_batch(batch) for batch in range(4)] == topics


def test_of_files_it_is_not_known(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "c", {})
    (tmp_path / "c" / "offsets" / "0").write_text('v1\n{"conf":{}}\n{"logOffset":0}')
    assert OffsetLog(folder).topics_of_batch(0) is None
