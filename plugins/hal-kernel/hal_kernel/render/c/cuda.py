"""Render CUDA C++ that NVRTC compiles without any header."""

from __future__ import annotations

from hal_kernel.ir import Kernel
from hal_kernel.ir.reserved import CUDA_WORDS
from hal_kernel.render.c.family import CFamilyRenderer
from hal_kernel.render.c.helpers import BFLOAT16_CASTS, VOLATILE
from hal_kernel.render.c.language import FUNCTIONS, Language, Space
from hal_kernel.render.renderer import MOST_STATIC_NBYTES, ByHand

FRAME = """\
extern "C" __global__ void $attributes$name($parameters) {
    $arguments
    $shared
    $body
}
"""

TYPES = {
    "bool": "bool",
    "int8": "signed char",
    "int16": "short",
    "int32": "int",
    "int64": "long long",
    "uint8": "unsigned char",
    "uint16": "unsigned short",
    "uint32": "unsigned int",
    "uint64": "unsigned long long",
    "float16": "unsigned short",
    "bfloat16": "unsigned short",
    "float32": "float",
    "float64": "double",
}

# The GPU converts float16 in one instruction; .rn rounds half to even.
_HALF_CASTS = {
    "float32 from float16": """\
{static} {float} {name}({type} x) {{
    {float} y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
    return y;
}}""",
    "float16 from float32": """\
{static} {type} {name}({float} x) {{
    {type} y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
}}""",
}

# Compilers make one instruction of `x < 0.0f ? x : 0.0f`, which takes 0.0 for larger than -0.0.
# NVRTC 13 makes a zero of `0.0f / (float)n * 0.0f`, which is a NaN where `n` is 0.
# Through `asm` they see no zero.
_HIDDEN = {
    dtype: f"""\
{{static}} {TYPES[dtype]} {{name}}({TYPES[dtype]} x) {{{{
    asm("" : "+{letter}"(x));
    return x;
}}}}"""
    for dtype, letter in (("float32", "f"), ("float64", "d"))
}

# CUDA has add, and, or, xor, exchange and compare-exchange of 64 bits for unsigned numbers only. It
# adds doubles from sm_60 on only, so all devices get a loop.
ATOMICS = {
    **{
        op: f"return atomic{op.capitalize()}(p, v);"
        for op in ("ADD", "MIN", "MAX", "AND", "OR", "XOR")
    },
    "ADD float64": """\
{uint} old, seen = *(volatile {uint} *)p;
do {{
    old = seen;
    seen = atomicCAS(({uint} *)p, old, {bits}({of_bits}(old) + v));
}} while (seen != old);
return {of_bits}(old);""",
    **{
        f"{op} int64": f"return ({{type}})atomic{op.capitalize()}(({{uint}} *)p, ({{uint}})v);"
        for op in ("ADD", "AND", "OR", "XOR")
    },
    "EXCHANGE": "return atomicExch(p, v);",
    "EXCHANGE int64": "return ({type})atomicExch(({uint} *)p, ({uint})v);",
    "EXCHANGE float64": "return {of_bits}(atomicExch(({uint} *)p, {bits}(v)));",
    **VOLATILE,
    "CAS": "return atomicCAS(p, expected, desired);",
    "CAS int64": "return ({type})atomicCAS(({uint} *)p, ({uint})expected, ({uint})desired);",
}

CUDA = Language(
    types=TYPES,
    bool_storage="unsigned char",
    suffixes={"float32": "f", "int64": "LL", "uint32": "u", "uint64": "ULL"},
    functions={**FUNCTIONS, "RSQRT": "rsqrt{f}({0})"},
    specials={
        "global_idx": "(int)(blockIdx.{axis} * blockDim.{axis} + threadIdx.{axis})",
        "block_idx": "(int)blockIdx.{axis}",
        "thread_idx": "(int)threadIdx.{axis}",
        "block_dim": "(int)blockDim.{axis}",
        "grid_dim": "(int)gridDim.{axis}",
    },
    bits={
        "float32": ("__float_as_uint", "__uint_as_float"),
        "float64": ("(unsigned long long)__double_as_longlong", "__longlong_as_double"),
    },
    infinities={
        "float32": ("__int_as_float(0x7f800000)", "__int_as_float(0x7fc00000)"),
        "float64": (
            "__longlong_as_double(0x7ff0000000000000LL)",
            "__longlong_as_double(0x7ff8000000000000LL)",
        ),
    },
    casts={**BFLOAT16_CASTS, **_HALF_CASTS},
    hidden=_HIDDEN,
    spaces=dict.fromkeys(("PARAM", "SHARED"), Space("atomic", "", ATOMICS)),
    helper="static __device__ inline",
    keywords=CUDA_WORDS | {"hal_shared"},
    frame=FRAME,
    pointer_parameter="{const}{type} *{name}",
    value_parameter="{type} {name}",
    block_attribute="__launch_bounds__({threads}) ",
    vector="struct __align__({nbytes}) {name} {{ {type} v[{count}]; }};",
    table="static __constant__ {type} {name}[{count}] = {{{values}}};",
    shared="__shared__ __align__(16) {type} {name}[{count}];",
    barrier="__syncthreads();",
    fence="__threadfence();",
    shuffle=("__shfl_sync(0xffffffffu, {0}, {1})",) * 2,
    ballot="(unsigned long long)__ballot_sync(0xffffffffu, {0})",
    contract_options=("--fmad=false", "--fmad=true"),
)
_DYNAMIC = CUDA._replace(
    frame="extern __shared__ __align__(16) unsigned char hal_shared[];\n\n" + FRAME,
    shared="{type} *{name} = ({type} *)(hal_shared + {offset});",
)


_IMAGE = """\
extern "C" __global__ void NAME(cudaTextureObject_t x, cudaSurfaceObject_t y) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y;
    {type} v = tex2D<{type}>(x, i, j);{change}
    surf2Dwrite(v, y, i * (int)sizeof(v), j, cudaBoundaryModeZero);
}}
"""
_TIMES_FACTOR = " v = make_float4(FACTOR * v.x, FACTOR * v.y, FACTOR * v.z, FACTOR * v.w);"
_PIXELS = {
    "int8": "char", "int16": "short", "int32": "int",
    "uint8": "uchar", "uint16": "ushort", "uint32": "uint", "float32": "float",
}  # fmt: skip


class CUDARenderer(CFamilyRenderer):
    """CUDA C++ for NVRTC or nvcc."""

    name, language, row, subgroup = "CUDA C++", "cuda", CUDA, 32
    by_hand = ByHand(
        """\
extern "C" __global__ void NAME(float *y, const float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = FACTOR * x[i];
}
""",
        images={"f": _IMAGE.format(type="float4", change=_TIMES_FACTOR)}
        | {
            f"{dtype}x{channels}": _IMAGE.format(type=f"{type}{channels}", change="")
            for dtype, type in _PIXELS.items()
            for channels in (1, 2, 4)
        },
    )

    def _row(self, kernel: Kernel) -> Language:
        return _DYNAMIC if kernel.shared_nbytes > MOST_STATIC_NBYTES else self.row
