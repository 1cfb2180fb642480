"""`kernel`: the decorator of the loops that numba compiles; without numba they run as plain Python."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np

from kafka_telemetry_lake.udfs.kernels import numba_cache

F = TypeVar("F", bound=Callable[..., object])

# Without numba's reference counts: counting each column at each point takes ten times as long as the work itself.
OPTIONS: dict[str, Any] = {"_nrt": False}

numba_cache.configure()

try:
    from numba import njit

    def kernel(function: F) -> F:
        """Compile a loop over NumPy arrays on its first call, cached on disk; the loop can't create arrays."""
        compiled: Any = njit(cache=True, nogil=True, **OPTIONS)(function)
        return cast(F, compiled)

except (ImportError, OSError, RuntimeError) as error:
    warnings.warn(f"numba can't be loaded ({error}): conversion is right but slow", RuntimeWarning, stacklevel=2)

    def kernel(function: F) -> F:
        """Leave the loop as plain Python: same results, some hundred times slower."""

        @wraps(function)
        def quiet(*arguments: object) -> object:
            with np.errstate(over="ignore"):  # integers wrap silently, as compiled ones do
                return function(*arguments)

        return cast(F, quiet)
