"""hal-core: devices, memory, compilation and launch, behind one API; every backend is a plugin.

Importing this finds the installed backends (a look at `sys.path`, nothing is imported) and loads
nothing else: every other name is imported at its first use.
"""

from hal_core import discovery
from hal_core.discovery import API_VERSION, __version__

# Every public name, by the module that has it. Type checkers read `__init__.pyi`, which
# `python docs/write_api.py` writes from this table.
_NAMES = {
    "allocator": "Allocator AllocatorStatistics BufferSpec LRUAllocator",
    "buffer": "Buffer empty zeros",
    "compiler": "Compiler CompilerPair",
    "device": "Device DeviceRegistry",
    "device.base": "Compiled DeviceInfo Limits",
    "dtypes": "DType any_ bfloat16 bool_ float16 float32 float64 int8 int16 int32 int64 "
    "uint8 uint16 uint32 uint64",
    "errors": "CompileError CompilerUnavailable DeviceFault DeviceUnavailable FailedAssert "
    "ForkError HalError IncompatiblePlugin InvalidArgument InvalidKernel InvalidState "
    "KernelFault KernelSyntaxError NotShareable OutOfBounds OutOfMemory PluginConflict "
    "PluginError UnknownDevice Unsupported",
    "graph": "Graph Node load_graph",
    "hookspecs": "hookimpl",
    "ir": "Kernel UOp",
    "lang": "InlineFunction KernelFunction acos acosh acq_rel acquire asin asinh atan atan2 atanh "
    "atomic_add atomic_and atomic_compare_exchange atomic_exchange atomic_load atomic_max "
    "atomic_min atomic_or atomic_store atomic_xor ballot barrier bitcast block_dim block_idx ceil "
    "clz copysign cos cosh ctz erf erfc exp exp2 expm1 fence floor fma fmod func global_idx "
    "grid_dim hypot isfinite isinf isnan kernel load load_if local log log10 log1p log2 popcount "
    "pow print release rsqrt shared shuffle shuffle_xor sin sinh sqrt store "
    "subgroup_exclusive_sum subgroup_idx subgroup_inclusive_sum subgroup_lane subgroup_max "
    "subgroup_min subgroup_size subgroup_sum tan tanh thread_idx trunc truncdiv truncmod "
    "unroll view",
    "lang.pointers": "ConstPtr Ptr",
    "multidevice": "MultiBuffer launch",
    "profiling": "Profile ProfileDeviceEvent ProfileEvent ProfileProgramEvent ProfileRangeEvent "
    "finalize_profile profile profile_range start_profile",
    "program": "Program ProgramInfo",
    "queue": "Event Queue",
    "render": "Renderer",
    "signature": "Interface Param Signature",
    "source": "Binary Source",
}
_MODULES = {
    "cache": "compiler.cache",
    "config": "config",
    "discovery": "discovery",
    "errors": "errors",
}
_HOME = {name: home for home, names in _NAMES.items() for name in names.split()}

__all__ = ["API_VERSION", "__version__", *_MODULES, *_HOME]


def __getattr__(name: str) -> object:
    if name not in _HOME and name not in _MODULES:
        problem = f"module 'hal_core' has no attribute {name!r}"
        if name in ("complex64", "complex128"):  # what numpy, CuPy and Numba have
            from hal_core.dtypes import COMPLEX

            problem += f". {COMPLEX}"
        raise AttributeError(problem)
    home = _MODULES.get(name) or _HOME[name]
    try:
        from importlib import import_module

        module = import_module(f"hal_core.{home}")
    except ImportError:
        # Python ends, and finds no module any more. Its parent still has one that was loaded.
        first, _, last = home.partition(".")
        module = globals().get(first)
        module = getattr(module, last, None) if last else module
        if module is None and "concurrency" in globals():
            globals()["concurrency"].refuse_at_exit(f"hal.{name}")
        if module is None:
            raise
    if name in _MODULES:
        return module
    found = globals()[name] = getattr(module, name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


discovery.installed()
