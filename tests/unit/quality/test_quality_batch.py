"""The stream's own look at the rules: a fault in a batch shows in its counts, in `pipeline_metrics` and in the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from kafka_telemetry_lake.pipelines.ingest import operator_task
from kafka_telemetry_lake.pipelines.ingest.operator_task import ShardTask
from kafka_telemetry_lake.pipelines.quality.batch import BatchChecks, broken_rules, describe
from kafka_telemetry_lake.pipelines.quality.rules import RULES
from kafka_telemetry_lake.pipelines.tables.operator import METRIC_POINTS
from kafka_telemetry_lake.udfs.conversion.shard import ShardRows, process_parts
from tests.support.landing_records import captured
from tests.support.local_stream import SHARDS, LocalStream, run_tasks

AT = datetime(2026, 11, 21, 12, tzinfo=UTC)
Fault = Callable[[ShardRows], ShardRows]


@pytest.fixture(scope="module")
def landed(tmp_path_factory: pytest.TempPathFactory) -> LocalStream:
    """Captured pushes, one of them unreadable, landed and not judged yet."""
    stream = LocalStream(tmp_path_factory.mktemp("batch"))
    records = captured().slice(0, 60).to_pylist()
    records[3]["value"] = b"not a push"
    stream.land(records)
    return stream


def counts(stream: LocalStream, paths: list[str]) -> Counter[str]:
    found: Counter[str] = Counter()
    for row in run_tasks(ShardTask(str(stream.lake), 0, tuple(paths), SHARDS, stream.state.uri)):
        found.update(row["counts"])
    return found


def test_a_sound_batch_breaks_no_rule(landed: LocalStream) -> None:
    found = counts(landed, landed.paths())
    assert broken_rules(found) == {}
    assert found["in_files"] == found["judged"] == found["push_outcomes"] == 60
    assert found["outcome_points"] == found["metric_points"] > 1000
    assert found["outcomes_rejected"] == found["quarantine"] == 1


def _with(table: str, column: str, value: Any, where: Callable[[pa.Table], Any]) -> Fault:
    """The value in the rows of a mask."""

    def fault(rows: ShardRows) -> ShardRows:
        original = getattr(rows, table)
        field = original.schema.field(column)
        plain = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        changed = pc.if_else(where(original), pa.scalar(value, plain), original[column].cast(plain))
        return replace(rows, **{table: original.set_column(original.schema.get_field_index(column), column, changed)})

    return fault


def _counted(points: pa.Table) -> Any:
    return pc.and_kleene(points["is_monotonic"], pc.is_valid(points["delta"]))


def _less(table: str) -> Fault:
    return lambda rows: replace(rows, **{table: getattr(rows, table).slice(1)})


FAULTS: dict[str, Fault] = {
    "points_never_fall": _with("metric_points", "delta", -1.0, _counted),
    "points_counted_have_a_delta": _with("metric_points", "delta_status", "value", _counted),
    "points_kind_known": _with("metric_points", "kind", "counter", _counted),
    "points_temporality_known": _with("metric_points", "temporality", None, _counted),
    "outcomes_known": _with("push_outcomes", "outcome", "fine", lambda rows: pc.greater(rows["points"], 0)),
    "outcomes_count_points": _less("metric_points"),
    "outcomes_have_quarantine_rows": _less("quarantine"),
    "pushes_judged": _less("push_outcomes"),
    "quarantine_says_why": _with("quarantine", "reason", "", lambda rows: pc.is_valid(rows["reason"])),
}


@pytest.mark.parametrize("rule", FAULTS)
def test_a_fault_of_the_operator_shows(landed: LocalStream, monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    def faulty(*arguments: Any) -> Iterator[tuple[ShardRows, Any, Any]]:
        for rows, changes, after in process_parts(*arguments):
            yield FAULTS[rule](rows), changes, after

    monkeypatch.setattr(operator_task, "process_parts", faulty)
    assert broken_rules(counts(landed, landed.paths()))[rule] > 0


def test_an_offset_that_stands_twice_shows(landed: LocalStream) -> None:
    path = landed.paths()[0]
    assert broken_rules(counts(landed, [path, path]))["outcomes_once"] == 60


def test_shards_that_miss_pushes_show(landed: LocalStream) -> None:
    task = ShardTask(str(landed.lake), 0, tuple(landed.paths()), SHARDS, landed.state.uri)
    (result,) = task([pa.record_batch({"id": [0]})])
    (first,) = result["counts"].to_pylist(maps_as_pydicts="strict")
    lost = first["in_files"] - first["judged"]
    assert lost > 0
    assert broken_rules(first) == {"pushes_judged": lost}


def test_one_of_sixteen_points_is_looked_at() -> None:
    row = {"delta_status": "fine", "kind": "gauge", "time": AT, "landed_at": AT}
    points = pa.Table.from_pylist([row] * 33, METRIC_POINTS.schema)
    checks = BatchChecks()
    checks.write(METRIC_POINTS, points)
    checks.write(METRIC_POINTS, points.slice(0, 1))
    assert broken_rules(checks.counts()) == {"points_status_known": 4}
    late = points.set_column(points.schema.get_field_index("time"), "time", pa.array([AT + timedelta(hours=25)] * 33))
    checks = BatchChecks()
    checks.write(METRIC_POINTS, late.set_column(points.schema.get_field_index("delta_start"), "delta_start",
                                                pa.array([AT + timedelta(hours=26)] * 33)))  # fmt: skip
    assert broken_rules(checks.counts()).keys() >= {"points_not_from_the_future", "points_delta_spans_time"}


def test_descriptions_of_broken_rules() -> None:
    assert describe({"points_never_fall": 1200}) == [
        "metric_points: no monotonic sum has a negative delta, except those the client itself sent (status negative). "
        "1,200 rows break this rule. What to do: this is a bug: report it with the rows named here"
    ]


def test_rules_that_the_stream_looks_at() -> None:
    of_the_operator = {"metric_points", "push_outcomes", "quarantine"}
    looked_at = {rule.name for rule in RULES if rule.in_batch or (rule.breaks and rule.table in of_the_operator)}
    here = {"points_status_known", "points_delta_spans_time", "points_not_from_the_future", "outcomes_once"}
    assert looked_at == FAULTS.keys() | here
