"""Native code in a child process: what ends or hangs it there leaves this process whole.

The child is made by the C library's fork and runs nothing but machine code: no Python, no handlers
of `os.register_at_fork`. It sees this process's memory as it was and keeps its changes to itself;
what is wanted of them it copies into memory that both share.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import time
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from hal_core.compiler import CompileOptions
from hal_core.errors import DeviceFault
from hal_core.ir import Signature
from hal_cpu import driver, loader
from hal_cpu.threads.stacks import STACK_NBYTES, with_room

# What a fault raises in the child; without an address, the signal alone is told.
FAULTS = ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGTRAP", "SIGABRT")
_DONE = 256  # beyond every signal's number
_STACK = 64 << 10  # for the handler: the kernel's own may be what ran out
_SHORT, _LONG = 50e-6, 5e-3  # seconds between looks at the child

# `job` is eleven words, `_Job` below. `report` is the signal's number, or _DONE, and an address:
# `si_addr`, 16 bytes into siginfo_t. Source: sigaction(2), prctl(2) PR_SET_PDEATHSIG.
_TEXT = """
@report = internal global ptr null
@stdout = external global ptr
declare i32 @fork()
declare void @_exit(i32)
declare i32 @fflush(ptr)
declare i32 @prctl(i32, ...)
declare i32 @sigaltstack(ptr, ptr)
declare i32 @sigaction(i32, ptr, ptr)
declare ptr @memcpy(ptr, ptr, i64)

define internal void @fault(i32 %signal, ptr %info, ptr %context) {{
  %report = load ptr, ptr @report
  %at = getelementptr i64, ptr %info, i64 2
  %address = load i64, ptr %at
  %second = getelementptr i64, ptr %report, i64 1
  store volatile i64 %address, ptr %second
  %number = zext i32 %signal to i64
  store volatile i64 %number, ptr %report
  call void @_exit(i32 1)
  unreachable
}}

define internal void @copy(ptr %regions, i64 %count) {{
  br label %head
head:
  %i = phi i64 [0, %0], [%next, %body]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %body, label %end
body:
  %to_at = getelementptr [3 x i64], ptr %regions, i64 %i
  %from_at = getelementptr i64, ptr %to_at, i64 1
  %nbytes_at = getelementptr i64, ptr %to_at, i64 2
  %to = load ptr, ptr %to_at
  %from = load ptr, ptr %from_at
  %nbytes = load i64, ptr %nbytes_at
  %done = call ptr @memcpy(ptr %to, ptr %from, i64 %nbytes)
  %next = add i64 %i, 1
  br label %head
end:
  ret void
}}

define i32 @hal_apart(ptr %job) {{
{loads}
  %out = load ptr, ptr @stdout
  %empty = call i32 @fflush(ptr %out)
  %pid = call i32 @fork()
  %child = icmp eq i32 %pid, 0
  br i1 %child, label %work, label %back
back:
  ret i32 %pid
work:
  %die = call i32 (i32, ...) @prctl(i32 1, i64 9)
  store ptr %report, ptr @report
  store ptr @fault, ptr %action
  %own = call i32 @sigaltstack(ptr %stack, ptr null)
{watched}
  call void @copy(ptr %before, i64 %before_count)
  call void %run(ptr %args, ptr %launch, i64 0, i64 %blocks)
  call void @copy(ptr %after, i64 %after_count)
  store volatile i64 {done}, ptr %report
  %full = call i32 @fflush(ptr %out)
  call void @_exit(i32 0)
  unreachable
}}
"""


_WORDS = (
    "run", "args", "launch", "blocks", "report", "action", "stack", "before", "before_count",
    "after", "after_count",
)  # fmt: skip


class _Job(ctypes.Structure):
    """Addresses and counts; `@hal_apart` reads them before it forks."""

    _fields_ = tuple((name, ctypes.c_uint64) for name in _WORDS)


class Region(NamedTuple):
    """Memory of which the child gives a copy."""

    address: int
    nbytes: int


class Outcome(NamedTuple):
    """How the child ended. With `done` the copies are there: before the kernel ran, and after."""

    done: bool
    signal: int = 0  # that ended it; 0: something else did
    address: int = 0  # of the access, for SIGSEGV and SIGBUS
    status: int = 0  # it exited with
    late: bool = False  # it was ended here
    before: tuple[memoryview, ...] = ()
    after: tuple[memoryview, ...] = ()


def run(
    entry: int,
    args: bytes,
    launch: Any,
    blocks: int,
    before: Sequence[Region],
    after: Sequence[Region],
    seconds: float,
) -> Outcome:
    """Calls the kernel at `entry` for all blocks, in a child, and waits for it.

    Raises: DeviceFault when the system grants no process.
    """
    nbytes = sum(_spaced(region.nbytes) for region in (*before, *after))
    shared = mmap.mmap(-1, driver.PAGE + nbytes)
    memory = memoryview(shared)
    start, _holder = driver.address_of(memory)
    job = _Job(run=entry, args=_address(args), launch=ctypes.addressof(launch), blocks=blocks)
    action, stack = _action(), ctypes.create_string_buffer(_STACK)
    area = (ctypes.c_uint64 * 3)(ctypes.addressof(stack), 0, _STACK)  # stack_t
    job.report, job.action, job.stack = start, ctypes.addressof(action), ctypes.addressof(area)
    views, lists, offset = [], [], driver.PAGE
    for regions in (before, after):
        rows = (ctypes.c_uint64 * (3 * len(regions)))()
        for row, region in enumerate(regions):
            rows[3 * row : 3 * row + 3] = [start + offset, *region]
            views.append(memory[offset : offset + region.nbytes])
            offset += _spaced(region.nbytes)
        lists.append(rows)
    job.before, job.before_count = ctypes.addressof(lists[0]), len(before)
    job.after, job.after_count = ctypes.addressof(lists[1]), len(after)
    # A thread that ends takes its children along (PR_SET_PDEATHSIG), so that it waits too.
    status, late = with_room(STACK_NBYTES, lambda: _fork_and_wait(job, seconds))
    state, address = memory[:16].cast("Q")
    if state == _DONE:
        return Outcome(True, before=tuple(views[: len(before)]), after=tuple(views[len(before) :]))
    return _failed(state, address, status, late)


def _failed(state: int, address: int, status: int | None, late: bool) -> Outcome:
    if late:
        return Outcome(False, late=True)
    if state:
        found = state in (signal.SIGSEGV, signal.SIGBUS)
        return Outcome(False, state, address if found else 0)
    if status is not None and os.WIFSIGNALED(status):
        return Outcome(False, os.WTERMSIG(status))
    return Outcome(False, status=0 if status is None else os.waitstatus_to_exitcode(status))


def _fork_and_wait(job: _Job, seconds: float) -> tuple[int | None, bool]:
    """(wait status, whether it had to be ended); the status is None where the program has told the
    system that it does not want to know (SIGCHLD is ignored)."""
    pid = _stub()(ctypes.addressof(job))
    if pid < 0:
        raise DeviceFault(
            "launch",
            "the system grants no process, and checked mode runs machine code in one of its own",
            device="CPU",
            fix="Look at ulimit -u and at the memory that is left.",
        )
    until, pause = time.monotonic() + seconds, _SHORT
    try:
        while True:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                return status, False
            if time.monotonic() > until:
                return _end(pid), True
            time.sleep(pause)
            pause = min(2 * pause, _LONG)
    except ChildProcessError:
        return None, False
    except BaseException:  # an interrupt
        _end(pid)
        raise


def _end(pid: int) -> int | None:
    try:
        os.kill(pid, signal.SIGKILL)
        return os.waitpid(pid, 0)[1]
    except (ChildProcessError, ProcessLookupError):
        return None


def _action() -> ctypes.Array[ctypes.c_char]:
    """A struct sigaction without its handler: a mask of 128 bytes, and the flags."""
    siginfo, on_stack = 4, 0x0800_0000
    action = ctypes.create_string_buffer(152)
    ctypes.c_int.from_buffer(action, 136).value = siginfo | on_stack
    return action


def _address(data: bytes) -> int:
    return ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0


def _spaced(nbytes: int) -> int:
    return (nbytes + 63) & -64


@cache
def _stub() -> Any:
    """`@hal_apart`, compiled once a process."""
    from hal_cpu.compilers.llvm import LLVMCompiler

    loads = []
    for place, name in enumerate(_WORDS):
        kind = "i64" if name.endswith("count") or name == "blocks" else "ptr"
        loads.append(f"  %{name}_at = getelementptr i64, ptr %job, i64 {place}")
        loads.append(f"  %{name} = load {kind}, ptr %{name}_at")
    watched = [
        f"  %watch{number} = call i32 @sigaction(i32 {number:d}, ptr %action, ptr null)"
        for number in (getattr(signal, name) for name in FAULTS)
    ]
    text = _TEXT.format(loads="\n".join(loads), watched="\n".join(watched), done=_DONE)
    options = CompileOptions("hal_apart", Signature.parse("hal_apart", ""), rendered=True)
    image = LLVMCompiler().compile(text, options)
    code = loader.load(image, "hal_apart", "hal_apart")
    function: Any = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(code.entry)
    function.code = code  # which keeps its pages
    return function
