"""Machine code in which threads share the blocks of a launch, without Python and its lock.

    caller                                        a worker that has just worked
    fills in the job and opens it                 looks at the job for about 0.2 ms, then sleeps
    claims chunks of blocks until none is left    sees it open: enters, claims chunks, leaves
    closes it, and waits until nobody is inside

A thread that sleeps takes 10 to 50 us to wake, and two that take turns with Python's lock lose as
much with each chunk. A worker that comes late finds nothing to claim, and one that never comes is
not missed.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from functools import cache
from typing import Any

from hal_core.compiler import CompileOptions
from hal_core.errors import HalError
from hal_core.ir import Signature
from hal_cpu import driver, loader, processor

YIELD = "NtYieldExecution" if sys.platform == "win32" else "sched_yield"
PAUSES = {
    "x86-64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "aarch64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
}
_LOOKS = 8000  # how often an idle worker looks at the job before it sleeps; each takes 10 to 40 ns
_SPINS = 4000  # looks of a caller, before its core is offered to others

# A job has words of 64 bits: 0 open, 8 the next block, 16 the threads inside, each in a cache line
# of its own; 24 the kernel, 25 its arguments, 26 the launch, 27 the blocks, 28 those of a chunk.
_TEXT = """
declare i32 @{yield_}()
{declare_pause}

define internal void @claim(ptr %job) {{
  %next = getelementptr i64, ptr %job, i64 8
  %kernel_at = getelementptr i64, ptr %job, i64 24
  %kernel = load ptr, ptr %kernel_at
  %args_at = getelementptr i64, ptr %job, i64 25
  %args = load ptr, ptr %args_at
  %launch_at = getelementptr i64, ptr %job, i64 26
  %launch = load ptr, ptr %launch_at
  %blocks_at = getelementptr i64, ptr %job, i64 27
  %blocks = load i64, ptr %blocks_at
  %chunk_at = getelementptr i64, ptr %job, i64 28
  %chunk = load i64, ptr %chunk_at
  br label %claim
claim:
  %first = atomicrmw add ptr %next, i64 %chunk monotonic
  %some = icmp slt i64 %first, %blocks
  br i1 %some, label %run, label %end
run:
  %behind = add i64 %first, %chunk
  %short = icmp slt i64 %blocks, %behind
  %last = select i1 %short, i64 %blocks, i64 %behind
  call void %kernel(ptr %args, ptr %launch, i64 %first, i64 %last)
  br label %claim
end:
  ret void
}}

define void @hal_lead(ptr %args, ptr %launch, i64 %address, i64 %blocks) {{
  %job = inttoptr i64 %address to ptr
  %next = getelementptr i64, ptr %job, i64 8
  store i64 0, ptr %next
  %args_at = getelementptr i64, ptr %job, i64 25
  store ptr %args, ptr %args_at
  %launch_at = getelementptr i64, ptr %job, i64 26
  store ptr %launch, ptr %launch_at
  %blocks_at = getelementptr i64, ptr %job, i64 27
  store i64 %blocks, ptr %blocks_at
  store atomic i64 1, ptr %job seq_cst, align 8
  call void @claim(ptr %job)
  store atomic i64 0, ptr %job seq_cst, align 8
  %inside_at = getelementptr i64, ptr %job, i64 16
  br label %look
look:
  %turn = phi i64 [0, %0], [%next_turn, %pause], [0, %yield]
  %inside = load atomic i64, ptr %inside_at seq_cst, align 8
  %none = icmp eq i64 %inside, 0
  br i1 %none, label %end, label %wait
wait:
  %next_turn = add i64 %turn, 1
  %long = icmp ugt i64 %turn, {spins}
  br i1 %long, label %yield, label %pause
pause:
  {pause}
  br label %look
yield:
  %ignored = call i32 @{yield_}()
  br label %look
end:
  ret void
}}

define void @hal_serve(ptr %args, ptr %launch, i64 %address, i64 %looks) {{
  %job = inttoptr i64 %address to ptr
  %next_at = getelementptr i64, ptr %job, i64 8
  %inside_at = getelementptr i64, ptr %job, i64 16
  %blocks_at = getelementptr i64, ptr %job, i64 27
  br label %look
look:
  %turn = phi i64 [0, %0], [%next_turn, %pause], [0, %leave]
  %open = load atomic i64, ptr %job acquire, align 8
  %next = load atomic i64, ptr %next_at monotonic, align 8
  %blocks = load atomic i64, ptr %blocks_at monotonic, align 8
  %is_open = icmp ne i64 %open, 0
  %is_left = icmp slt i64 %next, %blocks
  %useful = and i1 %is_open, %is_left
  br i1 %useful, label %enter, label %wait
wait:
  %next_turn = add i64 %turn, 1
  %more = icmp slt i64 %next_turn, %looks
  br i1 %more, label %pause, label %end
pause:
  {pause}
  br label %look
enter:
  %others = atomicrmw add ptr %inside_at, i64 1 seq_cst
  %still = load atomic i64, ptr %job seq_cst, align 8
  %is_still = icmp ne i64 %still, 0
  br i1 %is_still, label %work, label %leave
work:
  call void @claim(ptr %job)
  br label %leave
leave:
  %before = atomicrmw sub ptr %inside_at, i64 1 seq_cst
  br label %look
end:
  ret void
}}
"""


class Team:
    """One job at a time: a caller opens it, and the workers that are awake help with it.

    Owns: the job's memory, which the workers hold as long as they serve.
    """

    def __init__(self) -> None:
        code = _functions()
        self._lead = ctypes.CFUNCTYPE(None)(code["hal_lead"].entry)
        self._serve = ctypes.CFUNCTYPE(None)(code["hal_serve"].entry)
        room = (ctypes.c_int64 * 40)()
        self._job = (ctypes.c_int64 * 32).from_buffer(room, -ctypes.addressof(room) % 64)
        self._address = ctypes.c_int64(ctypes.addressof(self._job))
        self._looks = ctypes.c_int64(_LOOKS)
        self._busy = threading.Lock()
        self.coming = False  # True: a caller has woken workers and is about to open its job

    def lead(self, kernel: int, args: bytes, launch: Any, blocks: Any, chunk: int) -> bool:
        """Run the blocks of a launch together with the workers that are awake.

        Return False, with nothing run, if the team has another launch. `kernel` is the address of
        the function.
        """
        if not self._busy.acquire(blocking=False):
            return False
        try:
            self._job[24], self._job[28] = kernel, chunk
            self._lead(args, launch, self._address, blocks)
        finally:
            self._busy.release()
        return True

    def serve(self) -> None:
        """Help with every job, until none was open for some time."""
        # A worker that wakes may have taken the caller's own core from it.
        while self.coming and not self._job[0]:
            time.sleep(1e-6)
        self._serve(None, None, self._address, self._looks)


def make_team() -> Team | None:
    """Return a new team; None where its code cannot be made."""
    if driver.symbol_address(YIELD) is None:
        return None
    try:
        return Team()
    except HalError:
        return None


@cache
def _functions() -> dict[str, loader.Code]:
    return compiled(_TEXT, "hal_lead", "hal_serve")


def compiled(text: str, *names: str) -> dict[str, loader.Code]:
    """Compile functions in which threads wait for each other; the compile cache keeps the code."""
    from hal_cpu.compilers.llvm import LLVMCompiler
    from hal_cpu.device import LOADER

    declare_pause, pause = PAUSES[processor.machine()]
    whole = text.format(yield_=YIELD, declare_pause=declare_pause, pause=pause, spins=_SPINS)
    options = CompileOptions(names[0], Signature.parse(names[0], ""), rendered=True)
    image = LLVMCompiler().compile_cached(whole, options)
    load = loader.named(LOADER.read())
    return {name: load(image, name, name) for name in names}
