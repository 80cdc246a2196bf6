"""Render HIP C++ for hiprtc: CUDA's row of data, with the differences replaced."""

from __future__ import annotations

from hal_kernel.render.c.cuda import ATOMICS, CUDA, TYPES, CUDARenderer
from hal_kernel.render.c.family import CFamilyRenderer
from hal_kernel.render.c.helpers import BFLOAT16_CASTS, BITS, DIVISIONS
from hal_kernel.render.c.language import Space

# Older headers of HIP have no atomicMin and atomicMax of signed 64-bit numbers.
_BETTER = """\
{uint} *bits = ({uint} *)p;
{uint} old, seen = *(volatile {uint} *)bits;
do {{
    old = seen;
    if (!(v {order} ({type})old)) break;
    seen = atomicCAS(bits, old, ({uint})v);
}} while (seen != old);
return ({type})old;"""
_ATOMICS = {
    **ATOMICS,
    "MIN int64": _BETTER,
    "MAX int64": _BETTER,
    "LOAD": "return __hip_atomic_load(p, __ATOMIC_{memory}, __HIP_MEMORY_SCOPE_AGENT);",
    "STORE": "__hip_atomic_store(p, v, __ATOMIC_{memory}, __HIP_MEMORY_SCOPE_AGENT);",
}

# Through `asm` a compiler sees nothing of a number. AMD's see too much: they divide by float32 what
# has few bits and a sign, though a cast to unsigned or to 64 bits has made it large; and where they
# extend the sign of a byte whose bits are then a float's, they negate the byte instead.
# Source: LLVM's pull requests 80622, 119325, 196418 and 140760.
_HIDDEN = 'asm("" : "+v"({0}));'
_DIVISIONS = {
    f"{op} {dtype}": DIVISIONS[f"{op} {dtype[0]}"].replace(
        "{{\n", f"{{{{\n    {_HIDDEN.format('a')}\n", 1
    )
    for op in ("FLOORDIV", "TRUNCDIV", "MOD", "TRUNCMOD")
    for dtype in ("int64", "uint32", "uint64")
}
_OF_BITS = f"""\
{{static}} {{to}} {{name}}({{source}} x) {{{{
    {_HIDDEN.format("x")}
    union {{{{ {{source}} from; {{to}} to; }}}} bits = {{{{x}}}};
    return bits.to;
}}}}"""

# A function for each dtype that hides its number: a zero of a choice, whose sign AMD's compilers
# lose, and the x of `~x | y`, where x was extended to 64 bits and they take the upper half from y.
_HIDES = {
    dtype: f"""\
{{static}} {TYPES[dtype]} {{name}}({TYPES[dtype]} x) {{{{
    {_HIDDEN.format("x")}
    return x;
}}}}"""
    for dtype in ("float32", "float64", "int64", "uint64")
}

# A subgroup is a warp, of 32 or 64 threads: the architecture decides.
_NUMBER = "((threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x)"

HIP = CUDA._replace(
    types={**TYPES, "float16": "_Float16"},  # C casts convert it
    casts=BFLOAT16_CASTS,
    hidden=_HIDES,
    bits={
        **CUDA.bits,
        "float16": ("hal_bits_of_float16", "hal_float16_of_bits"),
        "float32": (CUDA.bits["float32"][0], "hal_float32_of_bits"),
    },
    helpers={
        name: template.format(name=name, source=source, to=to, static=CUDA.helper)
        for template, name, source, to in (
            (BITS, "hal_bits_of_float16", "_Float16", "unsigned short"),
            (_OF_BITS, "hal_float16_of_bits", "unsigned short", "_Float16"),
            (_OF_BITS, "hal_float32_of_bits", "unsigned int", "float"),
        )
    },
    divisions={**DIVISIONS, **_DIVISIONS},
    specials={
        **CUDA.specials,
        "subgroup_size": "(int)warpSize",
        "subgroup_lane": f"(int)({_NUMBER} % warpSize)",
        "subgroup_idx": f"(int)({_NUMBER} / warpSize)",
    },
    # hiprtc 5.2 keeps up to eight bytes in registers, and writes two where it should write one.
    local_nbytes=9,
    shuffle=("__shfl({0}, {1})",) * 2,
    # 2, not 1: ROCm 5.2 joins a 0 or 1 with the test of a NaN that it stands for, and dies of it.
    ballot="(unsigned long long)__ballot(({0}) ? 2 : 0)",
    spaces=dict.fromkeys(("PARAM", "SHARED"), Space("atomic", "", _ATOMICS)),
    vector="struct __attribute__((aligned({nbytes}))) {name} {{ {type} v[{count}]; }};",
    shared="__shared__ {type} {name}[{count}] __attribute__((aligned(16)));",
    options=("-fno-strict-aliasing",),  # two parameters may be views of one buffer
    contract_options=("-ffp-contract=off", "-ffp-contract=fast"),
)


_BY_HAND = CUDARenderer.by_hand


def _image_text(kind: str, text: str) -> str:
    """Return CUDA's text for HIP, whose surfaces take no mode for what lies beyond them."""
    text = text.replace("cuda", "hip").replace(", hipBoundaryModeZero", "")
    if kind[0] in "iu":  # 5.2 writes an integer as the float of that number: give it the bits
        parts = ", ".join(f"__int_as_float(v.{part})" for part in "xyzw"[: int(kind[-1])])
        text = text.replace("(v,", f"(make_float{kind[-1]}({parts}),")
    return text


class HIPRenderer(CFamilyRenderer):
    """HIP C++ for hiprtc or hipcc."""

    name, language, row = "HIP C++", "hip", HIP
    by_hand = _BY_HAND._replace(
        before="#include <hip/hip_runtime.h>\n",
        images={kind: _image_text(kind, text) for kind, text in _BY_HAND.images.items()},
    )
