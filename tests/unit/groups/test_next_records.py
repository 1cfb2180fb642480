"""Which record is the first at or after an offset, of records as a consumer returns them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kafka_telemetry_lake.pipelines.groups.logs import Log
from kafka_telemetry_lake.pipelines.groups.next_records import NextRecords, _may_have_record, _Search, _stays

PLACE = ("t", 0)


@pytest.mark.parametrize(
    ("records", "found"),
    [
        (range(3, 8), {0: 3, 3: 3, 5: 5, 7: 7}),  # 8 and 20 aren't reached
        ([3, 5, 9, 20], {0: 3, 3: 3, 5: 5, 7: 9, 8: 9, 20: 20}),
        ([30], {0: 30, 3: 30, 5: 30, 7: 30, 8: 30, 20: 30}),
    ],
)
def test_the_first_record_at_or_after_each_offset(records: Any, found: dict[int, int]) -> None:
    search = _Search(None, None, {PLACE: Log(0, 40, 40)}, 1.0, {})
    search._note(PLACE, [0, 3, 5, 7, 8, 20], [SimpleNamespace(offset=lambda each=each: each) for each in records])
    assert search.found == {(*PLACE, own): offset for own, offset in found.items()}


def test_what_is_looked_for_and_what_is_remembered() -> None:
    log = Log(0, 9, 7, is_compacted=False, topic_id="id", may_read=True)
    assert [_may_have_record((*PLACE, offset), log) for offset in (6, 7, 8)] == [True, False, False]
    assert not _may_have_record((*PLACE, 6), Log(0, 9, 7))  # no right to read
    assert not _may_have_record((*PLACE, 6), Log(problem="no leader"))
    assert not _may_have_record((*PLACE, 6), None)
    assert [_stays(offset, log) for offset in (6, 7)] == [True, False]
    assert not _stays(6, Log(0, 9, 7, is_compacted=True, topic_id="id"))  # compaction may take it
    assert not _stays(6, Log(0, 9, 7, is_compacted=None, topic_id="id"))
    assert NextRecords().find(None, "", {}, {PLACE: log}, [(*PLACE, 7)]) == {}  # type: ignore[arg-type]  # nobody is asked
