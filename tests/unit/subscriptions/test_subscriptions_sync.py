"""Sync as a command's settings and beside ingest, without a cluster."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from deltalake.exceptions import DeltaError
from pyspark.sql import SparkSession

from kafka_telemetry_lake.jobs import cli, companions, sync
from kafka_telemetry_lake.jobs.companions import syncing
from kafka_telemetry_lake.jobs.settings.base import parse
from kafka_telemetry_lake.jobs.settings.ingest import IngestSettings
from kafka_telemetry_lake.jobs.settings.sync import SyncSettings
from kafka_telemetry_lake.jobs.support.supervisor import supervised
from kafka_telemetry_lake.jobs.sync import RefusedListsError
from kafka_telemetry_lake.pipelines.applications.costs import Brokers
from kafka_telemetry_lake.pipelines.query.views import views
from kafka_telemetry_lake.pipelines.quotas.configured import ConfiguredQuotas
from kafka_telemetry_lake.pipelines.runtime.kafka_admin import KafkaRefusedError, KafkaUnavailableError
from kafka_telemetry_lake.pipelines.subscriptions.configured import ConfiguredSubscriptions
from kafka_telemetry_lake.pipelines.subscriptions.file import read_subscriptions_file
from kafka_telemetry_lake.udfs.subscriptions.matching import Subscription
from kafka_telemetry_lake.udfs.subscriptions.view_names import TAKEN_VIEWS, view_names
from tests.support.lake_tables import table
from tests.support.patience import PATIENCE_S
from tests.unit.subscriptions.test_subscriptions_matches import asked, push

CONF = Path(__file__).parents[3] / "conf"
SPARK = cast(SparkSession, object())


def settings(lake: Path, *flags: str) -> IngestSettings:
    argv = ["--lake", str(lake), "--source", "kafka", "--bootstrap-servers", "127.0.0.1:1", *flags]
    return parse(IngestSettings, argv, "test")


def test_example_settings_are_read() -> None:
    read = parse(SyncSettings, ["--conf", str(CONF / "sync.yml")], "test")
    assert (read.lake, read.bootstrap_servers, read.every_seconds) == ("my-lake", "127.0.0.1:9092", 60)
    found = read_subscriptions_file(CONF / "subscriptions.yml", None)
    intervals = {each.name: each.interval_ms for each in found.subscriptions}
    assert intervals == {"producers": 60_000, "everything-of-one": 10_000}
    assert found.problems == []


def test_a_file_kept_by_sync_is_matched_with_the_pushes_that_are_there(tmp_path: Path) -> None:
    file = tmp_path / "subscriptions.yml"
    file.write_text("cluster_id: c1\nsubscriptions: [{name: a, metrics: [x.], match: {client_id: orders-.*}}]\n")
    lake = tmp_path / "lake"
    push(lake, "orders-1", "bills")
    flags = ["sync", "--lake", str(lake), "--subscriptions-file", str(file)]
    assert cli.main([*flags, "--check"]) == 0
    assert not (lake / "subscriptions").exists()
    assert not (lake / "client_matches").exists()
    assert cli.main(flags) == 0
    # Landed long before anybody looked: nothing was in force as far as is known.
    assert asked(lake) == []
    assert [row["name"] for row in table(lake, "client_matches").to_pylist()] == ["a"]


def test_names_of_views_that_are_there_are_taken() -> None:
    there = {name.removeprefix("subscription_") for name in views() if name.startswith("subscription_")}
    assert there == set(TAKEN_VIEWS)
    assert not set(view_names(TAKEN_VIEWS).values()) & views().keys()


def test_beside_ingest_a_failing_sync_is_reported_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    looks: list[Any] = []
    again = threading.Event()
    refused = RefusedListsError("quotas: not authorized")
    fails = [KafkaUnavailableError("no broker answers"), refused, refused]

    def look(wanted: SyncSettings, spark: SparkSession, *_: object) -> None:
        looks.append((wanted.lake, wanted.bootstrap_servers, wanted.check, spark))
        if not fails:
            again.set()
            return
        raise fails.pop(0)

    monkeypatch.setattr(companions, "sync", look)
    with supervised(str(tmp_path), [replace(syncing(settings(tmp_path, "--sync-seconds", "1"), SPARK), interval_s=0)]):
        assert again.wait(PATIENCE_S)
    assert looks[0] == (str(tmp_path), "127.0.0.1:1", False, SPARK)
    failed, *others = caplog.messages
    assert failed.startswith("sync: no broker answers; tried again in ")
    # A list that is refused is a result: the others were recorded.
    assert others == ["sync: quotas: not authorized; their history is unchanged"] * 2
    assert "sync" not in {thread.name for thread in threading.enumerate()}


def test_after_ingest_new_clients_are_matched_also_without_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    matched: list[str] = []
    monkeypatch.setattr(companions, "add_subscription_events", matched.append)
    with supervised(str(tmp_path), [syncing(settings(tmp_path), SPARK)]):
        assert matched == []
    assert matched == [str(tmp_path)]

    def conflict(_: str) -> int:
        raise DeltaError("another was faster")

    monkeypatch.setattr(companions, "add_subscription_events", conflict)
    with supervised(str(tmp_path), [syncing(settings(tmp_path), SPARK)]):
        pass
    assert caplog.messages == ["sync: another was faster; its next start goes on"]


def test_beside_files_there_is_no_cluster_to_ask(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in").mkdir()
    flags = ["--source", f"files:{tmp_path / 'in'}", "--lake", str(tmp_path / "lake"), "--sync-seconds", "60"]
    assert cli.main(["ingest", *flags]) == 2
    assert "sync_seconds: works only with --source kafka" in capsys.readouterr().err


NEWER = Subscription("newer", ("x.",), 1000, unread="match: got key 'client_rack'")
QUOTA = dict.fromkeys(("user", "client_id", "ip"), "") | {"quota_type": "produce", "quota_limit": 1.0}


@pytest.fixture
def asked_cluster(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A cluster that answers without a JVM."""
    monkeypatch.setattr(sync, "check_brokers", lambda *_: None)
    monkeypatch.setattr(sync, "java_machine", lambda *_: nullcontext())
    monkeypatch.setattr(sync, "read_subscriptions", lambda *_: ConfiguredSubscriptions("c", (NEWER,)))
    monkeypatch.setattr(sync, "read_quotas", lambda *_: ConfiguredQuotas("c", (QUOTA,), ("quotas: odd",)))
    monkeypatch.setattr(sync, "read_brokers", lambda *_: Brokers("c", ({"broker_id": 1, "rack": None},)))
    return monkeypatch


def poll_of(lake: Path, *flags: str) -> SyncSettings:
    argv = ["--lake", str(lake), "--bootstrap-servers", "127.0.0.1:1", "--no-consumer-groups", *flags]
    return parse(SyncSettings, argv, "test")


def test_a_list_that_is_refused_takes_no_other_with_it(tmp_path: Path, asked_cluster: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise KafkaRefusedError("refused (ClusterAuthorizationException)")

    asked_cluster.setattr(sync, "read_subscriptions", refuse)
    with pytest.raises(sync.SyncFailedError) as failed:
        sync.run(poll_of(tmp_path), threading.Event())
    assert str(failed.value) == ("subscriptions: refused (ClusterAuthorizationException); their history is unchanged")
    assert not (tmp_path / "subscriptions").exists()
    assert table(tmp_path, "quotas")["quota_limit"].to_pylist() == [1.0]
    assert table(tmp_path, "brokers")["broker_id"].to_pylist() == [1]
    asked_cluster.setattr(sync, "read_quotas", refuse)
    with pytest.raises(sync.SyncFailedError, match=r"^subscriptions, quotas: refused"):
        sync.run(poll_of(tmp_path), threading.Event())
    assert table(tmp_path, "quotas")["valid_to"].to_pylist() == [None]


def test_a_subscription_that_cannot_be_read_is_a_row_and_said_once(
    tmp_path: Path, asked_cluster: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    memory = sync.Memory()
    for _ in range(3):
        sync.sync(poll_of(tmp_path), None, memory)
    (row,) = table(tmp_path, "subscriptions").to_pylist()
    assert (row["metrics"], row["match"], row["problem"]) == (["x."], [], NEWER.unread)
    assert [each.message for each in caplog.records if each.levelname == "WARNING"] == [NEWER.unread, "quotas: odd"]
    # Listed, without an answer: it stays. Gone: it ends.
    silent = ConfiguredSubscriptions("c", (), {"newer": "TimeoutException"})
    asked_cluster.setattr(sync, "read_subscriptions", lambda *_: silent)
    sync.sync(poll_of(tmp_path), None, memory)
    assert table(tmp_path, "subscriptions")["valid_to"].to_pylist() == [None]
    asked_cluster.setattr(sync, "read_subscriptions", lambda *_: ConfiguredSubscriptions("c", ()))
    sync.sync(poll_of(tmp_path), None, memory)
    assert table(tmp_path, "subscriptions")["valid_to"].null_count == 0
