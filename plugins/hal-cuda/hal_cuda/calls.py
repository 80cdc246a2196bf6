"""The driver functions of CUDA that differ from HIP's, written once for both transports."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, ClassVar

from hal_streams.calls import Layout, PrefixedDriver
from hal_streams.images import Array

_CONTEXT, _MEMORY_TYPE, _IS_MANAGED, _ORDINAL = 1, 2, 8, 9  # CU_POINTER_ATTRIBUTE_...
# CU_MEMORYTYPE_...; of the last the address says where it is
_HOST, _ARRAY, _UNIFIED = 1, 3, 4
_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES

LOG_NBYTES = 16 << 10  # for what the driver's own compiler says of a module


class Calls(PrefixedDriver):
    """The driver, as the rest of hal_cuda sees it; a subclass is a transport."""

    # CU_DEVICE_ATTRIBUTE_..., as cuda.h numbers them
    attributes: ClassVar[dict[str, int]] = {
        "max_threads_per_block": 1, "max_block_dim_x": 2, "max_block_dim_y": 3,
        "max_block_dim_z": 4, "max_grid_dim_x": 5, "max_grid_dim_y": 6, "max_grid_dim_z": 7,
        "max_shared_memory_per_block": 8, "max_shared_memory_per_block_optin": 97,
        "multiprocessor_count": 16, "warp_size": 10, "clock_rate": 13,
        "compute_capability_major": 75, "compute_capability_minor": 76,
        "memory_pools_supported": 115, "concurrent_kernels": 31, "ecc_enabled": 32,
        "integrated": 18, "can_map_host_memory": 19, "unified_addressing": 41,
        "l2_cache_size": 38, "memory_clock_rate": 36, "global_memory_bus_width": 37,
        "maximum_surface1d_width": 55, "maximum_surface2d_width": 56,
        "maximum_surface2d_height": 57, "maximum_surface3d_width": 58,
        "maximum_surface3d_height": 59, "maximum_surface3d_depth": 60,
    }  # fmt: skip
    pointer_attribute: Callable[[int], Any] = int

    # -- devices and contexts

    def initialise(self) -> None:
        """Start the driver. Raises: OSError where there is none."""
        self.call("Init", 0)

    def version(self) -> tuple[int, int]:
        number = self.call("DriverGetVersion")
        return number // 1000, number % 1000 // 10

    def device_of(self, index: int) -> Any:
        return self.call("DeviceGet", index)

    def arch_of(self, device: Any, attributes: dict[str, Any]) -> str:
        major, minor = (attributes[f"compute_capability_{part}"] for part in ("major", "minor"))
        attributes["compute_capability"] = major, minor
        return f"sm_{major}{minor}"

    def retain(self, index: int) -> Any:
        return self.call("DevicePrimaryCtxRetain", index)

    def release(self, index: int, context: Any, lost: bool) -> None:
        self.call("DevicePrimaryCtxRelease", index)

    # -- memory

    def owner_of(self, address: int) -> tuple[int, bool, int]:
        ask, kinds = "PointerGetAttribute", self.pointer_attribute
        index = self.call_or(-1, ask, kinds(_ORDINAL), address)
        if index == -1:
            return -1, False, 0
        if int(self.call(ask, kinds(_MEMORY_TYPE), address)) == _HOST:
            return index, True, 0
        if self.call_or(0, ask, kinds(_IS_MANAGED), address):
            return index, False, 0
        return index, False, self.call_or(0, ask, kinds(_CONTEXT), address)  # 0: from a pool

    def range_of(self, address: int) -> tuple[int, int]:
        """Return the start and the size in bytes of the allocation that an address lies in."""
        start, nbytes = self.call("MemGetAddressRange", address)
        return int(start), int(nbytes)

    def copy(self, dest: Any, src: Any, nbytes: int, stream: Any) -> None:
        if isinstance(dest, Array) or isinstance(src, Array):
            self.call("Memcpy3DAsync", *self.copy_node(dest, src, nbytes), stream)
        else:
            self.call("MemcpyAsync", dest, src, nbytes, stream)

    # -- programs

    def allow_shared(self, function: Any, nbytes: int) -> None:
        which = self.function_attribute(_DYNAMIC_SHARED)
        self.call("FuncSetAttribute", function, which, nbytes)

    # -- graphs

    launch_layout = Layout(
        "CUDA_KERNEL_NODE_PARAMS", "@Q7I4x4Q",
        "function gx gy gz bx by bz shared arguments extra kern ctx",
    )  # fmt: skip
    fill_layout = Layout(
        "CUDA_MEMSET_NODE_PARAMS", "@2Q2I2Q", "dest pitch value element count rows"
    )
    nodes_have_context = True

    def copy_node(self, dest: Any, src: Any, nbytes: int) -> tuple[Any, ...]:
        # CUDA_MEMCPY3D: of each side four offsets, the kind, host, device, array, reserved, bytes
        # and number of rows in memory; then the extent.
        arrays = [one for one in (dest, src) if isinstance(one, Array)]
        extent = arrays[0].extent if arrays else (nbytes, 1, 1)
        rows = extent[:2] if arrays else (0, 0)  # a range may be longer than a row may be
        sides: list[tuple[int, ...]] = []
        for one in (src, dest):
            if isinstance(one, Array):
                sides.append((_ARRAY, 0, 0, int(one.handle), 0, 0, 0))
            else:
                sides.append((_UNIFIED, 0, one, 0, 0, *rows))
        packed = struct.pack("@32xI4x6Q32xI4x6Q3Q", *sides[0], *sides[1], *extent)
        return (self.structure("CUDA_MEMCPY3D", packed),)
