"""Queues of a Metal device: command queues of Metal, ordered by its shared events."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ref

from hal_core.errors import HalError
from hal_core.profiling.instrumentation import record_queued
from hal_core.queue import Event, Failure, PolledEvent, PolledQueue, copy_by_host
from hal_metal import driver, transfers

if TYPE_CHECKING:
    from hal_core.device.base import Compiled
    from hal_core.program import Program
    from hal_core.queue import Keep
    from hal_metal.allocator import Opaque
    from hal_metal.device import MetalDevice
    from hal_metal.program import MetalProgram


class Command(NamedTuple):
    """An entry of the queue that was not seen complete yet."""

    name: str  # "launch of saxpy"
    work: driver.Work | None  # None: it was dropped, as work before it failed
    keep: Keep  # what it needs until it is complete
    event: Callable[[], Event | None] = lambda: None  # weak reference: the event of its end
    waited: Event | None = None  # the event that it waits for
    failure: Failure | None = None  # why Metal refused it
    finish: Callable[[], None] | None = None  # what the host does when it is complete

    @property
    def is_over(self) -> bool:
        return self.work is None or driver.is_over(self.work)


class MetalEvent(PolledEvent):
    """A value that the queue gives its shared event."""

    queue: MetalQueue
    value = 0  # 0: Metal does not signal it
    _mark: driver.Work | None

    def _poll(self) -> bool:
        if not self._done:
            self.queue.look()
        return self._done


class MetalQueue(PolledQueue):
    """A command queue of Metal, with a command buffer for each piece of work.

    Work behind a failure is dropped, but for that which Metal had before the failure was known.

    Owns: the command queue, but a `borrowed` one, which is another's.
    """

    device: MetalDevice
    event_class = MetalEvent

    def __init__(self, device: MetalDevice, commands: Any = None, name: str = "") -> None:
        super().__init__(device, name, is_borrowed=commands is not None)
        with driver.check("queue", device.name):
            self.commands = driver.open_queue(device.hardware) if commands is None else commands
            self.shared = driver.new_event(device.hardware)
        self._signaled = 0  # the value of the last event

    # -- work

    def _add(
        self, name: str, encode: Callable[[Any], object], keep: Keep, nbytes: int = 0, **more: Any
    ) -> driver.Work | None:
        """Commit a command buffer with what `encode(commands)` adds, unless work has failed."""
        with self._lock:
            self._look()
            if self._drops or self._failure is not None:
                self._pending.append(Command(name, None, keep, **more))
                return None

            def commit() -> driver.Work:
                with driver.check(name, self.device.name):
                    work = driver.Work(driver.make_commands(self.commands), name)
                    if is_new := self._known.lacks(keep):  # the first work on it here
                        self._follow_default(work)
                    encode(work.commands)
                    command = Command(name, work, keep, **more)
                    try:
                        self._pending.append(command)  # first, as Ctrl-C may come into the commit
                        driver.commit(work)
                    except BaseException:
                        if not driver.is_committed(work):
                            self._pending.remove(command)
                        raise
                    if is_new:
                        self._known.add(keep)
                return work

            try:
                if name == "event":
                    work = commit()
                else:
                    work = record_queued(self, name, more.get("waited"), commit, nbytes)
            except HalError as error:
                failure = Failure(name, self.name, error.with_traceback(None))
                self._pending.append(Command(name, None, keep, **more, failure=failure))
                self._drops = True
                return None
            return work

    def _follow_default(self, work: driver.Work) -> None:
        device = self.device
        if device.newest() is None or self.commands is device.commands:
            return
        passed = driver.new_event(device.hardware)
        device.submit("event", lambda commands: driver.signal_event(commands, passed, 1))
        driver.wait_event(work.commands, passed, 1)

    def _look(self) -> None:
        pending = self._pending
        while pending and self._is_over(pending[0]):
            done = pending[0]
            self._failure = self._failure or self._failure_of(done)
            if done.finish is not None and self._failure is None:
                done.finish()
            event = done.event()
            if event is not None:
                event._happen(self._failure)
            # Taken out last, as Ctrl-C may come; what the event has called may have looked, too.
            if pending and pending[0] is done:
                del pending[0]

    def _is_over(self, command: Command) -> bool:
        if not command.is_over or command.waited is None:
            return command.is_over
        if isinstance(command.waited, MetalEvent):  # which failed if the work before it did
            command.waited.queue.look()
        return command.waited._done

    def _failure_of(self, command: Command) -> Failure | None:
        if command.waited is not None:
            return command.waited._failure
        fault = driver.fault_of(command.work, self.device.name) if command.work else None
        return Failure(command.name, self.name, fault) if fault is not None else command.failure

    def _launch(self, program: Any, geometry: Any, args: tuple[Any, ...], keep: Keep) -> None:
        self._add_launch_of(program, geometry, args, keep)

    def _add_launch_of(
        self, program: MetalProgram, geometry: Any, args: tuple[Any, ...], keep: Keep
    ) -> driver.Work | None:
        program.check_images(args)
        encode = program.encoder()
        return self._add(
            f"launch of {program.name}",
            lambda commands: driver.compute(
                commands, lambda encoder: encode(encoder, geometry, *args)
            ),
            keep,
        )

    def _launch_timed(
        self, program: Program, geometry: Any, args: tuple[Any, ...], keep: Keep
    ) -> float:
        work = self._add_launch_of(program, geometry, args, keep)  # type: ignore[arg-type]  # ours
        self.record().wait()
        if work is None:
            return 0.0
        start, end = driver.passed(work)
        return end - start

    def _add_replay(self, plan: Any) -> None:
        native = plan.native()
        if native is None:
            super()._add_replay(plan)
        else:
            self._add("replay of a graph", native.encode, (*plan.keep(), native))

    def _copyin(self, dest: Opaque, src: memoryview, keep: Keep) -> None:
        device = self.device

        def encode(commands: Any) -> None:
            transfers.copy(device, commands, dest, transfers.staged(device, src), src.nbytes)

        self._add("copyin", encode, keep, src.nbytes)

    def _copyout(self, dest: memoryview, src: Opaque, keep: Keep) -> None:
        """Queue a copy into memory of ours, which the host takes it from when it is complete."""
        device = self.device
        try:
            with driver.check("copyout", device.name):
                between = transfers.between(device, dest.nbytes)
        except HalError as error:
            self._refuse("copyout", Failure("copyout", self.name, error.with_traceback(None)))
            return

        def finish() -> None:
            dest[:] = between.host

        self._add(
            "copyout",
            lambda commands: transfers.copy(device, commands, between, src, dest.nbytes),
            keep,
            dest.nbytes,
            finish=finish,
        )

    def _copy(self, dest: Opaque, src: Any, nbytes: int, src_device: Compiled, keep: Keep) -> None:
        device = self.device
        if src_device is device:
            copy = partial(transfers.copy, device, dest=dest, src=src, nbytes=nbytes)
            self._add("copy", copy, keep, nbytes)
        else:
            copy_by_host(self, dest, src, nbytes, src_device, keep)

    def _fill(self, dest: Opaque, nbytes: int, pattern: bytes, keep: Keep) -> None:
        device = self.device
        self._add(
            "fill", lambda commands: transfers.fill(device, commands, dest, nbytes, pattern), keep,
            nbytes,
        )  # fmt: skip

    def _refuse(self, name: str, failure: Failure | None, waited: Event | None = None) -> None:
        """Let the queue fail here: all that is added from now on is dropped."""
        with self._lock:
            self._pending.append(Command(name, None, (), waited=waited, failure=failure))
            self._drops = True

    # -- order

    def _record(self, event: Event) -> None:
        with self._lock:
            self._signaled = value = self._signaled + 1  # first: Ctrl-C may come when it is queued
            work = self._add(
                "event",
                lambda commands: driver.signal_event(commands, self.shared, value),
                (),
                event=ref(event),
            )
            if work is not None:
                event._mark = work
                if isinstance(event, MetalEvent):
                    event.value = value
        if not isinstance(event, MetalEvent):  # an event of another class does not poll
            after = self._record_end()  # also when another thread closes the queue meanwhile
            after._when_done(after._poll)

    def _wait(self, event: Event) -> None:
        if event._is_over() and event._failure is not None:
            self._refuse("wait", None, event)
            return
        shared, value = getattr(event.queue, "shared", None), getattr(event, "value", 0)

        def encode(commands: Any) -> None:
            if shared is not None and value:
                driver.wait_event(commands, shared, value)
                return
            ours = driver.new_event(self.device.hardware)
            driver.wait_event(commands, ours, 1)
            event._when_done(lambda: driver.set_event(ours, 1))

        self._add("wait", encode, (event,), waited=event)

    def _seconds_between(self, earlier: Event, later: Event) -> float:
        return driver.passed(later._mark)[1] - driver.passed(earlier._mark)[1]
