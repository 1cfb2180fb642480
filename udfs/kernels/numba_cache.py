"""Where numba keeps compiled kernels: a private directory, shared by the workers of one user.

Modules with kernels call `configure()` before their first ``@njit(cache=True)`` function.

numba unpickles the files of its cache, so a directory that others can write to would run their code: it must be
private. numba changes the cache's index without a lock, so two workers that compile at once can link a signature to
the other's machine code: they take `exclusive()` around the first call of a kernel.

A process that compiles keeps 300 MB of the compiler; one that loads what another compiled doesn't have them (`fill`).
"""

from __future__ import annotations

import multiprocessing
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from filelock import FileLock
from platformdirs import user_cache_path

from kafka_telemetry_lake.udfs.sources import digest

NAME = "kafka-telemetry-lake"
FILLED = ".filled"  # a file in the cache directory
VARIABLE = "NUMBA_CACHE_DIR"


@cache
def configure() -> Path:
    """Point numba, here and in child processes, to the first usable directory, and return it.

    In order: within ``NUMBA_CACHE_DIR``, within the user's cache directory, one in the temp directory named
    after the user, a new temp directory. Usable is a writable directory of mode 0700 that this user owns; a
    missing one is made.
    """
    directory = next((path for path in _candidates() if _is_private(path)), None)
    if directory is None:
        directory = Path(tempfile.mkdtemp(prefix=f"{NAME}-"))
    os.environ[VARIABLE] = str(directory)
    if "numba" in sys.modules:  # it read the variable when it was imported
        sys.modules["numba"].config.CACHE_DIR = str(directory)
    return directory


@contextmanager
def exclusive() -> Iterator[None]:
    """Hold the cache directory's lock: the first worker compiles, the others wait and load what it compiled.

    A thread may take it again while it holds it. A worker that dies loses it.
    """
    with FileLock(configure() / ".lock", is_singleton=True):
        yield


def fill(compile_all: Callable[[], None]) -> None:
    """Run `compile_all` in a forked child, unless one has already filled the cache directory.

    A child that fails leaves this process to compile by itself.
    """
    filled = configure() / FILLED
    if not filled.exists():
        child = multiprocessing.get_context("fork").Process(target=compile_all)
        child.start()
        child.join()
        if child.exitcode == 0:
            filled.touch()


def _candidates() -> Iterator[Path]:
    # numba looks only at the file of the function it compiles; after a change of an inlined callee in another file it
    # would run stale machine code. Hence a directory for each state of all sources of `udfs`.
    subdirectory = f"numba-{digest(Path(__file__).parents[1])[:16]}"
    given = os.environ.get(VARIABLE)
    if given:  # a parent process that configured itself hands on the subdirectory
        yield Path(given) if Path(given).name == subdirectory else Path(given) / subdirectory
    yield user_cache_path(NAME) / subdirectory
    # Right below the sticky temp directory: within somebody else's directory it could be exchanged under us.
    yield Path(tempfile.gettempdir()) / f"{NAME}-{os.getuid()}-{subdirectory}"


def _is_private(path: Path) -> bool:
    """Whether `path` is, or could be made, a writable directory that only this user can enter."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
        status = path.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
            return False
        tempfile.TemporaryFile(dir=path).close()
    except OSError:
        return False
    return True
