"""Fetches the jars that Spark, the local Kafka brokers and the receiver's build need into one folder.

The committed file ``jars.sha256`` has the path in Maven Central and the checksum of every file, dependencies included:
nothing is resolved here (`tools/lock_jars.py` did), and a file with another checksum is refused. Spark gets the jars in
its class path, not through ``spark.jars.packages``, which would add them to the ``sys.path`` of every Python worker,
where each task would read them again.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import platformdirs
from filelock import FileLock

from kafka_telemetry_lake.udfs.errors import CannotRunError

CHECKSUMS = Path(__file__).with_name("jars.sha256")
MAVEN_CENTRAL = "https://repo1.maven.org/maven2"
AT_ONCE = 8  # a file is small: most of its time is the way to the repository and back
TRIES, TIMEOUT_S = 3, 60

DELTA = "4.4.0"


@dataclass(frozen=True)
class SparkLine:
    """What goes with a line of Spark (docs/versions.md): a release of each."""

    pyspark: str  # the one that is tested
    connector: str  # to Kafka: not every release of Spark has one in Maven Central with all that it depends on
    hadoop: str  # what pyspark ships
    aws_sdk: str  # what that Hadoop is built with, or newer
    pool: str  # commons-pool2, which the connector depends on
    newest_java: int  # of those that are tested; all lines begin with 17
    with_hadoop_aws: tuple[str, ...] = ()  # what else its classes can't be loaded without


DEFAULT_LINE = "4.0"  # that of Databricks' long-term runtime
SPARK_LINES = {
    "4.0": SparkLine("4.0.5", connector="4.0.0", hadoop="3.4.1", aws_sdk="2.29.52", pool="2.12.0", newest_java=21),
    "4.1": SparkLine("4.1.4", connector="4.1.1", hadoop="3.4.2", aws_sdk="2.29.52", pool="2.12.1", newest_java=25),
    "4.2": SparkLine(
        "4.2.1",
        connector="4.2.0",
        hadoop="3.5.0",
        aws_sdk="2.35.4",
        pool="2.13.1",
        newest_java=25,
        with_hadoop_aws=("software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:1.3.1",),
    ),
}

AWS_PARTS = (
    "annotations", "apache-client", "arns", "auth", "aws-core", "aws-query-protocol", "aws-xml-protocol", "checksums",
    "checksums-spi", "crt-core", "endpoints-spi", "http-auth", "http-auth-aws", "http-auth-aws-eventstream",
    "http-auth-spi", "http-client-spi", "identity-spi", "json-utils", "metrics-spi", "netty-nio-client", "profiles",
    "protocol-core", "regions", "retries", "retries-spi", "s3", "s3-transfer-manager", "sdk-core", "sts",
    "third-party-jackson-core", "utils",
)  # fmt: skip


@dataclass(frozen=True)
class Bundle:
    """A folder of jars, given as Maven coordinates, with or without their dependencies."""

    coordinates: tuple[str, ...]
    transitive: bool
    classifier: str | None = None
    kind: str = "jar"


def _spark_bundles(line: str) -> dict[str, Bundle]:
    spark, name = SPARK_LINES[line], "spark" if line == DEFAULT_LINE else f"spark-{line}"
    return {
        # Only what pyspark doesn't ship: a second Scala or Hadoop on the class path would shadow Spark's own.
        name: Bundle(
            (
                f"io.delta:delta-spark_{line}_2.13:{DELTA}",
                f"io.delta:delta-storage:{DELTA}",
                f"io.delta:delta-kernel-api:{DELTA}",
                f"io.delta:delta-kernel-defaults:{DELTA}",
                f"io.delta:delta-kernel-unitycatalog:{DELTA}",
                "io.unitycatalog:unitycatalog-client:0.6.0",
                "io.unitycatalog:unitycatalog-hadoop:0.6.0",
                f"org.apache.spark:spark-sql-kafka-0-10_2.13:{spark.connector}",
                f"org.apache.spark:spark-token-provider-kafka-0-10_2.13:{spark.connector}",
                "org.apache.kafka:kafka-clients:3.9.2",  # Spark 4.0 depends on 3.9.0; see docs/security.md
                f"org.apache.commons:commons-pool2:{spark.pool}",
            ),
            transitive=False,
        ),
        # For a lake in S3. Hadoop depends on a single jar of the SDK with half a gigabyte; S3A needs only these parts.
        f"{name}-s3": Bundle(
            (
                f"org.apache.hadoop:hadoop-aws:{spark.hadoop}",
                *spark.with_hadoop_aws,
                "software.amazon.eventstream:eventstream:1.0.1",
                "org.reactivestreams:reactive-streams:1.0.4",
                *(f"software.amazon.awssdk:{part}:{spark.aws_sdk}" for part in AWS_PARTS),
            ),
            transitive=False,
        ),
    }


BUNDLES = {
    **{name: bundle for line in SPARK_LINES for name, bundle in _spark_bundles(line).items()},
    "kafka-4.3.1": Bundle(("org.apache.kafka:kafka_2.13:4.3.1", "org.apache.kafka:kafka-tools:4.3.1"), transitive=True),
    "kafka-4.4.0": Bundle(("org.apache.kafka:kafka_2.13:4.4.0",), transitive=True),  # its kafka-tools isn't published
    "kafka-3.9.1": Bundle(("org.apache.kafka:kafka_2.13:3.9.1", "org.apache.kafka:kafka-tools:3.9.1"), transitive=True),
    "kafka-3.8.1": Bundle(
        ("org.apache.kafka:kafka-clients:3.8.1", "com.fasterxml.jackson.core:jackson-databind:2.16.2"), transitive=True
    ),
    "connect-file-4.3.1": Bundle(("org.apache.kafka:connect-file:4.3.1",), transitive=False),
    "connect-mirror-4.3.1": Bundle(
        ("org.apache.kafka:connect-mirror:4.3.1", "org.apache.kafka:connect-mirror-client:4.3.1"), transitive=False
    ),
    # Only for Streams applications: its rocksdbjni alone is 60 MB.
    "streams-4.3.1": Bundle(("org.apache.kafka:kafka-streams:4.3.1",), transitive=True),
    # Kafka 4 ships no log binding. This is the one of 3.9, so both use the same configuration.
    "kafka-logging": Bundle(("org.slf4j:slf4j-reload4j:1.7.36", "ch.qos.reload4j:reload4j:1.2.25"), transitive=False),
    # A proxy for the demo, tests and benchmarks, with the log binding that its slf4j 2 needs.
    "kroxylicious-0.12.0": Bundle(
        ("io.kroxylicious:kroxylicious-runtime:0.12.0", "org.slf4j:slf4j-reload4j:2.0.17"), transitive=True
    ),
    # A compiler that needs no JDK, only a Java that runs it.
    "ecj": Bundle(("org.eclipse.jdt:ecj:3.45.0",), transitive=False),
    "maven": Bundle(("org.apache.maven:apache-maven:3.9.9",), transitive=False, classifier="bin", kind="zip"),
}


class JarsUnavailableError(CannotRunError):
    """The jars could not be fetched, or don't match ``jars.sha256``; the message names the file and says why."""


def jars_home() -> Path:
    """The folder of all bundles: ``TELEMETRY_LAKE_JARS``, else ``.jars`` in a checkout, else in the user's cache."""
    if configured := os.environ.get("TELEMETRY_LAKE_JARS"):
        return Path(configured)
    checkout = Path(__file__).resolve().parents[2]
    if (checkout / "pyproject.toml").is_file():
        return checkout / ".jars"
    return platformdirs.user_cache_path("kafka-telemetry-lake") / "jars"


def installed_spark() -> str | None:
    """The version of the pyspark that is imported; None: there is none.

    That is what its file says: one of another Spark on ``PYTHONPATH`` shadows the one that pip knows.
    """
    package = spark_package()
    if package is None:
        return None
    try:
        text = (package / "version.py").read_text(encoding="utf-8")
    except OSError:  # in an archive
        return _known_to_pip()
    said = re.search(r"""^__version__.*= *['"]([^'"]+)""", text, re.MULTILINE)
    return None if said is None else said[1]


def spark_package() -> Path | None:
    """The folder of the pyspark that is imported; None: there is none."""
    found = find_spec("pyspark")
    return None if found is None or found.origin is None else Path(found.origin).parent


def _known_to_pip() -> str | None:
    try:
        return version("pyspark")
    except PackageNotFoundError:
        return None


def line_of_installed_spark() -> str | None:
    """The line of the pyspark that is imported, such as ``4.0``; None: there is none."""
    installed = installed_spark()
    return None if installed is None else ".".join(installed.split(".")[:2])


def bundle_of_installed_spark(bundle: str) -> str:
    """For ``spark`` and ``spark-s3``, the bundle of the installed pyspark's line; any other is returned as it is.

    Raises:
        JarsUnavailableError: no jars are locked for this line.
    """
    if bundle not in ("spark", "spark-s3"):
        return bundle
    line = line_of_installed_spark()
    if line is None:  # the jars are fetched for another environment
        return bundle
    if line not in SPARK_LINES:
        imported = installed_spark()
        how = "installed" if imported == _known_to_pip() else f"imported from {spark_package()}"
        raise JarsUnavailableError(
            f"pyspark {imported} is {how}, but there are jars for Spark {', '.join(SPARK_LINES)} only: "
            f"pip install 'pyspark=={SPARK_LINES[DEFAULT_LINE].pyspark}'"
        )
    return bundle if line == DEFAULT_LINE else bundle.replace("spark", f"spark-{line}", 1)


def jars(bundle: str) -> list[Path]:
    """A bundle's files; ``spark`` and ``spark-s3`` are those for the installed pyspark.

    Fetches those that are missing if ``jars.sha256`` changed or the folder is new.

    ``TELEMETRY_LAKE_MAVEN`` is the URL of a mirror of Maven Central; proxies are those of ``HTTPS_PROXY``,
    and certificates are trusted as the system trusts them.

    Raises:
        JarsUnavailableError: the files could not be fetched or have wrong checksums.
    """
    bundle = bundle_of_installed_spark(bundle)
    folder = jars_home() / bundle
    complete = folder / ".complete"
    expected = checksums(CHECKSUMS.read_text(encoding="utf-8"), bundle)
    state = hashlib.sha256(repr(sorted(expected.items())).encode()).hexdigest()
    if not _is_complete(complete, state):
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / ".lock"):
            if not _is_complete(complete, state):
                _install(bundle, expected, folder)
                complete.write_text(state, encoding="utf-8")
    return _files(bundle, folder)


def _is_complete(marker: Path, state: str) -> bool:
    return marker.exists() and marker.read_text(encoding="utf-8") == state


def _files(bundle: str, folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.suffix == f".{BUNDLES[bundle].kind}")


def checksums(text: str, bundle: str) -> dict[str, str]:
    """Parse lines ``<checksum>  <bundle>/<path>``; returns the SHA-256 in hex of each file of the bundle, by path.

    A path is that in a Maven repository: group as folders, artifact, version and file.
    """
    pairs = (line.split() for line in text.splitlines() if line)
    named = ((name.split("/", 1), checksum) for checksum, name in pairs)
    return {path: checksum for (folder, path), checksum in named if folder == bundle}


def sha256(file: Path) -> str:
    """A file's SHA-256 in hex."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _install(bundle: str, expected: dict[str, str], folder: Path) -> None:
    """Fetch what the folder lacks. A file appears under its name once its checksum has been verified."""
    names = {path.rsplit("/", 1)[1]: checksum for path, checksum in expected.items()}
    for stale in _files(bundle, folder):
        if stale.name not in names or sha256(stale) != names[stale.name]:
            stale.unlink()
    missing = [path for path in expected if not (folder / path.rsplit("/", 1)[1]).exists()]
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=jars_home())))
        session = stack.enter_context(_session())
        pool = stack.enter_context(ThreadPoolExecutor(AT_ONCE))
        stack.callback(pool.shutdown, cancel_futures=True)  # after a failure no other file is begun
        for file in pool.map(lambda path: _fetch(session, bundle, path, expected[path], scratch), missing):
            file.replace(folder / file.name)


def _session() -> Any:
    try:
        from urllib3.util import Retry  # noqa: PLC0415  # the extra `spark` brings it; a platform's Spark brings its own jars

        from kafka_telemetry_lake.pipelines.runtime.http_session import http_session  # noqa: PLC0415  # as urllib3
    except ImportError:
        missing = "requests and truststore are not installed: pip install 'kafka-telemetry-lake[spark]'"
        raise JarsUnavailableError(missing) from None
    return http_session(Retry(TRIES, backoff_factor=0.5, status_forcelist=(429, 500, 502, 503, 504)), AT_ONCE)


def _fetch(session: Any, bundle: str, path: str, checksum: str, folder: Path) -> Path:
    """Fetch one file into a folder. Raises ``JarsUnavailableError``."""
    url = f"{os.environ.get('TELEMETRY_LAKE_MAVEN', MAVEN_CENTRAL).rstrip('/')}/{path}"
    file = folder / path.rsplit("/", 1)[1]
    try:
        with session.get(url, stream=True, timeout=TIMEOUT_S) as answer, file.open("wb") as content:
            answer.raise_for_status()
            kind = answer.headers.get("Content-Type", "no content type")[:80]
            for part in answer.iter_content(1 << 20):
                content.write(part)
    except OSError as error:  # what requests raises, too
        raise JarsUnavailableError(_public(f"could not fetch {bundle}/{file.name} from {url}: {error}")) from None
    if (actual := sha256(file)) != checksum:
        wrong = f"its SHA-256 is {actual}, but {CHECKSUMS.name} has {checksum}; {url} answered with {kind}"
        raise JarsUnavailableError(_public(f"{bundle}/{file.name} is not the expected file: {wrong}"))
    return file


def _public(message: str) -> str:
    """The message without the user and password that a mirror's URL may have."""
    return re.sub(r"//[^/@\s]*@", "//", message)


def maven() -> Path:
    """Maven's launcher, unpacked from Maven's artifact, so the machine needs no Maven."""
    (archive,) = jars("maven")
    folder = archive.parent / archive.stem.removesuffix("-bin")
    launcher = folder / "bin" / "mvn"
    with FileLock(archive.parent / ".lock"):
        if not launcher.exists():
            with tempfile.TemporaryDirectory(dir=archive.parent) as scratch, zipfile.ZipFile(archive) as packed:
                packed.extractall(scratch)
                (Path(scratch) / folder.name / "bin" / "mvn").chmod(0o755)
                (Path(scratch) / folder.name).replace(folder)  # all of it, or nothing
    return launcher


def main(argv: list[str]) -> int:
    """Run a command: ``python -m kafka_telemetry_lake.pipelines.runtime.jars spark kafka-4.3.1`` fetches bundles.

    ``--maven`` prints the path of Maven's launcher.
    """
    try:
        if argv == ["--maven"]:
            print(maven())
        else:
            for bundle in map(bundle_of_installed_spark, argv):
                print(f"{bundle}: {len(jars(bundle))} files in {jars_home() / bundle}")
    except JarsUnavailableError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
