"""LLVM IR: parts of a launch, float16 with and without the processor's help, long kernels."""

import math
import re

import numpy as np
import pytest
from builder import Builder
from counts import calls
from toolchains import LLVM

import hal_core as hal
from hal_core.dtypes import float16, float32
from hal_cpu.vectors import LLVMRenderer


@hal.kernel
def unread(x: hal.ConstPtr[hal.int32]):
    i = hal.global_idx(0)
    total = 0
    for _ in range(20):
        total += x[i]


def test_a_kernel_that_does_nothing_but_read_is_compiled(llvm):
    llvm.run(unread.lower(), {"x": np.arange(64, dtype="i4")}, (2, 1, 1), (32, 1, 1))


# -- blocks of a row as one


@hal.kernel
def numbered_in_boxes(y: hal.Ptr[hal.int32], w: hal.int32, h: hal.int32, d: hal.int32):
    i = hal.global_idx(0)
    j = hal.global_idx(1)
    k = hal.global_idx(2)
    if i < w and j < h and k < d:
        y[(k * h + j) * w + i] += 10000 * k + 100 * j + i


def test_whole_rows_of_blocks_run_as_one_and_no_others(llvm):
    """Of any grid, in any part of a launch: each thread of the part runs once."""
    kernel, rng = numbered_in_boxes.lower(), np.random.default_rng(5)
    function = llvm.function(kernel)
    for _ in range(500):
        grid, block = (tuple(rng.integers(1, top, 3).tolist()) for top in ([5, 6, 4], 4))
        w, h, d = (max(1, a * b - rng.integers(3)) for a, b in zip(grid, block, strict=True))
        total = math.prod(grid)
        first, last = sorted(rng.integers(0, total + 1, 2).tolist())
        y, expected = np.full((2, d, h, w), -1, np.int32)
        llvm.call(function, kernel, {"y": y, "w": w, "h": h, "d": d}, grid, block, (first, last))
        k, j, i = np.indices((d, h, w))
        number = (k // block[2] * grid[1] + j // block[1]) * grid[0] + i // block[0]
        runs = (first <= number) & (number < last)
        expected += np.where(runs, 10000 * k + 100 * j + i, 0).astype("i4")
        np.testing.assert_array_equal(y, expected, f"{first} to {last} of {grid}, {block}")


# -- what the processor has


def _copied(renderer):
    b = Builder("copied", "y: float16*, z: float32*, h: const float16*, x: const float32*")
    i = b.index()
    b.store("z", i, b.cast(b.load("h", i), float32))
    b.store("y", i, b.cast(b.load("x", i), float16))
    kernel = b.kernel()
    return kernel, renderer.render(kernel)


def test_float16_by_the_processor_and_by_hand_is_the_same(tmp_path):
    found = []
    h = np.arange(65536, dtype=np.uint16).view(np.float16)
    x = np.random.default_rng(0).integers(0, 2**32, 65536, dtype=np.uint32).view(np.float32)
    for half in (False, True):
        llvm = LLVM(tmp_path)
        if llvm.missing:
            pytest.skip(llvm.missing)
        features = llvm.features()
        if half and not (features.get("f16c") or features.get("neon")):
            pytest.skip("the processor does not convert float16")
        llvm.renderer = LLVMRenderer(half=half)
        kernel, text = _copied(llvm.renderer)
        assert ("half" in text) is half
        y, z = np.zeros(65536, np.float16), np.zeros(65536, np.float32)
        llvm.run(kernel, {"y": y, "z": z, "h": h, "x": x}, (256, 1, 1), (256, 1, 1))
        y[np.isnan(y)] = np.nan
        z[np.isnan(z)] = np.nan
        found.append((y.view(np.uint16), z.view(np.uint32)))
    for by_hand, by_processor in zip(*found, strict=True):
        np.testing.assert_array_equal(by_hand, by_processor)


def test_without_the_instruction_no_half_is_named(llvm):
    """LLVM would call __extendhfsf2, which not every system has."""
    assert "half" not in _copied(LLVMRenderer())[1]
    assert re.search(r"fpext .*half", _copied(LLVMRenderer(half=True))[1])


# -- branches


def test_a_long_list_of_branches_is_rendered_in_linear_time():
    def rendering(count):
        b = Builder("branches", "y: int32*, n: int32")
        for number in range(count):
            block = b.if_(b.op("LT", b.params["n"], b.const(number)))
            b.store("y", b.const(number), b.params["n"])
            b.end(block)
        kernel = b.kernel()
        return calls(lambda: LLVMRenderer().render(kernel))

    assert rendering(1000) < 12 * rendering(100)


# -- math functions


@hal.kernel
def turned(y: hal.Ptr[hal.float32], x: hal.ConstPtr[hal.float32], n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        angle = x[i]
        y[2 * i] = hal.cos(angle) + hal.exp(angle)
        y[2 * i + 1] = hal.sin(angle) + hal.exp(-angle)


def test_a_function_is_written_once_and_sine_and_cosine_of_an_angle_are_one():
    text = LLVMRenderer(width=8).render(turned.lower())
    bodies = text.count("extractvalue") / 2  # each has a sine and a cosine
    for function, calls_of_a_body in (("sin.cos", 1), ("exp", 2)):
        name = f"@hal.{function}.float32.8("
        assert len(re.findall(rf"define .*{re.escape(name)}", text)) == 1
        assert text.count(name) - 1 == bodies * calls_of_a_body
