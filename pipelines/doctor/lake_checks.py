"""Checks a lake: whether there is one, whether a job writes it, and how fresh it is."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

import pyarrow as pa

from kafka_telemetry_lake.pipelines.doctor.check import Check, age_text
from kafka_telemetry_lake.pipelines.forget.erasure import unfinished
from kafka_telemetry_lake.pipelines.iceberg.places import behind, has_iceberg_tables
from kafka_telemetry_lake.pipelines.lake.erased_files import erased_files
from kafka_telemetry_lake.pipelines.query.lake_query import is_lake, run_query
from kafka_telemetry_lake.udfs.subscriptions.matching import CLIENTS

BEHIND_S = 300.0
ICEBERG_BEHIND_S = 3600.0
BUSY = 0.8
MAINTAINED_EACH = timedelta(days=1)
_HEALTH = """
    SELECT max(last_batch_at) AS batch_at,
           max(last_batch_at - to_microseconds(CAST(1e6 * freshness_s AS BIGINT))) AS landed_at,
           max(waiting) FILTER (WHERE stream = 'pushes') AS waiting, max(busy) AS busy
    FROM pipeline_health"""
_CLIENTS = """
    SELECT client_instance_id, client_id, client_software_name, client_software_version,
           client_address AS client_source_address, CAST(client_port AS VARCHAR) AS client_source_port
    FROM clients WHERE state = 'active'"""


@dataclass(frozen=True)
class LakeFacts:
    """What a lake's tables say about its job. Values are None if no job has reported them."""

    batch_at: datetime | None = None
    landed_at: datetime | None = None
    waiting: int | None = None
    busy: float | None = None


def read_lake(lake: str) -> LakeFacts | None:
    """The facts of a lake; None: there is none. Raises ``QueryError``."""
    return LakeFacts(**_rows(lake, _HEALTH).to_pylist()[0]) if is_lake(lake) else None


def active_clients(lake: str) -> pa.Table:
    """Columns of ``matching.CLIENTS`` of the active clients. Raises ``QueryError``."""
    return _rows(lake, _CLIENTS).cast(CLIENTS)


def check_lake(
    lake: str, facts: LakeFacts | None, job_runs: bool | None, newest_ms: int | None, now: datetime
) -> Iterator[Check]:
    """Check a lake.

    Args:
        job_runs: whether a job has the lake's lock; None: not known, as in an object store.
        newest_ms: when the newest push landed in the topic; None: not known.
    """
    if facts is None:
        yield Check("lake", "warning", f"no lake at {lake} yet", "`telemetry-lake ingest` or `connect` creates it")
        return
    yield Check("lake", "ok", f"there is a lake at {lake}")
    batch = "no batch yet" if facts.batch_at is None else f"last batch {_age(now, facts.batch_at)} ago"
    if job_runs is None:
        yield Check("job", "skipped", f"whether a job runs can't be seen here; {batch}")
    elif job_runs:
        yield Check("job", "ok", f"a job writes this lake; {batch}")
    else:
        yield Check("job", "warning", f"no job writes this lake; {batch}", "start `telemetry-lake ingest`")
    yield _freshness(facts, newest_ms, now)
    if facts.busy is not None and facts.busy > BUSY:
        yield Check(
            "load",
            "warning",
            f"the job spent {facts.busy:.0%} of its last hour in batches",
            "give it more cores: docs/sizing.md",
        )


def check_erasures(lake: str, now: datetime) -> Iterator[Check]:
    """Erasures that aren't finished, and those whose history `maintain` should have ended a day ago."""
    for request, command in unfinished(lake).items():
        yield Check(
            "erasure",
            "warning",
            f"the erasure of {request} was begun and is not finished",
            f"stop the job, run `{command}`, start it again",
        )
    due = [each for each in erased_files(lake) if each.gone_at is None and each.due + MAINTAINED_EACH <= now]
    if due:
        yield Check(
            "erasure",
            "warning",
            f"old versions of the tables still have what was erased, in {len(due)} of the lake's erasures; `maintain` "
            f"could have ended that since {due[0].due:%Y-%m-%d %H:%M} UTC",
            f"run `{shlex.join(['telemetry-lake', 'maintain', '--lake', lake])}`, each day",
        )


def check_iceberg(lake: str, now: datetime) -> Iterator[Check]:
    """Whether the Iceberg tables in the lake's folder follow its Delta tables; nothing if there are none."""
    if not has_iceberg_tables(lake):
        return
    late = [each for each in behind(lake) if (now - each.since).total_seconds() > ICEBERG_BEHIND_S]
    if not late:
        yield Check("iceberg", "ok", "the lake's Iceberg tables follow it")
        return
    longest = min(late, key=lambda each: each.since)
    yield Check(
        "iceberg",
        "warning",
        f"{len(late)} Iceberg tables lack commits of the lake; {longest.table} is {_age(now, longest.since)} behind",
        f"run `{shlex.join(['telemetry-lake', 'iceberg', '--lake', lake])}`, or with --follow: VACUUM deletes files "
        "that they name",
    )


def _freshness(facts: LakeFacts, newest_ms: int | None, now: datetime) -> Check:
    if facts.landed_at is None:
        return Check("freshness", "warning", "no push is in the lake yet", "wait for the job's first batch")
    text = f"the newest push in the lake landed {_age(now, facts.landed_at)} ago"
    waiting = f"; {facts.waiting:,} wait" if facts.waiting else ""
    if newest_ms is not None:
        behind_s = newest_ms / 1000 - facts.landed_at.timestamp()
        if behind_s > BEHIND_S:
            return Check(
                "freshness",
                "warning",
                f"{text}, {age_text(behind_s)} before the topic's newest{waiting}",
                "start the job if it doesn't run; else give it more cores: docs/sizing.md",
            )
        return Check("freshness", "ok", f"{text}, {age_text(max(0, behind_s))} before the topic's newest{waiting}")
    return Check("freshness", "ok", f"{text}{waiting}")


def _age(now: datetime, time: datetime) -> str:
    return age_text(max(0.0, (now - time).total_seconds()))


def _rows(lake: str, sql: str) -> pa.Table:
    return run_query(lake, sql).read_all()
