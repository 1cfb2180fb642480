"""The decorators of the loops that numba compiles; without numba they run as plain Python.

`kernel` is for a function that Python calls. The others are for functions that only kernels call, by how they get into
a kernel's code: `part` optimised, `linked` as they are, `inlined` and `nested` the same at the place of the call.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np

from kafka_telemetry_lake.udfs.kernels import numba_cache

F = TypeVar("F", bound=Callable[..., object])

# Without numba's reference counts: counting each column at each point takes ten times as long as the work itself.
OPTIONS: dict[str, Any] = {"_nrt": False, "nogil": True, "no_cfunc_wrapper": True}

numba_cache.configure()

try:
    from numba import njit

    from kafka_telemetry_lake.udfs.kernels.parts import CompiledPart, Linked

    def kernel(function: F) -> F:
        """Compile a loop over NumPy arrays on its first call, cached on disk; the loop can't create arrays.

        Where the package brings its machine code, that is loaded instead.
        """
        compiled: Any = njit(cache=True, **OPTIONS)(function)
        numba_cache.attach(compiled)
        return cast(F, compiled)

    def part(function: F) -> F:
        """Compile a small function of a hot loop: it is optimised before it is linked into kernels."""
        return _called(function)

    def inlined(function: F) -> F:
        """`part` for a function with more arguments than a call passes cheaply."""
        return _called(function, forceinline=True)

    def linked(function: F) -> F:
        """Compile a function that is only optimised where it is linked: `part` in a third of the time."""
        return _called(function, pipeline_class=Linked)

    def nested(function: F) -> F:
        """`linked` for a function with more arguments than a call passes cheaply."""
        return _called(function, forceinline=True, pipeline_class=Linked)

    def _called(function: F, **options: Any) -> F:
        options |= {"no_cpython_wrapper": True, **OPTIONS}
        return cast(F, CompiledPart(njit(**options)(function)))

    COMPILES = True

except (ImportError, OSError, RuntimeError) as error:
    warnings.warn(f"numba can't be loaded ({error}): conversion is right but slow", RuntimeWarning, stacklevel=2)
    COMPILES = False

    def kernel(function: F) -> F:
        """Leave the loop as plain Python: same results, some hundred times slower."""

        @wraps(function)
        def quiet(*arguments: object) -> object:
            with np.errstate(over="ignore"):  # integers wrap silently, as compiled ones do
                return function(*arguments)

        return cast(F, quiet)

    part = inlined = linked = nested = kernel
