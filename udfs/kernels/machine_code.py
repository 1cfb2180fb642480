"""Machine code of the kernels that a wheel brings, so that a new node needs no compiler (`tools/machine_code.py`).

`FOLDER` has a folder for each architecture and Python that code was made for. Its name is a digest of all sources of
`udfs`, numba, LLVM, Python and the kind of processors, so code of anything else isn't looked at. In it are the files of
numba's cache, by package, with their checksums. If one of them isn't what was built, the whole folder is left out, and
the kernels are compiled as if there was none.

The code is read where it was installed, beside the modules that it was compiled from: who could change it there could
change those too. It is never written, so nothing can be half there. What it lacks is compiled for the processor at
hand, into the user's cache (`numba_cache`).
"""

from __future__ import annotations

import hashlib
import inspect
import os
import platform
import sysconfig
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from kafka_telemetry_lake.udfs.sources import digest

UDFS = Path(__file__).parents[1]
FOLDER = "machine_code"  # in `UDFS`
CHECKSUMS = "SHA256SUMS"
# What code is made for, by architecture: LLVM's name, and the features that a processor must have.
# x86-64-v3 is what processors have since 2013 (Intel's Haswell) and 2017 (AMD's Zen).
BASELINES = {
    "x86_64": (
        "x86-64-v3",
        "avx avx2 bmi bmi2 cx16 f16c fma lzcnt movbe popcnt sahf sse3 sse4.1 sse4.2 ssse3 xsave".split(),
    ),
    "aarch64": ("generic", []),
}
# Who sets one of these wants other code than a wheel brings.
WISHES = tuple(f"NUMBA_{name}" for name in ("CPU_NAME", "CPU_FEATURES", "ENABLE_AVX", "OPT", "BOUNDSCHECK", "DEBUGINFO"))


def compiler() -> str:
    """What compiles here: numba, LLVM and Python, which all decide what machine code is like."""
    versions = [f"{name} {_version(name)}" for name in ("numba", "llvmlite")]
    return ", ".join([*versions, str(sysconfig.get_config_var("SOABI"))])


def processor() -> str:
    """The processor that kernels are compiled for here, with all its features."""
    model, features = _host()
    return f"{model} {sorted(features.items())} {[os.environ.get(wish) for wish in WISHES]}"


def name() -> str:
    """The folder of machine code for this Python and architecture.

    Raises:
        KeyError: there is no baseline of this architecture.
    """
    baseline, _ = BASELINES[platform.machine()]
    return hashlib.sha256(f"{digest(UDFS)}, {compiler()}, {baseline}".encode()).hexdigest()[:16]


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
        lines = (folder / CHECKSUMS).read_text("ascii").splitlines()
        expected = dict(reversed(line.split("  ", 1)) for line in lines)
        return bool(expected) and all(
            hashlib.sha256((folder / path).read_bytes()).hexdigest() == checksum for path, checksum in expected.items()
        )
    except (OSError, ValueError):
        return False


def use(dispatcher: Any) -> None:
    """Let a compiled function of `udfs` (numba's dispatcher) look for its machine code in the package first."""
    folder, source = shipped(), Path(inspect.getfile(dispatcher.py_func))
    if folder is not None and source.is_relative_to(UDFS):
        own = dispatcher._cache
        own._cache_file = _ShippedFirst(own, folder / source.parent.relative_to(UDFS))


class _ShippedFirst:
    """In place of numba's `IndexDataCacheFile`: the package's files, then those of the user's cache."""

    def __init__(self, own: Any, folder: Path) -> None:
        self._own = own._cache_file
        self._shipped = type(self._own)(str(folder), own._impl.filename_base, own._impl.locator.get_source_stamp())
        self._processor = BASELINES[platform.machine()][0]

    def load(self, key: tuple[Any, Any, Any]) -> Any:
        """The machine code of a signature, or None. numba's key: signature, (platform, CPU, features), bytecode."""
        signature, (triple, _, _), bytecode = key
        code = self._shipped.load((signature, (triple, self._processor, ""), bytecode))
        return self._own.load(key) if code is None else code

    def save(self, key: tuple[Any, Any, Any], code: Any) -> None:
        self._own.save(key, code)

    def flush(self) -> None:
        self._own.flush()


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
