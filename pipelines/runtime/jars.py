"""Fetches the jars that Spark, the local Kafka brokers and the receiver's build need into one folder.

It uses Ivy, which pyspark ships, so only a JDK is needed. Every file must have the checksum in the committed file
``jars.sha256``; ``python -m kafka_telemetry_lake.pipelines.runtime.jars --lock`` updates that file. Spark gets the jars
in its class path, not through ``spark.jars.packages``, which would add them to the ``sys.path`` of every Python worker,
where each task would read them again.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from xml.sax.saxutils import quoteattr

import platformdirs
from filelock import FileLock

from kafka_telemetry_lake.udfs.errors import CannotRunError

CHECKSUMS = Path(__file__).with_name("jars.sha256")

SPARK_PACKAGES = (
    "io.delta:delta-spark_4.0_2.13:4.4.0",
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0",
)

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


BUNDLES = {
    # Only what pyspark doesn't ship: a second Scala or Hadoop on the class path would shadow Spark's own.
    "spark": Bundle(
        (
            *SPARK_PACKAGES,
            "io.delta:delta-storage:4.4.0",
            "io.delta:delta-kernel-api:4.4.0",
            "io.delta:delta-kernel-defaults:4.4.0",
            "io.delta:delta-kernel-unitycatalog:4.4.0",
            "io.unitycatalog:unitycatalog-client:0.6.0",
            "io.unitycatalog:unitycatalog-hadoop:0.6.0",
            "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
            "org.apache.kafka:kafka-clients:3.9.2",  # Spark 4.0 depends on 3.9.0; see docs/security.md
            "org.apache.commons:commons-pool2:2.12.0",
        ),
        transitive=False,
    ),
    # For a lake in S3. Hadoop depends on a single jar of the SDK with half a gigabyte; S3A needs only these parts.
    "spark-s3": Bundle(
        (
            "org.apache.hadoop:hadoop-aws:3.4.1",
            "software.amazon.eventstream:eventstream:1.0.1",
            "org.reactivestreams:reactive-streams:1.0.4",
            *(f"software.amazon.awssdk:{part}:2.29.52" for part in AWS_PARTS),
        ),
        transitive=False,
    ),
    "kafka-4.3.1": Bundle(("org.apache.kafka:kafka_2.13:4.3.1", "org.apache.kafka:kafka-tools:4.3.1"), transitive=True),
    "kafka-4.4.0": Bundle(("org.apache.kafka:kafka_2.13:4.4.0",), transitive=True),  # its kafka-tools isn't published
    "kafka-3.9.1": Bundle(("org.apache.kafka:kafka_2.13:3.9.1", "org.apache.kafka:kafka-tools:3.9.1"), transitive=True),
    "kafka-3.8.1": Bundle(
        ("org.apache.kafka:kafka-clients:3.8.1", "com.fasterxml.jackson.core:jackson-databind:2.16.2"), transitive=True
    ),
    # Only for Streams applications: its rocksdbjni alone is 60 MB.
    "streams-4.3.1": Bundle(("org.apache.kafka:kafka-streams:4.3.1",), transitive=True),
    # Kafka 4 ships no log binding. This is the one of 3.9, so both use the same configuration.
    "kafka-logging": Bundle(("org.slf4j:slf4j-reload4j:1.7.36", "ch.qos.reload4j:reload4j:1.2.25"), transitive=False),
    "maven": Bundle(("org.apache.maven:apache-maven:3.9.9",), transitive=False, classifier="bin", kind="zip"),
}


class JarsUnavailableError(CannotRunError):
    """The jars could not be fetched, or don't match ``jars.sha256``; the message names them or has Ivy's output."""


def jars_home() -> Path:
    """The folder of all bundles: ``TELEMETRY_LAKE_JARS``, else ``.jars`` in a checkout, else in the user's cache."""
    if configured := os.environ.get("TELEMETRY_LAKE_JARS"):
        return Path(configured)
    checkout = Path(__file__).resolve().parents[2]
    if (checkout / "pyproject.toml").is_file():
        return checkout / ".jars"
    return platformdirs.user_cache_path("kafka-telemetry-lake") / "jars"


def jars(bundle: str) -> list[Path]:
    """A bundle's files. Fetches them if they are missing or ``jars.sha256`` changed.

    Raises:
        JarsUnavailableError: the files could not be fetched or have wrong checksums.
    """
    folder = jars_home() / bundle
    complete = folder / ".complete"
    expected = checksums(CHECKSUMS.read_text(encoding="utf-8"), bundle)
    version = hashlib.sha256(repr(sorted(expected.items())).encode()).hexdigest()
    if not _is_complete(complete, version):
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / ".lock"):
            if not _is_complete(complete, version):
                _install(bundle, expected, folder)
                complete.write_text(version, encoding="utf-8")
    return _files(bundle, folder)


def _is_complete(marker: Path, version: str) -> bool:
    return marker.exists() and marker.read_text(encoding="utf-8") == version


def _files(bundle: str, folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.suffix == f".{BUNDLES[bundle].kind}")


def checksums(text: str, bundle: str) -> dict[str, str]:
    """Parse lines ``<checksum>  <bundle>/<file>``; returns the SHA-256 in hex of each file of the bundle, by name."""
    pairs = (line.split() for line in text.splitlines() if line)
    return {name.split("/")[1]: checksum for checksum, name in pairs if name.split("/")[0] == bundle}


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _install(bundle: str, expected: dict[str, str], folder: Path) -> None:
    """Fetch a bundle to a temporary folder, and move it to its own after verifying every checksum."""
    with tempfile.TemporaryDirectory(dir=jars_home()) as scratch:
        _retrieve(BUNDLES[bundle], Path(scratch))
        fetched = _files(bundle, Path(scratch))
        verify(bundle, fetched, expected)
        for stale in {file.name for file in _files(bundle, folder)} - expected.keys():
            (folder / stale).unlink()
        for file in fetched:
            shutil.move(file, folder / file.name)


def verify(bundle: str, files: Sequence[Path], expected: dict[str, str]) -> None:
    """Raise ``JarsUnavailableError`` for the first file that is missing, unknown or has a wrong checksum."""
    by_name = {file.name: file for file in files}
    for name in sorted(by_name.keys() | expected.keys()):
        if name not in expected:
            raise JarsUnavailableError(f"{bundle}/{name} was fetched, but {CHECKSUMS.name} has no checksum for it")
        if name not in by_name:
            raise JarsUnavailableError(f"{bundle}/{name} is in {CHECKSUMS.name}, but was not fetched")
        if (actual := _sha256(by_name[name])) != expected[name]:
            wrong = f"its SHA-256 is {actual}, but {CHECKSUMS.name} has {expected[name]}"
            raise JarsUnavailableError(f"{bundle}/{name} is not the expected file: {wrong}")


def lock() -> None:
    """Fetch all bundles and write their checksums. Raises ``JarsUnavailableError``."""
    lines = []
    jars_home().mkdir(parents=True, exist_ok=True)
    for bundle in sorted(BUNDLES):
        with tempfile.TemporaryDirectory(dir=jars_home()) as scratch:
            _retrieve(BUNDLES[bundle], Path(scratch))
            lines += [f"{_sha256(file)}  {bundle}/{file.name}\n" for file in _files(bundle, Path(scratch))]
    CHECKSUMS.write_text("".join(lines), encoding="utf-8")


def _retrieve(bundle: Bundle, folder: Path) -> None:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise JarsUnavailableError("pyspark is not installed: pip install 'kafka-telemetry-lake[spark]'")
    ivy = next((Path(spec.origin).parent / "jars").glob("ivy-*.jar"))
    with tempfile.TemporaryDirectory() as scratch:
        module = Path(scratch) / "ivy.xml"
        module.write_text(_ivy_module(bundle), encoding="utf-8")
        command = ["java", "-jar", str(ivy), "-ivy", str(module), "-cache", str(jars_home() / ".ivy"), "-types",
                   "jar", "bundle", "zip", "-retrieve", str(folder / "[artifact]-[revision].[ext]")]  # fmt: skip
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode or not any(folder.glob(f"*.{bundle.kind}")):
        lines = [line for line in (result.stdout + result.stderr).splitlines() if line.strip()]
        raise JarsUnavailableError(f"could not fetch {', '.join(bundle.coordinates)}:\n" + "\n".join(lines[-15:]))


def _ivy_module(bundle: Bundle) -> str:
    dependencies = []
    for coordinate in bundle.coordinates:
        group, name, revision = coordinate.split(":")
        artifact = ""
        if bundle.classifier:
            artifact = f'<artifact name="{name}" type="{bundle.kind}" m:classifier={quoteattr(bundle.classifier)}/>'
        dependencies.append(
            f'<dependency org="{group}" name="{name}" rev="{revision}" conf="*->default" '
            f'transitive="{str(bundle.transitive).lower()}">{artifact}</dependency>'
        )
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="kafka-telemetry-lake" module="bundle"/>'
        f"<dependencies>{''.join(dependencies)}</dependencies></ivy-module>"
    )


def maven() -> Path:
    """Maven's launcher, unpacked from Maven's artifact, so the machine needs no Maven."""
    (archive,) = jars("maven")
    launcher = archive.parent / archive.stem / "bin" / "mvn"
    if not launcher.exists():
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(archive.parent)
        launcher.chmod(0o755)
    return launcher


def main(argv: list[str]) -> int:
    """Run a command: ``python -m kafka_telemetry_lake.pipelines.runtime.jars spark kafka-4.3.1`` fetches bundles.

    ``--maven`` prints the path of Maven's launcher; ``--lock`` writes ``jars.sha256``.
    """
    try:
        if argv == ["--maven"]:
            print(maven())
        elif argv == ["--lock"]:
            lock()
        else:
            for bundle in argv:
                print(f"{bundle}: {len(jars(bundle))} files in {jars_home() / bundle}")
    except JarsUnavailableError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
