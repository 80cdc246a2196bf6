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
from ctypes import CFUNCTYPE, PYFUNCTYPE, c_int32, c_int64
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from hal_core.errors import CompileError
from hal_core.program import Dim3, Program
from hal_cpu import loader
from hal_cpu.pool import split
from hal_cpu.source import PREFIX as SOURCE_PREFIX

if TYPE_CHECKING:
    from hal_core.compiler import Binary
    from hal_cpu.device import CPUDevice


# Operations (kernel IR's estimate) of a launch. A GIL that is released comes back after up to
# 5 ms when another Python thread is busy, so work below 100 us keeps it even if each operation
# takes 1 ns; splitting costs 20 us, so it begins at 50 us if each takes 0.15 ns.
KEEP_GIL_BELOW = 100_000
SPLIT_FROM = 350_000
SPLIT_THREADS_FROM = 16_384  # where the work of a thread is not known

# Without argument types ctypes passes bytes, arrays and its own integers as they are, fastest.
_KEEPING = PYFUNCTYPE(None)
_RELEASING = CFUNCTYPE(None)


class Geometry(NamedTuple):
    """Launched as `run(args, launch, first, last)`."""

    run: Callable[..., None]
    launch: Any  # int32[6]
    last: c_int64  # the number of blocks


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
        self._pack = struct.Struct("@" + "".join(map(_slot, self.signature.params))).pack

    def _geometry(self, grid: Dim3, block: Dim3, shared: int) -> Geometry:
        blocks = grid[0] * grid[1] * grid[2]
        threads = blocks * block[0] * block[1] * block[2]
        return Geometry(self._way(blocks, threads), (c_int32 * 6)(*grid, *block), c_int64(blocks))

    def _way(self, blocks: int, threads: int) -> Any:
        work = self.binary.work
        if work is not None and work * threads < KEEP_GIL_BELOW:
            return self._keeping
        large = threads >= SPLIT_THREADS_FROM if work is None else work * threads >= SPLIT_FROM
        pool = self.device.pool
        if not large or blocks == 1 or pool.threads == 1:
            return self._releasing
        releasing, chunks, spread = self._releasing, split(blocks, pool.threads), pool.run

        def run(args: bytes, launch: Any, first: c_int64, last: c_int64) -> None:
            spread(releasing, args, launch, chunks)

        return run

    def _bind(self) -> Callable[..., None]:
        names = ", ".join(f"a{param.position}" for param in self.signature.params)
        space: dict[str, Any] = {"pack": self._pack, "FIRST": c_int64(0)}
        exec(compile(_LAUNCH.format(names=names), "<launch on CPU>", "exec"), space)
        return space["launch"]  # type: ignore[no-any-return]

    def _launch_timed(self, geometry: Geometry, args: tuple[Any, ...]) -> float:
        packed = self._pack(*args)
        start = perf_counter()
        geometry.run(packed, geometry.launch, c_int64(0), geometry.last)
        return perf_counter() - start

    def _unload(self) -> None:
        self._keeping = self._releasing = None


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
