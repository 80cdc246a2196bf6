"""Apple's Metal in software, shaped as pyobjc gives it: kernels run on this machine's processor.

Where Metal, or its validation, ends the process, `metal_control.ProcessEnds` is raised here and
remembered. Work runs on a thread for each command queue, in the order of the commits.
"""

import ctypes
import math
import mmap
import os
import queue
import re
import struct
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import metal_control as control
import msl
from Foundation import NSError
from metal_control import end_process
from objc import NSObject, seal
from pyobjc_table import table

_MOST_TEXTURES = 128
_MAX_INDEX, _MAX_BYTES, _MAX_SHARED, _MAX_THREADS = 30, 4096, 32 << 10, 1024
_IN_FLIGHT = 64
_DEADLOCK_SECONDS = 60.0
_FAMILIES = 1007, 1008, 3001, 3002, 3003, 5001  # Apple 7 and 8, Common 1 to 3, Metal 3


def __getattr__(name):
    try:
        return table().constants[name]
    except KeyError:
        raise AttributeError(f"Metal has no {name}") from None


class MTLSize(NamedTuple):
    width: int
    height: int
    depth: int


# -- memory


class _Contents:
    """A pointer to memory of unknown length, as pyobjc gives it (objc.varlist)."""

    def __init__(self, memory):
        self._memory = memory

    def as_buffer(self, nbytes):
        return memoryview(self._memory)[:nbytes]


class MTLBuffer(NSObject):
    def __init__(self, device, nbytes):
        super().__init__()
        self._device, self._nbytes = device, nbytes
        self._bytes = mmap.mmap(-1, nbytes)
        if nbytes <= 4096:
            self._bytes[:] = b"\xa5" * nbytes  # nobody promises zeros
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._bytes))
        with device._lock:
            device._allocated += nbytes

    def contents(self):
        return _Contents(self._bytes)

    def length(self):
        return self._nbytes

    def storageMode(self):
        return 0

    def device(self):
        return self._device

    def __del__(self):
        if hasattr(self, "_address"):
            with self._device._lock:
                self._device._allocated -= self._nbytes


def _setter(name):
    return lambda self, value: self._asked.update({name: value})


class MTLTextureDescriptor(NSObject):
    def __init__(self):
        super().__init__()
        self._asked = {"type": 2, "format": 70, "width": 1, "height": 1, "depth": 1, "mode": 1,
                       "usage": 1}  # fmt: skip

    setTextureType_, setPixelFormat_ = _setter("type"), _setter("format")
    setWidth_, setHeight_, setDepth_ = _setter("width"), _setter("height"), _setter("depth")
    setStorageMode_, setUsage_ = _setter("mode"), _setter("usage")

    def _size(self):
        return tuple(self._asked[axis] for axis in ("width", "height", "depth"))


# What metal_texture calls a format -> how Metal's constants end, in its order.
_FORMATS = ("8Unorm", "16Unorm", "8Snorm", "16Snorm", "8Uint", "16Uint", "32Uint", "8Sint",
            "16Sint", "32Sint", "16Float", "32Float")  # fmt: skip
_AXES = {0: 1, 2: 2, 7: 3}  # MTLTextureType -> number of axes
_LONGEST = {1: 16384, 2: 16384, 3: 2048}  # by the number of axes
# Channels and formats that a kernel both reads and writes: of MTLReadWriteTextureTier1, and 2.
_READ_WRITE_1 = {"132Float", "132Uint", "132Sint"}
_READ_WRITE = {"132Float", "132Uint", "132Sint", "116Float", "116Uint", "116Sint", "18Unorm",
               "18Uint", "18Sint", "432Float", "432Uint", "432Sint", "416Float", "416Uint",
               "416Sint", "48Unorm", "48Uint", "48Sint"}  # fmt: skip
_TYPES = {"float": "float half", "norm": "float half", "uint": "uint ushort", "sint": "int short"}


class MTLTexture(NSObject):
    """Pixels, row after row, and the record that a kernel has of them."""

    def __init__(self, device, asked):
        super().__init__()
        self._device, self._axes, self._size = device, _AXES[asked._asked["type"]], asked._size()
        self._usage = asked._asked["usage"]
        constants = table().constants
        self._channels, self._format = next(
            (channels, ending)
            for channels, order in ((1, "R"), (2, "RG"), (4, "RGBA"))
            for ending in _FORMATS
            if constants[f"MTLPixelFormat{order}{ending}"] == asked._asked["format"]
        )
        self._types = next(_TYPES[one] for one in _TYPES if one in self._format.lower())
        self._pixel = self._channels * int(re.match(r"\d+", self._format)[0]) // 8
        self._nbytes = self._pixel * math.prod(self._size)
        self._texels = ctypes.create_string_buffer(b"\xa5" * self._nbytes, self._nbytes)
        self._record = ctypes.create_string_buffer(struct.pack(
            "Q5I4x", ctypes.addressof(self._texels), *self._size, self._channels,
            _FORMATS.index(self._format),
        ))  # fmt: skip
        with device._lock:
            device._allocated += self._nbytes

    def __del__(self):
        if hasattr(self, "_record"):
            with self._device._lock:
                self._device._allocated -= self._nbytes


# -- devices


class MTLDevice(NSObject):
    def __init__(self, number):
        super().__init__()
        seal()
        self._number, self._allocated = number, 0
        self._lock = threading.RLock()

    def name(self):
        return f"Software GPU {self._number}"

    def registryID(self):
        return 4096 + self._number

    def hasUnifiedMemory(self):
        return control.unified

    def recommendedMaxWorkingSetSize(self):
        return control.room

    def maxBufferLength(self):
        return control.room // 2

    def maxThreadgroupMemoryLength(self):
        return _MAX_SHARED

    def maxThreadsPerThreadgroup(self):
        return MTLSize(_MAX_THREADS, _MAX_THREADS, _MAX_THREADS)

    def supportsFamily_(self, family):
        return family in _FAMILIES

    def newCommandQueue(self):
        return MTLCommandQueue(self)

    def newSharedEvent(self):
        return MTLSharedEvent()

    def newBufferWithLength_options_(self, nbytes, options):
        if not nbytes:
            raise end_process("a buffer of 0 bytes")
        if options not in (0, 0x100, 0x200):
            raise end_process(f"software Metal has shared storage only, not options {options}")
        if nbytes > control.room // 2 or self._allocated + nbytes > control.room:
            return None
        return MTLBuffer(self, nbytes)

    def newTextureWithDescriptor_(self, asked):
        axes, size, mode = _AXES[asked._asked["type"]], asked._size(), asked._asked["mode"]
        if mode != 2:
            raise end_process(f"software Metal has private textures only, not mode {mode}")
        if min(size) < 1 or max(size[axes:], default=1) > 1 or max(size) > _LONGEST[axes]:
            raise end_process(f"a texture of {axes} axes, and the size {size}")
        made = MTLTexture(self, asked)
        return made if self._allocated <= control.room else None

    def newLibraryWithSource_options_error_(self, text, options, _):
        if options is None or options._math != 0:
            raise end_process("the default is fast math, which kernels must not have")
        if re.search(r"\bdouble\b", text):
            why = "program_source:1:1: error: 'double' is not supported in Metal"
            return None, NSError("MTLLibraryErrorDomain", 3, why)
        try:
            return MTLLibrary(self, text), None
        except (msl.CompileError, OSError) as error:
            return None, NSError("MTLLibraryErrorDomain", 3, f"program_source: {error}")

    def newLibraryWithURL_error_(self, url, _):
        with open(url._path, "rb") as file:
            content = file.read()
        if not content.startswith(b"MTLB"):
            return None, NSError("MTLLibraryErrorDomain", 1, "Invalid library file")
        return MTLLibrary(self, content[4:].decode()), None

    def newComputePipelineStateWithFunction_options_reflection_error_(
        self, function, options, _, __
    ):
        if function is None:
            raise end_process("computeFunction must not be nil")
        made = MTLComputePipelineState(self, function)
        if made._static > _MAX_SHARED:
            why = f"Threadgroup memory size ({made._static}) exceeds the maximum ({_MAX_SHARED})"
            return None, None, NSError("AGXMetal", 3, why)
        return made, MTLComputePipelineReflection(function) if options & 1 else None, None

    def readWriteTextureSupport(self):
        return control.read_write_tier


def _devices():
    return tuple(MTLDevice(n) for n in range(int(os.environ.get("SIM_METAL_DEVICES", "2"))))


_all = ()
_making = threading.Lock()


def MTLCopyAllDevices():
    global _all
    with _making:
        _all = _all or _devices()
    return _all


def MTLCreateSystemDefaultDevice():
    return next(iter(MTLCopyAllDevices()), None)


# -- kernels


class MTLCompileOptions(NSObject):
    _math, _version = 2, 0

    def setLanguageVersion_(self, version):
        if version not in table().constants.values():
            raise end_process(f"no language version {version}")
        self._version = version

    def setMathMode_(self, mode):
        self._math = mode

    def setFastMathEnabled_(self, enabled):
        self._math = 2 if enabled else 0


class MTLLibrary(NSObject):
    def __init__(self, device, text):
        self._code = msl.Library(text)
        self._text = text
        super().__init__()

    def functionNames(self):
        return tuple(self._code.kernels)

    def newFunctionWithName_(self, name):
        return MTLFunction(self, name) if name in self._code.kernels else None


class MTLFunction(NSObject):
    def __init__(self, library, name):
        super().__init__()
        self._library, self._kernel = library, library._code.kernels[name]


_SIZES = {"char": 1, "uchar": 1, "bool": 1, "short": 2, "ushort": 2, "half": 2, "int": 4, "uint": 4,
          "float": 4, "long": 8, "ulong": 8}  # fmt: skip
_SHARED = re.compile(r"\bthreadgroup\s+(\w+)\s+\w+((?:\[\d+\])+)\s*;")


class MTLComputePipelineState(NSObject):
    def __init__(self, device, function):
        super().__init__()
        self._device, self._function = device, function
        self._kernel, self._code = function._kernel, function._library._code
        self._most = min(control.most_threads or _MAX_THREADS, self._kernel.most_threads)
        self._static = sum(
            _SIZES.get(kind, 16) * math.prod(map(int, re.findall(r"\d+", sizes))) + 15 & -16
            for kind, sizes in _SHARED.findall(function._library._text)
        )

    def maxTotalThreadsPerThreadgroup(self):
        return self._most

    def threadExecutionWidth(self):
        return 1  # a simdgroup has one thread here

    def staticThreadgroupMemoryLength(self):
        return self._static


class MTLComputePipelineReflection(NSObject):
    def __init__(self, function):
        super().__init__()
        self._bindings = tuple(map(MTLBinding, function._kernel.arguments))

    def bindings(self):
        return self._bindings


class MTLBinding(NSObject):
    """Describe an argument of a kernel; the last three messages are those of a texture alone."""

    def __init__(self, argument):
        super().__init__()
        self._argument = argument

    def index(self):
        return self._argument.index

    def type(self):
        return {"buffer": 0, "threadgroup": 1, "texture": 2}[self._argument.kind]

    def access(self):
        return {"write": 2, "read_write": 1}.get(self._argument.texture[2], 0)

    def textureType(self):
        axes = self._argument.texture[0]
        return next(kind for kind, count in _AXES.items() if count == axes)

    def textureDataType(self):
        words = {"uint": "UInt", "ushort": "UShort"}
        kind = self._argument.texture[1]
        return table().constants[f"MTLDataType{words.get(kind, kind.capitalize())}"]


# -- work


class _Failed(Exception):
    def __init__(self, code, words):
        super().__init__(words)
        self.code, self.words = code, words


class MTLSharedEvent(NSObject):
    def __init__(self):
        super().__init__()
        self._value = 0
        self._changed = threading.Condition()

    def setSignaledValue_(self, value):
        self._signal(value)

    def _signal(self, value):
        with self._changed:
            self._value = max(self._value, value)
            self._changed.notify_all()

    def _wait(self, value):
        with self._changed:
            while self._value < value:
                self._changed.wait(0.5)


class MTLCommandQueue(NSObject):
    def __init__(self, device):
        super().__init__()
        self._device = device
        self._free = queue.SimpleQueue()  # written in C: Ctrl-C leaves no lock of it held
        for place in range(_IN_FLIGHT):
            self._free.put(place)
        self._committed = queue.SimpleQueue()
        self._thread = None
        self._starting = threading.Lock()

    def commandBuffer(self):
        try:
            self._free.get(timeout=_DEADLOCK_SECONDS)
        except queue.Empty:
            raise end_process(
                f"{_IN_FLIGHT} command buffers are in flight, and none ends"
            ) from None
        return MTLCommandBuffer(self._device, self._free, self._commit)

    def device(self):
        return self._device

    def _commit(self, commands):
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=_serve, args=(self._committed,), daemon=True, name="software GPU"
                )
                self._thread.start()
            self._committed.put(commands)

    def __del__(self):
        if hasattr(self, "_committed"):
            self._committed.put(None)


def _serve(committed):
    while (commands := committed.get()) is not None:
        commands._run()
        del commands


class MTLCommandBuffer(NSObject):
    def __init__(self, device, free, commit):
        super().__init__()
        self._device, self._free, self._commit = device, free, commit
        self._status, self._error = 0, None
        self._times = 0.0, 0.0
        self._work = []
        self._open = 0  # encoders

    def computeCommandEncoder(self):
        self._begin()
        return MTLComputeCommandEncoder(self)

    def blitCommandEncoder(self):
        self._begin()
        return MTLBlitCommandEncoder(self)

    def _begin(self):
        self._check_open()
        if self._open:
            raise end_process("an encoder is made while another one is open")
        self._open += 1

    def _check_open(self):
        if self._status:
            raise end_process("a command buffer is encoded after its commit")

    def encodeSignalEvent_value_(self, event, value):
        self._check_between()
        self._work.append(lambda: event._signal(value))

    def encodeWaitForEvent_value_(self, event, value):
        self._check_between()
        self._work.append(lambda: event._wait(value))

    def _check_between(self):
        self._check_open()
        if self._open:
            raise end_process("an event is encoded while an encoder is open")

    def commit(self):
        if self._status:
            raise end_process("a command buffer is committed twice")
        if self._open:
            raise end_process("a command buffer is committed while an encoder is open")
        self._status = 2
        self._commit(self)

    def status(self):
        return self._status

    def error(self):
        return self._error

    def GPUStartTime(self):
        return self._times[0]

    def GPUEndTime(self):
        return self._times[1]

    def _run(self):
        self._status = 3
        try:
            control.go.wait()
            start = time.perf_counter()
            if control.seconds:
                time.sleep(control.seconds)
            if control.faults and self._work:
                fault = control.faults.popleft()
                raise _Failed(fault.code, fault.words)
            for work in self._work:
                work()
            self._times, status = (start, time.perf_counter()), 4
        except _Failed as error:
            self._error = NSError("MTLCommandBufferErrorDomain", error.code, error.words)
            status = 5
        except Exception as error:  # such as threads of a block that end while others wait
            self._error = NSError("MTLCommandBufferErrorDomain", 1, repr(error))
            status = 5
        self._work.clear()  # a command buffer holds what it uses until it is done
        self._status = status
        self._release()

    def _release(self):
        free, self._free = self._free, None
        if free is not None:
            free.put(None)

    def __del__(self):
        if getattr(self, "_free", None) is not None:
            self._release()


class _Encoder(NSObject):
    def __init__(self, commands):
        super().__init__()
        self._commands = commands

    def endEncoding(self):
        self._in()._open -= 1
        self._commands = None

    def _in(self):
        if self._commands is None:
            raise end_process("an encoder is used after endEncoding")
        return self._commands

    def __del__(self):
        if getattr(self, "_commands", None) is not None:
            end_process("an encoder is released without endEncoding")


class MTLBlitCommandEncoder(_Encoder):
    def copyFromBuffer_sourceOffset_toBuffer_destinationOffset_size_(
        self, src, src_at, dest, dest_at, nbytes
    ):
        if src_at % 4 or dest_at % 4 or nbytes % 4 or not nbytes:
            raise end_process(f"a blit of {nbytes} bytes from {src_at} to {dest_at}: not 4 x n")
        for buffer, at in ((src, src_at), (dest, dest_at)):
            self._check_range(buffer, at, nbytes)
        if src is dest and abs(src_at - dest_at) < nbytes:
            raise end_process("a blit between ranges that overlap")

        def copy():
            ctypes.memmove(dest._address + dest_at, src._address + src_at, nbytes)

        self._in()._work.append(copy)

    def copyFromBuffer_sourceOffset_sourceBytesPerRow_sourceBytesPerImage_sourceSize_toTexture_destinationSlice_destinationLevel_destinationOrigin_(  # noqa: E501
        self, src, at, row, layer, size, dest, slice, level, origin
    ):
        self._check_pixels(dest, (slice, level, *origin), size, src, at, row, layer)

        def copy():
            ctypes.memmove(dest._texels, src._address + at, dest._nbytes)

        self._in()._work.append(copy)

    def copyFromTexture_sourceSlice_sourceLevel_sourceOrigin_sourceSize_toBuffer_destinationOffset_destinationBytesPerRow_destinationBytesPerImage_(  # noqa: E501
        self, src, slice, level, origin, size, dest, at, row, layer
    ):
        self._check_pixels(src, (slice, level, *origin), size, dest, at, row, layer)

        def copy():
            ctypes.memmove(dest._address + at, src._texels, src._nbytes)

        self._in()._work.append(copy)

    def _check_pixels(self, texture, first, size, buffer, at, row, layer):
        """Take a whole texture, without gaps between its rows."""
        pixel, (width, height, depth) = texture._pixel, texture._size
        if at % pixel or at % 16 or row % pixel or layer % pixel:
            raise end_process(f"offset {at} or bytes per row between pixels of {pixel} bytes")
        if any(first) or tuple(size) != texture._size:
            raise end_process(f"a part of a texture of {texture._size}: {first}, {size}")
        if row != width * pixel or layer != (row * height if depth > 1 else 0):
            raise end_process(f"{row} bytes for a row of {width}, {layer} for a layer")
        if texture._device is not self._in()._device:
            raise end_process("a texture of another device")
        self._check_range(buffer, at, texture._nbytes)

    def fillBuffer_range_value_(self, dest, span, value):
        start, nbytes = span
        if start % 4 or nbytes % 4 or not nbytes:
            raise end_process(f"a fill of {nbytes} bytes at {start}: not 4 x n")
        self._check_range(dest, start, nbytes)

        def fill():
            ctypes.memset(dest._address + start, value & 255, nbytes)

        self._in()._work.append(fill)

    def _check_range(self, buffer, at, nbytes):
        if at + nbytes > buffer._nbytes:
            raise end_process(f"bytes {at} to {at + nbytes} of a buffer of {buffer._nbytes}")
        if buffer._device is not self._in()._device:
            raise end_process("a buffer of another device")


class MTLComputeCommandEncoder(_Encoder):
    def __init__(self, commands):
        super().__init__(commands)
        self._pipeline = None
        self._buffers = {}  # index -> owner, address, offset
        self._shared = {}
        self._textures = {}

    def setComputePipelineState_(self, pipeline):
        if pipeline._device is not self._in()._device:
            raise end_process("a pipeline of another device")
        self._pipeline = pipeline

    def setBuffer_offset_atIndex_(self, buffer, offset, index):
        self._check_index(index)
        if buffer is None:
            self._buffers.pop(index, None)
            return
        if buffer._device is not self._in()._device:
            raise end_process("a buffer of another device")
        if offset >= buffer._nbytes:
            raise end_process(f"offset {offset} of a buffer of {buffer._nbytes} bytes")
        self._buffers[index] = buffer, buffer._address + offset, offset

    def setBytes_length_atIndex_(self, data, nbytes, index):
        self._check_index(index)
        if not 0 < nbytes <= _MAX_BYTES:
            raise end_process(f"setBytes of {nbytes} bytes: 1 to {_MAX_BYTES}")
        kept = ctypes.create_string_buffer(bytes(data)[:nbytes], nbytes)
        self._buffers[index] = kept, ctypes.addressof(kept), 0

    def setTexture_atIndex_(self, texture, index):
        if index >= _MOST_TEXTURES:
            raise end_process(f"texture index {index} is above {_MOST_TEXTURES - 1}")
        if texture._device is not self._in()._device:
            raise end_process("a texture of another device")
        self._textures[index] = texture

    def _texture_for(self, argument):
        """Return what is bound to a texture of the kernel, which has to fit."""
        if argument.index not in self._textures:
            raise end_process(f"missing texture binding at index {argument.index}")
        texture = self._textures[argument.index]
        axes, kind, access = argument.texture
        if axes != texture._axes or kind not in texture._types.split():
            raise end_process(f"{argument.type} of {texture._axes} axes, {texture._format}")
        usage = {"write": 2, "read_write": 3}.get(access, 1)
        if usage & ~texture._usage:
            raise end_process(f"{argument.type}, and the texture's usage is {texture._usage}")
        if access == "read_write" and f"{texture._channels}{texture._format}" not in (
            _READ_WRITE if control.read_write_tier == 2 else _READ_WRITE_1
        ):
            raise end_process(f"{argument.type} of {texture._channels} channels, {texture._format}")
        return texture

    def _check_index(self, index):
        self._in()
        if index > _MAX_INDEX:
            raise end_process(f"index {index} is above {_MAX_INDEX}")

    def setThreadgroupMemoryLength_atIndex_(self, nbytes, index):
        self._check_index(index)
        if nbytes % 16:
            raise end_process(f"{nbytes} bytes of threadgroup memory: not a multiple of 16")
        self._shared[index] = nbytes

    def dispatchThreadgroups_threadsPerThreadgroup_(self, grid, block):
        pipeline = self._pipeline
        if pipeline is None:
            raise end_process("a dispatch without a pipeline")
        if 0 in grid or 0 in block:
            raise end_process(f"a dispatch without threads: {tuple(grid)} x {tuple(block)}")
        if math.prod(block) > pipeline._most:
            raise end_process(f"{math.prod(block)} threads of a block, limit {pipeline._most}")
        if pipeline._static + sum(self._shared.values()) > _MAX_SHARED:
            raise end_process(f"more than {_MAX_SHARED} bytes of threadgroup memory")
        owners = [pipeline]
        addresses = []
        for argument in pipeline._kernel.arguments:
            if argument.kind == "threadgroup":
                kept = ctypes.create_string_buffer(self._shared.get(argument.index, 0) or 0)
                if argument.index not in self._shared:
                    raise end_process(f"missing threadgroup memory at index {argument.index}")
                owners.append(kept)
                addresses.append(ctypes.addressof(kept))
                continue
            if argument.kind == "texture":
                owners.append(self._texture_for(argument))
                addresses.append(ctypes.addressof(owners[-1]._record))
                continue
            if argument.index not in self._buffers:
                raise end_process(f"missing buffer binding at index {argument.index}")
            owner, address, offset = self._buffers[argument.index]
            kind = re.sub(r"\b(const|device|constant|volatile)\b|[*&\s]", "", argument.type)
            if offset % _SIZES.get(kind, 1):
                raise end_process(f"offset {offset} of {argument.name!r} between elements")
            owners.append(owner)
            addresses.append(address)
        threads = tuple(g * b for g, b in zip(grid, block, strict=True))
        code, name = pipeline._code, pipeline._kernel.name

        def run(owners=owners):
            code.run(name, addresses, threads, tuple(block))

        self._in()._work.append(run)
