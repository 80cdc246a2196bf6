"""Loaded kernels and their launch."""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Callable
from typing import Any

from hal_core.compiler import Binary
from hal_core.compiler.seal import unseal
from hal_core.errors import CompileError, Unsupported
from hal_core.geometry import Dim3
from hal_core.program import Program, ProgramInfo
from hal_cuda import driver
from hal_cuda.compiler import MAKER
from hal_cuda.device import CUDADevice

_ANY_SHARED_NBYTES = 48 << 10  # of a block, static and dynamic, that needs no permission

# Written out for each signature: one call of the driver. A launch has storage of its own, as others
# may come in the middle of it: those of threads, signal handlers and finalizers.
_LAUNCH = """
def launch(geometry{names}):
    if current.context is not context:
        use(context)
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
    device.last_launched = name
"""


class CUDAProgram(Program):
    """Concurrency: every launch in progress has argument storage of its own."""

    device: CUDADevice

    def __init__(self, device: CUDADevice, binary: Binary) -> None:
        super().__init__(device, binary)
        operation = f"load {binary.entry}"
        if binary.format != "cuda":
            raise CompileError(
                operation, f"not a CUDA binary, but {binary.format!r}", device=device.name
            )
        _, image = unseal(MAKER, binary.image, operation, device.name)
        self._storage = Arguments(binary, device.name)
        self._allowed_nbytes = 0  # of dynamic shared memory, where it was asked for
        with device.own(operation):
            device.unload_unused()
            self._module = _Module(device)
            self._module.handle = device.api.load(image)
            try:
                self._load_function(operation)
            except BaseException:
                self._module = _Module(device)  # the other is unused, and goes at once
                device.unload_unused()
                raise

    def _load_function(self, operation: str) -> None:
        api = self.device.api
        try:
            self._function = api.function_of(self._module.handle, self.name)
        except driver.Refused as error:
            if error.code != driver.NOT_FOUND:
                raise
            raise CompileError(
                operation, "the binary has no such entry", device=self.device.name,
                fix='In CUDA C++, mark the kernel extern "C".',
            ) from None  # fmt: skip
        facts = api.kernel_facts(self._function)
        self.info = ProgramInfo(
            registers=facts.registers,
            shared_nbytes=facts.shared_nbytes,
            local_nbytes=facts.local_nbytes,
            max_block_threads=facts.max_block_threads,
            block_multiple=self.device.info.vendor["warp_size"],
        )

    def _geometry(self, grid: Dim3, block: Dim3, shared: int) -> Any:
        if shared + (self.info.shared_nbytes or 0) > _ANY_SHARED_NBYTES:
            with self.device._lock, self.device.own(f"launch {self.name}"):
                if shared > self._allowed_nbytes:  # an earlier geometry keeps what it was given
                    self.device.api.allow_shared(self._function, shared)
                    self._allowed_nbytes = shared
        return *grid, *block, shared

    def _bind(self) -> Callable[..., None]:
        device, api, storage = self.device, self.device.api, self._storage
        space: dict[str, Any] = {
            "pack_into": storage.pack_into,
            "first": storage.first,
            "take": storage.spare.pop,
            "make": storage.make,
            "give_back": storage.spare.append,
            "current": driver.current,
            "use": functools.partial(_enter, device, self.name),
            "context": device.context,
            "launch_kernel": api.launch_of(self._function),
            "function": self._function,
            "stream": device.stream,
            "device": device,
            "name": self.name,
            "refused": functools.partial(_refused, device, self.name),
        }
        arguments = ", ".join(f"a{param.position}" for param in self.signature.params)
        names = f", {arguments}" if arguments else ""
        text = _LAUNCH.format(names=names, status=api.STATUS)
        exec(compile(text, f"<launch of {self.name}>", "exec"), space)
        launch: Callable[..., None] = space.pop("launch")  # no cycle: programs go at once
        return launch

    def _launch_timed(self, geometry: Any, args: tuple[Any, ...]) -> float:
        api, stream = self.device.api, self.device.stream
        launch = self._launch or self._bind()
        with self.device.own("wait"), self.device.events(2) as (start, end):
            api.record(start, stream)
            launch(geometry, *args)
            api.record(end, stream)
            return float(api.seconds_between(start, end))

    def _unload(self) -> None:
        self._module = _Module(self.device)
        with self.device.own(f"unload {self.name}"):
            self.device.unload_unused()


def _enter(device: CUDADevice, name: str, context: Any) -> None:
    """The first launch on a thread."""
    device._check_open(f"launch {name}")
    device.check(f"launch {name}")


def _refused(device: CUDADevice, name: str, why: Any) -> None:
    """Raises, unless another library had changed the context: the launch is then tried again."""
    error = device.api.launch_refused(why)
    if not device.regained(error):
        device._check_open(f"launch {name}")
        raise driver.explain(error, f"launch {name}", device.name, device.last_launched)


class _Module:
    """Owns a module. Finalizers run anywhere, so the device unloads it at the next occasion."""

    __slots__ = ("handle", "unused")

    def __init__(self, device: CUDADevice) -> None:
        self.handle: Any = None
        self.unused = device.unused

    def __del__(self) -> None:
        if self.handle is not None:
            self.unused.append(self.handle)


class Arguments:
    """Storage for the arguments of one program.

    A place is where the driver finds pointers to the arguments, and behind them the arguments; its
    address with it. There are as many as launches were in progress at once.
    """

    def __init__(self, binary: Binary, device: str) -> None:
        letters = ["Q" if p.is_pointer else p.dtype.format for p in binary.signature.params]
        if "" in letters:
            raise Unsupported(
                f"load {binary.entry}", "bfloat16 is no dtype of a value", device=device
            )
        packer = struct.Struct("@" + "".join(letters))
        self.pack_into = packer.pack_into
        self.first = len(letters) * ctypes.sizeof(ctypes.c_void_p)
        self.spare: list[tuple[Any, int]] = []
        self._offsets = [struct.calcsize("@" + "".join(letters[: k + 1])) - struct.calcsize(letter)
                         for k, letter in enumerate(letters)]  # fmt: skip
        self._shape = ctypes.c_void_p * (len(letters) + packer.size // 8 + 1)

    def make(self) -> tuple[Any, int]:
        place = self._shape()
        address = ctypes.addressof(place)
        for number, offset in enumerate(self._offsets):
            place[number] = address + self.first + offset
        return place, address
