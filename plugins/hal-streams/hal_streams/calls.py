"""Functions that CUDA and HIP have under two prefixes, with the same arguments and flags.

`call("StreamSynchronize", stream)` is cuStreamSynchronize or hipStreamSynchronize. A backend of
this kind adds what differs: starting, contexts, the architecture of a device, what a status means.
"""

from __future__ import annotations

import struct
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, ClassVar

from hal_streams.driver import (
    CAPTURING,
    INVALID_VALUE,
    NOT_READY,
    Facts,
    KernelFacts,
    Refused,
    StreamDriver,
)
from hal_streams.images import Array

if TYPE_CHECKING:
    from hal_core.allocator import Image

_KERNEL_FACTS = 4, 1, 3, 0  # registers, shared, local, threads: KernelFacts' order
_PORTABLE_MAPPED = 0x01 | 0x02  # of host memory: every context, and kernels, reach it
_NON_BLOCKING = 1  # of a stream
_PINNED, _NO_HANDLES, _ON_DEVICE = 1, 0, 1  # of a pool: kind of memory, exports, place
_READ_WRITE = 3  # access to a pool
_RELEASE_THRESHOLD = 4  # attribute of a pool
# Modes of a thread: it minds all captures, as it does at first; those of others do not concern it.
_GLOBAL, _RELAXED = 0, 2
_SET = {1: "MemsetD8Async", 2: "MemsetD16Async", 4: "MemsetD32Async"}
_TITLE_NBYTES = 128
_SURFACES = 2  # CUDA_ARRAY3D_SURFACE_LDST: kernels may write the array
_CLAMP, _POINT = 1, 0  # CU_TR_ADDRESS_MODE_..., CU_TR_FILTER_MODE_...
_AS_INTEGERS = 1  # CU_TRSF_READ_AS_INTEGER
_FORMATS = {  # CU_AD_FORMAT_...
    "uint8": 1, "uint16": 2, "uint32": 3, "int8": 8, "int16": 9, "int32": 10, "float16": 16,
    "float32": 32,
}  # fmt: skip


class Layout:
    """A structure of the driver: its type, and its fields as `struct` packs them."""

    def __init__(self, type: str, format: str, fields: str) -> None:
        self.type, self.format, self.fields = type, format, tuple(fields.split())

    def filled(self, facts: dict[str, int]) -> tuple[str, bytes]:
        """Return the type and the bytes; a field that has no fact is 0."""
        return self.type, struct.pack(self.format, *(facts.get(name, 0) for name in self.fields))


class PrefixedDriver(StreamDriver):
    """The driver functions of one prefix; handles are what `call` returns."""

    attributes: ClassVar[dict[str, int]]  # of a device: their names, and the driver's numbers
    # Enumerations of the driver: a transport may need a type of its own.
    device_attribute: Any = int
    function_attribute: Any = int
    pool_attribute: Any = int
    capture_mode: Any = int

    @abstractmethod
    def call(self, name: str, *arguments: Any) -> Any:
        """Call a function by its name without prefix and version; return its result or results."""

    @abstractmethod
    def refused(self, name: str, status: Any) -> Refused:
        """Explain a status with the driver's own words."""

    @abstractmethod
    def arch_of(self, device: Any, attributes: dict[str, Any]) -> str:
        """Return a device's architecture, and add attributes that are made of others."""

    def structure(self, name: str, packed: bytes) -> Any:
        """Make a structure of the driver, such as a MemPoolProps, from its bytes."""
        return packed  # which ctypes passes as a pointer

    def array(self, one: Any) -> Any:
        """Make an array of one structure."""
        return one

    def call_or(self, unknown: int, name: str, *arguments: Any) -> int:
        """Return the integer result, or `unknown` if the driver calls an argument invalid."""
        try:
            return int(self.call(name, *arguments))
        except Refused as error:
            if error.code != INVALID_VALUE:
                raise
            return unknown

    # -- devices and contexts

    def device_of(self, index: int) -> Any:
        """Return the driver's handle of a device."""
        return index

    def count(self) -> int:
        return int(self.call("DeviceGetCount"))

    def facts(self, index: int) -> Facts:
        device = self.device_of(index)
        attributes: dict[str, Any] = {}
        for name, number in self.attributes.items():
            which = self.device_attribute(number)
            # 0: the driver is older than the attribute.
            attributes[name] = self.call_or(0, "DeviceGetAttribute", which, device)
        title = self.call("DeviceGetName", _TITLE_NBYTES, device).partition(b"\0")[0]
        nbytes = int(self.call("DeviceTotalMem", device))
        arch = self.arch_of(device, attributes)
        return Facts(title.decode(errors="replace"), nbytes, attributes, arch)

    def set_current(self, context: Any) -> None:
        self.call("CtxSetCurrent", context)

    def current_context(self) -> Any:
        return self.call("CtxGetCurrent")

    # -- memory

    def memory_info(self) -> tuple[int, int]:
        free, total = self.call("MemGetInfo")
        return int(free), int(total)

    def make_pool(self, index: int, keep_nbytes: int) -> Any:
        facts = struct.pack("4iPNH54x", _PINNED, _NO_HANDLES, _ON_DEVICE, index, 0, 0, 0)
        pool = self.call("MemPoolCreate", self.structure("CUmemPoolProps", facts))
        try:
            threshold = self.structure("cuuint64_t", struct.pack("Q", keep_nbytes))
            which = self.pool_attribute(_RELEASE_THRESHOLD)
            self.call("MemPoolSetAttribute", pool, which, threshold)
        except BaseException:
            self.destroy_pool(pool)
            raise
        return pool

    def share_pool(self, pool: Any, owner: int, device: int) -> None:
        if self.call("DeviceCanAccessPeer", device, owner):
            packed = struct.pack("3i", _ON_DEVICE, device, _READ_WRITE)
            access = self.array(self.structure("CUmemAccessDesc", packed))
            with suppress(Refused):  # then the driver copies through the host
                self.call("MemPoolSetAccess", pool, access, 1)

    def trim_pool(self, pool: Any) -> None:
        self.call("MemPoolTrimTo", pool, 0)

    def destroy_pool(self, pool: Any) -> None:
        self.call("MemPoolDestroy", pool)

    def allocate(self, nbytes: int, stream: Any, pool: Any) -> int:
        if pool is not None:
            return int(self.call("MemAllocFromPoolAsync", nbytes, pool, stream))
        return int(self.call("MemAlloc", nbytes))

    def free(self, address: int, stream: Any, pooled: bool) -> None:
        if pooled:
            self.call("MemFreeAsync", address, stream)
        else:
            self.wait_context()  # of a pool's memory MemFree waits for nothing
            self.call("MemFree", address)

    def allocate_host(self, nbytes: int) -> int:
        return int(self.call("MemHostAlloc", nbytes, _PORTABLE_MAPPED))

    def free_host(self, address: int) -> None:
        self.call("MemFreeHost", address)

    def make_array(self, image: Image) -> Array:
        sizes = image.width, image.height or 0, image.depth or 0
        format = _FORMATS[image.dtype.name if image.dtype else ""]
        facts = struct.pack("@3Q3I4x", *sizes, format, image.channels, _SURFACES)
        with ExitStack() as undo:
            handle = self.call("Array3DCreate", self.structure("CUDA_ARRAY3D_DESCRIPTOR", facts))
            undo.callback(self.call, "ArrayDestroy", handle)
            # The kind, which is 0 for an array, the array in a union of 128 bytes, flags.
            resource = self.structure(
                "CUDA_RESOURCE_DESC", struct.pack("@I4xQ128x", 0, int(handle))
            )
            # How to go beyond each axis, the filter, flags, and what has to do with levels.
            flags = 0 if image.normalised else _AS_INTEGERS
            packed = struct.pack("@5I84x", _CLAMP, _CLAMP, _CLAMP, _POINT, flags)
            sampling = self.structure("CUDA_TEXTURE_DESC", packed)
            texture = int(self.call("TexObjectCreate", resource, sampling, None))
            undo.callback(self.call, "TexObjectDestroy", texture)
            surface = int(self.call("SurfObjectCreate", resource))
            undo.pop_all()
        return Array(image, handle, texture, surface)

    def free_array(self, array: Array) -> None:
        self.wait_context()
        with ExitStack() as steps:  # each is taken, whatever another raises
            steps.callback(self.call, "ArrayDestroy", array.handle)
            steps.callback(self.call, "TexObjectDestroy", array.texture)
            self.call("SurfObjectDestroy", array.surface)

    def copy_in(self, dest: int, src: Any, nbytes: int, stream: Any) -> None:
        self.call("MemcpyHtoDAsync", dest, src, nbytes, stream)

    def copy_out(self, dest: Any, src: int, nbytes: int, stream: Any) -> None:
        self.call("MemcpyDtoHAsync", dest, src, nbytes, stream)

    def copy(self, dest: Any, src: Any, nbytes: int, stream: Any) -> None:
        self.call("MemcpyAsync", dest, src, nbytes, stream)

    def copy_peer(
        self, dest: int, dest_context: Any, src: int, src_context: Any, nbytes: int, stream: Any
    ) -> None:
        self.call("MemcpyPeerAsync", dest, dest_context, src, src_context, nbytes, stream)

    def fill(self, dest: int, pattern: bytes, count: int, stream: Any) -> None:
        self.call(_SET[len(pattern)], dest, int.from_bytes(pattern, "little"), count, stream)

    # -- streams and events

    def make_stream(self, independent: bool = False) -> Any:
        return self.call("StreamCreate", _NON_BLOCKING if independent else 0)

    def destroy_stream(self, stream: Any) -> None:
        self.call("StreamDestroy", stream)

    def wait(self, stream: Any) -> None:
        self.call("StreamSynchronize", stream)

    def is_done(self, stream: Any) -> bool:
        return self._is_ready("StreamQuery", stream)

    def _is_ready(self, name: str, handle: Any) -> bool:
        before = self._relax()
        try:
            self.call(name, handle)
        except Refused as error:
            if error.code != NOT_READY:
                raise
            return False
        finally:
            self._relax(before)
        return True

    def is_independent(self, stream: Any) -> bool:
        return bool(self.stream_flags(stream) & _NON_BLOCKING)

    def stream_flags(self, stream: Any) -> int:
        """Return the flags that a stream was made with."""
        return int(self.call("StreamGetFlags", stream))

    def is_capturing(self, stream: Any) -> bool:
        try:
            return bool(self.capture_status(stream))
        except Refused as error:  # a stream that the legacy one is ordered with
            if error.code not in CAPTURING:
                raise
            return True

    def capture_status(self, stream: Any) -> int:
        """Return 0 for a stream that is not captured."""
        return int(self.call("StreamIsCapturing", stream))

    def exchange_capture_mode(self, mode: Any) -> Any:
        """Change how the calling thread minds captures of others; return how it did so far."""
        return self.call("ThreadExchangeStreamCaptureMode", self.capture_mode(mode))

    def _relax(self, mode: Any = _RELAXED) -> Any:
        try:
            return self.exchange_capture_mode(mode)
        except Refused:  # the call that this is for tells more
            return _GLOBAL

    @contextmanager
    def relaxed(self) -> Iterator[None]:
        before = self._relax()
        try:
            yield
        finally:
            self._relax(before)

    def wait_context(self) -> None:
        self.call("CtxSynchronize")

    def make_event(self) -> Any:
        return self.call("EventCreate", 0)

    def destroy_event(self, event: Any) -> None:
        self.call("EventDestroy", event)

    def record(self, event: Any, stream: Any) -> None:
        self.call("EventRecord", event, stream)

    def wait_for(self, stream: Any, event: Any) -> None:
        self.call("StreamWaitEvent", stream, event, 0)

    def is_reached(self, event: Any) -> bool:
        return self._is_ready("EventQuery", event)

    def wait_event(self, event: Any) -> None:
        self.call("EventSynchronize", event)

    def seconds_between(self, start: Any, end: Any) -> float:
        self.wait_event(end)
        return float(self.call("EventElapsedTime", start, end)) * 1e-3

    # -- programs

    def unload(self, module: Any) -> None:
        self.call("ModuleUnload", module)

    def function_of(self, module: Any, name: str) -> Any:
        return self.call("ModuleGetFunction", module, name.encode())

    def kernel_facts(self, function: Any) -> KernelFacts:
        ask, kinds = "FuncGetAttribute", self.function_attribute
        return KernelFacts(*(int(self.call(ask, kinds(n), function)) for n in _KERNEL_FACTS))

    def launch_refused(self, status: Any) -> Refused:
        return self.refused("LaunchKernel", status)

    # -- graphs

    has_graphs = True
    launch_layout: ClassVar[Layout]  # function, gx .. bz, shared, arguments
    fill_layout: ClassVar[Layout]  # dest, element (bytes), value, count (of elements), rows
    nodes_have_context = False  # True: calls about copies and fills end with the context

    @abstractmethod
    def copy_node(self, dest: Any, src: Any, nbytes: int) -> tuple[Any, ...]:
        """Return the arguments that say what a node copies."""

    def handles(self, nodes: list[Any]) -> Any:
        """Make an array of handles."""
        return nodes

    def make_graph(self) -> Any:
        return self.call("GraphCreate", 0)

    def add_launch(
        self, graph: Any, after: list[Any], function: Any, geometry: tuple[int, ...], arguments: int
    ) -> Any:
        given = self._launch_node(function, geometry, arguments)
        return self.call("GraphAddKernelNode", graph, self.handles(after), len(after), given)

    def _launch_node(self, function: Any, geometry: tuple[int, ...], arguments: int) -> Any:
        sizes = zip(("gx", "gy", "gz", "bx", "by", "bz", "shared"), geometry, strict=True)
        facts = {"function": int(function), "arguments": arguments, **dict(sizes)}
        return self.structure(*self.launch_layout.filled(facts))

    def add_copy(
        self, graph: Any, after: list[Any], dest: Any, src: Any, nbytes: int, context: Any
    ) -> Any:
        given = (*self.copy_node(dest, src, nbytes), *self._context(context))
        return self.call("GraphAddMemcpyNode", graph, self.handles(after), len(after), *given)

    def _context(self, context: Any) -> tuple[Any, ...]:
        return (context,) if self.nodes_have_context else ()

    def add_fill(
        self, graph: Any, after: list[Any], dest: int, pattern: bytes, count: int, context: Any
    ) -> Any:
        given = (self._fill_node(dest, pattern, count), *self._context(context))
        return self.call("GraphAddMemsetNode", graph, self.handles(after), len(after), *given)

    def _fill_node(self, dest: int, pattern: bytes, count: int) -> Any:
        value, nbytes = int.from_bytes(pattern, "little"), len(pattern)
        facts = {"dest": dest, "value": value, "element": nbytes, "count": count, "rows": 1}
        return self.structure(*self.fill_layout.filled(facts))

    def instantiate(self, graph: Any) -> Any:
        return self.call("GraphInstantiate", graph, 0)

    def set_launch(
        self, ready: Any, node: Any, function: Any, geometry: tuple[int, ...], arguments: int
    ) -> None:
        given = self._launch_node(function, geometry, arguments)
        self.call("GraphExecKernelNodeSetParams", ready, node, given)

    def set_copy(
        self, ready: Any, node: Any, dest: int, src: int, nbytes: int, context: Any
    ) -> None:
        given = (*self.copy_node(dest, src, nbytes), *self._context(context))
        self.call("GraphExecMemcpyNodeSetParams", ready, node, *given)

    def set_fill(
        self, ready: Any, node: Any, dest: int, pattern: bytes, count: int, context: Any
    ) -> None:
        given = (self._fill_node(dest, pattern, count), *self._context(context))
        self.call("GraphExecMemsetNodeSetParams", ready, node, *given)

    def launch_graph(self, ready: Any, stream: Any) -> None:
        self.call("GraphLaunch", ready, stream)

    def destroy_graph(self, graph: Any, ready: Any) -> None:
        try:
            if ready is not None:
                self.call("GraphExecDestroy", ready)
        finally:
            self.call("GraphDestroy", graph)
