"""Small lakes as each release leaves them, kept in ``tests/data``, for the tests that later releases go on with them.

A lake has three rounds of a fleet (`tests.support.ledger`) and of producers with a quota, each taken by a run of the
job. The last batch of each query counts as begun, not as done, as if the job had been killed just before it noted its
end. Beside the lake the archive has the files ``in/`` that it followed (in its paths ``/FOLDER`` stands for where they
lay), one more file in ``later/``, and the ledger of all of them.

    python -m tests.support.earlier_lake v0.2                 writes tests/data/lake-v0.2.tar.gz by this checkout
    python -m tests.support.earlier_lake NAME --code FOLDER   by another one, with this one's libraries
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

from kafka_telemetry_lake.pipelines.quotas.configured import ConfiguredQuotas, configured_quotas
from kafka_telemetry_lake.udfs.quotas.reports import BYTES, DELAYS
from tests.support import otlp_builder
from tests.support.config_polls import record_quotas
from tests.support.landing_records import record, write
from tests.support.ledger import START, Fleet, Landed, Ledger

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
PLACE = "/FOLDER"
PARTITION = 9  # of the producers with a quota
PRODUCERS = {"alice": "QuotaQuotaQuotaQuotaAA", "bob": "QuotaQuotaQuotaQuotaBA"}
SENT, DELAY = next(iter(BYTES)), next(iter(DELAYS))


class EarlierLake:
    """An unpacked archive. The source's name is ``files:in``."""

    def __init__(self, name: str, folder: Path) -> None:
        shutil.unpack_archive(DATA / f"lake-{name}.tar.gz", folder)
        for file in folder.rglob("*"):
            if file.is_file() and PLACE.encode() in file.read_bytes():
                file.write_text(file.read_text().replace(PLACE, str(folder)))
        self.source, self.path = folder / "in", folder / "lake"
        self.ledger = Ledger.load(folder / "ledger.json")
        (self._later,) = (folder / "later").iterdir()

    def land(self) -> None:
        """Let the records land that the earlier job hasn't seen."""
        self._later.rename(self.source / self._later.name)


def make(name: str, code: Path) -> Path:
    """Write the archive of a lake by the job of a checkout; returns its path."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        fleet, lake = Fleet(clients=8), folder / "lake"
        for number in range(3):
            write(folder / "in", f"{number:05}.parquet", _round(fleet, number))
            _ingest(code, folder)
            if number == 0 and (code / "pipelines" / "tables" / "quotas.py").exists():
                limits = configured_quotas([({"user": "alice"}, {"producer_byte_rate": 100.0})])
                nowhere: Any = None  # files have no cluster
                record_quotas(str(lake), START - timedelta(hours=1), ConfiguredQuotas(nowhere, tuple(limits)))
        _forget_last_commits(lake / "_checkpoints")
        write(folder / "later", "00003.parquet", _round(fleet, 3))
        fleet.ledger.save(folder / "ledger.json")
        for file in folder.rglob("*"):
            if file.is_file() and temporary.encode() in file.read_bytes():
                file.write_text(file.read_text().replace(temporary, PLACE))
        archive = DATA / f"lake-{name}.tar.gz"
        with tarfile.open(archive, "w:gz") as made:
            for part in ("in", "lake", "later", "ledger.json"):
                made.add(folder / part, part, filter=_nobodys)
    return archive


def _round(fleet: Fleet, number: int) -> list[dict[str, Any]]:
    records = fleet.round()
    for offset, (user, client) in enumerate(PRODUCERS.items(), len(PRODUCERS) * number):
        second, node = 20 * number, {"node_id": "1"}
        payload = otlp_builder.payload(
            otlp_builder.delta(1000.0 + offset, second - 10, second, name=SENT, attributes=node),
            otlp_builder.gauge(7.0, second, name=DELAY),
        )
        headers = {"client_id": "app", "principal": f"User:{user}"}
        at = otlp_builder.T0 + timedelta(seconds=second + 1)
        records.append(record(offset, payload, client, **headers) | {"partition": PARTITION, "timestamp": at})
        fleet.ledger.landed.append(Landed(PARTITION, offset, client, "points", 2))
        fleet.ledger.increments[client, SENT] += 0  # the ledger adds up whole numbers only
    return records


def _ingest(code: Path, folder: Path) -> None:
    module = "kafka_telemetry_lake.jobs.cli" if (code / "kafka_telemetry_lake").exists() else "jobs.cli"
    command = f"import sys; from {module} import main; sys.exit(main(sys.argv[1:]))"
    flags = ["--source", f"files:{folder / 'in'}", "--lake", f"{folder / 'lake'}", "--master", "local[2]"]
    subprocess.run(
        [sys.executable, "-c", command, "ingest", *flags, "--source-name", "files:in", "--once"],
        cwd=code, env=os.environ | {"PYTHONPATH": str(code)}, check=True,
    )  # fmt: skip


def _forget_last_commits(checkpoints: Path) -> None:
    """Of each query's checkpoint the last batch is begun only. Hadoop's checksums go: paths are about to change."""
    for commits in checkpoints.glob("*/commits"):
        max((file for file in commits.iterdir() if file.name.isdigit()), key=lambda file: int(file.name)).unlink()
    for checksum in checkpoints.rglob(".*.crc"):
        checksum.unlink()


def _nobodys(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.support.earlier_lake")
    parser.add_argument("name", help="the release, such as v0.2")
    parser.add_argument("--code", type=Path, default=ROOT, help="the checkout whose job writes the lake")
    arguments = parser.parse_args()
    print(make(arguments.name, arguments.code.resolve()))


if __name__ == "__main__":
    main()
