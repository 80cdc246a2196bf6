"""On the CPU math functions are formulas where LLVM makes vectors of them, else calls."""

from __future__ import annotations

import re

import pytest
from builder import Builder
from toolchains import LLVM

from hal_core.dtypes import DType, float32, float64
from hal_core.ir import Kernel
from hal_core.render import LLVMRenderer

OPS = ["EXP", "EXP2", "LOG", "LOG2", "TANH", "ATAN", "SIN", "COS", "TAN", "POW", "FMOD"]
CASES = [(op, dtype) for op in OPS for dtype in (float32, float64)]
VECTORS = [case for case in CASES if case != ("FMOD", float64)]  # which has a loop for far numbers


@pytest.fixture(scope="module")
def llvm(tmp_path_factory: pytest.TempPathFactory) -> LLVM:
    made = LLVM(tmp_path_factory.mktemp("llvm"))
    if made.missing:
        pytest.skip(made.missing)
    features = made.llvm.get_host_cpu_features()
    if not (features.get("fma") or features.get("neon")):
        pytest.skip("this processor has no fused multiply-add")
    return made


def kernel_of(op: str, dtype: DType, turns: str = "") -> Kernel:
    """Once, or in a loop whose turns are "same" for all threads, or each thread's "own"."""
    b = Builder("k", f"r: {dtype.name}*, x: const {dtype.name}*")
    i = b.index()
    if not turns:
        given = [b.load("x", i) for _ in range(1 + (op in ("POW", "FMOD")))]
        b.store("r", i, b.op(op, *given))
        return b.kernel()
    total = b.var("total", b.const(0, dtype))
    stop = b.const(1000) if turns == "same" else i
    k = b.range(b.const(0), stop, b.const(1))
    b.set(total, b.op("ADD", b.get(total), b.op(op, b.load("x", b.op("ADD", k, i)))))
    b.end(k)
    b.store("r", i, b.get(total))
    return b.kernel()


@pytest.mark.parametrize(("op", "dtype"), VECTORS, ids=str)
def test_functions_become_vectors(llvm: LLVM, op: str, dtype: DType) -> None:
    module, _ = llvm.optimised(LLVMRenderer().render(kernel_of(op, dtype)))
    assert re.search(r"@llvm\.fma\.v\d+f(32|64)\(", str(module))
    assert not re.search(rf"@(llvm\.)?{op.lower()}f?\b", str(module))


@pytest.mark.parametrize("op", ["EXP", "SIN"])
def test_in_a_loop_of_each_thread_they_are_called(op: str) -> None:
    assert "llvm.fma" not in LLVMRenderer().render(kernel_of(op, float32, "own"))


@pytest.mark.parametrize("op", ["EXP", "SIN"])
def test_in_a_loop_that_threads_run_in_step_they_become_vectors(llvm: LLVM, op: str) -> None:
    module, _ = llvm.optimised(LLVMRenderer().render(kernel_of(op, float32, "same")))
    assert re.search(r"@llvm\.fma\.v\d+f(32|64)\(", str(module))


@pytest.mark.parametrize(("op", "dtype"), CASES, ids=str)
def test_without_fused_multiply_add_they_are_called(op: str, dtype: DType) -> None:
    assert "llvm.fma" not in LLVMRenderer(fma=False).render(kernel_of(op, dtype))
