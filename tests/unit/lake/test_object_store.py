"""Leases, commits, states and copies of checkpoints in real S3 servers, some of whose requests fail."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow.fs as pafs
import pytest
from deltalake import DeltaTable

from kafka_telemetry_lake.pipelines.lake import checkpoint_folders, fence, store_races
from kafka_telemetry_lake.pipelines.lake.checkpoint_folders import checkpoints_of, own_checkpoints
from kafka_telemetry_lake.pipelines.lake.delta_log import CommitLog
from kafka_telemetry_lake.pipelines.lake.errors import FencedError, UnfitStoreError, WriterRunsError
from kafka_telemetry_lake.pipelines.lake.fence import APP_ID, JOB, Leases, this_process
from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of
from kafka_telemetry_lake.pipelines.lake.store_races import ROUNDS, WRITERS
from kafka_telemetry_lake.pipelines.runtime.ambient import explicit_settings_win
from kafka_telemetry_lake.pipelines.state.manifest import Manifest, StateFolder
from kafka_telemetry_lake.pipelines.tables.operator import PUSH_OUTCOMES
from tests.support.patience import PATIENCE_S
from tests.support.s3_proxy import Fault, S3Proxy, proxied
from tests.support.s3_server import BUCKET, GOFAKES3, VERSITYGW, S3Server

pytestmark = [pytest.mark.lake, pytest.mark.slow]  # Go builds the servers

COMMIT = r"_delta_log/\d{20}\.json"


@pytest.fixture(scope="module", params=[GOFAKES3, VERSITYGW])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    server = S3Server.start(tmp_path_factory.mktemp("s3") / "objects", request.param)
    yield server
    server.stop()


@pytest.fixture
def store(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Proxy]:
    """A proxy before the server, which the environment names."""
    with proxied(server.environment["AWS_ENDPOINT_URL"]) as proxy:
        for name, value in {**server.environment, "AWS_ENDPOINT_URL": proxy.endpoint}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(fence, "BEAT_S", 0.02)
        monkeypatch.setattr(fence, "PATIENCE_S", 0.3)
        monkeypatch.setattr(store_races, "PATIENCE_S", PATIENCE_S)
        yield proxy


@pytest.fixture
def lake(request: pytest.FixtureRequest, store: S3Proxy) -> str:
    uri = f"s3a://{BUCKET}/{request.node.name.partition('[')[0]}"
    PUSH_OUTCOMES.create(uri)
    return uri


def leases(lake: str) -> Leases:
    return Leases(lake, JOB)


def versions(lake: str) -> tuple[int, int | None]:
    """The table's version, and the last one of the application `points`."""
    table = DeltaTable(PUSH_OUTCOMES.uri(lake))
    return table.version(), table.transaction_version("points")


def test_one_of_many_gets_each_epoch(lake: str) -> None:
    def claim(number: int) -> int:
        try:
            return leases(lake).acquire(this_process(f"ingest {number}"), take_over=True).epoch
        except WriterRunsError:
            return 0

    with ThreadPoolExecutor(8) as pool:
        epochs = sorted(epoch for epoch in pool.map(claim, range(8)) if epoch)
    assert epochs == list(range(1, len(epochs) + 1))


def test_a_job_with_signs_of_life_is_left_alone_and_one_without_is_taken_over(
    lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    briefly = fence.PATIENCE_S
    monkeypatch.setattr(fence, "PATIENCE_S", PATIENCE_S)  # a sign ends the wait
    first = leases(lake).acquire(this_process("ingest"))
    first.keep_alive(lambda: None)
    with pytest.raises(WriterRunsError, match=r"`ingest`, process \d+ on .+ \(epoch 1\)"):
        leases(lake).acquire(this_process("replay"))
    first.release(clean=False)
    monkeypatch.setattr(fence, "PATIENCE_S", briefly)
    second = leases(lake).acquire(this_process("replay"))
    assert (second.epoch, second.took_over) == (2, True)
    second.keep_alive(lambda: None)
    second.release(clean=True)
    assert not leases(lake).acquire(this_process("ingest")).took_over


def test_a_server_that_ignores_conditions_is_refused(lake: str, store: S3Proxy, server: S3Server) -> None:
    if server.environment.get("AWS_REQUEST_CHECKSUM_CALCULATION") is None:
        pytest.skip("this server checks signatures, which the condition is part of")
    strike = store.strike(Fault.UNCONDITIONAL, "PUT", r"_writers/job-\d+\.json", times=2)
    with pytest.raises(UnfitStoreError, match=r"overwrites a file that must be new \(If-None-Match\)"):
        leases(lake).acquire(this_process("ingest"))
    assert len(strike.struck) == 2


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (
            Fault.LOSES_CREATES,
            r"let several create the same file \(If-None-Match\), so two jobs could write the lake at",
        ),
        (Fault.LOSES_UPDATES, r"let several replace the same state of a file \(If-Match\)"),
    ],
)
def test_a_server_that_loses_races_is_refused_and_left_as_it_was(
    lake: str, store: S3Proxy, server: S3Server, fault: Fault, said: str
) -> None:
    if server.environment.get("AWS_REQUEST_CHECKSUM_CALCULATION") is None:
        pytest.skip("this server checks signatures, which the condition is part of")
    lake = f"{lake}-{fault.name}"
    store.strike(fault, "PUT", "_writers/", times=10_000)
    with pytest.raises(UnfitStoreError, match=said):
        leases(lake).acquire(this_process("ingest"))
    store.recover()
    filesystem, root = filesystem_of(f"{lake}/_writers")
    assert filesystem.get_file_info(pafs.FileSelector(root, allow_not_found=True, recursive=True)) == []
    assert leases(lake).acquire(this_process("ingest")).epoch == 1


def test_races_are_tried_by_each_job_and_once_by_other_roles(lake: str, store: S3Proxy) -> None:
    tried = store.strike(Fault.SLOW, "PUT", "_writers/race-", times=10_000, seconds=0)
    seen = []
    for role in (JOB, JOB, "findings", "findings"):
        Leases(lake, role).acquire(this_process("x"), take_over=True)
        seen.append(len(tried.struck))
    one = 2 * WRITERS * ROUNDS
    assert seen[:3:2] == [one, 3 * one]
    assert seen[1::2] == [2 * one, 3 * one]


def test_a_store_is_asked_without_the_proxy_of_the_environment(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """delta-rs would ask it, Arrow and S3A wouldn't."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("NO_PROXY", "no_proxy", "NETRC"):
        monkeypatch.setenv(name, "")
    explicit_settings_win()
    own = leases(lake).acquire(this_process("ingest"))
    log = CommitLog(PUSH_OUTCOMES.uri(lake), own)
    log.append((), {"points": 1})
    assert versions(lake) == (2, 1)


def test_a_server_without_updates_on_a_condition_is_fit(lake: str, store: S3Proxy) -> None:
    store.strike(Fault.NO_UPDATES, "PUT", "_writers/race-", times=10_000)
    assert leases(lake).acquire(this_process("ingest")).epoch == 1


def test_a_server_whose_listing_lags_is_refused(lake: str, store: S3Proxy) -> None:
    leases(lake).latest()
    store.strike(Fault.OLD_ANSWER, "GET", "list-type=2", times=100)
    with pytest.raises(UnfitStoreError, match="listing lacks a file that was just written"):
        leases(lake).acquire(this_process("ingest"))


def test_a_server_that_changes_what_it_stores_is_refused(
    lake: str, server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "AWS_REQUEST_CHECKSUM_CALCULATION" not in server.environment:
        pytest.skip("this server knows the checksums")
    monkeypatch.delenv("AWS_REQUEST_CHECKSUM_CALCULATION")
    with pytest.raises(UnfitStoreError, match=r"other bytes than were written.*AWS_REQUEST_CHECKSUM_CALCULATION="):
        leases(lake).acquire(this_process("ingest"))


@pytest.mark.parametrize(
    ("fault", "times"), [(Fault.UNAVAILABLE, 3), (Fault.SLOW, 1), (Fault.CUT, 1), (Fault.ANSWER_LOST, 1)]
)
def test_a_claim_and_a_commit_whose_request_fails_count_once(
    lake: str, store: S3Proxy, fault: Fault, times: int
) -> None:
    strikes = [store.strike(fault, "PUT", pattern, times, 0.3) for pattern in (r"job-\d+\.json", COMMIT)]
    before = leases(lake).latest()
    own = leases(lake).acquire(this_process("ingest"), take_over=True)
    assert own.epoch == before + 1
    log = CommitLog(PUSH_OUTCOMES.uri(lake), own)  # commits the epoch
    commit = store.strike(fault, "PUT", COMMIT, times, 0.3)
    version = log.version
    log.append((), {"points": version})
    assert [len(strike.struck) for strike in (*strikes, commit)] == [times] * 3
    assert versions(lake) == (version + 1, version), "one commit"
    assert log.version == version + 1
    assert DeltaTable(PUSH_OUTCOMES.uri(lake)).transaction_version(APP_ID) == own.epoch


def test_a_commit_that_arrives_after_a_higher_epoch_is_refused(lake: str, store: S3Proxy) -> None:
    first = leases(lake).acquire(this_process("ingest"))
    log = CommitLog(PUSH_OUTCOMES.uri(lake), first)
    slow = store.strike(Fault.SLOW, "PUT", COMMIT, seconds=PATIENCE_S)
    ended: list[BaseException] = []

    def commit() -> None:
        try:
            log.append((), {"points": 7})
        except FencedError as error:
            ended.append(error)

    thread = threading.Thread(target=commit)
    thread.start()
    assert slow.began.wait(PATIENCE_S)
    second = leases(lake).acquire(this_process("ingest"), take_over=True)
    CommitLog(PUSH_OUTCOMES.uri(lake), second)
    slow.goes_on.set()
    thread.join()
    assert str(ended[0]).startswith("epoch 1 has ended: the lake is written by `ingest`, process ")
    assert versions(lake) == (2, None), "its number is the higher epoch's, so it isn't in the table"


def test_expired_credentials_are_one_line(lake: str, store: S3Proxy) -> None:
    log = CommitLog(PUSH_OUTCOMES.uri(lake), leases(lake).acquire(this_process("ingest")))
    store.strike(Fault.EXPIRED, "PUT", COMMIT)
    with pytest.raises(OSError, match=r"0002\.json can't be written: .* 403 Forbidden: .*ExpiredToken") as raised:
        log.append((), {"points": 1})
    assert "\n" not in str(raised.value)
    log.append((), {"points": 1})  # with new ones
    assert versions(lake) == (2, 1)


def test_a_store_that_stays_away_is_an_error_and_nothing_is_written(lake: str, store: S3Proxy) -> None:
    log = CommitLog(PUSH_OUTCOMES.uri(lake))
    strike = store.strike(Fault.UNAVAILABLE, "PUT", COMMIT, times=1000)
    with pytest.raises(OSError, match="503 Service Unavailable"):
        log.append((), {"points": 1})
    assert len(strike.struck) > 5, "it tried again"
    assert versions(lake) == (0, None)


@pytest.mark.parametrize("fault", [Fault.UNAVAILABLE, Fault.CUT, Fault.ANSWER_LOST])
def test_a_manifest_whose_request_fails_is_whole(lake: str, store: S3Proxy, fault: Fault) -> None:
    state = StateFolder(f"{lake}/_checkpoints/points-state", 2, 2)
    strike = store.strike(fault, "PUT", "points-state/manifest")
    state.write(Manifest(0, 2, {}))
    assert len(strike.struck) == 1
    assert state.last() == Manifest(0, 2, {})


def test_checkpoints_are_copied_once_whole(
    lake: str, store: S3Proxy, server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = StateFolder(f"{lake}/_checkpoints/points-state", 2, 2)
    state.write(Manifest(3, 2, {}))
    store.strike(Fault.EXPIRED, "PUT", "epoch-0+1/points-state/manifest")
    with pytest.raises(OSError, match="ExpiredToken"):
        checkpoint_folders._copy(f"{lake}/_checkpoints", f"{lake}/_checkpoints/epoch-{1:012d}")
    assert checkpoints_of(lake) == f"{lake}/_checkpoints", "half a copy counts for nobody"
    # `DeltaTable.is_deltatable` blocks all of Python's threads, that of the proxy too.
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.environment["AWS_ENDPOINT_URL"])
    leases(lake).acquire(this_process("ingest"))
    later = leases(lake).acquire(this_process("ingest"), take_over=True)
    assert own_checkpoints(lake, None, later) == checkpoints_of(lake) == f"{lake}/_checkpoints/epoch-{2:012d}"
    state.write(Manifest(4, 2, {}))  # of the job that was taken over
    assert StateFolder(f"{checkpoints_of(lake)}/points-state", 2, 2).batch_ids() == [3]


def test_the_next_start_deletes_folders_within_folders_of_what_was_copied(
    lake: str, server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.environment["AWS_ENDPOINT_URL"])  # as above
    filesystem, root = filesystem_of(f"{lake}/_checkpoints")
    for name in ("landing/sources/0/0", "landing/sources/1/0", "landing/offsets/0"):  # as Spark has them
        with filesystem.open_output_stream(f"{root}/{name}") as stream:
            stream.write(b"v1")
    leases(lake).acquire(this_process("ingest"))
    second = leases(lake).acquire(this_process("ingest"), take_over=True)
    copy = own_checkpoints(lake, None, second)
    second.release(clean=True)
    third = leases(lake).acquire(this_process("ingest"))
    assert own_checkpoints(lake, None, third) == copy
    left = filesystem.get_file_info(pafs.FileSelector(root, recursive=True))
    names = ("_whole", "landing/offsets/0", "landing/sources/0/0", "landing/sources/1/0")
    assert {info.path for info in left if info.type == pafs.FileType.File} == {
        f"{root}/epoch-{2:012d}/{name}" for name in names
    }
