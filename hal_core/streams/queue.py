"""Queues of a device with streams: each is a stream of the driver.

    first: launch f, record e          stream 1: f, e
    second: wait(e), launch g          stream 2: after e, g

The host takes no part in it. What the driver cannot wait for, an event that the host sets or one of
another family, holds a queue: its calls are kept, and go to the stream when the event has happened.
"""

from __future__ import annotations

import ctypes
import operator
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakSet, ref

from hal_core.buffer import Buffer, Lease
from hal_core.concurrency import fork_safe_lock
from hal_core.dtypes import uint8
from hal_core.errors import DeviceFault, HalError, InvalidArgument, InvalidState
from hal_core.profiling import events, record_queued
from hal_core.queue import Event, Failure, PolledEvent, Queue, WorkerQueue
from hal_core.queue.watcher import watch
from hal_core.streams.graph import StreamReplay
from hal_core.streams.staging import BLOCK_NBYTES, LARGE_IN_NBYTES, PinnedBlock

if TYPE_CHECKING:
    from hal_core.device.base import Compiled
    from hal_core.queue import Keep
    from hal_core.streams.device import StreamDevice
    from hal_core.streams.marks import Mark

_PER_THREAD = 2  # CU_STREAM_PER_THREAD, hipStreamPerThread
_MOST_UNMARKED = 32  # pieces of work, until the queue looks by itself which of them are done
_MOST_PENDING = 8  # marks, until it looks at each call
_MOST_STAGED = 16  # large pinned blocks in use, until a copy waits for earlier ones

# Packages whose streams tell their handle by an attribute; others have `__cuda_stream__`.
_HANDLES = {"torch": "cuda_stream", "cupy": "ptr", "pycuda": "handle"}


class StreamEvent(PolledEvent):
    """An event of the driver in the stream of a queue."""

    queue: StreamQueue
    mark: Mark | None = None  # once it is in the stream

    def _poll(self) -> bool:
        self.queue.look()
        return self._done

    def seconds_since(self, earlier: Event) -> float:
        """Return the seconds of device time that lie between another event and this one."""
        seconds = super().seconds_since(earlier)  # checks both
        before: Mark | None = getattr(earlier, "mark", None)
        if before is None or self.mark is None:
            return seconds
        device = self.queue.device
        between = device.api.seconds_between
        return device.call("seconds_since", between, before.handle, self.mark.handle)


class Stretch:
    """The work between two marks of a stream, and what it needs until then."""

    def __init__(self) -> None:
        self.mark: Mark | None = None  # its end; None while it grows
        self.names: list[str] = []  # "launch of saxpy"
        self.keep: list[Any] = []
        self.finish: list[Callable[[], object]] = []  # what the host does when it is done
        self.dests: list[memoryview] = []  # memory of the host that it writes to
        self.waited: list[Event] = []  # of other devices, whose failures are not this one's
        self.event: Callable[[], Event | None] = lambda: None  # at its end, a weak reference


class _Dropped(PolledEvent):
    """The end of the work of a queue that nobody refers to any more; then its stream goes."""

    def __init__(self, queue: StreamQueue, rest: list[Stretch]) -> None:
        super().__init__()
        self._device, self._stream, self._borrowed = queue.device, queue.stream, queue.borrowed
        self._keeps = queue.keeps  # or the owner of a borrowed stream would destroy it now
        self._lock = queue._lock
        self._rest = rest

    def _poll(self) -> bool:
        device = self._device
        with self._lock:
            if self._done or device.closed:
                return True
            with suppress(HalError):  # the context is lost, and its memory with it
                if not device.call("wait", device.api.is_done, self._stream):
                    return False
                for stretch in self._rest:
                    for finish in stretch.finish:
                        finish()
                if not self._borrowed:
                    device.call("close", device.api.destroy_stream, self._stream)
            self._rest.clear()
            self._keeps = None
            self._happen(None)
        return True


class StreamQueue(Queue):
    """A stream of the driver that waits for no other one by itself.

    Order: the first work that uses memory comes after the work that the device's own stream has
    then: the memory may be new, or be filled there.
    Owns: the stream, unless it is `borrowed`.
    """

    device: StreamDevice
    event_class = StreamEvent
    keeps: object = None  # of a borrowed stream: its owner

    def __init__(self, device: StreamDevice, stream: Any = None, name: str = "") -> None:
        super().__init__(device, name)
        self.borrowed = stream is not None
        self.stream = stream
        self._lock = fork_safe_lock()
        self._growing = Stretch()
        self._pending: deque[Stretch] = deque()
        self._known: WeakSet[Lease] = WeakSet()  # memory that this queue has used
        self._held: Event | None = None  # that the calls of `_later` wait for
        self._later: deque[Callable[[], object]] = deque()
        self._outside: deque[Callable[[], object]] = deque()  # calls to make without the lock
        self._failure: Failure | None = None  # of work: what comes behind it is dropped
        self._passed: Failure | None = None  # that the stream itself has come to
        if stream is None:
            try:
                with device.own("queue"):
                    self.stream = device.api.make_stream(independent=True)
            except DeviceFault as error:  # the device is lost, as every wait says
                self._failure = Failure("queue", self.name, error)

    # -- work

    def _add(
        self, name: str, work: Callable[[], object], keep: Keep,
        finish: Callable[[], object] | None = None, dest: memoryview | None = None,
    ) -> None:  # fmt: skip
        self._do(partial(self._put, name, work, keep, finish, dest))
        if len(self._pending) > _MOST_PENDING:
            self.look()

    def _do(self, call: Callable[[], object]) -> None:
        """Make a call that uses the stream: now, or after the event that the queue waits for."""
        with self._lock:
            if self.closed:  # by another thread, after the caller had looked
                self._check_open("queue work")
            if self._held is None:
                call()
            else:
                self._later.append(call)
        self._settle()

    def _settle(self) -> None:
        """Let events happen, whose callbacks may work with other queues: without the lock."""
        while self._outside:
            with suppress(IndexError):  # another thread was faster
                self._outside.popleft()()

    def _put(
        self, name: str, work: Callable[[], object], keep: Keep,
        finish: Callable[[], object] | None = None, dest: memoryview | None = None,
        waited: Event | None = None,
    ) -> None:  # fmt: skip
        """Queue work on the stream, unless work before it has failed."""
        if self._failure is not None:
            return
        try:
            self._follow_default(keep)
            self._measured(name, work, waited)
        except BaseException as error:
            self._growing.keep.append(keep)  # the driver may have a part of the work
            if not isinstance(error, HalError):
                raise
            self._refused(name, error)
            return
        growing = self._growing
        growing.names.append(name)
        growing.keep.append(keep)
        if finish is not None:
            growing.finish.append(finish)
        if dest is not None:
            growing.dests.append(dest)
        if len(growing.names) >= _MOST_UNMARKED:
            self._mark(None)

    def _measured(self, name: str, work: Callable[[], object], waited: Event | None) -> None:
        if not events.open_profiles:
            work()
            return
        of_thread = self.device.clock.of_thread
        of_thread.stream = self.stream
        try:
            record_queued(self, name, waited, work)
        finally:
            of_thread.stream = None

    def _follow_default(self, keep: Keep) -> None:
        """Let later work come after the work without `queue=` on memory that is new here."""
        devices = set()
        for one in keep:
            if one is None or (isinstance(one, Lease) and one not in self._known):
                devices.add(self.device)
                if one is not None:
                    self._known.add(one)
            elif isinstance(one, type(self.device)) and one is not self.device:
                devices.add(one)  # of the source of a copy
        for device in devices:
            mark = device.marks.record(device.stream)
            self.device.call("wait", self.device.api.wait_for, self.stream, mark.handle)

    def _launch(self, program: Any, geometry: Any, args: tuple[Any, ...], keep: Keep) -> None:
        launch = partial(program.launch_on, self.stream, geometry, args)
        self._add(f"launch of {program.name}", launch, keep)

    def _launch_timed(
        self, program: Any, geometry: Any, args: tuple[Any, ...], keep: Keep
    ) -> float:
        start = self.record()
        self._launch(program, geometry, args, keep)
        end = self.record()
        end.wait()
        return end.seconds_since(start)

    def _copyin(self, dest: int, src: memoryview, keep: Keep) -> None:
        self._do(partial(self._after_copyouts, src))
        self._add("copyin", partial(self._send, dest, src), keep)

    def _send(self, dest: int, src: memoryview) -> None:
        device, stream, copy_in = self.device, self.stream, self.device.api.copy_in
        if src.nbytes <= LARGE_IN_NBYTES:
            sent = bytes(src)
            self._growing.keep.append(sent)
            device.call("copyin", copy_in, dest, sent, len(sent), stream)
            return
        address = self._pinned_at(src)
        if address:
            device.call("copyin", copy_in, dest, address, src.nbytes, stream)
            return
        for start in range(0, src.nbytes, BLOCK_NBYTES):
            part = src[start : start + BLOCK_NBYTES]
            block = self._block(part.nbytes)
            block.part(part.nbytes)[:] = part
            device.call("copyin", copy_in, dest + start, block.address, part.nbytes, stream)
            self._mark(None)

    def _copyout(self, dest: memoryview, src: int, keep: Keep) -> None:
        if dest.nbytes <= BLOCK_NBYTES or self._pinned_at(dest):
            self._add_receive(dest, src, keep)
            return
        for start in range(0, dest.nbytes, BLOCK_NBYTES):
            self._add_receive(dest[start : start + BLOCK_NBYTES], src + start, keep)
            self._do(partial(self._mark, None))  # which frees the pinned memory of this part

    def _add_receive(self, dest: memoryview, src: int, keep: Keep) -> None:
        def receive() -> None:
            device, stream, copy_out = self.device, self.stream, self.device.api.copy_out
            address = self._pinned_at(dest)
            if address:
                device.call("copyout", copy_out, address, src, dest.nbytes, stream)
                return
            block = self._block(dest.nbytes)
            device.call("copyout", copy_out, block.address, src, dest.nbytes, stream)
            received.append(block.part(dest.nbytes))

        def finish() -> None:
            for part in received:
                dest[:] = part

        received: list[memoryview] = []
        self._add("copyout", receive, keep, finish, dest)

    def _block(self, nbytes: int) -> PinnedBlock:
        """Return pinned memory for the work that is being queued."""
        large = [one for one in self._pending if any(map(_is_large, one.keep))]
        if nbytes > LARGE_IN_NBYTES and len(large) >= _MOST_STAGED and large[0].mark is not None:
            self.device.call("wait", self.device.api.wait_event, large[0].mark.handle)
            self.look()
        block = self.device.pinned.take(nbytes)
        self._growing.keep.append(block)
        return block

    def _pinned_at(self, memory: memoryview) -> int:
        """Return the address of host memory that the driver reaches by itself, else 0."""
        if memory.readonly or memory.nbytes <= LARGE_IN_NBYTES:
            return 0
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        owner_of = self.device.api.owner_of
        both = (address, address + memory.nbytes - 1)
        return address if all(self.device.call("copy", owner_of, at)[1] for at in both) else 0

    def _after_copyouts(self, src: memoryview) -> None:
        """Hold the queue if it still has to write to host memory that it is to read next."""
        dests = [dest for work in [*self._pending, self._growing] for dest in work.dests]
        if not dests:
            return
        start, end = _range_of(src)
        ranges = map(_range_of, dests)
        if any(first < end and start < last for first, last in ranges):
            event = self._stamped(self.event_class())
            self._mark(event)
            self._hold(event)

    def _copy(self, dest: int, src: Any, nbytes: int, src_device: Compiled, keep: Keep) -> None:
        device, api = self.device, self.device.api
        if src_device is device:
            if abs(dest - src) < nbytes:  # the driver copies overlaps in no defined order
                between = Buffer(device, nbytes, uint8).allocate()
                keep = (*keep, between._share())
                self._copy(between._buf, src, nbytes, device, keep)
                src = between._buf
            copy = partial(api.copy, dest, src, nbytes)
            self._add("copy", lambda: device.call("copy_from", copy, self.stream), keep)
        elif isinstance(src_device, type(device)):
            contexts = device.context, src_device.context
            source: Any = src_device.allocator

            def copy_peer() -> None:
                with src_device.own("copy_from"):
                    source.share_with(device.index)
                with device.own("copy_from"):
                    api.copy_peer(dest, contexts[0], src, contexts[1], nbytes, self.stream)

            self._add("copy", copy_peer, keep)
        elif src_device.allocator.host_ordered:  # the host sees it in place
            self._copyin(dest, src_device.allocator._as_buffer(src, nbytes), keep)
        else:
            helper = WorkerQueue(
                device, lambda: device._synchronize(None), f"helper of {self.name}"
            )
            helper.wait(self.record())
            helper._copy(dest, src, nbytes, src_device, keep)
            self.wait(helper.record())

    def _fill(self, dest: int, nbytes: int, pattern: bytes, keep: Keep) -> None:
        allocator: Any = self.device.allocator
        fill = allocator.fill_on
        self._add("fill", lambda: fill(self.stream, dest, nbytes, pattern, self._send), keep)

    def _add_replay(self, plan: Any) -> None:
        native = None if events.open_profiles else plan.native()
        if isinstance(native, StreamReplay):
            replay = partial(native.launch, self.stream)
            with self._lock:  # a queue that is held takes the steps, with their arguments of now
                if self.closed:
                    self._check_open("replay")
                if is_free := self._held is None:
                    self._put("replay of a graph", replay, (None, *plan.keep()))
            self._settle()
            if is_free:
                return
        super()._add_replay(plan)

    # -- order

    def _record(self, event: Event) -> None:
        self._do(partial(self._mark, event))

    def _mark(self, event: Event | None) -> None:
        """End the stretch that grows, and let the event happen with it."""
        if self._failure is None:
            try:
                self._growing.mark = self.device.marks.record(self.stream)
            except HalError as error:
                self._refused("record", error)
        if self._failure is not None:
            if event is not None:
                self._outside.append(partial(event._happen, self._failure))
            return
        stretch, self._growing = self._growing, Stretch()
        self._pending.append(stretch)
        if isinstance(event, StreamEvent):
            stretch.event, event.mark = ref(event), stretch.mark
        elif event is not None:  # others hear of it, they do not ask
            stretch.event = ref(event)
            watch(lambda: self._happened(event), lambda: None)

    def _happened(self, event: Event) -> bool:
        self.look()
        return event._done

    def _wait(self, event: Event) -> None:
        event._is_over()  # asks the driver, which the calls below do not
        self._do(partial(self._wait_now, event))

    def _wait_now(self, event: Event) -> None:
        mark: Mark | None = getattr(event, "mark", None)
        if event._done:
            self._failure = self._failure or event._failure
            if not events.open_profiles:  # which show the waits that were short, too
                return
        if isinstance(event, StreamEvent) and mark and event.queue.device.api is self.device.api:
            wait = partial(self.device.api.wait_for, self.stream, mark.handle)
            self._put("wait", lambda: self.device.call("wait", wait), (), waited=event)
            if event.queue.device is not self.device:
                self._growing.waited.append(event)
        elif self._failure is None and not event._done:
            self._hold(event)

    def _hold(self, event: Event) -> None:
        """Keep all later calls until the event has happened."""
        self._held = event
        self._outside.append(lambda: event._when_done(self._resume))

    def _resume(self) -> None:
        with self._lock:
            event, self._held = self._held, None
            if event is not None:
                self._failure = self._failure or event._failure
            while self._later and self._held is None:
                self._later.popleft()()
        self._settle()

    def look(self) -> None:
        """Let the events of work that is done happen, and release what it needed."""
        if self.forked:
            return
        with suppress(IndexError):  # nothing is pending
            for earlier in self._pending[0].waited:
                earlier._is_over()  # looks at its own queue, so not under our lock
        over = []
        with self._lock:
            while self._pending and self._is_over(self._pending[0]):
                over.append(self._pending.popleft())
                failure = self._passed
                event = over[-1].event()
                if event is not None:
                    self._outside.append(partial(event._happen, failure))
        self._settle()

    def _is_over(self, stretch: Stretch) -> bool:
        device, mark = self.device, stretch.mark
        if self._passed is not None or mark is None:
            return True
        try:
            if not device.call("wait", device.api.is_reached, mark.handle):
                return False
        except HalError as error:
            self._fail("wait", error)
            self._passed = self._failure
            return True
        for finish in stretch.finish:
            finish()
        for event in stretch.waited:
            self._passed = self._failure = self._failure or event._failure
        return True

    def _refused(self, name: str, error: HalError) -> None:
        """Take what the driver says of a piece of work."""
        self._fail(name, error)

    def _fail(self, name: str, error: HalError) -> None:
        """Note the failure; of a fault the first launch that is not known to be done is guilty."""
        lost = isinstance(error, DeviceFault)
        works = [*self._pending, self._growing] if lost else []
        names = [one for work in works for one in work.names]
        launches = [one for one in names if one.startswith(("launch", "replay"))]
        # With tracebacks it would keep frames, and so be in a cycle with the memory of the work.
        bare = error.with_traceback(None)
        bare.__context__ = None
        self._failure = self._failure or Failure([*launches, name][0], self.name, bare)

    # -- for other libraries

    def __cuda_stream__(self) -> tuple[int, int]:
        """Return the protocol's version, and the handle of the stream.

        Raises: InvalidState while work waits for an event that is in no stream.
        """
        self._check_open("__cuda_stream__")
        with self._lock:
            if self._held is not None:
                problem = f"{self.name} waits for {self._held!r}, which is in no stream"
                raise InvalidState("__cuda_stream__", problem, fix="Wait for that event first.")
            return 0, int(self.stream)

    def precede(self, stream: Any) -> bool:
        """Let later work of any stream come after ours; False if the host has to wait for it."""
        with self._lock:
            if self._held is not None or self._failure is not None:
                return False
            if not (self._growing.names or self._pending):
                return True
            mark = self.device.marks.record(self.stream)
            self.device.call("wait", self.device.api.wait_for, stream, mark.handle)
        return True

    # -- end

    def _close(self) -> None:
        device = self.device
        with self._lock:
            if self._held is not None:  # it can never go on
                error = InvalidState("close", f"{self.name} was closed")
                self._failure = self._failure or Failure("wait", self.name, error)
            if self.stream is not None:
                with suppress(DeviceFault), device.own("close"), ExitStack() as steps:
                    if not self.borrowed:
                        steps.callback(device.api.destroy_stream, self.stream)
                    device.api.wait(self.stream)
        self.look()

    def __del__(self) -> None:
        # No call of the driver in a finalizer: the device makes them when it is asked again.
        if getattr(self, "closed", True) or self.forked or self.device.closed:
            return
        rest = [*self._pending, self._growing]
        if self.stream is not None and (not self.borrowed or any(one.names for one in rest)):
            self.device._ends.append(_Dropped(self, rest))


class DefaultStreamQueue(StreamQueue):
    """The stream of calls without `queue=`.

    Its `wait` for an event that is in no stream waits on the calling thread, as those calls cannot
    be held. What the driver refuses is raised at once.
    """

    def __init__(self, device: StreamDevice) -> None:
        super().__init__(device, device.stream, f"the default queue of {device.name}")

    def _follow_default(self, keep: Keep) -> None:
        pass

    def _copyout(self, dest: memoryview, src: int, keep: Keep) -> None:
        # As without `queue=`: the device's `synchronize` and `close` wait for its stream alone.
        self.device.allocator._copyout(dest, src)

    def _wait(self, event: Event) -> None:
        api = getattr(event.queue and event.queue.device, "api", None)
        if getattr(event, "mark", None) is None or api is not self.device.api:
            event.wait()
        super()._wait(event)

    def _refused(self, name: str, error: HalError) -> None:
        raise error

    def close(self) -> None:
        """Do nothing: the default queue lives as long as its device."""

    def _stop(self) -> None:
        self.closed = True


def wrap(device: StreamDevice, obj: Any) -> StreamQueue | None:
    """Return a queue over another library's stream, None for an object that is none.

    A stream is an object with `__cuda_stream__`, one of PyTorch, CuPy or PyCUDA, or its handle.
    Raises: InvalidArgument for what the driver does not know.
    """
    handle = obj if type(obj) is int else None
    protocol = getattr(obj, "__cuda_stream__", None)
    if protocol is not None:
        handle = operator.index((protocol() if callable(protocol) else protocol)[1])
    elif handle is None:
        package = type(obj).__module__.partition(".")[0]
        handle = getattr(obj, _HANDLES.get(package, ""), None)
    if handle is None:
        return None
    if handle == _PER_THREAD:
        problem = "the per-thread default stream is another one in each thread"
        fix = "Wrap a stream of its own."
        raise InvalidArgument("wrap", problem, got=handle, device=device.name, fix=fix)
    with device.own("wrap"):
        device.api.is_done(handle)
    made = StreamQueue(device, handle, f"a borrowed queue of {device.name}")
    made.keeps = obj
    return made


def _is_large(one: object) -> bool:
    return isinstance(one, PinnedBlock) and one.nbytes > LARGE_IN_NBYTES


def _range_of(memory: memoryview) -> tuple[int, int]:
    """Return the addresses of host memory."""
    import numpy as np

    start = np.frombuffer(memory, np.uint8).ctypes.data if memory.nbytes else 0
    return start, start + memory.nbytes
