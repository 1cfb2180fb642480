"""How numba compiles a function that only compiled code calls.

A kernel's machine code contains that of all functions that it calls, optimised once more where it is linked. So they
need no wrapper for Python, and those of `Linked` no code of their own: that halves the time of compiling.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from numba.core import codegen, compiler, typed_passes
from numba.core.compiler_machinery import PassManager, register_pass


class _Library(codegen.JITCodeLibrary):
    """LLVM's code of a function as it is linked into others: not optimised, no machine code."""

    @property
    def codegen(self) -> Any:
        return SimpleNamespace(set_env=lambda *_: None)  # only machine code has an environment

    def get_pointer_to_function(self: Any, _name: str) -> int:
        self._ensure_finalized()
        return 0

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self: Any) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True


@register_pass(mutates_CFG=True, analysis_only=False)
class _Lowering(typed_passes.NativeLowering):
    _name = "linked_lowering"

    def run_pass(self, state: Any) -> bool:
        library: Any = _Library
        state.library = library(state.targetctx.codegen(), state.func_id.func_qualname)
        return bool(typed_passes.NativeLowering.run_pass(self, state))


class Linked(compiler.CompilerBase):
    """numba's compiler, but for `_Library`."""

    def define_pipelines(self) -> list[PassManager]:
        passes = PassManager("linked")
        for each, text in compiler.DefaultPassBuilder.define_nopython_pipeline(self.state).passes:
            passes.add_pass(_Lowering if each is typed_passes.NativeLowering else each, text)
        passes.finalize()
        return [passes]


class CompiledPart:
    """A compiled function without a wrapper for Python: Python code calls the uncompiled one."""

    def __init__(self, dispatcher: Any) -> None:
        self.dispatcher = dispatcher
        self.py_func = dispatcher.py_func
        self._numba_type_ = dispatcher._numba_type_

    def __call__(self, *arguments: Any) -> Any:
        return self.py_func(*arguments)
