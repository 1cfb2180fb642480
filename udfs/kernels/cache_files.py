"""A kernel's cache: the machine code that the package brings, then numba's files in the user's cache directory.

numba's own stops a task if its files can't be written or read: on a full disk, or when the machine went down before
they were whole. Here they are only worth less: what can't be kept is compiled again, what can't be read is left out.
"""

from __future__ import annotations

import inspect
from contextlib import suppress
from pathlib import Path
from typing import Any

from kafka_telemetry_lake.udfs.kernels import machine_code

unsaved: list[OSError] = []  # why functions that this process has compiled aren't in the cache


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
