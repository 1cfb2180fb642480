"""``telemetry-lake forget``: erases a client instance or a principal from every table and file of a lake."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict

import duckdb
import pyarrow as pa
from deltalake.exceptions import DeltaError

from kafka_telemetry_lake.jobs.settings.base import UsageError, secret_text
from kafka_telemetry_lake.jobs.settings.forget import ForgetSettings
from kafka_telemetry_lake.jobs.support.locks import FINDINGS, NOTIFY, UPKEEP, only, only_job
from kafka_telemetry_lake.jobs.support.running import JobFailedError
from kafka_telemetry_lake.pipelines.forget.erasure import Erasure, Removed, unfinished
from kafka_telemetry_lake.pipelines.forget.subject import Request, clusters_with
from kafka_telemetry_lake.pipelines.iceberg.places import has_iceberg_tables
from kafka_telemetry_lake.pipelines.lake.checkpoint_folders import checkpoints_of, drop_old, own_checkpoints
from kafka_telemetry_lake.pipelines.lake.erased_files import erased_files
from kafka_telemetry_lake.pipelines.query.formats import write_table
from kafka_telemetry_lake.pipelines.query.lake_query import is_lake
from kafka_telemetry_lake.pipelines.query.printable import printable
from kafka_telemetry_lake.pipelines.replay.swap_note import is_swapping


def run_job(settings: ForgetSettings) -> int:
    """Finish the erasures that were interrupted, then do this one."""
    if not is_lake(settings.lake):
        raise UsageError(f"no lake at {settings.lake}")
    if settings.status:
        _print_status(settings)
        return 0
    request = Request(settings.client_instance, settings.principal, settings.cluster_id)
    busy = (
        f"{settings.lake} is in use: stop ingest, notify, maintain and whatever else writes to it, erase, then start "
        "them again"
    )
    with ExitStack() as locks:
        fence = locks.enter_context(only_job(settings.lake, "forget", busy))
        for role in (UPKEEP, FINDINGS, NOTIFY):
            locks.enter_context(only(role, settings.lake, busy))
        if settings.dry_run:  # changes nothing, so it copies and deletes nothing either
            checkpoints = checkpoints_of(settings.lake, settings.checkpoints)
        else:
            checkpoints = own_checkpoints(settings.lake, settings.checkpoints, fence)
            drop_old(settings.lake, settings.checkpoints)
        if is_swapping(checkpoints):
            raise UsageError("a replay was interrupted: finish it with `telemetry-lake replay`, then erase")
        erasure = Erasure(settings.lake, settings.checkpoints, not settings.dry_run, fence)
        key = secret_text(settings.personal_data_key)
        try:
            for begun in () if settings.dry_run else erasure.under_way():
                if begun != request:
                    erasure.forget(begun, key)
                    print(f"forget: finished the erasure of {printable(str(begun))}", file=sys.stderr)
            removed = erasure.forget(request, key)
            elsewhere = [] if any(removed) else clusters_with(settings.lake, request)
        except (DeltaError, duckdb.Error, pa.ArrowException, OSError) as error:
            raise JobFailedError(f"forget: {' '.join(str(error).split())}; run it again") from error
    _report(settings, request, removed, elsewhere)
    if any(removed) and not settings.dry_run and has_iceberg_tables(settings.lake):
        again = shlex.join(["telemetry-lake", "iceberg", "--lake", settings.lake])
        print(f"forget: the lake's Iceberg tables name the files before: run `{again}`", file=sys.stderr)
    return 0


def _report(settings: ForgetSettings, request: Request, removed: Sequence[Removed], elsewhere: Sequence[str]) -> None:
    removed = [each for each in removed if each]
    if settings.format == "json":
        content = {
            "erased": asdict(request),
            "dry_run": settings.dry_run,
            "removed": [asdict(each) for each in removed],
        }
        print(json.dumps(content, indent=1))
    elif removed:
        write_table(pa.Table.from_pylist([asdict(each) for each in removed]).to_reader(), sys.stdout)
    sys.stdout.flush()
    print(printable(f"forget: {_summary(settings, request, removed, elsewhere)}"), file=sys.stderr)


def _summary(settings: ForgetSettings, request: Request, removed: Sequence[Removed], elsewhere: Sequence[str]) -> str:
    if not removed:
        hashed = " (as a pseudonym it is found only with --personal-data-key)" if request.principal else ""
        others = f"; cluster {', '.join(elsewhere)} has it" if elsewhere else hashed
        return f"the lake has nothing of {request}{others}"
    rows, files = sum(each.rows for each in removed), sum(each.files for each in removed)
    size = sum(each.bytes_before for each in removed)
    does = "would remove" if settings.dry_run else "removed"
    done = f"{does} {rows:,} rows of {request}; {files:,} files of {size:,} bytes rewritten"
    waiting = [each for each in erased_files(settings.lake) if each.gone_at is None]
    if settings.dry_run or not waiting:
        return done
    last = waiting[-1]
    until = f"{last.due:%Y-%m-%d %H:%M} UTC"
    return f"{done}; erasure {last.erasure}: the tables' history has them until `maintain` runs after {until}"


def _print_status(settings: ForgetSettings) -> None:
    rows = [
        {"erasure": each.erasure, "erased_at": each.erased_at, "gone_at": each.gone_at, "due": each.due.isoformat()}
        for each in erased_files(settings.lake)
    ]
    if settings.format == "json":
        print(json.dumps(rows, indent=1))
    else:
        schema = pa.schema([(name, pa.string()) for name in ("erasure", "erased_at", "gone_at", "due")])
        write_table(pa.Table.from_pylist(rows, schema).to_reader(), sys.stdout)
    sys.stdout.flush()
    left = sum(each["gone_at"] is None for each in rows)
    print(f"forget: {len(rows)} erasures; the tables' history has rows of {left} of them", file=sys.stderr)
    for request, command in unfinished(settings.lake).items():
        print(printable(f"forget: the erasure of {request} is not finished: run `{command}`"), file=sys.stderr)
