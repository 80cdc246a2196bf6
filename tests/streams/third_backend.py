"""A backend made of `hal_streams/` and of a driver that is neither CUDA nor HIP.

The driver is software: its memory is the host's, its kernels are interpreted, its streams do their
work at once. Its statuses have numbers of their own, so it translates them.
"""

import ctypes
import itertools
import struct
import time

import numpy as np

from hal_core.compiler import Compiler, CompilerPair
from hal_core.compiler.seal import seal, unseal
from hal_core.errors import CompileError
from hal_core.hookspecs import hookimpl
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

    def __init__(self):
        super().__init__()
        self.blocks = {}  # address -> memory
        self.events = {}
        self.loaded = {}
        self.retained = 0
        self.handles = itertools.count(1)

    def refuse(self, call, status):
        return Refused(call, TRANSLATED[status], f"THIRD_{-status}", "the third driver's sentence")

    def count(self):
        return 2

    def facts(self, index):
        sizes = {f"max_{kind}_dim_{axis}": 1024 for kind in ("block", "grid") for axis in "xyz"}
        others = {
            "max_threads_per_block": 1024, "max_shared_memory_per_block": 32 << 10,
            "multiprocessor_count": 1, "warp_size": 1, "memory_pools_supported": 0,
        }  # fmt: skip
        sizes |= {f"max_grid_dim_{axis}": 1 << 20 for axis in "xyz"}
        return Facts("The third driver's device", MEMORY_NBYTES, sizes | others, "third")

    def retain(self, index):
        self.retained += 1
        return index

    def release(self, index, context, lost):
        self.retained -= 1

    def set_current(self, context):
        pass

    def current_context(self):
        return int(self.current.context or 0)

    def memory_info(self):
        return MEMORY_NBYTES - sum(map(len, self.blocks.values())), MEMORY_NBYTES

    def allocate(self, nbytes, stream, pool):
        if nbytes > self.memory_info()[0]:
            raise self.refuse("third_alloc", -5)
        block = (ctypes.c_ubyte * nbytes)()
        address = ctypes.addressof(block)
        self.blocks[address] = block
        return address

    def free(self, address, stream, pooled):
        if self.blocks.pop(address, None) is None:
            raise self.refuse("third_free", -7)

    def allocate_host(self, nbytes):
        return self.allocate(nbytes, None, None)

    def free_host(self, address):
        self.free(address, None, False)

    def copy_in(self, dest, src, nbytes, stream):
        ctypes.memmove(dest, src, nbytes)

    def copy_out(self, dest, src, nbytes, stream):
        given = dest if isinstance(dest, int) else (ctypes.c_ubyte * nbytes).from_buffer(dest)
        ctypes.memmove(given, src, nbytes)

    def copy(self, dest, src, nbytes, stream):
        ctypes.memmove(dest, src, nbytes)

    def copy_peer(self, dest, to, src, of, nbytes, stream):
        ctypes.memmove(dest, src, nbytes)

    def fill(self, dest, pattern, count, stream):
        ctypes.memmove(dest, pattern * count, len(pattern) * count)

    def owner_of(self, address):
        return (-1 if self.rest_of(address) is None else 0), False, 0

    def rest_of(self, address):
        """Return the bytes from an address to the end of its block."""
        for start, block in self.blocks.items():
            if start <= address < start + len(block):
                return start + len(block) - address
        return None

    def make_stream(self, independent=False):
        return next(self.handles)

    def destroy_stream(self, stream):
        pass

    def wait(self, stream):
        pass

    def is_done(self, stream):
        return True

    def is_independent(self, stream):
        return True

    def wait_context(self):
        pass

    def make_event(self):
        handle = next(self.handles)
        self.events[handle] = 0.0
        return handle

    def destroy_event(self, event):
        del self.events[event]

    def record(self, event, stream):
        self.events[event] = time.perf_counter()

    def wait_for(self, stream, event):
        pass

    def is_reached(self, event):
        return True

    def wait_event(self, event):
        pass

    def seconds_between(self, start, end):
        return self.events[end] - self.events[start]

    def load(self, image):
        handle = next(self.handles)
        self.loaded[handle] = parse_listing(image.decode())
        return handle

    def unload(self, module):
        del self.loaded[module]

    def function_of(self, module, name):
        if self.loaded[module].name != name:
            raise self.refuse("third_entry", -9)
        return self.loaded[module]

    def kernel_facts(self, function):
        return KernelFacts(16, function.shared_nbytes, 0, 1024)

    def launch_of(self, function):
        params = function.signature.params

        def launch(kernel, *geometry):
            gx, gy, gz, bx, by, bz, _shared, _stream, arguments, _ = geometry
            places = (ctypes.c_void_p * len(params)).from_address(arguments)
            bufs = []
            vals = []
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

    def array(self, address, dtype):
        size = (self.rest_of(address) or 0) // dtype.itemsize
        memory = (ctypes.c_ubyte * (size * dtype.itemsize)).from_address(address)
        return np.frombuffer(memory, stored_as(dtype))

    def launch_refused(self, status):
        return self.refuse("third_launch", status)


api = Third()


class ThirdDevice(streams.StreamDevice):
    def __init__(self, name, info):
        super().__init__(name, info, api)


class ThirdCompiler(Compiler):
    language, format, target, identity = "uops", "third", "third", "third 1"

    def _compile(self, source):
        try:
            verify(parse_listing(source.text))
        except InvalidKernel as error:
            problem = "not a valid listing"
            raise CompileError("compile", problem, log=str(error), source=source.text) from None
        return seal(MAKER, "third", source.text.encode())

    def _disassemble(self, image):
        return unseal(MAKER, image, "disassemble", "THIRD")[1].decode()


class ThirdProgram(StreamProgram):
    formats, maker = ("third",), MAKER


class ThirdPlugin:
    hal_api = (1, 0)

    @hookimpl
    def hal_enumerate(self, family):
        def describe(name, facts, peers):
            return streams.describe(name, facts, peers, {"bf16"})

        return streams.enumerate_devices(family, api, describe)

    @hookimpl
    def hal_open_device(self, family, index, info):
        return ThirdDevice(info.name, info)

    @hookimpl
    def hal_make_allocator(self, device):
        return StreamAllocator(device)

    @hookimpl
    def hal_make_compilers(self, device):
        return [CompilerPair("listing", "uops", UOpsRenderer, ThirdCompiler)]

    @hookimpl
    def hal_make_program(self, device, binary):
        return ThirdProgram(device, binary)


plugin = ThirdPlugin()
