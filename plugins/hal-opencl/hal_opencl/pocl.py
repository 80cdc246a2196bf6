"""PoCL's own way with kernels: what its text has instead, and why."""

from __future__ import annotations

from hal_core.render import OpenCLRenderer

# Version 3.1 rounds by way of an int, whatever the number: where its optimiser knows one that no
# int holds, it takes the code behind for unreachable and drops the kernel. clang's own functions
# are right, and several times as fast.
_ROUNDING = {
    op: f"__builtin_{name}{{f}}({{0}})"
    for op, name in (("FLOOR", "floor"), ("CEIL", "ceil"), ("TRUNC", "trunc"), ("ROUND", "rint"))
}


class PoCLRenderer(OpenCLRenderer):
    """OpenCL C 1.2 as clang takes it."""

    row = OpenCLRenderer.row._replace(functions={**OpenCLRenderer.row.functions, **_ROUNDING})
