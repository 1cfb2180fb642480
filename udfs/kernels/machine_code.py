"""Machine code of the kernels that a wheel brings, so that a new node needs no compiler (`tools/machine_code.py`).

`FOLDER` has a folder for each architecture and Python that code was made for. Its name is a digest of all sources of
`udfs`, numba, LLVM, Python and the kind of processors, so code of anything else isn't looked at. In it are the files of
numba's cache, by package, with their checksums. If one of them isn't what was built, the whole folder is left out, and
the kernels are compiled as if there was none.

The code is read where it was installed, next to the modules that it was compiled from: who could change it there could
change those too. It is never written, so nothing can be half there. What it lacks is compiled for the processor at
hand, into the user's cache (`numba_cache`).
"""

from __future__ import annotations

import hashlib
import os
import platform
import sysconfig
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from kafka_telemetry_lake.udfs.sources import digest

UDFS = Path(__file__).parents[1]
FOLDER = "machine_code"  # in `UDFS`
CHECKSUMS = "SHA256SUMS"
# What code is made for, by architecture: LLVM's name, and the features that a processor must have.
# x86-64-v3 is what processors have since 2013 (Intel's Haswell) and 2017 (AMD's Zen).
BASELINES = {
    "x86_64": (
        "x86-64-v3",
        [
            "avx",
            "avx2",
            "bmi",
            "bmi2",
            "cx16",
            "f16c",
            "fma",
            "lzcnt",
            "movbe",
            "popcnt",
            "sahf",
            "sse3",
            "sse4.1",
            "sse4.2",
            "ssse3",
            "xsave",
        ],
    ),
    "aarch64": ("generic", []),
}
# Who sets one of these wants other code than a wheel brings.
WISHES = tuple(
    f"NUMBA_{name}" for name in ("CPU_NAME", "CPU_FEATURES", "ENABLE_AVX", "OPT", "BOUNDSCHECK", "DEBUGINFO")
)


def compiler() -> str:
    """What compiles here: numba, LLVM and Python, which all decide what machine code is like."""
    versions = [f"{name} {_version(name)}" for name in ("numba", "llvmlite")]
    return ", ".join([*versions, str(sysconfig.get_config_var("SOABI"))])


def processor() -> str:
    """The processor that kernels are compiled for here, with all its features."""
    model, features = _host()
    return f"{model} {sorted(features.items())} {[os.environ.get(wish) for wish in WISHES]}"


def name() -> str:
    """The folder of machine code for this Python and architecture; `baseline` says what it raises."""
    return hashlib.sha256(f"{digest(UDFS)}, {compiler()}, {baseline()}".encode()).hexdigest()[:16]


def baseline() -> str:
    """LLVM's name of what machine code is made for on this architecture.

    Raises:
        KeyError: there is none.
    """
    return BASELINES[platform.machine()][0]


@cache
def shipped() -> Path | None:
    """The folder with machine code that can run here, if the package has it, whole."""
    if any(os.environ.get(wish) for wish in WISHES) or not _has_baseline():
        return None
    folder = UDFS / FOLDER / name()
    return folder if is_whole(folder) else None


def is_whole(folder: Path) -> bool:
    """Whether each file of `CHECKSUMS` is there, as it was built."""
    try:
        lines = [line.split("  ", 1) for line in (folder / CHECKSUMS).read_text("ascii").splitlines()]
        return bool(lines) and all(
            hashlib.sha256((folder / path).read_bytes()).hexdigest() == checksum for checksum, path in lines
        )
    except (OSError, ValueError):
        return False


def _has_baseline() -> bool:
    _, needed = BASELINES.get(platform.machine(), (None, None))
    return needed is not None and all(_host()[1].get(feature) for feature in needed)


@cache
def _host() -> tuple[str, dict[str, bool]]:
    """This processor's name and features as LLVM says them."""
    try:
        from llvmlite import binding  # noqa: PLC0415  # without numba nothing is compiled

        return binding.get_host_cpu_name(), dict(binding.get_host_cpu_features())
    except (ImportError, OSError, RuntimeError):
        return "unknown", {}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
