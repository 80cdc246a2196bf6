"""A loaded kernel and its launch."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from types import FunctionType
from typing import Any

from hal_core.compiler.seal import unseal
from hal_core.concurrency import fork_safe_lock
from hal_core.errors import CompileError, Unsupported
from hal_core.geometry import Dim3
from hal_core.program import Program, ProgramInfo, Shared
from hal_core.program.generated import define, spare_storage
from hal_core.signature import CONST_POINTER
from hal_core.source import Binary
from hal_streams import driver
from hal_streams.borrowed import drain
from hal_streams.device import StreamDevice, wait_for_others

# Nobody asks which context is current: a launch in another one is refused, and then repeated.
# The driver reads the argument storage during the call, so the storage is free again after it.
# `refused` raises, or returns for another try.
_LAUNCH = """
def {defined}:
    gx, gy, gz, bx, by, bz, shared = geometry
    try:
        place = take()
    except IndexError:
        place = make()
    storage, addresses = place
    pack_into(storage, first{names})
    while True:
        {status} = launch_kernel(
            function, gx, gy, gz, bx, by, bz, shared, stream, addresses, 0
        )
        if not status:
            break
        refused(status)
    give_back(place)
    last_launched[0] = name
"""


class StreamProgram(Program):
    """A kernel on a device.

    Concurrency: every launch in progress has argument storage of its own, a block of memory.
    """

    maker: str  # which seals the images of the backend's binaries
    any_shared_nbytes = 48 << 10  # static and dynamic, per block; the driver has to allow more
    device: StreamDevice

    def __init__(self, device: StreamDevice, binary: Binary) -> None:
        super().__init__(device, binary)
        operation = f"load {binary.name}"
        _, image = unseal(self.maker, binary.image, operation, device.name)
        self._storage = ArgumentStorage(binary, device.name)
        self._handles = {  # position of an image -> the attribute of its `Array` that it takes
            param.position: "texture" if param.kind == CONST_POINTER else "surface"
            for param in binary.signature.pointers
            if param.dtype.kind == "I"
        }
        self._lock = fork_safe_lock()  # between `unload` and what prepares a launch
        self._names: dict[str, Any] = {}  # global variables of the generated launch
        self._launch_on: Callable[..., None] | None = None  # generated at its first call
        self._allowed_nbytes = 0  # of dynamic shared memory, as the driver was asked to allow
        with device.own(operation):
            device.unload_unused()
            self._module: Shared | None = self._shared(
                lambda: Module(device, device.api.load(image))
            )
            try:
                self._load_function(self._module.made.handle, operation)
            except BaseException:
                self._module = None  # its finalizer puts it on `device.unused`
                device.unload_unused()
                raise

    def _geometry(self, grid: Dim3, block: Dim3, shared: int) -> Any:
        dynamic = shared + self._dynamic_nbytes
        if shared + (self.info.shared_nbytes or 0) > self.any_shared_nbytes:
            with self._lock, self.device.own(f"launch {self.name}"):
                if self._unloaded:
                    self._refuse_unloaded()
                if dynamic > self._allowed_nbytes:  # never lowered: earlier geometries need theirs
                    self.device.api.allow_shared(self._function, dynamic)
                    self._allowed_nbytes = dynamic
        return *grid, *block, dynamic

    def _bind(self) -> Callable[..., None]:
        return self._define("launch(geometry{names})")

    def _launch_timed(self, geometry: Any, args: tuple[Any, ...]) -> float:
        api, stream = self.device.api, self.device.stream
        launch = self._launch or self._bind()
        with self.device.own("wait"), self.device.events(2) as (start, end):
            api.record(start, stream)
            launch(geometry, *args)
            api.record(end, stream)
            return float(api.seconds_between(start, end))

    def _unload(self) -> None:
        # A thread that has the launch already gets no further than this; the others are waited for.
        self._names["launch_kernel"] = self._refuse_unloaded
        wait_for_others(lambda frame: frame.f_globals is self._names)
        with self._lock:
            self._module = None
        with self.device.own(f"unload {self.name}"):
            drain(self.device)
            self.device.unload_unused()

    def with_arguments(self, args: tuple[Any, ...], call: Callable[..., Any], geometry: Any) -> Any:
        """Call `call(function, geometry, address)` with the address of packed arguments."""
        handles = self._handles
        if handles:
            given = enumerate(args)
            args = tuple(getattr(one, handles[n]) if n in handles else one for n, one in given)
        storage, addresses = self._storage.make()
        self._storage.pack_into(storage, self._storage.first, *args)
        with self._lock:
            if self._unloaded:
                self._refuse_unloaded()
            return call(self._function, geometry, addresses)

    def _define(self, head: str) -> Callable[..., None]:
        """Return a launch with that head, whose names are this program's global variables."""
        device, api, name, storage = self.device, self.device.api, self.name, self._storage

        def refused(why: Any) -> None:
            """Raise for a refused launch; return, to try again, if our context was not current."""
            error = api.launch_refused(why)
            if not device.regained(error):
                device._check_open(f"launch {name}")
                raise driver.explain(error, f"launch {name}", device.name, device.last_launched[0])

        self._names |= {
            "pack_into": storage.pack_into,
            "first": storage.first,
            "launch_kernel": api.launch_of(self._function),
            "refused": refused,
            "function": self._function,
            "stream": device.stream,
            "last_launched": device.last_launched,
            "name": name,
        }
        if "take" not in self._names:
            self._names |= spare_storage(storage.make)
        names = [f", a{param.position}" for param in self.signature.params]
        defined = head.format(names="".join(names))
        for position, handle in self._handles.items():
            names[position] += f".{handle}"
        text = _LAUNCH.format(names="".join(names), status=api.STATUS, defined=defined)
        return define(text, head.partition("(")[0], f"launch of {name}", self._names)

    def launch_on(self, waits: bool) -> Callable[..., None]:
        """Return `launch(stream, geometry, *args)`, for other streams than the device's own.

        For one that `waits` the machine code is kept beyond `unload`, as long as the function is.
        """
        launch = self._launch_on
        if launch is None or waits:
            with self._lock:
                if self._unloaded:
                    self._refuse_unloaded()
                if launch is None:
                    launch = self._launch_on = self._define("launch_on(stream, geometry{names})")
                if waits:
                    names = {**self._names, "module": self._module}
                    launch = FunctionType(launch.__code__, names)
        return launch

    def _load_function(self, module: Any, operation: str) -> None:
        api = self.device.api
        try:
            self._function = api.function_of(module, self.name)
        except driver.Refused as error:
            if error.code != driver.NOT_FOUND:
                raise
            raise CompileError(
                operation, "the binary has no such entry", device=self.device.name,
                fix='In C++, mark the kernel extern "C".',
            ) from None  # fmt: skip
        facts, interface = api.kernel_facts(self._function), self.binary.interface
        # More than a kernel may have without asking was rendered as dynamic shared memory.
        dynamic = interface.rendered and interface.shared_nbytes > self.any_shared_nbytes
        self._dynamic_nbytes = interface.shared_nbytes if dynamic else 0
        self.info = ProgramInfo(
            registers=facts.registers,
            shared_nbytes=facts.shared_nbytes + self._dynamic_nbytes,
            local_nbytes=facts.local_nbytes,
            max_block_threads=facts.max_block_threads,
            block_multiple=self.device.info.vendor["warp_size"],
        )


class Module:
    """The owner of a loaded module, which the device unloads some time after the owner is gone.

    Not in the finalizer: it runs in the middle of anything, where the driver cannot be called.
    """

    __slots__ = ("_key", "_unused", "handle")

    def __init__(self, device: StreamDevice, handle: Any) -> None:
        self.handle = handle
        self._key = device.add_made(lambda: device.api.unload(handle))
        self._unused = device.unused

    def __del__(self) -> None:
        self._unused.append(self._key)


class ArgumentStorage:
    """Memory for the arguments of one program's launches.

    The driver wants an array of pointers, one to each argument. So a block of memory begins with
    that array, and the arguments follow it, at multiples of 8 bytes. For an address and an int32:

        offset   0                8                16          24
                 block + 16       block + 24       address     int32
    """

    def __init__(self, binary: Binary, device: str) -> None:
        letters = ["Q" if p.is_pointer else p.dtype.format for p in binary.signature.params]
        if "" in letters:  # `struct` has no letter for bfloat16
            raise Unsupported(
                f"load {binary.name}", "a kernel takes no bfloat16 values", device=device
            )
        packed, self._offsets = "=", []
        for letter in letters:  # the driver reads each on its own, at a multiple of 8 bytes
            packed += f"{-struct.calcsize(packed) % 8}x"
            self._offsets.append(struct.calcsize(packed))
            packed += letter
        packer = struct.Struct(packed)
        self.pack_into = packer.pack_into
        self.first = len(letters) * ctypes.sizeof(ctypes.c_void_p)  # offset of the first argument
        # Words of 8 bytes: the pointers, then the arguments, rounded up.
        self._shape = ctypes.c_void_p * (len(letters) + packer.size // 8 + 1)

    def make(self) -> tuple[Any, int]:
        """Return a new block of memory and its address."""
        block = self._shape()
        address = ctypes.addressof(block)
        for number, offset in enumerate(self._offsets):
            block[number] = address + self.first + offset
        return block, address
