"""A renderer for PoCL that works around faults of version 3.1."""

from __future__ import annotations

from contextlib import suppress

from hal_core.errors import Unsupported
from hal_core.ir import Kernel
from hal_core.ir.blocks.group_tests import add_group_tests
from hal_core.ir.blocks.independence import stores_last
from hal_core.ir.expand import expand
from hal_core.render import OpenCLRenderer
from hal_core.render.c.c99 import C

# Version 3.1 rounds by conversion to an int. Where its optimiser sees a constant that no int holds,
# it takes the code that follows for unreachable and drops the kernel. clang's builtins are
# right, and several times as fast.
_ROUNDING = {
    op: f"__builtin_{name}{{f}}({{0}})"
    for op, name in (("FLOOR", "floor"), ("CEIL", "ceil"), ("TRUNC", "trunc"), ("ROUND", "rint"))
}

# A work-item is a block here, and its threads are loops, as in C. The launch passes their counts.
# A block of no threads does nothing: launched, it makes PoCL compile.
_BLOCK_FRAME = """\
__attribute__((reqd_work_group_size(1, 1, 1)))
__kernel void $name($parameters) {
    if (launch_x == 0) return;
    const int block_dim_x = $block_x, block_dim_y = $block_y, block_dim_z = $block_z;
    const int block_x = (int)get_group_id(0);
    const int block_y = (int)get_group_id(1);
    const int block_z = (int)get_group_id(2);
    const int grid_dim_x = (int)get_num_groups(0);
    const int grid_dim_y = (int)get_num_groups(1);
    const int grid_dim_z = (int)get_num_groups(2);
    $arguments
    $shared
    do {
        $body
    } while (0);
}
"""

# Elements by themselves: clang makes vectors of the loops over threads.
_ROW = OpenCLRenderer.row._replace(
    functions={**OpenCLRenderer.row.functions, **_ROUNDING}, vector=""
)

_BLOCKS = _ROW._replace(
    frame=_BLOCK_FRAME,
    last_parameters=("int launch_x", "int launch_y", "int launch_z"),
    block_dims=("launch_x", "launch_y", "launch_z"),
    block_attribute="",
    specials=C.specials,
    threads=C.threads.replace("int32_t", "int"),
    independent="#pragma clang loop vectorize(assume_safety)",
    thread_number=C.thread_number,
    spill="{type} {name}[{count}];",
)


class PoCLRenderer(OpenCLRenderer):
    """OpenCL C 1.2 as clang takes it, with threads as work-items or as loops.

    Version 3.1 tells its optimiser that work-items do not depend on each other. The optimiser takes
    that for no dependence at all, and swaps one thread's own accesses to an element. A barrier
    after a thread has returned loses threads, or never ends. So threads are work-items only in
    kernels without barriers that load first and then store once. In all others a work-item runs a
    whole block, with its threads as loops.
    """

    row = _ROW

    def _render(self, kernel: Kernel) -> str:
        # PoCL's math functions fail as its rounding does. Written out as arithmetic they are right,
        # and faster, some of them fifty times, as the vectoriser takes arithmetic.
        kernel = expand(kernel)
        if not stores_last(kernel.uops) or any(node.op == "BARRIER" for node in kernel.uops):
            # Unsupported: too much is alive across the barriers. Then threads are work-items.
            with suppress(Unsupported):
                return _BlockRenderer()._render(kernel)
        return super()._render(add_group_tests(kernel))


class _BlockRenderer(OpenCLRenderer):
    """OpenCL C whose work-items are whole blocks."""

    row = _BLOCKS
