"""Variables that are another Spark's: left out, kept, or refused in one line."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.logger import PySparkLogger

from kafka_telemetry_lake.jobs import cli
from kafka_telemetry_lake.pipelines.doctor.machine_checks import check_environment
from kafka_telemetry_lake.pipelines.runtime import environment
from kafka_telemetry_lake.pipelines.runtime.environment import (
    NEVER,
    NOT_LOCAL,
    EnvironmentUnfitError,
    for_session,
    leave_out,
    spark_jars,
)
from kafka_telemetry_lake.pipelines.runtime.jars import installed_spark, spark_package
from kafka_telemetry_lake.pipelines.runtime.java import LANGUAGE, java_program
from kafka_telemetry_lake.pipelines.runtime.session import _log_no_errors, _quoted

OTHERS = {*NEVER, *NOT_LOCAL, "SPARK_HOME", "PYSPARK_SUBMIT_ARGS", "SPARK_LOCAL_DIRS", "PYSPARK_GATEWAY_PORT"}


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", os.environ.get("LC_ALL", ""))  # `leave_out` sets it
    for name in OTHERS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(environment, "_left_out", {})


def spark_home(folder: Path, version: str | None) -> str:
    (folder / "jars").mkdir(parents=True)
    (folder / "jars" / f"spark-core_2.13-{version}.jar").touch()
    return str(folder)


def test_an_environment_without_them_is_fit() -> None:
    for_session(local=True)
    assert [(check.name, check.status) for check in check_environment()] == [("environment", "ok")]


def test_what_no_command_can_use_is_left_out_of_every_command(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NEVER:
        monkeypatch.setenv(name, "1")
    seen: list[dict[str, str]] = []

    def look(_: object) -> int:
        seen.append(dict(os.environ))
        return 0

    monkeypatch.setattr(cli, "job_of", lambda _: look)
    assert cli.main(["views"]) == 0
    assert not NEVER.keys() & seen[0].keys()
    assert not NEVER.keys() & os.environ.keys()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere Java's names of files don't depend on the locale")
@pytest.mark.parametrize("variables", [{"LC_ALL": "C"}, {"LANG": "xx_XX.UTF-8"}, {"LC_ALL": "ar_EG.UTF-8"}])
def test_java_reads_names_as_python_does_and_writes_digits_so(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LC_ALL")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Duser.language=ar -Duser.country=EG")
    leave_out()
    argv = [java_program(), *LANGUAGE, "-XshowSettings:properties", "-version"]
    said = subprocess.run(argv, capture_output=True, check=True, text=True).stderr
    properties = {line.partition(" = ")[0].strip(): line.partition(" = ")[2] for line in said.splitlines()}
    assert properties["sun.jnu.encoding"] == "UTF-8"
    assert (properties["user.language"], properties["user.country"]) == ("en", "US")


def test_an_option_of_java_may_have_any_character() -> None:
    assert _quoted('-Da=o\'brien "x" \\y') == '"-Da=o\'brien \\"x\\" \\\\y"'


@pytest.mark.parametrize("name", ["SQLQueryContextLogger", "DataFrameQueryContextLogger"])
def test_an_error_of_sql_is_told_by_the_command_alone(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    _log_no_errors()
    PySparkLogger.getLogger(name).exception("[TABLE_OR_VIEW_NOT_FOUND]", errorClass="a")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("platform", ["PYSPARK_GATEWAY_PORT", "DATABRICKS_RUNTIME_VERSION"])
def test_a_platform_keeps_its_environment(platform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(platform, "1")
    monkeypatch.setenv("SPARK_REMOTE", "sc://127.0.0.1")
    leave_out()
    assert os.environ["SPARK_REMOTE"] == "sc://127.0.0.1"


def test_an_empty_variable_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in environment.NOT_EMPTY:
        monkeypatch.setenv(name, "")
    leave_out()
    for_session(local=True)
    assert not set(environment.NOT_EMPTY) & os.environ.keys()


def test_a_session_on_this_machine_needs_no_other_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NOT_LOCAL:
        monkeypatch.setenv(name, "/elsewhere")
    for_session(local=False)
    assert NOT_LOCAL.keys() <= os.environ.keys()
    (check,) = check_environment()
    assert (check.name, check.status) == ("environment", "warning")
    assert "HADOOP_CONF_DIR (a session on this machine needs no Hadoop cluster" in check.text
    for_session(local=True)
    assert not NOT_LOCAL.keys() & os.environ.keys()


def test_the_home_of_another_spark_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", spark_home(tmp_path / "3.5", "3.5.1"))
    (check,) = check_environment()
    assert check.text == f"a job leaves out SPARK_HOME (pyspark {installed_spark()} has a Spark of its own)"
    package = spark_package()
    assert package is not None
    assert spark_jars() == package / "jars"
    for_session(local=True)
    assert "SPARK_HOME" not in os.environ
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "nowhere"))
    for_session(local=False)
    assert "SPARK_HOME" not in os.environ


def test_the_home_of_the_same_spark_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = spark_home(tmp_path / "same", installed_spark())
    monkeypatch.setenv("SPARK_HOME", home)
    for_session(local=True)
    assert os.environ["SPARK_HOME"] == home
    assert spark_jars() == tmp_path / "same" / "jars"


def test_what_keeps_spark_from_starting_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--packages a:b:1 pyspark-shell")
    for_session(local=True)
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--packages a:b:1")
    line = "PYSPARK_SUBMIT_ARGS must end with pyspark-shell, else Spark doesn't start: unset it, or add the word"
    with pytest.raises(EnvironmentUnfitError) as error:
        for_session(local=True)
    assert str(error.value) == line
    assert [(check.status, f"{check.text}: {check.advice}") for check in check_environment()] == [("failed", line)]
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS")
    (tmp_path / "file").touch()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},{tmp_path / 'file' / 'below'}")
    with pytest.raises(EnvironmentUnfitError, match=r"^SPARK_LOCAL_DIRS=\S+/file/below can't be written: name"):
        for_session(local=True)
    for_session(local=False)  # executors have folders of their own
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "new" / "folder"))
    for_session(local=True)


def test_a_spark_without_jars_needs_a_home_that_has_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "spark_package", lambda: tmp_path / "pyspark")
    monkeypatch.setenv("SPARK_HOME", spark_home(tmp_path / "3.5", "3.5.1"))
    with pytest.raises(
        EnvironmentUnfitError, match=r"^SPARK_HOME=\S+ isn't the Spark of pyspark \S+, which has no jars"
    ):
        for_session(local=True)


def test_a_user_without_a_home_gets_a_private_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(_: int) -> None:
        raise KeyError

    monkeypatch.setattr("pwd.getpwuid", unknown)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("HOME")
    assert environment.user_name() is None
    leave_out()
    home = Path(os.environ["HOME"])
    assert home == tmp_path / f"telemetry-lake-{os.getuid()}"
    assert home.stat().st_mode & 0o777 == 0o700
    monkeypatch.delenv("HOME")
    leave_out()  # again: it is this user's
    home.chmod(0o777)
    monkeypatch.delenv("HOME")
    with pytest.raises(EnvironmentUnfitError, match="isn't this user's alone: set HOME to a folder"):
        leave_out()


def test_a_read_only_place_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def read_only(_: object) -> int:
        raise OSError(errno.EROFS, "Read-only file system", "/home/x/.cache")

    monkeypatch.setattr(cli, "job_of", lambda _: read_only)
    assert cli.main(["views"]) == 2
    assert capsys.readouterr().err == "telemetry-lake: views: /home/x/.cache: it is read-only; name another place\n"


def test_a_machine_without_a_folder_for_temporary_files_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_deltalake(str(tmp_path / "pushes"), pa.table({"a": [1]}))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr("tempfile._candidate_tempdir_list", lambda: ["/no/tmp"])
    assert cli.main(["query", "--lake", str(tmp_path), "SELECT 1"]) == 2
    line = "telemetry-lake: query: no folder for temporary files can be written: set TMPDIR to one that can\n"
    assert capsys.readouterr().err == line


def test_libraries_must_load_from_the_folder_of_temporary_files_of_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = {"/tmp": os.ST_NOEXEC, str(tmp_path): 0}  # Java's
    monkeypatch.setattr("os.statvfs", lambda folder: SimpleNamespace(f_flag=flags[str(folder)]))
    for name in ("JAVA_TOOL_OPTIONS", "SPARK_SUBMIT_OPTS", "_JAVA_OPTIONS"):
        monkeypatch.delenv(name, raising=False)
    line = (
        "Java can't load libraries from /tmp, which is missing, read-only or mounted noexec: name another folder, by "
    )
    with pytest.raises(EnvironmentUnfitError, match=f"^{line}JAVA_TOOL_OPTIONS=-Djava.io.tmpdir=DIR$"):
        for_session(local=True)
    assert [check.status for check in check_environment()] == ["failed"]
    for_session(local=False)
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Djava.io.tmpdir=/tmp -Djava.io.tmpdir={tmp_path}")
    for_session(local=True)
    monkeypatch.setenv("_JAVA_OPTIONS", f"-Djava.io.tmpdir={tmp_path / 'missing'}")
    with pytest.raises(EnvironmentUnfitError, match=r"/missing, which is missing"):
        for_session(local=True)
