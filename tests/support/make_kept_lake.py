"""Makes the lake of a release that later builds must read and continue: `python -m tests.support.make_kept_lake`.

It is made once, by the release's own commands, and never again: tests/data/kept has one archive for each release, and
beside it what questions answered then (`kept_lakes.py`). The job has read two files of captured pushes in two runs, so
checkpoints and state have two batches. All that has a number of a format is in it: tables of every subject, notes,
manifests, state, a snapshot, leases, an erasure.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from datetime import datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml
from pydantic import SecretStr

from kafka_telemetry_lake.pipelines.events.feed import EventFeed
from kafka_telemetry_lake.pipelines.export.counting import Counting, Selection
from kafka_telemetry_lake.pipelines.export.known_clients import KnownClients
from kafka_telemetry_lake.pipelines.export.measures import DEFAULT_DIMENSIONS
from kafka_telemetry_lake.pipelines.export.otlp import SIGNALS, Otlp
from kafka_telemetry_lake.pipelines.groups.logs import Log
from kafka_telemetry_lake.pipelines.groups.members import Committed, ConsumerGroups
from kafka_telemetry_lake.pipelines.groups.offsets import record_lag, record_offsets
from kafka_telemetry_lake.pipelines.lake.config_history import record
from kafka_telemetry_lake.pipelines.notify.file import Match
from kafka_telemetry_lake.pipelines.notify.messages import Messages
from kafka_telemetry_lake.pipelines.query.lake_query import run_query
from kafka_telemetry_lake.pipelines.quotas.configured import ConfiguredQuotas, configured_quotas
from kafka_telemetry_lake.pipelines.tables.catalog import CATALOG
from kafka_telemetry_lake.pipelines.tables.costs import BROKERS
from kafka_telemetry_lake.pipelines.tables.groups import GROUP_MEMBERS, GROUP_STATES
from kafka_telemetry_lake.pipelines.tables.lost_records import LOST_RECORDS
from kafka_telemetry_lake.pipelines.tables.table import HistoryTable
from tests.support.config_polls import record_quotas
from tests.support.kept_lakes import CLUSTER, FOLDER, batches, records_of, write_answers
from tests.support.landing_records import write

WORK = Path("/tmp/kept-lake")  # Spark's checkpoint names the files that it has read, so each machine has the same place
ROOT = Path(__file__).parents[2]
SUBSCRIPTIONS = {
    "cluster_id": CLUSTER,
    "subscriptions": [
        {"name": "all", "metrics": ["*"], "interval_ms": 1000, "match": {}},
        {"name": "java", "metrics": ["org.apache.kafka.producer."], "interval_ms": 5000,
         "match": {"client_software_name": "apache-kafka-java"}},
    ],
}  # fmt: skip
ALIASES = {
    "aliases": [{"client_id": "java-producer_zstd-cumulative", "application": "shop", "owner": "team"}],
    "rules": [{"principal": "User:pay-.*", "application": "payments", "owner": "team-pay"}],
}
HOST = {"host": "host", "machine": "machine", "process": 1}


def command(*argv: str) -> None:
    """Run a command of this build, in a process of its own."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TELEMETRY_LAKE_")}
    subprocess.run([sys.executable, "-m", "kafka_telemetry_lake.jobs.cli", *argv], check=True, env=environment)


def make(lake: Path) -> None:
    """Fill the lake, whose folder doesn't exist yet."""
    first, second, _ = batches()
    source = lake.parent / "in"
    begin = min(row["timestamp"] for row in first)
    ingest = ("ingest", "--source", f"files:{source}", "--source-name", "kept", "--lake", str(lake), "--once",
              "--cluster-id", CLUSTER, "--master", "local[2]", "--shards", "2")  # fmt: skip
    write(source, "1.parquet", records_of(first))
    command(*ingest)
    synced(lake, begin)
    write(source, "2.parquet", records_of(second))
    command(*ingest)
    polled(lake, begin + timedelta(minutes=1))
    command("findings", "--lake", str(lake), "--rules", str(rules(lake.parent)))
    (open_, other) = ids(lake)[:2]
    said = ("--by", "team", "--why", "known")
    command("findings", "--lake", str(lake), "--acknowledge", open_, *said)
    command("findings", "--lake", str(lake), "--mute", other, "--until", "2099-01-01T00:00Z", *said)
    command("quality", "--lake", str(lake))
    positions(str(lake))
    command("forget", "--lake", str(lake), "--client-instance", erased(lake))
    without_machine(lake)


def synced(lake: Path, now: datetime) -> None:
    """What `sync` records: of files by the command, of a cluster by what the command calls."""
    files = {"subscriptions.yml": SUBSCRIPTIONS, "aliases.yml": ALIASES}
    for name, content in files.items():
        (lake.parent / name).write_text(yaml.safe_dump(content))
    command("sync", "--lake", str(lake), "--cluster-id", CLUSTER, "--prices-file", str(ROOT / "conf" / "prices.yml"),
            "--subscriptions-file", str(lake.parent / "subscriptions.yml"),
            "--aliases-file", str(lake.parent / "aliases.yml"))  # fmt: skip
    limits = configured_quotas([({"client-id": None}, {"producer_byte_rate": 1000.0})])
    record_quotas(str(lake), now - timedelta(hours=1), ConfiguredQuotas(CLUSTER, tuple(limits)))
    polled(lake, now)


def polled(lake: Path, now: datetime) -> None:
    """Two polls of groups and brokers; the second one finds an offset that went back."""
    is_second = (lake / GROUP_STATES.name).exists()
    state = {"group_id": "g", "group_type": "classic", "state": "Stable", "protocol": "range", "coordinator_id": 1,
             "coordinator": "broker:9092", "problem": None}  # fmt: skip
    member = {"group_id": "g", "member_id": "m-1", "client_id": "java-consumer_zstd-cumulative", "host": "/10.0.0.1",
              "group_instance_id": None, "assignment": ["orders-0"]}  # fmt: skip
    offset = Committed("g", "orders", 0, 90 if is_second else 100)
    log = Log(start=0, end=200, stable=200, retention_ms=-1, problem=None, topic_id="t")
    groups = ConsumerGroups(CLUSTER, (state,), (member,), (offset,), {("orders", 0): log}, now)
    polls: list[tuple[HistoryTable, list[dict[str, Any]]]] = [
        (GROUP_STATES, [state]), (GROUP_MEMBERS, [member]), (BROKERS, [{"broker_id": 1, "rack": "a"}]),
    ]  # fmt: skip
    for table, rows in polls:
        record(table, str(lake), CLUSTER, [dict.fromkeys((*table.keys, *table.values)) | row for row in rows], now)
    record_offsets(str(lake), CLUSTER, groups.committed, now)
    record_lag(str(lake), groups)


def rules(folder: Path) -> Path:
    """Bounds by which captured clients have findings."""
    path = folder / "findings.yml"
    path.write_text("overrides: []\n")
    return path


def ids(lake: Path) -> list[str]:
    """Of the open findings."""
    rows = run_query(str(lake), "SELECT finding_id FROM open_findings ORDER BY finding, subject").read_all()
    return [str(row["finding_id"]) for row in rows.to_pylist()]


def erased(lake: Path) -> str:
    """The client instance that is erased: the one with the fewest pushes."""
    sql = "SELECT client_instance_id FROM pushes GROUP BY ALL ORDER BY count(*), client_instance_id LIMIT 1"
    (row,) = run_query(str(lake), sql).read_all().to_pylist()
    return str(row["client_instance_id"])


def positions(lake: str) -> None:
    """What an exporter, the feed of events and a sink remember."""
    Counting(lake, "prometheus", Selection(DEFAULT_DIMENSIONS)).close()
    for signal in SIGNALS.values():
        Otlp(lake, "prometheus", signal, KnownClients(lake), SecretStr("http://127.0.0.1:4318"), {},
             is_cumulative=True, from_start=False)  # fmt: skip
    EventFeed(lake, lambda _: None)
    Messages(lake, "sink", Match()).take()
    LOST_RECORDS.create(lake)


def without_machine(lake: Path) -> None:
    """Leases name the machine, and locks have no content."""
    for path in (lake / "_writers").glob("*.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | HOST))
    for path in lake.rglob("*"):
        if path.name.endswith((".lock", ".crc")):
            path.unlink()


def pack(lake: Path, archive: Path) -> None:
    """The lake as an archive, without owners, with the contract of landing records and the files of settings."""

    def anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        return member

    with tarfile.open(archive, "w:gz", compresslevel=9) as packed:
        for path in (lake, ROOT / "conf", ROOT / "pipelines" / "landing" / "landing-record.schema.json"):
            packed.add(path, path.name, filter=anonymous)


def main() -> None:
    """Make the lake of this build's version, unless there is one."""
    archive = FOLDER / f"{version('kafka-telemetry-lake')}.tar.gz"
    if archive.exists():
        sys.exit(f"{archive} exists: it is what that release wrote, and is never made again")
    WORK.mkdir()
    lake = WORK / "lake"
    make(lake)
    missing = [name for name in CATALOG if not (lake / name).exists()]
    if missing:
        sys.exit(f"the lake lacks the tables {', '.join(missing)}")
    write_answers(archive, lake)
    pack(lake, archive)
    shutil.rmtree(WORK)
    print(archive, archive.stat().st_size)


if __name__ == "__main__":
    main()
