"""Generated kernels mean one thing in every language: rendered text against the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import run_on_lists
from builder import Builder
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from toolchains import GCC, LLVM, OpenCL, Toolchain

from hal_core.dtypes import DTYPES, DType
from hal_kernel.ir import Kernel, UOp

SIZE = 8
THREADS = 4
DTYPE_NAMES = ("int32", "uint8", "int64", "uint32", "int16")
BINARY = (
    "ADD", "SUB", "MUL", "MIN", "MAX", "FLOORDIV", "MOD", "TRUNCDIV", "TRUNCMOD", "SHL", "SHR",
    "AND", "OR", "XOR",
)  # fmt: skip


class Generator:
    """Draws a kernel over two arrays of one integer dtype, with variables, loops and branches."""

    def __init__(self, draw: st.DrawFn, dtype: DType) -> None:
        self.draw, self.dtype = draw, dtype
        self.b = Builder("generated", f"y: {dtype.name}*, x: const {dtype.name}*, a: {dtype.name}")
        self.values: list[UOp] = [self.b.cast(self.b.index(), dtype), self.b.params["a"]]
        self.variables = [self.b.var(name, self.values[0]) for name in ("p", "q")]

    def pick(self, choices: Any) -> Any:
        return self.draw(st.sampled_from(choices))

    def value(self) -> UOp:
        kind = self.draw(st.integers(0, 9))
        if kind <= 4:
            return self.pick(self.values[-6:])
        if kind == 5:
            low, high = int(self.dtype.min), int(self.dtype.max)
            near = st.integers(max(low, -9), 9) | st.sampled_from([low, high])
            return self.b.const(self.draw(near), self.dtype)
        if kind == 6:
            return self.b.load(self.pick(["x", "y"]), self.index())
        return self.b.get(self.pick(self.variables))

    def index(self) -> UOp:
        """Of the thread's own place: threads that share memory have no order."""
        offset = self.b.const(self.pick([0, THREADS]))
        return self.b.op("ADD", self.b.index(), offset)

    def condition(self) -> UOp:
        return self.b.op(self.pick(["LT", "GE", "EQ", "NE"]), self.value(), self.value())

    def statement(self, depth: int) -> None:
        kind = self.draw(st.integers(0, 9 if depth else 6))
        b = self.b
        if kind <= 2:
            self.values.append(b.op(self.pick(BINARY), self.value(), self.value()))
        elif kind == 3:
            op = self.pick(["NEG", "ABS", "NOT", "WHERE", "CAST"])
            if op == "WHERE":
                self.values.append(b.op(op, self.condition(), self.value(), self.value()))
            elif op == "CAST":
                other = DTYPES[self.pick(DTYPE_NAMES)]
                self.values.append(b.cast(b.cast(self.value(), other), self.dtype))
            else:
                self.values.append(b.op(op, self.value()))
        elif kind <= 5:
            b.set(self.pick(self.variables), self.value())
        elif kind == 6:
            value = self.value()
            b.store("y", self.index(), value)
        elif kind <= 8:
            branch = b.if_(self.condition())
            self.body(depth - 1)
            if self.draw(st.booleans()):
                b.else_(branch)
                self.body(depth - 1)
            b.end(branch)
        else:
            step = self.pick([1, 2, 3] if self.dtype.kind == "u" else [1, 2, -1, -3])
            ends = [b.const(self.draw(st.integers(0, 6)), self.dtype) for _ in range(2)]
            loop = b.range(*ends, b.const(step, self.dtype))
            self.body(depth - 1, loop)
            b.end(loop)

    def body(self, depth: int, *counter: UOp) -> None:
        outer = list(self.values)
        self.values += counter
        for _ in range(self.draw(st.integers(1, 4))):
            self.statement(depth)
        self.values = outer  # what was computed in a block stays there

    def kernel(self) -> Kernel:
        for _ in range(self.draw(st.integers(2, 8))):
            self.statement(depth=3)
        for variable, offset in zip(self.variables, (0, THREADS), strict=True):
            place = self.b.op("ADD", self.b.index(), self.b.const(offset))
            old = self.b.load("y", place)
            self.b.store("y", place, self.b.op("XOR", old, self.b.get(variable)))
        return self.b.kernel(block=self.pick([None, (2, 1, 1)]))


@st.composite
def cases(draw: st.DrawFn) -> tuple[Kernel, dict[str, Any]]:
    dtype = DTYPES[draw(st.sampled_from(DTYPE_NAMES))]
    kernel = Generator(draw, dtype).kernel()
    number = st.integers(int(dtype.min), int(dtype.max)) | st.integers(0, 9)
    row = st.lists(number, min_size=SIZE, max_size=SIZE)
    return kernel, {"y": draw(row), "x": draw(row), "a": draw(number)}


@pytest.mark.parametrize(("made", "examples"), [(LLVM, 50), (GCC, 15), (OpenCL, 8)])
def test_generated_kernels(
    made: type[Toolchain], examples: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    toolchain = made(tmp_path_factory.mktemp("generated"))
    if toolchain.missing:
        pytest.skip(toolchain.missing)

    @settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        phases=(Phase.generate,),  # a failure is reported with its text; shrinking costs minutes
        suppress_health_check=list(HealthCheck),
    )
    @given(cases())
    def check(case: tuple[Kernel, dict[str, Any]]) -> None:
        kernel, values = case
        dtype = kernel.signature.params[0].dtype.to_numpy()
        arrays = {name: np.array(values[name], dtype) for name in ("y", "x")}
        toolchain.run(kernel, {**arrays, "a": values["a"]}, (2, 1, 1), (2, 1, 1))
        expected = [list(values["y"]), list(values["x"]), values["a"]]
        run_on_lists.run(kernel, expected, THREADS)
        assert arrays["y"].tolist() == expected[0], toolchain.renderer.render(kernel)

    check()
