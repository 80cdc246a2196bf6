"""Objects as they are on macOS, made and run on this machine: LLVM's engine loads them anywhere.

Code for macOS calls functions as code for Linux does, on both processors. What is not tried here is
the system itself: its libraries, its pages, its threads.
"""

import ctypes
import random
import shutil
import struct
import subprocess

import pytest
from every_section import EVERYTHING
from unregistered import open_device

import hal_core as hal
from hal_core.compiler import CompilerPair
from hal_core.errors import CompileError
from hal_core.hookspecs import hookimpl
from hal_cpu import CPUPlugin, driver, loader, processor
from hal_cpu.compiler import llvm_renderer
from hal_cpu.compilers import seal
from hal_cpu.compilers.c import LARGE
from hal_cpu.compilers.llvm import LLVMCompiler
from hal_cpu.loader import engine, macho
from hal_testing.conformance import TestLanguage  # noqa: F401

pytestmark = [pytest.mark.arm, pytest.mark.full]

MACHINES = {"x86-64": "x86_64-apple-macosx11.0.0", "aarch64": "arm64-apple-macosx11.0.0"}


class AppleCompiler(LLVMCompiler):
    """LLVM as it compiles on a Mac with this machine's processor."""

    system, format = "darwin", "macho"
    _code_model = "large"

    def _triple(self, llvm):
        return MACHINES[processor.machine()]


class ApplePlugin(CPUPlugin):
    @hookimpl
    def hal_make_compilers(self, device):
        return [CompilerPair("llvm", "llvm", llvm_renderer, AppleCompiler)]


# A function that LLVM calls on macOS, whose C library alone has it.
SINE_AND_COSINE = """
declare double @sin(double)
declare double @cos(double)
define {double, double} @__sincos_stret(double %x) {
  %sine = call double @sin(double %x)
  %cosine = call double @cos(double %x)
  %first = insertvalue {double, double} poison, double %sine, 0
  %both = insertvalue {double, double} %first, double %cosine, 1
  ret {double, double} %both
}
"""


@pytest.fixture(scope="module")
def library(own_cache):
    """The C library of macOS, as far as it has more than ours."""
    source = hal.Source("both", SINE_AND_COSINE, "", language="llvm", rendered=True)
    image = LLVMCompiler().compile(source)
    code, find = loader.load(image, "both", "__sincos_stret"), driver.symbol_address
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            driver,
            "symbol_address",
            lambda name: code.entry if name == "__sincos_stret" else find(name),
        )
        yield


@pytest.fixture(scope="module")
def device(library):
    opened = open_device(ApplePlugin(), HAL_CPU_LOADER="llvmlite")
    yield opened
    opened.close()


def test_C2_no_system_takes_the_code_of_another_from_the_cache():
    assert AppleCompiler().identity != LLVMCompiler().identity


def compiled(text, entry="kernel"):
    source = hal.Source(entry, text, "", language="llvm", rendered=True)
    return AppleCompiler().compile(source)


CALLS = """
@table = internal constant [4 x double] [double 1.0, double 2.0, double 3.0, double 4.0]
@count = internal global double 0.0
declare double @exp(double)
define internal double @helper(double %x) noinline {
  %y = call double @exp(double %x)
  %place = getelementptr double, ptr @table, i64 2
  %more = load volatile double, ptr %place
  %sum = fadd double %y, %more
  ret double %sum
}
define void @kernel(ptr %out) {
  %before = load double, ptr @count
  %after = fadd double %before, 1.0
  store double %after, ptr @count
  %sum = call double @helper(double %after)
  store double %sum, ptr %out
  ret void
}
"""


def test_calls_constants_and_variables():
    code = engine.load(compiled(CALLS), "kernel", "absent", "kernel")
    out = ctypes.c_double()
    for times in (1, 2):
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(code.entry)(ctypes.byref(out))
        assert out.value == pytest.approx(2.718281828459045**times + 3)


def test_our_own_loader_refuses_it():
    with pytest.raises(CompileError, match="not an ELF object"):
        loader.load(compiled(CALLS), "kernel", "kernel")


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("define void @other() { ret void }", "has no entry 'kernel'; it defines other"),
        ("@kernel = global i32 5", "has no entry 'kernel'; it defines none"),
        ("declare void @nobody()\ndefine void @kernel() { call void @nobody() ret void }",
         "unresolved symbols: nobody"),
        ("@nor = external global i32\ndefine i32 @kernel() { %x = load i32, ptr @nor\nret i32 %x }",
         "unresolved symbols: nor"),
        ("@own = thread_local global i32 5\n"
         "define i32 @kernel() { %x = load i32, ptr @own\nret i32 %x }", "thread-local storage"),
        ("@x = global i32 5\n@llvm.global_ctors = appending global [1 x {i32, ptr, ptr}] "
         "[{i32, ptr, ptr} {i32 1, ptr @kernel, ptr null}]\n"
         "declare void @abort()\ndefine void @kernel() { call void @abort() ret void }",
         "initialisers"),
        ("@wide = global i32 5, align 65536\n"
         "define i32 @kernel() { %x = load i32, ptr @wide\nret i32 %x }", "aligned to 2**16"),
    ],
)  # fmt: skip
def test_P1_refused_with_the_cause(text, cause):
    with pytest.raises(CompileError) as caught:
        engine.load(compiled(text), "kernel", "kernel")
    assert cause in str(caught.value)


def test_P1_garbage():
    good = compiled(CALLS)
    for image, cause in (
        (good[:20], "truncated: the header"),
        (good[:4] + bytes(40), "another machine"),
        (good[:12] + struct.pack("<I", 2) + good[16:], "not a relocatable object"),
    ):
        with pytest.raises(CompileError, match=cause):
            engine.load(image, "kernel", "kernel")


def test_P1_damaged_objects_are_read_or_refused():
    """The reader raises nothing but its refusal; every truncation is one."""
    good, dice = compiled(CALLS).rpartition(seal.MARK)[0], random.Random(7)
    machine = processor.machine()
    last = max(place for place in range(len(good)) if good[place])
    for length in range(0, last, 3):
        with pytest.raises(macho.BadObject):
            macho.read(good[:length], machine)
    refused = 0
    for _ in range(2000):
        image = bytearray(good)
        for _ in range(dice.choice((1, 2, 8))):
            image[dice.randrange(len(image))] = dice.randrange(256)
        try:
            macho.read(bytes(image), machine)
        except macho.BadObject:
            refused += 1
    assert 100 < refused < 2000


@pytest.mark.parametrize("options", [(), ("-O0", "-g"), ("-Os", "-fcommon")], ids=str)
def test_objects_of_clang(tmp_path, options):
    clang = shutil.which("clang")
    if clang is None:
        pytest.skip("needs clang, which makes objects for macOS anywhere")
    (tmp_path / "kernel.c").write_text(EVERYTHING)
    target = f"--target={MACHINES[processor.machine()]}"
    command = [clang, target, "-c", "-O2", "-fno-stack-protector", *LARGE, *options, "kernel.c"]
    subprocess.run([*command, "-o", "kernel.o"], cwd=tmp_path, check=True)
    code = engine.load((tmp_path / "kernel.o").read_bytes(), "kernel", "kernel")
    out = (ctypes.c_double * 7)()
    for _ in range(2):
        ctypes.CFUNCTYPE(None)(code.entry)(out)
    assert list(out) == pytest.approx([2.718281828 + 2, 2, 6, ord("a"), 1, 4, 1])
