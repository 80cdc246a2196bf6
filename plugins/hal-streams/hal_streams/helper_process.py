"""A process of its own for a vendor's library that must not be in ours.

Compilers made of LLVM end the process that they are in when something is wrong, and two of them in
one process, with the same symbols, end it by being there. So a module of the backend answers in a
process that is kept, and replaced when it has died:

    here   HelperProcess("hal_hip.hiprtc").ask({"do": "compile", "options": [...]}, text)
    there  hal_hip.hiprtc.answer({"do": "compile", "options": [...]}, text)
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
from typing import IO, Any

from hal_core.concurrency import fork_safe_lock, unless_of_a_signal

_START = (
    "import sys; sys.path[:] = sys.argv[2:]; "
    "from hal_streams.helper_process import serve; serve(sys.argv[1])"
)
_LAST_WORDS_NBYTES = 16 << 10
_ENDS_SECONDS = 5


class HelperDied(Exception):
    """The process ended in the middle of a question, or cannot be started; `log` is what it, or
    the library in it, wrote."""

    def __init__(self, problem: str, log: str) -> None:
        super().__init__(problem)
        self.log = log


class HelperProcess:
    """A process in which `module.answer` answers questions, one at a time.

    It is started by the first question. Concurrency: any thread.
    """

    def __init__(self, module: str) -> None:
        self._module = module
        self._lock = fork_safe_lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0  # the process that started it: a forked child leaves it alone
        self._said: IO[bytes] | None = None  # the file that it writes its errors to
        atexit.register(self.close)

    def ask(self, question: dict[str, Any], content: bytes = b"") -> tuple[dict[str, Any], bytes]:
        """Return the answer. Raises: HelperDied; the next question then starts another process."""
        with self._lock:
            process = self._start()
            try:
                _send(process.stdin, question, content)
                return _receive(process.stdout)
            except unless_of_a_signal(EOFError, OSError):
                raise self._end() from None
            except BaseException:  # Ctrl-C: an answer that nobody reads would be the next one's
                self.close()
                raise

    def close(self) -> None:
        """End the process, if there is one."""
        process, self._process = self._process, None
        if process is not None and self._owner == os.getpid():
            process.kill()
            process.communicate()
        if self._said is not None:
            self._said.close()

    def _start(self) -> subprocess.Popen[bytes]:
        """Return the running process; start one if there is none, or if it has died since."""
        ours = self._owner == os.getpid()
        if ours and self._process is not None and self._process.poll() is None:
            return self._process
        self.close()
        if getattr(sys, "frozen", False) or not sys.executable:
            raise HelperDied("this program is frozen, and has no Python to start", "")
        import tempfile

        command = [sys.executable, "-c", _START, self._module, *sys.path]
        try:
            self._said = tempfile.TemporaryFile()  # noqa: SIM115  # read when the process has died
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self._said}
            self._process = subprocess.Popen(command, **pipes)  # type: ignore[call-overload]
        except unless_of_a_signal(OSError) as error:
            raise HelperDied(f"{sys.executable} cannot be started: {error}", "") from None
        self._owner = os.getpid()
        return self._process

    def _end(self) -> HelperDied:
        """Return what became of a process that stopped answering."""
        process, said = self._process, self._said
        if process is None or said is None:
            return HelperDied("it was closed", "")
        try:
            process.communicate(timeout=_ENDS_SECONDS)
        except subprocess.TimeoutExpired:  # it has closed its output alone
            process.kill()
            process.communicate()
        said.seek(0)
        log = said.read()[-_LAST_WORDS_NBYTES:].decode(errors="replace").strip()
        self.close()
        return HelperDied(f"its process ended with status {process.returncode}", log)


def serve(module: str) -> None:
    """Answer questions until the other end of the pipe is closed."""
    import importlib
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program that asks
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    answer = importlib.import_module(module).answer
    try:
        while True:
            _send(answers, *answer(*_receive(sys.stdin.buffer)))
    except (EOFError, BrokenPipeError):
        os._exit(0)  # without the finalizers of the vendor's library


def _send(pipe: IO[bytes] | None, head: dict[str, Any], content: bytes) -> None:
    if pipe is None:
        raise EOFError
    text = json.dumps(head).encode()
    pipe.write(b"%d %d\n" % (len(text), len(content)) + text + content)
    pipe.flush()


def _receive(pipe: IO[bytes] | None) -> tuple[dict[str, Any], bytes]:
    """Raises: EOFError when the other end is closed."""
    sizes = pipe.readline().split() if pipe is not None else []
    if len(sizes) != 2 or pipe is None:
        raise EOFError
    head, content = pipe.read(int(sizes[0])), pipe.read(int(sizes[1]))
    if len(head) + len(content) != sum(map(int, sizes)):
        raise EOFError
    return json.loads(head), content
