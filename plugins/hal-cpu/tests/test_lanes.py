"""The code that every compiler makes of a kernel computes with vectors: threads are lanes."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
from kernel_files import saxpy
from slices import usual

import hal_core as hal
from hal_cpu import processor
from hal_cpu.compilers import llvm as llvm_module

# A product, or a sum with one, of several float32.
WIDE = {"x86-64": r"v?(mulps|fm\w+ps) .*%[xyz]mm", "aarch64": r"fml?[al]?\w* .*v\d+\.4s"}


@pytest.fixture(params=usual(["llvm", "clang", "gcc", "zig"], "llvm", "clang"))
def pair(request, device, monkeypatch):
    """Let one compiler serve; skip the test where it is not installed."""
    monkeypatch.setenv("CPU_CC", request.param)
    try:
        device.compiler
    except hal.CompilerUnavailable as error:
        pytest.skip(str(error))


def disassembled(device, kernel):
    """Return the machine code of a kernel as text; skip the test without objdump."""
    try:
        return device.compiler.disassemble(device.compile(kernel.lower()).binary.image)
    except hal.Unsupported as error:
        pytest.skip(str(error))


@hal.kernel
def blur(y: hal.Ptr[hal.float32], x: hal.ConstPtr[hal.float32], n: hal.int32) -> None:
    i = hal.global_idx(0)
    if 0 < i < n - 1:
        y[i] = 0.25 * x[i - 1] + 0.5 * x[i] + 0.25 * x[i + 1]


@pytest.mark.usefixtures("pair")
@pytest.mark.parametrize("kernel", [saxpy, blur], ids=["saxpy", "blur"])
def test_threads_are_lanes(device, kernel):
    text = disassembled(device, kernel)
    assert re.search(WIDE[processor.machine()], text), text


@hal.kernel
def chase_atomically(y: hal.Ptr[hal.int32], x: hal.ConstPtr[hal.int32], n: hal.int32) -> None:
    i = hal.global_idx(0)
    at = i
    for _ in range(n):
        at = hal.atomic_load(x, at, hal.acquire)
    hal.atomic_store(y, i, at, hal.release)


@pytest.mark.usefixtures("pair")
def test_an_atomic_load_costs_what_a_plain_one_does(device):
    """It takes no lock, no fence and no exchange."""
    text = disassembled(device, chase_atomically)
    dear = re.search(r"\block\b|\bmfence\b|\bxchg\b.*\(|\bldx|\bcas|\bdmb\b|\bldadd", text)
    assert dear is None, dear


@hal.kernel
def divided(y: hal.Ptr[hal.int32], x: hal.ConstPtr[hal.int32], n: hal.int32) -> None:
    i = hal.global_idx(0)
    total = 0
    if i < n:
        for k in range(n):
            if x[i] > 10:
                total += x[k % n] + x[k // n]
        y[i] = total


@pytest.mark.usefixtures("pair")
def test_threads_that_divide_where_data_say_load_what_the_first_does_not(device):
    """LLVM 22 computed the address in the first lane of a vector, which may not run the IF."""
    program = device.compile(divided.lower())
    x = np.random.default_rng(0).integers(0, 50, 100).astype("i4")
    y = hal.Buffer.from_numpy(np.zeros(100, "i4"), device=device)
    program(y, hal.Buffer.from_numpy(x, device=device), vals=(100,), grid=1, block=100, wait=True)
    np.testing.assert_array_equal(y.numpy(), np.where(x > 10, x.sum() + 100 * x[0], 0))


@hal.kernel(block=(64, 1, 1), contract=False)
def of_four(
    y: hal.Ptr[hal.float32], k: hal.Ptr[hal.int32], x: hal.ConstPtr[hal.int16], n: hal.int32
) -> None:
    i = hal.global_idx(0)
    if i >= n:
        return
    total = hal.float32(0)
    for u in range(9):
        if u % 2 == 0:
            total += hal.float32(x[u * 4 + i % 4])
        k[i] = u
    y[i] = total


@pytest.mark.usefixtures("pair")
def test_low_bits_of_an_index_in_a_loop_are_no_neighbours(device):
    """clang 22 loaded a vector of neighbours from the first lane's address on."""
    program = device.compile(of_four.lower())
    x = np.arange(36, dtype="i2")
    y = hal.Buffer.from_numpy(np.zeros(200, "f4"), device=device)
    k = hal.Buffer.from_numpy(np.zeros(200, "i4"), device=device)
    program(y, k, hal.Buffer.from_numpy(x, device=device), vals=(200,), grid=4, wait=True)
    np.testing.assert_array_equal(y.numpy(), 80 + 5 * (np.arange(200) % 4))


@pytest.mark.parametrize(
    ("name", "features", "wide"),
    [("emeraldrapids", "+avx2,+avx512f", True), ("znver4", "+avx2,+avx512f", True),
     ("cascadelake", "+avx2,+avx512f", False), ("haswell", "+avx2,-avx512f", False)],
)  # fmt: skip
def test_vectors_are_as_wide_as_the_processor_has_them_at_full_speed(name, features, wide):
    found = SimpleNamespace(flatten=lambda: features)
    llvm = SimpleNamespace(get_host_cpu_name=lambda: name, get_host_cpu_features=lambda: found)
    expected = f"{features},+fast-gather" + (",-prefer-256-bit" if wide else "")
    assert llvm_module._features(llvm) == expected


def test_vectors_have_512_bits_here(device, monkeypatch):
    monkeypatch.setenv("CPU_CC", "llvm")
    with llvm_module.llvm_lock:
        if "-prefer-256-bit" not in llvm_module._features(llvm_module.import_llvm()):
            pytest.skip("this processor has no vectors of 512 bits, or runs slower with them")
    text = disassembled(device, saxpy)
    assert re.search(r"vfmadd\w+ps .*%zmm", text), text
