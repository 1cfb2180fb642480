"""Replay beyond the operator's tables: quota reports, windows and labels; and a replay that is killed -9 midway."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from kafka_telemetry_lake.pipelines.lake.lake import Lake
from kafka_telemetry_lake.pipelines.lifecycle.follower import Lifecycle
from kafka_telemetry_lake.pipelines.quotas.client_reports import minutes_of, read_reports, replace_estimates
from kafka_telemetry_lake.pipelines.quotas.configured import ConfiguredQuotas, configured_quotas
from kafka_telemetry_lake.pipelines.tables.operator import METRIC_POINTS, QUOTA_REPORTS, QUOTA_USAGE
from kafka_telemetry_lake.udfs.conversion import shard
from kafka_telemetry_lake.udfs.conversion.shard import ShardRows
from kafka_telemetry_lake.udfs.quotas.reports import BYTES
from tests.support import otlp_builder
from tests.support.config_polls import record_quotas
from tests.support.lake_tables import table
from tests.support.local_stream import LocalStream
from tests.unit.replay.test_replay import run

pytestmark = pytest.mark.lake

SENT = next(iter(BYTES))
LANDED_AT = datetime(2027, 1, 15, 8, 0, tzinfo=UTC)


def record(offset: int, second: float, sent: float, team: str) -> dict[str, Any]:
    """A DELTA push of a producer that sent so many bytes to broker 1 in the five seconds before."""
    node = {"node_id": "1"}
    payload = otlp_builder.payload(
        otlp_builder.delta(sent, second - 5, second, name=SENT, attributes=node), resource={"team": team}
    )
    headers = {"client_instance_id": otlp_builder.CLIENT, "client_id": "app", "principal": "User:alice"}
    return {
        "topic": "client-telemetry", "partition": 0, "offset": offset, "value": payload,
        "timestamp": LANDED_AT + timedelta(seconds=second),
        "headers": [{"key": name, "value": text.encode()} for name, text in headers.items()],
    }  # fmt: skip


def follow(stream: LocalStream, batch: int, before: set[str]) -> None:
    """As the streams of quota reports and of the lifecycle do after a batch."""
    lake = str(stream.lake)
    files = set(DeltaTable(METRIC_POINTS.uri(lake)).file_uris()) - before
    reports = read_reports(Lake(lake), sorted(files))
    QUOTA_USAGE.create(lake)
    reports_table = QUOTA_REPORTS.create(lake)
    dated = reports.append_column("landed_date", pc.cast(reports["landed_at"], pa.date32()))
    write_deltalake(reports_table, dated.cast(QUOTA_REPORTS.stored), mode="append")
    replace_estimates(Lake(lake), minutes_of(reports), {"stream": batch})
    Lifecycle(lake).catch_up()


def fill(stream: LocalStream) -> None:
    for batch, records in enumerate(
        [[record(0, 10, 100.0, "red"), record(1, 15, 200.0, "red")], [record(2, 20, 400.0, "blue")]]
    ):
        before = set(DeltaTable(METRIC_POINTS.uri(str(stream.lake))).file_uris())
        stream.batch(records)
        follow(stream, batch, before)
        if batch == 0:
            stream.snapshot()


def reports_rates_labels(stream: LocalStream) -> tuple[Any, Any, Any]:
    """Reported bytes by offset, the bytes of the windows of 10 s, and the client's labels."""
    reports = sorted((row["offset"], row["bytes"]) for row in table(stream.lake, "quota_reports").to_pylist())
    usage = [row for row in table(stream.lake, "quota_usage").to_pylist() if row["window_seconds"] == 10]
    rates = sorted((row["window_start"].second, row["observed_rate"]) for row in usage if row["source"] == "client")
    changes = sorted(table(stream.lake, "client_changes").to_pylist(), key=lambda row: row["step"])
    return reports, rates, changes[-1]["labels"]


@pytest.fixture
def wrong_decoder(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Reads ten times the bytes, and the labels of no push, until it is repaired by a call."""
    right = shard._process

    def wrong(*arguments: Any) -> Any:
        rows, state = right(*arguments)
        points, outcomes = rows.metric_points, rows.push_outcomes
        for name in ("value", "delta"):
            place = points.schema.get_field_index(name)
            points = points.set_column(place, points.field(place), pc.multiply(points[name], 10.0))
        place = outcomes.schema.get_field_index("labels")
        label = pa.array([[("team", "wrong")]] * len(outcomes), outcomes.field(place).type)
        return ShardRows(
            points, rows.quarantine, outcomes.set_column(place, outcomes.field(place), label), rows.client_events
        ), state

    monkeypatch.setattr(shard, "_process", wrong)
    return lambda: monkeypatch.setattr(shard, "_process", right)


RIGHT = ([(0, 100.0), (1, 200.0), (2, 400.0)], [(0, 10.0), (10, 60.0)], [("team", "blue")])


@pytest.mark.parametrize("begin", [None, 20])
def test_quota_reports_their_windows_and_labels_are_of_the_new_generation(
    tmp_path: Path, wrong_decoder: Callable[[], None], begin: int | None
) -> None:
    stream = LocalStream(tmp_path)
    limits = configured_quotas([({"user": "alice"}, {"producer_byte_rate": 100.0})])
    configured = ConfiguredQuotas(None, tuple(limits))  # type: ignore[arg-type]  # as pushes of files: no cluster
    record_quotas(str(stream.lake), LANDED_AT - timedelta(hours=1), configured)
    fill(stream)
    wrong = reports_rates_labels(stream)
    assert wrong[0] == [(0, 1000.0), (1, 2000.0), (2, 4000.0)]
    assert wrong[2] == [("team", "wrong")]
    wrong_decoder()
    since = None if begin is None else (LANDED_AT + timedelta(seconds=begin)).isoformat()
    version = DeltaTable(QUOTA_REPORTS.uri(str(stream.lake))).version()
    run(stream, since and f"landed_at >= TIMESTAMPTZ '{since}'")
    found = reports_rates_labels(stream)
    assert DeltaTable(QUOTA_REPORTS.uri(str(stream.lake))).version() == version + 1
    if begin is None:
        assert found == RIGHT
    else:  # what lies before the snapshot stays as it was
        assert found[0] == [(0, 1000.0), (1, 2000.0), (2, 400.0)]
        assert found[2] == [("team", "blue")]
