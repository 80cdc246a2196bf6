"""Render C99 for the CPU, in hal-cpu's calling convention."""

from __future__ import annotations

from hal_kernel.ir.blocks.interchange import at_barriers_in_step
from hal_kernel.render.c.family import CFamilyRenderer
from hal_kernel.render.c.helpers import BITS, DIVISIONS, HALF_CASTS, PLAIN_ATOMICS
from hal_kernel.render.c.language import FUNCTIONS, Language, Space
from hal_kernel.render.renderer import ByHand

# A call runs the blocks first <= block < last, in linear order with x fastest. Index arithmetic is
# signed, so that a compiler may assume no overflow (the launch checks that) and vectorise.
# gcc 12 takes the largest uint32 for the largest uint64 where both become a float32.
_CASTS = {
    "float32 from uint32": """\
{static} {float} {name}({type} x) {{
    return ({float})(int64_t)x;
}}"""
}

_FRAME = """\
void $name(const char *args, const int32_t *launch, int64_t first, int64_t last) {
    $arguments
    const int32_t grid_dim_x = launch[0], grid_dim_y = launch[1], grid_dim_z = launch[2];
    const int32_t block_dim_x = $block_x, block_dim_y = $block_y, block_dim_z = $block_z;
    $shared
    for (int64_t block = first; block < last; ++block) {
        const int32_t block_x = (int32_t)(block % grid_dim_x);
        const int32_t block_y = (int32_t)(block / grid_dim_x % grid_dim_y);
        const int32_t block_z = (int32_t)(block / grid_dim_x / grid_dim_y);
        $body
    }
}
"""

_ROWS = """\
for (int32_t thread_z = 0; thread_z < block_dim_z; ++thread_z)
for (int32_t thread_y = 0; thread_y < block_dim_y; ++thread_y) {"""
_THREADS = "for (int32_t thread_x = 0; thread_x < block_dim_x; ++thread_x) {"

# Relaxed order is enough: fences stand around a change. Compilers have no atomic minimum, maximum
# or sum of floats, so these are loops with a compare-exchange.
_BETTER = """\
{type} old = __atomic_load_n(p, __ATOMIC_RELAXED);
while (v {order} old
       && !__atomic_compare_exchange_n(p, &old, v, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {{
}}
return old;"""
_ATOMICS = {
    "ADD": "return __atomic_fetch_add(p, v, __ATOMIC_RELAXED);",
    "ADD f": """\
{type} old, sum;
__atomic_load(p, &old, __ATOMIC_RELAXED);
do {{
    sum = old + v;
}} while (!__atomic_compare_exchange(p, &old, &sum, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
return old;""",
    "MIN": _BETTER,
    "MAX": _BETTER,
    "AND": "return __atomic_fetch_and(p, v, __ATOMIC_RELAXED);",
    "OR": "return __atomic_fetch_or(p, v, __ATOMIC_RELAXED);",
    "XOR": "return __atomic_fetch_xor(p, v, __ATOMIC_RELAXED);",
    "EXCHANGE": "return __atomic_exchange_n(p, v, __ATOMIC_RELAXED);",
    "EXCHANGE f": "{type} old;\n__atomic_exchange(p, &v, &old, __ATOMIC_RELAXED);\nreturn old;",
    "LOAD": "return __atomic_load_n(p, __ATOMIC_{memory});",
    "LOAD f": "{type} v;\n__atomic_load(p, &v, __ATOMIC_{memory});\nreturn v;",
    "STORE": "__atomic_store_n(p, v, __ATOMIC_{memory});",
    "STORE f": "__atomic_store(p, &v, __ATOMIC_{memory});",
    "CAS": """\
__atomic_compare_exchange_n(p, &expected, desired, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
return expected;""",
}

# Keeps clang from making vectors of a loop that divides. Clang 22 may take the address of a whole
# vector from its first lane, which has not divided if it is not in the `if` of `x[i + a / b]`.
_APART = """{{
#if __clang_major__ > 14
    if (!__builtin_constant_p(b)) __asm__("" : "+r"(a));
#endif
"""

# In a loop clang 22 takes `x[4 * k + (i & 3)]` for neighbours in any vector of them. No grid is
# negative, which it does not know.
_LOW_BITS = """\
{static} {type} {name}({type} x, int32_t grid) {{
    (void)grid;
#if __clang_major__ > 14
    x |= ({type})(grid >> 31);
#endif
    return x;
}}"""


C = Language(
    types={
        "bool": "bool",
        **{f"{sign}int{n}": f"{sign}int{n}_t" for sign in ("", "u") for n in (8, 16, 32, 64)},
        **dict.fromkeys(("float16", "bfloat16"), "uint16_t"),
        "float32": "float",
        "float64": "double",
    },
    bool_storage="uint8_t",
    suffixes={"float32": "f", "int64": "LL", "uint32": "u", "uint64": "ULL"},
    functions=FUNCTIONS,
    specials={
        "global_idx": "block_{axis} * block_dim_{axis} + thread_{axis}",
        "block_idx": "block_{axis}",
        "thread_idx": "thread_{axis}",
        "block_dim": "block_dim_{axis}",
        "grid_dim": "grid_dim_{axis}",
    },
    bits={
        "float32": ("hal_bits_of_float32", "hal_float32_of_bits"),
        "float64": ("hal_bits_of_float64", "hal_float64_of_bits"),
    },
    helpers={
        name: BITS.format(name=name, source=source, to=to, static="static inline")
        for name, source, to in (
            ("hal_bits_of_float32", "float", "uint32_t"),
            ("hal_float32_of_bits", "uint32_t", "float"),
            ("hal_bits_of_float64", "double", "uint64_t"),
            ("hal_float64_of_bits", "uint64_t", "double"),
        )
    },
    casts={**HALF_CASTS, **_CASTS},
    divisions={op: text.replace("{{\n", _APART, 1) for op, text in DIVISIONS.items()},
    low_bits=_LOW_BITS,
    spaces={"PARAM": Space("atomic", "", _ATOMICS), "SHARED": Space("shared", "", PLAIN_ATOMICS)},
    headers={"always": "#include <stdbool.h>\n#include <stdint.h>", "math": "#include <math.h>"},
    helper="static inline",
    frame=_FRAME,
    pointer_parameter="",
    value_parameter="",
    pointer_line="{const}{type} *{name} = *({const}{type} *const *)(args + {slot});",
    value_line="const {type} {name} = *(const {type} *)(args + {slot});",
    block_dims=("launch[3]", "launch[4]", "launch[5]"),
    shared="_Alignas(64) {type} {name}[{count}];",
    barrier="",
    fence="__atomic_thread_fence(__ATOMIC_ACQ_REL);",
    rows=_ROWS,
    nodes=at_barriers_in_step,
    threads=_THREADS,
    thread_number="(thread_z * block_dim_y + thread_y) * block_dim_x + thread_x",
    wide_indices=True,
    options=("-fno-wrapv", "-fno-strict-aliasing", "-fno-math-errno", "-fno-trapping-math"),
    contract_options=("-ffp-contract=off", "-ffp-contract=fast"),
)


class CRenderer(CFamilyRenderer):
    """C99 for the CPU, in hal-cpu's calling convention. Compile it with its `options`."""

    name, language, row, subgroup = "C", "c", C, 1
    by_hand = ByHand(
        """\
void NAME(const hal_thread *t, float *y, const float *x, int32_t n) {
    int i = hal_global_idx(t, 0);
    if (i < n) y[i] = FACTOR * x[i];
}
"""
    )
