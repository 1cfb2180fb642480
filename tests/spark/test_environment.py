"""A session starts, writes and reads in an environment that is another Spark's, and for a user without a name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

UID = 54321
USER = ("unshare", "--user", f"--map-user={UID}", f"--map-group={UID}")  # as OpenShift starts containers
PROGRAM = """
import sys
from kafka_telemetry_lake.pipelines.runtime.environment import leave_out

leave_out()
from kafka_telemetry_lake.pipelines.runtime.session import spark_session

spark = spark_session("test", "local[1]", "1g")
table = spark.range(5).mapInArrow(lambda batches: batches, "id long")
table.write.format("delta").save(sys.argv[1])
print(spark.read.format("delta").load(sys.argv[1]).count(), "rows of", spark.sparkContext.sparkUser())
spark.stop()
"""
HADOOP = """<configuration>
<property><name>fs.defaultFS</name><value>hdfs://nowhere.invalid:8020</value></property>
<property><name>hadoop.security.authentication</name><value>kerberos</value></property>
</configuration>"""


def printed(folder: Path, environment: dict[str, str], *before: str, without: tuple[str, ...] = ()) -> str:
    ours = {name: value for name, value in os.environ.items() if name not in ("PYSPARK_GATEWAY_PORT", *without)}
    done = subprocess.run(
        [*before, sys.executable, "-c", PROGRAM, str(folder / "table")], cwd=folder, env=ours | environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def test_in_the_environment_of_another_spark(tmp_path: Path) -> None:
    other = tmp_path / "spark-3.5"
    (other / "bin").mkdir(parents=True)
    (other / "bin" / "spark-submit").write_text("#!/bin/sh\nexit 3\n")
    (other / "bin" / "spark-submit").chmod(0o755)
    (tmp_path / "core-site.xml").write_text(HADOOP)
    environment = {
        "SPARK_HOME": str(other), "HADOOP_CONF_DIR": str(tmp_path), "SPARK_REMOTE": "sc://127.0.0.1:1",
        "SPARK_API_MODE": "connect", "PYSPARK_PYTHON": "/nonexistent/python", "PYSPARK_DRIVER_PYTHON": "jupyter",
        "SPARK_LOCAL_IP": "192.0.2.1", "SPARK_DIST_CLASSPATH": "/nonexistent/*", "PYSPARK_SUBMIT_ARGS": "",
        "SPARK_LOCAL_DIRS": "", "JAVA_TOOL_OPTIONS": "-Duser.language=tr -Duser.country=TR",
    }  # fmt: skip
    assert printed(tmp_path, environment).startswith("5 rows of ")


def test_for_a_user_without_a_name_or_a_home(tmp_path: Path) -> None:
    if subprocess.run([*USER, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this system makes no user namespaces")
    without = ("HOME", "USER", "LOGNAME", "HADOOP_USER_NAME", "SPARK_USER")
    assert printed(tmp_path, {"TMPDIR": str(tmp_path)}, *USER, without=without) == f"5 rows of {UID}"
