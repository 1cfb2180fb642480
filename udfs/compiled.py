"""`kernel`: the decorator of the loops that numba compiles; without numba they run as plain Python."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TypeVar

from udfs import numba_cache

F = TypeVar("F", bound=Callable[..., object])

numba_cache.configure()

try:
    from numba import njit

    COMPILED = True

    def kernel(function: F) -> F:
        """Compile a loop over NumPy arrays on its first call, cached on disk."""
        compiled: F = njit(cache=True, nogil=True)(function)
        return compiled

except (ImportError, OSError, RuntimeError) as error:
    COMPILED = False
    warnings.warn(f"numba can't be loaded ({error}): conversion runs right but slowly", RuntimeWarning, stacklevel=2)

    def kernel(function: F) -> F:
        """Leave the loop as plain Python: same results, some hundred times slower."""
        return function
