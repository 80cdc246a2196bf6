"""The names that a device language uses itself, so that no kernel may have them."""

from __future__ import annotations

import re

# Names of the C library: a kernel of such a name would be called instead of the C function (`exp`
# for a rendered `hal.exp`, `memset` for a loop that a compiler recognised). They are refused in
# every language, so that a kernel that runs on one device runs on the next.
LIBRARY_NAMES = frozenset(
    f"{stem}{suffix}"
    for stem in (
        "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "copysign",
        "cos", "cosh", "erf", "erfc", "exp", "exp10", "exp2", "expm1", "fabs", "fdim", "floor",
        "fma", "fmax", "fmin", "fmod", "frexp", "hypot", "ldexp", "lgamma", "log", "log10",
        "log1p", "log2", "modf", "nearbyint", "pow", "remainder", "rint", "round", "roundeven",
        "rsqrt", "sin", "sincos", "sinh", "sqrt", "tan", "tanh", "tgamma", "trunc",
    )
    for suffix in ("", "f", "l")
) | {
    "abort", "abs", "bcmp", "calloc", "exit", "free", "isfinite", "isinf", "isnan", "labs",
    "llabs", "main", "malloc", "max", "memchr", "memcmp", "memcpy", "memmove", "memset", "min",
    "printf", "realloc", "signbit", "strlen",
}  # fmt: skip

# More names of libraries, which no rendered text calls: variables may have them, kernels may not.
# All that <math.h> declares is here, in the headers that gcc, clang and zig read.
MORE_LIBRARY_NAMES = frozenset(
    f"{stem}{suffix}"
    for stem in (
        "cospi", "cyl_bessel_i0", "cyl_bessel_i1", "drem", "erfcinv", "erfcx", "erfinv", "fdivide",
        "finite", "gamma", "ilogb", "isinf", "isnan", "j0", "j1", "jn", "llrint", "llround", "logb",
        "lrint", "lround", "nan", "nextafter", "nexttoward", "norm", "norm3d", "norm4d", "normcdf",
        "normcdfinv", "rcbrt", "remquo", "rhypot", "rnorm", "rnorm3d", "rnorm4d", "scalb",
        "scalbln", "scalbn", "significand", "sincospi", "sinpi", "y0", "y1", "yn",
    )
    for suffix in ("", "f", "l")
) | {
    "assert", "clock", "clock64", "double_t", "float_t", "fpclassify", "isgreater",
    "isgreaterequal", "isless", "islessequal", "islessgreater", "isnormal", "isunordered",
    "lgamma_r", "lgammaf_r", "lgammal_r", "llmax", "llmin", "signgam", "ullmax", "ullmin", "umax",
    "umin", "va_arg", "va_copy", "va_end", "va_list", "va_start",
}  # fmt: skip

# Keywords of the C family: neither kernels nor variables may have them.
C_KEYWORDS = frozenset(
    """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t
    char32_t class compl concept const const_cast consteval constexpr constinit continue co_await
    co_return co_yield decltype default delete do double dynamic_cast else enum explicit export
    extern false float for friend goto half if inline int long mutable namespace new noexcept not
    not_eq nullptr operator or or_eq private protected public register reinterpret_cast requires
    restrict return short signed sizeof static static_assert static_cast struct switch template
    this thread_local throw true try typedef typeid typename typeof union unsigned using virtual
    void volatile wchar_t while xor xor_eq
    """.split()  # noqa: SIM905 - words read better so
)

# Names of one language that neither kernels nor variables may have in it.
CUDA_WORDS = frozenset(
    """
    threadIdx blockIdx blockDim gridDim warpSize dim3 size_t ptrdiff_t clock_t nullptr_t std
    textureReference
    """.split()  # noqa: SIM905 - words read better so
) | {
    f"{element}{width}"
    for element in (
        "char", "uchar", "short", "ushort", "int", "uint", "long", "ulong", "longlong",
        "ulonglong", "float", "double",
    )
    for width in (1, 2, 3, 4)
}  # fmt: skip

METAL_WORDS = frozenset(
    """
    kernel vertex fragment coherent device constant threadgroup threadgroup_imageblock thread half
    uchar ushort uint ulong size_t ptrdiff_t metal array sampler texture1d texture2d texture3d
    buffer patch_control_point mesh object ray_data visible stitchable atomic_int atomic_uint
    atomic_bool atomic_ulong atomic_float atomic memory_order_relaxed thread_scope_device bfloat
    simd quad int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t raytracing packed
    """.split()  # noqa: SIM905 - words read better so
) | {
    f"{packed}{element}{width}"
    for packed in ("", "packed_")
    for element in (
        "char", "uchar", "short", "ushort", "int", "uint", "long", "ulong", "float", "half", "bool",
    )
    for width in (2, 3, 4)
}  # fmt: skip

OPENCL_WORDS = frozenset(
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

# Functions that rendered texts call: variables may have their names, kernels may not.
_CALLED = frozenset(
    """
    as_double as_float as_type as_uint as_ulong atom_add atom_and atom_cmpxchg atom_max atom_min
    atom_or atom_xchg atom_xor atomicAdd atomicAnd atomicCAS atomicExch atomicMax atomicMin atomicOr
    atomicXor atomic_add atomic_and atomic_cmpxchg atomic_compare_exchange_weak_explicit
    atomic_exchange_explicit atomic_fetch_add_explicit atomic_fetch_and_explicit
    atomic_fetch_max_explicit atomic_fetch_min_explicit atomic_fetch_or_explicit
    atomic_fetch_xor_explicit atomic_load_explicit atomic_max atomic_min atomic_or
    atomic_store_explicit atomic_xchg atomic_xor barrier get_global_id get_group_id get_local_id
    get_local_size get_num_groups threadgroup_barrier vload_half vstore_half_rte atomic_thread_fence
    mem_fence get_max_sub_group_size get_sub_group_id get_sub_group_local_id sub_group_ballot
    sub_group_shuffle simd_ballot simd_shuffle
    """.split()  # noqa: SIM905 - words read better so
)

# Macros of the languages' own headers, names that C reserves, and rendered helpers. A variable may
# not have such a name either: the preprocessor would replace it.
MACROS = (
    r"_[A-Z_]|hal_|cl_khr_"
    r"|(M|FP|CL|CLK|FLT|DBL|HALF|HUGE|MATH|MAX|PTRDIFF|SIG_ATOMIC|SIZE|WCHAR|WINT"
    r"|[SU]?CHAR|U?SHRT|U?LONG|U?INT(\d+|PTR|MAX)?)_[A-Z0-9_]+$"
    r"|(NULL|NAN|INFINITY|MAXFLOAT|MAXHALF|NDEBUG|defined|linux|math_errhandling|unix)$"
)

# Besides them types of headers; `_` and WARP_SZ are PTX's.
_NO_KERNEL = re.compile(
    rf"{MACROS}"
    r"|(u?int(\d+|ptr|max|_(fast|least)\d+)|size|ptrdiff)_t$"
    r"|(_|WARP_SZ)$"
)

_ALL = (
    LIBRARY_NAMES | MORE_LIBRARY_NAMES | C_KEYWORDS | CUDA_WORDS | METAL_WORDS | OPENCL_WORDS
    | _CALLED
)  # fmt: skip


def is_taken(kernel_name: str) -> bool:
    """Tell whether some language has a keyword, type, function or macro of this name.

    Every backend refuses it, so that a kernel that runs on one device runs on the next.
    """
    return kernel_name in _ALL or _NO_KERNEL.match(kernel_name) is not None
