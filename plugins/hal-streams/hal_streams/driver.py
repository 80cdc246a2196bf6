"""The driver functions that a backend gives, and the exceptions that their refusals become.

Numbers of statuses are CUDA's, which HIP shares. A driver with other numbers raises `Refused` with
the nearest of these, and with its own names and words.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

from hal_core.errors import (
    CompileError,
    DeviceFault,
    DeviceUnavailable,
    HalError,
    InvalidArgument,
    InvalidState,
    OutOfMemory,
)

if TYPE_CHECKING:
    from hal_core.allocator import Image
    from hal_core.device.base import Compiled
    from hal_streams.images import Array

INVALID_VALUE, NO_MEMORY, NOT_FOUND, NOT_READY = 1, 2, 500, 600
WRONG_CONTEXT = frozenset({201, 400, 709})  # for our handles in another context
_DESTROYED = WRONG_CONTEXT | {1, 4}  # for handles that were destroyed
STICKY = frozenset({  # the context is lost
    214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721, 911
})  # fmt: skip

# Another library captures a stream into a graph: the call, or the stream or event that it names, is
# against that. Nothing has failed, and the context is as it was.
CAPTURING = range(900, 909)
CAPTURED_EVENT = 907

_KINDS: dict[int, type[HalError]] = {  # Source: CUresult in cuda.h, hipError_t in driver_types.h
    **dict.fromkeys((1, 101, 400, 701), InvalidArgument),  # a value, index, handle, launch
    2: OutOfMemory,
    **dict.fromkeys((3, 100, 802, 803), DeviceUnavailable),  # not started, no GPU
    **dict.fromkeys((4, 201, *CAPTURING), InvalidState),  # shut down, no context, a capture
    **dict.fromkeys((200, 209, 218, 222, 223, 300, 500), CompileError),  # an image, an entry
    **dict.fromkeys(STICKY, DeviceFault),
}
_FIXES = {
    701: "Give the block fewer threads: program.info says how many it can have.",
    **dict.fromkeys(
        CAPTURING,
        "Another library captures a stream into a graph: do this before its capture begins or "
        "after it has ended, or let it capture in thread-local mode.",
    ),
    **dict.fromkeys(
        STICKY,
        "The context is lost: restart the process. A driver that forgets faults, as CUDA's does "
        "not, lets you free pinned memory, close the device and open it again. HAL_CHECK=1 on the "
        "CPU finds the access.",
    ),
}


class Refused(Exception):
    """The driver answered a call with another status than success."""

    def __init__(self, call: str, code: int, name: str, sentence: str) -> None:
        super().__init__(f"{call} gave {code}, {name}: {sentence}")
        self.call, self.code, self.name, self.sentence = call, code, name, sentence


def explain(
    error: Refused, operation: str, device: str, last: str = "", closed: bool = False
) -> HalError:
    """Return the exception of hal-core for a refusal, with the call, the code and its name.

    `last` is the program launched last, which a fault names. `closed`: the device is closed, and
    has destroyed the handles that the driver refuses.
    """
    kind = _KINDS.get(error.code, HalError)
    problem = f"{error.call} failed with {error.name}: {error.sentence}"
    if last and error.code in STICKY:
        problem += f", the last program launched was {last}"
    fix = _FIXES.get(error.code)
    if operation == "open" and error.code in STICKY:  # in a new context the fault of an old one
        fix = (
            "The context is lost: free the pinned memory that keeps it; if there is none, restart "
            "the process."
        )
    if kind is CompileError:  # the sentence is the log of the driver's own compiler
        problem = f"the driver refuses the binary: {error.name}"
        return CompileError(operation, problem, log=error.sentence, device=device, fix=fix)
    if closed and error.code in _DESTROYED:  # by another thread, during the call
        kind, problem = InvalidState, f"the device is closed; {problem}"
        fix = f'Open it again with hal.Device["{device}"].'
    return kind(operation, problem.rstrip("."), got=error.code, device=device, fix=fix)


class check:
    """`with check("allocate", name):` turns refused calls inside into exceptions of hal-core.

    `opened`: the device itself, which another thread may close during the call.
    """

    __slots__ = ("device", "last", "opened", "operation")

    def __init__(
        self, operation: str, device: str, last: str = "", opened: Compiled | None = None
    ) -> None:
        self.operation, self.device, self.last, self.opened = operation, device, last, opened

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, Refused):
            closed = self.opened is not None and self.opened.closed
            raise explain(error, self.operation, self.device, self.last, closed) from None


class Facts(NamedTuple):
    """Facts of one device; the attributes have the driver's names in lower case.

    `hal_streams.device.describe` says which attributes it reads.
    """

    name: str
    memory_nbytes: int
    attributes: dict[str, Any]
    arch: str


class KernelFacts(NamedTuple):
    """Facts of a loaded kernel, as the driver gives them."""

    registers: int
    shared_nbytes: int
    local_nbytes: int
    max_block_threads: int


class _Current(threading.local):
    """The context that `use` made current on the calling thread."""

    context: Any = None


class StreamDriver(ABC):
    """The functions of one driver; a backend has one object for the process.

    Handles of contexts, streams, events, modules and functions are whatever the driver returns;
    `int(context)` identifies a context. Addresses are integers. A context is what a thread has
    current: a driver that has only a current device gives the device's index.

    Order: work is queued on the stream that a function is given, and the function returns.
    Concurrency: every function may be called from any thread, and in the middle of another one.
    Raises: Refused, from every function, when the driver answers with another status than success.
    """

    # The left side of an assignment that takes what a launch answers: "status", or "(status,)".
    STATUS = "status"

    def __init__(self) -> None:
        self.current = _Current()

    def use(self, context: Any) -> None:
        """Make `context` current on the calling thread, unless `use` has done so before.

        Another library may have changed it since; `StreamDevice.own` sets it in any case.
        """
        if self.current.context is not context:
            self.set_current(context)
            self.current.context = context

    # -- devices and contexts

    @abstractmethod
    def count(self) -> int:
        """Return the number of devices."""

    @abstractmethod
    def facts(self, index: int) -> Facts:
        """Return the facts of a device, without a context."""

    @abstractmethod
    def retain(self, index: int) -> Any:
        """Return the context of a device, which every library of the process shares.

        Owns: it lives until `release` was called as often as `retain`.
        """

    @abstractmethod
    def release(self, index: int, context: Any, lost: bool) -> None:
        """Give a context back. `lost`: a fault has made it unusable; the last one to give it back
        makes the device usable again, if the driver can."""

    @abstractmethod
    def set_current(self, context: Any) -> None:
        """Make a context current on the calling thread."""

    @abstractmethod
    def current_context(self) -> Any:
        """Return the context that is current on the calling thread, 0 for none."""

    # -- memory

    @abstractmethod
    def memory_info(self) -> tuple[int, int]:
        """Return the free and the total bytes of the current device."""

    def make_pool(self, index: int, keep_nbytes: int) -> Any:
        """Make a pool of a device's memory, which keeps that much of what is freed.

        This function and the other three of pools are called for devices whose attribute
        `memory_pools_supported` is not 0.
        """
        raise NotImplementedError

    def share_pool(self, pool: Any, owner: int, device: int) -> None:
        """Let another device reach a pool's memory, if the hardware has a path between them."""
        raise NotImplementedError

    def trim_pool(self, pool: Any) -> None:
        """Give all free memory of a pool back to the device."""
        raise NotImplementedError

    def destroy_pool(self, pool: Any) -> None:
        """Destroy a pool. Owns: its memory that is in use stays until it is freed."""
        raise NotImplementedError

    @abstractmethod
    def allocate(self, nbytes: int, stream: Any, pool: Any) -> int:
        """Return the address of new memory, from the pool unless that is None.

        Order: from a pool, later work of the stream may use it.
        """

    @abstractmethod
    def free(self, address: int, stream: Any, pooled: bool) -> None:
        """Free memory of the current context.

        Order: if `pooled`, after the queued work of the stream; else after all work of the context,
        for which it waits.
        """

    @abstractmethod
    def allocate_host(self, nbytes: int) -> int:
        """Return the address of pinned memory, which is the same in every context."""

    @abstractmethod
    def free_host(self, address: int) -> None:
        """Free pinned memory, which no queued work uses."""

    def make_array(self, image: Image) -> Array:
        """Make the memory of an image, and a texture and a surface object of it.

        This function and the next are called where the backend's allocator honours `image`.
        """
        raise NotImplementedError

    def free_array(self, array: Array) -> None:
        """Free an array of the current context after all work of the context, for which it waits,
        with its objects."""
        raise NotImplementedError

    @abstractmethod
    def copy_in(self, dest: int, src: Any, nbytes: int, stream: Any) -> None:
        """Copy from a host address, from bytes or from what `readable` gave. It may be read after
        the call."""

    def readable(self, src: memoryview) -> Any:
        """Return flat memory as `copy_in` takes it; the caller keeps the result until the copy is
        done. Here a copy, which a driver that takes the memory itself does not make."""
        return bytes(src)

    @abstractmethod
    def copy_out(self, dest: Any, src: int, nbytes: int, stream: Any) -> None:
        """Copy to a host address, or to a flat writable buffer."""

    @abstractmethod
    def copy(self, dest: Any, src: Any, nbytes: int, stream: Any) -> None:
        """Copy within a device, or between it and pinned memory; the ranges do not overlap.

        Each is an address, or an `Array` in all its extent, here and in nodes of graphs.
        """

    @abstractmethod
    def copy_peer(
        self, dest: int, dest_context: Any, src: int, src_context: Any, nbytes: int, stream: Any
    ) -> None:
        """Copy between the devices of two contexts."""

    @abstractmethod
    def fill(self, dest: int, pattern: bytes, count: int, stream: Any) -> None:
        """Write `count` times a pattern of 1, 2 or 4 bytes."""

    @abstractmethod
    def owner_of(self, address: int) -> tuple[int, bool, int]:
        """Return the index of an address's device, whether it is host memory, and its context.

        The index is -1 for an address that the driver does not know; the context is 0 where every
        context of the device reaches the memory.
        """

    # -- streams and events

    @abstractmethod
    def make_stream(self, independent: bool = False) -> Any:
        """Make a stream, ordered with the legacy default stream unless `independent`."""

    @abstractmethod
    def destroy_stream(self, stream: Any) -> None:
        """Destroy a stream; its queued work is carried out."""

    @abstractmethod
    def wait(self, stream: Any) -> None:
        """Wait for a stream: one of ours, or another library's, whose handle is a number.

        Raises: Refused with the status of work that failed.
        """

    @abstractmethod
    def is_done(self, stream: Any) -> bool:
        """Return whether a stream's work is done, without a wait. Raises: as `wait`."""

    @abstractmethod
    def is_independent(self, stream: Any) -> bool:
        """Return whether a stream has no order with the legacy default stream."""

    def is_capturing(self, stream: Any) -> bool:
        """Return whether another library captures a stream into a graph. Disturbs no capture."""
        return False

    def relaxed(self) -> AbstractContextManager[None]:
        """Let the calling thread make calls that are not allowed beside another's capture.

        For calls that have nothing to do with what others capture: they would be refused, and the
        capture be spoiled.
        """
        return nullcontext()

    @abstractmethod
    def wait_context(self) -> None:
        """Wait for all work of the current context, on streams of other libraries too."""

    @abstractmethod
    def make_event(self) -> Any:
        """Make an event that keeps its time. It counts as reached until it is recorded."""

    @abstractmethod
    def destroy_event(self, event: Any) -> None:
        """Destroy an event, even while work waits for it."""

    @abstractmethod
    def record(self, event: Any, stream: Any) -> None:
        """Let a stream reach an event after its queued work; the earlier record is forgotten."""

    @abstractmethod
    def wait_for(self, stream: Any, event: Any) -> None:
        """Make later work of `stream` wait for the work that `event` was recorded after."""

    @abstractmethod
    def is_reached(self, event: Any) -> bool:
        """Return whether an event is reached, without a wait. Raises: as `wait`."""

    @abstractmethod
    def wait_event(self, event: Any) -> None:
        """Wait until an event is reached. Raises: as `wait`."""

    @abstractmethod
    def seconds_between(self, start: Any, end: Any) -> float:
        """Wait for `end` and return the seconds of device time from `start` to it."""

    # -- programs

    @abstractmethod
    def load(self, image: bytes) -> Any:
        """Load a module. Raises: Refused, with the log of the driver's own compiler if it has one
        as the sentence."""

    @abstractmethod
    def unload(self, module: Any) -> None:
        """Unload a module, none of whose kernels is queued."""

    @abstractmethod
    def function_of(self, module: Any, name: str) -> Any:
        """Return a kernel of a module. Raises: Refused with NOT_FOUND."""

    @abstractmethod
    def kernel_facts(self, function: Any) -> KernelFacts:
        """Return the facts of a kernel."""

    def allow_shared(self, function: Any, nbytes: int) -> None:
        """Allow a kernel this much dynamic shared memory, which is more than any may have.

        Called only where static and dynamic memory exceed `StreamProgram.any_shared_nbytes`.
        """
        raise NotImplementedError

    @abstractmethod
    def launch_of(self, function: Any) -> Callable[..., Any]:
        """Return the function that launches a kernel, and gives its status without raising.

        It is called as `(function, gx, gy, gz, bx, by, bz, shared, stream, arguments, 0)`, where
        `arguments` is the address of an array of addresses, one of each argument's value. It has
        read them on return.
        """

    @abstractmethod
    def launch_refused(self, status: Any) -> Refused:
        """Return what a status of `launch_of`, other than success, means."""

    # -- graphs, only where `has_graphs`

    # False: two replays of one `instantiate` may run at once on two streams, and we order them.
    orders_replays = True
    has_graphs = False  # True: the functions here are there, and graphs are replayed by the driver

    def make_graph(self) -> Any:
        """Make an empty graph."""
        raise NotImplementedError

    def add_launch(
        self, graph: Any, after: list[Any], function: Any, geometry: tuple[int, ...], arguments: int
    ) -> Any:
        """Add a launch that runs after some nodes, and return its node.

        The geometry and the address of the arguments are those of `launch_of`; they are read before
        the function returns, here and in `set_launch`. Cost: nothing runs in any function here but
        `launch_graph`.
        """
        raise NotImplementedError

    def add_copy(
        self, graph: Any, after: list[Any], dest: Any, src: Any, nbytes: int, context: Any
    ) -> Any:
        """Add a copy between ranges that do not overlap, and return its node."""
        raise NotImplementedError

    def add_fill(
        self, graph: Any, after: list[Any], dest: int, pattern: bytes, count: int, context: Any
    ) -> Any:
        """Add a fill with `count` times a pattern of 1, 2 or 4 bytes, and return its node."""
        raise NotImplementedError

    def instantiate(self, graph: Any) -> Any:
        """Make a graph ready to be launched. Owns: the graph has to live as long as the result."""
        raise NotImplementedError

    def set_launch(
        self, ready: Any, node: Any, function: Any, geometry: tuple[int, ...], arguments: int
    ) -> None:
        """Let a node launch with other arguments.

        Order: later replays see it, those that are queued do not, here and in the next two.
        """
        raise NotImplementedError

    def set_copy(
        self, ready: Any, node: Any, dest: int, src: int, nbytes: int, context: Any
    ) -> None:
        """Let a node copy other bytes; neither these nor those before are of an array."""
        raise NotImplementedError

    def set_fill(
        self, ready: Any, node: Any, dest: int, pattern: bytes, count: int, context: Any
    ) -> None:
        """Let a node fill other bytes."""
        raise NotImplementedError

    def launch_graph(self, ready: Any, stream: Any) -> None:
        """Queue a replay. Order: as `orders_replays` says. Raises: as `wait`."""
        raise NotImplementedError

    def destroy_graph(self, graph: Any, ready: Any) -> None:
        """Destroy what `instantiate` has made, none of whose replays is queued, and its graph."""
        raise NotImplementedError
