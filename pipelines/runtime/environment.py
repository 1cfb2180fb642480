"""Variables of the environment that Spark, Hadoop and numba read by themselves, and what this process does with them.

They are often those of another Spark on the same machine. What could only break or bend a job of this process is left
out of its environment, and that of its JVM and workers; what may be meant is kept, if it can work.
"""

from __future__ import annotations

import os
import pwd
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from kafka_telemetry_lake.pipelines.runtime.jars import installed_spark, spark_package
from kafka_telemetry_lake.udfs.errors import CannotRunError

# Left out by every command.
NEVER = {
    "SPARK_REMOTE": "a job needs the JVM of its session, which Spark Connect hasn't",
    "SPARK_API_MODE": "a job needs the JVM of its session, which Spark Connect hasn't",
    "SPARK_CONNECT_MODE_ENABLED": "a job needs the JVM of its session, which Spark Connect hasn't",
    "SPARK_CONNECT_TESTING_REMOTE": "a job needs the JVM of its session, which Spark Connect hasn't",
    "ARROW_PRE_0_15_IPC_FORMAT": "Spark refuses Arrow data with it",
    "NUMBA_DISABLE_JIT": "kernels are right only when they are compiled",
    "NUMBA_NUM_THREADS": "kernels start no threads, and numba refuses to load with some numbers",
}
# Left out by a session on this machine.
NOT_LOCAL = {
    "HADOOP_CONF_DIR": "a session on this machine needs no Hadoop cluster: its paths would be those of HDFS",
    "YARN_CONF_DIR": "a session on this machine needs no Hadoop cluster: its paths would be those of HDFS",
    "SPARK_DIST_CLASSPATH": "its jars are those of another Spark",
    "SPARK_PREPEND_CLASSES": "its classes are those of another Spark",
    "SPARK_TESTING": "it is for Spark's own tests",
}
SUBMIT_ARGS = "PYSPARK_SUBMIT_ARGS"
# Spark takes these for given when they are empty, and doesn't start.
NOT_EMPTY = ("SPARK_HOME", "SPARK_LOCAL_DIRS", SUBMIT_ARGS, "PYSPARK_PYTHON", "SPARK_LOCAL_IP")
SHELL = "pyspark-shell"
_left_out: dict[str, str] = {}


class EnvironmentUnfitError(CannotRunError):
    """A variable of the environment would break the job; the message names it and says what to do."""


def is_platform() -> bool:
    """Whether Databricks or spark-submit has started this process, with an environment made for it."""
    return bool({"DATABRICKS_RUNTIME_VERSION", "PYSPARK_GATEWAY_PORT"} & os.environ.keys())


def leave_out() -> None:
    """Leave out what no command can use. Call it before pyspark and numba are imported, which read some of it."""
    if not is_platform():
        _leave_out(NEVER)
        if sys.getfilesystemencoding() == "utf-8":
            # Python takes names of files for UTF-8 in `LC_ALL=C` too, and where LANG names a locale that isn't
            # installed. Java would find no file there whose name has other letters than those of ASCII.
            os.environ["LC_ALL"] = "C.UTF-8"
        for name in NOT_EMPTY:
            if os.environ.get(name) == "":
                del os.environ[name]
    if not _has_home():
        os.environ["HOME"] = _private_folder()


def for_session(*, local: bool) -> None:
    """Prepare the environment of Spark's JVM.

    Raises:
        EnvironmentUnfitError: it can't start so.
    """
    for problem in problems(local=local):
        raise EnvironmentUnfitError(problem)
    if not _is_own_spark():
        _leave_out({"SPARK_HOME": f"pyspark {installed_spark()} has a Spark of its own"})
    if local:
        _leave_out(NOT_LOCAL)


def problems(*, local: bool = True) -> Iterator[str]:
    """What would keep Spark from starting, each in one line with what to do."""
    arguments = os.environ.get(SUBMIT_ARGS)
    if arguments is not None and SHELL not in arguments.split():
        yield f"{SUBMIT_ARGS} must end with {SHELL}, else Spark doesn't start: unset it, or add the word"
    if not _is_own_spark() and not (spark_package() or Path("pyspark")).joinpath("jars").is_dir():
        yield (
            f"SPARK_HOME={os.environ['SPARK_HOME']} isn't the Spark of pyspark {installed_spark()}, which has no jars "
            "of its own: set it to that one"
        )
    for folder in filter(None, os.environ.get("SPARK_LOCAL_DIRS", "").split(",") if local else ()):
        if not _is_writable(Path(folder)):
            yield f"SPARK_LOCAL_DIRS={folder} can't be written: name a folder that can, or unset it"
    loads = _java_temporary()
    if local and not (loads.is_dir() and _is_writable(loads) and _runs_programs(loads)):
        yield (
            f"Java can't load libraries from {loads}, which is missing, read-only or mounted noexec: name another "
            "folder, by JAVA_TOOL_OPTIONS=-Djava.io.tmpdir=DIR"
        )


def left_out() -> dict[str, str]:
    """What this process has left out so far, or a session on this machine would leave out, and why."""
    local = {name: why for name, why in NOT_LOCAL.items() if name in os.environ}
    other = {} if _is_own_spark() else {"SPARK_HOME": f"pyspark {installed_spark()} has a Spark of its own"}
    return _left_out | local | other


def user_name() -> str | None:
    """The name of this process's user; None: the system knows none, as in a container with any user id."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return None


def spark_jars() -> Path:
    """The folder of the jars of the Spark that a session of this process starts."""
    home = os.environ.get("SPARK_HOME")
    return Path(home) / "jars" if home and _is_own_spark() else (spark_package() or Path("pyspark")) / "jars"


def _leave_out(variables: dict[str, str]) -> None:
    for name, why in variables.items():
        if os.environ.pop(name, None) is not None:
            _left_out[name] = why


def _is_own_spark() -> bool:
    """Whether ``SPARK_HOME`` is unset, or has the jars of the pyspark that is imported."""
    home = os.environ.get("SPARK_HOME")
    if not home:
        return True
    jars = Path(home, "jars")
    return (jars / f"spark-core_2.13-{installed_spark()}.jar").is_file()


def _java_temporary() -> Path:
    """Where Spark's codecs put the libraries that they load. Java doesn't read TMPDIR."""
    given = " ".join(os.environ.get(name, "") for name in ("JAVA_TOOL_OPTIONS", "SPARK_SUBMIT_OPTS", "_JAVA_OPTIONS"))
    named = re.findall(r"-Djava\.io\.tmpdir=(\S+)", given)
    return Path(named[-1] if named else "/tmp" if sys.platform == "linux" else tempfile.gettempdir())  # Java's


def _runs_programs(folder: Path) -> bool:
    return not os.statvfs(folder).f_flag & getattr(os, "ST_NOEXEC", 0)


def _is_writable(folder: Path) -> bool:
    """Whether files can be made in a folder, or in the one where it can be made."""
    there = next((each for each in (folder, *folder.absolute().parents) if each.exists()), folder)
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)


def _has_home() -> bool:
    """Whether the user's folder is known. A library would make a folder named ``~`` otherwise."""
    return Path(os.path.expanduser("~")).is_absolute()  # noqa: PTH111  # the other one raises instead


def _private_folder() -> str:
    """A folder that only this user can enter, in place of a home."""
    folder = Path(tempfile.gettempdir(), f"telemetry-lake-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o077 or not folder.is_dir() or folder.is_symlink():
        raise EnvironmentUnfitError(f"HOME is unset, and {folder} isn't this user's alone: set HOME to a folder")
    return str(folder)
