"""A session under spark-submit has the tuning of a local one, and what its user has set."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_telemetry_lake.pipelines.runtime.jars import jars
from kafka_telemetry_lake.pipelines.runtime.session import LOG_SETTINGS, _has_log_settings
from kafka_telemetry_lake.pipelines.runtime.spark_settings import JAVA_OPTIONS, LOCAL, ONE_PROCESS, TUNING
from tests.support.patience import PATIENCE_S

PROGRAM = """
import json, logging, sys
from kafka_telemetry_lake.pipelines.runtime.session import spark_session

logging.basicConfig(format="%(message)s")
logging.getLogger("kafka_telemetry_lake").setLevel(logging.INFO)
spark = spark_session("submitted")
assert spark.range(3).repartition(2).count() == 3
print(json.dumps(dict(spark.sparkContext.getConf().getAll())))
"""


def submit(folder: Path, *flags: str, **environment: str) -> tuple[dict[str, str], list[str]]:
    """Run the program; returns the session's settings, and the lines that it logged."""
    program = folder / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    class_path = os.pathsep.join(map(str, jars("spark")))
    done = subprocess.run(
        [Path(sys.executable).with_name("spark-submit"), "--driver-class-path", class_path, *flags, program],
        capture_output=True, text=True, check=False, timeout=PATIENCE_S,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"} | environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    lines = done.stderr.splitlines() + done.stdout.splitlines()  # spark-submit puts the program's own into its stdout
    (settings,) = [line for line in lines if line.startswith("{")]
    return json.loads(settings), [line for line in lines if line != settings]


def test_tuning_and_a_quiet_log(tmp_path: Path) -> None:
    settings, lines = submit(tmp_path, "--master", "local[1]", "--conf", "spark.sql.shuffle.partitions=7")
    tuning = {key: str(value) for key, value in (TUNING | ONE_PROCESS).items()}
    assert settings.items() >= (tuning | {"spark.sql.shuffle.partitions": "7"}).items()
    assert settings.keys().isdisjoint(LOCAL.keys() - {"spark.driver.host"})  # Spark sets the host itself
    said = [line for line in lines if "WARNING: Using incubator modules" not in line]
    assert said[-1].endswith(f"--driver-java-options '{' '.join(JAVA_OPTIONS)}'")
    assert len(said) <= 10, said  # of spark-submit itself, before the program runs


def of_java(properties: dict[str, str], files: dict[str, str]) -> Any:
    """What is used of a JVM with these system properties and with these files on its class path."""
    thread = SimpleNamespace(getContextClassLoader=lambda: SimpleNamespace(getResource=files.get))
    system = SimpleNamespace(getProperty=properties.get)
    lang = SimpleNamespace(Thread=SimpleNamespace(currentThread=lambda: thread), System=system)
    return SimpleNamespace(java=SimpleNamespace(lang=lang))


def test_log_settings_are_found_as_a_property_or_as_a_file() -> None:
    assert not _has_log_settings(of_java({"log4j2.level": "info"}, {"core-site.xml": "file:/core-site.xml"}))
    for name in ("log4j2.configurationFile", "log4j.configurationFile"):
        assert _has_log_settings(of_java({name: "file:/own.xml"}, {}))
    for kind in ("properties", "yaml", "yml", "json", "jsn", "xml"):
        assert _has_log_settings(of_java({}, {f"log4j2.{kind}": "file:/own"}))


@pytest.mark.slow
@pytest.mark.parametrize(
    "by", ["file", *(pytest.param(each, marks=pytest.mark.soak) for each in ("setting", "property"))]
)
def test_who_has_a_log_of_their_own_gets_it(tmp_path: Path, by: str) -> None:
    options, environment = [*JAVA_OPTIONS], {}
    flags = ["--conf", "spark.log.level=INFO"] if by == "setting" else []
    own = LOG_SETTINGS.read_text("utf-8").replace("status = error", "status = error\nlogger.own.name = own")
    own = own.replace("= fatal", "= info").replace("rootLogger.level = error", "rootLogger.level = info")
    (tmp_path / "log4j2.properties").write_text(own, encoding="utf-8")
    if by == "property":
        options.append(f"-Dlog4j2.configurationFile={(tmp_path / 'log4j2.properties').as_uri()}")
    elif by == "file":
        environment["SPARK_CONF_DIR"] = str(tmp_path)
    _, lines = submit(tmp_path, "--driver-java-options", " ".join(options), *flags, **environment)
    assert sum(" INFO " in line for line in lines) > 20
    assert not any("--driver-java-options" in line for line in lines)
