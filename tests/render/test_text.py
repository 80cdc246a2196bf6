"""The text itself: as expected to the letter, safe names, refusals, speed."""

from pathlib import Path

import numpy as np
import pytest
from builder import Builder
from counts import calls
from run_python import printed
from samples import SAMPLES

from hal_core.dtypes import DTYPES, float16, float32
from hal_core.errors import Unsupported
from hal_cpu.vectors import LLVMRenderer
from hal_hip.render import HIPRenderer
from hal_kernel.errors import InvalidKernel
from hal_kernel.ir.reserved import is_taken
from hal_kernel.render import RENDERERS
from hal_kernel.render.c.c99 import CRenderer
from hal_kernel.render.c.cuda import CUDARenderer
from hal_kernel.render.c.words import called
from hal_metal.render import MetalRenderer
from hal_opencl.render import OpenCLRenderer

pytestmark = pytest.mark.quick

NAMES = """
    float auto restrict kernel global half uchar image2d_t float4 get_global_id sqrt sqrtf fabs NAN
    INFINITY M_PI linux block first last args launch thread_x global_x block_dim_y v0 v1
    hal_mod_int32 int32_t uint uint32_t bool entry entry_ r_base r_offset rest __x template memset
    printf _Bool _Complex _X NULL cl_khr_fp64 CLK_LOCAL_MEM_FENCE intptr_t thread xor not and_eq
    threadIdx blockDim dim3 warpSize float1 assert min max norm y1 device threadgroup constant
    precise metal as_type global_id block_size mem_flags grid_size atomic_int fragment size_t
    const_cast decltype requires char8_t M_PI_2 texture2d size_ kernel_ hipThreadIdx_x names_values
    hal_values CHAR_BIT SCHAR_MIN SHRT_MAX UCHAR_MAX USHRT_MAX LONG_MAX ULONG_MAX HALF_MAX MAXHALF
    coherent HUGE_VALH SIZE_MAX math_errhandling signgam gamma isgreater
    """.split()  # noqa: SIM905 - words read better so

GOLDEN = Path(__file__).parent / "golden"


# Metal has no float64; listings of the IR have line numbers, and tests of their own. The text for
# LLVM says what its vectors are, which is for tests of results.
GOLDENS = [
    (name, language)
    for name in SAMPLES
    for language in RENDERERS
    if language not in ("uops", "llvm")
]
GOLDENS.remove(("mixed", "metal"))


@pytest.mark.parametrize(("name", "language"), GOLDENS)
def test_text_is_as_expected(name, language):
    """After a change that is meant: delete the file, run twice, read the difference."""
    text = RENDERERS[language]().render(SAMPLES[name].lower())
    path = GOLDEN / f"{name}.{language}.txt"
    if not path.exists():
        path.write_text(text)
        pytest.fail(f"{path.name} did not exist; it does now: read it")
    assert text == path.read_text()


@pytest.mark.parametrize("language", list(RENDERERS))
def test_another_process_loads_what_the_language_needs_and_writes_the_same(language):
    """Texts for GPUs need no regions between barriers, LLVM IR needs none of the C family. The
    compile cache is keyed by the text: no addresses, no order of sets."""
    program = (
        "import sys; from hal_kernel.render import RENDERERS; RENDERERS[sys.argv[2]]; "
        "print(*sys.modules); sys.path.insert(0, sys.argv[1]); from samples import SAMPLES; "
        "print(RENDERERS[sys.argv[2]]().render(SAMPLES['histogram'].lower()), end='')"
    )
    found, _, text = printed(program, str(Path(__file__).parent), language).partition("\n")
    assert text == RENDERERS[language]().render(SAMPLES["histogram"].lower())
    loaded = found.split()
    passes = [name for name in loaded if name.startswith("hal_kernel.ir.blocks")]
    assert bool(passes) == (language in ("c", "llvm"))
    family = "hal_kernel.render.c.family" in loaded
    assert family == (language not in ("llvm", "ptx", "uops"))
    assert {"numpy", "llvmlite", "pyopencl"}.isdisjoint(loaded)


def kernel_of_many_names():
    """Parameters are called what the user likes; also the words of the text around them.

    Each place is a constant: LLVM takes 15 s for 97 stores that may hit one another, else 0.3 s.
    """
    b = Builder("names", "r: float32*, " + ", ".join(f"{name}: float32" for name in NAMES))
    i = b.index()
    place = b.op("MOD", i, b.op("ADD", i, b.const(len(NAMES))))
    for number, name in enumerate(NAMES):
        value = b.op("ADD", b.params[name], b.op("SQRT", b.const(number**2, float32)))
        b.store("r", b.const(number), value)
    variable = b.var("float", b.const(1.0, float32))
    b.store("r", b.op("ADD", place, b.const(len(NAMES))), b.op("ABS", b.get(variable)))
    return b.kernel()


def test_names_that_a_language_has_for_itself(toolchain):
    got = np.zeros(len(NAMES) + 1, np.float32)
    values = {name: float(number) for number, name in enumerate(NAMES)}
    toolchain.run(kernel_of_many_names(), {"r": got, **values})
    assert got.tolist() == [*(2.0 * number for number in range(len(NAMES))), 1.0]


def test_names_of_languages_of_other_machines(offline):
    offline.compile(kernel_of_many_names())


@pytest.mark.parametrize("name", [
    "exp", "sqrtf", "main", "int", "NULL", "INT32_MAX", "M_PI", "int_fast8_t", "__func__",
    "cl_khr_fp64", "y1", "static_cast", "defined",
    "barrier", "atomic_int", "get_global_id", "as_uint", "threadIdx", "atomicAdd", "warpSize",
    "threadgroup_barrier", "as_type", "half",
])  # fmt: skip
def test_a_kernel_may_not_take_a_word_of_any_language(name):
    for renderer in RENDERERS.values():
        with pytest.raises(Unsupported, match=rf"'{name}'.*Rename the kernel"):
            renderer().render(Builder(name, "r: float32*").kernel())


def test_what_one_language_has_for_itself_no_kernel_may_take():
    rows = [vars(r)["row"] for r in RENDERERS.values() if "row" in vars(r)]
    assert len(rows) == 5
    for row in rows:
        words = row.keywords | set(row.types.values()) | called(row)
        missed = sorted(word for word in words if word.isidentifier() and not is_taken(word))
        assert not missed, f"{missed} are free for kernels"


@pytest.mark.parametrize("dtype", list(DTYPES.values()), ids=str)
def test_D1_a_dtype_is_rendered_or_refused_by_name(dtype):
    b = Builder("k", f"r: {dtype.name}*, x: const {dtype.name}*")
    b.store("r", b.const(0), b.load("x", b.const(0)))
    for renderer in (made() for made in RENDERERS.values()):
        if renderer.supports(dtype):
            assert "k(" in renderer.render(b.kernel())
        else:
            with pytest.raises(Unsupported, match=rf"kernel 'k'.*got '{dtype}'"):
                renderer.render(b.kernel())


@pytest.mark.parametrize("language", list(RENDERERS))
def test_ir_is_verified_before_it_is_rendered(language):
    b = Builder("k", "r: const float32*")
    b.store("r", b.const(0), b.const(1.0, float32))
    with pytest.raises(InvalidKernel):
        RENDERERS[language]().render(b.kernel())


def test_an_operation_that_a_renderer_lacks_is_named():
    """A renderer that was written before the operation ended in a bare KeyError."""

    class Older(CRenderer):
        row = CRenderer.row._replace(functions={})

    b = Builder("k", "y: float32*")
    b.store("y", b.index(), b.op("EXP", b.load("y", b.index())))
    with pytest.raises(
        Unsupported, match=r"k' as C: the renderer lacks an operation \(got 'EXP'\)"
    ):
        Older().render(b.kernel())


def test_what_the_compiler_is_told():
    b = Builder("k", "r: float32*")
    assert "-ffp-contract=off" in CRenderer().options(b.kernel(contract=False))
    assert "-ffp-contract=fast" in CRenderer().options(b.kernel(contract=True))
    assert OpenCLRenderer().options(b.kernel()) == LLVMRenderer().options(b.kernel()) == ()
    assert CUDARenderer().options(b.kernel(contract=False)) == ("--fmad=false",)
    assert "-ffp-contract=off" in HIPRenderer().options(b.kernel(contract=False))
    assert MetalRenderer().options(b.kernel()) == ("-fno-fast-math",)
    assert "fp contract(off)" in MetalRenderer().render(b.kernel(contract=False))
    assert "fp contract" not in MetalRenderer().render(b.kernel(contract=True))
    assert "FP_CONTRACT OFF" in OpenCLRenderer().render(b.kernel(contract=False))
    assert "FP_CONTRACT" not in OpenCLRenderer().render(b.kernel(contract=True))


def test_opencl_asks_for_double_only_where_it_is_used():
    b = Builder("k", "r: float32*")
    assert "cl_khr_fp64" not in OpenCLRenderer().render(b.kernel())
    b.cast(b.const(0), DTYPES["float64"])
    inside = b.cast(b.cast(b.index(), DTYPES["float64"]), float32)
    b.store("r", b.const(0), inside)
    assert "cl_khr_fp64" in OpenCLRenderer().render(b.kernel())


def test_views_of_one_buffer_as_half_and_as_short_may_alias():
    """Metal has a type of 16-bit floats, which C's rules keep apart from short; OpenCL has none."""
    b = Builder("views", "a: int16*, b: float16*, n: int16*")
    b.store("n", b.const(0), b.load("a", b.const(0)))
    b.store("b", b.const(0), b.cast(b.const(2.0, float32), float16))
    kernel = b.kernel()
    metal, opencl = MetalRenderer().render(kernel), OpenCLRenderer().render(kernel)
    assert "typedef half hal_any_half __attribute__((may_alias));" in metal
    assert "may_alias" not in opencl


def test_opencl_fixes_the_block_only_where_the_kernel_does():
    b = Builder("k", "r: float32*")
    assert "reqd_work_group_size" not in OpenCLRenderer().render(b.kernel())
    assert "reqd_work_group_size(4, 2, 1)" in OpenCLRenderer().render(b.kernel(block=(4, 2, 1)))


@pytest.mark.parametrize("renderer", [CRenderer(), OpenCLRenderer(), LLVMRenderer()])
def test_a_large_kernel_renders_in_linear_time(renderer):
    """Four times the nodes take about four times as long, not sixteen."""

    def rendering(nodes):
        b = Builder("large", "r: int32*, x: const int32*")
        value = b.load("x", b.index())
        for number in range(nodes):
            # shared operands: text that repeated them would double every time
            value = b.op("ADD", value, b.op("MUL", value, b.const(number)))
            b.store("r", value, value)
        kernel = b.kernel()
        return calls(lambda: renderer.render(kernel))

    few, more, many = (rendering(nodes) for nodes in (25, 100, 400))
    assert more < 5 * few and many < 5 * more
