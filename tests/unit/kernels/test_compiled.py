"""What the decorators of compiled functions promise, whichever of them a function has."""

from __future__ import annotations

from collections.abc import Callable

import numba
import numpy as np
import pytest

from kafka_telemetry_lake.udfs.kernels import numba_cache
from kafka_telemetry_lake.udfs.kernels.arrays import Int64s
from kafka_telemetry_lake.udfs.kernels.compiled import inlined, kernel, linked, nested, part
from kafka_telemetry_lake.udfs.kernels.parts import CompiledPart


def _half(values: Int64s, place: int) -> int:
    half: int = values[place] // 2
    return half


of_part, of_linked = part(_half), linked(_half)


@linked
def _of_both(values: Int64s, place: int) -> int:
    return of_part(values, place) + of_linked(values, place)


@nested
def _within(values: Int64s, place: int) -> int:
    return _of_both(values, place) + 1


of_inlined = inlined(_within.py_func if isinstance(_within, CompiledPart) else _within)


@kernel
def _sum(values: Int64s) -> int:
    total = 0
    for place in range(len(values)):
        total += _within(values, place) - of_inlined(values, place) + _of_both(values, place)
    return total


def test_a_kernel_calls_parts_of_each_kind() -> None:
    with numba_cache.exclusive():
        assert _sum(np.array([2, 9, -6])) == 2 + 8 - 6


@pytest.mark.parametrize("function", [of_part, of_linked, _of_both, _within, of_inlined])
def test_python_calls_a_part_as_it_was_written(function: Callable[[Int64s, int], int]) -> None:
    """It has no wrapper for Python: a call of its machine code would end the process."""
    assert isinstance(function, CompiledPart)
    assert function(np.array([2, 9, -6]), 1) in (4, 8, 9)


@pytest.mark.parametrize(("decorator", "has_machine_code"), [(part, True), (linked, False), (nested, False)])
def test_what_is_only_linked_has_no_machine_code(
    decorator: Callable[[Callable[..., int]], CompiledPart], has_machine_code: bool
) -> None:
    dispatcher = decorator(_half).dispatcher
    dispatcher.compile((numba.int64[::1], numba.int64))
    [compiled] = dispatcher.overloads.values()
    engine = compiled.target_context.codegen()._engine
    assert engine.is_symbol_defined(compiled.fndesc.mangled_name) is has_machine_code
