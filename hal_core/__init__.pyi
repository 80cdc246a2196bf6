"""Public names for type checkers; `python docs/write_api.py` writes this file."""

from hal_core import config as config, discovery as discovery, errors as errors
from hal_core.compiler import cache as cache
from hal_core.allocator import (
    Allocator as Allocator,
    AllocatorStatistics as AllocatorStatistics,
    BufferSpec as BufferSpec,
    Image as Image,
    LRUAllocator as LRUAllocator,
)
from hal_core.buffer import Buffer as Buffer, empty as empty, zeros as zeros
from hal_core.compiler import Compiler as Compiler, CompilerPair as CompilerPair
from hal_core.device import Device as Device, DeviceRegistry as DeviceRegistry
from hal_core.device.base import Compiled as Compiled, DeviceInfo as DeviceInfo, Limits as Limits
from hal_core.discovery import API_VERSION as API_VERSION, __version__ as __version__
from hal_core.dtypes import (
    DType as DType,
    any_ as any_,
    as_dtype as as_dtype,
    bfloat16 as bfloat16,
    bool_ as bool_,
    complex128 as complex128,
    complex64 as complex64,
    float16 as float16,
    float32 as float32,
    float64 as float64,
    int16 as int16,
    int32 as int32,
    int64 as int64,
    int8 as int8,
    uint16 as uint16,
    uint32 as uint32,
    uint64 as uint64,
    uint8 as uint8,
)
from hal_core.errors import (
    CompileError as CompileError,
    CompilerUnavailable as CompilerUnavailable,
    DeviceFault as DeviceFault,
    DeviceUnavailable as DeviceUnavailable,
    ForkError as ForkError,
    HalError as HalError,
    IncompatiblePlugin as IncompatiblePlugin,
    InvalidArgument as InvalidArgument,
    InvalidState as InvalidState,
    NotShareable as NotShareable,
    OutOfMemory as OutOfMemory,
    PluginConflict as PluginConflict,
    PluginError as PluginError,
    UnknownDevice as UnknownDevice,
    Unsupported as Unsupported,
)
from hal_core.graph import Graph as Graph, Node as Node, load_graph as load_graph
from hal_core.hookspecs import hookimpl as hookimpl
from hal_core.profiling import (
    Profile as Profile,
    finalize_profile as finalize_profile,
    profile as profile,
    profile_range as profile_range,
    start_profile as start_profile,
)
from hal_core.profiling.events import (
    ProfileDeviceEvent as ProfileDeviceEvent,
    ProfileEvent as ProfileEvent,
    ProfileProgramEvent as ProfileProgramEvent,
    ProfileRangeEvent as ProfileRangeEvent,
)
from hal_core.program import Program as Program, ProgramInfo as ProgramInfo
from hal_core.program.several import Programs as Programs
from hal_core.queue import Event as Event, Queue as Queue
from hal_core.signature import Interface as Interface, Param as Param, Signature as Signature
from hal_core.source import Binary as Binary, Source as Source
from hal_kernel.errors import (
    FailedAssert as FailedAssert,
    InvalidKernel as InvalidKernel,
    KernelFault as KernelFault,
    KernelSyntaxError as KernelSyntaxError,
    OutOfBounds as OutOfBounds,
)
from hal_kernel.ir import Kernel as Kernel, UOp as UOp
from hal_kernel.lang.builtins import (
    acq_rel as acq_rel,
    acquire as acquire,
    atomic_add as atomic_add,
    atomic_and as atomic_and,
    atomic_compare_exchange as atomic_compare_exchange,
    atomic_exchange as atomic_exchange,
    atomic_load as atomic_load,
    atomic_max as atomic_max,
    atomic_min as atomic_min,
    atomic_or as atomic_or,
    atomic_store as atomic_store,
    atomic_xor as atomic_xor,
    ballot as ballot,
    barrier as barrier,
    bitcast as bitcast,
    block_dim as block_dim,
    block_idx as block_idx,
    fence as fence,
    global_idx as global_idx,
    grid_dim as grid_dim,
    load as load,
    load_if as load_if,
    local as local,
    print as print,
    release as release,
    shared as shared,
    shuffle as shuffle,
    shuffle_xor as shuffle_xor,
    store as store,
    subgroup_exclusive_sum as subgroup_exclusive_sum,
    subgroup_idx as subgroup_idx,
    subgroup_inclusive_sum as subgroup_inclusive_sum,
    subgroup_lane as subgroup_lane,
    subgroup_max as subgroup_max,
    subgroup_min as subgroup_min,
    subgroup_size as subgroup_size,
    subgroup_sum as subgroup_sum,
    thread_idx as thread_idx,
    unroll as unroll,
    view as view,
)
from hal_kernel.lang.func import InlineFunction as InlineFunction, func as func
from hal_kernel.lang.function import KernelFunction as KernelFunction, kernel as kernel
from hal_kernel.lang.mathematics import (
    acos as acos,
    acosh as acosh,
    asin as asin,
    asinh as asinh,
    atan as atan,
    atan2 as atan2,
    atanh as atanh,
    ceil as ceil,
    clz as clz,
    copysign as copysign,
    cos as cos,
    cosh as cosh,
    ctz as ctz,
    erf as erf,
    erfc as erfc,
    exp as exp,
    exp2 as exp2,
    expm1 as expm1,
    floor as floor,
    fma as fma,
    fmod as fmod,
    hypot as hypot,
    isfinite as isfinite,
    isinf as isinf,
    isnan as isnan,
    log as log,
    log10 as log10,
    log1p as log1p,
    log2 as log2,
    popcount as popcount,
    pow as pow,
    rsqrt as rsqrt,
    sin as sin,
    sinh as sinh,
    sqrt as sqrt,
    tan as tan,
    tanh as tanh,
    trunc as trunc,
    truncdiv as truncdiv,
    truncmod as truncmod,
)
from hal_kernel.lang.pointers import ConstPtr as ConstPtr, Ptr as Ptr
from hal_kernel.multidevice import MultiBuffer as MultiBuffer, launch as launch
from hal_kernel.render import Renderer as Renderer

__all__: list[str]
