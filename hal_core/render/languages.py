"""The languages of the C family, a row of data each. `cfamily.py` is the one engine behind them.

Templates: `{0}`, `{1}` are operands, `{f}` the suffix of a float function or literal, `{axis}` is
x, y or z and `{dim}` the same as 0, 1 or 2. In a frame `$name` stands for text, a line of its own
that is `$body`, `$arguments`, `$attributes` or `$independent` for any number of lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Language(NamedTuple):
    """What differs between one language of the C family and the next."""

    types: Mapping[str, str]  # dtype name -> type of a value
    bool_storage: str  # type of a bool in memory and as an argument
    suffixes: Mapping[str, str]  # dtype name -> suffix of its literals
    functions: Mapping[str, str]  # op -> call
    specials: Mapping[str, str]  # kind of special index -> expression
    headers: Mapping[str, str]  # feature -> line; "always", "math", "float64", "no contract"
    helper: str  # what stands before a helper function
    keywords: frozenset[str]  # beyond those of C and what the templates use
    frame: str  # the whole kernel around its body
    pointer_parameter: str  # in the kernel's head; "" for none
    value_parameter: str
    pointer_line: str  # makes the element pointer, at the top of the kernel; "" for none
    value_line: str
    block_attribute: str  # for a kernel that fixes its block; {x}, {y}, {z}, {threads}
    block_dims: tuple[str, str, str]  # for one that does not; what $block_x and so on stand for
    wide_indices: bool  # computes `x[i * w + j]` in 64 bits; costs nothing on a CPU only
    independent: str  # before the loop over x, where threads may be interleaved; "" for no loop
    options: tuple[str, ...]  # compiler options that belong to the text
    contract_options: tuple[str, str]  # contraction forbidden, allowed; "" for none


_FUNCTIONS = {
    "SQRT": "sqrt{f}({0})",
    "RSQRT": "(1.0{f} / sqrt{f}({0}))",
    "EXP": "exp{f}({0})",
    "EXP2": "exp2{f}({0})",
    "LOG": "log{f}({0})",
    "LOG2": "log2{f}({0})",
    "SIN": "sin{f}({0})",
    "COS": "cos{f}({0})",
    "TAN": "tan{f}({0})",
    "TANH": "tanh{f}({0})",
    "ATAN": "atan{f}({0})",
    "FLOOR": "floor{f}({0})",
    "CEIL": "ceil{f}({0})",
    "TRUNC": "trunc{f}({0})",
    "ROUND": "rint{f}({0})",
    "ABS": "fabs{f}({0})",
    "POW": "pow{f}({0}, {1})",
    "ATAN2": "atan2{f}({0}, {1})",
    "FMOD": "fmod{f}({0}, {1})",
    "FMA": "fma{f}({0}, {1}, {2})",
}

# The calling convention of hal-cpu: blocks first <= block < last in linear order, x fastest, each
# thread of a block one turn of the loops. Index arithmetic is signed, so that a compiler may take
# it not to overflow (the launch checks that) and vectorise.
_C_FRAME = """\
void $name(const char *args, const int32_t *launch, int64_t first, int64_t last) {
    $arguments
    const int32_t grid_dim_x = launch[0], grid_dim_y = launch[1], grid_dim_z = launch[2];
    const int32_t block_dim_x = $block_x, block_dim_y = $block_y, block_dim_z = $block_z;
    for (int64_t block = first; block < last; ++block) {
        const int32_t block_x = (int32_t)(block % grid_dim_x);
        const int32_t block_y = (int32_t)(block / grid_dim_x % grid_dim_y);
        const int32_t block_z = (int32_t)(block / grid_dim_x / grid_dim_y);
        for (int32_t thread_z = 0; thread_z < block_dim_z; ++thread_z)
        for (int32_t thread_y = 0; thread_y < block_dim_y; ++thread_y)
        $independent
        for (int32_t thread_x = 0; thread_x < block_dim_x; ++thread_x) {
            $body
        }
    }
}
"""

C = Language(
    types={
        "bool": "bool",
        "int8": "int8_t",
        "int16": "int16_t",
        "int32": "int32_t",
        "int64": "int64_t",
        "uint8": "uint8_t",
        "uint16": "uint16_t",
        "uint32": "uint32_t",
        "uint64": "uint64_t",
        "float32": "float",
        "float64": "double",
    },
    bool_storage="uint8_t",
    suffixes={"float32": "f", "int64": "LL", "uint32": "u", "uint64": "ULL"},
    functions=_FUNCTIONS,
    specials={
        "global_idx": "block_{axis} * block_dim_{axis} + thread_{axis}",
        "block_idx": "block_{axis}",
        "thread_idx": "thread_{axis}",
        "block_dim": "block_dim_{axis}",
        "grid_dim": "grid_dim_{axis}",
    },
    headers={"always": "#include <stdbool.h>\n#include <stdint.h>", "math": "#include <math.h>"},
    helper="static inline",
    keywords=frozenset(),
    frame=_C_FRAME,
    pointer_parameter="",
    value_parameter="",
    pointer_line="{const}{type} *{name} = *({const}{type} *const *)(args + {slot});",
    value_line="const {type} {name} = *(const {type} *)(args + {slot});",
    block_attribute="",
    block_dims=("launch[3]", "launch[4]", "launch[5]"),
    wide_indices=True,
    independent="#pragma GCC ivdep",
    options=("-fno-wrapv", "-fno-strict-aliasing", "-fno-math-errno", "-fno-trapping-math"),
    contract_options=("-ffp-contract=off", "-ffp-contract=fast"),
)

_OPENCL_FRAME = """\
$attributes
__kernel void $name($parameters) {
    $arguments
    $body
}
"""

# OpenCL's functions are overloaded: no suffix for float.
_OPENCL_FUNCTIONS = {op: call.replace("{f}(", "(") for op, call in _FUNCTIONS.items()}

_OPENCL_KEYWORDS = frozenset(
    """
    kernel global local constant private generic read_only write_only read_write uniform pipe
    half uchar ushort uint ulong size_t ptrdiff_t intptr_t uintptr_t event_t sampler_t queue_t
    ndrange_t clk_event_t reserve_id_t quad complex imaginary image1d_t image2d_t image3d_t
    vec_step atomic_int atomic_uint atomic_long atomic_ulong atomic_float atomic_double atomic_flag
    memory_order memory_scope memory_order_relaxed memory_order_acquire memory_order_release
    memory_order_acq_rel memory_order_seq_cst
    """.split()  # noqa: SIM905 - words read better so
) | {
    f"{element}{width}"
    for element in (
        "char", "uchar", "short", "ushort", "int", "uint", "long", "ulong", "float", "double",
        "half", "bool",
    )
    for width in (2, 3, 4, 8, 16)
}  # fmt: skip

OPENCL = Language(
    types={
        "bool": "bool",
        "int8": "char",
        "int16": "short",
        "int32": "int",
        "int64": "long",
        "uint8": "uchar",
        "uint16": "ushort",
        "uint32": "uint",
        "uint64": "ulong",
        "float32": "float",
        "float64": "double",
    },
    bool_storage="uchar",
    suffixes={"float32": "f", "int64": "L", "uint32": "u", "uint64": "UL"},
    functions={**_OPENCL_FUNCTIONS, "RSQRT": "rsqrt({0})"},
    specials={
        "global_idx": "(int)get_global_id({dim})",
        "block_idx": "(int)get_group_id({dim})",
        "thread_idx": "(int)get_local_id({dim})",
        "block_dim": "(int)get_local_size({dim})",
        "grid_dim": "(int)get_num_groups({dim})",
    },
    headers={
        "float64": "#pragma OPENCL EXTENSION cl_khr_fp64 : enable",
        "no contract": "#pragma OPENCL FP_CONTRACT OFF",
    },
    helper="static inline",
    keywords=_OPENCL_KEYWORDS,
    frame=_OPENCL_FRAME,
    # A view of a buffer is a base and an offset: sub-buffers need alignment and cannot nest.
    pointer_parameter="__global {const}{type} *{base}, long {offset}",
    value_parameter="{type} {name}",
    pointer_line=(
        "__global {const}{type} *{name} = "
        "(__global {const}{type} *)((__global {const}char *){base} + {offset});"
    ),
    value_line="",
    block_attribute="__attribute__((reqd_work_group_size({x}, {y}, {z})))",
    block_dims=("", "", ""),
    wide_indices=False,
    independent="",
    options=(),
    contract_options=("", ""),
)
