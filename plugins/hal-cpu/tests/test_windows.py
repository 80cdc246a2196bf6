"""Kernels compiled for Windows run here: on Windows the objects are ELF too, the calls are not.

Windows passes arguments in other registers, leaves room for them on the stack, and expects more
registers to be kept; a large frame begins with a call of __chkstk. Code in LLVM IR stands between
the two kinds of calls.
"""

import ctypes
import re
import shutil
import subprocess

import pytest
from unregistered import open_device

import hal_core as hal
from hal_core.compiler import CompilerPair
from hal_core.errors import CompilerUnavailable
from hal_core.hookspecs import hookimpl
from hal_cpu import CPUPlugin, driver, loader, processor
from hal_cpu.compiler import llvm_renderer
from hal_cpu.compilers.c import C_COMPILERS, ELF_ON_WINDOWS, CCompilerProgram
from hal_cpu.compilers.llvm import LLVMCompiler
from hal_cpu.loader import elf
from hal_cpu.threads.stacks import has_large_frame
from hal_testing.conformance import TestLanguage  # noqa: F401

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        processor.machine() != "x86-64", reason="hal-cpu runs on Windows on x86-64 alone"
    ),
]

# `run` calls a kernel as Windows does.
CALL = """
define void @run(ptr %kernel, ptr %args, ptr %launch, i64 %first, i64 %last) {
  call win64cc void %kernel(ptr %args, ptr %launch, i64 %first, i64 %last)
  ret void
}
"""
# A function of the C library, for callers that call as Windows does.
WRAPPER = """
declare {result} @{name}({types})
define win64cc {result} @wrapped({params}) {{
  {keep}call {result} @{name}({args})
  ret {value}
}}
"""
# It takes a size in rax and keeps all registers; pages of a stack on Linux need no touch.
CHKSTK = "define void @__chkstk() { ret void }"
SIGNATURES = {
    "memset": ("ptr", "ptr", "i32", "i64"), "memcpy": ("ptr", "ptr", "ptr", "i64"),
    "memmove": ("ptr", "ptr", "ptr", "i64"), "ldexp": ("double", "double", "i32"),
    "ldexpf": ("float", "float", "i32"),
}  # fmt: skip


def load_here(text, entry):
    source = hal.Source(entry, text, "", language="llvm", rendered=True)
    return loader.load(LLVMCompiler().compile(source), entry, entry)


def wrapper(name):
    """The IR of `wrapped`, for a function of the C library or libm."""
    if name in SIGNATURES:
        result, *types = SIGNATURES[name]
    else:
        result = "float" if name.endswith("f") and name != "erf" else "double"
        two = ("pow", "atan2", "fmod", "hypot", "fmin", "fmax", "copysign", "nextafter")
        types = [result] * (2 if name.removesuffix("f") in two or name in two else 1)
        types = [result] * 3 if name in ("fma", "fmaf") else types
    params = ", ".join(f"{kind} %a{number}" for number, kind in enumerate(types))
    return WRAPPER.format(
        name=name, result=result, types=", ".join(types), params=params, args=params,
        keep="%r = ", value=f"{result} %r",
    )  # fmt: skip


class WindowsCompiler(LLVMCompiler):
    system = "win32"

    def _triple(self, llvm):
        return "x86_64-pc-windows-msvc-elf"


class WindowsPlugin(CPUPlugin):
    @hookimpl
    def hal_make_compilers(self, device):
        return [CompilerPair("llvm", "llvm", llvm_renderer, WindowsCompiler)]


@pytest.fixture(scope="module")
def device(own_cache):
    """A CPU device whose kernels, and whose C library, are those of Windows."""
    find, made = driver.symbol_address, {}
    run = load_here(CALL, "run")

    def address(name):
        if find(name) is None and name != "__chkstk":
            return None
        if name not in made:
            text = CHKSTK if name == "__chkstk" else wrapper(name)
            made[name] = None  # its own call of the function is to find the real one
            made[name] = load_here(text, "__chkstk" if name == "__chkstk" else "wrapped")
        return made[name].entry if made[name] else find(name)

    def load(image, name, *entries):
        patch.setattr(driver, "symbol_address", address)
        try:
            code = engine_load(image, name, *entries)
        finally:
            patch.setattr(driver, "symbol_address", find)
        # A jump to `run` with the kernel's address as its first argument, the others moved up.
        text = (
            f"define void @entry(ptr %a, ptr %l, i64 %f, i64 %e) {{\n"
            f"call void inttoptr (i64 {run.entry} to ptr)(ptr inttoptr (i64 {code.entry} to ptr), "
            "ptr %a, ptr %l, i64 %f, i64 %e)\nret void }"
        )
        outer = load_here(text, "entry")
        return Kept(outer.entry, (outer, code, run))

    engine_load = loader.named("llvmlite")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loader, "named", lambda name: load)
        opened = open_device(WindowsPlugin(), HAL_CPU_LOADER="llvmlite")
        yield opened
        opened.close()


class Kept:
    """Code with all that it calls."""

    def __init__(self, entry, parts):
        self.entry, self.parts = entry, parts


def compiled(text):
    source = hal.Source("kernel", text, "", language="llvm", rendered=True)
    return WindowsCompiler().compile(source)


def test_arguments_come_in_the_registers_of_windows():
    text = """
    define void @kernel(ptr %args, ptr %launch, i64 %first, i64 %last) {
      store i64 %first, ptr %args
      store i64 %last, ptr %launch
      ret void
    }
    """
    image = compiled(text)
    obj = elf.read(image, "x86-64")
    (code,) = (bytes(one.data) for one in obj.sections if one.name == ".text")
    # mov [rcx], r8; mov [rdx], r9; ret. Source: Intel SDM, volume 2.
    assert code == bytes.fromhex("4c8901 4c890a c3")


def test_a_large_frame_calls_chkstk_and_is_seen_as_large():
    small, large = (
        compiled(
            f"declare void @use(ptr)\ndefine void @kernel() {{\n%x = alloca [{size} x i8]\n"
            "call void @use(ptr %x)\nret void }"
        )
        for size in (100, 100_000)
    )
    names = {symbol.name for symbol in elf.read(large, "x86-64").symbols}
    assert "__chkstk" in names and has_large_frame(large)
    assert "__chkstk" not in {symbol.name for symbol in elf.read(small, "x86-64").symbols}
    assert not has_large_frame(small)


def test_clang_makes_the_same_objects(tmp_path):
    clang = shutil.which("clang")
    if clang is None:
        pytest.skip("needs clang, which makes objects for Windows anywhere")
    (tmp_path / "k.c").write_text("void kernel(long long *a, int b) { *a = b; }")
    # -target: what clang is without options on Windows.
    command = [clang, "-target", "x86_64-pc-windows-msvc", *ELF_ON_WINDOWS, "-O2", "-c", "k.c"]
    subprocess.run(command, cwd=tmp_path, check=True)
    obj = elf.read((tmp_path / "k.o").read_bytes(), "x86-64")
    (code,) = (bytes(one.data) for one in obj.sections if one.name == ".text")
    assert code == bytes.fromhex("4863c2 488901 c3")  # movsxd rax, edx; mov [rcx], rax; ret


def test_gcc_is_not_there_on_windows(monkeypatch):
    monkeypatch.setattr(processor, "is_windows", lambda: True)
    row = C_COMPILERS["gcc"]._replace(command=lambda: ("gcc",))
    with pytest.raises(CompilerUnavailable, match="makes COFF objects"):
        CCompilerProgram(row)


def test_clang_on_windows_is_asked_for_elf(monkeypatch):
    if shutil.which("clang") is None:
        pytest.skip("needs clang")
    monkeypatch.setattr(processor, "is_windows", lambda: True)
    command = " ".join(CCompilerProgram(C_COMPILERS["clang"])._command)
    assert "x86_64-pc-windows-msvc-elf" in command and "-fPIC" not in command
    assert not re.search(r"-fno-semantic", command) and ctypes.sizeof(ctypes.c_void_p) == 8
