"""hal-core: devices, memory, compilation and launch, behind one API; every backend is a plugin.

Importing this finds the installed backends (a look at `sys.path`, nothing is imported) and loads
nothing else: every other name is imported at its first use.
"""

from hal_core import discovery
from hal_core.discovery import API_VERSION as API_VERSION
from hal_core.discovery import __version__ as __version__

# Every public name, by its module: those of the core, and of hal-kernel, another distribution.
# Type checkers read `__init__.pyi`, which `python docs/write_api.py` writes from these tables.
_NAMES = {
    "allocator": "Allocator AllocatorStatistics BufferSpec Image LRUAllocator",
    "buffer": "Buffer empty zeros",
    "compiler": "Compiler CompilerPair",
    "device": "Device DeviceRegistry",
    "device.base": "Compiled DeviceInfo Limits",
    "dtypes": "DType any_ as_dtype bfloat16 bool_ complex64 complex128 float16 float32 "
    "float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64",
    "errors": "CompileError CompilerUnavailable DeviceFault DeviceUnavailable ForkError HalError "
    "IncompatiblePlugin InvalidArgument InvalidState NotShareable OutOfMemory PluginConflict "
    "PluginError UnknownDevice Unsupported",
    "graph": "Graph Node load_graph",
    "hookspecs": "hookimpl",
    "profiling": "Profile finalize_profile profile profile_range start_profile",
    "profiling.events": "ProfileDeviceEvent ProfileEvent ProfileProgramEvent ProfileRangeEvent",
    "program": "Program ProgramInfo",
    "program.several": "Programs",
    "queue": "Event Queue",
    "signature": "Interface Param Signature",
    "source": "Binary Source",
}
_KERNEL_NAMES = {
    "errors": "FailedAssert InvalidKernel KernelFault KernelSyntaxError OutOfBounds",
    "ir": "Kernel UOp",
    "lang.builtins": "acq_rel acquire atomic_add atomic_and atomic_compare_exchange "
    "atomic_exchange atomic_load atomic_max atomic_min atomic_or atomic_store atomic_xor ballot "
    "barrier bitcast block_dim block_idx fence global_idx grid_dim load load_if local print "
    "release shared shuffle shuffle_xor store subgroup_exclusive_sum subgroup_idx "
    "subgroup_inclusive_sum subgroup_lane subgroup_max subgroup_min subgroup_size subgroup_sum "
    "thread_idx unroll view",
    "lang.func": "InlineFunction func",
    "lang.function": "KernelFunction kernel",
    "lang.mathematics": "acos acosh asin asinh atan atan2 atanh ceil clz copysign cos cosh ctz "
    "erf erfc exp exp2 expm1 floor fma fmod hypot isfinite isinf isnan log log10 log1p log2 "
    "popcount pow rsqrt sin sinh sqrt tan tanh trunc truncdiv truncmod",
    "lang.pointers": "ConstPtr Ptr",
    "multidevice": "MultiBuffer launch",
    "render": "Renderer",
}
_MODULES = {
    "cache": "hal_core.compiler.cache",
    "config": "hal_core.config",
    "discovery": "hal_core.discovery",
    "errors": "hal_core.errors",
}
_HOME = {
    name: f"{package}.{home}"
    for package, table in (("hal_core", _NAMES), ("hal_kernel", _KERNEL_NAMES))
    for home, names in table.items()
    for name in names.split()
}


def __getattr__(name: str) -> object:
    if name == "__all__":
        return [
            one for one in __dir__() if one in ("API_VERSION", "__version__", *_MODULES, *_HOME)
        ]
    home = _MODULES.get(name) or _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'hal_core' has no attribute {name!r}")
    try:
        from importlib import import_module

        module = import_module(home)
    except ImportError as error:
        module = _loaded_before(home, name, error)
    if name in _MODULES:
        return module
    found = globals()[name] = getattr(module, name)
    return found


def _loaded_before(home: str, name: str, error: ImportError) -> object:
    """Return a module that cannot be imported: while Python ends, its parent still has it.

    Raises: ModuleNotFoundError saying what to install; InvalidState while Python ends.
    """
    package, first, *last = home.split(".")
    module = globals().get(first) if package == "hal_core" else None
    for part in last:
        module = getattr(module, part, None)
    if module is None and "concurrency" in globals():
        globals()["concurrency"].refuse_at_exit(f"hal.{name}")
    if module is None and error.name == "hal_kernel":
        problem = f"hal.{name} is in hal-kernel, which is not installed. "
        problem += "Run: python -m pip install hal-kernel"
        raise ModuleNotFoundError(problem, name="hal_kernel") from None
    if module is None:
        raise error
    return module


def __dir__() -> list[str]:
    from importlib.util import find_spec

    lacking = set() if find_spec("hal_kernel") else set(" ".join(_KERNEL_NAMES.values()).split())
    return sorted({"__all__", *globals(), *_MODULES, *_HOME} - lacking)


discovery.installed()
