"""What a proposed quota would have done: beside a broker's own arithmetic, and over a lake's samples."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kafka_telemetry_lake.jobs import cli
from kafka_telemetry_lake.pipelines.quotas.recorded import NothingRecordedError, Proposal
from kafka_telemetry_lake.pipelines.quotas.what_if import remarks, what_if
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES, QUOTA_SAMPLES, QUOTA_USAGE
from kafka_telemetry_lake.pipelines.tables.quotas import QUOTAS
from kafka_telemetry_lake.udfs.errors import CannotRunError
from kafka_telemetry_lake.udfs.quotas.limits import DEFAULT
from kafka_telemetry_lake.udfs.quotas.what_if import Replayed, rates_by_second, replay, smallest_limits
from tests.oracle.quota_broker import run
from tests.support.application_lake import put
from tests.support.quota_samples import NOON, quota, sample, usage_window

SECONDS, LIMIT, REQUEST = 180, 100_000.0, 5_000.0
second = np.arange(SECONDS)
LOADS = {  # as multiples of the limit
    "below": np.full(SECONDS, 0.9),
    "above": np.full(SECONDS, 1.2),
    "far above": np.full(SECONDS, 2.5),
    "rising": np.linspace(0.2, 1.6, SECONDS),
    "waves": 1.1 + 0.6 * np.sin(second / 9),
    "bursts of 20 s": np.where(second % 60 < 20, 2.0, 0.1),
    "bursts of 6 s": np.where(second % 45 < 6, 4.0, 0.2),
}


def replayed(samples: list[tuple[float, float]], limit: float, seconds: int = SECONDS) -> Replayed:
    times, rates = np.array(samples).T
    return replay(rates_by_second(times, rates, seconds, 35)[None], np.array([limit]))


@pytest.mark.parametrize("interval", [1, 10])
@pytest.mark.parametrize("name", LOADS)
def test_q16_the_throttled_time_is_that_of_a_broker(name: str, interval: int) -> None:
    load = LIMIT * LOADS[name]
    recorded, truth = run(list(load), REQUEST, None, interval), run(list(load), REQUEST, LIMIT, interval)
    found = float(replayed(recorded.samples, LIMIT).throttled_s[0])
    # A burst that is shorter than the ten seconds of a sample is spread over them.
    error = 0.25 if (name, interval) == ("bursts of 6 s", 10) else 0.10
    assert found == pytest.approx(truth.throttled_s, rel=error, abs=1.0)


def test_q16_a_steady_load_by_hand() -> None:
    of_half = replayed([(float(at), 50.0) for at in range(10, 121, 10)], 100.0, 120)
    assert of_half.throttled_s == [0.0]
    assert of_half.used == pytest.approx([0.5], rel=0.06)  # the window fills in its first ten seconds
    of_two = replayed([(float(at), 200.0) for at in range(10, 121, 10)], 100.0, 120)
    # 1,000 bytes reach the bound, those of the first five seconds. The first window of 11 s lets 1,100 pass.
    assert of_two.throttled_s == pytest.approx([115.0], abs=0.5)
    assert (of_two.first[0], of_two.last[0]) == (5, 119)
    assert of_two.longest_wait_s == pytest.approx([120.0], abs=0.5)  # 24,000 bytes came, 1,100 + 109 x 100 passed
    assert of_two.mean == pytest.approx([200.0], rel=0.01)


def test_seconds_without_samples_are_not_known_and_nothing_waits_over_them() -> None:
    times = np.array([10.0, 20.0, 30.0, 130.0, 140.0])
    rates = rates_by_second(times, np.full(5, 200.0), 200, 35)
    known = ~np.isnan(rates)
    assert known[:30].all()
    assert not known[31:129].any()
    assert known[131:140].all()
    assert not known[141:].any()
    found = replay(rates[None], np.array([100.0]))
    assert found.longest_wait_s[0] < 30


def test_an_entity_without_samples_has_no_rates() -> None:
    assert np.isnan(rates_by_second(np.array([]), np.array([]), 5, 35)).all()


@pytest.mark.parametrize("share", [0.0, 0.2])
def test_the_smallest_limit_throttles_for_that_share_and_no_smaller_one_does(share: float) -> None:
    loads = [LIMIT * LOADS[name] for name in ("waves", "bursts of 20 s")]
    recorded = [np.array(run(list(load), REQUEST, None, 1).samples).T for load in loads]
    rates = np.array([rates_by_second(times, values, SECONDS, 35) for times, values in recorded])
    found = smallest_limits(rates, share)
    most = share * (~np.isnan(rates)).sum(axis=1)
    assert (replay(rates, found).throttled_s <= most).all()
    assert (replay(rates, found * 0.99).throttled_s > most).all()
    if not share:
        assert found == pytest.approx(np.nanmax(rates, axis=1), rel=0.1)


def set_quota(lake: Path, user: str, client_id: str, limit: float) -> None:
    put(lake, QUOTAS, [quota(user, client_id, limit)])


def estimate(lake: Path, *client_ids: str) -> None:
    """What clients' own byte counters say, 80 bytes/s for ten minutes."""
    more = {"samples": 1, "observed_rate": 80.0, "source": "client", "landed_date": NOON.date()}
    for name in client_ids:
        put(lake, QUOTA_USAGE, [usage_window(at, client_id=name) | more for at in range(0, 600, 10)])


def ask(lake: Path, user: str, client_id: str, limit: float | None, percent: float = 0.0) -> list[dict[str, Any]]:
    proposal = Proposal("produce", user, client_id, limit, percent)
    rows: list[dict[str, Any]] = what_if(str(lake), proposal, NOON, NOON + timedelta(minutes=10)).rows.to_pylist()
    return rows


def test_q17_the_most_specific_quota_applies_and_clients_of_a_user_count_as_one(tmp_path: Path) -> None:
    for user, client_id, rate in (("ann", "a", 60.0), ("ann", "b", 60.0), ("bob", "a", 60.0), ("cy", "c", 90.0)):
        sample(tmp_path, client_id, rate, user=user)
        sample(tmp_path, client_id, rate / 10, user=user, broker_id=2)
    set_quota(tmp_path, "cy", "", 500.0)
    found = ask(tmp_path, DEFAULT, "", 100.0)
    shown = [(row["user"], row["client_id"], row["broker_id"], round(row["mean_rate"])) for row in found]
    assert shown == [("ann", "", 1, 120), ("bob", "", 1, 60), ("ann", "", 2, 12), ("bob", "", 2, 6)]
    assert [row["throttled_percent"] > 90 for row in found] == [True, False, False, False]
    assert found[1]["used_percent"] == pytest.approx(60, rel=0.02)
    of_bob = ask(tmp_path, "bob", "a", 50.0)
    assert [(row["user"], row["client_id"], row["broker_id"]) for row in of_bob] == [("bob", "a", 1), ("bob", "a", 2)]


def test_who_was_not_recorded_or_together_with_others_cannot_be_told(tmp_path: Path) -> None:
    QUOTA_SAMPLES.create(str(tmp_path))
    with pytest.raises(NothingRecordedError, match="no rates of produce were recorded between 2026-11-21 12:00"):
        ask(tmp_path, "", "a", 100.0)
    sample(tmp_path, "a", 60.0)
    with pytest.raises(NothingRecordedError, match="counted 1 entities together that this quota would separate"):
        ask(tmp_path, "ann", "", 100.0)
    with pytest.raises(NothingRecordedError, match="nobody to whom this quota would apply was recorded"):
        ask(tmp_path, "", "other", 100.0)
    sample(tmp_path, "", 60.0, user="ann")
    end = NOON + timedelta(minutes=10)
    found = what_if(str(tmp_path), Proposal("produce", "", "a", 100.0), NOON, end)
    assert (found.rows["client_id"].to_pylist(), found.together) == (["a"], 1)
    with pytest.raises(CannotRunError, match="nobody waits"):
        what_if(str(tmp_path), Proposal("produce", "", "a", 100.0), NOON, end, is_ended=lambda: True)


def test_samples_before_the_time_alone_are_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They fill the window of the first seconds and are no seconds of their own."""
    PUSHES.create(str(tmp_path))
    sample(tmp_path, "a", 60.0, begin=-50, end=-10)
    for limit in ("smallest", "100"):
        argv = ["what-if", "quota", "--lake", str(tmp_path), "--client-id", "a", "--produce", limit]
        assert cli.main([*argv, "--from", NOON.isoformat(), "--to", (NOON + timedelta(minutes=10)).isoformat()]) == 2
        out, err = capsys.readouterr()
        assert (out, "no rates of produce were recorded between 2026-11-21 12:00" in err) == ("", True), err


def test_more_than_can_be_computed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sample(tmp_path, "a", 60.0)
    sample(tmp_path, "b", 60.0, end=310)
    monkeypatch.setattr("kafka_telemetry_lake.pipelines.quotas.recorded.MOST_SAMPLES", 89)
    with pytest.raises(CannotRunError, match=r"apply to 2 recorded entities with 90 samples; allowed: .* 89 samples"):
        ask(tmp_path, "", DEFAULT, 100.0)
    assert len(ask(tmp_path, "", "a", 100.0)) == 1
    monkeypatch.setattr("kafka_telemetry_lake.pipelines.quotas.recorded.MOST_ENTITIES", 1)
    with pytest.raises(CannotRunError, match="apply to more than 1 recorded entities; allowed: 1 entities"):
        ask(tmp_path, "", DEFAULT, 100.0)


@pytest.mark.parametrize("cells", [1, 4_000_000])
def test_q17_what_is_united_is_so_across_batches_and_parts(
    cells: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Users of a client id aren't neighbours by name, and an entity has more samples than a batch of the reader."""
    monkeypatch.setattr("kafka_telemetry_lake.pipelines.quotas.what_if.CELLS", cells)
    ten = [timedelta(milliseconds=10 * number) for number in range(60_000)]
    row = {"cluster_id": "c", "quota_type": "produce", "observed_rate": 30.0, "landed_date": NOON.date()}
    keys = [(user, client_id, broker) for user in ("ann", "bob") for client_id in ("a", "b") for broker in (1, None)]
    rows = [
        row | {"user": user, "client_id": client_id, "broker_id": broker, "time": NOON + at}
        for user, client_id, broker in keys
        for at in (ten[::10] if (user, client_id) == ("ann", "a") else ten[::1000])
    ]
    put(tmp_path, QUOTA_SAMPLES, rows)
    found = {(each["client_id"], each["broker_id"]): each["peak_rate"] for each in ask(tmp_path, "", DEFAULT, 100.0)}
    assert found == {(client_id, broker): pytest.approx(60) for client_id in "ab" for broker in (1, None)}


def test_what_clients_report_counts_where_a_broker_has_no_samples(tmp_path: Path) -> None:
    sample(tmp_path, "sampled", 60.0)
    estimate(tmp_path, "sampled", "estimated")
    found = {row["client_id"]: (row["source"], round(row["mean_rate"])) for row in ask(tmp_path, "", DEFAULT, 100.0)}
    assert found == {"sampled": ("broker", 60), "estimated": ("client", 80)}


def test_what_a_prediction_does_not_know_is_said(tmp_path: Path) -> None:
    sample(tmp_path, "whole", 60.0)
    sample(tmp_path, "", 60.0, user="ann")
    proposal, end = Proposal("produce", "", DEFAULT, 100.0), NOON + timedelta(minutes=10)
    sample(tmp_path, "then", 60.0, throttle_time_ms=5.0)
    sample(tmp_path, "gap", 60.0, end=210)
    sample(tmp_path, "gap", 60.0, begin=400)
    estimate(tmp_path, "estimated")
    found = what_if(str(tmp_path), proposal, NOON, end)
    rows = {row["client_id"]: row for row in found.rows.to_pylist()}
    status = {"whole": "ok", "estimated": "ok", "then": "throttled_then", "gap": "gaps"}
    assert {name: row["status"] for name, row in rows.items()} == status
    assert rows["whole"]["recorded_s"] == 600
    assert rows["gap"]["recorded_s"] == pytest.approx(200 + 210, abs=12)
    assert list(remarks(found, NOON, end)) == [
        "1 more were recorded together with others, which this quota would separate",
        "1 of 4 weren't recorded for the whole time, one for 400 of 600 s: what is missing is left out, not "
        "interpolated",
        "1 of 4 have no samples of brokers: they are estimated from byte counters that clients pushed, so bursts "
        "within a push interval aren't seen",
        "1 of 4 were throttled while they were recorded: they may have wanted more than their rates say",
    ]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    PUSHES.create(str(tmp_path))  # it is a lake
    sample(tmp_path, "calm", 40.0)
    sample(tmp_path, "busy", 150.0)
    asked = ["what-if", "quota", "--lake", str(tmp_path), "--client-defaults", "--from", f"{NOON.isoformat()}",
             "--to", f"{(NOON + timedelta(minutes=10)).isoformat()}", "--format", "jsonl"]  # fmt: skip
    assert cli.main([*asked, "--produce", "100"]) == 0
    out, err = capsys.readouterr()
    assert [json.loads(line)["client_id"] for line in out.splitlines()] == ["busy", "calm"]
    assert err == "1 of 2 would have been throttled\n"
    assert cli.main([*asked, "--produce", "smallest"]) == 0
    out, err = capsys.readouterr()
    rows = {row["client_id"]: row for row in map(json.loads, out.splitlines())}
    limits = {name: row["quota_limit"] for name, row in rows.items()}
    assert limits == {"busy": pytest.approx(150, rel=0.05), "calm": pytest.approx(40, rel=0.05)}
    assert all(limit.is_integer() for limit in limits.values())
    assert [row["throttled_s"] for row in rows.values()] == [0, 0]
    assert err == f"{limits['busy']:.6g} is the smallest limit that would have throttled nobody of 2\n"


@pytest.mark.parametrize(("flags", "message"), [
    (["--client-id", "a"], "produce, fetch, request: give one of them"),
    (["--produce", "1"], "user, client_id: for whom?"),
    (["--client-id", "a", "--client-defaults", "--produce", "1"], "name one, or give --user-defaults or"),
    (["--client-id", "a", "--produce", "0"], "allowed: a number above 0"),
    (["--client-id", "a", "--produce", "1.5"], "allowed: a whole number"),
    (["--client-id", "a", "--produce", "1", "--throttled-percent", "5"], "works only with --produce smallest"),
])  # fmt: skip
def test_wrong_flags(flags: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["what-if", "quota", "--lake", str(tmp_path), *flags]) == 2
    assert message in capsys.readouterr().err
