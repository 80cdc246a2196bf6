"""AMD's compiler, from text to code objects for GPUs that are not here."""

from functools import partial
from types import SimpleNamespace

import pytest
from in_threads import results
from run_python import printed
from slices import usual

import hal_core as hal
from hal_core.compiler.seal import unseal
from hal_hip import hiprtc
from hal_hip.compiler import MAKER, HIPRTCCompiler
from hal_hip.hiprtc import Found
from hal_hip.render import HIPRenderer

pytestmark = pytest.mark.usefixtures("library")

FULL = "gfx90a:sramecc+:xnack-"
TARGETS = ("gfx906:sramecc+:xnack-", FULL, "gfx1030")
TEXT = """\
#include <hip/hip_runtime.h>
extern "C" __global__ void scale(float *y, const float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = FACTOR * x[i];
}
"""
SIGNATURE = "y: float32*, x: const float32*, n: int32"


@hal.kernel
def twice(y: hal.Ptr[hal.float16], n: hal.int32) -> None:
    i = hal.global_idx(0)
    if i < n:
        y[i] = y[i] + y[i]


@hal.kernel
def missing(y: hal.Ptr[hal.uint64], x: hal.ConstPtr[hal.float32]) -> None:
    i = hal.global_idx(0)
    y[3 * i] = hal.ballot(hal.isnan(x[i]))
    y[3 * i + 1] = hal.ballot(x[i] == x[i])
    y[3 * i + 2] = hal.ballot(hal.isnan(x[i]) or hal.isnan(x[i + 1]))


def compiler_for(arch):
    """Return the compiler of a GPU of this architecture, which nobody has."""
    device = SimpleNamespace(name="HIP", info=SimpleNamespace(arch=arch))
    return HIPRTCCompiler(device)


def _compile(text, arch=FULL, **given):
    return compiler_for(arch).compile(hal.Source("scale", text, SIGNATURE, language="hip", **given))


@pytest.mark.parametrize("arch", usual(TARGETS, FULL))
def test_a_rendered_kernel_becomes_a_code_object_for_the_whole_target(arch):
    kernel, compiler = twice.lower(), compiler_for(arch)
    renderer = HIPRenderer()
    source = hal.Source(
        kernel.name, renderer.render(kernel), kernel.signature, language="hip",
        options=renderer.options(kernel), rendered=True,
    )  # fmt: skip
    image = compiler.compile(source)
    target, code = unseal(MAKER, image, "test", "HIP")
    assert target == arch and code.startswith(b"\x7fELF")
    assert arch.encode() in code  # the object's note has the features too
    text = compiler.disassemble(image)
    assert "twice:" in text and "s_endpgm" in text and "v_" in text
    for other, said in ((image[:-1], "damaged"), (b"\x7fELF", "not a binary of hal-hip")):
        with pytest.raises(hal.CompileError, match=said):
            compiler.disassemble(other)


@pytest.mark.parametrize("arch", usual(TARGETS, FULL))
def test_a_ballot_of_tests_of_nan_is_compiled(arch):
    """hiprtc 5.2 ends its process for `__ballot(isnan(x))`."""
    renderer = HIPRenderer()
    assert _compile(renderer.render(missing.lower()), arch)


def test_defines_folders_and_the_usual_header(tmp_path):
    (tmp_path / "factor.h").write_text("#define FACTOR HALF * 3.0f\n")
    text = TEXT.replace("#include", '#include "factor.h"\n#include', 1)
    assert _compile(text, includes=(str(tmp_path),), defines={"HALF": "0.5f"})


@pytest.mark.parametrize("text", ["", "\x01\x02\x1b[31m", "\N{SNOWMAN}", "{" * 5000])
def test_texts_of_nothing_and_of_anything(text):
    try:
        image = _compile(text)
    except hal.CompileError as error:
        assert error.source == text
    else:
        assert not text.strip() and image


def test_a_compiler_that_dies_is_a_CompileError_and_is_replaced():
    """hiprtc 5.2 ends its process for an architecture that it does not know."""
    text = TEXT.replace("FACTOR", "1.0f")
    with pytest.raises(hal.CompileError, match=r"HIPRTC|died"):
        _compile(text, arch="gfx9999")
    assert _compile(text)


@pytest.mark.parametrize(
    "option",
    ["--gpu-architecture=gfx906", "--offload-arch=gfx906", "-march=gfx906", "-mcpu=gfx906"],
)
def test_a_source_names_no_architecture(option):
    with pytest.raises(hal.InvalidArgument, match=f"cannot name an architecture.*{option}"):
        _compile(TEXT, options=(option,))


@pytest.mark.parametrize("option", ["-I/usr", "-include x.h", "-isystem/usr", "-fpass-plugin=x.so"])
def test_C2_a_source_names_no_file_in_its_options(option):
    with pytest.raises(hal.InvalidArgument, match="cannot name files"):
        _compile(TEXT, options=(option,))


def test_C2_the_key_has_the_version_the_target_and_the_folder_of_headers(monkeypatch, tmp_path):
    names = {compiler_for(arch).identity for arch in TARGETS}
    (tmp_path / "include" / "hip").mkdir(parents=True)
    (tmp_path / "include" / "hip" / "hip_runtime.h").touch()
    monkeypatch.setenv("ROCM_PATH", str(tmp_path))
    hiprtc.header_folders.cache_clear()
    names.add(compiler_for(FULL).identity)
    hiprtc.header_folders.cache_clear()
    monkeypatch.setattr(hiprtc, "find", lambda: Found("/x/libhiprtc.so.7", "7.0 (7.0.1)"))
    names.add(compiler_for(FULL).identity)
    assert len(names) == len(TARGETS) + 2


def test_threads_compile_in_turns():
    one, two = (partial(_compile, TEXT, defines={"FACTOR": f"{n}.0f"}) for n in (1, 2))
    assert len(set(results(one, two))) == 2


@pytest.mark.full  # `nox -s hip` has no hal-opencl
def test_it_lives_beside_another_LLVM():
    """Debian's hiprtc and Debian's PoCL end a process that has both."""
    code = f"""
import hal_core as hal
from hal_hip import hiprtc
text = {TEXT.replace("FACTOR", "1.0f")!r}
for turn in range(2):
    print(len(hiprtc.compile(text, ("--gpu-architecture=gfx906",))) > 0)
    try:
        device = hal.Device["OPENCL"]
        hal.zeros(8, hal.float32, device).fill(1).numpy()
    except hal.HalError:
        pass  # no platform here
"""
    assert printed(code).split() == ["True", "True"]
