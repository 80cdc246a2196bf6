"""Messages to the actor that has a device open: work that nobody waits for travels together.

add(a), add(b)              nothing is sent
ask(("wait",))              one message: a, b and the question
add(c)                      1 ms later, one message: c
add(d) ... 64 times         one message: all of them, so that the actor begins
add(e) ... 256 times        one message: the next is longer, up to the next question
"""

from __future__ import annotations

import pickle
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from time import monotonic, perf_counter_ns, sleep
from typing import Any
from weakref import WeakSet

from hal_core.concurrency import (
    Servers,
    fork_safe_lock,
    may_be_ctrl_c,
    raise_if_of_a_signal,
    start_server,
    unless_of_a_signal,
)
from hal_core.errors import DeviceFault, HalError, InvalidState
from hal_core.profiling import events
from hal_ray import driver
from hal_ray.host import Command, unpack

_FIRST = 64  # commands of the first message behind a question
_GROWTH = 4  # of the next one: a message costs as much as 100 launches
_SOON_SECONDS = 1e-3  # until they are sent in any case
_IDLE_TURNS = 50  # after which the thread that sends goes to sleep
_CLOSED = "the device was closed meanwhile"
_LEFT = "the process has left the cluster of this device"


class Connection:
    """The way to one actor. Messages arrive in the order in which they were sent.

    Concurrency: any thread; a finalizer may add commands in the middle of any call.
    """

    largest = 1024  # commands of a message
    most_commands = 1 << 16  # not done, or a loop without a wait would fill the actor's memory
    most_carried = 2 << 20  # bytes of copies in a message
    most_on_the_way = 256 << 20  # bytes of copies that are not done, most of them in object stores

    def __init__(self, ray: Any, actor: Any, device: str, place: str) -> None:
        self.ray, self.actor, self.device, self.place = ray, actor, device, place
        self.fault: DeviceFault | InvalidState | None = None  # why nothing more can be sent
        self.describe_loss: Callable[[], str] = lambda: ""
        self.arrivals: Callable[[int, int, int], None] | None = None  # for a profile
        self._session = self._find_session()
        self.is_loss_known = False  # somebody has seen the fault
        self._commands: deque[Command] = deque()
        self._taken: list[Command] = []  # from there, for the message that is being sent
        self._lock = fork_safe_lock()  # held while a message is made and sent
        self._ask = actor.run.remote
        # Ray keeps no answer of a message without a question.
        self._tell = actor.run.options(num_returns=0).remote
        self._has_work = False  # since the last wait
        self._waited: Any = None  # the answer to a wait whose time passed
        self._limit = _FIRST  # commands that are sent although nobody waits
        self._unanswered = 0  # commands sent since the last answer
        self._carried = 0  # bytes of copies in the next message
        self._on_the_way = 0  # bytes of copies since the last answer
        self._is_timed = False  # a token to send lies in `_tokens`
        self._tokens: SimpleQueue[bool] = SimpleQueue()
        self._servers: Servers = {}  # the thread that sends
        self.takers: WeakSet[Connection] = WeakSet()  # of devices that copy from this one
        self.measuring = threading.local()  # `.number`: the next command is measured
        self.sent = 0  # messages

    # -- commands

    def add(self, *command: Any) -> None:
        """Send a command with those before and behind it. Its failure is told at a later wait.

        Raises: DeviceFault when the actor is gone and somebody knows it, InvalidState when the
        device was closed.
        """
        if self.fault is not None:
            self._refuse()
        if self.arrivals is not None and (number := getattr(self.measuring, "number", 0)):
            self.measuring.number = 0
            command = "measure", number, *command
        # As in `add_later`: a call of it would be a fifth of a launch.
        self._commands.append(command)
        self._has_work = True
        if not self._is_timed:
            self._time()
        if len(self._commands) >= self._limit:
            self.send()
            if self._unanswered > self.most_commands:
                self.ask("now")

    def add_later(self, *command: Any) -> None:
        """Do as `add`, and send nothing: a finalizer may come in the middle of anything.

        No wait is for it: it gives back what nobody uses.
        """
        self._commands.append(command)
        if not self._is_timed:
            self._time()

    def _time(self) -> None:
        """Let a thread send the commands after a while."""
        if not self._servers:
            start_server(self._servers, f"messages to {self.device}", self._serve)
        self._tokens.put(True)
        self._is_timed = True  # last, as Ctrl-C may come; a token more does no harm

    def count(self, nbytes: int) -> None:
        """Count the bytes of a copy whose command comes next; wait if too many are on the way."""
        if self._on_the_way > self.most_on_the_way:
            self._answer("wait", self.send(("now",)), None)  # no `ask`: that may be measured
        self._on_the_way += nbytes

    def carry(self, data: memoryview) -> bytes:
        """Return bytes as a command carries them inside its message."""
        self.count(data.nbytes)
        if self._carried > self.most_carried:
            self.send()
        self._carried += data.nbytes
        return bytes(data)

    def put(self, data: Any) -> list[Any]:
        """Put bytes into this node's object store; return them as a command carries them."""
        with driver.check("copyin", self.device):
            self._check_session()
            self.count(data.nbytes)
            return [self.ray.put(data)]

    def send(self, question: Command | None = None) -> Any:
        """Send the commands so far, then the question; return a reference to its answer."""
        if self._lock._is_owned():  # type: ignore[attr-defined]  # a finalizer in the middle of it
            return None
        with self._lock:
            # Ctrl-C may end this anywhere. What is taken stays there until it is sent, and the
            # actor does a message that comes twice, with one number, once.
            while self._taken or self._commands or question:
                start_ns = perf_counter_ns()
                last = not self._taken
                if last:
                    self._carried = 0
                    self.sent += 1  # before anything is taken, so that nothing shares its number
                    with suppress(IndexError):  # in one call, in which no signal is handled
                        self._taken.extend(iter(self._commands.popleft, None))
                count = len(self._taken)
                try:
                    if not self.ray.is_initialized():  # a call would start a cluster
                        raise ConnectionError(_LEFT)
                    ref = self._post(self.sent, question if last else None)
                except unless_of_a_signal(Exception) as error:  # as of an actor of another cluster
                    if self._is_here():
                        self._lose("send", error)
                    else:  # a program may end so, with an open device
                        self.is_loss_known = not (self._has_work or question)
                        self._lose("send", ConnectionError(_LEFT))
                    return None
                self._taken = []
                if self.arrivals is not None and events.open_profiles:
                    self.arrivals(self.sent, count, start_ns)
                if last:
                    return ref
        return None

    def _post(self, number: int, question: Command | None) -> Any:
        """Send one message of the commands taken."""
        commands = self._taken
        puts = [command[-1] for command in commands if type(command[-1]) is list]
        if puts:  # of one reference each
            commands = [
                (*command[:-1], None) if type(command[-1]) is list else command
                for command in commands
            ]
        noted = bool(events.open_profiles)
        message = pickle.dumps((number, noted, commands, question), pickle.HIGHEST_PROTOCOL)
        if question is not None:
            self._limit = _FIRST
            return self._ask(message, *puts)
        self._tell(message, *puts)
        self._unanswered += len(commands)
        self._limit = min(_GROWTH * self._limit, self.largest)
        return None

    def _serve(self) -> None:
        while self._tokens.get():
            try:
                self._send_soon()
            finally:
                self._is_timed = False
                if self._commands:  # added between the last look and that line
                    self._tokens.put(True)
                    self._is_timed = True

    def _send_soon(self) -> None:
        """Send the commands until there have been none for some time."""
        # Waking this thread for each command would take longer than the command itself.
        idle = 0
        while idle < _IDLE_TURNS and self.fault is None:
            waiting = len(self._commands)
            sleep(_SOON_SECONDS)
            idle += 1
            if waiting and self._commands:
                idle = 0
                self.send()

    # -- questions

    def ask(self, *question: Any, seconds: float | None = None) -> Any:
        """Send everything and wait for the answer, at most `seconds`.

        Raises: what happened there; DeviceFault when the actor is gone, InvalidState when another
        thread has closed the device, DeviceUnavailable when the time has passed.
        """
        if self.fault is not None:
            self._refuse()
        operation, number = question[0], getattr(self.measuring, "number", 0)
        if number:
            self.measuring.number = 0
            question = "measured", number, question
        if operation != "read":
            return self._answer(operation, self.send(question), seconds)
        self._has_work = False  # a read waits for all, and tells a failure as a wait does
        try:
            return self._answer(operation, self.send(question), seconds)
        except BaseException as error:
            self._has_work = self._has_work or may_be_ctrl_c(error)
            raise

    def ask_later(self, *question: Any) -> Any:
        """Send everything, and return the reference of the answer for another actor."""
        if self.fault is not None:
            self._refuse()
        ref = self.send(question)
        if ref is None:
            self._refuse()
        return ref

    def wait(self, timeout: float | None) -> bool:
        """Wait for all commands; False when the time has passed.

        Raises: the first failure; DeviceFault each time when the actor is gone.
        """
        deadline = None if timeout is None else monotonic() + timeout
        if isinstance(self.fault, DeviceFault):
            self._refuse()
        if self.fault is not None:  # closed
            return True
        if not (self._has_work or self._waited) and (timeout == 0 or not self._is_here()):
            return True
        for _ in range(2):  # first for an earlier wait whose time had passed, or that Ctrl-C ended
            ref, self._waited = self._waited, None
            try:
                if ref is not None and not self._is_here():  # `send` looks for the others
                    ref = None
                if ref is None:
                    self._has_work = False
                    ref = self.send(("wait",))
                if ref is not None and deadline is not None:
                    left = max(0.0, deadline - monotonic())
                    if not self.ray.wait([ref], timeout=left)[0]:
                        self._waited = ref
                        return False
                self._answer("wait", ref, None)
            except BaseException as error:
                if may_be_ctrl_c(error):
                    self._waited, self._has_work = ref, True
                raise
            if not self._has_work:
                return True
        return True

    def _answer(self, operation: str, ref: Any, seconds: float | None) -> Any:
        if ref is None:
            self._refuse()
        try:
            told: Any = self.ray.get(ref, timeout=seconds) or (True, None)
        except SystemExit as error:  # Ray hears SIGTERM in its machine code, and exits there
            error.of_a_signal = True  # type: ignore[attr-defined]  # for `is_of_a_signal`
            raise
        except self.ray.exceptions.GetTimeoutError as error:
            raise driver.explain(error, operation, self.device) from None
        except (self.ray.exceptions.RayError, ConnectionError) as error:
            # Ray catches what the handler of a signal raises as it unpacks an answer.
            raise_if_of_a_signal(getattr(error, "client_exc", error))
            self._lose(operation, error)
            self._refuse()
        self._unanswered = self._on_the_way = 0
        succeeded, answer = told
        if not succeeded:
            failure = unpack(answer)
            if isinstance(failure, HalError):  # its text has the name that the device has there
                failure.device = self.device
                first, rest, more = str(failure).partition("\n")
                failure.args = (f"{first} This is {self.device}, {self.place}.{rest}{more}",)
            raise failure
        return answer

    # -- end

    def _is_here(self) -> bool:
        """Tell whether this process is still connected to the cluster of the device."""
        return bool(self.ray.is_initialized()) and self._find_session() == self._session

    def _find_session(self) -> tuple[str, str]:
        """Return the number of the job and the node: every cluster numbers its jobs from 1."""
        context = self.ray.get_runtime_context()
        return context.get_job_id(), context.get_node_id()

    def _check_session(self) -> None:
        if not self._is_here():
            raise ConnectionError(_LEFT)

    def _lose(self, operation: str, error: BaseException) -> None:
        """Note that the actor is gone, or that a message could not be sent."""
        if self.fault is None:
            lost = f"the device on {self.place} is lost{self.describe_loss()}; "
            made = driver.explain(error, operation, self.device, lost)
            self.fault = (
                made
                if isinstance(made, DeviceFault)
                else DeviceFault(
                    operation, lost + made.problem, device=self.device, fix=driver.REOPEN
                )
            )
        self._commands.clear()
        self._taken = []

    def _refuse(self) -> None:
        self.is_loss_known = True
        fault = self.fault
        if fault is None:
            fault = DeviceFault("send", "the message was not sent", fix=driver.REOPEN)
        raise type(fault)(fault.operation, fault.problem, device=self.device, fix=fault.fix)

    def close(self) -> None:
        """End the actor, and with it all that it has. Order: after the copies to other devices."""
        self._tokens.put(False)
        self._commands.clear()
        if self.fault is None:  # before the actor ends, for those who wait for it
            self.fault = InvalidState("wait", _CLOSED, fix=driver.REOPEN)
        try:
            self._check_session()
        except ConnectionError:
            return
        try:
            for taker in list(self.takers):
                with suppress(HalError):  # of a device that is closed or lost
                    taker.ask("now")
        finally:
            self.ray.kill(self.actor)
