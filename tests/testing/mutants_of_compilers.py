"""Mutants whose compiler, compile cache or dtypes are wrong."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from mutants import around, mutant

from hal_core import compiler, config
from hal_core.compiler import cache, selection
from hal_core.dtypes import DType, bfloat16
from hal_core.errors import CompileError, CompilerUnavailable
from hal_core.program import Program
from hal_core.source import Source
from hal_kernel.errors import InvalidKernel
from hal_kernel.interpreter import operations
from hal_kernel.ir import writing
from hal_kernel.ir.listing import parse_listing
from hal_testing.fake.compiler import FakeCompiler

# -- the cache and its key


@mutant("C1 C2 C3", "compile", compiler, "digest")
def key_forgets_the_source(inner: Any, source: Source, identity: str, headers: str) -> str:
    interface = source.interface
    plain = Source("k", "", "", language="", rendered=True, block=interface.block)
    return str(inner(plain, identity, headers))


@mutant("C2", "compile", compiler, "digest")
def key_forgets_the_compiler(inner: Any, source: Source, identity: str, headers: str) -> str:
    return str(inner(source, "any", headers))


@mutant("C1", "compile")
def cache_is_never_hit() -> None:
    cache.load = lambda key: None


@mutant("C1", "compile")
def cache_cannot_be_switched_off() -> None:
    config.CCACHE.parse = lambda text: True


@mutant("C1", "compile")
def a_forbidden_miss_compiles() -> None:
    config.CACHE_ONLY.parse = lambda text: False


@mutant("C3", "compile")
def a_damaged_entry_is_believed() -> None:
    """Return a truncated binary where the cache has found that its entry is damaged."""

    @around(cache, "store")
    def store(inner: Any, key: str, image: bytes) -> None:
        inner(key, image)
        written[key] = image

    @around(cache, "load")
    def load(inner: Any, key: str) -> Any:
        before = written.get(key)
        found = inner(key)
        return before[:-3] if found is None and before is not None else found

    written: dict[str, bytes] = {}


# -- errors


@mutant("C5", "compile", FakeCompiler, "_compile")
def compiler_prints_its_errors(inner: Any, self: Any, source: Source) -> bytes:
    try:
        return inner(self, source)  # type: ignore[no-any-return]
    except CompileError as error:
        os.write(2, str(error).encode())
        raise


def _changes_errors(**facts: Any) -> None:
    @around(FakeCompiler, "_compile")
    def _compile(inner: Any, self: Any, source: Source) -> bytes:
        try:
            return inner(self, source)  # type: ignore[no-any-return]
        except CompileError as error:
            known: dict[str, Any] = {"log": error.log, "source": error.source, "line": error.line}
            known |= {"device": error.device} | facts
            raise CompileError(error.operation, error.problem, **known) from None


@mutant("C5", "compile")
def compile_errors_show_another_line() -> None:
    _changes_errors(line=1)


@mutant("C5", "compile", FakeCompiler, "_compile")
def compile_errors_escape_raw(inner: Any, self: Any, source: Source) -> bytes:
    try:
        parse_listing(source.text)
    except InvalidKernel as error:
        raise RuntimeError(str(error)) from None
    return inner(self, source)  # type: ignore[no-any-return]


@mutant("options", "compile", FakeCompiler, "_compile")
def options_mean_nothing(inner: Any, self: Any, source: Source) -> bytes:
    plain = Source(source.name, source.text, source.signature, language=source.language)
    return inner(self, plain)  # type: ignore[no-any-return]


# -- which compiler, and what it can


@mutant("C6 C7", "compile")
def a_forced_compiler_is_not_taken() -> None:
    selection.forced = lambda family, names: None


@mutant("V1 V2 V3", "view")
def compilers_are_not_installed() -> None:
    """Only a device that has no renderer at all may skip what it cannot compile."""

    def __init__(self: Any, device: Any) -> None:
        raise CompilerUnavailable("compile", "no compiler of this device takes it")

    FakeCompiler.__init__ = __init__  # type: ignore[method-assign]


@mutant("C8", "compile")
def disassembly_is_empty() -> None:
    FakeCompiler._disassemble = lambda self, image: ""  # type: ignore[method-assign]


@mutant("V3", "compile", Program, "_check_buffer")
def sources_take_any_offset(inner: Any, self: Any, param: Any, buffer: Any) -> None:
    binary = self.binary
    self.binary = binary._replace(interface=binary.interface._replace(rendered=True))
    try:
        inner(self, param, buffer)
    finally:
        self.binary = binary


@mutant("D1", "dtype")
def kernels_are_compiled_for_what_the_device_lacks() -> None:
    writing.check = lambda interface, info, needs: None
    compiler.check = lambda interface, info: None


@mutant("C9", "dtype", FakeCompiler, "_compile")
def a_dtype_is_claimed_and_not_compiled(inner: Any, self: Any, source: Source) -> bytes:
    if "uint16" in source.text:
        raise CompileError(f"compile {source.name}", "no uint16", log="none", source=source.text)
    return inner(self, source)  # type: ignore[no-any-return]


@mutant("D1", "dtype", operations, "cast")
def bfloat16_is_cut_and_not_rounded(inner: Any, value: Any, source: DType, target: DType) -> Any:
    if target is bfloat16:
        return (value.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    return inner(value, source, target)
