"""The jars that Spark, the local Kafka brokers and the receiver's build need, fetched once into one folder.

Ivy, which pyspark ships, is the client: nothing but a JDK is needed. The jars go to Spark by its class path, not by
``spark.jars.packages``: those land on every Python worker's ``sys.path``, where each task reads them again.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from xml.sax.saxutils import quoteattr

import platformdirs
from filelock import FileLock

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
    """One folder of jars: Maven coordinates, with what they depend on or alone."""

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
            "org.apache.kafka:kafka-clients:3.9.0",
            "org.apache.commons:commons-pool2:2.12.0",
        ),
        transitive=False,
    ),
    # A lake in S3. Hadoop's own choice, the SDK in one jar, is half a gigabyte: these are the parts that S3A uses.
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
    "kafka-3.9.1": Bundle(("org.apache.kafka:kafka_2.13:3.9.1", "org.apache.kafka:kafka-tools:3.9.1"), transitive=True),
    "kafka-3.8.1": Bundle(
        ("org.apache.kafka:kafka-clients:3.8.1", "com.fasterxml.jackson.core:jackson-databind:2.16.2"), transitive=True
    ),
    # Its rocksdbjni alone is 60 MB: only for who runs a Streams application.
    "streams-4.3.1": Bundle(("org.apache.kafka:kafka-streams:4.3.1",), transitive=True),
    # Kafka 4's artifacts bring no log binding; this is 3.9's, so one configuration serves both.
    "kafka-logging": Bundle(("org.slf4j:slf4j-reload4j:1.7.36", "ch.qos.reload4j:reload4j:1.2.25"), transitive=False),
    "maven": Bundle(("org.apache.maven:apache-maven:3.9.9",), transitive=False, classifier="bin", kind="zip"),
}


class JarsUnavailableError(RuntimeError):
    """The jars could not be fetched; the message says what was asked and what the client answered."""


def jars_home() -> Path:
    """The folder of all bundles: ``TELEMETRY_LAKE_JARS``, else ``.jars`` of a checkout, else the user's cache."""
    if configured := os.environ.get("TELEMETRY_LAKE_JARS"):
        return Path(configured)
    checkout = Path(__file__).resolve().parent.parent
    if (checkout / "pyproject.toml").is_file():
        return checkout / ".jars"
    return platformdirs.user_cache_path("kafka-telemetry-lake") / "jars"


def jars(bundle: str) -> list[Path]:
    """The files of a bundle, fetched at first use. Raises ``JarsUnavailableError``."""
    folder = jars_home() / bundle
    complete = folder / ".complete"
    if not complete.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / ".lock"):
            if not complete.exists():
                _retrieve(BUNDLES[bundle], folder)
                complete.touch()
    return sorted(p for p in folder.iterdir() if p.suffix == f".{BUNDLES[bundle].kind}")


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
    """Maven's launcher, unpacked from its own artifact: a machine needs no Maven of its own."""
    (archive,) = jars("maven")
    launcher = archive.parent / archive.stem / "bin" / "mvn"
    if not launcher.exists():
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(archive.parent)
        launcher.chmod(0o755)
    return launcher


def main(argv: list[str]) -> int:
    """``python -m pipelines.jars spark kafka-4.3.1`` fetches bundles; ``--maven`` prints Maven's launcher."""
    try:
        if argv == ["--maven"]:
            print(maven())
        else:
            for asked in argv:
                print(f"{asked}: {len(jars(asked))} files in {jars_home() / asked}")
    except JarsUnavailableError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
