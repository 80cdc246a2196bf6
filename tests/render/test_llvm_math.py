"""On the CPU math functions are formulas where LLVM makes vectors of them, else calls."""

from __future__ import annotations

import re

import pytest
from builder import Builder
from toolchains import LLVM

from hal_core.dtypes import DType, float32, float64
from hal_core.ir import Kernel
from hal_core.render import LLVMRenderer

BOTH = ["EXP", "EXP2", "LOG", "LOG2", "TANH", "ATAN"]
CASES = [(op, dtype) for op in BOTH for dtype in (float32, float64)]
CASES += [(op, float32) for op in ("SIN", "COS", "TAN")]


@pytest.fixture(scope="module")
def llvm(tmp_path_factory: pytest.TempPathFactory) -> LLVM:
    made = LLVM(tmp_path_factory.mktemp("llvm"))
    if made.missing:
        pytest.skip(made.missing)
    features = made.llvm.get_host_cpu_features()
    if not (features.get("fma") or features.get("neon")):
        pytest.skip("this processor has no fused multiply-add")
    return made


def kernel_of(op: str, dtype: DType, loop: bool = False) -> Kernel:
    b = Builder("k", f"r: {dtype.name}*, x: const {dtype.name}*")
    i = b.index()
    if not loop:
        b.store("r", i, b.op(op, b.load("x", i)))
        return b.kernel()
    total = b.var("total", b.const(0, dtype))
    k = b.range(b.const(0), b.const(1000), b.const(1))
    b.set(total, b.op("ADD", b.get(total), b.op(op, b.load("x", k))))
    b.end(k)
    b.store("r", i, b.get(total))
    return b.kernel()


@pytest.mark.parametrize(("op", "dtype"), CASES, ids=str)
def test_functions_become_vectors(llvm: LLVM, op: str, dtype: DType) -> None:
    module, _ = llvm.optimised(LLVMRenderer().render(kernel_of(op, dtype)))
    assert re.search(r"@llvm\.fma\.v\d+f(32|64)\(", str(module))
    assert not re.search(rf"@(llvm\.)?{op.lower()}f?\b", str(module))


@pytest.mark.parametrize("op", ["EXP", "SIN"])
def test_in_a_loop_they_are_called(op: str) -> None:
    assert "llvm.fma" not in LLVMRenderer().render(kernel_of(op, float32, loop=True))


@pytest.mark.parametrize(("op", "dtype"), CASES, ids=str)
def test_without_fused_multiply_add_they_are_called(op: str, dtype: DType) -> None:
    assert "llvm.fma" not in LLVMRenderer(fma=False).render(kernel_of(op, dtype))
