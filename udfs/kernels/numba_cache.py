"""Where numba keeps compiled kernels: a private directory, shared by the workers of one user.

Modules with kernels call `configure()` before their first ``@njit(cache=True)`` function.

numba unpickles the files of its cache, so a directory that others can write to would run their code: it must be
private. numba changes the cache's index without a lock, so two workers that compile at once can link a signature to
the other's machine code: they take `exclusive()` around the first call of a kernel.

A process that compiles keeps 300 MB of the compiler; one that loads what another compiled doesn't have them (`fill`).

A kernel's cache (`attach`) is the machine code that the package brings, then numba's files in this directory. numba's
own stops a task if its files can't be written or read: on a full disk, or when the machine went down before they were
whole. Here they are only worth less: what can't be kept is compiled again, what can't be read is left out.
"""

from __future__ import annotations

import hashlib
import inspect
import multiprocessing
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from multiprocessing import connection
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from filelock import FileLock
from platformdirs import user_cache_path

from kafka_telemetry_lake.udfs.kernels import machine_code
from kafka_telemetry_lake.udfs.sources import digest

NAME = "kafka-telemetry-lake"
FILLED = ".filled"  # how the name of a file in the cache directory begins
VARIABLE = "NUMBA_CACHE_DIR"
unsaved: list[OSError] = []  # why functions that this process has compiled aren't in the cache


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
def exclusive(work: str = "all") -> Iterator[None]:
    """Hold the lock of some work, such as to compile some kernels: others wait, and load what this process compiled.

    A thread may take it again while it holds it. A process that dies loses it, once the children that it has forked
    meanwhile have ended too.
    """
    with FileLock(configure() / f".{work}.lock", is_singleton=True):
        yield


def is_filled() -> bool:
    """Whether all kernels of these sources are compiled: the package brings them, or `fill` has made them."""
    return machine_code.shipped() is not None or _mark().exists()


def fill(*compilers: Callable[[], None], progress: Callable[[int], None] | None = None) -> None:
    """Run each of them in a forked child, all at once, unless the cache directory has been filled already.

    A process that comes while another one fills it waits. A child that fails, or can't write its files, leaves this
    process to compile by itself.

    Args:
        compilers: each compiles some of the kernels.
        progress: called now and then with the number of functions that have been compiled.
    """
    if is_filled():
        return
    with exclusive("filling"):
        if not is_filled():
            _fill(compilers, progress)


def _fill(compilers: Iterable[Callable[[], None]], progress: Callable[[int], None] | None) -> None:
    forks, done = multiprocessing.get_context("fork"), 0
    reader, writer = forks.Pipe(duplex=False)  # of all children: what they send is short enough to stay whole
    children = [
        forks.Process(target=partial(_compile, compiler, None if progress is None else writer))
        for compiler in compilers
    ]
    for child in children:
        child.start()
    running = {child.sentinel for child in children}
    while running:
        ended = connection.wait([*running, reader])
        while reader.poll():
            done += len(reader.recv_bytes())
        if progress is not None:
            progress(done)
        running.difference_update(each for each in ended if isinstance(each, int))
    for child in children:
        child.join()
    if all(child.exitcode == 0 for child in children):
        with suppress(OSError):  # of a full disk
            _mark().touch()


def _mark() -> Path:
    """Exists once the cache has all kernels: of this numba and this processor, which numba's own index tells apart."""
    made_for = f"{machine_code.compiler()}, {machine_code.processor()}"
    return configure() / f"{FILLED}-{hashlib.sha256(made_for.encode()).hexdigest()[:16]}"


def _compile(compiler: Callable[[], None], writer: Connection | None) -> None:
    """Run a compiler in a child; exits with one line if it fails."""
    try:
        if writer is None:
            compiler()
        else:
            _report(compiler, writer)
    except Exception as error:
        sys.exit(f"compiling kernels: {type(error).__name__}: {str(error).partition(chr(10))[0]}")
    if unsaved:
        sys.exit(f"compiling kernels: not kept: {unsaved[0]}")


def _report(compiler: Callable[[], None], writer: Connection) -> None:
    """Run a compiler, and write a byte for each function that it has compiled."""
    from numba.core.event import Event, Listener, install_listener  # noqa: PLC0415  # only this child needs it

    class Compiled(Listener):
        def on_start(self, event: Event) -> None:
            pass

        def on_end(self, event: Event) -> None:  # noqa: ARG002  # numba's name
            writer.send_bytes(b".")

    with install_listener("numba:compile", Compiled()):
        compiler()


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


def attach(dispatcher: Any) -> None:
    """Give a compiled function (numba's dispatcher, with a cache) this module's cache."""
    cache, folder = dispatcher._cache, machine_code.shipped()
    source = Path(inspect.getfile(dispatcher.py_func))
    shipped = None
    if folder is not None and source.is_relative_to(machine_code.UDFS):
        stamp = cache._impl.locator.get_source_stamp()
        package = folder / source.parent.relative_to(machine_code.UDFS)
        shipped = type(cache._cache_file)(str(package), cache._impl.filename_base, stamp)
    cache._cache_file = _Files(cache._cache_file, shipped)
    save = cache.save_overload

    def save_if_possible(signature: Any, code: Any) -> None:
        try:
            save(signature, code)
        except OSError as error:
            unsaved.append(error)

    cache.save_overload = save_if_possible


class _Files:
    """In place of numba's `IndexDataCacheFile`: two of them, the user's `own`, and the package's or None.

    Keys are numba's: signature, (platform, processor, its features), digests of the function's bytecode.
    """

    def __init__(self, own: Any, shipped: Any) -> None:
        self._own, self._shipped = own, shipped

    def load(self, key: tuple[Any, Any, Any]) -> Any:
        """The machine code of a signature, or None."""
        if self._shipped is not None:
            signature, (platform, *_), bytecode = key
            code = self._shipped.load((signature, (platform, machine_code.baseline(), ""), bytecode))
            if code is not None:
                return code
        try:
            return self._own.load(key)
        except Exception:  # whatever unpickling half a file raises
            with suppress(OSError):
                self.flush()
            return None

    def save(self, key: tuple[Any, Any, Any], code: Any) -> None:
        self._own.save(key, code)

    def flush(self) -> None:
        self._own.flush()
