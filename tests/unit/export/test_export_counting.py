"""Counters of a lake are what SQL says: after each restart, with late, replayed and hostile rows, and a million ids."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow.fs import LocalFileSystem

from kafka_telemetry_lake.pipelines.export import counting as module
from kafka_telemetry_lake.pipelines.export import known_clients
from kafka_telemetry_lake.pipelines.export.measures import COUNTERS, DIMENSIONS, LEVELS
from kafka_telemetry_lake.pipelines.forget.others import OtherFiles
from kafka_telemetry_lake.pipelines.forget.subject import Subject
from kafka_telemetry_lake.pipelines.lake.errors import StateError
from kafka_telemetry_lake.pipelines.tables.lifecycle import APPLICATION_RULES, CLIENT_CHANGES
from kafka_telemetry_lake.pipelines.tables.operator import METRIC_POINTS
from kafka_telemetry_lake.udfs.rows import TIMESTAMP
from tests.unit.export.made_lake import (
    BYTES_TO,
    HOSTILE,
    LATENCY,
    LATENCY_MAX,
    NOW,
    OPENED,
    READ,
    SENT,
    SENT_TO,
    ask,
    client,
    counting,
    make_lake,
    note_of,
    point,
    put,
    shown,
)

pytestmark = pytest.mark.lake

EVERY = [
    point("a", SENT, delta=10), point("a", SENT, delta=5, second=60), point("b", SENT, delta=7),
    point("a", SENT_TO, delta=9, topic="t"), point("a", BYTES_TO, delta=100, topic="t"),
    point("a", BYTES_TO, delta=20, topic="u"), point("r", READ, delta=4), point("r", READ, delta=4, topic="t"),
    point("b", SENT, delta=50, status="duplicate"), point("b", SENT, delta=60, status="conflict"),
    point("b", SENT, delta=70, status="too_late"), point("b", SENT, value=3),
    point("a", "producer.outgoing.byte.total", delta=1), point("r", "consumer.outgoing.byte.total", delta=2),
    point("m", "admin.client.outgoing.byte.total", delta=4),
]  # fmt: skip


def of_view(lake: str, *measures: str, how: str = "sum") -> list[dict[tuple[str, ...] | None, float]]:
    """Values by client id, of each measure."""
    columns = ", ".join(f"{how}({measure})" for measure in measures)
    rows = ask(lake, f"SELECT cluster_id, client_id, {columns} FROM client_measures GROUP BY ALL")
    return [{row[:2]: row[n] for row in rows if row[n] is not None} for n in range(2, 2 + len(measures))]


def test_counters_are_the_sums_of_the_measures(tmp_path: Path) -> None:
    lake = make_lake(tmp_path, *EVERY)
    found = counting(lake)
    assert shown(found, "client", "records_sent") == {("c", "a"): 15, ("c", "b"): 7}
    assert shown(found, "topic", "records_sent") == {("c", "t"): 9}
    assert shown(found, "topic", "bytes_sent") == {("c", "t"): 100, ("c", "u"): 20}
    assert shown(found, "topic", "records_consumed") == {("c", "t"): 4}
    assert shown(found, "software", "records_sent") == {("c", "apache-kafka-java", "4.3.0"): 22}
    measures = [counter.measure for counter in COUNTERS]
    assert [shown(found, "client", measure) for measure in measures] == of_view(lake, *measures)
    found.close()


def test_new_rows_count_once_and_a_restart_goes_on(tmp_path: Path) -> None:
    lake = make_lake(tmp_path, point("a", SENT, delta=10))
    found = counting(lake)
    put(
        lake,
        METRIC_POINTS,
        [point("a", SENT, delta=3, second=30), point("a", SENT, delta=2, second=-7200, status="late_delta")],
    )
    found.read()
    assert shown(found, "client", "records_sent") == {("c", "a"): 15}
    put(lake, METRIC_POINTS, [point("a", SENT, delta=1, second=60)])
    again = counting(lake)  # the first one ends without a word, as with a kill
    assert shown(again, "client", "records_sent") == {("c", "a"): 15}
    again.read()
    again.read()
    assert [shown(again, "client", "records_sent")] == of_view(lake, "records_sent") == [{("c", "a"): 16}]


def test_what_is_exported_was_stored_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = make_lake(tmp_path, point("a", SENT, delta=10))
    found = counting(lake)
    put(lake, METRIC_POINTS, [point("a", SENT, delta=3, second=30)])
    monkeypatch.setattr("kafka_telemetry_lake.pipelines.lake.notes.write_json", _fail)
    with pytest.raises(OSError, match="disk is full"):
        found.read()
    monkeypatch.undo()
    again = counting(lake)
    assert shown(again, "client", "records_sent") == {("c", "a"): 10}
    again.read()
    assert shown(again, "client", "records_sent") == {("c", "a"): 13}


def _fail(*_: object) -> None:
    raise OSError("the disk is full")


def test_replaced_rows_and_dropped_days_change_no_counter(tmp_path: Path) -> None:
    lake = make_lake(tmp_path, point("a", SENT, delta=10), point("b", SENT, delta=1))
    found = counting(lake)
    table = METRIC_POINTS.with_partition(pa.Table.from_pylist([point("a", SENT, delta=12)], METRIC_POINTS.schema))
    write_deltalake(METRIC_POINTS.uri(lake), table, mode="overwrite")  # as a replay does
    found.read()
    assert shown(found, "client", "records_sent") == {("c", "a"): 10, ("c", "b"): 1}
    DeltaTable(METRIC_POINTS.uri(lake)).delete(f"landed_date <= '{NOW.date()}'")  # as retention does
    put(lake, METRIC_POINTS, [point("a", SENT, delta=5, second=60)])
    again = counting(lake)
    again.read()
    assert shown(again, "client", "records_sent") == {("c", "a"): 15, ("c", "b"): 1}


def forget_commits(lake: str) -> None:
    table = DeltaTable(METRIC_POINTS.uri(lake))
    table.create_checkpoint()
    for log in sorted((Path(lake) / "metric_points" / "_delta_log").glob("*.json"))[: table.version()]:
        log.unlink()


def test_rows_whose_commits_are_forgotten_wait_for_their_clients_too(tmp_path: Path) -> None:
    lake = make_lake(tmp_path, point("a", SENT, delta=10))
    counting(lake, by=["software"]).close()
    put(lake, METRIC_POINTS, [point("new", SENT, delta=3, second=30)])
    put(lake, METRIC_POINTS, [])
    forget_commits(lake)
    again = counting(lake, by=["software"])
    again.read()
    assert shown(again, "software", "records_sent") == {("c", "apache-kafka-java", "4.3.0"): 10}
    put(lake, CLIENT_CHANGES, [client("new")])
    again.read()
    assert shown(again, "software", "records_sent") == {("c", "apache-kafka-java", "4.3.0"): 13}


def test_rows_wait_for_their_clients_to_be_known_but_not_for_long(tmp_path: Path) -> None:
    rules = [{"position": 0, "client_id": "new*", "application": "shop", "owner": "team"}]
    lake = make_lake(tmp_path, point("a", SENT, delta=10))
    put(lake, APPLICATION_RULES, rules)
    now = [NOW.timestamp()]
    found = module.Counting(lake, "x", module.Selection(("application",)), lambda: now[0])
    OPENED.append(found)
    put(lake, METRIC_POINTS, [point("new", SENT, delta=3)])
    found.read()
    assert shown(found, "application", "records_sent") == {("c", ""): 10}
    put(lake, CLIENT_CHANGES, [client("new")])
    found.read()
    assert shown(found, "application", "records_sent") == {("c", ""): 10, ("c", "shop"): 3}
    put(lake, METRIC_POINTS, [point("newer", SENT, delta=3)])
    found.read()
    now[0] += known_clients.WAIT_S
    found.read()
    assert shown(found, "application", "records_sent") == {("c", ""): 13, ("c", "shop"): 3}


def test_the_newest_rows_at_the_start_wait_for_their_clients_too(tmp_path: Path) -> None:
    gone, new = point("gone", SENT, delta=2, second=-known_clients.WAIT_S), point("new", SENT, delta=3)
    lake = make_lake(tmp_path, gone, new, clients=[])
    now = [NOW.timestamp()]
    found = module.Counting(lake, "x", module.Selection(("software",)), lambda: now[0])
    OPENED.append(found)
    found.read()
    assert shown(found, "software", "records_sent") == {}
    assert not note_of(lake, "x").exists()
    put(lake, CLIENT_CHANGES, [client("new")])
    found.read()
    assert shown(found, "software", "records_sent") == {("c", "apache-kafka-java", "4.3.0"): 3, ("c", "", ""): 2}


def test_the_first_ones_by_their_count_have_series_of_their_own(tmp_path: Path) -> None:
    lake = make_lake(tmp_path, *(point(f"client-{n}", SENT, delta=n) for n in range(1, 31)))
    found = counting(lake, top=3)
    rest = sum(range(1, 28))
    assert shown(found, "client", "records_sent") == {
        ("c", "client-30"): 30, ("c", "client-29"): 29, ("c", "client-28"): 28, None: rest,
    }  # fmt: skip
    put(lake, METRIC_POINTS, [point(f"client-{n}", SENT, delta=1, second=20) for n in range(1, 31)])
    found.read()
    after = shown(found, "client", "records_sent")
    assert after == {("c", "client-30"): 31, ("c", "client-29"): 30, ("c", "client-28"): 29, None: rest + 27}
    assert sum(after.values()) == sum(of_view(lake, "records_sent")[0].values())


def test_hostile_client_ids_are_labels_like_others_and_long_ones_are_cut(tmp_path: Path) -> None:
    rows = [point(name, SENT, delta=n + 1, instance=f"i{n}") for n, name in enumerate([*HOSTILE, "x" * 5001])]
    clients = [client(f"i{n}", client_id=row["client_id"]) for n, row in enumerate(rows)]
    lake = make_lake(tmp_path, *rows, clients=clients)
    found = shown(counting(lake), "client", "records_sent")
    assert found == {("c", name): n + 1 for n, name in enumerate(HOSTILE) if len(name) < 256} | {
        ("c", "x" * 256): 8 + len(HOSTILE) + 1
    }


def test_a_topic_with_a_dot_counts_once_however_often_a_consumer_pushes_it(tmp_path: Path) -> None:
    lake = make_lake(
        tmp_path,
        point("r", READ, delta=4), point("r", READ, delta=4, topic="a.b"), point("r", READ, delta=4, topic="a_b"),
        point("s", READ, delta=5), point("s", READ, delta=5, topic="x_y"),
    )  # fmt: skip
    assert shown(counting(lake), "topic", "records_consumed") == {("c", "a.b"): 4, ("c", "x_y"): 5}


def test_gauges_are_means_and_maxima_of_the_window(tmp_path: Path) -> None:
    lake = make_lake(tmp_path, point("a", LATENCY, value=500, second=-1000))
    put(lake, METRIC_POINTS, [point("a", LATENCY, value=v, second=-30, node_id="1") for v in (2, 4, 0)])
    put(lake, METRIC_POINTS, [point("a", LATENCY_MAX, value=v, second=-20, node_id="1") for v in (7, 9)])
    put(lake, METRIC_POINTS, [point("b", LATENCY_MAX, value=3, second=-10)])
    put(lake, CLIENT_CHANGES, [client("b")])
    found = counting(lake, top=1)
    values = dict(found.values())
    assert values["client", "request_latency_avg_ms"] == {("c", "a"): 3}
    assert values["client", "request_latency_max_ms"] == {("c", "a"): 9, None: 3}
    again = dict(counting(lake, top=1).values())
    assert again == values  # a restart reads them again
    later = {each: NOW.timestamp() + each for each in (585, 3600)}
    assert dict(counting(lake, now=later[585]).values())["client", "request_latency_max_ms"] == {("c", "b"): 3}
    assert dict(counting(lake, now=later[3600]).values()) == {}


def test_maxima_are_those_of_the_view(tmp_path: Path) -> None:
    rows = [
        point(f"p{n % 7}", metric.removeprefix("org.apache.kafka."), value=float(n * 37 % 101 + 1), second=-n % 60)
        for n, metric in enumerate(f"{metric}" for level in LEVELS if not level.is_mean for metric in level.metrics * 5)
    ]
    lake = make_lake(tmp_path, *rows)
    values, measures = dict(counting(lake).values()), [level.measure for level in LEVELS if not level.is_mean]
    assert [values.get(("client", measure), {}) for measure in measures] == of_view(lake, *measures, how="max")


def test_a_damaged_note_is_named_with_what_to_do(tmp_path: Path) -> None:
    lake = make_lake(tmp_path, point("a", SENT, delta=1))
    counting(lake).close()
    for damage in (
        '{"version": 1',
        note_of(lake).read_text().replace('"version": ', '"version": 1'),
        '{"format": 1, "version": null}',
    ):
        note_of(lake).write_text(damage)
        with pytest.raises(StateError, match=r"prometheus-e0+.json is damaged .* delete it, and counters begin at"):
            counting(lake)
    note_of(lake).unlink()
    assert shown(counting(lake), "client", "records_sent") == {("c", "a"): 1}


def test_an_erased_client_is_in_no_note_and_instances_of_one_id_are_told_apart(tmp_path: Path) -> None:
    rows = point("a", SENT, delta=10), point("b", SENT, delta=1), point("b", SENT, delta=2, instance="i2")
    lake = make_lake(tmp_path, *rows)
    counting(lake, by=["client", "instance"]).close()
    subject = Subject(instances=frozenset({"a"}), client_ids=frozenset({"a"}))
    assert OtherFiles(LocalFileSystem(), subject).forget(str(note_of(lake)), write=True)
    again = counting(lake, by=["client", "instance"])
    assert {dimension for dimension, _ in again.families} == {"client", "instance"}
    assert shown(again, "client", "records_sent") == {("c", "b"): 3}
    assert shown(again, "instance", "records_sent") == {("c", "b", "b"): 1, ("c", "i2", "b"): 2}


@pytest.mark.slow
def test_a_million_client_ids_cost_bounded_series_and_memory(tmp_path: Path) -> None:
    import resource  # noqa: PLC0415  # not on every system

    number = 1_000_000
    lake = make_lake(tmp_path)
    ids = pa.array([f"client-{n:07d}" for n in range(number)])
    columns = {
        "cluster_id": pa.array(["c"] * number), "client_instance_id": ids, "client_id": ids,
        "metric": pa.array([f"org.apache.kafka.{SENT}"] * number), "delta": pa.array(range(number), pa.float64()),
        "delta_status": pa.array(["delta"] * number), "landed_at": pa.array([NOW] * number, TIMESTAMP),
    }  # fmt: skip
    rows = pa.table(
        {f.name: columns.get(f.name, pa.nulls(number, f.type)) for f in METRIC_POINTS.schema}, METRIC_POINTS.schema
    )
    del columns, ids
    write_deltalake(METRIC_POINTS.uri(lake), METRIC_POINTS.with_partition(rows), mode="append")
    del rows
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    now = [NOW.timestamp()]
    found = module.Counting(lake, "x", module.Selection(tuple(DIMENSIONS)), lambda: now[0])
    OPENED.append(found)
    now[0] += known_clients.WAIT_S  # no client is known
    found.read()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    after = shown(found, "client", "records_sent")
    assert len(after) == 101
    assert sum(after.values()) == number * (number - 1) / 2
    assert after["c", f"client-{number - 1:07d}"] == number - 1
    assert grown < 1_500_000  # kB
    assert note_of(lake, "x").stat().st_size < 1 << 20
