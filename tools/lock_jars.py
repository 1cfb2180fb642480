"""Writes `pipelines/runtime/jars.sha256`: the path in Maven Central and the SHA-256 of each file of each bundle.

`make lock` runs it. Ivy, which pyspark ships, resolves the bundles' dependencies.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from xml.sax.saxutils import quoteattr

from kafka_telemetry_lake.pipelines.runtime.jars import BUNDLES, CHECKSUMS, Bundle, sha256
from kafka_telemetry_lake.pipelines.runtime.java import java_program

_PATH = "[organisation]/[module]/[revision]/[artifact]-[revision](-[classifier]).[ext]"


def main() -> None:
    lines = []
    with tempfile.TemporaryDirectory() as scratch:
        for name in sorted(BUNDLES):
            folder = Path(scratch, name)
            _retrieve(BUNDLES[name], folder, Path(scratch, ".ivy"))
            for file in sorted(folder.glob("*/*/*/*")):
                group, *rest = file.relative_to(folder).parts
                lines.append(f"{sha256(file)}  {'/'.join([name, *group.split('.'), *rest])}\n")
    CHECKSUMS.write_text("".join(lines), encoding="utf-8")


def _retrieve(bundle: Bundle, folder: Path, cache: Path) -> None:
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    ivy = next((Path(spec.origin).parent / "jars").glob("ivy-*.jar"))
    with tempfile.TemporaryDirectory() as scratch:
        module = Path(scratch) / "ivy.xml"
        module.write_text(_ivy_module(bundle), encoding="utf-8")
        command = [java_program(), "-jar", str(ivy), "-ivy", str(module), "-cache", str(cache),
                   "-types", "jar", "bundle", "zip", "-retrieve", str(folder / _PATH)]  # fmt: skip
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        lines = [line for line in (result.stdout + result.stderr).splitlines() if line.strip()]
        sys.exit(f"could not fetch {', '.join(bundle.coordinates)}:\n" + "\n".join(lines[-15:]))


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


if __name__ == "__main__":
    main()
