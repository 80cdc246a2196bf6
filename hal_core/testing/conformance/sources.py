"""Texts of kernels for `hal.Source`, in the languages that the kit knows."""

from __future__ import annotations

from typing import NamedTuple

import hal_core as hal
from hal_core.testing.conformance.kernels import doubled

SIGNATURE = "y: float32*, x: const float32*, n: int32"


class Texts(NamedTuple):
    """Texts that the fixture `hal_source` returns: kernels of `SIGNATURE` with a guard `i < n`."""

    language: str
    doubled: str  # kernel `doubled`: y[i] = 2 * x[i]
    broken: str  # `doubled` with a fault in it
    broken_line: int  # where the fault is, counted from 1
    two: str = ""  # kernels `doubled` and `fivefold`, y[i] = 5 * x[i]
    macro: str = ""  # kernel `doubled`: y[i] = FACTOR * x[i]
    unresolved: str = ""  # kernel `doubled`, which calls a function that does not exist

    def source(self, text: str, name: str = "doubled", **options: object) -> hal.Source:
        return hal.Source(name, text, SIGNATURE, language=self.language, **options)  # type: ignore[arg-type]


def _c_like(language: str, before: str, head: str, index: str) -> Texts:
    """Write the texts in a C-like language: `head` has a field for the name, line 3 computes."""

    def kernel(name: str, factor: str) -> str:
        return (
            f"{head.format(name=name)}\n"
            f"    int i = {index};\n"
            f"    if (i < n) y[i] = {factor} * x[i];\n"
            "}\n"
        )

    lines = before.count("\n")
    return Texts(
        language,
        before + kernel("doubled", "2"),
        before + kernel("doubled", "2 * there_is_no_such_name"),
        lines + 3,
        before + kernel("fivefold", "5") + kernel("doubled", "2"),
        before + kernel("doubled", "FACTOR"),
        before + "float nobody_has_this(float);\n" + kernel("doubled", "nobody_has_this(2)"),
    )


def texts(language: str) -> Texts | None:
    """Return the texts in a language; None if the kit does not know it."""
    from hal_core.render import PTXRenderer, UOpsRenderer

    if language == "uops":
        text = UOpsRenderer().render(doubled.lower())
        lines = text.splitlines(keepends=True)
        lines[2] = "there is no such line\n"
        return Texts("uops", text, "".join(lines), 3)
    if language == "ptx":
        text = PTXRenderer("sm_50").render(doubled.lower())  # a target old enough for every driver
        before, _, after = text.partition("ld.param")
        return Texts("ptx", text, f"{before}ld.nowhere{after}", before.count("\n") + 1)
    row = _C_LIKE.get(language)
    return None if row is None else _c_like(language, *row)


_CUDA = 'extern "C" __global__ void {name}(float *y, const float *x, int n) {{'
_C_LIKE = {
    "c": (
        "",
        "void {name}(const hal_thread *t, float *y, const float *x, int32_t n) {{",
        "hal_global_idx(t, 0)",
    ),
    "opencl": (
        "",
        "__kernel void {name}(__global float *y, __global const float *x, int n) {{",
        "get_global_id(0)",
    ),
    "cuda": ("", _CUDA, "blockIdx.x * blockDim.x + threadIdx.x"),
    "hip": (
        "#include <hip/hip_runtime.h>\n",
        _CUDA,
        "blockIdx.x * blockDim.x + threadIdx.x",
    ),
    "metal": (
        "#include <metal_stdlib>\n",
        "kernel void {name}(device float *y [[buffer(0)]], const device float *x [[buffer(1)]],"
        " constant int &n [[buffer(2)]], uint place [[thread_position_in_grid]]) {{",
        "int(place)",
    ),
}
