"""The functions of the HIP runtime that differ from CUDA's."""

from __future__ import annotations

import ctypes
import re
import struct
from collections import Counter
from functools import cached_property
from typing import Any, ClassVar

from hal_streams.calls import Layout
from hal_streams.driver import INVALID_VALUE, Refused
from hal_streams.images import Array
from hal_streams.library import HANDLE, LibraryDriver, Row

_P, _I, _N, _A = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, HANDLE

_LONG: dict[str, Row] = {  # called without the GIL
    "DeviceReset": ((), ()),
    "MemcpyAsync": ((), (_A, _A, _N, _I, _P)),
    "MemcpyPeerAsync": ((), (_A, _I, _A, _I, _N, _P)),
    "ModuleLoadData": ((_A,), (_P,)),
}
_SHORT: dict[str, Row] = {
    "RuntimeGetVersion": ((_I,), ()),
    "CtxSetCurrent": ((), (_I,)),
    "CtxGetCurrent": ((_I,), ()),
    "GetErrorName": ((), (_I,)),
    "GetErrorString": ((), (_I,)),
    "GraphAddMemcpyNode": ((_A,), (_P, _P, _N, _A, _A, _N, _I)),
    "GraphAddBoxNode": ((_A,), (_P, _P, _N, _P)),
    "GraphAddMemsetNode": ((_A,), (_P, _P, _N, _P)),
    "GraphExecMemcpyNodeSetParams": ((), (_P, _P, _A, _A, _N, _I)),
    "GraphExecMemsetNodeSetParams": ((), (_P, _P, _P)),
}
# The older one fills in the older layout.
_PROPERTIES = ("hipGetDevicePropertiesR0600", "hipGetDeviceProperties")
_PROPERTIES_NBYTES, _NAME_NBYTES = 16 << 10, 256  # more than either has; its first part
_ARCH = re.compile(rb"gfx[0-9a-f]+(?::[a-z0-9]+[+-])*")
_MEMORY_TYPE, _ORDINAL = 2, 9  # HIP_POINTER_ATTRIBUTE_...
_ON_DEVICE, _ANY_DIRECTION = 3, 4  # hipMemcpyDeviceToDevice, hipMemcpyDefault
_INVALID_IMAGE = 200
_OF_5 = {  # symbols of functions that are C++ before 6.0
    "SurfObjectCreate": "_Z22hipCreateSurfaceObjectPP13__hip_surfacePK15hipResourceDesc",
    "SurfObjectDestroy": "_Z23hipDestroySurfaceObjectP13__hip_surface",
}


class HIP(LibraryDriver):
    """The HIP runtime. Its context is the device that is current on a thread: an index.

    It counts itself who uses a device, as HIP has no count of contexts.
    """

    prefix = "hip"
    symbols: ClassVar[dict[str, str]] = {
        "MemAlloc": "Malloc", "MemAllocFromPoolAsync": "MallocFromPoolAsync", "MemFree": "Free",
        "MemFreeAsync": "FreeAsync", "MemHostAlloc": "HostMalloc", "MemFreeHost": "HostFree",
        "CtxSynchronize": "DeviceSynchronize", "StreamCreate": "StreamCreateWithFlags",
        "EventCreate": "EventCreateWithFlags", "LaunchKernel": "ModuleLaunchKernel",
        "GraphInstantiate": "GraphInstantiateWithFlags", "GraphAddMemcpyNode":
        "GraphAddMemcpyNode1D", "GraphExecMemcpyNodeSetParams": "GraphExecMemcpyNodeSetParams1D",
        "DeviceGetCount": "GetDeviceCount", "CtxSetCurrent": "SetDevice",
        "CtxGetCurrent": "GetDevice", "GraphAddBoxNode": "GraphAddMemcpyNode",
        "SurfObjectCreate": "CreateSurfaceObject", "SurfObjectDestroy": "DestroySurfaceObject",
    }  # fmt: skip
    # hipDeviceAttribute..., as hip_runtime_api.h numbers them since 5.0
    attributes: ClassVar[dict[str, int]] = {
        "max_threads_per_block": 56, "max_block_dim_x": 26, "max_block_dim_y": 27,
        "max_block_dim_z": 28, "max_grid_dim_x": 29, "max_grid_dim_y": 30, "max_grid_dim_z": 31,
        "max_shared_memory_per_block": 74, "multiprocessor_count": 63, "warp_size": 87,
        "memory_pools_supported": 88, "integrated": 16, "clock_rate": 5, "l2_cache_size": 19,
        "memory_clock_rate": 60, "global_memory_bus_width": 59, "image_support": 10014,
        # Those of textures, which HIP gives in full.
        "maximum_surface1d_width": 39, "maximum_surface2d_width": 43,
        "maximum_surface2d_height": 44, "maximum_surface3d_width": 49,
        "maximum_surface3d_height": 50, "maximum_surface3d_depth": 51,
    }  # fmt: skip

    def __init__(self, library: str) -> None:
        self.library = ctypes.PyDLL(library)
        super().__init__(library, _LONG, _SHORT)
        for name in ("GetErrorName", "GetErrorString"):
            self.function(name).restype = ctypes.c_char_p
        self._users: Counter[int] = Counter()  # of each device
        self._lost: set[int] = set()  # devices whose last user resets them

    def symbol_of(self, name: str) -> str:
        symbol = super().symbol_of(name)
        return symbol if hasattr(self.library, symbol) else _OF_5.get(name, symbol)

    def refused(self, name: str, status: Any) -> Refused:
        texts = (self.function(f"GetError{part}")(status) or b"" for part in ("Name", "String"))
        title, sentence = (text.decode() for text in texts)
        return Refused(self.symbol_of(name), status, title or "an unknown code", sentence)

    # -- devices and contexts

    def version(self) -> tuple[int, int, int]:
        number = self.call("RuntimeGetVersion")
        return number // 10_000_000, number // 100_000 % 100, number % 100_000

    def arch_of(self, device: int, attributes: dict[str, Any]) -> str:
        # No attribute has the architecture with its features, and the layouts differ.
        properties = ctypes.create_string_buffer(_PROPERTIES_NBYTES)
        name = next(name for name in _PROPERTIES if hasattr(self.library, name))
        status = getattr(self.library, name)(properties, device)
        if status:
            raise self.refused(name.removeprefix(self.prefix), status)
        found = _ARCH.search(properties.raw, _NAME_NBYTES)
        if found is None:
            raise Refused(name, INVALID_VALUE, "a device without an architecture", "")
        return found[0].decode()

    def retain(self, index: int) -> int:
        self._users[index] += 1
        return index

    def release(self, index: int, context: int, lost: bool) -> None:
        self._users[index] -= 1
        if lost:
            self._lost.add(index)
        if not self._users[index] and index in self._lost:
            self._lost.discard(index)
            self.set_current(index)
            self.call("DeviceReset")

    # -- memory

    def copy(self, dest: Any, src: Any, nbytes: int, stream: int) -> None:
        if Array in (type(dest), type(src)):
            self.call("Memcpy3DAsync", _box(dest, src), stream)
        else:
            self.call("MemcpyAsync", dest, src, nbytes, _ANY_DIRECTION, stream)

    def owner_of(self, address: int) -> tuple[int, bool, int]:
        index = ctypes.c_int(self.call_or(-1, "PointerGetAttribute", _ORDINAL, address)).value
        if index == -1:
            return -1, False, 0
        kind = self.call("PointerGetAttribute", _MEMORY_TYPE, address)
        return index, kind == self._host_kind, 0

    @cached_property
    def _host_kind(self) -> int:
        return int(self.version() >= (6,))  # hipMemoryTypeHost, which 6.0 renumbered

    # -- programs

    def load(self, image: bytes) -> int:
        # The runtime is told no size: it would read past the end of a code object that was cut. An
        # ELF file ends with the table of its sections.
        if image[:4] == b"\x7fELF":
            (table,) = struct.unpack_from("<Q", head := image[:64].ljust(64), 40)
            entry_nbytes, count = struct.unpack_from("<2H", head, 58)
            if len(image) < max(64, table + entry_nbytes * count):
                raise self.refused("ModuleLoadData", _INVALID_IMAGE)
        return int(self.call("ModuleLoadData", image))

    # -- graphs

    # AMD documents nothing. Source: GraphExec::Run in clr 5.6 to 6.2, which queues the nodes on the
    # stream without a look at earlier launches. Each launch takes copies of what is set by then.
    orders_replays = False

    # hipKernelNodeParams and hipMemsetParams
    launch_layout = Layout(
        "", "@3I4x2Q3I4xQI4x", "bx by bz extra function gx gy gz arguments shared"
    )
    fill_layout = Layout("", "@QI4x2QI4xQ", "dest element rows pitch value count")

    def add_copy(
        self, graph: int, after: list[int], dest: Any, src: Any, nbytes: int, context: int
    ) -> Any:
        if Array not in (type(dest), type(src)):
            return super().add_copy(graph, after, dest, src, nbytes, context)
        before = self.handles(after), len(after)
        return self.call("GraphAddBoxNode", graph, *before, _box(dest, src))

    def copy_node(self, dest: int, src: int, nbytes: int) -> tuple[int, ...]:
        return dest, src, nbytes, _ANY_DIRECTION


def _box(dest: Any, src: Any) -> bytes:
    """Return a hipMemcpy3DParms of whole arrays.

    It has of each side the array, where the box begins, the memory, its pitch and size; then the
    extent, whose width is in pixels, and the direction. That of two arrays has to be said: a graph
    takes them for memory of the host. Source: GraphMemcpyNode in clr 5.6 to 6.2.
    """
    arrays = [one for one in (dest, src) if isinstance(one, Array)]
    row_nbytes, height, depth = arrays[0].extent
    sides = (
        (one.handle, *[0] * 7) if isinstance(one, Array)
        else (0, 0, 0, 0, one, row_nbytes, row_nbytes, height)
        for one in (src, dest)
    )  # fmt: skip
    extent = row_nbytes // arrays[0].pixel_nbytes, height, depth
    direction = _ON_DEVICE if len(arrays) == 2 else _ANY_DIRECTION
    return struct.pack("@19QI4x", *next(sides), *next(sides), *extent, direction)
