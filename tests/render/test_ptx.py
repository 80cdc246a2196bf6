"""PTX: assembled by NVIDIA's ptxas, and run by a machine of the tests."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builder import Builder
from every_language import TESTS
from everything import everything
from ptx_machine import Machine
from samples import SAMPLES
from toolchains import Arrays, Toolchain, Triple

from hal_core.dtypes import DTYPES, DType, float16, float32, float64, int16, int32
from hal_core.errors import Unsupported
from hal_cuda.render import PTXRenderer
from hal_kernel.interpreter import interpret
from hal_kernel.ir import Kernel

sys.path.insert(0, str(Path(__file__).parents[1] / "fuzz"))

from case import Case
from generator import generate
from harness import TURNS, compare, load


class PTX(Toolchain):
    renderer = PTXRenderer()
    turns = 500  # its threads go on together, so they meet each time
    rivals = 200  # the time grows with their square

    def run(
        self,
        kernel: Kernel,
        arguments: Arrays,
        grid: Triple = (1, 1, 1),
        block: Triple = (1, 1, 1),
        part: tuple[int, int] | None = None,
        workers: int = 1,
    ) -> None:
        assert part is None, "a GPU launches whole grids"
        Machine(self.renderer.render(kernel), arguments, grid, block).run()


@pytest.fixture(scope="session")
def toolchain(tmp_path_factory: pytest.TempPathFactory) -> Toolchain:
    return PTX(tmp_path_factory.mktemp("ptx"))


for tests in TESTS.values():
    globals().update(tests)


@pytest.mark.parametrize("module", TESTS)
def test_what_every_language_must_do_is_tested_here(module: str) -> None:
    assert TESTS[module]


# -- NVIDIA's assembler


def _ptxas() -> str | None:
    """On the path, or in the wheel `nvidia-cuda-nvcc-cu12`."""
    found = importlib.util.find_spec("nvidia")
    places = found.submodule_search_locations if found else None
    in_wheel = (path for place in places or () for path in Path(place).glob("*/bin/ptxas"))
    return shutil.which("ptxas") or next(map(str, in_wheel), None)


PTXAS = _ptxas()
needs_ptxas = pytest.mark.skipif(
    PTXAS is None, reason="ptxas is not installed (pip install nvidia-cuda-nvcc-cu12)"
)


def assemble(kernel: Kernel, target: str, folder: Path) -> str:
    """What ptxas says of registers and memory. Any warning is a failure."""
    text = PTXRenderer(target).render(kernel)
    path = folder / "kernel.ptx"
    path.write_text(text)
    command = [str(PTXAS), "-v", "--warning-as-error", "-arch", target, str(path)]
    done = subprocess.run(
        [*command, "-o", str(folder / "kernel.cubin")], capture_output=True, text=True
    )
    assert done.returncode == 0, f"{done.stderr}\n{text}"
    return done.stderr


@needs_ptxas
@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
@pytest.mark.parametrize("kernel", everything(), ids=lambda kernel: str(kernel.name))
def test_every_operation_is_assembled(target: str, kernel: Kernel, tmp_path: Path) -> None:
    assert f"Compiling entry function '{kernel.name}'" in assemble(kernel, target, tmp_path)


@needs_ptxas
@pytest.mark.parametrize("name", SAMPLES)
def test_samples_need_no_local_memory(name: str, tmp_path: Path) -> None:
    kernel = SAMPLES[name].lower()
    said = assemble(kernel, "sm_80", tmp_path)
    assert "0 bytes stack frame, 0 bytes spill stores" in said
    assert f"{kernel.shared_nbytes} bytes smem" in said or not kernel.shared_nbytes


@needs_ptxas
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_constants_may_stand_everywhere(dtype: DType, tmp_path: Path) -> None:
    assemble(constants(dtype), "sm_80", tmp_path)


@needs_ptxas
@pytest.mark.parametrize("name", ["add", "mov", "tid", "entry", "reg", "b32", "_a", "global_"])
def test_a_kernel_may_take_a_word_of_ptx(name: str, tmp_path: Path) -> None:
    b = Builder(name, "add: float32*, u32: int32")
    b.store("add", b.params["u32"], b.const(1, float32))
    assemble(b.kernel(), "sm_80", tmp_path)


@needs_ptxas
def test_names_together_are_no_word_of_ptx(tmp_path: Path) -> None:
    b = Builder("WARP", "SZ: float32*, x: float32")
    b.store("SZ", b.index(), b.params["x"])
    assemble(b.kernel(), "sm_80", tmp_path)


@pytest.mark.parametrize("name", ["_", "WARP_SZ"])
def test_names_that_ptx_cannot_take(name: str) -> None:
    with pytest.raises(Unsupported, match="Rename the kernel"):
        PTXRenderer().render(Builder(name, "").kernel())


# -- run by the machine


def constants(dtype: DType) -> Kernel:
    """Operations on constants alone: most instructions take numbers in place of registers."""
    b = Builder("constants", f"r: {dtype.name}*, i: int32*, c: bool*")
    if dtype in (DTYPES["float16"], DTYPES["bfloat16"]):
        b.store("r", b.index(), b.cast(b.const(1.5, float32), dtype))
        return b.kernel()
    one, two = b.const(1, dtype), b.const(0 if dtype.kind == "b" else 2, dtype)
    place = 0
    ops = ["AND", "XOR", "NOT"] if dtype.kind == "b" else ["ADD", "MUL", "MIN", "NEG", "ABS"]
    ops += (
        ["SHL", "SHR", "FLOORDIV", "MOD", "TRUNCDIV", "TRUNCMOD", "NOT"] if dtype.is_integer else []
    )
    ops += ["DIV", "SQRT", "FLOOR", "ROUND"] if dtype.is_float else []
    for op in ops:
        operands = [one] if op in ("NEG", "ABS", "NOT", "SQRT", "FLOOR", "ROUND") else [one, two]
        b.store("r", b.const(place), b.add(op, dtype, *operands))
        place += 1
    condition = b.add("LT", DTYPES["bool"], one, two)
    b.store("c", b.const(0), condition)
    b.store("r", b.const(place), b.add("WHERE", dtype, b.const(True, DTYPES["bool"]), one, two))
    b.store("i", b.const(0), b.cast(two, int32))
    branch = b.if_(b.const(True, DTYPES["bool"]))
    b.store("r", b.const(place + 1), b.cast(b.const(3), dtype))
    b.end(branch)
    if dtype.is_float:
        bits = DTYPES[f"int{8 * dtype.itemsize}"]
        b.store("i", b.const(1), b.cast(b.bitcast(b.const(-1.0, dtype), bits), int32))
    return b.kernel()


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_constants_compute_what_variables_would(toolchain: Toolchain, dtype: DType) -> None:
    kernel = constants(dtype)
    bits = np.dtype(f"u{dtype.itemsize}") if dtype is DTYPES["bfloat16"] else dtype.to_numpy()
    made: list[list[Any]] = [
        [np.zeros(16, bits), np.zeros(2, np.int32), np.zeros(1, bool)] for _ in range(2)
    ]
    toolchain.run(kernel, dict(zip(("r", "i", "c"), made[0], strict=True)))
    interpret(kernel, *made[1], grid=1, block=1)
    for got, expected in zip(*made, strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("contract", [False, True])
def test_ptxas_may_fuse_where_the_kernel_allows_it(contract: bool) -> None:
    """mul.rn and add.rn are never fused; without .rn they may be."""
    b = Builder("fused", "r: float32*, x: float64")
    x = b.cast(b.params["x"], float32)
    b.store("r", b.index(), b.op("SUB", b.op("MUL", x, x), x))
    text = PTXRenderer().render(b.kernel(contract=contract))
    assert ("mul.f32" in text, "sub.f32" in text) == (contract, contract)
    assert ("mul.rn.f32" in text, "sub.rn.f32" in text) == (not contract, not contract)


def test_the_sign_of_bits_is_not_extended_by_cvt(toolchain: Toolchain) -> None:
    """ptxas 13.0 reads cvt.s32.s16(bits of float16(1 if c else 0)) as 1 if c else 0.

    An H200 stored 1 where 15360 belongs; kernel 208 of the fuzzer found it.
    """
    b = Builder("bits", "r: int16*, c: int32")
    one = b.op("WHERE", b.op("NE", b.params["c"], b.const(0)), b.const(1), b.const(0))
    b.store("r", b.index(), b.bitcast(b.cast(b.cast(one, float32), float16), int16))
    kernel = b.kernel()
    text = PTXRenderer().render(kernel)
    assert "cvt.s32" not in text
    assert "bfe.s32" in text
    got = np.zeros(1, np.int16)
    toolchain.run(kernel, {"r": got, "c": 7})
    assert got == 15360


def three(extent: object) -> Triple:
    x, y, z = (*(extent if isinstance(extent, tuple) else (extent,)), 1, 1)[:3]
    return x, y, z


def geometry(case: Case, kernel: Kernel) -> tuple[Triple, Triple]:
    launch = case.launch
    block = three(launch.get("block") or kernel.block)
    if "grid" in launch:
        return three(launch["grid"]), block
    x, y, z = (-(-size // one) for size, one in zip(three(launch["threads"]), block, strict=True))
    return (x, y, z), block


@pytest.mark.parametrize("first", range(0, 200, 20))
def test_generated_kernels(first: int) -> None:
    """Against the interpreter: every byte of every buffer, and what lies beside them."""
    compared = 0
    for seed in range(first, first + 20):
        case = generate(seed)
        got = case.arrays()
        expected = [array.copy() for array in got]
        function = load(case.source)
        inside = [array[case.guard : -case.guard] for array in expected]
        interpret(function, *inside, vals=case.vals, turns=TURNS, **case.launch)
        kernel = function.lower()
        buffers, values = (array[case.guard : -case.guard] for array in got), iter(case.vals)
        arguments = {
            param.name: next(buffers) if param.is_pointer else next(values)
            for param in kernel.signature.params
        }
        Machine(PTXRenderer().render(kernel), arguments, *geometry(case, kernel)).run()
        verdict = compare(case.places, got, expected)
        assert verdict.kind == "ok", f"{verdict.why}\n{case}"
        compared += 1
    assert compared == 20


def test_math_is_in_the_text() -> None:
    """There is no library to link with."""
    b = Builder("math", "r: float64*, x: float64")
    for op in ("EXP", "SIN", "FMOD", "POW"):
        operands = [b.params["x"]] * (2 if op in ("FMOD", "POW") else 1)
        b.store("r", b.index(), b.add(op, float64, *operands))
    text = PTXRenderer().render(b.kernel())
    assert "call" not in text and ".extern" not in text
    assert "approx" not in text and "ftz" not in text
