"""Render OpenCL C 1.2."""

from __future__ import annotations

from hal_kernel.ir.reserved import OPENCL_WORDS
from hal_kernel.render.c.family import CFamilyRenderer
from hal_kernel.render.c.helpers import BFLOAT16_CASTS, VOLATILE
from hal_kernel.render.c.language import FUNCTIONS, TYPES, Language, Space
from hal_kernel.render.renderer import ByHand

_FRAME = """\
$attributes__kernel void $name($parameters) {
    $arguments
    $shared
    $body
}
"""

# OpenCL's functions are overloaded: no suffix for float.
_FUNCTIONS = {op: call.replace("{f}(", "(") for op, call in FUNCTIONS.items()}

# Devices without half arithmetic allow pointers to `half` only, and vload_half, vstore_half.
_HALF_CASTS = {
    "float32 from float16": """\
{static} {float} {name}({type} x) {{
    return vload_half(0, (const __private half *)&x);
}}""",
    "float16 from float32": """\
{static} {type} {name}({float} x) {{
    {type} y;
    vstore_half_rte(x, 0, (__private half *)&y);
    return y;
}}""",
}

# A plain load would race, so the first compare-exchange guesses 0, and returns the true value.
_FLOAT_ADD = """\
volatile {space}{uint} *bits = (volatile {space}{uint} *)p;
{uint} old, seen = 0;
do {{
    old = seen;
    seen = %s_cmpxchg(bits, old, {bits}({of_bits}(old) + v));
}} while (seen != old);
return {of_bits}(old);"""


_CALLS = {
    "ADD": "add", "MIN": "min", "MAX": "max", "AND": "and", "OR": "or", "XOR": "xor",
    "EXCHANGE": "xchg",
}  # fmt: skip


def _space(name: str, qualifier: str) -> Space:
    """Return the atomics of a memory: `atomic_...` for 32 bits, `atom_...` for 64 (extensions)."""
    bodies: dict[str, str] = {}
    for width, stem in ((32, "atomic"), (64, "atom")):
        for kind in ("int", "uint"):
            bodies |= {f"{op} {kind}{width}": body for op, body in VOLATILE.items()}
            for op, call in _CALLS.items():
                bodies[f"{op} {kind}{width}"] = f"return {stem}_{call}(p, v);"
            bodies[f"CAS {kind}{width}"] = f"return {stem}_cmpxchg(p, expected, desired);"
        bodies |= {f"{op} float{width}": body for op, body in VOLATILE.items()}
        bodies[f"ADD float{width}"] = _FLOAT_ADD % stem
        bodies[f"EXCHANGE float{width}"] = (
            f"return {{of_bits}}({stem}_xchg((volatile {{space}}{{uint}} *)p, {{bits}}(v)));"
        )
    return Space(name, qualifier, bodies)


OPENCL = Language(
    types=TYPES | {"float64": "double"},
    bool_storage="uchar",
    suffixes={"float32": "f", "int64": "L", "uint32": "u", "uint64": "UL"},
    # INFINITY and NAN are floats, and no overload matches a call as fma(double, float, double).
    infinities={"float64": ("(double)INFINITY", "(double)NAN")},
    functions={**_FUNCTIONS, "RSQRT": "rsqrt({0})"},
    specials={
        "global_idx": "(int)get_global_id({dim})",
        "block_idx": "(int)get_group_id({dim})",
        "thread_idx": "(int)get_local_id({dim})",
        "block_dim": "(int)get_local_size({dim})",
        "grid_dim": "(int)get_num_groups({dim})",
        "subgroup_size": "(int)get_max_sub_group_size()",
        "subgroup_idx": "(int)get_sub_group_id()",
        "subgroup_lane": "(int)get_sub_group_local_id()",
    },
    bits={"float32": ("as_uint", "as_float"), "float64": ("as_ulong", "as_double")},
    casts={**BFLOAT16_CASTS, **_HALF_CASTS},
    spaces={
        "PARAM": _space("atomic_global", "__global "),
        "SHARED": _space("atomic_local", "__local "),
    },
    headers={
        "float64": "#pragma OPENCL EXTENSION cl_khr_fp64 : enable",
        "atomic64": (
            "#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable\n"
            "#pragma OPENCL EXTENSION cl_khr_int64_extended_atomics : enable"
        ),
        "subgroups": "#pragma OPENCL EXTENSION cl_khr_subgroups : enable",
        "no contract": "#pragma OPENCL FP_CONTRACT OFF",
    },
    helper="static inline",
    keywords=OPENCL_WORDS,
    frame=_FRAME,
    # A view of a buffer is a base and an offset: sub-buffers need alignment and cannot nest.
    pointer_parameter="__global {const}{type} *{base}, long {offset}",
    value_parameter="{type} {name}",
    pointer_line=(
        "__global {const}{element} *{name} = "
        "(__global {const}{element} *)((__global {const}char *){base} + {offset});"
    ),
    alias="typedef {type} {alias} __attribute__((may_alias));",
    block_attribute="__attribute__((reqd_work_group_size({x}, {y}, {z})))\n",
    vector="typedef struct {{ {type} v[{count}]; }} __attribute__((aligned({nbytes}))) {name};",
    table="__constant {type} {name}[{count}] = {{{values}}};",
    shared="__local {type} {name}[{count}] __attribute__((aligned(16)));",
    barrier="barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);",
    fence="mem_fence(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);",
    shuffle=("sub_group_shuffle({0}, (uint){1})",) * 2,
    ballot="as_ulong(sub_group_ballot({0}).xy)",
)


class OpenCLRenderer(CFamilyRenderer):
    """OpenCL C 1.2."""

    name, language, row = "OpenCL C", "opencl", OPENCL
    by_hand = ByHand(
        """\
__kernel void NAME(__global float *y, __global const float *x, int n) {
    int i = get_global_id(0);
    if (i < n) y[i] = FACTOR * x[i];
}
""",
        images={
            kind: f"""\
__kernel void NAME(__read_only image2d_t x, __write_only image2d_t y) {{
    int2 at = (int2)(get_global_id(0), get_global_id(1));
    write_image{type}(y, at, FACTOR * read_image{type}(x, at));
}}
"""
            for kind, type in {"f": "f", "i": "i", "u": "ui"}.items()
        },
    )
