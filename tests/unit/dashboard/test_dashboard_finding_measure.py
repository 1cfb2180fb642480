"""The plot of a finding: its numbers are those of the evaluation, its bounds those of the rule, its peers healthy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from kafka_telemetry_lake.dashboards import finding_measure as module
from kafka_telemetry_lake.dashboards.address import Selection
from kafka_telemetry_lake.dashboards.clients import NONE
from kafka_telemetry_lake.dashboards.finding_measure import (
    CLOSES,
    MEDIAN,
    MOST_PEERS,
    MOST_READ,
    OPENS,
    QUARTILES,
    Peers,
    finding_measure,
    measured_hours,
    peers_of,
    series,
    words,
)
from kafka_telemetry_lake.dashboards.lake import LakeReader
from kafka_telemetry_lake.dashboards.plots import lines
from kafka_telemetry_lake.dashboards.scene import Scene, open_scene
from kafka_telemetry_lake.dashboards.show import PageState
from kafka_telemetry_lake.pipelines.findings.measured import measured_sql
from kafka_telemetry_lake.pipelines.findings.model import INSTANCE, Override
from kafka_telemetry_lake.pipelines.findings.rules import rules
from kafka_telemetry_lake.pipelines.query.lake_query import run_query
from tests.support.asked_questions import keep_no_pushes
from tests.support.captured_lake import HOSTILE
from tests.support.few_rules import judged_by
from tests.support.measured_lake import (
    GREEDY,
    HOUR,
    HOURS,
    ILL,
    LONELY,
    NOON,
    SLOW_BROKER,
    UNEVEN,
    VERSION_AT,
    WEB,
    WEB_MS,
    measured_lake,
)

pytestmark = pytest.mark.lake

COMMITS = "costly_commits"
SUBJECTS = {
    WEB: COMMITS, LONELY: COMMITS, UNEVEN: "uneven_assignment", SLOW_BROKER: "one_slow_broker",
    GREEDY: "greedy_principal", "many": "shared_client_id",
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _few_rules() -> Iterator[None]:
    with judged_by(*SUBJECTS.values()):
        yield


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory, _few_rules: None) -> str:
    return str(measured_lake(tmp_path_factory.mktemp("measured") / "lake"))


@pytest.fixture(scope="module")
def evaluated(lake: str) -> list[dict[str, Any]]:
    """The rows of view `findings`."""
    rows: list[dict[str, Any]] = run_query(lake, "SELECT * FROM findings").read_all().to_pylist()
    return rows


@pytest.fixture(scope="module")
def scene(lake: str) -> Scene:
    opened = open_scene(lake, Selection("all"))
    assert opened is not None
    return opened


def found(scene: Scene, subject: str) -> pd.Series:
    """The open finding of a subject."""
    rows = scene.open_findings()
    return rows[(rows["subject"] == subject) & (rows["finding"] == SUBJECTS[subject])].iloc[0]


def measured(scene: Scene, row: pd.Series, peers: Peers | None = None) -> tuple[pd.DataFrame, Peers]:
    rule = rules()[row["finding"]]
    peers = peers or peers_of(scene, rule, row, row["subject"])
    select = measured_sql(rule.id, scene.lake.overrides, row["scope"] == INSTANCE)
    return measured_hours(scene, rule, select, row, row["subject"], peers), peers


def instance(scene: Scene) -> pd.Series:
    """The finding of one of the two instances of a client id, as the page of the instance has it."""
    return pd.Series({**found(scene, WEB), "scope": INSTANCE, "subject": f"{WEB}-0"})


def at_ms(hour: int) -> int:
    return int((NOON + hour * HOUR).timestamp() * 1000)


@pytest.mark.parametrize("subject", SUBJECTS)
def test_findings_measure_is_what_the_evaluation_said(
    evaluated: list[dict[str, Any]], scene: Scene, subject: str
) -> None:
    """In the hours with the finding, and no other ones; a group, a broker and a principal too, whatever their names."""
    row = found(scene, subject)
    hours, _ = measured(scene, row)
    said = {
        int(each["window_start"].timestamp() * 1000): each["measure"]
        for each in evaluated if (each["finding"], each["subject"]) == (row["finding"], subject)
    }  # fmt: skip
    with_finding = hours[hours["had_it"] == 1]
    assert dict(zip(with_finding["at_ms"], with_finding["measure"], strict=True)) == said
    recorded = int(row["window_start"].timestamp() * 1000)
    assert hours.set_index("at_ms")["measure"][recorded] == row["measure"]


def test_findings_measure_is_known_in_hours_without_the_finding_too(scene: Scene) -> None:
    """Of its two instances the worse one."""
    hours, _ = measured(scene, found(scene, WEB))
    assert list(hours["at_ms"]) == [at_ms(hour) for hour in range(HOURS)]
    assert tuple(hours["measure"]) == WEB_MS
    assert list(hours["had_it"]) == [0, 1, 0, 0, 0, 1, 1, 0, 0, 1]
    assert (set(hours["opens"]), set(hours["closes"])) == ({1000.0}, {800.0})


def test_findings_measure_has_the_bounds_that_a_file_sets(lake: str, scene: Scene) -> None:
    """Closing follows in the same ratio; other client ids keep the rule's own."""
    override = Override("orders-*", COMMITS, (("latency", 750.0),))
    reader = LakeReader(lake, (override,))
    reader.versions()
    other = Scene(reader, scene.versions, *(getattr(scene, name) for name in (
        "selection", "first", "last", "start", "stop", "clients", "step_s")))  # fmt: skip
    hours, _ = measured(other, found(scene, WEB))
    assert (set(hours["opens"]), set(hours["closes"])) == ({750.0}, {600.0})
    assert list(hours["had_it"]) == [int(value >= 750) for value in WEB_MS]
    hours, _ = measured(other, found(scene, LONELY))
    assert (set(hours["opens"]), set(hours["closes"])) == ({1000.0}, {800.0})


def test_findings_measure_of_each_hour_may_have_its_own_bound(scene: Scene) -> None:
    """Ten equal shares of what 21 principals landed; three times the median of the brokers; three more than least."""
    for subject, opens in ((GREEDY, 10 * 101_900 / 21), (SLOW_BROKER, 42.0), (UNEVEN, 4.0)):
        hours, _ = measured(scene, found(scene, subject))
        assert list(hours["opens"].dropna().unique()) == pytest.approx([opens])
        assert hours["closes"].isna().all()


def test_findings_measure_is_beside_that_of_healthy_peers(scene: Scene) -> None:
    """Of the same application: 100, 200 and 400 ms. Who had the finding in an hour long ago is none of them."""
    hours, peers = measured(scene, found(scene, WEB))
    assert (peers.like, peers.known) == ("other client ids of application shop", 4)
    assert set(peers.healthy or ()) == {"orders-a", "orders-b", HOSTILE, ILL}
    assert [set(hours[name]) for name in ("peers", "low", "median", "high", "ill_peers")] == [
        {3}, {150.0}, {200.0}, {300.0}, {1},
    ]  # fmt: skip
    hours, _ = measured(scene, found(scene, WEB), Peers("", healthy=("orders-a", "orders-b"), ill=("orders-b",)))
    assert [set(hours[name]) for name in ("peers", "median", "ill_peers")] == [{1}, {100.0}, {0}]


def test_findings_measure_lists_only_whom_it_is_about(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that shows the plot needs no list of all client instances; which filters offer is asked for when open."""
    keep_no_pushes(monkeypatch)
    scene = open_scene(lake, Selection("all"))
    assert scene is not None
    for row in (found(scene, WEB), found(scene, LONELY), instance(scene)):
        _, peers = measured(scene, row)
        assert peers.known or row["subject"] == LONELY
        assert module._about(scene, row).marks()["what"].tolist() == [f"new version of {row['client_id']}"]
    assert "instances" not in vars(scene.clients)


def test_findings_measure_has_the_same_peers_whoever_the_filters_leave(lake: str) -> None:
    """The range is one that nobody has asked for: an answer that is kept would hide a wrong one."""
    of_web = open_scene(lake, Selection("7d", filters=(("client", (WEB,)),)))
    assert of_web is not None
    _, peers = measured(of_web, found(of_web, WEB))
    assert (peers.known, set(peers.healthy or ())) == (4, {"orders-a", "orders-b", HOSTILE, ILL})
    assert of_web.listed([f"{WEB}-0", "orders-a"])["client_id"].unique().tolist() == [WEB]


def test_findings_measure_of_no_client_id_is_beside_the_others_of_its_kind(scene: Scene) -> None:
    for subject, like, medians in (
        (SLOW_BROKER, "other brokers of its cluster", {12.0}), (UNEVEN, "other consumer groups of its cluster", {5.0}),
    ):  # fmt: skip
        hours, peers = measured(scene, found(scene, subject))
        assert (peers.like, peers.healthy, set(hours["median"])) == (like, None, medians)


def test_findings_measure_of_an_instance_is_beside_that_of_its_siblings(scene: Scene) -> None:
    hours, peers = measured(scene, instance(scene))
    assert (peers.like, peers.healthy) == ("other instances of its client id", (f"{WEB}-1",))
    assert (tuple(hours["measure"]), set(hours["median"]), set(hours["peers"])) == (WEB_MS, {10.0}, {1})
    hours, peers = measured(scene, pd.Series({**instance(scene), "subject": f"{WEB}-1"}))
    assert (set(hours["measure"]), set(hours["peers"]), set(hours["ill_peers"])) == ({10.0}, {0}, {1})


def test_names_of_an_application_are_cut_where_they_are_very_long() -> None:
    assert module._listed(["a" * 1000, "b", "c", "d"]) == f"{'a' * 60}…, b, c and others"


def test_findings_measure_of_a_cluster_is_not_that_of_another_and_before_any_evaluation_the_same(scene: Scene) -> None:
    """Then a finding names no cluster, and nobody has one open: whoever had it in an hour is no peer all the same."""
    row = found(scene, WEB).drop("cluster_id")
    hours, peers = measured(scene, pd.concat([row, pd.Series({"cluster_id": "d"})]))
    assert (len(hours), peers.known) == (0, 0)
    versions = tuple(each for each in scene.versions if each[0] != "finding_changes")
    hours, peers = measured(replace(scene, versions=versions), row)
    assert (tuple(hours["measure"]), set(hours["median"]), peers.known) == (WEB_MS, {200.0}, 4)


def said(scene: Scene, subject: str) -> str:
    row = found(scene, subject)
    hours, peers = measured(scene, row)
    return " ".join(words(hours, rules()[row["finding"]], "this client id", peers))


def test_findings_measure_in_words(scene: Scene) -> None:
    assert said(scene, WEB) == (
        "This client id was measured in 10 hours, 4 of them with the finding: last 1.2 s, least 700 ms, most 1.6 s in "
        "the hour from 2026-11-21 18:00 UTC. The finding opens at 1 s, and closes at 800 ms; more is worse. Healthy "
        "peers (other client ids of application shop that never have this finding here): 3 an hour; in their last hour "
        "median 200 ms, half of them (grey bars) from 150 ms to 300 ms."
    )
    assert said(scene, LONELY).endswith("no other client ids of software kgo in this time range.")
    hours, _ = measured(scene, found(scene, LONELY), Peers("others", 1, ("x",), ()))
    for healthy, ill, no_peers in (
        (("x",), (), "of others, those that have the measure have the finding too (1)."),
        ((), ("x",), "of no others has the rule a measure in these hours."),
    ):
        said_of = " ".join(words(hours, rules()[COMMITS], "it", Peers("others", 1, healthy, ill)))
        assert said_of.endswith(f"No healthy peers: {no_peers}")
    # The rule holds by its mean already, far below the bound of the longest.
    hours = pd.DataFrame({"at_ms": [at_ms(0)], "measure": [3000.0], "opens": [60_000.0], "closes": [48_000.0],
                          "had_it": [1], "peers": [0], "ill_peers": [0]})  # fmt: skip
    sentences = list(words(hours, rules()["stuck_in_queue"], "it", Peers("others")))
    assert "In 1 of the hours with the finding another part of its condition held." in sentences


def test_findings_measure_marks_what_changed_about_its_subject_alone(scene: Scene) -> None:
    """Two client ids changed their version in one window."""
    (mark,) = module._about(scene, found(scene, WEB)).marks().to_dict("records")
    assert (mark["mark_ms"], mark["what"]) == (VERSION_AT.timestamp() * 1000, f"new version of {WEB}")
    assert scene.marks()["what"].tolist() == [f"new version of {LONELY}; new version of {WEB}"]
    assert module._about(scene, found(scene, SLOW_BROKER)).marks().equals(scene.marks())
    assert module._about(scene, instance(scene)).marks()["what"].tolist() == [mark["what"]]


def test_findings_measure_statement_answers_the_same_rows(lake: str, scene: Scene) -> None:
    hours, _ = measured(scene, found(scene, UNEVEN))
    rows = run_query(lake, hours.attrs["sql"]).read_all().to_pandas()
    assert rows["measure"].tolist() == hours["measure"].tolist()
    assert rows["median"].tolist() == hours["median"].tolist()


def test_the_peers_of_very_many_are_the_same_sample_each_time(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"client-{number}" for number in range(3 * MOST_PEERS)]
    ask = Scene.ask

    def many(of: Scene, name: str, **parameters: Any) -> pd.DataFrame:
        if name != "client_ids_of_software":
            return ask(of, name, **parameters)
        return pd.DataFrame({"client_id": [LONELY, *names]})

    monkeypatch.setattr(Scene, "ask", many)
    peers, again = (peers_of(scene, rules()[COMMITS], found(scene, LONELY), LONELY) for _ in range(2))
    assert (peers.known, len(peers.healthy or ()), peers) == (len(names), MOST_PEERS, again)
    assert set(peers.healthy or ()) < set(names)


def test_the_plot_of_a_finding_has_bounds_throughout_bars_of_its_peers_and_all_in_its_table(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn, told = list[dict[str, Any]](), list[dict[str, Any]]()
    monkeypatch.setattr("streamlit.session_state", {"page state": PageState()})
    monkeypatch.setattr("streamlit.vega_lite_chart", lambda rows, spec, **_: drawn.append(spec | {"rows": rows}))
    monkeypatch.setattr("kafka_telemetry_lake.dashboards.plots.element", lambda _, data: told.append(data))
    finding_measure(scene, found(scene, WEB))
    (spec,), (foot,) = drawn, told
    bars, line, _, marks = spec["layer"]
    assert {(row["low"], row["high"]) for row in bars["data"]["values"]} == {(150.0, 300.0)}
    assert len(bars["data"]["values"]) == HOURS
    assert line["encoding"]["color"]["scale"]["domain"] == ["this client id", OPENS, CLOSES, MEDIAN]
    assert [mark["what"] for mark in marks["data"]["values"]] == [f"new version of {WEB}"]
    columns = {column["label"]: column["values"] for column in foot["table"]["columns"]}
    assert {*QUARTILES, OPENS, CLOSES, MEDIAN, "this client id"} == set(columns["name"])
    assert len(columns["ms"] if "ms" in columns else columns["value"]) == 6 * HOURS
    assert foot["seen"] is True
    assert foot["words"].startswith("This client id was measured in 10 hours, 4 of them with the finding")
    assert f"'{WEB}'" in foot["table"]["sql"]


def test_a_bound_without_a_measure_in_an_hour_is_that_of_the_others() -> None:
    hours = pd.DataFrame({"at_ms": [0, 1], "measure": [5.0, None], "opens": [3.0, None], "closes": [None, None],
                          "low": [None, None], "median": [None, None], "high": [None, None]})  # fmt: skip
    rows = series(hours, "it")
    assert list(zip(rows["name"], rows["at_ms"], rows["value"], strict=True)) == [
        ("it", 0, 5.0), (OPENS, 0, 3.0), (OPENS, 1, 3.0),
    ]  # fmt: skip


def test_a_finding_whose_measure_makes_no_plot_or_of_another_time_says_why(
    lake: str, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = list[str]()
    monkeypatch.setattr("streamlit.caption", lambda text: told.append(text.replace("\\", "")))
    for finding in ("buggy_client_version", "of_a_newer_release"):
        finding_measure(scene, pd.Series({"finding": finding, "scope": "client_id", "subject": WEB}))
    later = NOON + HOURS * HOUR
    other = open_scene(lake, Selection(start=later, stop=later + timedelta(hours=1)))
    assert other is not None
    finding_measure(other, found(other, WEB))
    assert told[0].startswith("Not plotted: a version is no amount")
    assert told[1].startswith("Not plotted: this installation has no rule of_a_newer_release.")
    assert told[2:] == ["This rule measured nothing of it in the hours of this time range. Widen the range."]


@pytest.mark.parametrize(("pushes", "asked"), [(MOST_READ, False), (MOST_READ + 1, True)])
def test_of_many_pushes_the_measure_is_read_on_demand(
    pushes: int, asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    offered = list[str]()
    monkeypatch.setattr(module, "on_demand", lambda title, _: offered.append(title))
    monkeypatch.setattr(module, "peers_of", lambda *_: 1 / 0)
    many: Any = SimpleNamespace(
        lake=SimpleNamespace(overrides=()), clients=SimpleNamespace(known=NONE._replace(pushes=pushes))
    )
    row = pd.Series({"finding": COMMITS, "scope": "client_id", "subject": WEB})
    with nullcontext() if asked else pytest.raises(ZeroDivisionError):
        finding_measure(many, row)
    assert offered == ([module.TITLE] if asked else [])


def test_bars_stand_between_the_two_rows_of_a_window(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = list[dict[str, Any]]()
    monkeypatch.setattr("streamlit.session_state", {"page state": PageState()})
    monkeypatch.setattr("streamlit.vega_lite_chart", lambda _, spec, **__: drawn.append(spec))
    rows = pd.DataFrame({"at_ms": [0, 0, 0], "y": [9.0, 1.0, 4.0], "who": ["it", "low", "high"]})
    lines(rows, "y", "ms", "Latency", "who", 10, band=("low", "high"))
    lines(rows[:1], "y", "ms", "Latency", "who", 10, band=("low", "high"))
    assert drawn[0]["layer"][0]["data"]["values"] == [{"at_ms": 0, "low": 1.0, "high": 4.0}]
    assert len(drawn[0]["layer"]) == len(drawn[1]["layer"]) + 1 == 3
