"""Send messages to Metal through pyobjc; no other module names a selector.

A message with the selector `setBuffer:offset:atIndex:` is the method
`setBuffer_offset_atIndex_`. Two things pyobjc leaves to its users. What a selector `new...` makes
belongs to the caller already, and pyobjc, which does not know it, would retain it once more: see
`_MADE`. What other selectors give is released by the autorelease pool of the thread, and Python's
threads have none: `check` opens one.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from operator import call
from typing import TYPE_CHECKING, Any, NamedTuple

from hal_core.buffer.host import word_at
from hal_core.errors import DeviceFault, DeviceUnavailable, HalError, OutOfMemory

if TYPE_CHECKING:
    from hal_core.allocator import Image

__all__ = [
    "ENCODE", "LAUNCH", "SET_BUFFER", "SET_BYTES", "SET_SHARED", "SET_TEXTURE", "BuildError",
    "Facts", "Refused", "TextureBinding", "Work", "allocate", "build", "build_file", "bytes_of",
    "check", "commit", "compute", "copy_between", "copy_pixels", "explain", "fault_of",
    "fill_range", "find_devices", "foreign_buffer", "is_committed", "is_over", "is_queue",
    "kernel_names", "launch_names", "make_commands", "new_event", "new_texture", "open_queue",
    "passed", "pipeline_of", "place_in", "pointer_of", "pool", "read_facts", "read_write_tier",
    "run_kernel", "set_event", "signal_event", "system", "wait_event",
]  # fmt: skip

if sys.platform == "darwin":
    _FIX = "pip install pyobjc-framework-Metal (a dependency of hal-metal on a Mac)"
else:
    _FIX = "Use it on a Mac; here hal-cpu, hal-opencl, hal-cuda or hal-hip serve."

try:
    import Metal
    import objc
    from Foundation import NSURL, NSProcessInfo
except ImportError as _error:
    _problem = "Metal is Apple's: this is no Mac"
    if sys.platform == "darwin":
        _problem = f"pyobjc cannot be loaded: {_error}"
    raise DeviceUnavailable("enumerate METAL", _problem, fix=_FIX) from None

# Selectors that give the caller an object of its own, and their out-parameters, which pyobjc would
# forget: a row replaces that of its table. Up to 12.2.2 the table does not know that they are
# retained. In force only for objects that are made afterwards.
_ERROR = {"type": b"^@", "type_modifier": b"o"}
_MADE: dict[bytes, dict[int, dict[str, bytes]]] = {
    b"newCommandQueue": {},
    b"newBufferWithLength:options:": {},
    b"newTextureWithDescriptor:": {},
    b"newLibraryWithSource:options:error:": {4: _ERROR},
    b"newLibraryWithURL:error:": {3: _ERROR},
    b"newFunctionWithName:": {},
    b"newComputePipelineStateWithFunction:options:reflection:error:": {4: _ERROR, 5: _ERROR},
    b"newSharedEvent": {},
}
for _selector, _arguments in _MADE.items():
    _facts = {"retval": {"type": b"@", "already_retained": True}, "arguments": _arguments}
    objc.registerMetaDataForSelector(b"NSObject", _selector, _facts)

pool = objc.autorelease_pool

_COMPLETED = Metal.MTLCommandBufferStatusCompleted  # a failure is above it
_FAILED = Metal.MTLCommandBufferStatusError
_COMMITTED = Metal.MTLCommandBufferStatusCommitted
_SHARED = Metal.MTLResourceStorageModeShared
_TEXTURE_TYPES = {1: Metal.MTLTextureType1D, 2: Metal.MTLTextureType2D, 3: Metal.MTLTextureType3D}
_AXES = {type: axes for axes, type in _TEXTURE_TYPES.items()}
_ACCESSES = {
    Metal.MTLBindingAccessReadOnly: "read",
    Metal.MTLBindingAccessWriteOnly: "write",
    Metal.MTLBindingAccessReadWrite: "read_write",
}
_DATA_TYPES = {
    getattr(Metal, f"MTLDataType{name}"): name.lower()
    for name in ("Float", "Half", "Int", "UInt", "Short", "UShort")
}
_SAFE_MATH = Metal.MTLMathModeSafe
_NEWEST_APPLE = 16  # families are looked for up to this one
_FIRST_APPLE = 7  # the GPU of the M1
# Bits of an object's first word that tell its class; those above may count references.
# Source: ISA_MASK of objc4, isa.h, for arm64; on x86-64 the mask is wider.
_CLASS_BITS = 0x0000000FFFFFFFF8

# Code of MTLCommandBufferErrorDomain -> what it means to the author of a kernel
_CAUSES = {
    Metal.MTLCommandBufferErrorTimeout: "it took too long, and was stopped",
    Metal.MTLCommandBufferErrorPageFault: "it read or wrote memory that is not its own",
    Metal.MTLCommandBufferErrorAccessRevoked: "earlier faults of this process revoked its access",
    Metal.MTLCommandBufferErrorNotPermitted: "this process may not use the GPU",
    Metal.MTLCommandBufferErrorOutOfMemory: "there was no memory for it",
    Metal.MTLCommandBufferErrorInvalidResource: "memory that it uses was freed",
    Metal.MTLCommandBufferErrorDeviceRemoved: "the GPU was removed",
    Metal.MTLCommandBufferErrorStackOverflow: "a thread's stack was too small",
}


class Refused(Exception):
    """Metal gave nothing where an object was asked for; `words` is its own explanation."""

    def __init__(self, selector: str, error: Any = None) -> None:
        words = f"{selector} gave nothing"
        if error is not None:
            words = f"{selector} failed with {_words(error)}"
        super().__init__(words)


def _words(error: Any) -> str:
    """Return domain, code and text of an NSError."""
    return f"{error.domain()} {error.code()}: {str(error.localizedDescription()).strip()}"


def explain(error: Exception, operation: str, device: str | None = None) -> HalError:
    """Return the exception of hal-core for a refusal of Metal's."""
    kind = OutOfMemory if operation == "allocate" else HalError
    return kind(operation, str(error), device=device)


class check:
    """`with check("allocate", name):` turns refusals inside into exceptions of hal-core.

    Objects that Metal gives inside are released at its end, unless something refers to them.
    """

    __slots__ = ("_pool", "device", "operation")

    def __init__(self, operation: str, device: str | None = None) -> None:
        self.operation, self.device = operation, device
        self._pool = pool()

    def __enter__(self) -> None:
        self._pool.__enter__()

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self._pool.__exit__(kind, error, trace)
        if isinstance(error, (Refused, objc.error)):
            raise explain(error, self.operation, self.device) from None


# -- devices


class Facts(NamedTuple):
    """Facts of a GPU that need no queue."""

    name: str
    registry_id: int
    unified: bool
    memory_nbytes: int
    max_buffer_nbytes: int
    shared_nbytes: int
    max_block: tuple[int, int, int]
    apple_family: int  # 7 is that of the M1; 0: not Apple's


def find_devices() -> list[Any]:
    """Return every GPU, the system's default first. Raises: DeviceUnavailable when none is."""
    default = Metal.MTLCreateSystemDefaultDevice()
    known = None if default is None else default.registryID()
    others = [one for one in Metal.MTLCopyAllDevices() or () if one.registryID() != known]
    found = ([] if default is None else [default]) + others
    if not found:
        problem = "the system has no Metal device (a virtual machine without a GPU?)"
        raise DeviceUnavailable("enumerate METAL", problem, fix="See Metal in system_profiler.")
    return found


def read_facts(device: Any) -> Facts:
    families = range(_NEWEST_APPLE, _FIRST_APPLE - 1, -1)
    first = Metal.MTLGPUFamilyApple1 - 1
    apple = next((n for n in families if device.supportsFamily_(first + n)), 0)
    x, y, z = device.maxThreadsPerThreadgroup()
    return Facts(
        str(device.name()), device.registryID(), bool(device.hasUnifiedMemory()),
        device.recommendedMaxWorkingSetSize(), device.maxBufferLength(),
        device.maxThreadgroupMemoryLength(), (x, y, z), apple,
    )  # fmt: skip


def system() -> tuple[tuple[int, int], str]:
    """Return version and build of macOS; the compiler is a part of it."""
    info = NSProcessInfo.processInfo()
    major, minor, _ = info.operatingSystemVersion()
    return (major, minor), str(info.operatingSystemVersionString())


def open_queue(device: Any) -> Any:
    """Make a command queue. Raises: Refused."""
    return _given(device.newCommandQueue(), "newCommandQueue")


def _given(made: Any, selector: str) -> Any:
    if made is None:
        raise Refused(selector)
    return made


# -- memory


def allocate(device: Any, nbytes: int) -> tuple[Any, memoryview]:
    """Allocate memory that the host sees, and return it with its bytes. Raises: Refused."""
    options = _SHARED
    buffer = device.newBufferWithLength_options_(nbytes, options)
    return _given(buffer, "newBufferWithLength:options:"), bytes_of(buffer, nbytes)


def bytes_of(buffer: Any, nbytes: int) -> memoryview:
    found: memoryview = buffer.contents().as_buffer(nbytes)
    return found


def new_texture(device: Any, size: tuple[int, ...], pixel_format: str) -> Any:
    """Make a texture that kernels read and write; the size is width first. Raises: Refused."""
    asked = Metal.MTLTextureDescriptor.alloc().init()
    asked.setTextureType_(_TEXTURE_TYPES[len(size)])
    asked.setPixelFormat_(getattr(Metal, f"MTLPixelFormat{pixel_format}"))
    width, height, depth = (*size, 1, 1)[:3]
    asked.setWidth_(width)
    asked.setHeight_(height)
    asked.setDepth_(depth)
    asked.setStorageMode_(Metal.MTLStorageModePrivate)
    asked.setUsage_(Metal.MTLTextureUsageShaderRead | Metal.MTLTextureUsageShaderWrite)
    return _given(device.newTextureWithDescriptor_(asked), "newTextureWithDescriptor:")


def pointer_of(resource: Any) -> int:
    """Return the integer of an `id<MTLBuffer>` or `id<MTLTexture>`."""
    return int(objc.pyobjc_id(resource))


def foreign_buffer(pointer: int, known: Any) -> Any:
    """Return the buffer at an address, or None where no object of the class of `known` lies.

    Objective-C follows any address that it is given, and ends the process at a wrong one.
    """
    found, wanted = word_at(pointer), word_at(pointer_of(known))
    if pointer % 8 or found is None or wanted is None or (found ^ wanted) & _CLASS_BITS:
        return None
    return objc.objc_object(c_void_p=ctypes.c_void_p(pointer))


def is_queue(obj: Any, known: Any) -> bool:
    """Tell whether an object is a command queue of the GPU that `known` is one of."""
    if type(obj) is not type(known):
        return False
    return bool(obj.device().registryID() == known.device().registryID())


def place_in(buffer: Any, device: Any) -> tuple[bool, bool, int]:
    """Tell of a buffer whether it is of this GPU, whether the host sees it, and its bytes."""
    ours = buffer.device().registryID() == device.registryID()
    return ours, buffer.storageMode() == Metal.MTLStorageModeShared, buffer.length()


# -- programs


class BuildError(Exception):
    """Metal's compiler refused a text; `log` is all that it said."""

    def __init__(self, log: str) -> None:
        super().__init__(log)
        self.log = log


def build(device: Any, text: str, version: str) -> Any:
    """Compile a text at run time, without fast math. Raises: BuildError."""
    options = Metal.MTLCompileOptions.alloc().init()
    options.setLanguageVersion_(getattr(Metal, f"MTLLanguageVersion{version}"))
    if options.respondsToSelector_("setMathMode:"):
        options.setMathMode_(_SAFE_MATH)
    else:  # before macOS 15
        options.setFastMathEnabled_(False)
    library, error = device.newLibraryWithSource_options_error_(text, options, None)
    return _built(library, error, "newLibraryWithSource:options:error:")


def build_file(device: Any, path: str) -> Any:
    """Load a metallib. Raises: BuildError."""
    url = NSURL.alloc().initFileURLWithPath_(path)
    library, error = device.newLibraryWithURL_error_(url, None)
    return _built(library, error, "newLibraryWithURL:error:")


def _built(library: Any, error: Any, selector: str) -> Any:
    if library is None:
        said = None if error is None else str(error.localizedDescription())
        raise BuildError(said or f"{selector} gave nothing")
    return library


def kernel_names(library: Any) -> list[str]:
    """Return the names of a library's kernels."""
    return [str(name) for name in library.functionNames()]


class TextureBinding(NamedTuple):
    """A texture that a kernel takes."""

    axes: int  # 0: no texture of one to three
    type: str
    access: str  # "read", also of one that is sampled

    def __str__(self) -> str:
        return f"texture{self.axes}d<{self.type}, access::{self.access}>"


class Pipeline(NamedTuple):
    """A kernel that is ready to run."""

    state: Any
    max_block_threads: int
    width: int  # threads of a simdgroup
    shared_nbytes: int
    textures: dict[int, TextureBinding]  # by their entry; as the next, where they were asked for
    threadgroups: list[int]  # the entries of threadgroup memory, whose size a launch gives


def pipeline_of(device: Any, library: Any, entry: str, bindings: bool = False) -> Pipeline:
    """Make a kernel ready. Raises: BuildError with what the GPU's compiler says; Refused."""
    function = _given(library.newFunctionWithName_(entry), "newFunctionWithName:")
    option = Metal.MTLPipelineOptionBindingInfo if bindings else Metal.MTLPipelineOptionNone
    state, reflection, error = device.newComputePipelineStateWithFunction_options_reflection_error_(
        function, option, None, None
    )
    if state is None:
        said = None if error is None else str(error.localizedDescription())
        raise BuildError(said or "newComputePipelineStateWithFunction:... gave nothing")
    found = reflection.bindings() if bindings else ()
    return Pipeline(
        state,
        state.maxTotalThreadsPerThreadgroup(),
        state.threadExecutionWidth(),
        state.staticThreadgroupMemoryLength(),
        {
            one.index(): TextureBinding(
                _AXES.get(one.textureType(), 0),
                _DATA_TYPES.get(one.textureDataType(), "?"),
                _ACCESSES[one.access()],
            )
            for one in found
            if one.type() == Metal.MTLBindingTypeTexture
        },
        [one.index() for one in found if one.type() == Metal.MTLBindingTypeThreadgroupMemory],
    )


def read_write_tier(device: Any) -> int:
    """Return 2 where kernels read and write textures of most formats, 1 for few, 0 for none."""
    tier: int = device.readWriteTextureSupport()
    return tier


# -- work


class Work:
    """A command buffer and the name of what it does, such as "launch of saxpy"."""

    __slots__ = ("commands", "done", "name")

    def __init__(self, commands: Any, name: str) -> None:
        self.commands, self.name = commands, name
        self.done = False  # it was seen complete, and its failure noted


def make_commands(queue: Any) -> Any:
    """Return an empty command buffer. Order: waits while 64 are in flight. Raises: Refused."""
    return _given(queue.commandBuffer(), "commandBuffer")


def commit(work: Work) -> None:
    """Queue a command buffer, in which nothing changes any more."""
    work.commands.commit()


def is_committed(work: Work) -> bool:
    return bool(work.commands.status() >= _COMMITTED)


def is_over(work: Work) -> bool:
    return bool(work.commands.status() >= _COMPLETED)


def fault_of(work: Work, device: str) -> DeviceFault | None:
    """Return why work that is over failed; None if it did not."""
    with pool():
        if work.commands.status() != _FAILED:
            return None
        error = work.commands.error()
        words = "Metal does not say why" if error is None else _words(error)
        cause = None if error is None else _CAUSES.get(error.code())
        code = None if error is None else error.code()
    return DeviceFault(
        "wait", f"{work.name} failed with {words}{f' ({cause})' if cause else ''}", got=code,
        device=device, fix="Look for an index beyond a buffer, and for loops that never end.",
    )  # fmt: skip


def passed(work: Work) -> tuple[float, float]:
    """Return when the GPU began and ended, in seconds of the clock of `time.perf_counter`.

    Source: GPUStartTime, "host time"; both count from mach_absolute_time.
    """
    return work.commands.GPUStartTime(), work.commands.GPUEndTime()


def compute(commands: Any, encode: Callable[[Any], object]) -> None:
    """Add kernels: those that `encode(encoder)` adds. Raises: Refused."""
    _encoded(commands.computeCommandEncoder, "computeCommandEncoder", encode)


def _blit(commands: Any, encode: Callable[[Any], object]) -> None:
    """Add copies and fills: those that `encode(encoder)` adds. Raises: Refused."""
    _encoded(commands.blitCommandEncoder, "blitCommandEncoder", encode)


def _encoded(make: Callable[[], Any], selector: str, encode: Callable[[Any], object]) -> None:
    # In one step: behind a call of `make` Ctrl-C may come, and Metal ends the process when an
    # encoder is released that nobody has ended.
    (encoder,) = map(call, (make,))
    try:
        encode(_given(encoder, selector))
    finally:
        if encoder is not None:
            encoder.endEncoding()


def run_kernel(
    commands: Any, pipeline: Any, places: list[tuple[Any, int]], numbers: list[bytes], blocks: int,
    threads: int,
) -> None:  # fmt: skip
    """Add a launch of one of our own kernels: buffers first, then bytes. Raises: Refused."""

    def encode(encoder: Any) -> None:
        encoder.setComputePipelineState_(pipeline)
        for index, (buffer, offset) in enumerate(places):
            encoder.setBuffer_offset_atIndex_(buffer, offset, index)
        for index, data in enumerate(numbers, len(places)):
            encoder.setBytes_length_atIndex_(data, len(data), index)
        encoder.dispatchThreadgroups_threadsPerThreadgroup_((blocks, 1, 1), (threads, 1, 1))

    compute(commands, encode)


def copy_between(
    commands: Any, dest: Any, dest_offset: int, src: Any, src_offset: int, nbytes: int
) -> None:
    """Add a copy. Offsets and size are multiples of 4, and the ranges do not overlap."""
    _blit(
        commands,
        lambda encoder: encoder.copyFromBuffer_sourceOffset_toBuffer_destinationOffset_size_(
            src, src_offset, dest, dest_offset, nbytes
        ),
    )


def copy_pixels(
    commands: Any, texture: Any, image: Image, buffer: Any, offset: int, into_texture: bool
) -> None:
    """Add a copy of a whole texture from or to a buffer, in which no row has a gap behind it.

    The offset is a multiple of the size of a pixel, and of what the GPU's family wants.
    """
    size = (*image.shape[-2::-1], 1, 1)[:3]
    row = image.nbytes // (size[1] * size[2])
    layer = row * size[1] if size[2] > 1 else 0  # what a texture of two axes has to be given
    first = 0, 0, 0

    def encode(encoder: Any) -> None:
        if into_texture:
            encoder.copyFromBuffer_sourceOffset_sourceBytesPerRow_sourceBytesPerImage_sourceSize_toTexture_destinationSlice_destinationLevel_destinationOrigin_(
                buffer, offset, row, layer, size, texture, 0, 0, first
            )
        else:
            encoder.copyFromTexture_sourceSlice_sourceLevel_sourceOrigin_sourceSize_toBuffer_destinationOffset_destinationBytesPerRow_destinationBytesPerImage_(
                texture, 0, 0, first, size, buffer, offset, row, layer
            )

    _blit(commands, encode)


def fill_range(commands: Any, dest: Any, offset: int, nbytes: int, value: int) -> None:
    """Repeat a byte. Offset and size are multiples of 4."""
    signed = value - 256 if value > 127 else value  # pyobjc's table has the byte as a signed one
    _blit(commands, lambda encoder: encoder.fillBuffer_range_value_(dest, (offset, nbytes), signed))


# The launch of one kernel, generated for its arguments. The work is noted before it is committed:
# a wait of another thread could think the device idle otherwise.
LAUNCH = """
def launch(geometry{names}):
    {check}
    with pool():
        try:
            commands = queue.commandBuffer()
            if commands is None:
                raise Refused("commandBuffer")
            (encoder,) = map(call, (commands.computeCommandEncoder,))  # as `_encoded` does
            if encoder is None:
                raise Refused("computeCommandEncoder")
            try:
                encode(encoder, geometry{names})
            finally:
                encoder.endEncoding()
            work = Work(commands, title)
            try:
                pending.append(work)
                commands.commit()
            except BaseException:
                withdraw(work)
                raise
        except Error as error:
            raise explain(error, operation, device) from None
    if len(pending) > most:
        settle()
    return work
"""
ENCODE = """
def encode(encoder, geometry{names}):
    encoder.setComputePipelineState_(pipeline)
    {arguments}
    encoder.dispatchThreadgroups_threadsPerThreadgroup_(geometry.grid, geometry.block)
"""
SET_BUFFER = "encoder.setBuffer_offset_atIndex_({memory}.buffer, {memory}.offset, {index})"
SET_TEXTURE = "encoder.setTexture_atIndex_({memory}.texture, {index})"
SET_BYTES = "encoder.setBytes_length_atIndex_({data}, {nbytes}, {index})"
SET_SHARED = "encoder.setThreadgroupMemoryLength_atIndex_(geometry.shared, {index})"


def launch_names() -> dict[str, Any]:
    """Return the names that LAUNCH has from here."""
    return {
        "pool": pool, "Refused": Refused, "Work": Work, "Error": (Refused, objc.error),
        "explain": explain, "call": call,
    }  # fmt: skip


# -- events


def new_event(device: Any) -> Any:
    """Make an event that several queues, and the host, can wait for. Raises: Refused."""
    return _given(device.newSharedEvent(), "newSharedEvent")


def signal_event(commands: Any, event: Any, value: int) -> None:
    """Let an event have a value when the work before is done."""
    commands.encodeSignalEvent_value_(event, value)


def wait_event(commands: Any, event: Any, value: int) -> None:
    """Let the work behind begin when an event has a value."""
    commands.encodeWaitForEvent_value_(event, value)


def set_event(event: Any, value: int) -> None:
    """Give an event a value now."""
    event.setSignaledValue_(value)
