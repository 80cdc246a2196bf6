"""The device under HAL_CHECK=1: memory that is watched, and kernels that are interpreted.

Nothing of this is imported, and nothing on any path asks for it, unless the device was opened so.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections import deque
from collections.abc import Callable
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hal_core import config
from hal_core.compiler import CompileOptions, Compiler
from hal_core.errors import CompileError, DeviceFault, HalError
from hal_core.geometry import Dim3
from hal_core.ir.listing import parse_listing
from hal_core.ir.verify import verify
from hal_core.program import Program
from hal_core.testing.arguments import Given
from hal_core.testing.casts import stored_as
from hal_core.testing.interpreter import carry_out
from hal_core.testing.run import Patience
from hal_core.testing.script import Script
from hal_cpu import driver
from hal_cpu.device import MAX_BLOCK_THREADS, CPUAllocator, CPUDevice
from hal_cpu.guarded import Block, Place, Quarantine
from hal_cpu.program import CPUProgram, check_shared

if TYPE_CHECKING:
    from hal_core.compiler import Binary
    from hal_core.device import Compiled, DeviceInfo
    from hal_core.ir import Kernel, Param
    from hal_core.spec import BufferSpec

log = logging.getLogger("hal_core")


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < math.inf:
        raise ValueError("expected a number of seconds, more than 0")
    return seconds


def _seed(text: str) -> int:
    if not text.strip().isdigit():
        raise ValueError("expected a whole number, 0 or more")
    return int(text)


SECONDS = config.declare(
    "HAL_CPU_CHECK_SECONDS", 60.0, "how long a launch in checked mode may take", _seconds
)
SEED = config.declare(
    "HAL_CPU_CHECK_SEED", 0, "another order of threads in checked mode; 0 = as numbered", _seed
)


class CheckedDevice(CPUDevice):
    """Order: as of any CPU device. What freed memory shows is raised at the next launch,
    `synchronize` or `close`."""

    allocator: CheckedAllocator
    checked = True

    def __init__(self, name: str, info: DeviceInfo) -> None:
        super().__init__(name, info)
        self.seconds, self.seed = SECONDS.read(), SEED.read()
        self.faults: deque[HalError] = deque()

    def raise_fault(self) -> None:
        if self.faults:
            raise self.faults.popleft()

    def _synchronize(self, timeout: float | None) -> bool:
        self.raise_fault()
        return True


class CheckedAllocator(CPUAllocator):
    """Blocks between inaccessible pages; a freed one is not used again.

    An opaque is a `Place`: an address that knows its block.
    """

    device: CheckedDevice
    null = Place(0, 0)
    host_ordered = False  # or copies would pass by the record of what is written

    def __init__(self, device: Compiled) -> None:
        super().__init__(device)
        self.poison = False  # a block does it itself
        self._blocks: dict[int, Block] = {}
        self._quarantine = Quarantine()
        self._numbers = itertools.count(1)

    @property
    def cache_limit(self) -> int:
        """Always 0, whatever it is set to: a freed block stays inaccessible."""
        return 0

    @cache_limit.setter
    def cache_limit(self, nbytes: int) -> None:
        pass

    # -- blocks of the size that was asked for: behind a rounded one there is room

    def _fresh(self, nbytes: int, size: int, options: BufferSpec) -> int:
        return super()._fresh(nbytes, nbytes, options)

    def _drop(self, opaque: int, size: int, options: BufferSpec) -> None:
        super()._drop(opaque, self._blocks[opaque].nbytes, options)

    def _alloc(self, nbytes: int, options: BufferSpec) -> int:
        block = Block(nbytes, next(self._numbers), options.zero)
        self._blocks[block.address] = block
        return Place(block.address, nbytes, block)

    def _free(self, opaque: int, nbytes: int, options: BufferSpec) -> None:
        block = self._blocks.pop(opaque)
        damage = block.damage()
        if damage is not None:
            self._report(block, damage)
        self._quarantine.add(block)

    def _report(self, block: Block, damage: int) -> None:
        where = "behind the end" if damage > 0 else "before the beginning"
        fault = DeviceFault(
            "free",
            f"a write {where} of {block}",
            got=damage,
            limit=f"limit 0 to {block.nbytes - 1}",
            device=self.device.name,
            fix="Look at what was given its address: an array's consumer, or a C kernel.",
        )
        log.warning("%s", fault)
        self.device.faults.append(fault)

    def free_cache(self) -> None:
        """Release every freed block's addresses; the memory went back when it was freed."""
        super().free_cache()
        self._quarantine.shrink(0, 0)

    def _after_fork(self) -> None:
        super()._after_fork()
        self._held = self._current
        self._quarantine = Quarantine()  # its lock may be held for ever

    def block_near(self, address: int) -> tuple[Block | None, bool]:
        """The block that an access to an inaccessible page missed, and whether it was freed."""
        freed = self._quarantine.find(address)
        if freed is not None:
            return freed, True
        for block in list(self._blocks.values()):
            if block.low - driver.PAGE <= address < block.high + driver.PAGE:
                return block, False
        return None, False

    # -- what is written

    def _wrap(self, pointer: int, nbytes: int) -> int:
        return Place(pointer, nbytes)

    def _offset(self, opaque: Any, nbytes: int, offset: int) -> int:
        place: Place = opaque
        return place.part(offset, nbytes)

    def _as_buffer(self, opaque: Any, nbytes: int) -> memoryview:
        """Whoever has it may write, and nobody sees it: from now on all of it counts as written."""
        opaque.mark(nbytes)
        return super()._as_buffer(opaque, nbytes)

    def _copyin(self, dest: Any, src: memoryview) -> None:
        super()._copyin(dest, src)
        dest.mark(src.nbytes)

    def _fill(self, dest: Any, nbytes: int, pattern: bytes) -> None:
        super()._fill(dest, nbytes, pattern)
        dest.mark(nbytes)

    def _transfer(self, dest: Any, src: Any, nbytes: int, src_device: Compiled) -> bool:
        done = super()._transfer(dest, src, nbytes, src_device)
        if done:
            dest.copy_record(src, nbytes)
        return done


class UOpsCompiler(Compiler):
    """A kernel's listing is what is loaded: nothing is compiled."""

    language = format = "uops"
    target = "interpreter"
    identity = "uops 1"

    def _compile(self, source: str, options: CompileOptions) -> bytes:
        return source.encode()

    def _disassemble(self, image: bytes) -> str:
        return image.decode()


class Geometry(NamedTuple):
    grid: Dim3
    block: Dim3


class InterpretedProgram(Program):
    """A kernel that the reference interpreter carries out on the buffers' memory.

    Raises, at a launch: KernelFault. What the kernel wrote before is written.
    """

    device: CheckedDevice

    def __init__(self, device: CheckedDevice, binary: Binary) -> None:
        super().__init__(device, binary)
        self._script: Script | None = Script(_kernel(binary, device.name), device.name)
        self.info = self.info._replace(max_block_threads=MAX_BLOCK_THREADS)

    def _geometry(self, grid: Dim3, block: Dim3, shared: int) -> Geometry:
        check_shared(self.name, shared, self.device.name)
        return Geometry(grid, block)

    def _bind(self) -> Callable[..., None]:
        script, device = self._script, self.device

        def launch(geometry: Geometry, *args: Any) -> None:
            interpreted(script, device, geometry, args)  # type: ignore[arg-type]  # or unloaded

        return launch

    def _launch_timed(self, geometry: Geometry, args: tuple[Any, ...]) -> float:
        start = perf_counter()
        interpreted(self._script, self.device, geometry, args)  # type: ignore[arg-type]
        return perf_counter() - start

    def _unload(self) -> None:
        self._script = None


def interpreted(
    script: Script, device: CheckedDevice, geometry: Geometry, args: tuple[Any, ...]
) -> None:
    """One launch."""
    device.raise_fault()
    name, params = script.kernel.name, script.kernel.signature.params
    given = Given({}, {}, {})
    for param, arg in zip(params, args, strict=True):
        if param.is_pointer:
            _give_memory(given, param, arg, f"{param.name!r} of kernel {name}")
        else:
            given.values[param.position] = np.array([arg], stored_as(param.dtype))
    until = monotonic() + device.seconds
    how = "with HAL_CPU_CHECK_SECONDS"
    patience = Patience(_NO_LIMIT, until, device.seconds, how)
    try:
        carry_out(script, given, geometry, patience, seed=device.seed)
    finally:
        for position in given.written:
            args[position].block.settle()


_NO_LIMIT = 1 << 62


def _give_memory(given: Given, param: Param, place: Place, called: str) -> None:
    position, itemsize = param.position, param.dtype.itemsize
    memory = driver.memory_at(place, place.nbytes) if place.nbytes else b""
    given.arrays[position] = np.frombuffer(memory, stored_as(param.dtype))
    written = place.record(itemsize)
    if written is not None:
        given.written[position] = written
    if place.block is not None:
        place.block.called = called


def _kernel(binary: Binary, device: str) -> Kernel:
    """Raises: CompileError when the bytes are no listing of this kernel."""
    try:
        kernel = parse_listing(binary.image.decode())
        verify(kernel)
    except (HalError, UnicodeDecodeError) as error:
        raise CompileError(f"load {binary.entry}", f"no kernel: {error}", device=device) from None
    if kernel.name != binary.entry or kernel.signature != binary.signature:
        raise CompileError(
            f"load {binary.entry}",
            f"the listing is of another kernel, {kernel.name}({kernel.signature})",
            device=device,
        )
    return kernel


def program(device: CheckedDevice, binary: Binary) -> Program:
    """Machine code, of a C compiler or because CPU_CC asks for it, is run as ever."""
    if binary.format == "uops":
        return InterpretedProgram(device, binary)
    return CPUProgram(device, binary)
