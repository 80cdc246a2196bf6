"""Math functions on processors with and without fused multiply-add."""

import re

import pytest

import hal_core as hal
from hal_cpu import processor
from hal_cpu.compiler import PAIRS


@hal.kernel
def softplus(y: hal.Ptr[hal.float32], x: hal.ConstPtr[hal.float32], n: hal.int32) -> None:
    i = hal.global_idx(0)
    if i < n:
        y[i] = hal.log(1.0 + hal.exp(x[i])) + hal.sin(x[i]) + hal.tanh(x[i])


def text():
    (renderer,) = (pair.renderer() for pair in PAIRS if pair.name.lower() == "llvm")
    return renderer.render(softplus.lower())


@pytest.mark.parametrize(
    ("machine", "flags", "fused"),
    [("x86-64", ("avx", "fma4"), False), ("x86-64", ("avx", "fma"), True), ("aarch64", (), True)],
)
def test_formulas_need_fused_multiply_add(monkeypatch, machine, flags, fused):
    monkeypatch.setattr(processor, "machine", lambda: machine)
    monkeypatch.setattr(processor, "cpu_flags", lambda: flags)
    assert bool(re.search(r"@llvm\.fma\.v\d+f32", text())) is fused
    assert bool(re.search(r"@llvm\.exp\.(v\d+)?f32", text())) is not fused
