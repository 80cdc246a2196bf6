"""Run a kernel in a child process: a fault or an endless loop there does not harm this one.

    this process                              the child
    call @hal_fork_and_run
    fork ---------------------------------->  copy the regions of `before` into shared memory
    wait, at most `seconds`                   run the kernel on a private copy of all memory
                                              copy the regions of `after` into shared memory
    read the report in shared memory  <-----  report success, or a signal and an address; end

The child is made by the C library's fork and runs nothing but machine code: no Python, no handlers
of `os.register_at_fork`.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from ctypes import c_int64, c_void_p
from functools import cache, partial
from typing import Any, NamedTuple

from hal_core.errors import DeviceFault
from hal_core.source import Source
from hal_cpu import driver, loader
from hal_cpu.threads.job import call_in_thread
from hal_cpu.threads.stacks import for_this_thread

# Signals that the child catches, to report the address of the fault.
_CAUGHT = (
    signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGABRT,
)  # fmt: skip
_SA_SIGINFO, _SA_ONSTACK = 4, 0x0800_0000
_SUCCESS = 256  # reported in place of a signal's number; no signal has it
_SIGNAL_STACK_NBYTES = 64 << 10  # of the handler: the kernel's stack may have overflowed
_REPORT_NBYTES = driver.PAGE
_SHORTEST_PAUSE, _LONGEST_PAUSE = 50e-6, 5e-3  # seconds between polls of the child

# The report is three words: the signal's number or _SUCCESS, the address of the fault (`si_addr`,
# 16 bytes into siginfo_t), and the number of the child, as Ctrl-C may come with the fork's return.
# stdout is flushed before the fork, or both processes would print it.
# prctl(PR_SET_PDEATHSIG) ends the child when the thread that forked it ends.
# Source: sigaction(2), sigaltstack(2), prctl(2).
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

define i32 @hal_fork_and_run(ptr %run, ptr %args, ptr %launch, i64 %blocks, ptr %report,
    ptr %action, ptr %stack, ptr %before, i64 %before_count, ptr %after, i64 %after_count) {{
  %out = load ptr, ptr @stdout
  %empty = call i32 @fflush(ptr %out)
  %pid = call i32 @fork()
  %child = icmp eq i32 %pid, 0
  br i1 %child, label %work, label %back
back:
  %third = getelementptr i64, ptr %report, i64 2
  %number = sext i32 %pid to i64
  store volatile i64 %number, ptr %third
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
  store volatile i64 {success}, ptr %report
  %full = call i32 @fflush(ptr %out)
  call void @_exit(i32 0)
  unreachable
}}
"""


class Region(NamedTuple):
    """A range of memory that the child copies."""

    address: int
    nbytes: int


class Outcome(NamedTuple):
    """The end of a child: success with copies of memory, or the cause of its end."""

    done: bool
    signal: int = 0  # the signal that ended the child; 0: none did
    address: int = 0  # the faulting address, for SIGSEGV and SIGBUS
    status: int = 0  # the child's exit status
    timed_out: bool = False
    before: tuple[memoryview, ...] = ()  # copies from before the kernel ran
    after: tuple[memoryview, ...] = ()


def run_in_child(
    entry: int, args: bytes, launch: ctypes.Array[ctypes.c_int32], blocks: int,
    before: Sequence[Region], after: Sequence[Region], seconds: float,
) -> Outcome:  # fmt: skip
    """Call the kernel at `entry` for all blocks, in a child, and wait for its end.

    Raises: DeviceFault when the system grants no process.
    """
    nbytes = sum(_spaced(region.nbytes) for region in (*before, *after))
    shared = memoryview(mmap.mmap(-1, _REPORT_NBYTES + nbytes))
    start, _holder = driver.address_of(shared)
    views, tables, offset = [], [], _REPORT_NBYTES
    for regions in (before, after):
        table = (ctypes.c_uint64 * (3 * len(regions)))()
        for row, region in enumerate(regions):
            table[3 * row : 3 * row + 3] = [start + offset, *region]
            views.append(shared[offset : offset + region.nbytes])
            offset += _spaced(region.nbytes)
        tables.append(table)
    action = ctypes.create_string_buffer(152)  # struct sigaction: handler, 128 bytes of mask, flags
    ctypes.c_int.from_buffer(action, 136).value = _SA_SIGINFO | _SA_ONSTACK
    signal_stack = ctypes.create_string_buffer(_SIGNAL_STACK_NBYTES)
    stack = (ctypes.c_uint64 * 3)(ctypes.addressof(signal_stack), 0, _SIGNAL_STACK_NBYTES)
    request = (
        c_void_p(entry), args, launch, c_int64(blocks), c_void_p(start), action, stack,
        tables[0], c_int64(len(before)), tables[1], c_int64(len(after)),
    )  # fmt: skip
    # The system kills the child when the thread that forked it ends (PR_SET_PDEATHSIG), so that
    # thread also waits.
    forked = partial(_fork_and_wait, request, seconds)
    ended = for_this_thread(forked, partial(call_in_thread, forked))()
    state, address = shared[:16].cast("Q")
    if state == _SUCCESS:
        copies = tuple(views[: len(before)]), tuple(views[len(before) :])
        return Outcome(True, before=copies[0], after=copies[1])
    if state and not ended.timed_out:
        return Outcome(False, state, address if state in (signal.SIGSEGV, signal.SIGBUS) else 0)
    return ended


def _spaced(nbytes: int) -> int:
    """Round up, so that every copy in shared memory begins at a multiple of 64."""
    return (nbytes + 63) & -64


def _fork_and_wait(request: tuple[Any, ...], seconds: float) -> Outcome:
    """Fork, wait for the child, and return its end as far as `waitpid` tells."""
    fork, until, pause = _forking_function(), time.monotonic() + seconds, _SHORTEST_PAUSE
    try:
        pid = fork(*request)
        if pid < 0:
            problem = "the system grants no process, and checked mode runs machine code in one"
            fix = "Look at ulimit -u and at the memory that is left."
            raise DeviceFault("launch", problem, device="CPU", fix=fix)
        while True:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended and os.WIFSIGNALED(status):
                return Outcome(False, os.WTERMSIG(status))
            if ended:
                return Outcome(False, status=os.waitstatus_to_exitcode(status))
            if time.monotonic() > until:
                _end(pid)
                return Outcome(False, timed_out=True)
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
    except ChildProcessError:  # this program ignores SIGCHLD, so the status is lost
        return Outcome(False)
    except BaseException:  # an interrupt (Ctrl-C): leave no child running
        # The third word of the report, whose address is in the request; 0 before the fork.
        if (child := c_int64.from_address(request[4].value + 16).value) > 0:
            _end(child)
        raise


def _end(pid: int) -> None:
    with suppress(ChildProcessError, ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


@cache
def _forking_function() -> Any:
    """Compile `@hal_fork_and_run`, once per process."""
    from hal_cpu.compilers.llvm import LLVMCompiler

    watched = [
        f"  %watch{number} = call i32 @sigaction(i32 {number:d}, ptr %action, ptr null)"
        for number in _CAUGHT
    ]
    text = _TEXT.format(watched="\n".join(watched), success=_SUCCESS)
    name = "hal_fork_and_run"
    source = Source(name, text, "", language="llvm", rendered=True)
    code = loader.load(LLVMCompiler().compile(source), name, name)
    function: Any = ctypes.PYFUNCTYPE(ctypes.c_int)(code.entry)  # called with ctypes objects
    function.code = code  # keeps the pages of the code mapped
    return function
