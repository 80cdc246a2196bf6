"""Queues of a device with streams: each is a stream of the driver.

    first: launch f, record e          stream 1: f, e
    second: wait(e), launch g          stream 2: after e, g

The host takes no part in it. What the driver cannot wait for, an event that the host sets or one of
another family, holds a queue: its calls are kept, and go to the stream when the event has happened.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from threading import TIMEOUT_MAX, get_ident
from time import monotonic
from typing import TYPE_CHECKING, Any
from weakref import ref

from hal_core.concurrency import (
    Late,
    Servers,
    fork_safe_lock,
    make_calls,
    poll,
    run_unless_busy,
    start_server,
)
from hal_core.errors import DeviceFault, HalError, InvalidState
from hal_core.profiling import events
from hal_core.profiling.instrumentation import record_queued
from hal_core.queue import Event, Failure, KnownMemory, Queue, copy_by_host
from hal_core.queue.watcher import watch
from hal_streams.driver import CAPTURED_EVENT, CAPTURING
from hal_streams.graph import StreamReplay
from hal_streams.images import Array, is_direct, linear
from hal_streams.staging import BLOCK_NBYTES, LARGE_NBYTES, PinnedBlock
from hal_streams.stretch import Dropped, StreamEvent, Stretch, nothing

if TYPE_CHECKING:
    import numpy as np

    from hal_core.device.base import Compiled
    from hal_core.queue import Keep
    from hal_streams.device import StreamDevice
    from hal_streams.marks import Mark
else:
    np = Late("numpy")

_LEGACY = 0, 1  # handles of the legacy default stream, another one in each context
_MOST_UNMARKED = 32  # pieces of work, until the queue looks by itself which of them are done
_MOST_PENDING = 8  # marks, until it looks at each call


class StreamQueue(Queue):
    """A stream of the driver that waits for no other one by itself.

    Order: the first work that uses memory comes after the work that the device's own stream has
    then: the memory may be new, or be filled there.
    Owns: the stream, unless it is `borrowed`.
    """

    device: StreamDevice
    event_class = StreamEvent
    keeps: object = None  # of a borrowed stream: its owner
    most_staged = 16  # large pinned blocks in use, until a copy waits for earlier ones

    def __init__(self, device: StreamDevice, stream: Any = None, name: str = "") -> None:
        super().__init__(device, name)
        self.borrowed = stream is not None
        self.is_legacy = self.borrowed and stream in _LEGACY
        self.stream = stream
        self._lock = fork_safe_lock()
        self._growing = Stretch()
        self._pending: deque[Stretch] = deque()
        self._known = KnownMemory()
        self._held: Event | None = None  # that the calls of `_later` wait for
        self._later: deque[Callable[[], object]] = deque()
        self._servers: Servers = {}  # the thread that makes these calls
        self._outside: deque[Callable[[], object]] = deque()  # calls to make without the lock
        self._last: Callable[[], Event | None] = nothing  # behind all work, a weak reference
        self._asked: Event | None = None  # that `synchronize` waits for
        self._is_shared = self.borrowed  # others may put work on the stream
        # Threads that look now. An event that a queue behind ours waits for may have been taken by
        # another thread and not have happened yet; to look for it would lead back here.
        self._looking: set[int] = set()
        self._failure: Failure | None = None  # of work: what comes behind it is dropped
        self._passed: Failure | None = None  # that the stream itself has come to
        self._unseen: HalError | None = None  # why nobody knows how far the stream is
        if stream is None:
            try:
                with device.own("queue"):
                    self.stream = device.api.make_stream(independent=True)
                    device.streams.append(self.stream)
            except DeviceFault as error:  # the device is lost, as every wait says
                self._failure = Failure("queue", self.name, error)

    # -- work

    def _add(self, name: str, work: Callable[[], object], keep: Keep, nbytes: int = 0) -> None:
        self._do(partial(self._put, name, work, keep, nbytes))
        if len(self._pending) > _MOST_PENDING:
            self.look()

    def _do(
        self, call: Callable[[], object], last: Callable[[], Event | None] | None = None
    ) -> None:
        """Make a call that uses the stream: now, or after the event that the queue waits for.

        `last` refers to the event that the call puts behind all work.
        """
        with self._lock:
            if self.closed:  # by another thread, after the caller had looked
                self._check_open("queue work")
            self._last = last or nothing
            if self._held is None and not self._later:
                call()
            else:
                self._later.append(call)
        self._settle()
        self._go_on()

    def _go_on(self) -> None:
        """Have the calls made that were kept, up to one that waits.

        In a thread of its own, which hears no Ctrl-C: in the middle of a call nobody could tell
        whether the driver has it. And large copies wait for pinned memory there, which would keep
        whoever lets the event happen from other queues.
        """
        if not self._later or self.forked:
            return
        held = self._held
        if held is not None:
            if held._done:  # Ctrl-C came before we were told
                self._resume(held)
            return
        if self._servers:  # it has the lock in a call, which may take long
            return
        try:
            start_server(self._servers, f"hal {self.name}", self._make_kept_calls, self._has_calls)
        except InvalidState:  # at the end of the interpreter there are no new threads
            self._make_kept_calls()

    def _has_calls(self) -> bool:
        return bool(self._later) and self._held is None

    def _make_kept_calls(self) -> None:
        while True:
            self._make_room()
            with self._lock:
                if not self._has_calls():
                    return
                try:
                    self._later[0]()
                except Exception as error:  # for which there is no caller
                    self._fail("queued work", error)
                self._later.popleft()
            self._settle()

    def _catch_up(self) -> None:
        """Wait until the calls that were kept are made, up to one that waits."""
        self._go_on()
        if not self._is_in_call():
            poll(lambda: not self._has_calls(), TIMEOUT_MAX)

    def _is_in_call(self) -> bool:
        mine = self._lock._is_owned() or get_ident() in self._looking  # type: ignore[attr-defined]
        return mine or (bool(self._servers) and super()._is_in_call())

    def _settle(self) -> None:
        """Let events happen, whose callbacks may work with other queues: without the lock."""
        make_calls(self._outside)

    def _put(
        self, name: str, work: Callable[[], object], keep: Keep, nbytes: int = 0,
        waited: Event | None = None,
    ) -> None:  # fmt: skip
        """Queue work on the stream, unless work before it has failed."""
        if self._failure is not None:
            return
        growing = self._growing
        growing.keep.append(keep)  # first, as after Ctrl-C the driver may have the work
        growing.names.append(name)
        try:
            self._follow_default(keep)
            if self.is_legacy:
                self.device.own(name)
            self._measured(name, work, waited, nbytes)
        except HalError as error:
            self._refused(name, error)
            return
        if len(growing.names) >= _MOST_UNMARKED:
            self._mark(None)

    def _measured(
        self, name: str, work: Callable[[], object], waited: Event | None, nbytes: int
    ) -> None:
        if not events.open_profiles:
            work()
            return
        of_thread = self.device.clock.of_thread
        of_thread.stream = self.stream
        try:
            record_queued(self, name, waited, work, nbytes)
        finally:
            of_thread.stream = None

    def _follow_default(self, keep: Keep) -> None:
        """Let later work come after the work without `queue=` on memory that is new here."""
        ours = self.device
        devices = [ours] if (is_new := self._known.lacks(keep)) else []
        # Of the source of a copy.
        devices += [one for one in keep if isinstance(one, type(ours)) and one is not ours]
        marks = [one.marks.record(one.stream) for one in devices if one.stream is not self.stream]
        if marks and self.is_legacy:  # which is another stream in the context of another device
            self.device.own("wait")
        for mark in marks:
            self.device.call("wait", self.device.api.wait_for, self.stream, mark.handle)
        if is_new:
            self._known.add(keep)

    def _launch(self, program: Any, geometry: Any, args: tuple[Any, ...], keep: Keep) -> None:
        launch = program.launch_on(waits := bool(self._held is not None or self._later))
        keep = (*keep, launch) if waits else keep
        self._add(f"launch of {program.name}", partial(launch, self.stream, geometry, *args), keep)

    def _launch_timed(
        self, program: Any, geometry: Any, args: tuple[Any, ...], keep: Keep
    ) -> float:
        start = self.record()
        self._launch(program, geometry, args, keep)
        end = self.record()
        end.wait()
        return end.seconds_since(start)

    def _copyin(self, dest: Any, src: memoryview, keep: Keep) -> None:
        if isinstance(dest, Array):
            copyin = partial(self._copyin, src=src)
            return self._write_array(dest, src.nbytes, copyin, keep)
        device, address = self.device, self._known_at(src)
        if address:
            copy = partial(device.api.copy_in, dest, address, src.nbytes, self.stream)
            return self._add("copyin", partial(device.call, "copyin", copy), keep, src.nbytes)
        self._do(partial(self._after_copyouts, src))
        for start, part in self._parts(src):
            self._add("copyin", partial(self._send, dest + start, part), keep, part.nbytes)
        return None

    def _write_array(
        self, dest: Array, nbytes: int, write: Callable[..., object], keep: Keep
    ) -> None:
        """Copy to an array from a range of memory that `write` fills."""
        between = linear(self.device, nbytes)
        keep = (*keep, between._share())
        write(between._buf, keep=keep)
        self._copy(dest, between._buf, nbytes, self.device, keep)

    def _send(self, dest: int, src: memoryview) -> None:
        """Copy from pageable memory, at most a block of it."""
        device, nbytes = self.device, src.nbytes
        sent: Any
        if nbytes <= LARGE_NBYTES:
            sent = bytes(src)
            self._growing.keep.append(sent)
        else:
            block = self._block(nbytes)
            block.part(nbytes)[:] = src
            sent = block.address
        device.call("copyin", device.api.copy_in, dest, sent, nbytes, self.stream)

    def _copyout(self, dest: memoryview, src: Any, keep: Keep) -> None:
        if isinstance(src, Array):
            between = linear(self.device, dest.nbytes)
            keep = (*keep, between._share())
            self._copy(between._buf, src, dest.nbytes, self.device, keep)
            src = between._buf
        device, address = self.device, self._known_at(dest)
        if address:
            copy = partial(device.api.copy_out, address, src, dest.nbytes, self.stream)
            self._add("copyout", partial(device.call, "copyout", copy), keep, dest.nbytes)
            return
        for start, part in self._parts(dest):
            receive = partial(self._receive, part, src + start)
            self._add("copyout", receive, keep, part.nbytes)

    def _receive(self, dest: memoryview, src: int) -> None:
        """Copy to pageable memory, at most a block of it; the host does the last step."""
        device, nbytes = self.device, dest.nbytes
        block = self._block(nbytes)
        device.call("copyout", device.api.copy_out, block.address, src, nbytes, self.stream)
        last = partial(operator.setitem, dest, slice(None), block.part(nbytes))
        self._growing.finish.append(last)
        self._growing.dests.append(dest)

    def _parts(self, memory: memoryview) -> Iterator[tuple[int, memoryview]]:
        """Yield offsets and parts of pageable memory, each with pinned memory for its copy."""
        for start in range(0, memory.nbytes, BLOCK_NBYTES):
            if start:
                self._do(partial(self._mark, None))  # which frees that of the part before
            self._make_room()
            yield start, memory[start : start + BLOCK_NBYTES]

    def _make_room(self) -> None:
        """Wait while many large pinned blocks are in use. The caller does not hold the lock."""
        marks = [stretch.mark for stretch in list(self._pending) if stretch.is_large]
        if len(marks) >= self.most_staged and marks[0] is not None:
            with suppress(HalError), self.device.api.relaxed():  # `look` meets the same failure
                self.device.call("wait", self.device.api.wait_event, marks[0].handle)
            self.look()

    def _block(self, nbytes: int) -> PinnedBlock:
        """Return pinned memory for the work that is being queued."""
        block = self.device.pinned.take(nbytes)
        growing = self._growing
        growing.keep.append(block)
        growing.is_large |= nbytes > LARGE_NBYTES
        return block

    def _known_at(self, memory: memoryview) -> int:
        """Return the address of host memory that the driver knows, else 0.

        What it knows it copies in the stream's order, as other work there may use the memory too.
        """
        start, end = _range_of(memory)
        owner_of = self.device.api.owner_of
        with suppress(HalError):  # such as a fault: the copy meets the same one
            if all(self.device.call("copy", owner_of, at)[0] >= 0 for at in (start, end - 1)):
                return start
        return 0

    def _after_copyouts(self, src: memoryview) -> None:
        """Hold the queue if host memory that it is to read next is still to be written."""
        dests = [dest for work in [*self._pending, self._growing] for dest in work.dests]
        if not dests:
            return
        start, end = _range_of(src)
        ranges = map(_range_of, dests)
        if any(first < end and start < last for first, last in ranges):
            event = self._stamped(self.event_class())
            self._mark(event)
            self._hold(event)

    def _copy(self, dest: Any, src: Any, nbytes: int, src_device: Compiled, keep: Keep) -> None:
        device, api = self.device, self.device.api
        if src_device is device:
            if not is_direct(dest, src, nbytes):  # overlaps are copied in no defined order
                between = linear(device, nbytes)
                keep = (*keep, between._share())
                self._copy(between._buf, src, nbytes, device, keep)
                src = between._buf
            copy = partial(api.copy, dest, src, nbytes)
            self._add("copy", lambda: device.call("copy_from", copy, self.stream), keep, nbytes)
        elif isinstance(src_device, type(device)) and Array not in (type(dest), type(src)):
            contexts = device.context, src_device.context
            source: Any = src_device.allocator

            def copy_peer() -> None:
                with src_device.own("copy_from"):
                    source.share_with(device.index)
                with device.own("copy_from"):
                    api.copy_peer(dest, contexts[0], src, contexts[1], nbytes, self.stream)

            self._add("copy", copy_peer, keep, nbytes)
        else:
            finish = partial(device._synchronize, None)
            copy_by_host(self, dest, src, nbytes, src_device, keep, finish)

    def _fill(self, dest: Any, nbytes: int, pattern: bytes, keep: Keep) -> None:
        if isinstance(dest, Array):
            return self._write_array(
                dest, nbytes, partial(self._fill, nbytes=nbytes, pattern=pattern), keep
            )
        allocator: Any = self.device.allocator

        def fill() -> None:
            allocator.fill_on(self.stream, dest, nbytes, pattern, self._send)

        return self._add("fill", fill, keep, nbytes)

    def _add_replay(self, plan: Any) -> None:
        native = plan.native()
        if isinstance(native, StreamReplay):
            replay = partial(native.launch, self.stream)
            with self._lock:  # a queue that is held takes the steps, with their arguments of now
                if self.closed:
                    self._check_open("replay")
                self._last = nothing
                if is_free := self._held is None and not self._later:
                    self._put("replay of a graph", replay, (None, *plan.keep()))
            self._settle()
            if is_free:
                return
        super()._add_replay(plan)

    # -- order

    def _record(self, event: Event) -> None:
        self._do(partial(self._mark, event), ref(event))

    def _record_end(self) -> Event:
        if self._is_shared:
            return super()._record_end()
        with self._lock:  # another thread may move work from one of them to the next
            event = self._last()
            has_work = self._held or self._later or self._pending or self._growing.names
        if event is None and has_work:
            event = super()._record_end()
        elif event is None and self._failure is None:  # there is nothing to wait for
            return _HAPPENED
        elif event is None:
            event = self._stamped(self.event_class())
            event._happen(self._failure)
        if not event._done:
            self._asked = event  # which the next call finds, if it comes before
        return event

    def _synchronize(self, seconds: float) -> bool:
        deadline = monotonic() + seconds
        if not super()._synchronize(seconds):
            return False
        # Work before the one that failed may be on the stream still.
        return self._failure is None or poll(self._is_idle, deadline - monotonic())

    def _wait_rest(self, seconds: float) -> bool:
        return poll(lambda: self.stream is None or not self._has_work(), seconds)

    def _is_idle(self) -> bool:
        try:
            with self._lock:  # another thread may close the queue
                if self.stream is None:
                    return True
                if self.is_legacy:
                    self.device.own("wait")
                return self.device.call("wait", self.device.api.is_done, self.stream)
        except HalError as error:
            return error.got not in CAPTURING

    def _has_work(self) -> bool:
        self.look()
        if self._failure is not None:  # what comes behind it is dropped
            return not self._is_idle()
        if self._held or self._later:
            return True
        with self._lock:
            if self._growing.keep:
                self._mark(None)
        return bool(self._later or self._pending)

    def _mark(self, event: Event | None) -> None:
        """Record the end of the work so far in the stream; the event happens there."""
        if self._failure is None:
            try:
                if self.is_legacy:
                    self.device.own("record")
                self._growing.mark = self.device.marks.record(self.stream)
            except HalError as error:
                self._refused("record", error)
        if self._failure is not None:
            if event is not None:
                self._outside.append(partial(event._happen, self._failure))
            return
        stretch, self._growing = self._growing, Stretch()
        self._pending.append(stretch)
        if event is None:
            return
        stretch.event, event._mark = ref(event), stretch.mark
        if isinstance(event, StreamEvent):
            event.writes = [dest for one in self._pending for dest in one.dests]
        else:  # an event of another class does not poll: the watcher tells it
            watch(lambda: self._happened(event), lambda: None)

    def _happened(self, event: Event) -> bool:
        self.look()
        return event._done

    def _wait(self, event: Event) -> None:
        event._is_over()  # asks the driver, which the calls below do not
        self._do(partial(self._wait_now, event))

    def _wait_now(self, event: Event) -> None:
        mark: Mark | None = event._mark
        if event._done:
            self._failure = self._failure or event._failure
            if not events.open_profiles:  # which show the waits that were short, too
                return
        device = self.device if event.queue is None else event.queue.device
        # The events of a closed device are destroyed.
        if (
            isinstance(event, StreamEvent)
            and mark
            and not device.closed
            and event.queue.device.api is self.device.api
        ):
            wait = partial(self.device.api.wait_for, self.stream, mark.handle)
            self._put("wait", lambda: self.device.call("wait", wait), (), waited=event)
            if event.writes or event.queue.device is not self.device:
                self._growing.waited.append(event)
                self._growing.dests += event.writes
        elif self._failure is None and not event._done:
            self._hold(event)

    def _seconds_between(self, earlier: Event, later: Event) -> float:
        device, handles = self.device, (earlier._mark.handle, later._mark.handle)
        device._check_open("seconds_since")
        return float(device.call("seconds_since", device.api.seconds_between, *handles))

    def _hold(self, event: Event) -> None:
        """Keep all later calls until the event has happened."""
        self._outside.append(partial(event._when_done, partial(self._resume, event)))
        self._held = event

    def _resume(self, event: Event) -> None:
        if self.forked:
            return
        with self._lock:
            if self._held is event:
                self._failure = self._failure or event._failure
                self._held = None
        self._go_on()

    def look(self) -> None:
        """Let the events of work that is done happen, and release what it needed. Never waits."""
        thread = get_ident()
        if self.forked or thread in self._looking:
            return
        over: list[Stretch] = []  # released without the lock
        try:
            self._looking.add(thread)
            for stretch in list(self._pending):
                if not stretch.comes_after():  # looks at other queues, so not under our lock
                    break
                # Whoever has the lock may wait for the driver, as in a launch.
                run_unless_busy(self._lock, partial(self._take, stretch, over))
                self._settle()
                if stretch in over:
                    continue
                break
        finally:
            self._looking.discard(thread)
        self._settle()
        self._go_on()

    def _take(self, stretch: Stretch, over: list[Stretch]) -> None:
        """Take the first stretch if it is over, and let its event happen."""
        if self._pending and self._pending[0] is stretch and self._is_over(stretch):
            over.append(stretch)
            self._let_happen(stretch)
            self._pending.popleft()

    def _let_happen(self, stretch: Stretch) -> None:
        event = stretch.event()
        if event is not None:
            if event is self._asked:
                self._asked = None
            self._outside.append(partial(event._happen, self._passed))
        stretch.event = nothing

    def _is_over(self, stretch: Stretch) -> bool:
        device, mark = self.device, stretch.mark
        if mark is None or not all(event._done for event in stretch.waited):
            return False
        try:
            is_reached = device.call("wait", device.api.is_reached, mark.handle)
            self._unseen = None
            if not is_reached:
                return False
        except HalError as error:
            if error.got in CAPTURING:  # nothing has failed, and nobody knows
                self._unseen = error
                if error.got == CAPTURED_EVENT and not device.api.is_capturing(self.stream):
                    self._mark_anew(stretch)
                return False
            self._fail("wait", error)
            self._passed = self._passed or self._failure
            for one in self._pending:
                self._let_happen(one)
            # Of a fault the context is lost, and its memory with it; else that may be in use.
            return isinstance(error, DeviceFault)
        if self._passed is None:
            stretch.end()
            for event in stretch.waited:
                self._passed = self._passed or event._failure
            self._failure = self._failure or self._passed
        return True

    def _mark_anew(self, stretch: Stretch) -> None:
        """End a stretch at a later place of the stream: its mark has become part of a capture."""
        stretch.mark = self.device.marks.record(self.stream)
        event = stretch.event()
        if event is not None:
            event._mark = stretch.mark
        self._unseen = None

    def _refused(self, name: str, error: HalError) -> None:
        """Let the queue fail, unless the driver refused the work because of a capture."""
        if error.got in CAPTURING:
            raise error  # the caller may do it later
        self._fail(name, error)

    def _fail(self, name: str, error: Exception) -> None:
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
        self._catch_up()
        with self._lock:
            self._is_shared = True
            if self._held is not None:
                problem = f"{self.name} waits for {self._held!r}, which is in no stream"
                raise InvalidState("__cuda_stream__", problem, fix="Wait for that event first.")
            return 0, int(self.stream)

    def precede(self, stream: Any) -> bool:
        """Let later work of any stream come after ours; False if the host has to wait for it."""
        self._catch_up()
        with self._lock:
            if self._held is not None or self._later or self._failure is not None:
                return False
            if self.stream is None or not (self._growing.names or self._pending):
                return True
            if self.is_legacy:
                self.device.own("record")
            mark = self.device.marks.record(self.stream)
            self.device.call("wait", self.device.api.wait_for, stream, mark.handle)
        return True

    def drain(self) -> None:
        """Wait for what the stream has now; calls that are held are not there yet."""
        with self._lock:
            if self.stream is None or not (self._is_shared or self._pending or self._growing.names):
                return
            if self.is_legacy:
                self.device.own("record")
            mark = self.device.marks.record(self.stream)
        with self.device.api.relaxed():
            self.device.call("wait", self.device.api.wait_event, mark.handle)

    # -- end

    def _close(self) -> None:
        device = self.device
        with self._lock:
            if self._held is not None or self._later:  # Ctrl-C: they are to be made yet
                return
            stream = self.stream
            if not self.borrowed:
                self.stream = None  # another thread may close the queue, too
            if stream is not None:
                with suppress(DeviceFault), device.own("close"), ExitStack() as steps:
                    steps.enter_context(device.api.relaxed())
                    if not self.borrowed:
                        steps.callback(device.destroy_stream, stream)
                    device.api.wait(stream)
        self.look()

    def __del__(self) -> None:
        # No call of the driver in a finalizer: the device makes them when it is asked again.
        if getattr(self, "stream", None) is None or self.forked or self.device.closed:
            return
        # Another thread may find this queue in its device's list until we return.
        stream, self.stream = self.stream, None
        self.closed = True
        rest = [one for one in (*self._pending, self._growing) if one.keep]
        if rest or not self.borrowed:
            self._leave(Dropped(self, stream, rest))


_HAPPENED = Event()
_HAPPENED.set()


def _range_of(memory: memoryview) -> tuple[int, int]:
    """Return the addresses of host memory."""
    start = np.frombuffer(memory, np.uint8).__array_interface__["data"][0] if memory.nbytes else 0
    return start, start + memory.nbytes
