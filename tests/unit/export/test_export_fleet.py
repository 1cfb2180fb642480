"""What is served: names and labels that promtool takes, figures equal to SQL, rendered once for many scrapes."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from kafka_telemetry_lake.pipelines.export import prometheus as module
from kafka_telemetry_lake.pipelines.export.measures import DIMENSIONS, STATES, State
from kafka_telemetry_lake.pipelines.export.prometheus import RENDERED, Fleet, RenderedOnce, _first
from kafka_telemetry_lake.pipelines.query.query_errors import QueryError
from kafka_telemetry_lake.pipelines.tables.findings import FINDING_CHANGES
from kafka_telemetry_lake.pipelines.tables.lifecycle import CLIENT_CHANGES
from kafka_telemetry_lake.pipelines.tables.operator import QUOTA_USAGE
from tests.unit.export.made_lake import HOSTILE, NOW, SENT, client, counting, make_lake, note_of, point, put
from tests.unit.export.test_export_counting import EVERY
from tests.unit.notify.changed_findings import change

pytestmark = pytest.mark.lake

P = "telemetry_lake_"


def fleet_of(lake: str, top: int = 100, **selection: Any) -> Fleet:
    found = Fleet(lake, counting(lake, top=top, **selection), top, NOW.timestamp)
    assert found.refresh()
    return found


def text_of(fleet: Fleet) -> str:
    registry = CollectorRegistry()
    registry.register(fleet)
    return generate_latest(registry).decode()


def samples(fleet: Fleet, name: str) -> dict[tuple[tuple[str, str], ...], float]:
    """Samples of a metric, as they are read from its text."""
    return {
        tuple(sample.labels.items()): sample.value
        for family in text_string_to_metric_families(text_of(fleet))
        for sample in family.samples
        if sample.name == P + name
    }


def hostile_lake(folder: Path) -> str:
    rows = [
        point(name, SENT, delta=n + 1, instance=f"i{n}")
        for n, name in enumerate([*HOSTILE, *(f"c{n}" for n in range(5))])
    ]
    return make_lake(folder, *rows, clients=[client(f"i{n}", client_id=row["client_id"]) for n, row in enumerate(rows)])


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A lake to which no test adds anything but a note of what is exported."""
    times = (
        point("a", "consumer.coordinator.rebalance.latency.total", delta=1500),
        point("a", "producer.record.queue.time.max", value=250),
    )
    made = make_lake(tmp_path_factory.mktemp("fleet"), *EVERY, *times)
    found = change("orders", severity="error", owner="shop"), change("bills", severity="info", owner=None)
    put(made, FINDING_CHANGES, [*found, change("gone"), change("gone", "resolved", 5)])
    put(made, CLIENT_CHANGES, [client("gone", state="terminated"), client("old", "3.9.0", state="silent")])
    usage = {
        "cluster_id": "c", "quota_type": "produce", "user": "ann", "broker_id": 1, "window_start": NOW,
        "window_seconds": 10, "source": "broker", "observed_rate": 75.0, "quota_limit": 100.0, "used_percent": 75.0,
        "throttled": False,
    }  # fmt: skip
    beyond = {"client_id": "b", "observed_rate": 120.0, "used_percent": 120.0, "throttled": True}
    put(made, QUOTA_USAGE, [usage | {"client_id": "a"}, usage | beyond])
    return made


@pytest.fixture
def without_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """Views are not asked, which takes longer than all else."""
    monkeypatch.setattr(module, "states", lambda *_: [])


def test_states_are_counted_as_the_views_have_them_and_units_are_base_units(lake: str) -> None:
    found = fleet_of(lake)
    assert list(samples(found, "client_rebalance_seconds_total").values()) == [1.5]
    assert list(samples(found, "client_queue_time_max_seconds").values()) == [0.25]
    assert samples(found, "clients") == {
        (("cluster_id", "c"), ("state", "active")): 4, (("cluster_id", "c"), ("state", "silent")): 1,
        (("cluster_id", "c"), ("state", "terminated")): 1,
    }  # fmt: skip
    assert {
        dict(labels)["software_version"]: value
        for labels, value in samples(found, "software_clients").items() if dict(labels)["state"] == "silent"
    } == {"3.9.0": 1}  # fmt: skip
    owners = {
        (dict(each).get("owner"), dict(each)["severity"]): n for each, n in samples(found, "open_findings").items()
    }
    assert owners == {("shop", "error"): 1, (None, "info"): 1}
    used = {dict(labels)["client_id"]: value for labels, value in samples(found, "quota_used_ratio").items()}
    assert used == {"a": pytest.approx(0.75), "b": pytest.approx(1.2)}
    left = {
        dict(labels)["client_id"]: value for labels, value in samples(found, "quota_headroom_bytes_per_second").items()
    }
    assert left == {"a": 25, "b": 0}
    (throttled,) = samples(found, "quota_throttled_entities").values()
    assert throttled == 1


def test_the_rest_of_a_gauge_has_its_sum_or_its_greatest_value() -> None:
    rows = [("c", name, value) for name, value in (("a", 5.0), ("b", 4.0), ("d", 3.0), ("e", 1.0))]
    summed = State("n", "", "", ("cluster_id",))
    assert _first(summed, ["cluster_id", "client_id"], rows, 2)[2:] == [
        ({"cluster_id": "c", "client_id": "other", "rest": "true"}, 4.0)
    ]
    most = State("n", "", "", ("cluster_id",), "max")
    assert _first(most, ["cluster_id", "client_id"], rows, 2)[2][1] == 3
    least = State("n", "", "", rest="none", first="least")
    assert [labels["client_id"] for labels, _ in _first(least, ["cluster_id", "client_id"], rows, 2)] == ["e", "d"]
    long = [("c", "x" * 300, 1.0), ("c", "x" * 301, 2.0)]
    assert _first(summed, ["cluster_id", "client_id"], long, 2) == [({"cluster_id": "c", "client_id": "x" * 256}, 3.0)]


@pytest.mark.slow
def test_hostile_label_values_are_read_back_in_both_formats_and_a_client_named_other_is_not_the_rest(
    tmp_path: Path,
) -> None:
    lake = hostile_lake(tmp_path)
    for top, names in ((100, {name[:256] for name in HOSTILE}), (10, {"other", "", "{}=,"})):
        note_of(lake).unlink(missing_ok=True)
        registry = CollectorRegistry()
        registry.register(fleet_of(lake, top=top))
        for families in (
            text_string_to_metric_families(generate_latest(registry).decode()),
            parse_openmetrics(generate_openmetrics(registry).decode()),  # type: ignore[no-untyped-call]  # theirs
        ):
            rows = [s for family in families for s in family.samples if s.name == f"{P}client_records_sent_total"]
            assert len(rows) == min(top + 1, len(HOSTILE) + 5)
            assert {row.labels.get("client_id", "") for row in rows} >= names
            others = {row.labels.get("rest"): row.value for row in rows if row.labels.get("client_id") == "other"}
            assert others == ({None: 5, "true": 1 + 2 + 3 + 4} if top == 10 else {None: 5})


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool")
def test_promtool_finds_nothing_wrong_with_names_and_format(lake: str, tmp_path: Path) -> None:
    (tmp_path / "hostile").mkdir()
    for made in (lake, hostile_lake(tmp_path / "hostile")):
        text = text_of(fleet_of(made, by=tuple(DIMENSIONS)))
        done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.usefixtures("without_states")
def test_a_lake_that_cannot_be_read_leaves_the_figures_and_counts_the_failure(
    lake: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    found = fleet_of(lake)
    before = samples(found, "client_records_sent_total")

    def fail(*_: object) -> None:
        raise QueryError("it is\ngone")

    monkeypatch.setattr(found, "_states_due", 0)
    monkeypatch.setattr(module, "states", fail)
    assert not found.refresh()
    assert not found.refresh()
    assert samples(found, "client_records_sent_total") == before
    assert list(samples(found, "export_refresh_errors_total").values()) == [2]
    assert "the lake can't be read, figures stay as they are: it is gone" in caplog.text


@pytest.mark.parametrize(("cost", "asked"), [(1e9, 1), (0, 2)])
def test_views_are_asked_again_after_a_multiple_of_what_they_took(
    lake: str, monkeypatch: pytest.MonkeyPatch, cost: float, asked: int
) -> None:
    calls: list[object] = []

    def none(*given: object) -> list[Metric]:
        calls.append(given)
        return []

    monkeypatch.setattr(module, "STATES_COST", cost)
    monkeypatch.setattr(module, "states", none)
    fleet_of(lake).refresh()
    assert len(calls) == asked


@pytest.mark.usefixtures("without_states")
def test_what_a_refresh_gives_is_rendered_once_for_each_form(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = fleet_of(lake)
    calls: list[int] = []
    collect = found.collect

    def counted() -> Any:
        calls.append(1)
        return collect()

    monkeypatch.setattr(found, "collect", counted)
    served = RenderedOnce(found)

    def scrape(accept: str = "text/plain", encoding: str = "") -> tuple[str, dict[str, str], bytes]:
        said: list[Any] = []
        environ = {
            "REQUEST_METHOD": "GET", "PATH_INFO": "/metrics", "QUERY_STRING": "", "HTTP_ACCEPT": accept,
            "HTTP_ACCEPT_ENCODING": encoding,
        }  # fmt: skip

        def start_response(status: str, headers: list[tuple[str, str]], _: Any = None) -> Any:
            said.extend((status, dict(headers)))

        (body,) = served(environ, start_response)
        return said[0], said[1], body

    first = scrape()
    assert first == scrape() == scrape()
    assert len(calls) == 1
    assert first[0] == "200 OK"
    assert b"telemetry_lake_client_records_sent_total" in first[2]
    openmetrics = scrape("application/openmetrics-text; version=1.0.0")
    assert openmetrics[1]["Content-Type"].startswith("application/openmetrics-text")
    assert openmetrics[2].endswith(b"# EOF\n")
    assert scrape(encoding="gzip")[1]["Content-Encoding"] == "gzip"
    assert len(calls) == 3
    found.refresh()
    scrape()
    assert len(calls) == 4
    for n in range(3 * RENDERED):
        scrape(f"text/plain;q={n}")
        assert len(served._answers) <= RENDERED


def test_every_gauge_over_a_view_has_a_label_for_its_rest_and_a_name_by_convention() -> None:
    for state in STATES:
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", state.name)
        assert not state.name.endswith(("_total", "_ms", "_percent"))
        assert state.rest in ("sum", "max", "none")
