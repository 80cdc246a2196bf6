"""A backend made of `hal_streams/` and of a driver that is neither CUDA nor HIP.

The driver is software: its memory is the host's, its kernels are interpreted, its streams do their
work at once. Its statuses have numbers of their own, so it translates them.
"""

from __future__ import annotations

import ctypes
import itertools
import struct
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hal_core.compiler import Compiler, CompilerPair
from hal_core.compiler.seal import seal, unseal
from hal_core.device.base import DeviceInfo
from hal_core.errors import CompileError
from hal_core.hookspecs import hookimpl
from hal_core.source import Binary, Source
from hal_kernel.errors import InvalidKernel
from hal_kernel.interpreter import interpret
from hal_kernel.interpreter.casts import stored_as
from hal_kernel.ir.listing import parse_listing
from hal_kernel.ir.verify import verify
from hal_kernel.render.uops import UOpsRenderer
from hal_streams import device as streams
from hal_streams.allocator import StreamAllocator
from hal_streams.driver import (
    INVALID_VALUE,
    NO_MEMORY,
    NOT_FOUND,
    Facts,
    KernelFacts,
    Refused,
    StreamDriver,
)
from hal_streams.program import StreamProgram

MEMORY_NBYTES, MAKER = 64 << 20, "third 1"
TRANSLATED = {-5: NO_MEMORY, -7: INVALID_VALUE, -9: NOT_FOUND}  # the driver's -> those of streams


class Third(StreamDriver):
    """The driver's functions. A pool is an empty tuple, a context an index."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks: dict[int, Any] = {}  # address -> memory
        self.events: dict[int, float] = {}
        self.loaded: dict[int, Any] = {}
        self.retained = 0
        self.handles = itertools.count(1)

    def refuse(self, call: str, status: int) -> Refused:
        return Refused(call, TRANSLATED[status], f"THIRD_{-status}", "the third driver's sentence")

    def count(self) -> int:
        return 2

    def facts(self, index: int) -> Facts:
        sizes = {f"max_{kind}_dim_{axis}": 1024 for kind in ("block", "grid") for axis in "xyz"}
        others = {
            "max_threads_per_block": 1024, "max_shared_memory_per_block": 32 << 10,
            "multiprocessor_count": 1, "warp_size": 1, "memory_pools_supported": 0,
        }  # fmt: skip
        sizes |= {f"max_grid_dim_{axis}": 1 << 20 for axis in "xyz"}
        return Facts("The third driver's device", MEMORY_NBYTES, sizes | others, "third")

    def retain(self, index: int) -> int:
        self.retained += 1
        return index

    def release(self, index: int, context: int, lost: bool) -> None:
        self.retained -= 1

    def set_current(self, context: int) -> None:
        pass

    def current_context(self) -> int:
        return int(self.current.context or 0)

    def memory_info(self) -> tuple[int, int]:
        return MEMORY_NBYTES - sum(map(len, self.blocks.values())), MEMORY_NBYTES

    def allocate(self, nbytes: int, stream: Any, pool: Any) -> int:
        if nbytes > self.memory_info()[0]:
            raise self.refuse("third_alloc", -5)
        block = (ctypes.c_ubyte * nbytes)()
        address = ctypes.addressof(block)
        self.blocks[address] = block
        return address

    def free(self, address: int, stream: Any, pooled: bool) -> None:
        if self.blocks.pop(address, None) is None:
            raise self.refuse("third_free", -7)

    def allocate_host(self, nbytes: int) -> int:
        return self.allocate(nbytes, None, None)

    def free_host(self, address: int) -> None:
        self.free(address, None, False)

    def copy_in(self, dest: int, src: int | bytes, nbytes: int, stream: Any) -> None:
        ctypes.memmove(dest, src, nbytes)

    def copy_out(self, dest: Any, src: int, nbytes: int, stream: Any) -> None:
        given = dest if isinstance(dest, int) else (ctypes.c_ubyte * nbytes).from_buffer(dest)
        ctypes.memmove(given, src, nbytes)

    def copy(self, dest: int, src: int, nbytes: int, stream: Any) -> None:
        ctypes.memmove(dest, src, nbytes)

    def copy_peer(self, dest: int, to: Any, src: int, of: Any, nbytes: int, stream: Any) -> None:
        ctypes.memmove(dest, src, nbytes)

    def fill(self, dest: int, pattern: bytes, count: int, stream: Any) -> None:
        ctypes.memmove(dest, pattern * count, len(pattern) * count)

    def owner_of(self, address: int) -> tuple[int, bool, int]:
        return (-1 if self.rest_of(address) is None else 0), False, 0

    def rest_of(self, address: int) -> int | None:
        """Return the bytes from an address to the end of its block."""
        for start, block in self.blocks.items():
            if start <= address < start + len(block):
                return start + len(block) - address
        return None

    def make_stream(self, independent: bool = False) -> int:
        return next(self.handles)

    def destroy_stream(self, stream: Any) -> None:
        pass

    def wait(self, stream: Any) -> None:
        pass

    def is_done(self, stream: Any) -> bool:
        return True

    def is_independent(self, stream: Any) -> bool:
        return True

    def wait_context(self) -> None:
        pass

    def make_event(self) -> int:
        handle = next(self.handles)
        self.events[handle] = 0.0
        return handle

    def destroy_event(self, event: int) -> None:
        del self.events[event]

    def record(self, event: int, stream: Any) -> None:
        self.events[event] = time.perf_counter()

    def wait_for(self, stream: Any, event: int) -> None:
        pass

    def is_reached(self, event: int) -> bool:
        return True

    def wait_event(self, event: int) -> None:
        pass

    def seconds_between(self, start: int, end: int) -> float:
        return self.events[end] - self.events[start]

    def load(self, image: bytes) -> int:
        handle = next(self.handles)
        self.loaded[handle] = parse_listing(image.decode())
        return handle

    def unload(self, module: int) -> None:
        del self.loaded[module]

    def function_of(self, module: int, name: str) -> Any:
        if self.loaded[module].name != name:
            raise self.refuse("third_entry", -9)
        return self.loaded[module]

    def kernel_facts(self, function: Any) -> KernelFacts:
        return KernelFacts(16, function.shared_nbytes, 0, 1024)

    def launch_of(self, function: Any) -> Callable[..., int]:
        params = function.signature.params

        def launch(kernel: Any, *geometry: int) -> int:
            gx, gy, gz, bx, by, bz, _shared, _stream, arguments, _ = geometry
            places = (ctypes.c_void_p * len(params)).from_address(arguments)
            bufs: list[Any] = []
            vals: list[Any] = []
            for param, place in zip(params, places, strict=True):
                code = "Q" if param.is_pointer else param.dtype.format
                [value] = struct.unpack(code, ctypes.string_at(place, struct.calcsize(code)))
                (bufs if param.is_pointer else vals).append(
                    self.array(value, param.dtype) if param.is_pointer else value
                )
            blocks, threads = (gx, gy, gz), (bx, by, bz)
            interpret(kernel, *bufs, vals=vals, grid=blocks, block=threads, races=False)
            return 0

        return launch

    def array(self, address: int, dtype: Any) -> Any:
        size = (self.rest_of(address) or 0) // dtype.itemsize
        memory = (ctypes.c_ubyte * (size * dtype.itemsize)).from_address(address)
        return np.frombuffer(memory, stored_as(dtype))

    def launch_refused(self, status: int) -> Refused:
        return self.refuse("third_launch", status)


api = Third()


class ThirdDevice(streams.StreamDevice):
    def __init__(self, name: str, info: DeviceInfo) -> None:
        super().__init__(name, info, api)


class ThirdCompiler(Compiler):
    language, format, target, identity = "uops", "third", "third", "third 1"

    def _compile(self, source: Source) -> bytes:
        try:
            verify(parse_listing(source.text))
        except InvalidKernel as error:
            problem = "not a valid listing"
            raise CompileError("compile", problem, log=str(error), source=source.text) from None
        return seal(MAKER, "third", source.text.encode())

    def _disassemble(self, image: bytes) -> str:
        return unseal(MAKER, image, "disassemble", "THIRD")[1].decode()


class ThirdProgram(StreamProgram):
    formats, maker = ("third",), MAKER


class ThirdPlugin:
    hal_api = (1, 0)

    @hookimpl
    def hal_enumerate(self, family: str) -> list[DeviceInfo]:
        def describe(name: str, facts: Facts, peers: bool) -> DeviceInfo:
            return streams.describe(name, facts, peers, {"bf16"})

        return streams.enumerate_devices(family, api, describe)

    @hookimpl
    def hal_open_device(self, family: str, index: int, info: DeviceInfo) -> ThirdDevice:
        return ThirdDevice(info.name, info)

    @hookimpl
    def hal_make_allocator(self, device: ThirdDevice) -> StreamAllocator:
        return StreamAllocator(device)

    @hookimpl
    def hal_make_compilers(self, device: ThirdDevice) -> Sequence[CompilerPair]:
        return [CompilerPair("listing", "uops", UOpsRenderer, ThirdCompiler)]

    @hookimpl
    def hal_make_program(self, device: ThirdDevice, binary: Binary) -> ThirdProgram:
        return ThirdProgram(device, binary)


plugin = ThirdPlugin()
