"""Which Java this machine has, the same one for Spark, Kafka's clients and local brokers, and whether it will do.

``JAVA_HOME`` decides, else the PATH, as Spark's own scripts have it. Java reads options from variables of the
environment, too (`OPTIONS`): these are why a JVM that starts elsewhere doesn't start here, or starts with another heap.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from kafka_telemetry_lake.pipelines.runtime.jars import DEFAULT_LINE, SPARK_LINES, line_of_installed_spark
from kafka_telemetry_lake.udfs.errors import CannotRunError

LOWEST_JAVA = 17
OPTIONS = ("JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS")  # read by each JVM, the last by `java` alone
SPARK_OPTIONS = "SPARK_SUBMIT_OPTS"  # read by Spark's scripts
# In other languages Java writes numbers with other digits, and small letters for others: Delta looks for files of names
# that nobody has written.
LANGUAGE = ("-Duser.language=en", "-Duser.country=US")
LEAST_HEAP = 450 << 20  # bytes: with less Spark doesn't start
PATIENCE_S = 20


class JavaMissingError(CannotRunError):
    """Java is missing, or none that Spark runs on; the message says what to do."""


def java_program(name: str = "java") -> str:
    """The path of a program of the JDK, or its bare name if the PATH decides."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / name) if home else name


def newest_java(line: str) -> int:
    """The newest Java that a line of Spark runs on; of an unknown line, that of the default."""
    return SPARK_LINES.get(line, SPARK_LINES[DEFAULT_LINE]).newest_java


def check_java(options: Sequence[str] = (), least_heap: int = 0) -> int:
    """The version of the Java that Spark would find.

    Args:
        options: with which a JVM is to start.
        least_heap: bytes that it needs at least, whatever the environment says.

    Raises:
        JavaMissingError: there is none, the installed Spark doesn't run on it, or it doesn't start in this environment.
    """
    line = line_of_installed_spark() or DEFAULT_LINE
    newest = newest_java(line)
    where = f"JAVA_HOME={os.environ['JAVA_HOME']}" if os.environ.get("JAVA_HOME") else "PATH"
    wanted = f"install a JDK {LOWEST_JAVA} to {newest} and set JAVA_HOME to it"
    program = java_program()
    if shutil.which(program) is None:
        raise JavaMissingError(f"no Java found by {where}: {wanted}")
    output = _output(program, options)
    if (version := re.search(r'version "(?:1\.)?(\d+)', output)) is None:
        raise JavaMissingError(_why_not(program, output, wanted))
    found = int(version[1])
    if found < LOWEST_JAVA:
        raise JavaMissingError(f"Java {found} found by {where} is too old: {wanted}")
    if found > newest:
        later = [each for each in SPARK_LINES if newest_java(each) >= found]
        other = f", or install a later Spark ({', '.join(later)}: docs/versions.md)" if later else ""
        raise JavaMissingError(f"Java {found} found by {where} is too new for Spark {line}: {wanted}{other}")
    heap = re.search(r" MaxHeapSize\s*=\s*(\d+)", output)
    if heap is not None and int(heap[1]) < least_heap:
        advice = _advice() if _is_told() else "give --driver-memory 1g"
        raise JavaMissingError(
            f"Java gets a heap of {int(heap[1]) >> 20} MB, and Spark needs {least_heap >> 20} MB: {advice}"
        )
    return found


def spark_options() -> list[str]:
    """What ``SPARK_SUBMIT_OPTS`` adds to the options of Spark's JVM. Raises ``JavaMissingError``."""
    try:
        return shlex.split(os.environ.get(SPARK_OPTIONS, ""))
    except ValueError as error:  # a quote without its end
        raise JavaMissingError(f"{SPARK_OPTIONS} can't be read: {error}: {_advice()}") from None


def _output(program: str, options: Sequence[str]) -> str:
    """What a JVM with these options prints about itself."""
    try:
        argv = [program, *options, *(["-XX:+PrintFlagsFinal"] if options else []), "-version"]
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        raise JavaMissingError(f"`{program} -version` says nothing for {PATIENCE_S} s: {_advice()}") from None
    except OSError as error:
        raise JavaMissingError(f"`{program} -version` doesn't run: {error}: {_advice()}") from None
    lines = done.stdout.decode(errors="replace").splitlines()
    return "\n".join(each for each in lines if not each.startswith(("Picked up ", "NOTE: Picked up ")))


def _why_not(program: str, output: str, wanted: str) -> str:
    lines = [each.strip() for each in output.splitlines() if each.strip()]
    if lines and _is_told():
        return f"Java doesn't start: {lines[0]}: {_advice()}"
    said = f" but: {lines[0]}" if lines else ""
    return f"`{program} -version` printed no version{said}: {wanted}"


def _is_told() -> bool:
    return any(os.environ.get(name) for name in (*OPTIONS, SPARK_OPTIONS))


def _advice() -> str:
    set_ = [f"{name}={os.environ[name]}" for name in (*OPTIONS, SPARK_OPTIONS) if os.environ.get(name)]
    return f"unset or correct {', '.join(set_)}" if set_ else f"look at {java_program()}"
