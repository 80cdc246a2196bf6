"""Compilers and images: broken source, the wrong architecture, what cannot be encoded."""

import numpy as np
import pytest
from run_python import printed

import hal_core as hal
from hal_core.compiler.seal import seal, unseal
from hal_cuda import nvrtc
from hal_cuda.compiler import MAKER, PTXCompiler
from hal_testing.conformance.kernels import add_one


@pytest.fixture
def cuda(device):
    nvrtc.find()  # which the tests' own requirements bring
    return device


def _source(body, head='extern "C" '):
    text = f"{head}__global__ void f(int *y) {{ {body} }}"
    return hal.Source("f", text, "y: int32*", language="cuda")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("y[0] = nowhere;", 'identifier "nowhere" is undefined'),
        ("y[0] = 1", "expected a"),
        ("}}}", "expected a declaration"),
        ("\n#error told so\n", "told so"),
        ('asm("nonsense;");', "nonsense"),
    ],
)
def test_C_broken_source_is_refused_with_the_log(cuda, body, said):
    with pytest.raises(hal.CompileError, match=r"f.*CUDA") as caught:
        cuda.compile(_source(body))
    assert said in caught.value.log or "asm" in body, caught.value.log


def test_C_broken_PTX_is_refused_with_its_line(device):
    text = (
        ".version 8.0\n.target sm_50\n.address_size 64\n.visible .entry f() {\n  ld.nowhere;\n}\n"
    )
    with pytest.raises(hal.CompileError, match=r"f: the driver refuses the PTX.*CUDA") as caught:
        device.compile(hal.Source("f", text, "", language="ptx"))
    assert "line 5" in caught.value.log and "ld.nowhere" in str(caught.value)


PTX = """.version 8.0 .target sm_50 .address_size 64  // .entry f(.param .u8 a)
.visible .entry f /* of two */ (.param .u64 .ptr .global .align 4 y, .param .b32 n) {
.reg .b64 %p; .reg .b32 %n; ld.param.u64 %p, [y]; ld.param.u32 %n, [n]; cvta.to.global.u64 %p, %p;
st.global.u32 [%p], %n; ret; }
.visible .entry g(.param .align 4 .b8 s[8], .param .f64 x) { ret; } .visible .entry h { ret; }"""


def test_P2_a_signature_has_the_parameters_of_the_PTX(device):
    """The driver reads as many bytes as the entry has: it took those behind the arguments."""
    for name, right, *wrong in (
        ("f", "y: int32*, n: int32", "y: int32*", "y: int32*, n: int64", "n: int32, y: int32*"),
        ("g", "s: float32x2, x: float64", "s: float32, x: float64", "x: float64", ""),
        ("h", "", "n: int32"),
    ):
        device.compile(hal.Source(name, PTX, right, language="ptx"))
        for one in wrong:
            with pytest.raises(hal.CompileError, match=f"the entry {name} .* bytes.*its signature"):
                device.compile(hal.Source(name, PTX, one, language="ptx"))


def test_C_an_entry_that_is_not_there_says_how_to_name_it(cuda):
    with pytest.raises(hal.CompileError, match=r'load f: .*no such entry.*CUDA.*extern "C"'):
        cuda.compile(_source("y[0] = 1;", head=""))


def test_C_an_option_that_no_encoding_takes_is_refused(cuda):
    text = 'extern "C" __global__ void f(int *y) { y[0] = 1; }'
    for extra in ({"options": ("-D\udc80",)}, {"options": ("--no-such-option",)}):
        with pytest.raises(hal.HalError):
            cuda.compile(hal.Source("f", text, "y: int32*", language="cuda", **extra))


@pytest.mark.parametrize(
    ("change", "said"),
    [((".target sm_", ".target sm_999 //"), "refuses the binary"),
     (("ld.param", "ld.nowhere"), "refuses the binary"),
     ((".version", ".version 99.0 //"), "refuses the binary")],
    ids=["architecture", "instruction", "version"],
)  # fmt: skip
def test_C_an_image_for_something_else_is_refused_at_loading(device, simulator, change, said):
    ptx = next(pair for pair in device.compilers if pair.name == "ptx")
    text = ptx.renderer().render(add_one.lower())
    assert change[0] in text
    compiler = PTXCompiler(device)
    image = seal(MAKER, ["ptx", compiler.target], text.replace(*change, 1).encode())
    binary = device.compile(add_one).binary
    modules = simulator.live()["modules"]
    with pytest.raises(hal.CompileError, match=rf"load add_one: .*{said}.*CUDA"):
        device.load(binary._replace(image=image))
    assert simulator.live()["modules"] <= modules


@pytest.mark.parametrize("place", [0, 20, 60, -1])
def test_C_a_damaged_or_foreign_binary_never_gets_to_the_driver(device, simulator, place):
    binary = device.compile(add_one).binary
    damaged = bytearray(binary.image)
    damaged[place] ^= 1
    before = simulator.all_calls()
    for image in (bytes(damaged), b"", binary.image[:30], binary.image[:-1]):
        with pytest.raises(hal.CompileError, match=r"load add_one: .*CUDA.*again from its source"):
            device.load(binary._replace(image=image))
    assert "cuModuleLoadDataEx" not in simulator.calls_since(before)
    assert unseal(MAKER, binary.image, "load", "CUDA")[1]


def test_C_machine_code_of_another_GPU_is_named(device, simulator):
    binary = device.compile(add_one).binary
    simulator.fail("cuModuleLoadDataEx", 209)
    with pytest.raises(hal.CompileError, match=r"load add_one: .*(NO_BINARY_FOR_GPU|IMAGE).*CUDA"):
        device.load(binary)
    device.load(binary)


@hal.kernel
def with_zero(
    y: hal.Ptr[hal.float32], z: hal.Ptr[hal.float64], x: hal.float32, w: hal.float64
) -> None:
    y[0] = max(x, 0.0)
    y[1] = min(x, 0.0)
    y[2] = min(0.0, x)
    y[3] = max(-0.0, -x)
    y[4] = x if x < 0.0 else 0.0
    y[5] = 0.0 if not x < 0.0 else x
    z[0] = min(0.0, w)
    z[1] = max(-0.0, -w)
    z[2] = hal.rsqrt(max(-0.0, -w))


@pytest.mark.parametrize("pair", ["ptx", "nvrtc"])
def test_the_sign_of_a_zero_beside_zero(pair, device, monkeypatch):
    """NVRTC would make one instruction of the third and the next ones, which orders the zeros."""
    monkeypatch.setenv("CUDA_CC", pair)
    y, z = hal.zeros(6, hal.float32, device), hal.zeros(3, hal.float64, device)
    device.compile(with_zero.lower())(y, z, vals=(-0.0, -0.0), threads=1)
    assert np.signbit(y.numpy()).tolist() == [True, True, False, True, False, False]
    assert z.numpy().view("u8").tolist() == np.array([0.0, -0.0, -np.inf]).view("u8").tolist()


@hal.kernel
def zero_over_integers(
    y: hal.Ptr[hal.float32], z: hal.Ptr[hal.float64], x: hal.ConstPtr[hal.int16]
):
    i = hal.global_idx(0)
    y[i] = 0.0 / hal.float32(x[i]) * 2.0
    z[i] = 0.0 / hal.float64(x[i]) * 0.0


@pytest.mark.parametrize("pair", ["ptx", "nvrtc"])
def test_zero_over_an_integer_that_is_zero_is_nan(pair, device, monkeypatch):
    """NVRTC 13 would take the sign of the integer, and no division."""
    monkeypatch.setenv("CUDA_CC", pair)
    x = hal.Buffer.from_numpy(np.array([0, 1, -1], "i2"), device=device)
    y, z = hal.zeros(3, hal.float32, device), hal.zeros(3, hal.float64, device)
    device.compile(zero_over_integers.lower())(y, z, x, threads=3)
    for result in (y.numpy(), z.numpy()):
        np.testing.assert_array_equal(result, [np.nan, 0.0, -0.0])
        assert np.signbit(result[1:]).tolist() == [False, True]


def test_C6_a_driver_refuses_machine_code_of_a_newer_major_version(cuda):
    """hal-cuda makes none for it. Inferred from the format; a real older driver has to show it."""
    library, capability = nvrtc.find(), cuda.info.vendor["compute_capability"]
    if library.version[0] <= cuda.driver_version[0]:
        pytest.skip(f"NVRTC {library.version[0]} is not newer than the driver")
    target = "--gpu-architecture=sm_{}{}".format(*capability)
    image = library.compile('extern "C" __global__ void f() {}', "f", (target,), "CUBIN")
    with pytest.raises(hal.CompileError), cuda.own("load"):
        cuda.api.load(image)


@pytest.mark.parametrize("option", ["--gpu-architecture=sm_50", "-arch=sm_50"])
def test_a_source_names_no_architecture(option, cuda):
    text = 'extern "C" __global__ void f() {}'
    with pytest.raises(hal.InvalidArgument, match=f"cannot name an architecture.*{option}"):
        cuda.compile(hal.Source("f", text, "", language="cuda", options=(option,)))


PAIR = np.dtype([("a", "f8"), ("b", "i4")], align=True)
PAIR_TEXT = "struct pair { double a; int b; };\ntypedef double T;\n"


@pytest.mark.parametrize(
    ("declared", "signature", "why"),
    [("pair p", "p: uint64", "argument 0 of the kernel is pair p, its signature says p: uint64"),
     ("float *y", "y: const float32*", "argument 0 of the kernel is float"),
     ("T v", "v: int64", "argument 0 of the kernel is T v"),
     ("HIDDEN(v)", "v: int64", "signature says v: int64"),
     ("HIDDEN(v), int n", "v: float64", "arguments"),
     ("pair p", "p: struct<b:float64@0;a:int32@8;16>", "the field 'b' in another place"),
     ("float3 v", None, "type of parameter 'v' cannot be read")],
)  # fmt: skip
def test_P18_the_compiler_confirms_what_a_kernel_takes(cuda, declared, signature, why):
    text = f'{PAIR_TEXT}#define HIDDEN(x) T x\nextern "C" __global__ void f({declared}) {{}}'
    with pytest.raises(hal.CompileError, match=why):
        cuda.compile(hal.Source("f", text, signature, language="cuda"))


def test_P17_a_struct_or_union_is_a_value_of_its_size(cuda):
    text = """struct pair { float a, b; }; union two { pair p; double bits; };
    extern "C" __global__ void f(two *y, pair p, union two u) { y[0].p = p; y[1] = u; }"""
    y = hal.zeros(2, hal.complex64, cuda)
    signature = "y: complex64*, p: complex64, u: float32x2"
    cuda.compile(hal.Source("f", text, signature, language="cuda"))(y, 1 + 2j, (3, 4), threads=1)
    assert y.numpy().tolist() == [1 + 2j, 3 + 4j]


def test_P16_kernels_of_one_text_share_the_drivers_module(cuda, simulator):
    text = "".join(f'extern "C" __global__ void k{n}(int *y) {{ *y = {n}; }}\n' for n in range(8))
    before, y = simulator.all_calls(), hal.zeros(1, hal.int32, cuda)
    programs = cuda.compile(hal.Source(None, text, language="cuda"))
    assert simulator.calls_since(before)["cuModuleLoadDataEx"] == 1
    for number in range(8):
        programs[f"k{number}"](y, threads=1)
        assert y.numpy().tolist() == [number]
        programs[f"k{number}"].unload()
    cuda.compile(add_one)
    assert "cuModuleUnload" in simulator.calls_since(before)


def test_P18_types_that_only_the_compiler_knows_are_taken(cuda):
    text = f'{PAIR_TEXT}#define HIDDEN(x) T x\nextern "C" __global__ void f(HIDDEN(v), int n) {{}}'
    cuda.compile(hal.Source("f", text, "v: float64, n: int32", language="cuda"))
    text = 'extern "C" __global__ void f(float *p) {}'
    cuda.compile(hal.Source("f", text, "p: any*", language="cuda"))


def test_P18_macros_of_a_text_are_no_names_of_the_check(cuda):
    macros = dict.fromkeys("NFRAB", 7)  # NVRTC has T of its own
    text = 'extern "C" __global__ void f(int *y) { *y = N; }'
    program = cuda.compile(hal.Source("f", text, "y: int32*", language="cuda", defines=macros))
    y = hal.zeros(1, hal.int32, cuda)
    program(y, threads=1)
    assert y.numpy().tolist() == [7]


def test_P17_structs_and_vectors_are_values(cuda):
    text = (
        PAIR_TEXT
        + """extern "C" __global__ void f(char c, pair p, float4 v, double *y) {
        y[0] = c + p.a + p.b + v.w;
    }"""
    )
    program = cuda.compile(hal.Source("f", text, language="cuda"))
    y = hal.zeros(1, hal.float64, cuda)
    program(y, vals=(1, np.array((2, 3), PAIR)[()], [0, 0, 0, 4]), threads=1)
    assert y.numpy().tolist() == [10]


CTRL_C = """
import os, signal, threading
from hal_cuda import nvrtc

heard, over, reading = [], threading.Event(), threading.Event()

def hear(*_):
    heard.append(1)
    if reading.is_set():
        raise KeyboardInterrupt

def press():
    while not over.wait(0.002):
        os.kill(os.getpid(), signal.SIGINT)

library = nvrtc.find()
signal.signal(signal.SIGINT, hear)
pressing = threading.Thread(target=press)
pressing.start()
for _ in range(3):
    library.compile("__global__ void f(float *y) { *y = 1; }", "f.cu", (), "PTX")
over.set()
pressing.join()
end, other = os.pipe()
reading.set()
threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
give_up = threading.Timer(5, os.write, (other, b"missed"))
give_up.start()
try:
    print(os.read(end, 6))
except KeyboardInterrupt:
    give_up.cancel()
    print("heard")
"""


def test_ctrl_c_in_NVRTC_neither_ends_the_process_nor_is_deaf_behind_it():
    nvrtc.find()
    assert printed(CTRL_C) == "heard\n"
