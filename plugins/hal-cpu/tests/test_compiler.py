"""LLVM and each C compiler: objects, errors with their lines, cache keys, what is missing."""

import re
import shutil
import struct
import subprocess
import sys
import tempfile

import numpy as np
import pytest
from mapped import resident
from run_python import printed
from slices import usual

import hal_core as hal
from hal_cpu import processor
from hal_cpu.compilers import c as c_module
from hal_cpu.compilers import llvm as module
from hal_cpu.compilers import seal
from hal_cpu.compilers.c import C_COMPILERS, CCompilerProgram
from hal_cpu.compilers.llvm import LLVMCompiler
from hal_kernel.ir.reserved import C_KEYWORDS, is_taken
from hal_kernel.render.names import Names

pytestmark = pytest.mark.lowest

NOTHING_LLVM = "define void @nothing(ptr %a, ptr %b, i64 %c, i64 %d) {\n  ret void\n}\n"
SCALE = """\
void scale(const hal_thread *t, float *y, const float *x, float a, int32_t n) {
    int64_t i = hal_global_idx(t, 0);
    if (i < n) y[i] = a * x[i];
}
"""
SCALE_SIGNATURE = "y: float32*, x: const float32*, a: float32, n: int32"


def rendered(text=NOTHING_LLVM, name="nothing", **fields):
    return hal.Source(name, text, "", language="llvm", rendered=True, **fields)


def scale(text=SCALE, signature=SCALE_SIGNATURE, **fields):
    return hal.Source("scale", text, signature, language="c", **fields)


def present(name):
    try:
        return CCompilerProgram(C_COMPILERS[name])
    except hal.CompilerUnavailable as error:
        pytest.skip(str(error))


@hal.kernel(block=(1, 2, 2), contract=False)
def of_negative(y: hal.Ptr[hal.float32], x: hal.ConstPtr[hal.int16]) -> None:
    lane = hal.thread_idx(2) * 2 + hal.thread_idx(1)
    shared = hal.shared(hal.float32, 4)
    value = hal.float32(hal.uint64(x[4 * lane]))
    shared[lane] = value
    hal.barrier()
    y[lane] = value + shared[lane]


@pytest.mark.parametrize("name", usual(C_COMPILERS, "clang"))
@pytest.mark.parametrize("line", ["barrier(1);", "__syncthreads();", "__local float tile[16];"])
def test_a_text_with_blocks_is_told_the_device_that_takes_it(name, line):
    text = SCALE.replace("if (i < n)", f"{line}\n    if (i < n)")
    with pytest.raises(hal.CompileError, match=r"in OpenCL C to the device OPENCL"):
        present(name).compile(scale(text))


@pytest.mark.skipif(sys.platform != "linux", reason="the name is that of Linux")
@pytest.mark.parametrize("name", C_COMPILERS)
def test_an_assert_of_a_text_is_kept(name):
    """Zig defines NDEBUG where it optimises."""
    asserting = f"#include <assert.h>\n{SCALE.replace('if (i < n)', 'assert(i < n);')}"
    assert b"__assert_fail" in present(name).compile(scale(asserting))


@pytest.mark.parametrize("name", usual(["llvm", *C_COMPILERS], "llvm", "clang"))
def test_floats_of_numbers_of_64_bits_that_were_negative(name, monkeypatch):
    """LLVM 22 made 32 bits of them, which it took for unsigned, where it joined four threads."""
    if name != "llvm":
        present(name)
    monkeypatch.setenv("CPU_CC", name)
    monkeypatch.setenv("HAL_CCACHE", "0")
    cpu, x = hal.Device["CPU"], np.arange(-1, -17, -1, dtype="i2")
    y = hal.zeros(4, hal.float32, cpu)
    cpu.compile(of_negative.lower())(y, hal.Buffer.from_numpy(x, cpu), grid=1, wait=True)
    assert y.numpy().tolist() == [2.0**65] * 4


@pytest.fixture(params=usual(C_COMPILERS, "clang"))
def cc(request, monkeypatch):
    present(request.param)
    monkeypatch.setenv("CPU_CC", request.param)
    return request.param


# -- LLVM


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [(NOTHING_LLVM.replace("ret void", "return void"), 2, "expected instruction opcode"),
     (NOTHING_LLVM.replace("ret void", "%x = add i32 1, 2.0\n  ret void"), 2, "2.0"),
     ("define void @f() {\n  ret i32 1\n}\n", 2, "value doesn't match function result type")],
)  # fmt: skip
def test_C5_llvm_errors(text, line, said):
    with pytest.raises(hal.CompileError) as caught:
        LLVMCompiler().compile(rendered(text))
    assert (caught.value.line, caught.value.source) == (line, text)
    assert said in caught.value.log
    assert f">    {line} | " in str(caught.value)


def test_C5_llvm_of_another_convention(device):
    """The function would run with the launch's own tables in the place of `y` and `n`."""
    good = NOTHING_LLVM.replace(
        "ret void", "%y = load ptr, ptr %a\n  store i32 7, ptr %y\n  ret void"
    )
    of_an_arm = ') "target-cpu"="apple-m1" "target-features"="+neon,+aes" {'  # ended the process
    shown = good.replace("void", "weak hidden void", 1), "y: int32*, n: int32"
    shown = shown[0].replace(") {", of_an_arm), shown[1]
    source = hal.Source("nothing", *shown, language="llvm")
    y = hal.zeros(4, hal.int32, device)
    device.compile(source)(y, vals=(1,), grid=1, block=1)
    assert y.numpy().tolist() == [7, 0, 0, 0]
    for wrong in (
        "define void @nothing(ptr %y, i32 %n) {\n  ret void\n}\n",
        "define i32 @nothing() {\n  ret i32 0\n}\n",
        *(good.replace("void", f"{convention} void", 1)  # three of these ended the process
          for convention in ("win64cc", "weak x86_regcallcc", "cc 10", "fastcc", "internal",
                             "linkonce")),
        "declare void @nothing(ptr, ptr, i64, i64)",
        good.replace("ptr", "ptr byval(i64)", 1), good.replace("@nothing", "@other"),
    ):  # fmt: skip
        with pytest.raises(hal.CompileError, match=r"a kernel is void .ptr, ptr, i64, i64."):
            device.compile(hal.Source("nothing", wrong, shown[1], language="llvm"))


@pytest.mark.parametrize(
    ("head", "body", "said"),
    [("", 'call void asm sideeffect "nonsense", ""()', "'asm' is not supported"),
     ('module asm "nonsense"', "", "'asm' is not supported"),
     ('define void @f() gc "nonsense" { ret void }', "", "'gc' is not supported"),
     ("", "store <vscale x 4 x i32> zeroinitializer, ptr %a", "'vscale' is not supported"),
     ("declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()",
      "%x = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()\n  store i32 %x, ptr %a",
      "@llvm.nvvm.read.ptx.sreg.tid.x is of another processor")],
)  # fmt: skip
def test_C5_llvm_text_whose_code_llvm_cannot_write(device, head, body, said):
    """LLVM ended the process."""
    text = head + "\n" + NOTHING_LLVM.replace("ret void", body + "\n  ret void")
    with pytest.raises(hal.CompileError, match=said):
        device.compile(hal.Source("nothing", text, "y: int32*", language="llvm"))
    beside = '; asm\n@asm = constant [4 x i8] c"asm "\n' + NOTHING_LLVM.replace("{", "{\ngc:", 1)
    device.compile(hal.Source("nothing", beside, "y: int32*", language="llvm"))


def test_llvm_refuses_what_it_cannot_honour():
    for fields in ({"options": ("-O1",)}, {"defines": {"N": "1"}}, {"includes": ("/usr",)}):
        with pytest.raises(hal.Unsupported, match=r"mean nothing to LLVM IR|include no files"):
            LLVMCompiler().compile(rendered(**fields))


def test_compilations_leave_no_memory_behind():
    """Each one left 80 KiB."""
    compiler = LLVMCompiler()

    def compile_many(count):
        for _ in range(count):
            compiler.compile(rendered())
        return resident()

    before = compile_many(50)
    assert compile_many(150) - before < 4 << 20


def test_C6_llvmlite_is_missing(monkeypatch):
    monkeypatch.setattr(module, "distribution_version", lambda name: None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(hal.CompilerUnavailable, match="pip install llvmlite"):
        LLVMCompiler()


def test_C6_llvmlite_is_broken(monkeypatch):
    made = LLVMCompiler()
    monkeypatch.setitem(sys.modules, "llvmlite.binding", None)
    with pytest.raises(hal.CompilerUnavailable, match=r"cannot be imported.*reinstall llvmlite"):
        made.compile(rendered())


# -- C


def test_A10_without_a_folder_for_temporary_files_it_says_what_to_set(
    device, cc, tmp_path, monkeypatch
):
    compiler = present(cc)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    new = scale(f"{SCALE}// {tmp_path}\n")  # compiled by no other test
    with pytest.raises(hal.CompileError, match=r"compile scale: no folder .*Set TMPDIR to"):
        device.compile(new)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    with pytest.raises(hal.CompileError, match=r"disassemble: no folder .*Set TMPDIR to"):
        compiler.disassemble(b"")


def test_defines_includes_and_options(device, cc, tmp_path):
    (tmp_path / "factor.h").write_text("#define FACTOR (BASE + 1)\n")
    text = '#include <math.h>\n#include "factor.h"\n' + SCALE.replace(
        "a * x[i]", "FACTOR * fabsf(x[i]) + EXTRA"
    )
    kernel = scale(text, defines={"BASE": 4}, includes=[str(tmp_path)], options=["-DEXTRA=0.5f"])
    x, y = (hal.Buffer(device, 8, hal.float32).fill(value) for value in (-2, 0))
    program = device.compile(kernel)
    program(y, x, vals=(0.0, 8), threads=8)
    assert program.pair == cc and y.numpy().tolist() == [10.5] * 8


@pytest.mark.parametrize("variable", ["CPATH", "C_INCLUDE_PATH"])
def test_C2_headers_come_from_includes_alone(device, cc, tmp_path, monkeypatch, variable):
    """The cache key knows those files; what the environment names could change unseen."""
    (tmp_path / "unseen.h").write_text("")
    monkeypatch.setenv(variable, str(tmp_path))
    kernel = scale('#include "unseen.h"\n' + SCALE, defines={"V": variable})
    with pytest.raises(hal.CompileError, match=r"unseen\.h"):
        device.compile(kernel)


@pytest.mark.parametrize(
    "option",
    ["-I{0}", "-I", "-isystem", "-iquote{0}", "-idirafter", "-include", "-imacros", "@{0}/options",
     "--include-directory={0}", "--include={0}/a.h", "-isysroot", "--sysroot={0}", "-Wp,-I{0}",
     "-Wa,-I{0}", "-fprofile-use=a.profdata", "-fprofile-use", "-fprofile-instr-use={0}/a.profdata",
     "-fauto-profile=a", "-fpass-plugin=a.so", "-fplugin=a.so", "-fsanitize-ignorelist=a",
     "-load", "-mllvm=-load={0}/a.so", "{0}/other.c"],
)  # fmt: skip
def test_C2_options_that_name_files_are_refused(device, cc, tmp_path, option):
    given = option.format(tmp_path)
    with pytest.raises(hal.InvalidArgument, match="includes=") as caught:
        device.compile(scale(options=["-O1", given, str(tmp_path)]))
    assert given in str(caught.value)


def value_of(device, source):
    y = hal.zeros(1, hal.float32, device)
    device.compile(source)(y, threads=1)
    return float(y.numpy()[0])


def constant(text, value="VALUE", **fields):
    text += f"\nvoid constant(const hal_thread *t, float *y) {{ y[0] = {value}; }}\n"
    return hal.Source("constant", text, "y: float32*", language="c", **fields)


INCLUSIONS = {
    "a folder's": '#include "value.h"',
    "an absolute path": '#include "{0}/value.h"',
    "a macro's": "#include NAME",
    "through another": '#include "{0}/other.h"',
}


@pytest.mark.parametrize("line", INCLUSIONS.values(), ids=INCLUSIONS.keys())
def test_C2_a_changed_header_is_compiled_again(device, cc, tmp_path, line):
    """Headers that the include folders have and others; the old machine code was run."""
    headers = tmp_path / "with a blank, a # and a $"
    headers.mkdir()
    (headers / "other.h").write_text('#include "value.h"\n')
    folders = [str(headers)] if line == INCLUSIONS["a folder's"] else []
    name = f'"{headers}/value.h"'
    for value in (1.0, 2.0):
        (headers / "value.h").write_text(f"#define VALUE {value}\n")
        source = constant(line.format(headers), includes=folders, defines={"NAME": name})
        assert value_of(device, source) == value
    again = constant(line.format(headers), includes=folders, defines={"NAME": name})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CCompilerProgram, "_compile", None)
        assert value_of(device, again) == 2.0, "unchanged, it comes from the cache"


INCBIN = """\
extern const float number[] __attribute__((visibility("hidden")));
__asm__(".section .rodata\\n.balign 4\\n.globl number\\n.hidden number\\n"
        "number: .incbin \\"FILE\\"\\n.text");
"""


def test_C2_a_file_that_the_assembler_reads_is_read_again(device, cc, tmp_path):
    data = tmp_path / "number"
    for value in (1.0, 2.0):
        data.write_bytes(struct.pack("f", value))
        text = INCBIN.replace("FILE", str(data))
        assert value_of(device, constant(text, "number[0]")) == value


def test_C2_the_text_around_a_kernel_and_the_version_of_hal_cpu_are_in_the_key(cc, monkeypatch):
    row = C_COMPILERS[cc]
    seen = {CCompilerProgram(row).identity}
    monkeypatch.setattr(c_module, "WRAPPER", c_module.WRAPPER + " ")
    seen.add(CCompilerProgram(row).identity)
    for changed in (c_module, module):
        monkeypatch.setattr(changed, "__version__", "0.0.0")
    seen.add(CCompilerProgram(row).identity)
    assert len(seen) == 3
    assert "hal-cpu 0.0.0" in LLVMCompiler().identity


@pytest.mark.parametrize("signature", ["", "y: float32*", "y: float32*, n: int64", "n: int32"])
def test_P1_a_binary_of_a_text_is_loaded_with_its_signature_alone(device, signature):
    text = "void grow(const hal_thread *t, float *y, int32_t n) { y[0] += n; }"
    binary = device.compile(hal.Source("grow", text, "y: float32*, n: int32", language="c")).binary
    renamed = hal.Signature.parse("grow", "out: float32*, count: int32")
    device.load(binary._replace(interface=binary.interface._replace(signature=renamed)))
    other = binary.interface._replace(signature=hal.Signature.parse("grow", signature))
    with pytest.raises(hal.CompileError, match=r"no entry.*defines.*hal_run_pi4_grow"):
        device.load(binary._replace(interface=other))


def test_a_long_name_compiles(device, cc):
    name = "k" * 128
    text = f"void {name}(const hal_thread *t, float *y) {{ nobody; }}"
    with pytest.raises(hal.CompileError) as caught:
        device.compile(hal.Source(name, text, "y: float32*", language="c"))
    assert caught.value.line == 1
    image = present(cc).compile(rendered(f"void {name}(void) {{}}", name))
    assert image[:4] == b"\x7fELF"


# The text, the line of the error, what it says, and whether it shows how to write the function.
C_ERRORS = [
    (SCALE.replace("a * x[i];", "a * nobody[i];"), 3, "nobody", False),
    (SCALE.replace("a * x[i]", "undeclared(x[i])"), 3, "undeclared", False),
    ("#error stop here\n" + SCALE, 1, "stop here", False),
    (SCALE.replace("void scale", "void scall"), None, "scale", True),
    (SCALE.replace("const float *x", "const double *x"), None, "argument 1 of the kernel is", None),
    (SCALE.replace(", int32_t n", ", int64_t n"), None, "argument 3 of the kernel is", None),
    (SCALE.replace("void scale", "int scale"), None, "incompatible", True),
    ("int scale = 3;", None, "", True),
    (SCALE.replace("const hal_thread *t, ", "").replace("hal_global_idx(t, 0)", "0"), None, "",
     True),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "said", "shown"), C_ERRORS)
def test_C5_c_errors(device, cc, capfd, text, line, said, shown):
    """A function that the signature does not describe shows how to write it."""
    with pytest.raises(hal.CompileError) as caught:
        device.compile(scale(text))
    assert said in f"{caught.value} {caught.value.log}"
    assert caught.value.line == line
    assert caught.value.source == text
    assert capfd.readouterr() == ("", "")
    first = str(caught.value).splitlines()[0]
    written = "void scale(const hal_thread *t, float *y, const float *x, float a, int32_t n)"
    assert shown is None or (f"Write: {written}" in first) == shown
    assert shown is None or ("hal_global_idx(t, 0)" in first) == shown


def test_every_dtype_and_parameter_names_of_any_kind(device, cc):
    kinds = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
    names = ["a0", "t", "b", "gx", "hal_args", "x", "args", "first", "launch"]
    params = ", ".join(f"{n}: {k}" for n, k in zip(names, kinds, strict=True))
    c_types = [f"{k}_t" if k != "bool" else k for k in kinds]
    takes = ", ".join(f"{t} v{i}" for i, t in enumerate(c_types))
    sets = " ".join(f"out[{i}] = v{i};" for i in range(9))
    text = (
        f"void every(const hal_thread *t, double *out, {takes}, float f, double d)"
        f" {{ {sets} out[9] = f; out[10] = d; }}"
    )
    kernel = hal.Source(
        "every", text, f"out: float64*, {params}, f: float32, d: float64", language="c"
    )
    values = [True, -128, 255, -(2**15), 2**16 - 1, -(2**31), 2**32 - 1, -(2**53), 2**53, 0.5, 0.1]
    out = hal.Buffer(device, 11, hal.float64)
    device.compile(kernel)(out, vals=values, grid=1, block=1)
    assert out.numpy().tolist() == [float(value) for value in values]


HEADERS = "#include <stdbool.h>\n#include <stdint.h>\n#include <math.h>\n"  # of rendered texts


def test_no_kernel_has_a_name_of_the_headers(device, cc):
    """A kernel named gamma compiled with LLVM and not in C."""
    command = present(cc)._command

    def preprocess(*options):
        options = ("-E", *options, "-")
        return subprocess.run(
            [*command, *options], input=HEADERS, capture_output=True, text=True, check=True
        ).stdout

    macros = set(re.findall(r"#define (\w+)(?: |$)", preprocess("-dM"), re.MULTILINE))
    functions = set(re.findall(r"#define (\w+)\(", preprocess("-dM")))
    declared = set(re.findall(r"(\w+) *[(;]", preprocess("-P")))
    names = {name for name in macros | functions | declared if not name.startswith("_")}
    assert {"SIZE_MAX", "gamma", "isgreater", "int_fast8_t", "signgam"} <= names
    assert [name for name in sorted(names) if not is_taken(name)] == []
    # A parameter has another name in the text.
    values = sorted(macros - functions - C_KEYWORDS)
    assert [name for name in values if Names(set()).take(name) == name] == []


def test_zero_minus_zero_has_no_sign(device, cc):
    """gcc 12 takes 0 - x for -x where it knows that x is no negative zero."""

    @hal.kernel
    def fall(y: hal.Ptr[hal.float32], n: hal.int32) -> None:
        y[hal.global_idx(0)] = hal.float32(0) - hal.float32(n)

    y = hal.zeros(1, hal.float32, device)
    device.compile(fall)(y, vals=(0,), threads=1)
    assert bytes(y.numpy()) == bytes(4)


def test_the_largest_numbers_of_two_dtypes_are_two_floats(device, cc):
    """gcc 12 took the largest uint32 for the largest uint64 on the way to a float32."""

    @hal.kernel
    def largest(y: hal.Ptr[hal.float32], z: hal.Ptr[hal.float32], x: hal.ConstPtr[hal.float32]):
        i = hal.global_idx(0)
        y[i] = hal.float32(hal.uint64(x[i]))
        z[i] = hal.float32(hal.uint32(x[i]))

    x = hal.Buffer.from_numpy(np.array([np.inf, 2.0**70, 2.0**40, 7], np.float32), device)
    y, z = hal.zeros(4, hal.float32, device), hal.zeros(4, hal.float32, device)
    device.compile(largest)(y, z, x, threads=4)
    assert y.numpy().tolist() == [2.0**64, 2.0**64, 2.0**40, 7.0]
    assert z.numpy().tolist() == [2.0**32, 2.0**32, 2.0**32, 7.0]


def test_C6_a_missing_compiler_is_named(own_device, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(hal.CompilerUnavailable) as caught:
        own_device.compile(scale())
    assert str(caught.value) == (
        "compile a 'c' source: no compiler can serve: "
        "clang: not installed (apt-get install clang); "
        "gcc: not installed (apt-get install gcc); "
        "zig: not installed (pip install ziglang) on CPU."
    )
    monkeypatch.setenv("CPU_CC", "zig")
    with pytest.raises(hal.CompilerUnavailable) as caught:
        own_device.compile(scale())
    assert str(caught.value) == (
        "compile a 'c' source: no compiler can serve: zig: not installed (pip install ziglang) "
        "on CPU. The environment forces zig: unset CPU_CC, and CPU_ZIG, to allow others."
    )
    monkeypatch.undo()
    assert own_device.compiler.language == "llvm"  # others still serve


def test_C6_a_compiler_that_fails_to_start(tmp_path, monkeypatch):
    broken = tmp_path / "gcc"
    broken.write_text("#!/bin/sh\necho out of order >&2\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(hal.CompilerUnavailable, match="--version fails: out of order"):
        CCompilerProgram(C_COMPILERS["gcc"])


def test_C2_identity_has_processor_version_and_flags(monkeypatch):
    gcc = present("gcc")
    version = subprocess.run([gcc._command[0], "--version"], capture_output=True, text=True).stdout
    assert version.splitlines()[0] in gcc.identity and "-O3" in gcc.identity
    for flag in processor.cpu_flags():
        assert flag in gcc.identity and flag in LLVMCompiler().identity
    before = {type(made): made.identity for made in (gcc, LLVMCompiler())}
    monkeypatch.setattr(processor, "cpu_flags", lambda: ("sse2",))
    for made in (present("gcc"), LLVMCompiler()):
        assert made.identity != before[type(made)]


def test_a_process_with_a_warm_cache_imports_no_llvmlite(tmp_path):
    program = """
import sys
import hal_core as hal, hal_cpu
hal.Device.register_plugin("CPU", hal_cpu.plugin)
device = hal.Device["CPU"]
from hal_kernel.ir import Kernel, UOp
from hal_core.signature import Signature
kernel = Kernel("nothing", Signature.parse("nothing", "n: int32"), ())
device.compile(kernel)(vals=(1,), grid=1, block=1)
print(sum(name.startswith("llvmlite") for name in sys.modules))
"""
    checked = {"HAL_CHECK": "0"}  # else nothing is compiled
    counts = [int(printed(program, HAL_CACHE_DIR=str(tmp_path), **checked)) for _ in range(2)]
    assert counts[0] > 0 and counts[1] == 0


def test_C8_disassemble(device, monkeypatch):
    image = LLVMCompiler().compile(rendered())
    if shutil.which("objdump") or shutil.which("llvm-objdump"):
        with pytest.raises(hal.CompileError, match="objdump failed"):
            device.compiler.disassemble(b"no object")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(hal.Unsupported, match="binutils"):
        device.compiler.disassemble(image)


@pytest.mark.parametrize("name", ["gcc", "clang"])
def test_P1_every_part_of_a_binary_is_sealed(name):
    """Also the list of files behind the object, where the loader alone sees nothing wrong."""
    device, made = hal.Device["CPU"], present(name).compile(scale())
    binary = device.compile(scale()).binary
    for at in range(0, len(made), 101):
        image = made[:at] + bytes([made[at] ^ 1]) + made[at + 1 :]
        with pytest.raises(hal.CompileError, match="the binary is damaged: its checksum"):
            device.load(binary._replace(image=image))


def test_P1_a_binary_for_a_processor_with_more_instructions_is_refused(monkeypatch):
    device = hal.Device["CPU"]
    binary, (most, *others) = device.compile(scale()).binary, seal._features()
    monkeypatch.setattr(seal, "_features", lambda: others)
    with pytest.raises(hal.CompileError, match=f"processor with {most}, which this one lacks"):
        device.load(binary)
