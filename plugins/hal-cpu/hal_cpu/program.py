"""A loaded kernel and its launch: the hot path.

A kernel is one C function, `void kernel(const char *args, const int32_t *launch, int64_t first,
int64_t last)`. `args` has eight bytes for each parameter, in the order of the signature; `launch`
the grid and the block; blocks `first` up to `last`, x fastest, are run.

The arguments are packed into a new bytes object, which is the launch's own: no storage to lock or
to keep per thread. A geometry carries the way its launches go: with the GIL kept (work too short
to be worth a release), released, or split over the cores.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from ctypes import CFUNCTYPE, PYFUNCTYPE, byref, c_int32, c_int64
from time import perf_counter
from typing import TYPE_CHECKING, Any

from hal_core.errors import CompileError, Unsupported
from hal_core.geometry import Dim3
from hal_core.program import Program
from hal_cpu import loader
from hal_cpu.compilers.source import PREFIX as SOURCE_PREFIX
from hal_cpu.device import MAX_BLOCK_THREADS
from hal_cpu.in_flight import Noted
from hal_cpu.threads.pool import Chunks, Pool, Roomy, split
from hal_cpu.threads.stacks import needs_room

if TYPE_CHECKING:
    from hal_core.compiler import Binary
    from hal_cpu.device import CPUDevice


# A GIL that is released comes back after up to 5 ms when another Python thread is busy, so work
# below 100 us keeps it. Operations as the kernel IR counts them, 1 ns each at the worst.
KEEP_GIL_BELOW = 100_000
# Splitting costs about 20 us. Operations take 0.02 to 1 ns, so the time of a launch decides, once
# it is known: twice above the line splits the next ones, one far below goes back.
SPLIT_FROM_SECONDS = 60e-6
JOIN_BELOW_SECONDS = 30e-6
SPLIT_AT_ONCE_FROM = 20_000_000  # operations
SPLIT_AT_ONCE_THREADS = 1 << 18  # where the operations of a thread are not known

# Functions without argument types, called with bytes and with arguments made ready before
# (`from_param`, `byref`): nothing is converted at the call, which takes half the time.
_KEEPING = PYFUNCTYPE(None)
_RELEASING = CFUNCTYPE(None)
_FIRST = c_int64.from_param(0)

# (run, launch, last): launched as `run(args, launch, first, last)`, `last` the number of blocks.
# A plain tuple, which unpacks faster than a named one.
Geometry = tuple[Callable[..., None], Any, Any]


_LAUNCH = """
def launch(geometry, {names}):
    run, where, last = geometry
    run(pack({names}), where, FIRST, last)
"""


class CPUProgram(Program):
    """Order: a launch is done when the call returns; overlapping calls of several threads have
    no order among them, and run at once.

    Owns: the code, which stays while a launch runs, whoever unloads the program meanwhile.
    """

    device: CPUDevice

    def __init__(self, device: CPUDevice, binary: Binary) -> None:
        super().__init__(device, binary)
        if binary.format != "elf":
            raise CompileError(
                f"load {binary.entry}",
                f"the CPU runs ELF objects, not {binary.format!r}",
                device=device.name,
            )
        entries: tuple[str, ...] = (binary.entry,)
        if not binary.rendered:
            entries = (SOURCE_PREFIX + binary.entry, binary.entry)
        code = loader.load(binary.image, binary.entry, *entries)
        self._keeping = _function(_KEEPING, code)
        self._releasing = _function(_RELEASING, code)
        self.info = self.info._replace(max_block_threads=MAX_BLOCK_THREADS)
        self._pack = struct.Struct("@" + "".join(map(_slot, self.signature.params))).pack

    def _geometry(self, grid: Dim3, block: Dim3, shared: int) -> Geometry:
        check_shared(self.name, shared, self.device.name)
        blocks = grid[0] * grid[1] * grid[2]
        threads = blocks * block[0] * block[1] * block[2]
        launch = byref((c_int32 * 6)(*grid, *block))  # keeps the array
        way = self._way(blocks, threads)
        if way is not self._keeping:
            way = Noted(way, self.device.running)
        return way, launch, c_int64.from_param(blocks)

    def _way(self, blocks: int, threads: int) -> Any:
        if needs_room():
            return Roomy(self._releasing)
        work = self.binary.work
        if work is not None and work * threads < KEEP_GIL_BELOW:
            return self._keeping
        pool = self.device.pool
        if blocks == 1 or pool.threads == 1:
            return self._releasing
        large = (
            threads >= SPLIT_AT_ONCE_THREADS
            if work is None
            else (work * threads >= SPLIT_AT_ONCE_FROM)
        )
        return _Measured(self._releasing, pool, split(blocks, pool.threads), large)

    def _bind(self) -> Callable[..., None]:
        names = ", ".join(f"a{param.position}" for param in self.signature.params)
        space: dict[str, Any] = {"pack": self._pack, "FIRST": _FIRST}
        exec(compile(_LAUNCH.format(names=names), "<launch on CPU>", "exec"), space)
        return space["launch"]  # type: ignore[no-any-return]

    def _launch_timed(self, geometry: Geometry, args: tuple[Any, ...]) -> float:
        run, launch, last = geometry
        packed = self._pack(*args)
        start = perf_counter()
        run(packed, launch, _FIRST, last)
        return perf_counter() - start

    def _unload(self) -> None:
        self._keeping = self._releasing = None


def check_shared(name: str, shared: int, device: str) -> None:
    """Raises: Unsupported for dynamic shared memory."""
    if shared:
        raise Unsupported(
            f"launch {name}",
            "kernels on the CPU have the shared memory they declare, and no more",
            got=shared,
            limit="shared=0",
            device=device,
            fix="Declare it in the kernel: hal.shared(dtype, shape).",
        )


class _Measured:
    """Launches of one geometry, on one core or split over all by how long they take.

    Concurrency: racing updates of the count cost at most a launch on the slower way.
    """

    __slots__ = ("_chunks", "_long", "_pool", "_run")

    def __init__(self, run: Any, pool: Pool, chunks: Chunks, large: bool) -> None:
        self._run, self._pool, self._chunks = run, pool, chunks
        self._long = 2 if large else 0  # launches in a row that were worth splitting

    def __call__(self, args: bytes, launch: Any, first: Any, last: Any) -> None:
        start = perf_counter()
        if self._long >= 2:
            self._pool.run(self._run, args, launch, self._chunks)
            if perf_counter() - start < JOIN_BELOW_SECONDS:
                self._long = 0
        else:
            self._run(args, launch, first, last)
            long = perf_counter() - start > SPLIT_FROM_SECONDS
            self._long = self._long + 1 if long else 0


def _function(prototype: Any, code: loader.Code) -> Any:
    """The entry as a function that holds the pages it lies in."""
    function = prototype(code.entry)
    function.code = code
    return function


def _slot(param: Any) -> str:
    """The struct letters of one argument: its own, and padding to eight bytes."""
    if param.is_pointer:
        return "Q"
    dtype = param.dtype
    return f"{dtype.format}{8 - dtype.itemsize}x" if dtype.itemsize < 8 else dtype.format
