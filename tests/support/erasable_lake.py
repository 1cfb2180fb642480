"""A lake in which every table and note names its clients, and a search for what an erasure has left."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import write_deltalake

from kafka_telemetry_lake.pipelines.forget.history import clear
from kafka_telemetry_lake.pipelines.lake.notes import sealed
from kafka_telemetry_lake.pipelines.lifecycle.follower import Lifecycle
from kafka_telemetry_lake.pipelines.notify.alerts import LABELS, labels_of
from kafka_telemetry_lake.pipelines.subscriptions.client_matches import update_client_matches
from kafka_telemetry_lake.pipelines.tables.findings import FINDING_CHANGES
from kafka_telemetry_lake.pipelines.tables.groups import GROUP_MEMBERS
from kafka_telemetry_lake.pipelines.tables.lifecycle import CLIENT_ALIASES
from kafka_telemetry_lake.pipelines.tables.operator import QUOTA_REPORTS, QUOTA_SAMPLES, QUOTA_USAGE
from kafka_telemetry_lake.pipelines.tables.quality import QUALITY_RESULTS
from kafka_telemetry_lake.pipelines.tables.quotas import QUOTAS
from kafka_telemetry_lake.pipelines.tables.subscriptions import SUBSCRIPTIONS
from kafka_telemetry_lake.pipelines.tables.table import Table
from tests.support.ledger import Fleet
from tests.support.local_stream import LocalStream

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
CLUSTER = "c1"
Record = dict[str, Any]


class Client:
    """A client of the fleet, with names of its own."""

    def __init__(self, fleet: Fleet, number: int) -> None:
        self.instance = fleet._ids[number]
        self.client_id, self.principal = f"shop-app-{number}", f"User:seller {number}"
        self.user, self.encoded_user = f"seller {number}", f"seller%20{number}"
        self.address, self.member = f"10.20.30.{number + 40}", f"member-{number}-of-group"

    @property
    def texts(self) -> list[str]:
        """The texts that an erasure has to remove."""
        return [
            self.instance, self.client_id, self.principal, self.user, self.encoded_user, self.address, self.member,
        ]  # fmt: skip


def named(records: Iterable[Record], clients: Iterable[Client], cluster_id: str = CLUSTER) -> Iterator[Record]:
    """The fleet's landing records, with the names of its clients."""
    by_instance = {client.instance: client for client in clients}
    for record in records:
        client = by_instance.get(record["key"].decode())
        names = {"cluster_id": cluster_id}
        if client is not None:
            names |= {"client_id": client.client_id, "principal": client.principal, "client_address": client.address}
        headers = {item["key"]: item["value"] for item in record["headers"]}
        headers |= {name: text.encode() for name, text in names.items()}
        yield record | {"headers": [{"key": name, "value": value} for name, value in headers.items()]}


def append(table: Table, lake: Path, *rows: Mapping[str, Any]) -> None:
    """Append rows; columns that they lack are NULL."""
    values = pa.Table.from_pylist(list(rows), table.schema)
    write_deltalake(table.create(str(lake)), table.with_partition(values), mode="append")


def fill(stream: LocalStream, client: Client) -> None:
    """Rows about a client in the tables beside those of pushes, and files that name it."""
    lake = stream.lake
    place = {"source": "test", "topic": "client-quotas", "partition": 0, "offset": 1, "landed_at": NOON}
    version = {"cluster_id": CLUSTER, "valid_from": NOON}
    names = {"user": client.user, "client_id": ""}
    by_client = {"user": "", "client_id": client.client_id}
    append(
        SUBSCRIPTIONS, lake,
        version | {"name": "all", "metrics": ["*"], "match": {}},
        version | {"name": "one", "metrics": ["*"], "match": {"client_instance_id": f"{client.instance}|x"}},
    )  # fmt: skip
    update_client_matches(str(lake))
    for each in (names, by_client, names | {"user": client.encoded_user}):
        row = each | {"cluster_id": CLUSTER, "quota_type": "produce"}
        append(QUOTA_SAMPLES, lake, row | place | {"time": NOON})
        append(QUOTA_USAGE, lake, row | {"window_start": NOON, "window_seconds": 60})
        append(QUOTAS, lake, row | {"ip": "", "valid_from": NOON})
    append(
        QUOTA_REPORTS,
        lake,
        place | {"client_instance_id": client.instance, "client_id": client.client_id, "time": NOON},
    )
    append(CLIENT_ALIASES, lake, version | {"client_id": client.client_id, "application": "shop", "owner": "team"})
    append(GROUP_MEMBERS, lake, version | {"group_id": "g", "member_id": client.member, "client_id": client.client_id})
    finding = {
        "cluster_id": CLUSTER, "finding_id": f"id-{client.client_id}", "recorded_at": NOON, "change": "opened",
        "severity": "error", "scope": "client_id", "subject": client.client_id, "client_id": client.client_id,
        "principal": client.principal,
    }  # fmt: skip
    other = finding | {
        "finding_id": "id-shared", "subject": "shared", "client_id": "shared", "worst_instance": client.instance,
        "evidence": f"{client.instance}, {client.client_id} and shop-app-999 lag",
    }  # fmt: skip
    append(FINDING_CHANGES, lake, finding, other)
    examples = [f"client {client.instance} at {client.address}", "another"]
    append(QUALITY_RESULTS, lake, {"checked_at": NOON, "rule": "r", "examples": examples})
    folder = lake / FINDING_CHANGES.name / "_notify"
    folder.mkdir(exist_ok=True)
    rows = [{name: str(value) for name, value in row.items()} for row in (finding, other)]
    content: dict[str, Any] = {
        "position": {}, "kind": "Messages", "open": {row["finding_id"]: row for row in rows},
        "waiting": rows, "under_way": 1,
    }  # fmt: skip
    (folder / "sink.json").write_text(json.dumps(sealed(content)))
    alerts = [{"labels": labels_of(dict.fromkeys(LABELS.values()) | row), "endsAt": str(NOON)} for row in rows]
    content |= {"kind": "Alerts", "waiting": alerts}
    (folder / "alerts.json").write_text(json.dumps(sealed(content)))
    (folder / "sink-refused-1.json").write_text(json.dumps({"id": "1", "changes": rows[:1]}))
    note = {"step": 1, "rows": rows[:1], "clusters": [{"states": {row["finding_id"]: {"latest": row} for row in rows}}]}
    (lake / FINDING_CHANGES.name / "_findings-e000000000000.json").write_text(json.dumps(note))
    (lake / "pages").mkdir(exist_ok=True)
    (lake / "pages" / "index.html").write_text(f"<li>{client.instance}, {client.client_id}, {client.client_id}0")


@cache
def _made(clients: int) -> tuple[TemporaryDirectory[str], LocalStream, Fleet]:
    """A lake with three batches of a fleet's pushes, a snapshot of the state, and every client in every table."""
    folder = TemporaryDirectory(ignore_cleanup_errors=True)
    stream, fleet = LocalStream(Path(folder.name)), Fleet(clients=clients)
    for number in range(3):
        stream.batch(named(fleet.round(), clients_of(fleet, clients)))
        if number == 1:
            stream.snapshot()
    Lifecycle(str(stream.lake)).catch_up()
    return folder, stream, fleet


def clients_of(fleet: Fleet, count: int) -> list[Client]:
    return [Client(fleet, number) for number in range(count)]


def lake_of(folder: Path, clients: int = 4) -> tuple[LocalStream, Fleet, list[Client]]:
    """A copy of the lake of so many clients, with a fleet that goes on."""
    _, stream, made = _made(clients)
    fleet = deepcopy(made)
    return stream.copied(folder), fleet, clients_of(fleet, clients)


def age_logs(lake: Path) -> None:
    """Let the files of all logs be two days older."""
    for file in lake.glob("*/_delta_log/*"):
        before = file.stat().st_mtime - 2 * 86_400
        os.utime(file, (before, before))


def end_history(lake: Path) -> list[str]:
    """Do what `maintain` does for erasures, two days later."""
    age_logs(lake)
    return clear(str(lake), datetime.now(UTC) + timedelta(days=2))


def traces(folder: Path, texts: Iterable[str], keys: Iterable[int] = ()) -> set[str]:
    """The files below a folder that have one of the texts, in their bytes, a Parquet column or their name.

    Args:
        keys: of clients, looked for in the bytes of state files.
    """
    encoded = [text.encode() for text in texts]
    hashes = [key.to_bytes(8, "little", signed=True) for key in keys]
    found = set()
    for file in folder.rglob("*"):
        if not file.is_file():
            continue
        data = file.read_bytes() + b"\0" + file.name.encode()
        wanted = encoded + (hashes if file.suffix == ".state" else [])
        parts = [data, *_columns(file)] if file.suffix == ".parquet" else [data]
        if any(text in part for part in parts for text in wanted):
            found.add(str(file.relative_to(folder)))
    return found


def _columns(file: Path) -> Iterator[bytes]:
    """The values of each column."""
    content = pq.ParquetFile(file)
    for name in content.schema_arrow.names:
        for value in content.read([name])[name].to_pylist():
            yield value if isinstance(value, bytes) else str(value).encode()
