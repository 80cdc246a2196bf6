"""Render the Metal shading language, which has no float64 and no 64-bit atomics.

Source: Metal Shading Language Specification, Apple.
"""

from __future__ import annotations

from hal_core.dtypes import float64
from hal_core.errors import Unsupported
from hal_kernel.ir import Kernel
from hal_kernel.ir.reserved import METAL_WORDS
from hal_kernel.ir.uop import is_fence
from hal_kernel.render.c.family import CFamilyRenderer
from hal_kernel.render.c.helpers import BFLOAT16_CASTS
from hal_kernel.render.c.language import FUNCTIONS, TYPES, Language, Space
from hal_kernel.render.renderer import ByHand

_FRAME = """\
$attributeskernel void $name($parameters) {
    $arguments
    $shared
    $body
}
"""

_BUFFERS = 31  # the most arguments that may be buffers
_PLACES = {
    "global_idx": ("global_id", "thread_position_in_grid"),
    "block_idx": ("block_id", "threadgroup_position_in_grid"),
    "thread_idx": ("thread_id", "thread_position_in_threadgroup"),
    "block_dim": ("block_size", "threads_per_threadgroup"),
    "grid_dim": ("grid_size", "threadgroups_per_grid"),
}
_SUBGROUP = {
    "subgroup_size": ("simd_size", "threads_per_simdgroup"),
    "subgroup_idx": ("simd_id", "simdgroup_index_in_threadgroup"),
    "subgroup_lane": ("simd_lane", "thread_index_in_simdgroup"),
}

# A weak compare-exchange may fail although the value is the expected one: then it is repeated.
_FLOAT_ADD = """\
{space}atomic_uint *bits = ({space}atomic_uint *)p;
uint old = atomic_load_explicit(bits, memory_order_relaxed);
while (!atomic_compare_exchange_weak_explicit(
    bits, &old, as_type<uint>(as_type<float>(old) + v),
    memory_order_relaxed, memory_order_relaxed)) {{
}}
return as_type<float>(old);"""
_CAS = """\
{type} seen = expected;
while (!atomic_compare_exchange_weak_explicit(
           ({space}atomic_{type} *)p, &seen, desired, memory_order_relaxed, memory_order_relaxed)
       && seen == expected) {{
}}
return seen;"""


def _space(name: str, qualifier: str) -> Space:
    bodies = {"ADD float32": _FLOAT_ADD}
    floats = "float32", "uint", "as_type<float>(v)", "as_type<uint>(v)"
    for dtype, bits, value, given in (("int32", "int", *"vv"), ("uint32", "uint", *"vv"), floats):
        bodies[f"LOAD {dtype}"] = (
            f"const {bits} v = atomic_load_explicit(\n"
            f"    (const {{space}}atomic_{bits} *)p, memory_order_relaxed);\n"
            f"{{fence}}return {value};"
        )
        bodies[f"STORE {dtype}"] = (
            f"{{fence}}atomic_store_explicit(\n    ({{space}}atomic_{bits} *)p, "
            f"{given}, memory_order_relaxed);"
        )
    for dtype in ("int32", "uint32"):
        for op in ("ADD", "MIN", "MAX", "AND", "OR", "XOR"):
            bodies[f"{op} {dtype}"] = (
                f"return atomic_fetch_{op.lower()}_explicit("
                "({space}atomic_{type} *)p, v, memory_order_relaxed);"
            )
        bodies[f"EXCHANGE {dtype}"] = (
            "return atomic_exchange_explicit(({space}atomic_{type} *)p, v, memory_order_relaxed);"
        )
        bodies[f"CAS {dtype}"] = _CAS
    bodies["EXCHANGE float32"] = (
        "return as_type<float>(atomic_exchange_explicit(\n"
        "    ({space}atomic_uint *)p, as_type<uint>(v), memory_order_relaxed));"
    )
    return Space(name, qualifier, bodies)


METAL = Language(
    types=TYPES | {"float16": "half"},
    bool_storage="uchar",
    suffixes={"float32": "f", "int64": "L", "uint32": "u", "uint64": "UL"},
    # Without `precise::` a compiler option can select the fast, less accurate functions.
    functions={
        op: "precise::" + call.replace("{f}(", "(")
        for op, call in {**FUNCTIONS, "RSQRT": "rsqrt({0})"}.items()
    },
    specials={
        **{kind: f"(int){name}.{{axis}}" for kind, (name, _) in _PLACES.items()},
        **{kind: f"(int){name}" for kind, (name, _) in _SUBGROUP.items()},
    },
    last_parameters=tuple(f"uint3 {name} [[{place}]]" for name, place in _PLACES.values()),
    subgroup_parameters=tuple(f"uint {name} [[{place}]]" for name, place in _SUBGROUP.values()),
    bits={
        "float16": ("as_type<ushort>", "hal_float16_of_bits"),
        "float32": ("as_type<uint>", "as_type<float>"),
    },
    # The operand of `as_type` has the size of its result, and `ushort ^ ushort` is an int.
    helpers={
        "hal_float16_of_bits": "static inline half hal_float16_of_bits(ushort bits) {\n"
        "    return as_type<half>(bits);\n}"
    },
    casts=BFLOAT16_CASTS,
    spaces={
        "PARAM": _space("atomic_device", "device "),
        "SHARED": _space("atomic_threadgroup", "threadgroup "),
    },
    headers={
        "always": "#include <metal_stdlib>\nusing namespace metal;",
        # Compilers older than Xcode 16 know the second form only.
        "no contract": "#pragma METAL fp contract(off)\n#pragma STDC FP_CONTRACT OFF",
    },
    helper="static inline",
    keywords=METAL_WORDS,
    frame=_FRAME,
    # The offset of a view is given when its buffer is bound, so there is no parameter for it.
    # Pointers take the first places of buffers, and all values the next.
    pointer_parameter="device {const}{element} *{name} [[buffer({buffer})]]",
    value_parameter="",
    value_line="const {type} {name} = {values}.{name};",
    packed="struct {type} {{\n{fields}\n}};",
    packed_field="    {type} {name};",
    packed_parameter="constant {type} &{name} [[buffer({buffer})]]",
    alias="typedef {type} {alias} __attribute__((may_alias));",
    block_attribute="[[max_total_threads_per_threadgroup({threads})]]\n",
    vector="struct alignas({nbytes}) {name} {{ {type} v[{count}]; }};",
    table="constant {type} {name}[{count}] = {{{values}}};",
    shared="alignas(16) threadgroup {type} {name}[{count}];",
    barrier="threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);",
    # Between blocks only from Metal 3.2 on; older ones have no function of this name.
    fence=(
        "atomic_thread_fence(mem_flags::mem_device | mem_flags::mem_threadgroup, "
        "memory_order_seq_cst, thread_scope_device);"
    ),
    shuffle=(
        "simd_shuffle({0}, (ushort){1})",
        "as_type<{type}>(simd_shuffle(as_type<uint2>({0}), (ushort){1}))",
    ),
    ballot="(ulong)(simd_vote::vote_t)simd_ballot({0})",
    options=("-fno-fast-math",),
)

# What one block writes, another sees in memory of this kind only, whatever fences they have.
# Source: section 4.8, of Metal 3.2 as device-wide fences are.
_COHERENT = "coherent(device) device "
FENCED = METAL._replace(
    pointer_parameter=METAL.pointer_parameter.replace("device ", _COHERENT, 1),
    spaces={**METAL.spaces, "PARAM": _space("atomic_device", _COHERENT)},
)


class MetalRenderer(CFamilyRenderer):
    """The Metal shading language. Compile it with fast math off."""

    name, language, row = "Metal", "metal", METAL
    by_hand = ByHand(
        """\
kernel void NAME(device float *y [[buffer(0)]], const device float *x [[buffer(1)]],
        constant int &n [[buffer(2)]], uint place [[thread_position_in_grid]]) {
    int i = int(place);
    if (i < n) y[i] = FACTOR * x[i];
}
""",
        "#include <metal_stdlib>\n",
        images={
            kind: f"""\
kernel void NAME(metal::texture2d<{type}, metal::access::read> x [[texture(0)]],
        metal::texture2d<{type}, metal::access::write> y [[texture(1)]],
        uint2 at [[thread_position_in_grid]]) {{
    y.write(FACTOR * x.read(at), at);
}}
"""
            for kind, type in {"f": "float", "i": "int", "u": "uint"}.items()
        },
    )
    dtypes = CFamilyRenderer.dtypes - {float64}

    def _row(self, kernel: Kernel) -> Language:
        return FENCED if any(map(is_fence, kernel.uops)) else METAL

    def _check(self, kernel: Kernel) -> None:
        super()._check(kernel)
        signature = kernel.signature
        places = len(signature.pointers) + bool(signature.values)
        if places > _BUFFERS:
            raise Unsupported(
                f"render kernel {kernel.name!r} as Metal",
                "too many buffers, among which all values together count as one",
                got=places,
                limit=_BUFFERS,
                fix="Put several arrays into one buffer.",
            )
