"""What a page writes about a finding is what `telemetry-lake findings` writes; else one line says why nothing was."""

from __future__ import annotations

import shlex
import shutil
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
import streamlit as st
from deltalake import write_deltalake

from kafka_telemetry_lake.dashboards.address import Selection
from kafka_telemetry_lake.dashboards.lake import LakeReader
from kafka_telemetry_lake.dashboards.remarks import ALLOWED, RemarkError, commands, say
from kafka_telemetry_lake.dashboards.scene import Scene, open_lake
from kafka_telemetry_lake.dashboards.screens import findings as screen
from kafka_telemetry_lake.jobs import cli
from kafka_telemetry_lake.jobs.support.locks import FINDINGS, UPKEEP, only
from kafka_telemetry_lake.pipelines.tables.findings import FINDING_CHANGES
from kafka_telemetry_lake.pipelines.tables.operator import TABLES
from kafka_telemetry_lake.udfs.findings.remarks import ACKNOWLEDGED, MUTED, UNMUTED, end_of_mute
from tests.support.known_clients import known_clients
from tests.support.lake_tables import table

pytestmark = pytest.mark.lake

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
NOW = end_of_mute(NOON.isoformat())
ORDERS, GROUP = "0" * 31 + "1", "0" * 31 + "2"
OPENED: dict[str, Any] = {
    "cluster_id": "c", "finding": "failed_records", "severity": "warning", "change": "opened", "at": NOON,
    "opened_at": NOON, "recorded_at": NOON, "window_start": NOON, "evidence": "e", "advice": "a",
}  # fmt: skip
CLIENT = {"finding_id": ORDERS, "scope": "client_id", "subject": "orders", "client_id": "orders"}
NOBODY = pa.table({"cluster_id": pa.array([], pa.string()), "client_id": pa.array([], pa.string())})
TEXTS = {"by": " ann ", "why": "a deploy", "until": "2999-11-30 08:00"}


def add(lake: Path, *rows: dict[str, Any]) -> None:
    stored = FINDING_CHANGES.with_partition(
        pa.Table.from_pylist([OPENED | row for row in rows], FINDING_CHANGES.schema)
    )
    write_deltalake(FINDING_CHANGES.create(str(lake)), stored, mode="append")


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A client id and a group have a finding each."""
    monkeypatch.setenv(ALLOWED, "1")
    for each in TABLES:
        each.create(str(tmp_path))
    add(tmp_path, CLIENT, {"finding_id": GROUP, "scope": "group", "subject": "g", "severity": "error"})
    return tmp_path


def remarks(lake: Path) -> list[dict[str, Any]]:
    return [row for row in table(lake, "finding_changes").to_pylist() if row["change"] != "opened"]


def open_now(read: LakeReader, chosen: pa.Table | None = None) -> list[dict[str, Any]]:
    read.versions()
    filters = 0 if chosen is None else 1
    rows: list[dict[str, Any]] = read.ask("open_findings", {"filters": filters}, chosen or NOBODY).to_pylist()
    return rows


def test_the_page_and_the_command_write_the_same_row(lake: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other") / "lake"
    shutil.copytree(lake, other)
    line = "failed_records of client_id orders is muted until 2999-11-30 08:00 UTC, by ann"
    assert say(str(lake), ORDERS, MUTED, TEXTS, NOW) == line
    flags = ["--mute", ORDERS, "--until", "2999-11-30T09:00+01:00", "--by", "ann", "--why", "a deploy"]
    assert cli.main(["findings", "--lake", str(other), *flags]) == 0
    times = {"at": NOON, "recorded_at": NOON, "landed_date": NOON.date()}
    ((written,), (by_command,)) = remarks(lake), remarks(other)
    assert written == by_command | times
    assert (written["until"], written["by"]) == (datetime(2999, 11, 30, 8, tzinfo=UTC), "ann")


def test_what_is_open_now_is_the_worst_first_and_follows_what_is_said(lake: Path) -> None:
    read = LakeReader(str(lake))
    assert [(row["client_id"], row["state"]) for row in open_now(read)] == [("group g", "open"), ("orders", "open")]
    with only(FINDINGS, str(lake), ""), only(UPKEEP, str(lake), ""):  # locks of other processes don't matter
        say(str(lake), ORDERS, ACKNOWLEDGED, TEXTS, NOW)
    row = open_now(read)[1]
    assert (row["state"], row["by"], row["why"], row["until"]) == ("acknowledged", "ann", "a deploy", None)
    latest = datetime.max.replace(tzinfo=UTC)  # the latest time that can be named
    say(str(lake), ORDERS, MUTED, TEXTS | {"until": "9999-12-31T23:59:59.999999"}, NOW + 1)
    assert (open_now(read)[1]["state"], open_now(read)[1]["until"]) == ("muted", latest)
    say(str(lake), ORDERS, UNMUTED, TEXTS, NOW + 2)
    assert open_now(read)[1]["state"] == "acknowledged"


def test_a_mute_ends_on_the_page_by_itself(lake: Path) -> None:
    """Answers are kept until a table changes: this one isn't, as the time alone changes it."""
    read = LakeReader(str(lake))
    for turn, seconds in enumerate((1.5, 6, 24, 96)):  # on a busy machine a look takes long
        soon = datetime.now(UTC) + timedelta(seconds=seconds)
        say(str(lake), ORDERS, MUTED, TEXTS | {"until": soon.isoformat()}, NOW + turn)
        scene = Scene(read, read.versions(), Selection(), NOON, NOON, NOON, NOON, known_clients(NOBODY), 60)
        states = scene.open_findings()["state"].tolist()
        if datetime.now(UTC) < soon:
            break
    assert states == ["open", "muted"]
    time.sleep(max(0, (soon - datetime.now(UTC)).total_seconds()) + 0.01)
    assert scene.open_findings()["state"].tolist() == ["open", "open"]


def test_filters_leave_the_chosen_clients_and_what_is_of_no_single_one(lake: Path) -> None:
    read = LakeReader(str(lake))
    add(lake, CLIENT | {"finding_id": "3", "cluster_id": "d"}, CLIENT | {"finding_id": "4", "client_id": "bills"})
    assert len(open_now(read)) == 4
    chosen = pa.table({"cluster_id": ["c"], "client_id": ["orders"]})
    assert [row["finding_id"] for row in open_now(read, chosen)] == [GROUP, ORDERS]
    assert [row["finding_id"] for row in open_now(read, chosen.set_column(0, "cluster_id", [["d"]]))] == ["3"]


@pytest.mark.parametrize(
    ("change", "texts", "said"),
    [
        (ACKNOWLEDGED, {"by": " "}, "by: allowed: 1 to 1,000 characters; these are 0"),
        (UNMUTED, {"why": ""}, "why: allowed: 1 to 1,000 characters; these are 0"),
        (ACKNOWLEDGED, {"why": "x" * 1001}, "why: allowed: 1 to 1,000 characters; these are 1,001"),
        (MUTED, {"until": "soon"}, "until: allowed: a time such as 2026-11-30T08:00Z; without a zone it is UTC"),
        (MUTED, {"until": "9999-12-31T23:59:59-14:00"}, "until: allowed: a time such as 2026-11-30T08:00Z; without"),
        (MUTED, {"until": "2026-11-21T12:00"}, "until: 2026-11-21 12:00 UTC is past; name a later time"),
        (UNMUTED, {}, f"finding {ORDERS} isn't muted"),
    ],
)
def test_what_is_wrong_is_one_line_and_nothing_is_written(
    lake: Path, change: str, texts: dict[str, str], said: str
) -> None:
    with pytest.raises(RemarkError) as raised:
        say(str(lake), ORDERS, change, TEXTS | texts, NOW)
    assert str(raised.value).startswith(said)
    assert "\n" not in str(raised.value)
    assert remarks(lake) == []


def test_nothing_is_written_unless_changes_are_allowed_or_of_a_finding_that_was_resolved_meanwhile(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for value in ("0", ""):
        with monkeypatch.context() as then:
            then.setenv(ALLOWED, value)
            with pytest.raises(RemarkError, match="this dashboard only reads: start it with --allow-changes"):
                say(str(lake), ORDERS, ACKNOWLEDGED, TEXTS, NOW)
    assert remarks(lake) == []
    add(lake, CLIENT | {"change": "resolved", "at": NOON + timedelta(hours=2)})
    with pytest.raises(RemarkError, match=f"finding {ORDERS} is resolved since 2026-11-21 14:00 UTC"):
        say(str(lake), ORDERS, ACKNOWLEDGED, TEXTS, NOW)
    with pytest.raises(RemarkError, match="no finding has the id x"):
        say(str(lake), "x", ACKNOWLEDGED, TEXTS, NOW)


def test_a_lake_that_can_not_be_written(lake: Path) -> None:
    (lake / "finding_changes" / "landed_date=2026-11-22").write_text("a file where a folder should be", "utf-8")
    with pytest.raises(RemarkError, match="the lake can't be written: ") as raised:
        say(str(lake), ORDERS, ACKNOWLEDGED, TEXTS, NOW + 86_400_000_000)
    assert "\n" not in str(raised.value)


def test_the_commands_refuse_to_run_until_a_reason_is_written(
    lake: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = commands(str(lake), ORDERS, "muted", "2999-11-30T08:00Z")
    assert len(commands(str(lake), ORDERS, "open", "")) == 2
    for line in printed:
        _, *argv = shlex.split(line.replace('"$USER"', "ann"))
        assert cli.main(argv) == 2
        assert "why: " in capsys.readouterr().err
    changes = []
    for line in printed:
        _, *argv = shlex.split(line.replace('"$USER"', "ann").replace('--why ""', "--why 'a deploy'"))
        assert cli.main(argv) == 0
        changes = [row["change"] for row in remarks(lake)]
    assert sorted(changes) == ["acknowledged", "muted", "unmuted"]
    assert commands("a b;rm -rf x", "$(x)", "open", "")[0].startswith(
        "telemetry-lake findings --lake 'a b;rm -rf x' --acknowledge '$(x)' --by "
    )


def test_a_page_that_could_write_nothing_looks_at_what_was_written_meanwhile(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = SimpleNamespace(remarks=0, remark=None)
    monkeypatch.setattr(screen, "page_state", lambda: page)
    monkeypatch.setattr(screen, "user", lambda: None)
    monkeypatch.setattr(st, "session_state", {f"form {name}": text for name, text in TEXTS.items()})
    reader = open_lake(str(lake))
    reader.look_every_s = 3600.0  # as long as looking takes on a busy machine, some times over
    before = reader.versions()
    add(lake, CLIENT | {"change": "resolved", "at": NOON + timedelta(hours=2)})
    assert reader.versions() == before
    screen._say(str(lake), ORDERS, ACKNOWLEDGED, "form", 0)
    assert page.remark[:2] == (ORDERS, False)
    assert "is resolved since 2026-11-21 14:00 UTC" in page.remark[2]
    assert reader.versions() != before
