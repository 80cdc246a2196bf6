"""The engine runs what our PTX renderer writes, and what NVRTC makes of CUDA C.

All tests of tests/render that take a toolchain run here, with the engine as one. NVRTC knows what
each instruction does; our renderer and the engine could share a mistake.
"""

import sys
from pathlib import Path

import numpy as np
import pytest
from engine_runner import SCHEDULES, ordered

from hal_core.dtypes import float16, float32, int16
from hal_cuda.render import PTXRenderer

sys.path.insert(0, str(Path(__file__).parents[2] / "interpreter"))
sys.path.insert(0, str(Path(__file__).parents[2] / "render"))

from builder import Builder
from every_language import TESTS
from offline import NVRTCText
from toolchains import Toolchain


class OnEngine(Toolchain):
    """Texts of our renderer."""

    renderer = PTXRenderer()
    subgroup = 32

    def __init__(self, engine, schedule):
        super().__init__(engine.folder)
        self.engine, self.schedule = engine, schedule

    def run(self, kernel, arguments, grid=(1, 1, 1), block=(1, 1, 1), part=None, workers=1):
        assert part is None, "a GPU launches whole grids"
        given = ordered(kernel, arguments)
        name = str(kernel.name)
        self.engine.run(self.text(kernel), name, given, grid, block, schedule=self.schedule)


class ByNVRTC(OnEngine):
    """PTX of NVIDIA's compiler."""

    renderer = NVRTCText.renderer

    def __init__(self, engine, schedule):
        super().__init__(engine, schedule)
        self.nvrtc = NVRTCText(engine.folder)
        self.missing = self.nvrtc.missing

    def text(self, kernel):
        flags = ("--gpu-architecture=compute_75", "--disable-warnings")
        text, options = self.renderer.render(kernel), self.renderer.options(kernel)
        return self.nvrtc.library.compile(text, [*flags, *options]).decode().rstrip("\0")


@pytest.fixture(scope="session", params=[OnEngine, pytest.param(ByNVRTC, marks=pytest.mark.full)])
def toolchain(request, engine):
    made = request.param(engine, SCHEDULES[0])
    if made.missing:
        pytest.skip(made.missing)
    return made


for tests in TESTS.values():
    globals().update(tests)


@pytest.mark.parametrize("module", TESTS)
def test_what_every_language_must_do_is_tested_here(module):
    assert TESTS[module]


def test_the_sign_of_bits_is_not_extended_by_cvt(toolchain):
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
