"""The engine runs what our PTX renderer writes, and what NVRTC makes of our CUDA renderer's text.

All tests of tests/render that take a toolchain run here, with the engine as one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine_nvrtc import NVRTCText
from engine_runner import SCHEDULES, Engine, ordered, shared_engine

from hal_core.dtypes import DTYPES, DType, float16, float32, int16
from hal_cuda.render import PTXRenderer
from hal_kernel.interpreter import interpret
from hal_kernel.ir import Kernel
from hal_kernel.render.c.cuda import CUDARenderer

sys.path.insert(0, str(Path(__file__).parents[2] / "render"))

from builder import Builder
from constant_operations import constants
from every_language import TESTS
from samples import SAMPLES
from toolchains import Arrays, Toolchain, Triple


class OnEngine(Toolchain):
    """Texts of our renderer, or of NVRTC where there is one."""

    renderer = PTXRenderer()
    subgroup = 32

    def __init__(self, engine: Engine, nvrtc: NVRTCText | None, schedule: str) -> None:
        super().__init__(engine.folder)
        self.engine, self.nvrtc, self.schedule = engine, nvrtc, schedule
        if nvrtc:
            self.renderer = CUDARenderer()

    def text(self, kernel: Kernel) -> str:
        if self.nvrtc:
            return self.nvrtc.compile(kernel).decode()
        return self.renderer.render(kernel)

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
        given = ordered(kernel, arguments)
        name = str(kernel.name)
        self.engine.run(self.text(kernel), name, given, grid, block, schedule=self.schedule)

    def compile(self, kernel: Kernel) -> None:
        (log,) = self.engine.logs([self.text(kernel)])
        assert log == "ok"


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return shared_engine(tmp_path_factory)


@pytest.fixture(scope="session")
def nvrtc(tmp_path_factory: pytest.TempPathFactory) -> NVRTCText:
    made = NVRTCText(tmp_path_factory.mktemp("nvrtc"))
    if made.missing:
        pytest.skip(made.missing)
    return made


@pytest.fixture(scope="session")
def toolchain(engine: Engine) -> Toolchain:
    return OnEngine(engine, None, SCHEDULES[0])


for tests in TESTS.values():
    globals().update(tests)


@pytest.mark.parametrize("module", TESTS)
def test_what_every_language_must_do_is_tested_here(module: str) -> None:
    assert TESTS[module]


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


# -- the samples, whose texts are under tests/render/golden


def launches() -> Iterator[tuple[str, list[Any], tuple[Any, ...], Triple, Triple]]:
    """Arrays, scalars, grid and block for each sample."""
    random = np.random.default_rng(5)
    floats = random.standard_normal(64 * 64).astype(np.float32)
    halves = random.standard_normal(700).astype(np.float16)
    yield (
        "saxpy",
        [floats[:1000].copy(), floats[1000:2000].copy()],
        (1.5, 1000),
        (4, 1, 1),
        (256, 1, 1),
    )
    yield "blur", [np.zeros_like(floats), floats], (64, 64), (5, 9, 1), (16, 8, 1)
    yield (
        "matmul",
        [np.zeros(1024, np.float32), floats[:1024], floats[1024:2048]],
        (32,),
        (2, 2, 1),
        (16, 16, 1),
    )
    many = random.integers(0, 256, 3000).astype(np.uint8)
    yield "histogram", [np.zeros(256, np.uint32), many], (3000,), (24, 1, 1), (128, 1, 1)
    doubles = random.random(128)
    yield "mixed", [np.zeros(128, np.uint8), doubles], (3, 90), (4, 1, 1), (8, 4, 1)
    large = (random.random(200) * 1e9).astype(np.float32)
    yield (
        "search",
        [np.zeros(200, np.int32), np.zeros(1, np.float32), large],
        (2.5, 200),
        (7, 1, 1),
        (32, 1, 1),
    )
    outputs = [np.zeros(700, np.uint16), np.zeros(700, np.uint16)]
    yield (
        "halves",
        [outputs[0].view(np.float16), outputs[1], halves, np.zeros(700, np.uint32)],
        (700,),
        (3, 1, 1),
        (256, 1, 1),
    )


LAUNCHES = {name: rest for name, *rest in launches()}
GOLDEN = Path(__file__).parents[2] / "render" / "golden"


def test_every_golden_text_is_launched() -> None:
    assert set(LAUNCHES) == {path.name.split(".")[0] for path in GOLDEN.glob("*.ptx.txt")}
    assert set(LAUNCHES) == {path.name.split(".")[0] for path in GOLDEN.glob("*.cuda.txt")}


def check(engine: Engine, name: str, text: str, schedule: str) -> None:
    arrays, values, grid, block = LAUNCHES[name]
    expected = [array.copy() for array in arrays]
    # Threads of `mixed` that differ in y alone write the same to one place.
    interpret(SAMPLES[name], *expected, vals=values, grid=grid, block=block, races=False)
    got = [array.copy() for array in arrays]
    params = SAMPLES[name].lower().signature.params
    scalars = iter(values)
    given = dict(zip([p.name for p in params if p.is_pointer], got, strict=True))
    given |= {p.name: next(scalars) for p in params if not p.is_pointer}
    kernel = SAMPLES[name].lower()
    engine.run(text, name, ordered(kernel, given), grid, block, schedule=schedule)
    for mine, theirs in zip(got, expected, strict=True):
        if theirs.dtype.kind == "f" and kernel.contract:
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)
        else:
            np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", LAUNCHES)
def test_golden_ptx(engine: Engine, name: str, schedule: str) -> None:
    check(engine, name, (GOLDEN / f"{name}.ptx.txt").read_text(), schedule)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("architecture", ["compute_80", "compute_90"])
@pytest.mark.parametrize("name", LAUNCHES)
def test_golden_cuda(
    engine: Engine, nvrtc: NVRTCText, name: str, architecture: str, schedule: str
) -> None:
    nvrtc.architecture = architecture
    check(engine, name, OnEngine(engine, nvrtc, schedule).text(SAMPLES[name].lower()), schedule)
