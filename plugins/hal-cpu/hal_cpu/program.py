"""A loaded kernel and its launch, which is the hot path.

A kernel is one C function, `void kernel(const char *args, const int32_t *launch, int64_t first,
int64_t last)`. `args` has eight bytes for each parameter, in the order of the signature; `launch`
the grid and the block; it runs the blocks from `first` up to `last`, x fastest.

The arguments are packed into a new bytes object, which is the launch's own: no storage to lock or
to keep per thread. A geometry holds the function that runs its launches: with the GIL held (work
too short to be worth a release), with the GIL released, or split over the cores.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from ctypes import CFUNCTYPE, PYFUNCTYPE, byref, c_int32, c_int64
from time import perf_counter
from typing import TYPE_CHECKING, Any

from hal_core.errors import Unsupported
from hal_core.geometry import Dim3
from hal_core.program import Program, Shared
from hal_core.program.generated import define
from hal_cpu import loader
from hal_cpu.compilers import seal
from hal_cpu.compilers.source import ENTRY_PREFIX, entry_of
from hal_cpu.device import MAX_BLOCK_THREADS
from hal_cpu.in_flight import TrackedLaunch
from hal_cpu.threads.job import Chunks, LargeStackLaunch, LaunchFunction
from hal_cpu.threads.pool import Pool, split
from hal_cpu.threads.stacks import for_this_thread, has_large_frame, this_thread

if TYPE_CHECKING:
    from hal_core.source import Binary
    from hal_cpu.device import CPUDevice


# While another Python thread is busy, a released GIL comes back after up to 5 ms, so work below
# 100 us keeps it. In operations as the kernel IR counts them, at the worst 1 ns each.
KEEP_GIL_BELOW = 100_000
# Splitting a launch costs about 3 us, and as much as it gains where workers have to wake. An
# operation takes 0.02 to 1 ns, so measured times decide, not their number: two launches in a row
# above the first limit split the later ones, one split launch below the second limit ends that.
SPLIT_FROM_SECONDS = 40e-6
JOIN_BELOW_SECONDS = 5e-6
# How long launches stay on one core where splitting gained nothing.
ALONE_LAUNCHES, ALONE_SECONDS = 64, 20e-3
SPLIT_AT_ONCE_FROM = 20_000_000  # operations
SPLIT_AT_ONCE_THREADS = 1 << 18  # where the operations of a thread are not known

# PYFUNCTYPE keeps the GIL during the call, CFUNCTYPE releases it. Neither has argument types: the
# arguments are bytes, or converted before (`from_param`, `byref`), which halves a call's time.
_KEEPING = PYFUNCTYPE(None)
_RELEASING = CFUNCTYPE(None)
_FIRST = c_int64.from_param(0)
_Sizes = c_int32 * 6  # of a grid and a block

# [run, launch, last]: launched as `run(args, launch, first, last)`, `last` the number of blocks.
# A plain list, which unpacks faster than an object of its own class.
Geometry = list[Any]


_LAUNCH = """
def launch(geometry, {names}):
    run, where, last = geometry
    {choose}run(pack({names}), where, FIRST, last)
"""
# Asked at each launch, as another thread may have a smaller stack than the one before.
_CHOOSE = "if not this_thread.has_room: run = for_this_thread(run, moved)\n    "


class CPUProgram(Program):
    """A kernel on the CPU.

    Order: a launch is done when the call returns; overlapping calls of several threads have no
    order among them, and run at once.
    Owns: the code, which stays while a launch runs, even if another thread unloads the program.
    """

    device: CPUDevice
    formats = loader.FORMATS

    def __init__(self, device: CPUDevice, binary: Binary) -> None:
        super().__init__(device, binary)
        seal.check(binary.image, f"load {binary.name}")
        entries: tuple[str, ...] = (binary.name,)
        if not binary.interface.rendered:  # the loop around a user's C function; LLVM IR has none
            entries = (entry_of(binary.signature), binary.name)
            if ENTRY_PREFIX.encode() in binary.image:  # C: no other function will do
                entries = entries[:1]
        load = loader.named(device.loader)
        self._loaded: Shared | None = self._shared(
            lambda: (load(binary.image, binary.name, *entries), entries)
        )
        code, own = self._loaded.made
        if own != entries:
            code = loader.function_of(code, *entries)
        self.code: loader.Code | loader.Function | None = code
        self._keeping = _function(_KEEPING, code)
        self._releasing = _function(_RELEASING, code)
        # A user's C may take stack in ways that its code does not tell, as by recursion.
        self._moved: LaunchFunction | None = None
        if not binary.interface.rendered or has_large_frame(binary.image):
            self._moved = TrackedLaunch(LargeStackLaunch(self._releasing), device.in_flight)
        self.info = self.info._replace(max_block_threads=MAX_BLOCK_THREADS)
        slots = (  # a multiple of eight bytes each: a number has padding after it
            "Q" if param.is_pointer else f"{param.dtype.format}{-param.dtype.itemsize % 8}x"
            for param in self.signature.params
        )
        self._pack = struct.Struct("@" + "".join(slots)).pack

    def _geometry(self, grid: Dim3, block: Dim3, shared: int) -> Geometry:
        refuse_shared(self.name, shared, self.device.name)
        blocks = grid[0] * grid[1] * grid[2]
        threads = blocks * block[0] * block[1] * block[2]
        work, run = self.binary.interface.work, self._releasing
        if work is not None and work * threads < KEEP_GIL_BELOW:
            run = self._keeping
        elif blocks > 1 and (pool := self.device.pool).threads > 1:
            large = threads >= SPLIT_AT_ONCE_THREADS
            if work is not None:
                large = work * threads >= SPLIT_AT_ONCE_FROM
            run = AdaptiveLaunch(run, pool, split(blocks, pool.threads), large)
        if run is not self._keeping:
            run = TrackedLaunch(run, self.device.in_flight)
        launch = byref(_Sizes(*grid, *block))  # keeps the array alive
        return [run, launch, c_int64.from_param(blocks)]

    def _bind(self) -> Callable[..., None]:
        names = ", ".join(f"a{param.position}" for param in self.signature.params)
        known: dict[str, Any] = {"pack": self._pack, "FIRST": _FIRST, "moved": self._moved}
        known |= {"this_thread": this_thread, "for_this_thread": for_this_thread}
        text = _LAUNCH.format(names=names, choose=_CHOOSE if self._moved else "")
        return define(text, "launch", "launch on CPU", known)

    def _launch_timed(self, geometry: Geometry, args: tuple[Any, ...]) -> float:
        run, launch, last = geometry
        if self._moved:
            run = for_this_thread(run, self._moved)
        packed = self._pack(*args)
        start = perf_counter()
        run(packed, launch, _FIRST, last)
        return perf_counter() - start

    def _unload(self) -> None:
        self._loaded = self.code = self._keeping = self._releasing = self._moved = None


def _function(prototype: Any, code: loader.Code | loader.Function) -> Any:
    """Return the entry as a function that holds the pages of its code."""
    function = prototype(code.entry)
    function.code = code
    return function


def refuse_shared(name: str, shared: int, device: str) -> None:
    """Raise Unsupported if a launch asks for dynamic shared memory."""
    if shared:
        raise Unsupported(
            f"launch {name}",
            "kernels on the CPU have the shared memory they declare, and no more",
            got=shared,
            limit="shared=0",
            device=device,
            fix="Declare it in the kernel: hal.shared(dtype, shape).",
        )


class AdaptiveLaunch:
    """Launches of one geometry, on one core or split over all, as their measured times decide.

    Beside other busy processes all threads may have to run on one core, by turns. So two split
    launches in a row that took longer than one core did send the next ones back to one core.
    Concurrency: racing updates of the count cost at most one launch on the slower side.
    """

    __slots__ = ("_alone", "_chunks", "_long", "_pool", "_run", "_split")

    def __init__(self, run: Any, pool: Pool, chunks: Chunks, large: bool) -> None:
        self._run, self._pool, self._chunks = run, pool, chunks
        # Launches in a row that were worth splitting; below 0: until splitting is tried again.
        self._long = 2 if large else 0
        self._alone = math.inf  # the fewest seconds of the long launches in a row on one core
        self._split = math.inf  # seconds of the last split launch, if it gained nothing

    def __call__(self, args: bytes, launch: Any, first: Any, last: Any) -> None:
        start = perf_counter()
        if self._long >= 2:
            self._pool.run(self._run, args, launch, self._chunks)
            seconds = perf_counter() - start
            if JOIN_BELOW_SECONDS <= seconds < self._alone:
                self._split = math.inf
            else:
                self._reconsider(seconds)
        else:
            self._run(args, launch, first, last)
            seconds = perf_counter() - start
            if seconds <= SPLIT_FROM_SECONDS:
                self._long = 0
            else:
                self._alone = min(self._alone, seconds) if self._long else seconds
                self._long = 2 if self._long < 0 and seconds > self._split else self._long + 1

    def _reconsider(self, seconds: float) -> None:
        """Decide after a split launch that was short, or took longer than one core did."""
        if seconds < JOIN_BELOW_SECONDS:
            self._long = 0
        elif self._split == math.inf:
            self._split = seconds
        else:
            self._split = min(self._split, seconds)
            self._long = -min(ALONE_LAUNCHES, int(ALONE_SECONDS / seconds))
            self._alone = math.inf
