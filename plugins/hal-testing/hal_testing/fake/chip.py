"""A simulated accelerator, in the role of a vendor's library. Your driver replaces this file.

Calls return a status, like a C library's, or a status and a result. Memory is known by handles that
mean nothing to the host. Work is queued, and done in order at the next wait or read, so failures
come late, as on a real device. chip_kernels.py runs the kernels.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from hal_core.errors import HalError
from hal_testing.fake.chip_kernels import ChipKernel

STATUS = (
    "OK", "OUT_OF_MEMORY", "BAD_HANDLE", "BAD_RANGE", "BAD_BINARY", "FAULT", "LOST", "BUSY",
    "TIMEOUT",
)  # fmt: skip
OK, OUT_OF_MEMORY, BAD_HANDLE, BAD_RANGE, BAD_BINARY, FAULT, LOST, BUSY, TIMEOUT = range(9)

_MAX_QUEUED = 64
_MAX_OPEN = 16  # of one process, so that a backend that never closes them fails

opened: list[Chip] = []  # and not closed yet


class Block(NamedTuple):
    """A place in device memory."""

    handle: int
    offset: int


class Work(NamedTuple):
    """An entry of the queue."""

    call: str  # "run", "write", "copy" or "free"
    name: str  # of the kernel; else the call
    do: Callable[[], int]


def open_chip(memory_nbytes: int) -> tuple[int, Chip | None]:
    """Open a device, which is in use until its `close`."""
    if len(opened) >= _MAX_OPEN:
        return BUSY, None
    opened.append(Chip(memory_nbytes))
    return OK, opened[-1]


class Chip:
    """One device. `fail`, `slow` and `lost` make it misbehave, for tests."""

    def __init__(self, memory_nbytes: int) -> None:
        self.memory_nbytes = memory_nbytes
        self.lost = False
        self.slow: dict[str, float] = {}  # call, or "run" -> extra seconds that it takes
        self.calls: dict[str, int] = {}  # call -> how often it was made
        self._failing: dict[str, dict[int, int]] = {}  # call -> {its number: status}
        self._memory: dict[int, bytearray] = {}
        self._programs: dict[int, ChipKernel] = {}
        self._freed: set[int] = set()  # the caller may not use them; queued work still may
        self._handles = itertools.count(0x1000, 0x10)
        self._queue: deque[Work] = deque()
        self._late = OK, ""  # the first failure of queued work, until a wait returns it
        self._lock = threading.RLock()
        self._latest = threading.local()

    def close(self) -> int:
        """Close the device. Programs have to be unloaded before; memory may be freed later."""
        with self._lock:
            if self._programs and not self.lost:
                return BUSY
            opened.remove(self)
            return OK

    def fail(self, call: str, number: int = 1, status: int = FAULT) -> None:
        """Make the `number`-th call of this name from now on return `status`.

        "run" is the execution of a kernel in the queue.
        """
        if call != "run" and call not in Chip.__dict__:
            raise ValueError(f"the chip has no call {call!r}")
        self._failing.setdefault(call, {})[self.calls.get(call, 0) + number] = status

    def _begin(self, call: str) -> int:
        """Count a call, and return the status that `fail` has set for it."""
        number = self.calls[call] = self.calls.get(call, 0) + 1
        self._latest.text = ""
        return LOST if self.lost else self._failing.get(call, {}).pop(number, OK)

    def _linger(self, call: str) -> None:
        time.sleep(self.slow.get(call, 0))

    @property
    def last_error(self) -> str:
        """The text that explains the status of this thread's latest call."""
        return getattr(self._latest, "text", "")

    # -- memory

    @property
    def allocated_nbytes(self) -> int:
        return sum(map(len, list(self._memory.values())))

    def alloc(self, nbytes: int) -> tuple[int, Block]:
        with self._lock:
            status = self._begin("alloc")
            self._linger("alloc")
            if status == OK and self.allocated_nbytes + nbytes > self.memory_nbytes:
                self._drain()  # blocks are freed after the work that may use them
                if self.allocated_nbytes + nbytes > self.memory_nbytes:
                    status = OUT_OF_MEMORY
            block = Block(next(self._handles), 0)
            if status == OK:
                # Fresh memory is not zero on a real device either.
                self._memory[block.handle] = bytearray(b"\xaa" * nbytes)
            return status, block

    def free(self, block: Block) -> int:
        """Free a block after all work that is queued."""
        with self._lock:
            status = self._begin("free") or self._check(block, 0)
            if status == OK:
                self._freed.add(block.handle)
                self._enqueue("free", "free", lambda: self._release(block.handle))
            return status

    def _release(self, handle: int) -> int:
        del self._memory[handle]
        self._freed.discard(handle)
        return OK

    def write(self, dest: Block, data: bytes) -> int:
        with self._lock:
            status = self._begin("write") or self._check(dest, len(data))
            if status == OK:
                self._enqueue("write", "write", lambda: self._put(dest, data))
            return status

    def copy(self, dest: Block, src: Block, nbytes: int) -> int:
        with self._lock:
            status = self._begin("copy")
            status = status or self._check(dest, nbytes) or self._check(src, nbytes)
            if status == OK:
                work = lambda: self._put(dest, bytes(self._at(src, nbytes)))  # noqa: E731
                self._enqueue("copy", "copy", work)
            return status

    def read(self, dest: memoryview, src: Block) -> int:
        """Wait for all queued work, then read."""
        with self._lock:
            status = self._begin("read") or self._check(src, dest.nbytes) or self._drain()
            if status == OK:
                self._linger("read")
                dest[:] = self._at(src, dest.nbytes)
            return status

    def map(self, block: Block, nbytes: int) -> tuple[int, memoryview]:
        """Return the memory itself, without waiting for queued work."""
        with self._lock:
            status = self._begin("map") or self._check(block, nbytes)
            return status, memoryview(b"") if status else self._at(block, nbytes)

    def _check(self, block: Block, nbytes: int) -> int:
        memory = self._memory.get(block.handle)
        if memory is None or block.handle in self._freed:
            return BAD_HANDLE
        return OK if block.offset + nbytes <= len(memory) else BAD_RANGE

    def _at(self, block: Block, nbytes: int | None = None) -> memoryview:
        end = None if nbytes is None else block.offset + nbytes
        return memoryview(self._memory[block.handle])[block.offset : end]

    def _put(self, dest: Block, data: bytes) -> int:
        self._at(dest, len(data))[:] = data
        return OK

    # -- kernels

    def load(self, image: bytes, entry: str) -> tuple[int, int]:
        """Load one kernel of a binary and return its handle."""
        with self._lock:
            status, handle = self._begin("load"), next(self._handles)
            # A driver has to check what it loads; kernels come from files too.
            try:
                kernel = ChipKernel(image, entry)
            except (HalError, ValueError):
                return status or BAD_BINARY, 0
            if status == OK:
                self._programs[handle] = kernel
            return status, handle

    def unload(self, program: int) -> int:
        """Unload a program. Launches of it that are queued still run."""
        with self._lock:
            status = self._begin("unload")
            if status == OK and self._programs.pop(program, None) is None:
                status = BAD_HANDLE
            return status

    def launch(
        self, program: int, args: tuple[Any, ...], grid: Any, block: Any, done: Any = None
    ) -> int:
        """Queue a kernel; `args`: a `Block`, None or a number for each parameter.

        `done(start_ns, end_ns)` is called after the kernel has run.
        """
        with self._lock:
            status, kernel = self._begin("launch"), self._programs.get(program)
            if kernel is None:
                return status or BAD_HANDLE
            if status == OK:
                work = lambda: self._interpret(kernel, args, grid, block, done)  # noqa: E731
                self._enqueue("run", kernel.name, work)
            return status

    def _interpret(
        self, kernel: ChipKernel, args: tuple[Any, ...], grid: Any, block: Any, done: Any
    ) -> int:
        status = self._begin("run")
        if status:
            return status
        start = time.perf_counter_ns()
        # A kernel may reach to the end of the block, as on a device.
        given = [self._at(arg) if isinstance(arg, Block) else arg for arg in args]
        kernel.run(given, grid, block)
        if done is not None:
            done(start, time.perf_counter_ns())
        return OK

    # -- the queue

    def _enqueue(self, call: str, name: str, work: Callable[[], int]) -> None:
        self._queue.append(Work(call, name, work))
        if len(self._queue) > _MAX_QUEUED:
            self._drain(tell=False)  # a full queue makes the caller wait, as real ones do

    def _drain(self, timeout: float | None = None, tell: bool = True) -> int:
        """Do the queued work. After a failure the rest is dropped, except frees.

        With `tell`, the failure is returned, once; otherwise it is left for the next wait.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while self._queue and not self._late[0]:
            work = self._queue.popleft()
            self._linger(work.call)
            try:
                status, why = work.do(), ""
            except HalError as error:
                status, why = FAULT, str(error)
            if status:
                self._late = status, f"{work.name}: {why or STATUS[status]}"
            elif deadline is not None and time.monotonic() > deadline:
                return TIMEOUT
        status, text = self._late
        if status and tell:
            self._latest.text = text
            self._late = OK, ""
            # The work after a failure is lost, its memory is not.
            self._queue = deque(work for work in self._queue if work.call == "free")
        return status

    def wait(self, timeout: float | None = None) -> int:
        """Wait for all queued work, at most `timeout` seconds. Work that has begun is finished."""
        with self._lock:
            self._linger("wait")
            return self._begin("wait") or self._drain(timeout)
