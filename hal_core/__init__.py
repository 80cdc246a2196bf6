"""hal-core: devices, memory, compilation and launch, behind one API; every backend is a plugin.

Importing this finds the installed backends (a look at `sys.path`, nothing is imported) and loads
nothing else: every other name is imported at its first use.
"""

from hal_core import config, discovery, errors
from hal_core.discovery import API_VERSION, __version__
from hal_core.errors import (
    CompileError,
    CompilerUnavailable,
    DeviceFault,
    DeviceUnavailable,
    FailedAssert,
    ForkError,
    HalError,
    IncompatiblePlugin,
    InvalidArgument,
    InvalidKernel,
    InvalidState,
    KernelFault,
    KernelSyntaxError,
    NotShareable,
    OutOfBounds,
    OutOfMemory,
    PluginConflict,
    PluginError,
    UnknownDevice,
    Unsupported,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hal_core import cache
    from hal_core.allocator import Allocator, AllocatorStatistics, BufferSpec, LRUAllocator
    from hal_core.buffer import Buffer, empty, zeros
    from hal_core.compiler import Binary, CompileOptions, Compiler, CompilerPair
    from hal_core.device import Compiled, DeviceInfo, Limits
    from hal_core.dtypes import (
        DType,
        bfloat16,
        bool_,
        float16,
        float32,
        float64,
        int8,
        int16,
        int32,
        int64,
        uint8,
        uint16,
        uint32,
        uint64,
    )
    from hal_core.hookspecs import hookimpl
    from hal_core.ir import Kernel, Param, Signature, Source, UOp
    from hal_core.lang import (
        InlineFunction,
        KernelFunction,
        acos,
        acosh,
        asin,
        asinh,
        atan,
        atan2,
        atanh,
        atomic_add,
        atomic_and,
        atomic_compare_exchange,
        atomic_exchange,
        atomic_load,
        atomic_max,
        atomic_min,
        atomic_or,
        atomic_xor,
        barrier,
        bitcast,
        block_dim,
        block_idx,
        ceil,
        clz,
        copysign,
        cos,
        cosh,
        ctz,
        erf,
        erfc,
        exp,
        exp2,
        expm1,
        floor,
        fma,
        fmod,
        func,
        global_idx,
        grid_dim,
        hypot,
        isfinite,
        isinf,
        isnan,
        kernel,
        log,
        log1p,
        log2,
        log10,
        popcount,
        pow,
        rsqrt,
        shared,
        sin,
        sinh,
        sqrt,
        tan,
        tanh,
        thread_idx,
        trunc,
        unroll,
    )
    from hal_core.lang.pointers import ConstPtr, Ptr
    from hal_core.profiling import (
        Profile,
        ProfileDeviceEvent,
        ProfileEvent,
        ProfileProgramEvent,
        ProfileRangeEvent,
        finalize_profile,
        profile,
        profile_range,
        start_profile,
    )
    from hal_core.program import Program, ProgramInfo
    from hal_core.registry import Device, DeviceRegistry
    from hal_core.render import Renderer

__all__ = [
    "API_VERSION", "Allocator", "AllocatorStatistics", "Binary", "Buffer", "BufferSpec",
    "CompileError", "CompileOptions", "Compiled", "Compiler", "CompilerPair", "CompilerUnavailable",
    "ConstPtr", "DType", "Device", "DeviceFault", "DeviceInfo", "DeviceRegistry",
    "DeviceUnavailable", "FailedAssert", "ForkError", "HalError", "IncompatiblePlugin",
    "InlineFunction", "InvalidArgument", "InvalidKernel", "InvalidState", "Kernel", "KernelFault",
    "KernelFunction", "KernelSyntaxError", "LRUAllocator", "Limits", "NotShareable", "OutOfBounds",
    "OutOfMemory", "Param", "PluginConflict", "PluginError", "Profile", "ProfileDeviceEvent",
    "ProfileEvent", "ProfileProgramEvent", "ProfileRangeEvent", "Program", "ProgramInfo", "Ptr",
    "Renderer", "Signature", "Source", "UOp", "UnknownDevice", "Unsupported", "__version__",
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "atomic_add", "atomic_and",
    "atomic_compare_exchange", "atomic_exchange", "atomic_load", "atomic_max", "atomic_min",
    "atomic_or", "atomic_xor", "barrier", "bfloat16", "bitcast", "block_dim", "block_idx", "bool_",
    "cache", "ceil", "clz", "config", "copysign", "cos", "cosh", "ctz", "discovery", "empty", "erf",
    "erfc", "errors", "exp", "exp2", "expm1", "finalize_profile", "float16", "float32", "float64",
    "floor", "fma", "fmod", "func", "global_idx", "grid_dim", "hookimpl", "hypot", "int8", "int16",
    "int32", "int64", "isfinite", "isinf", "isnan", "kernel", "log", "log1p", "log2", "log10",
    "popcount", "pow", "profile", "profile_range", "rsqrt", "shared", "sin", "sinh", "sqrt",
    "start_profile", "tan", "tanh", "thread_idx", "trunc", "uint8", "uint16", "uint32", "uint64",
    "unroll", "zeros",
]  # fmt: skip

# Where the names come from that are imported at their first use; a test holds it to the block
# above, which type checkers read.
_HOMES = {
    "": "cache",
    "allocator": "Allocator AllocatorStatistics BufferSpec LRUAllocator",
    "buffer": "Buffer empty zeros",
    "compiler": "Binary CompileOptions Compiler CompilerPair",
    "device": "Compiled DeviceInfo Limits",
    "dtypes": "DType bfloat16 bool_ float16 float32 float64 int8 int16 int32 int64 "
    "uint8 uint16 uint32 uint64",
    "hookspecs": "hookimpl",
    "ir": "Kernel Param Signature Source UOp",
    "lang": "InlineFunction KernelFunction acos acosh asin asinh atan atan2 atanh atomic_add "
    "atomic_and atomic_compare_exchange atomic_exchange atomic_load atomic_max atomic_min "
    "atomic_or atomic_xor barrier bitcast block_dim block_idx ceil clz copysign cos cosh "
    "ctz erf erfc exp exp2 expm1 floor fma fmod func global_idx grid_dim hypot isfinite "
    "isinf isnan kernel log log10 log1p log2 popcount pow rsqrt shared sin sinh sqrt tan "
    "tanh thread_idx trunc unroll",
    "lang.pointers": "ConstPtr Ptr",
    "profiling": "Profile ProfileDeviceEvent ProfileEvent ProfileProgramEvent ProfileRangeEvent "
    "finalize_profile profile profile_range start_profile",
    "program": "Program ProgramInfo",
    "registry": "Device DeviceRegistry",
    "render": "Renderer",
}
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'hal_core' has no attribute {name!r}")
    from importlib import import_module

    if not home:  # a module
        return import_module(f"hal_core.{name}")
    found = globals()[name] = getattr(import_module(f"hal_core.{home}"), name)
    return found


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))


discovery.installed()
