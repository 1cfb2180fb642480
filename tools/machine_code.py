"""Puts machine code of the kernels into a wheel: `python tools/machine_code.py dist/kafka_telemetry_lake-*.whl`.

The code is for this architecture and the Python that runs this, which must have the wheel's dependencies. Run it with
another Python, or elsewhere, on the same wheel, and the wheel has both. What it writes depends on the wheel, on the
architecture and on the versions of Python, numba and LLVM, not on the processor, the folder or the day.
`udfs/kernels/machine_code.py` says where the code is in the wheel and when it is used.
"""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

UDFS = "kafka_telemetry_lake/udfs"
TIME = (2020, 2, 2, 0, 0, 0)  # as hatch gives all files of the wheel
# Both run beside the wheel's files. numba writes the folder of the sources into what it caches, in a text for people.
COMPILE = """
import hashlib, os, platform, shutil
from kafka_telemetry_lake.udfs.kernels import machine_code as code

if platform.machine() not in code.BASELINES or (made := code.UDFS / code.FOLDER / code.name()).exists():
    raise SystemExit()
os.environ |= {"NUMBA_CPU_NAME": code.baseline(), "NUMBA_CPU_FEATURES": ""}
from kafka_telemetry_lake.pipelines.ingest.compiling import compile_kernels
from kafka_telemetry_lake.udfs.kernels import numba_cache
from numba.core.annotations.type_annotations import TypeAnnotation
from numba.core.caching import UserProvidedCacheLocator

TypeAnnotation.__str__ = lambda self: ""
compile_kernels()
if not numba_cache.is_filled():
    raise SystemExit("the kernels can't be compiled")
made.mkdir(parents=True)
sums = []
for package in sorted({path.parent for path in code.UDFS.rglob("*.py")}):
    cache = numba_cache.configure() / UserProvidedCacheLocator.get_suitable_cache_subpath(str(package / "a_module"))
    for path in sorted(cache.glob("*.nb[ci]")):
        copy = made / package.relative_to(code.UDFS) / path.name
        copy.parent.mkdir(exist_ok=True)
        shutil.copyfile(path, copy)
        sums.append(f"{hashlib.sha256(copy.read_bytes()).hexdigest()}  {copy.relative_to(made)}")
(made / code.CHECKSUMS).write_text("".join(f"{line}\\n" for line in sums), "ascii")
"""
LOAD = """
from kafka_telemetry_lake.pipelines.ingest.compiling import load_kernels
from kafka_telemetry_lake.udfs.kernels import machine_code, numba_cache

load_kernels()
if compiled := [path.name for path in numba_cache.configure().rglob("*.nbc")]:
    raise SystemExit(f"compiled again: {compiled}")
if machine_code.shipped() is None:
    raise SystemExit("the code can't run here")
"""


def add(wheel: Path) -> list[str]:
    """Compile, try whether a process with an empty cache loads it all, and add it to the wheel.

    Returns: the names of the files; none if the wheel has code for this Python already, or nothing is known that all
    processors of this architecture can run.

    Raises:
        SystemExit: something doesn't compile, or isn't loaded. The wheel is as it was.
    """
    with tempfile.TemporaryDirectory() as scratch, zipfile.ZipFile(wheel) as packed:
        site = Path(scratch) / "site"
        packed.extractall(site)
        before = set(packed.namelist())
        _run(COMPILE, site)
        paths = (
            path for path in sorted((site / UDFS).rglob("*")) if path.is_file() and "__pycache__" not in path.parts
        )
        made = {name: path.read_bytes() for path in paths if (name := path.relative_to(site).as_posix()) not in before}
        if made:
            _run(LOAD, site)
            _pack(packed, made, wheel)
    return list(made)


def _run(program: str, site: Path) -> None:
    """Run a program that finds the package in `site`, and an empty cache."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("NUMBA_", "PYTHON"))}
    with tempfile.TemporaryDirectory(dir=site.parent) as cache:
        environment |= {"PYTHONPATH": str(site), "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
        environment |= {"NUMBA_CACHE_DIR": cache, "NUMBA_DISABLE_INTEL_SVML": "1"}
        if subprocess.run([sys.executable, "-P", "-c", program], env=environment, check=False).returncode:
            raise SystemExit(f"no machine code for {sys.executable}")


def _pack(packed: zipfile.ZipFile, made: dict[str, bytes], wheel: Path) -> None:
    """Write the wheel anew, with files that it hasn't had."""
    new = wheel.with_suffix(".new")
    with zipfile.ZipFile(new, "w") as whole:
        for member in packed.infolist():
            if not member.filename.endswith(".dist-info/RECORD"):
                whole.writestr(member, packed.read(member))
        for name, content in made.items():
            whole.writestr(_member(name), content)
        (record,) = (name for name in packed.namelist() if name.endswith(".dist-info/RECORD"))
        *lines, itself = packed.read(record).decode().splitlines()
        lines += [f"{name},sha256={_hash(content)},{len(content)}" for name, content in made.items()]
        whole.writestr(packed.getinfo(record), "\n".join([*lines, itself, ""]))
    new.replace(wheel)


def _member(name: str) -> zipfile.ZipInfo:
    member = zipfile.ZipInfo(name, TIME)
    member.compress_type = zipfile.ZIP_DEFLATED
    member.external_attr = 0o100644 << 16
    return member


def _hash(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        added = add(Path(name))
        print(f"{name}: {len(added)} files of machine code for {sys.implementation.cache_tag}")
