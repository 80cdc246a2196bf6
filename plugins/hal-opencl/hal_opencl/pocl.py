"""Renderers for PoCL, of which one works around faults of version 3."""

from __future__ import annotations

from hal_core.errors import Unsupported
from hal_kernel.ir import Kernel
from hal_kernel.ir.expand import expand
from hal_kernel.render.c.c99 import C
from hal_opencl.render import OpenCLRenderer

# Version 3.1 rounds by conversion to an int. Where its optimiser sees a constant that no int holds,
# it takes the code that follows for unreachable and drops the kernel. clang's builtins are
# right, and several times as fast. Its fabs clears a bit of an int: where the float comes from a
# load under a mask, LLVM 15 then ends the process, as below.
_BUILTINS = {
    op: f"__builtin_{name}{{f}}({{0}})"
    for op, name in {
        "FLOOR": "floor", "CEIL": "ceil", "TRUNC": "trunc", "ROUND": "rint", "ABS": "fabs",
    }.items()
}  # fmt: skip

# Where one kernel loads a float and, through its bits, the same memory as an int under one mask,
# LLVM 15 takes either vector for the other and ends the process ("Cannot select ... v8f32 = and").
# With the assumption, which is always true and is no code, the second load stays one of a float.
_BITS = {
    ("float32", "as_uint", "as_float"): ("uint", "float"),
    ("float64", "as_ulong", "as_double"): ("ulong", "double"),
}
_BITS_HELPER = """\
static inline {word} hal_{bits}({type} x) {{
    __builtin_assume(!(x * 0 > 1));
    return {bits}(x);
}}"""

# A work-item is a few blocks that follow each other along x, and threads are loops, as in C. A
# launch passes its geometry: the sizes of the block and of the grid, and the number of blocks of a
# work-item. Without blocks a work-item does nothing: such a launch only makes PoCL compile.
_FRAME = """\
__attribute__((reqd_work_group_size(1, 1, 1)))
__kernel void $name($parameters) {
    const int block_dim_x = $block_x, block_dim_y = $block_y, block_dim_z = $block_z;
    const int grid_dim_x = launch.s3, grid_dim_y = launch.s4, grid_dim_z = launch.s5;
    const int block_y = (int)get_group_id(1);
    const int block_z = (int)get_group_id(2);
    $arguments
    $shared
    const int first = (int)get_group_id(0) * launch.s6;
    const int last = launch.s6 < grid_dim_x - first ? first + launch.s6 : grid_dim_x;
    for (int block_x = first; block_x < last; ++block_x) {
        $body
    }
}
"""

# Elements by themselves: vectors are made of threads.
_ITEMS = OpenCLRenderer.row._replace(
    functions={**OpenCLRenderer.row.functions, **_BUILTINS},
    vector="",
    bits={dtype: (f"hal_{bits}", of_bits) for dtype, bits, of_bits in _BITS},
    helpers={
        f"hal_{bits}": _BITS_HELPER.format(word=word, type=type_, bits=bits)
        for (_, bits, _), (word, type_) in _BITS.items()
    },
)

_BLOCKS = _ITEMS._replace(
    frame=_FRAME,
    last_parameters=("int8 launch",),
    block_dims=("launch.s0", "launch.s1", "launch.s2"),
    block_attribute="",
    specials=C.specials,
    nodes=C.nodes,
    rows=C.rows.replace("int32_t", "int"),
    threads=C.threads.replace("int32_t", "int"),
    unroll="#pragma unroll",
    thread_number=C.thread_number,
    spill="{type} {name}[{count}];",
    wide_indices=True,
)


class ItemRenderer(OpenCLRenderer):
    """OpenCL C whose work-items are threads, with math functions written out as arithmetic.

    PoCL's own fail as its rounding does, and are slower, some of them fifty times, as the
    vectoriser takes arithmetic.
    """

    row = _ITEMS

    def _render(self, kernel: Kernel) -> str:
        return super()._render(expand(kernel))


class BlockRenderer(ItemRenderer):
    """OpenCL C 1.2 as clang takes it, whose work-items are whole blocks, with threads as loops.

    Work-items of version 3.1 that are threads have four faults. Its optimiser is told that they do
    not depend on each other, takes that for no dependence at all, and swaps one thread's own
    accesses to an element. A barrier after a thread has returned loses threads, or never ends. The
    machine code is made for one size of groups, inside the first launch that has it. And most
    arithmetic on float64 and 64-bit integers is not made into vectors.
    """

    row = _BLOCKS

    def _render(self, kernel: Kernel) -> str:
        try:
            return super()._render(kernel)
        except Unsupported:  # too much is alive across the barriers
            return ItemRenderer()._render(kernel)
