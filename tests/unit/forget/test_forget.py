"""Erasure: no byte of a client is left in any file, the others' rows stay, and a run that was killed is finished."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from kafka_telemetry_lake.pipelines.forget import erasure, files, history, states
from kafka_telemetry_lake.pipelines.forget.erasure import NOTES, Erasure, Removed
from kafka_telemetry_lake.pipelines.forget.history import clear
from kafka_telemetry_lake.pipelines.forget.others import OtherFiles
from kafka_telemetry_lake.pipelines.forget.subject import Request, Subject, pseudonym, subject_of
from kafka_telemetry_lake.pipelines.lake.erased_files import erased_files
from kafka_telemetry_lake.pipelines.lake.errors import StateError
from kafka_telemetry_lake.pipelines.lake.followed_table import FollowedTable
from kafka_telemetry_lake.pipelines.lake.lake import Lake
from kafka_telemetry_lake.pipelines.lifecycle.follower import Lifecycle
from kafka_telemetry_lake.pipelines.replay import replay
from kafka_telemetry_lake.pipelines.state.manifest import StateFolder
from kafka_telemetry_lake.pipelines.state.snapshots import Snapshots
from kafka_telemetry_lake.pipelines.subscriptions.client_matches import update_client_matches
from kafka_telemetry_lake.pipelines.tables.catalog import CATALOG
from kafka_telemetry_lake.pipelines.tables.findings import FINDING_CHANGES
from kafka_telemetry_lake.pipelines.tables.operator import OPERATOR_TABLES, PUSHES, QUOTA_USAGE
from kafka_telemetry_lake.pipelines.upkeep.maintenance import Maintenance, MaintenanceSettings
from kafka_telemetry_lake.udfs.limits import DEFAULT_LIMITS
from tests.support.erasable_lake import NOON, Client, append, end_history, fill, lake_of, named, traces
from tests.support.lake_tables import table
from tests.support.ledger import Fleet
from tests.support.local_stream import LocalStream, run_tasks

pytestmark = pytest.mark.lake

NEXT_DAY = NOON.date()


def forget(lake: Path, write: bool = True, key: str = "", **request: str) -> dict[str, Removed]:
    removed = Erasure(str(lake), str(lake / "_checkpoints"), write).forget(Request(**request), key)
    return {each.name: each for each in removed if each}


def keys_of(lake: Path, **request: str) -> list[int]:
    keys: list[int] = subject_of(str(lake), Request(**request)).keys.tolist()
    return keys


def others(rows: pa.Table, client: Client) -> list[str]:
    """The rows that don't name a client, as texts in order."""
    texts = [str(sorted(row.items())) for row in rows.to_pylist()]
    return sorted(text for text in texts if not any(f"'{each}'" in text for each in client.texts))


def rows_of(lake: Path, client: Client) -> dict[str, list[str]]:
    """The rows of all tables that don't name a client."""
    names = [name for name in CATALOG if (lake / name / "_delta_log").exists()]
    return {name: others(table(lake, name), client) for name in names}


def named_by(lake: Path, client: Client) -> set[str]:
    """The tables whose latest version names a client."""
    names = [name for name in CATALOG if (lake / name / "_delta_log").exists()]
    return {name for name in names if any(text in str(table(lake, name).to_pylist()) for text in client.texts)}


def versions_of(lake: Path, client: Client) -> dict[tuple[str, int], list[str]]:
    """The same of every version of the operator's tables and of `pushes`."""
    found = {}
    for each in (PUSHES, *OPERATOR_TABLES):
        for version in range(DeltaTable(each.uri(str(lake))).version() + 1):
            then = DeltaTable(each.uri(str(lake)), version=version)
            found[each.name, version] = others(then.to_pyarrow_table(), client)
    return found


def left(lake: Path, texts: Iterable[str], keys: Iterable[int] = ()) -> set[str]:
    """What is left of a client once the history has ended."""
    end_history(lake)
    return traces(lake, texts, keys)


def maintain(lake: Path, vacuum_hours: int = 0) -> None:
    """Compact all days, and delete the files that only older versions name."""
    settings = MaintenanceSettings({}, 64 << 20, vacuum_hours, 7)
    job = Maintenance(str(lake), str(lake / "_checkpoints"), settings, NEXT_DAY.replace(day=25))
    for name in job.tables():
        assert job.maintain(name).problems == ()


@dataclass
class Erased:
    """An erasure after its dry run.

    Attributes:
        keys: of the client in the state.
        traces: files that named the client before.
        is_same: the dry run changed no file.
    """

    stream: LocalStream
    client: Client
    keys: list[int]
    traces: set[str]
    is_same: bool
    planned: dict[str, Removed]
    removed: dict[str, Removed]


@pytest.fixture(scope="module")
def erased(tmp_path_factory: pytest.TempPathFactory) -> Erased:
    stream, _, clients = lake_of(tmp_path_factory.mktemp("erased"))
    client, lake = clients[2], stream.lake
    fill(stream, client)
    keys = keys_of(lake, client_instance=client.instance)
    found = traces(lake, client.texts, keys)
    before = {file: file.read_bytes() for file in lake.rglob("*") if file.is_file()}
    planned = forget(lake, write=False, client_instance=client.instance)
    is_same = {file: file.read_bytes() for file in lake.rglob("*") if file.is_file()} == before
    return Erased(stream, client, keys, found, is_same, planned, forget(lake, client_instance=client.instance))


def test_no_byte_of_a_client_is_left_in_any_file(erased: Erased) -> None:
    stream, client, keys, removed = erased.stream, erased.client, erased.keys, erased.removed
    assert {Path(file).parts[0] for file in erased.traces} >= {
        "pushes", "metric_points", "push_outcomes", "client_changes", "client_events", "client_attributes",
        "metric_rollups_1m", "metric_rollups_1h", "quota_samples", "quota_usage", "quota_reports", "quotas",
        "group_members", "client_aliases", "finding_changes", "quality_results", "subscriptions", "_checkpoints",
        "pages",
    }  # fmt: skip
    assert not named_by(stream.lake, client)
    (waiting,) = erased_files(str(stream.lake))
    assert (waiting.gone_at, set(waiting.versions)) == (
        None,
        {log.parent.name for log in stream.lake.glob("*/_delta_log")},
    )
    assert clear(str(stream.lake), waiting.due - timedelta(seconds=1)) == []
    assert clear(str(stream.lake), waiting.due) == []  # by the clock of its files the logs are younger
    assert end_history(stream.lake) == [waiting.erasure]
    assert traces(stream.lake, client.texts, keys) == {"pages/index.html"}
    assert (stream.lake / "pages" / "index.html").read_text() == f"<li>(forgotten), (forgotten), {client.client_id}0"
    (receipt,) = erased_files(str(stream.lake))
    assert (receipt.erasure, receipt.erased_at) == (waiting.erasure, waiting.erased_at)
    assert (receipt.gone_at is not None, receipt.versions, receipt.files) == (True, {}, {})
    assert [path.name for path in (stream.lake / NOTES).rglob("*.json")] == [f"{receipt.erasure}.json"]
    rows = {name: each.rows for name, each in removed.items() if each.rows}
    assert rows["pushes"] == rows["push_outcomes"] == rows["metric_points"] / 3 == 7
    assert rows["client_changes"] == rows["group_members"] == rows["client_aliases"] == rows["finding_changes"] == 1
    assert rows["quota_samples"] == rows["quota_usage"] == rows["quotas"] == 3
    assert removed["quality_results"].changed_rows == removed["subscriptions"].changed_rows == 1


def test_rows_and_notes_of_others_lose_only_the_mention(erased: Erased) -> None:
    stream = erased.stream
    (finding,) = table(stream.lake, "finding_changes").to_pylist()
    assert (finding["finding_id"], finding["worst_instance"], finding["principal"]) == ("id-shared", None, None)
    assert finding["evidence"] == "(forgotten), (forgotten) and shop-app-999 lag"
    (quality,) = table(stream.lake, "quality_results").to_pylist()
    assert quality["examples"] == ["client (forgotten) at (forgotten)", "another"]
    match = {row["name"]: row["match"] for row in table(stream.lake, "subscriptions").to_pylist()}
    assert match == {"all": [], "one": [("client_instance_id", "(forgotten)|x")]}
    folder = stream.lake / "finding_changes"
    outbox = json.loads((folder / "_notify" / "sink.json").read_text())
    assert list(outbox["open"]) == ["id-shared"]
    assert [row["finding_id"] for row in outbox["waiting"]] == ["id-shared"]
    (alert,) = json.loads((folder / "_notify" / "alerts.json").read_text())["waiting"]
    assert alert["labels"]["finding_id"] == "id-shared"
    refused = json.loads((folder / "_notify" / "sink-refused-1.json").read_text())
    assert refused == {"id": "1", "changes": []}
    note = json.loads((folder / "_findings-e000000000000.json").read_text())
    assert (note["rows"], list(note["clusters"][0]["states"])) == ([], ["id-shared"])


def test_what_others_share_with_a_client_stays(tmp_path: Path) -> None:
    stream, fleet = LocalStream(tmp_path), Fleet(clients=3)
    clients = [Client(fleet, number) for number in range(3)]
    for client in clients:
        client.client_id, client.address, client.principal = "shared", "10.0.0.1", "User:all"
    stream.batch(named(fleet.round(), clients))
    append(QUOTA_USAGE, stream.lake, {"client_id": "shared", "user": "all", "window_start": NOON})
    rollups = table(stream.lake, "metric_rollups_1m").num_rows
    removed = forget(stream.lake, client_instance=clients[0].instance)
    assert {name for name, each in removed.items() if each.rows} == {"pushes", "metric_points", "push_outcomes"}
    assert table(stream.lake, "metric_rollups_1m").num_rows == rollups
    assert table(stream.lake, "quota_usage").num_rows == 1
    assert set(table(stream.lake, "pushes")["principal"].to_pylist()) == {"User:all", None}


def test_a_client_that_pushes_again_is_a_new_one(tmp_path: Path) -> None:
    stream, fleet, clients = lake_of(tmp_path)
    client = clients[2]
    forget(stream.lake, client_instance=client.instance)
    again = list(named(fleet.round(), clients))
    stream.batch(again)
    Lifecycle(str(stream.lake)).catch_up()
    landed = sorted(each["timestamp"] for each in again if each["key"].decode() == client.instance)
    mine = {
        name: [row for row in table(stream.lake, name).to_pylist() if row["client_instance_id"] == client.instance]
        for name in ("client_changes", "client_events", "metric_points")
    }
    (state,) = mine["client_changes"]
    assert (state["first_seen"], state["pushes"]) == (landed[0], len(landed))
    assert [row["event"] for row in mine["client_events"]] == ["first_seen"]
    totals = sorted((row["time"], row["delta_status"]) for row in mine["metric_points"] if row["metric"] == "app.total")
    assert [status for _, status in totals][:2] == ["first", "converted"]


@pytest.mark.slow
def test_a_replay_does_not_bring_it_back_from_the_first_push_or_from_a_snapshot(tmp_path: Path) -> None:
    stream, _, clients = lake_of(tmp_path)
    client = clients[2]
    before = rows_of(stream.lake, client)
    forget(stream.lake, client_instance=client.instance)
    assert len(Snapshots(str(stream.checkpoints)).all()) == 1
    last = max(table(stream.lake, "pushes")["landed_at"].to_pylist())
    wanted = f"landed_at >= TIMESTAMPTZ '{last.isoformat()}'"
    assert replay._snapshot_before(Lake(str(stream.lake)), str(stream.checkpoints), wanted) is not None
    for condition in (wanted, None):
        replay.replay(str(stream.lake), str(stream.checkpoints), condition, DEFAULT_LIMITS, 1, run_tasks)
        after = rows_of(stream.lake, client)
        for name in ("metric_points", "push_outcomes", "quarantine", "client_events", "client_changes"):
            assert after[name] == before[name], name
        assert left(stream.lake, [client.instance]) == set()


@pytest.mark.slow
def test_what_followers_have_not_read_yet_they_read_afterwards(tmp_path: Path) -> None:
    (stream, fleet, clients), (other, again, _) = lake_of(tmp_path), lake_of(tmp_path / "other")
    client = clients[2]
    for each, source in ((stream, fleet), (other, again)):
        each.batch(named(source.round(), clients))  # the lifecycle hasn't read it
        each.land(named(source.round(), clients))  # nor the operator
    position = DeltaTable(PUSHES.uri(str(stream.lake))).version() - 1
    forget(stream.lake, client_instance=client.instance)
    for each in (stream, other):
        followed = FollowedTable(PUSHES.uri(str(each.lake)))
        each.judge([path for commit in followed.commits(position) for path in commit.files])
        Lifecycle(str(each.lake)).catch_up()
    assert not named_by(stream.lake, client)
    assert rows_of(stream.lake, client) == rows_of(other.lake, client)
    assert left(stream.lake, client.texts) == set()


@pytest.mark.slow
def test_the_log_stays_as_it_was_until_the_history_ends(tmp_path: Path) -> None:
    stream, fleet, clients = lake_of(tmp_path)
    client = clients[2]
    for _ in range(3):
        stream.batch(named(fleet.round(), clients))
    DeltaTable(PUSHES.uri(str(stream.lake))).create_checkpoint()
    maintain(stream.lake, 24)
    stream.batch(named(fleet.round(), clients))
    before = versions_of(stream.lake, client)
    logs = {path: path.read_bytes() for path in stream.lake.glob("*/_delta_log/0*")}
    files = set((stream.lake / "pushes").glob("landed_date=*/*.parquet"))
    removed = forget(stream.lake, client_instance=client.instance)
    assert removed["pushes"].files == 8  # six compacted ones, that of the last batch and the compacted one
    assert {path: path.read_bytes() for path in logs} == logs
    assert {key: rows for key, rows in versions_of(stream.lake, client).items() if key in before} == before
    rows = rows_of(stream.lake, client)
    assert left(stream.lake, client.texts) == set()
    assert not files & set(stream.lake.rglob("*.parquet"))
    assert not any(path.exists() for path in logs)
    assert rows_of(stream.lake, client) == rows
    maintain(stream.lake)
    stream.batch(named(fleet.round(), clients))


@pytest.mark.slow
@pytest.mark.parametrize("killed", ["_delete_files", "replace"])
def test_killed_while_the_history_ends_the_next_run_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: str
) -> None:
    stream, _, clients = lake_of(tmp_path, 3)
    forget(stream.lake, client_instance=clients[2].instance)
    with monkeypatch.context() as patch:
        patch.setattr(history, killed, _dying(getattr(history, killed), 0))
        with pytest.raises(KeyboardInterrupt):
            end_history(stream.lake)
    (waiting,) = erased_files(str(stream.lake))
    assert waiting.gone_at is None
    assert clear(str(stream.lake), datetime.now(UTC) + timedelta(days=2)) == [waiting.erasure]
    assert traces(stream.lake, clients[2].texts) == set()
    assert clear(str(stream.lake), datetime.now(UTC) + timedelta(days=3)) == []


@pytest.mark.slow
def test_statistics_of_files_that_are_gone_already_lose_their_bounds(tmp_path: Path) -> None:
    stream, fleet, clients = lake_of(tmp_path)
    for _ in range(3):
        stream.batch(named(fleet.round(), clients))
    maintain(stream.lake)
    for client in clients:
        forget(stream.lake, client_instance=client.instance)
        assert left(stream.lake, client.texts) == set()
    assert table(stream.lake, "metric_points").num_rows == 0


STEPS = (
    (erasure.Erasure, "_save"), (erasure.Erasure, "_delete"), (erasure, "commit"), (history, "sync"),
    (files.TableFolder, "rewrite"), (files, "sync"), (states, "_write"), (states, "_rename"), (OtherFiles, "forget"),
)  # fmt: skip


def dies_at(monkeypatch: pytest.MonkeyPatch, step: int) -> list[int]:
    """Let an erasure die before a step; returns the steps that it has begun."""
    begun: list[int] = []

    def dying(do: Any) -> Any:
        def wrapper(*args: Any, **options: Any) -> Any:
            begun.append(len(begun))
            if len(begun) > step:
                raise KeyboardInterrupt
            return do(*args, **options)

        return wrapper

    for owner, name in STEPS:
        monkeypatch.setattr(owner, name, dying(getattr(owner, name)))
    return begun


def killed_and_finished(made: Path, lake: Path, client: Client, step: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Kill an erasure at a step, look at the lake, and finish it; returns whether it died."""
    shutil.copytree(made, lake)
    before, keys = rows_of(lake, client), keys_of(lake, client_instance=client.instance)
    planned = forget(lake, write=False, client_instance=client.instance)
    rows = {name: each.rows for name, each in planned.items() if each.rows}
    removed: dict[str, Removed] | None = None
    with monkeypatch.context() as patch:
        dies_at(patch, step)
        try:
            removed = forget(lake, client_instance=client.instance)
        except KeyboardInterrupt:
            died = True
            under_way = Erasure(str(lake), f"{lake}/_checkpoints").under_way()
            assert under_way in ([], [Request(client.instance)])
            ended = step > 0 and not under_way  # killed while it tidied up, with its receipt written
            assert not ended or [each.gone_at for each in erased_files(str(lake))] == [None]
        else:
            died, ended = False, True
    after = rows_of(lake, client)
    for name in ("pushes", "metric_points", "push_outcomes", "client_changes", "client_events", "quota_usage"):
        assert after[name] == before[name], (step, name)
    if not ended:
        removed = forget(lake, client_instance=client.instance)
        after = rows_of(lake, client)
    assert left(lake, client.texts, keys) <= {"pages/index.html"}, step
    if removed is not None:  # else it had ended when it was killed, and nobody was given its counts
        assert {name: each.rows for name, each in removed.items() if each.rows} == rows, step
    assert after["finding_changes"] == before["finding_changes"] or len(after["finding_changes"]) == 1
    assert Erasure(str(lake)).notes() == []
    return died


@pytest.mark.slow
@pytest.mark.parametrize("step", [1, 20, *(pytest.param(step, marks=pytest.mark.soak) for step in (9, 75))])
def test_killed_at_some_step_the_next_run_finishes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    stream, _, clients = lake_of(tmp_path, 3)
    fill(stream, clients[2])
    assert killed_and_finished(stream.lake, tmp_path / "copy", clients[2], step, monkeypatch)


@pytest.mark.slow
def test_killed_before_a_commit_it_counts_each_row_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream, _, clients = lake_of(tmp_path, 3)
    planned = forget(stream.lake, write=False, client_instance=clients[2].instance)
    for step in (0, 2):
        with monkeypatch.context() as patch:
            patch.setattr(erasure, "commit", _dying(history.commit, step))
            with pytest.raises(KeyboardInterrupt):
                forget(stream.lake, client_instance=clients[2].instance)
    done = forget(stream.lake, client_instance=clients[2].instance)
    counts = [{each.name: (each.rows, each.bytes_before) for each in run.values()} for run in (planned, done)]
    assert counts[0] == counts[1]


def _dying(do: Any, step: int) -> Any:
    """A function that dies instead of its call of that number."""
    calls: list[None] = []

    def wrapper(*args: Any, **options: Any) -> Any:
        calls.append(None)
        if len(calls) > step:
            raise KeyboardInterrupt
        return do(*args, **options)

    return wrapper


def test_a_principal_with_its_clients_its_quotas_and_its_pseudonym(tmp_path: Path) -> None:
    stream, fleet = LocalStream(tmp_path), Fleet(clients=4)
    clients = [Client(fleet, number) for number in range(4)]
    name, key = "User:ann/b c", "secret key"
    clients[2].principal, clients[1].principal = name, pseudonym(name, key)
    stream.batch(named(fleet.round(), clients))
    Lifecycle(str(stream.lake)).catch_up()
    for user in ("ann/b c", "ann%2Fb%20c", "ann%2Fb+c", pseudonym(name, key), "bob"):
        append(QUOTA_USAGE, stream.lake, {"user": user, "client_id": "", "window_start": NOON})
    append(
        FINDING_CHANGES, stream.lake,
        {"finding_id": "hers", "scope": "principal", "subject": name, "principal": name, "recorded_at": NOON},
        {"finding_id": "other", "subject": "app", "principal": name, "by": "ann/b c", "recorded_at": NOON},
    )  # fmt: skip
    texts = [*clients[2].texts, *clients[1].texts, name, "ann/b c", "ann%2Fb", pseudonym(name, key)]
    texts = [text for text in texts if not text.startswith("member-")]
    keys = keys_of(stream.lake, client_instance=clients[2].instance)
    assert len(keys) == 3  # of the client in no and in one cluster, and of the principal's budget
    forget(stream.lake, key=key, principal=name)
    assert left(stream.lake, texts, keys) == set()
    assert table(stream.lake, "quota_usage")["user"].to_pylist() == ["bob"]
    (finding,) = table(stream.lake, "finding_changes").to_pylist()
    assert (finding["finding_id"], finding["principal"], finding["by"]) == ("other", None, None)
    assert len(set(table(stream.lake, "pushes")["client_instance_id"].to_pylist())) == 3  # two, and the hostile one


def test_a_file_of_the_erasure_itself_gets_another_name() -> None:
    name = files.new_name("landed_date=2026-11-20/part-1.zstd.parquet", "0a1b2c3d")
    assert name == "landed_date=2026-11-20/part-1~0a1b2c3d.zstd.parquet"
    assert files.new_name(name, "4e5f6a7b") == "landed_date=2026-11-20/part-1~4e5f6a7b.zstd.parquet"
    assert files.new_name(name, "0a1b2c3d") not in (name, "landed_date=2026-11-20/part-1.zstd.parquet")


def test_what_the_note_says_about_a_principal_is_read_as_it_was() -> None:
    subject = Subject("c1", frozenset({"c1"}), principals=frozenset({"User:a"}), attributes=frozenset({7}),
                      pushes=frozenset({("test", None, "t", 0, 5, 1_700_000_000_000_000)}))  # fmt: skip
    assert Subject.from_json(json.loads(json.dumps(subject.to_json()))) == subject


def test_a_pseudonym_is_that_of_the_stored_pushes() -> None:
    assert pseudonym("User:alice", "key") == hashlib.sha256(b"key\0User:alice").hexdigest()[:32]


def test_a_principal_that_used_anothers_id_loses_only_its_own_pushes(tmp_path: Path) -> None:
    stream, fleet = LocalStream(tmp_path), Fleet(clients=2)
    owner, thief = Client(fleet, 0), Client(fleet, 0)
    thief.principal, thief.address, thief.client_id = "User:thief", "6.6.6.6", "thieves-app"
    stream.batch(named(fleet.round(), [owner]))
    stream.batch(named(fleet.round(), [thief]))
    Lifecycle(str(stream.lake)).catch_up()
    update_client_matches(str(stream.lake))
    before = {name: table(stream.lake, name).num_rows for name in ("pushes", "metric_points", "client_changes")}
    assert table(stream.lake, "quarantine").num_rows == 2 + 3  # the hostile client's, and the thief's
    forget(stream.lake, principal="User:thief")
    assert {name: table(stream.lake, name).num_rows for name in before} == before | {"pushes": before["pushes"] - 3}
    assert table(stream.lake, "quarantine").num_rows == 2
    assert left(stream.lake, ["User:thief", "6.6.6.6", "thieves-app"]) == set()
    forget(stream.lake, principal=owner.principal)
    assert left(stream.lake, owner.texts) == set()


def test_of_two_clusters_only_the_one_that_is_asked_for(tmp_path: Path) -> None:
    stream, fleet = LocalStream(tmp_path), Fleet(clients=3)
    clients = [Client(fleet, number) for number in range(3)]
    first, second = fleet.round(), fleet.round()
    stream.batch(named(first, clients, "c1"))
    stream.batch(named(second, clients, "c2"))
    pushes = [sum(each["key"].decode() == clients[0].instance for each in landed) for landed in (first, second)]
    mine = clients[0].instance
    assert forget(stream.lake, client_instance=mine, cluster_id="c3") == {}
    removed = forget(stream.lake, client_instance=mine, cluster_id="c1")
    assert removed["pushes"].rows == pushes[0]
    rows = table(stream.lake, "metric_points").to_pylist()
    assert {row["cluster_id"] for row in rows if row["client_instance_id"] == mine} == {"c2"}
    assert clients[0].client_id in table(stream.lake, "metric_rollups_1m")["client_id"].to_pylist()
    assert forget(stream.lake, client_instance=mine, cluster_id="c2")["pushes"].rows == pushes[1]
    assert left(stream.lake, clients[0].texts) == set()


def test_a_dry_run_changes_no_file_and_counts_what_the_run_removes(erased: Erased) -> None:
    def counts(removed: dict[str, Removed]) -> dict[str, tuple[int, ...]]:
        return {each.name: (each.rows, each.changed_rows, each.files, each.bytes_before) for each in removed.values()}

    assert erased.is_same
    assert counts(erased.planned) == counts(erased.removed)
    assert forget(erased.stream.lake, client_instance=erased.client.instance) == {}


@pytest.mark.slow
def test_a_damaged_state_file(tmp_path: Path) -> None:
    stream, _, clients = lake_of(tmp_path)
    keys = keys_of(stream.lake, client_instance=clients[2].instance)
    folder = stream.checkpoints / "points-state"
    damaged = max(folder.glob("*.state"))
    good = damaged.read_bytes()
    damaged.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    with pytest.raises(StateError, match=rf"state file {damaged.name} below .* is damaged, so what it has can't be"):
        forget(stream.lake, client_instance=clients[2].instance)
    damaged.write_bytes(good)
    forget(stream.lake, client_instance=clients[2].instance)
    assert left(stream.lake, clients[2].texts, keys) == set()
    assert StateFolder(str(folder), None, 1).last() is not None
