"""Mutants whose compiler, compile cache or dtypes are wrong."""

import os

import numpy as np
from mutants import around, mutant

from hal_core import compiler, config
from hal_core.compiler import cache, selection
from hal_core.dtypes import bfloat16
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
def key_forgets_the_source(inner, source, identity, headers):
    interface = source.interface
    plain = Source("k", "", "", language="", rendered=True, block=interface.block)
    return str(inner(plain, identity, headers))


@mutant("C2", "compile", compiler, "digest")
def key_forgets_the_compiler(inner, source, identity, headers):
    return str(inner(source, "any", headers))


@mutant("C1", "compile")
def cache_is_never_hit():
    cache.load = lambda key: None


@mutant("C1", "compile")
def cache_cannot_be_switched_off():
    config.CCACHE.parse = lambda text: True


@mutant("C1", "compile")
def a_forbidden_miss_compiles():
    config.CACHE_ONLY.parse = lambda text: False


@mutant("C3", "compile")
def a_damaged_entry_is_believed():
    """Return a truncated binary where the cache has found that its entry is damaged."""

    @around(cache, "store")
    def store(inner, key, image):
        inner(key, image)
        written[key] = image

    @around(cache, "load")
    def load(inner, key):
        before = written.get(key)
        found = inner(key)
        return before[:-3] if found is None and before is not None else found

    written = {}


# -- errors


@mutant("C5", "compile", FakeCompiler, "_compile")
def compiler_prints_its_errors(inner, self, source):
    try:
        return inner(self, source)  # type: ignore[no-any-return]
    except CompileError as error:
        os.write(2, str(error).encode())
        raise


def _changes_errors(**facts):
    @around(FakeCompiler, "_compile")
    def _compile(inner, self, source):
        try:
            return inner(self, source)  # type: ignore[no-any-return]
        except CompileError as error:
            known = {"log": error.log, "source": error.source, "line": error.line}
            known |= {"device": error.device} | facts
            raise CompileError(error.operation, error.problem, **known) from None


@mutant("C5", "compile")
def compile_errors_show_another_line():
    _changes_errors(line=1)


@mutant("C5", "compile", FakeCompiler, "_compile")
def compile_errors_escape_raw(inner, self, source):
    try:
        parse_listing(source.text)
    except InvalidKernel as error:
        raise RuntimeError(str(error)) from None
    return inner(self, source)  # type: ignore[no-any-return]


@mutant("options", "compile", FakeCompiler, "_compile")
def options_mean_nothing(inner, self, source):
    plain = Source(source.name, source.text, source.signature, language=source.language)
    return inner(self, plain)  # type: ignore[no-any-return]


# -- which compiler, and what it can


@mutant("C6 C7", "compile")
def a_forced_compiler_is_not_taken():
    selection.forced = lambda family, names: None


@mutant("V1 V2 V3", "view")
def compilers_are_not_installed():
    """Only a device that has no renderer at all may skip what it cannot compile."""

    def __init__(self, device):
        raise CompilerUnavailable("compile", "no compiler of this device takes it")

    FakeCompiler.__init__ = __init__  # type: ignore[method-assign]


@mutant("C8", "compile")
def disassembly_is_empty():
    FakeCompiler._disassemble = lambda self, image: ""  # type: ignore[method-assign]


@mutant("V3", "compile", Program, "_check_buffer")
def sources_take_any_offset(inner, self, param, buffer):
    binary = self.binary
    self.binary = binary._replace(interface=binary.interface._replace(rendered=True))
    try:
        inner(self, param, buffer)
    finally:
        self.binary = binary


@mutant("D1", "dtype")
def kernels_are_compiled_for_what_the_device_lacks():
    writing.check = lambda interface, info, needs: None
    compiler.check = lambda interface, info: None


@mutant("C9", "dtype", FakeCompiler, "_compile")
def a_dtype_is_claimed_and_not_compiled(inner, self, source):
    if "uint16" in source.text:
        raise CompileError(f"compile {source.name}", "no uint16", log="none", source=source.text)
    return inner(self, source)  # type: ignore[no-any-return]


@mutant("D1", "dtype", operations, "cast")
def bfloat16_is_cut_and_not_rounded(inner, value, source, target):
    if target is bfloat16:
        return (value.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    return inner(value, source, target)
