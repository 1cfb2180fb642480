"""Commands in processes of their own, whose Spark has an embedded Hive metastore (Derby) as its catalog."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.support.documented_commands import ROOT


@dataclass(frozen=True)
class HiveCatalog:
    """A metastore and its tables below a folder, as ``conf/spark-defaults.conf`` there says."""

    folder: Path

    @staticmethod
    def make(folder: Path) -> HiveCatalog:
        database = f"jdbc:derby:;databaseName={folder / 'metastore'};create=true"
        settings = {
            "spark.sql.catalogImplementation": "hive",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.hadoop.javax.jdo.option.ConnectionURL": database,
            "spark.hadoop.datanucleus.schema.autoCreateTables": "true",
            "spark.hadoop.hive.metastore.schema.verification": "false",
        }
        (folder / "conf").mkdir(parents=True)
        lines = "".join(f"{name} {value}\n" for name, value in settings.items())
        (folder / "conf" / "spark-defaults.conf").write_text(lines, "utf-8")
        return HiveCatalog(folder)

    def tables(self, schema: str) -> Path:
        """The folder of a schema's managed tables. Only a test looks there."""
        return self.folder / "warehouse" / f"{schema}.db"

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "kafka_telemetry_lake", *words]

    @property
    def environment(self) -> dict[str, str]:
        log = f"-Dderby.stream.error.file={self.folder / 'derby.log'} -XX:TieredStopAtLevel=1"
        return {**os.environ, "SPARK_CONF_DIR": str(self.folder / "conf"), "SPARK_SUBMIT_OPTS": log}

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command of ``telemetry-lake`` to its end."""
        done = subprocess.run(
            self.command(*words), env=self.environment, cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done
