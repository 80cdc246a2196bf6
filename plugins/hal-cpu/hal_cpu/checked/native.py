"""Machine code under HAL_CHECK=1: `Source` kernels, and rendered ones where CPU_CC asks for it.

Each launch runs in a child process. What it wrote is copied back if it ended well and wrote nothing
but the elements of its arguments. Otherwise the launch raises, and memory is unchanged.
"""

from __future__ import annotations

import ctypes
import signal
from collections.abc import Callable, Iterable
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from hal_core.errors import DeviceFault
from hal_core.geometry import Dim3
from hal_core.signature import CONST_POINTER, Param
from hal_cpu import driver
from hal_cpu.checked.child_process import Outcome, Region, run_in_child
from hal_cpu.checked.guarded_memory import Address
from hal_cpu.program import CPUProgram, refuse_shared
from hal_kernel.errors import KernelFault, OutOfBounds

if TYPE_CHECKING:
    from hal_cpu.checked.device import CheckedDevice

_GUARD = "Guard the access, if (i < n): threads= rounds up to whole blocks."
_ADVICE: dict[int, str] = {
    signal.SIGSEGV: "Look at its indices, its pointers, and what it puts on the stack.",
    signal.SIGBUS: "Look at its indices, its pointers, and what it puts on the stack.",
    signal.SIGFPE: "Look at its divisions: by zero, and of the least integer by -1.",
    signal.SIGILL: "Look for __builtin_trap() and for code that cannot be reached.",
    signal.SIGTRAP: "Look for __builtin_trap() and for code that cannot be reached.",
    signal.SIGABRT: "Look for abort() and for an assert() that does not hold.",
}


class Geometry(NamedTuple):
    launch: ctypes.Array[ctypes.c_int32]  # grid and block
    blocks: int


class Argument(NamedTuple):
    """A pointer parameter, and the address that it is given."""

    param: Param
    address: Address

    @property
    def end(self) -> int:
        return self.address + self.address.nbytes

    @property
    def accessible(self) -> tuple[int, int]:
        """The range of addresses around the argument that a kernel reaches without a fault."""
        block = self.address.block
        return (self.address, self.end) if block is None else (block.low, block.high)

    @property
    def limit(self) -> str:
        size = self.address.nbytes // self.param.dtype.itemsize
        return f"limit 0 to {size - 1}" if size else "it has no element"

    def element(self, address: int) -> int:
        """Return the index of the element that has the byte at `address`."""
        return (address - self.address) // self.param.dtype.itemsize

    def is_near(self, address: int) -> bool:
        """Return whether `address` lies in the block or in an inaccessible page beside it."""
        low, high = self.accessible
        return low - driver.PAGE <= address < high + driver.PAGE

    def distance(self, address: int) -> int:
        """Return how many bytes `address` lies outside of the argument; 0: it lies inside."""
        return max(self.address - address, address - self.end + 1, 0)


class NativeProgram(CPUProgram):
    """A kernel as machine code, whose launches run in a child process.

    Raises, at a launch: DeviceFault, OutOfBounds or KernelFault; then nothing is written.
    """

    device: CheckedDevice

    def _geometry(self, grid: Dim3, block: Dim3, shared: int) -> Any:
        refuse_shared(self.name, shared, self.device.name)
        return Geometry((ctypes.c_int32 * 6)(*grid, *block), grid[0] * grid[1] * grid[2])

    def _bind(self) -> Callable[..., None]:
        code, pack, device, signature = self.code, self._pack, self.device, self.signature

        def launch(geometry: Geometry, *args: Any) -> None:
            given = zip(signature.params, args, strict=True)
            arguments = [Argument(param, arg) for param, arg in given if param.is_pointer]
            ranges = [(one.address, one.end, one.param.kind != CONST_POINTER) for one in arguments]
            device.check_order(f"launch of {signature.name}", *ranges)
            with device.in_flight.using(*(argument.address for argument in arguments)):
                entry = code.entry  # type: ignore[union-attr]  # None if unloaded
                Launch(f"kernel {signature.name}", device, arguments).run(
                    entry, pack(*args), geometry
                )

        return launch

    def _launch_timed(self, geometry: Any, args: tuple[Any, ...]) -> float:
        start = perf_counter()
        self._bind()(geometry, *args)
        return perf_counter() - start


class Launch:
    """One launch in a child process, and the errors for how it ended."""

    def __init__(self, operation: str, device: CheckedDevice, arguments: list[Argument]) -> None:
        self.operation, self.device, self.arguments = operation, device, arguments
        self.const = [one for one in arguments if one.param.kind == CONST_POINTER]
        self.writable = [one for one in arguments if one.param.kind != CONST_POINTER]

    def run(self, entry: int, args: bytes, geometry: Geometry) -> None:
        """Run the kernel, check what it wrote, and copy that back."""
        self.device.raise_fault()
        for param, address in self.arguments:
            if address.block is not None:
                address.block.user = f"{param.name!r} of {self.operation}"
        writable = join_ranges((one.address, one.end) for one in self.writable)
        accessible = join_ranges(one.accessible for one in self.arguments)
        # Memory that the kernel reaches without a fault, and must leave as it is.
        forbidden = cut_out(accessible, writable)
        outcome = run_in_child(
            entry, args, *geometry, forbidden, [*forbidden, *writable], self.device.seconds
        )
        if not outcome.done:
            self._refuse(outcome)
        after_forbidden = outcome.after[: len(forbidden)]
        for region, before, after in zip(forbidden, outcome.before, after_forbidden, strict=True):
            changed = np.frombuffer(before, np.uint8) != np.frombuffer(after, np.uint8)
            if changed.any():
                self._refuse_write(region.address + int(changed.argmax()))
        for region, after in zip(writable, outcome.after[len(forbidden) :], strict=True):
            driver.memory_at(*region)[:] = after
        for argument in self.writable:
            argument.address.mark_written()  # all of it: the child keeps no record

    # -- errors

    def _refuse_write(self, address: int) -> NoReturn:
        """Raise for a write to accessible memory that is no element of a writable argument."""
        for argument in self.const:
            if not argument.distance(address):
                raise KernelFault(
                    self.operation,
                    f"a write of {argument.param.name!r}, which is const",
                    got=argument.element(address),
                    limit=argument.limit,
                    device=self.device.name,
                    fix="Leave const out of the signature.",
                )
        nearest = min(self.arguments, key=lambda argument: argument.distance(address))
        raise OutOfBounds(
            self.operation,
            f"out of bounds: a write of {nearest.param.name!r}",
            got=nearest.element(address),
            limit=nearest.limit,
            device=self.device.name,
            fix=_GUARD,
        )

    def _refuse(self, outcome: Outcome) -> NoReturn:
        """Raise for a kernel that did not return."""
        facts: dict[str, Any] = {}
        if outcome.timed_out:
            problem = "it does not end: it has taken too long"
            facts["limit"] = f"limit {self.device.seconds:g} s"
            fix = "Look at its loops, or allow more with HAL_CPU_CHECK_SECONDS."
        elif not outcome.signal:
            problem = f"it exited the process, with status {outcome.status}"
            fix = "Return from the kernel."
        else:
            name = signal.Signals(outcome.signal).name
            sender = "Look for who sends it: a limit of the system, or a person."
            problem, fix = f"it ended with {name}", _ADVICE.get(outcome.signal, sender)
            if outcome.address:
                problem = f"{name} at {outcome.address:#x}"
                near = [one for one in self.arguments if one.is_near(outcome.address)]
                if near:
                    argument = min(near, key=lambda one: one.distance(outcome.address))
                    problem += f", out of bounds of {argument.param.name!r}"
                    facts = {"got": argument.element(outcome.address), "limit": argument.limit}
                    fix = _GUARD
                else:
                    block, freed = self.device.allocator.block_near(outcome.address)
                    if block is not None:
                        problem += f", {'in the freed' if freed else 'beside the'} {block}"
        raise DeviceFault(self.operation, problem, device=self.device.name, fix=fix, **facts)


# -- ranges of addresses

Range = tuple[int, int]  # from, up to


def join_ranges(ranges: Iterable[Range]) -> list[Region]:
    """Join ranges that overlap or touch: (0, 4), (9, 12), (2, 6) -> 0 to 6, 9 to 12."""
    found: list[Range] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1]:
            found[-1] = (found[-1][0], max(high, found[-1][1]))
        elif high > low:
            found.append((low, high))
    return [Region(low, high - low) for low, high in found]


def cut_out(regions: list[Region], holes: list[Region]) -> list[Region]:
    """Cut holes, which lie inside, out of the regions: 0 to 9 without 2 to 5 -> 0 to 2, 5 to 9."""
    found = []
    for region in regions:
        low, end = region.address, region.address + region.nbytes
        for start, nbytes in holes:
            if low <= start < end:
                if start > low:
                    found.append(Region(low, start - low))
                low = start + nbytes
        if end > low:
            found.append(Region(low, end - low))
    return found
