"""The states that a job gives real clients that closed, were cut off or live, of kinds that `test_lifecycle` lacks."""

from __future__ import annotations

import pytest

from benchmarks.fates import Instance, measure, right, table

INTERVAL_S = 2.0
KINDS = ("java consumer", "java streams", "librdkafka producer", "franz-go producer")
FATES = ("closed", "cut_off", "alive")


@pytest.mark.slow
def test_states_of_clients_that_closed_were_cut_off_or_live() -> None:
    instances = measure(KINDS, FATES, rounds=1, interval_s=INTERVAL_S, return_s=0)
    print(table(instances, INTERVAL_S))
    assert {each.kind for each in instances} >= {"java consumer", "java streams", "librdkafka producer"}
    assert [each for each in instances if not right(each)] == []

    def of(kind: str, fate: str) -> list[Instance]:
        return [each for each in instances if (each.kind, each.fate) == (kind, fate)]

    assert [each.state for each in of("java consumer", "closed")] == ["terminated"]
    assert [each.cause for each in of("librdkafka producer", "cut_off")] == ["killed_or_cut_off"]
