"""PoCL's own way with kernels: what its text has instead, and why."""

from __future__ import annotations

from hal_core.errors import Unsupported
from hal_core.ir import Kernel
from hal_core.ir.blocks.independence import stores_last
from hal_core.ir.expand import expand
from hal_core.render import OpenCLRenderer
from hal_core.render.c.c99 import C

# Version 3.1 rounds by way of an int, whatever the number: where its optimiser knows one that no
# int holds, it takes the code behind for unreachable and drops the kernel. clang's own functions
# are right, and several times as fast.
_ROUNDING = {
    op: f"__builtin_{name}{{f}}({{0}})"
    for op, name in (("FLOOR", "floor"), ("CEIL", "ceil"), ("TRUNC", "trunc"), ("ROUND", "rint"))
}

# A work-item is a block here, and its threads are loops, as in C. The launch tells their number.
_BLOCK_FRAME = """\
__attribute__((reqd_work_group_size(1, 1, 1)))
__kernel void $name($parameters) {
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

_ROW = OpenCLRenderer.row._replace(functions={**OpenCLRenderer.row.functions, **_ROUNDING})

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
    """OpenCL C 1.2 as clang takes it.

    Version 3.1 tells its optimiser that work-items do not depend on each other, and that takes it
    for no dependence at all: it swaps one thread's own accesses to an element. Its way of meeting
    at barriers loses threads that return, or never ends. So only kernels that load first and then
    store, once, have threads that are work-items. In the others these are loops.
    """

    row = _ROW

    def _render(self, kernel: Kernel) -> str:
        # Its math functions fail as its rounding does, and written out they are faster, some fifty
        # times.
        kernel = expand(kernel)
        plain = stores_last(kernel.uops) and all(node.op != "BARRIER" for node in kernel.uops)
        if not plain:
            try:
                return _BlockRenderer()._render(kernel)
            except Unsupported:  # too much lives across its barriers
                pass
        return super()._render(kernel)


class _BlockRenderer(OpenCLRenderer):
    row = _BLOCKS
