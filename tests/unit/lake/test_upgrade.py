"""The lake of each release is read and continued by this build (docs/upgrade.md)."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from deltalake import DeltaTable
from pydantic import SecretStr

from kafka_telemetry_lake.jobs.cli import run_command
from kafka_telemetry_lake.pipelines.events.feed import EventFeed
from kafka_telemetry_lake.pipelines.export.counting import Counting, Selection
from kafka_telemetry_lake.pipelines.export.known_clients import KnownClients
from kafka_telemetry_lake.pipelines.export.measures import DEFAULT_DIMENSIONS
from kafka_telemetry_lake.pipelines.export.otlp import SIGNALS, Otlp
from kafka_telemetry_lake.pipelines.findings.overrides import read_overrides
from kafka_telemetry_lake.pipelines.forget.erasure import Erasure
from kafka_telemetry_lake.pipelines.groups.members import Committed
from kafka_telemetry_lake.pipelines.groups.offsets import record_offsets
from kafka_telemetry_lake.pipelines.ingest.checkpoint import check_checkpoints
from kafka_telemetry_lake.pipelines.ingest.streams import JobLake
from kafka_telemetry_lake.pipelines.lake.config_history import check
from kafka_telemetry_lake.pipelines.lake.erased_files import erased_files
from kafka_telemetry_lake.pipelines.lake.fence import JOB, Leases
from kafka_telemetry_lake.pipelines.lifecycle.follower import Lifecycle
from kafka_telemetry_lake.pipelines.notify.file import Match
from kafka_telemetry_lake.pipelines.notify.messages import Messages
from kafka_telemetry_lake.pipelines.notify.outbox import Changes
from kafka_telemetry_lake.pipelines.observe.pipeline_metrics import PipelineMetrics
from kafka_telemetry_lake.pipelines.quotas.configured import ConfiguredQuotas, configured_quotas
from kafka_telemetry_lake.pipelines.state import chain as state_chain
from kafka_telemetry_lake.pipelines.subscriptions.client_matches import update_client_matches
from kafka_telemetry_lake.pipelines.tables.catalog import CATALOG
from kafka_telemetry_lake.pipelines.tables.pipeline_metrics import PIPELINE_METRICS
from kafka_telemetry_lake.pipelines.tables.quotas import QUOTAS
from kafka_telemetry_lake.pipelines.tables.table import LANDED_DATE
from tests.support.config_polls import record_quotas
from tests.support.kept_lakes import (
    CLUSTER,
    LAKES,
    answers,
    answers_of,
    asked,
    assert_continued,
    batches,
    header,
    instances,
    later,
    unpacked,
)
from tests.support.local_stream import LocalStream

pytestmark = pytest.mark.lake
OTHER_WORDS = "in other words"
WRITTEN = [
    "pushes", "metric_points", "push_outcomes", "client_events", "client_changes", "finding_changes", "quotas",
    "group_offsets", "client_attributes", "client_matches", "pipeline_metrics", "quality_results",
]  # fmt: skip
NOW = datetime(2026, 11, 21, 13, tzinfo=UTC)


@pytest.fixture(scope="module", params=LAKES, ids=lambda path: path.name.removesuffix(".tar.gz"))
def kept(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The archive of a release's lake, and its content, which no test changes."""
    return request.param, unpacked(request.param, tmp_path_factory.mktemp("kept")).parent


@pytest.fixture
def lake(kept: tuple[Path, Path], tmp_path: Path) -> Path:
    """A copy that the test may change."""
    state_chain._cached.clear()
    return Path(shutil.copytree(kept[1] / "lake", tmp_path / "lake"))


def going_on(lake: Path) -> LocalStream:
    """The job's streams, where the job of the release has stopped."""
    stream = LocalStream(lake.parent)
    last = stream.state.last()
    assert last is not None
    stream.batch_id = last.batch_id + 1
    return stream


def test_every_question_has_the_answer_that_the_release_gave(kept: tuple[Path, Path]) -> None:
    archive, folder = kept
    known = json.loads(answers_of(archive).read_text("utf-8"))
    found = answers(folder / "lake")
    assert {name: found[name] for name in known} == known
    assert [name for name, rows in known["rows"] if rows == 0] == ["lost_records"]


def test_every_note_is_read(lake: Path) -> None:
    at, checkpoints = str(lake), str(lake / "_checkpoints")
    known = len(asked(lake, "FROM clients"))
    JobLake(at, checkpoints).create_tables()
    check_checkpoints(at, checkpoints)
    stream = going_on(lake)
    (snapshot,) = stream.state.snapshots.all()
    assert (snapshot.batch_id, stream.batch_id, stream.state.shards) == (0, 2, 2)
    leases = Leases(at, JOB)
    assert (leases.latest(), leases.read(2).command, leases.is_released(2)) == (3, "ingest", True)
    (erasure,) = erased_files(at)
    assert erasure.files.keys() >= {"pushes", "metric_points", "client_changes"}
    assert Erasure(at).under_way() == []
    Lifecycle(at).catch_up()
    assert len(asked(lake, "FROM client_events")) == 13
    assert EventFeed(at, lambda _: pytest.fail("all events are sent")).send_new() == 0
    counting = Counting(at, "prometheus", Selection(DEFAULT_DIMENSIONS))
    assert sum(len(dict(each.exported())) for each in counting.families.values()) > known
    counting.close()
    url = SecretStr("http://127.0.0.1:9")
    for signal in SIGNALS.values():
        endpoint = Otlp(at, "prometheus", signal, KnownClients(at), url, {}, is_cumulative=True, from_start=True)
        while endpoint.step():
            pass
        assert endpoint.sent == 0
    sink = Messages(at, "sink", Match())
    waiting = list(sink.waiting)
    sink.take()
    assert sink.waiting == waiting
    assert sorted(row["finding"] for row in sink.open.values()) == sorted(
        finding for (finding,) in asked(lake, "SELECT finding FROM open_findings")
    )


def test_the_job_goes_on_where_the_release_stopped(lake: Path) -> None:
    """And an erased client that pushes again is a new one."""
    known, landed = instances(lake), later(lake)
    again = [row for row in landed if row["timestamp"] < batches()[2][0]["timestamp"]]
    stream = going_on(lake)
    stream.batch(landed)
    Lifecycle(str(lake)).catch_up()
    assert_continued(lake, known, len(landed) - len(again), len(again))
    assert stream.set_aside == []
    gone = [row for row in batches()[2] if header(row, "client_instance_id") not in known]
    stream.batch(gone)
    Lifecycle(str(lake)).catch_up()
    (one,) = {header(row, "client_instance_id") for row in gone}
    assert asked(lake, f"SELECT pushes FROM clients WHERE client_instance_id = '{one}'") == [(len(gone),)]


@pytest.mark.slow
def test_commands_work_on_it_and_change_no_answer(
    kept: tuple[Path, Path], lake: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    span = ("--from", "2026-11-21T12:00Z", "--to", "2026-11-21T13:00Z")
    for command, *flags in (
        ("maintain", "--snapshot-days", "9999"),
        ("findings",),
        ("reshard", "--shards", "3"),
        ("what-if", "quota", "--client-defaults", "--produce", "400", *span),
    ):
        assert run_command(command, [*flags, "--lake", str(lake)]) == 0, capsys.readouterr().err
    asked_again = ("totals", "clients", "quotas", "findings")
    known = json.loads(answers_of(kept[0]).read_text("utf-8"))
    assert answers(lake, asked_again) == {name: known[name] for name in asked_again}
    gone = "O8Puf3EpTDqOiCGX2gHxBA"
    assert run_command("forget", ["--client-instance", gone, "--lake", str(lake)]) == 0
    assert instances(lake) == sorted(row[1] for row in known["clients"] if row[1] != gone)


def test_files_of_settings_are_valid(kept: tuple[Path, Path], lake: Path) -> None:
    conf = kept[1] / "conf"
    at = ("--lake", str(lake))
    assert read_overrides(conf / "findings.yml") == ()
    assert run_command("maintain", [*at, "--conf", str(conf / "maintain.yml"), "--snapshot-days", "9999"]) == 0
    files = ("--subscriptions-file", str(conf / "subscriptions.yml"), "--prices-file", str(conf / "prices.yml"))
    assert run_command("sync", [*at, *files]) == 0
    assert yaml.safe_load((conf / "ingest.yml").read_text("utf-8"))["source"] == "kafka"
    assert run_command("notify", [*at, "--notify", str(conf / "notify.yml"), "--dry-run"]) == 0


def older(lake: Path) -> None:
    """Let an earlier build have made all tables: each lacks its last column, and the others have other meanings."""
    for name in sorted(CATALOG):
        folder = lake / name / "_delta_log"
        version = DeltaTable(str(lake / name)).version()
        first = (folder / f"{0:020}.json").read_text("utf-8").splitlines()
        (action,) = (json.loads(line) for line in first if "metaData" in line)
        schema = json.loads(action["metaData"]["schemaString"])
        schema["fields"] = [
            field | {"metadata": {"comment": OTHER_WORDS}} for field in schema["fields"] if field["name"] != last(name)
        ]
        action["metaData"]["schemaString"] = json.dumps(schema)
        (folder / f"{version + 1:020}.json").write_text(json.dumps(action))


def last(name: str) -> str:
    """The last column of a table, without its partition."""
    return str([column for column in CATALOG[name].names if column != LANDED_DATE.name][-1])


def test_tables_that_lack_a_column_are_read_and_get_it_when_they_are_written(
    kept: tuple[Path, Path], lake: Path
) -> None:
    """Their files have the column, so all answers are the same when the table has it again."""
    at, known, landed = str(lake), instances(lake), later(lake)
    older(lake)
    asked(lake, f"SELECT {', '.join(f'any_value({name}.{last(name)})' for name in CATALOG)} FROM {', '.join(CATALOG)}")
    again = [row for row in landed if row["timestamp"] < batches()[2][0]["timestamp"]]
    finding = "92d32183be7a16c079dedccab69b6ebf"
    assert len(Changes(at, None).every()[1]) == len(asked(lake, "SELECT 1 FROM finding_changes"))
    assert run_command("findings", ["--lake", at, "--unmute", finding, "--by", "team"]) == 0
    quotas = ConfiguredQuotas(CLUSTER, tuple(configured_quotas([({}, {"request_percentage": 50.0})])))
    assert len(check(QUOTAS, at, CLUSTER, quotas.quotas, NOW).begun) == 1
    JobLake(at, f"{at}/_checkpoints").create_tables()
    assert run_command("quality", ["--lake", at]) == 0
    going_on(lake).batch(landed)
    Lifecycle(at).catch_up()
    record_quotas(at, NOW, quotas)
    assert record_offsets(at, CLUSTER, [Committed("g", "orders", 0, 80)], NOW) == 1
    update_client_matches(at)
    PipelineMetrics(at, CLUSTER).append(PIPELINE_METRICS.with_partition(PIPELINE_METRICS.schema.empty_table()))
    assert_continued(lake, known, len(landed) - len(again), len(again))
    for name in WRITTEN:
        schema = DeltaTable(str(lake / name)).schema()
        assert schema.fields[-1].name == last(name), "it is added after the others"
        assert schema.fields[0].metadata == {"comment": OTHER_WORDS}
    assert asked(lake, 'SELECT "user", quota_limit FROM quotas WHERE valid_to IS NULL') == [("", 50.0)]
    assert asked(lake, "SELECT committed_offset, rewound_from FROM group_offsets") == [(80, 90)]
    payloads = json.loads(answers_of(kept[0]).read_text("utf-8"))["payloads"]
    assert [row for row in answers(lake, ["payloads"])["payloads"] if row in payloads] == payloads
