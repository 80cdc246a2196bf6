"""Machine code in which threads share the blocks of a launch, without Python and its lock.

    caller, thread 0                              worker 1, which has just worked
    writes the job, a part for each thread        looks at the job for about 0.2 ms, then sleeps
    opens it                                      sees it open: enters
    claims chunks of part 0 until none is left    claims chunks of part 1 until none is left
    claims what is left of part 1                 claims what is left of part 0, leaves
    closes it, and waits until nobody is inside   looks for the next job

So a thread has the same part of each launch, and finds what it wrote in the cache of its core. A
thread that sleeps takes 10 to 50 us to wake, and two that take turns with Python's lock lose as
much with each chunk. A worker that comes late finds less to claim, and one that never comes is not
missed.

Beside other busy processes a thread loses its core for milliseconds at a time. So a thread that
waits soon sleeps: one that loops, or yields over and over, has used up its share of the processor
when there is work again, and the threads of a launch then run by turns.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from functools import cache
from typing import Any

from hal_core.errors import HalError
from hal_core.source import Source
from hal_cpu import driver, loader, processor
from hal_cpu.settings import LOADER

YIELD = "NtYieldExecution" if sys.platform == "win32" else "sched_yield"
_NAP = "NtYieldExecution" if sys.platform == "win32" else "usleep"  # Windows sleeps 1 ms at least
PAUSES = {
    "x86-64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "aarch64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
}
_LOOKS = 8000  # how often an idle worker looks at the job before it sleeps; each takes 10 to 40 ns
_SPINS = 1000  # looks of a thread that waits for others, before its core is offered to them
_NAPS_FROM = 1200  # looks before it sleeps; on a quiet machine an offer takes 0.3 us

CHUNKS_PER_THREAD = 4  # so that threads that start late or are slowed down do less

_DECLARE_WAITS = """
declare i32 @{yield_}()
declare i32 @{nap}(i32)
{declare_pause}
"""
# From `wait` to the next look at what another thread has done.
_WAIT = """wait:
  %next_turn = add i64 %turn, 1
  %spins = icmp ult i64 %turn, {spins}
  br i1 %spins, label %pause, label %offer
pause:
  {pause}
  br label %look
offer:
  %is_early = icmp ult i64 %turn, {naps_from}
  br i1 %is_early, label %yield, label %nap
yield:
  %yielded = call i32 @{yield_}()
  br label %look
nap:
  %napped = call i32 @{nap}(i32 1)
  br label %look
"""

# A job has words of 64 bits: 0 its number while it is open, else 0; 8 the threads inside, in a
# cache line of its own; 16 the kernel, 17 its arguments, 18 the launch, 19 the blocks of a chunk,
# 20 the parts, 21 the number of the last job. From 24 on each part has a cache line: the next
# block, and the one behind its last.
_TEXT = """
{declare_waits}

define internal ptr @part(ptr %job, i64 %number) {{
  %line = mul i64 %number, 8
  %at = add i64 %line, 24
  %part = getelementptr i64, ptr %job, i64 %at
  ret ptr %part
}}

define internal void @claim(ptr %job, i64 %me) {{
  %kernel_at = getelementptr i64, ptr %job, i64 16
  %kernel = load ptr, ptr %kernel_at
  %args_at = getelementptr i64, ptr %job, i64 17
  %args = load ptr, ptr %args_at
  %launch_at = getelementptr i64, ptr %job, i64 18
  %launch = load ptr, ptr %launch_at
  %chunk_at = getelementptr i64, ptr %job, i64 19
  %chunk = load i64, ptr %chunk_at
  %parts_at = getelementptr i64, ptr %job, i64 20
  %parts = load i64, ptr %parts_at
  br label %part
part:
  %turn = phi i64 [0, %0], [%next_turn, %over]
  %sum = add i64 %me, %turn
  %number = urem i64 %sum, %parts
  %next_at = call ptr @part(ptr %job, i64 %number)
  %behind_at = getelementptr i64, ptr %next_at, i64 1
  %behind = load i64, ptr %behind_at
  br label %look
look:
  %next = load atomic i64, ptr %next_at monotonic, align 8
  %some = icmp slt i64 %next, %behind
  br i1 %some, label %claim, label %over
claim:
  %first = atomicrmw add ptr %next_at, i64 %chunk monotonic
  %is_mine = icmp slt i64 %first, %behind
  br i1 %is_mine, label %run, label %over
run:
  %after = add i64 %first, %chunk
  %short = icmp slt i64 %behind, %after
  %last = select i1 %short, i64 %behind, i64 %after
  call void %kernel(ptr %args, ptr %launch, i64 %first, i64 %last)
  br label %look
over:
  %next_turn = add i64 %turn, 1
  %more = icmp ult i64 %next_turn, %parts
  br i1 %more, label %part, label %end
end:
  ret void
}}

define void @hal_lead(ptr %args, ptr %launch, ptr %job, i64 %blocks) {{
  %args_at = getelementptr i64, ptr %job, i64 17
  store ptr %args, ptr %args_at
  %launch_at = getelementptr i64, ptr %job, i64 18
  store ptr %launch, ptr %launch_at
  %parts_at = getelementptr i64, ptr %job, i64 20
  %parts = load i64, ptr %parts_at
  %chunks = mul i64 %parts, {chunks}
  %others = sub i64 %blocks, 1
  %most = udiv i64 %others, %chunks
  %chunk = add i64 %most, 1
  %chunk_at = getelementptr i64, ptr %job, i64 19
  store i64 %chunk, ptr %chunk_at
  %each = udiv i64 %blocks, %parts
  %left = urem i64 %blocks, %parts
  br label %part
part:
  %number = phi i64 [0, %0], [%next_number, %part]
  %first = phi i64 [0, %0], [%behind, %part]
  %is_longer = icmp ult i64 %number, %left
  %more = zext i1 %is_longer to i64
  %size = add i64 %each, %more
  %behind = add i64 %first, %size
  %next_at = call ptr @part(ptr %job, i64 %number)
  store i64 %first, ptr %next_at
  %behind_at = getelementptr i64, ptr %next_at, i64 1
  store i64 %behind, ptr %behind_at
  %next_number = add i64 %number, 1
  %is_more = icmp ult i64 %next_number, %parts
  br i1 %is_more, label %part, label %open
open:
  %last_at = getelementptr i64, ptr %job, i64 21
  %last_job = load i64, ptr %last_at
  %this_job = add i64 %last_job, 1
  store i64 %this_job, ptr %last_at
  store atomic i64 %this_job, ptr %job seq_cst, align 8
  call void @claim(ptr %job, i64 0)
  store atomic i64 0, ptr %job seq_cst, align 8
  %inside_at = getelementptr i64, ptr %job, i64 8
  br label %look
look:
  %turn = phi i64 [0, %open], [%next_turn, %pause], [%next_turn, %yield], [%next_turn, %nap]
  %inside = load atomic i64, ptr %inside_at seq_cst, align 8
  %none = icmp eq i64 %inside, 0
  br i1 %none, label %end, label %wait
{wait}end:
  ret void
}}

define i64 @hal_serve(ptr %job, i64 %me, i64 %looks) {{
  %inside_at = getelementptr i64, ptr %job, i64 8
  br label %look
look:
  %turn = phi i64 [0, %0], [%next_turn, %pause], [0, %leave]
  %done = phi i64 [0, %0], [%done, %pause], [%still, %leave]
  %open = load atomic i64, ptr %job acquire, align 8
  %is_open = icmp ne i64 %open, 0
  %is_new = icmp ne i64 %open, %done
  %useful = and i1 %is_open, %is_new
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
  call void @claim(ptr %job, i64 %me)
  br label %leave
leave:
  %before = atomicrmw sub ptr %inside_at, i64 1 seq_cst
  br label %look
end:
  ret i64 %done
}}
"""


class Team:
    """One job at a time: a caller opens it, and the workers that are awake help with it.

    Owns: the job's memory, which the workers hold as long as they serve.
    """

    def __init__(self, threads: int) -> None:
        code = _functions()
        self._lead = ctypes.CFUNCTYPE(None)(code["hal_lead"].entry)
        self._serve = ctypes.CFUNCTYPE(ctypes.c_int64)(code["hal_serve"].entry)
        words = 24 + 8 * threads
        room = (ctypes.c_int64 * (words + 8))()
        self._job = (ctypes.c_int64 * words).from_buffer(room, -ctypes.addressof(room) % 64)
        self._job[20] = threads
        self._address = ctypes.c_int64(ctypes.addressof(self._job))
        self._looks = ctypes.c_int64(_LOOKS)
        self._busy = threading.Lock()
        self.coming = False  # True: a caller has woken workers and is about to open its job

    def lead(self, kernel: int, args: bytes, launch: Any, blocks: Any) -> bool:
        """Run the blocks of a launch together with the workers that are awake.

        Return False, with nothing run, if the team has another launch. `kernel` is the address of
        the function.
        """
        # In one step: behind a call of `acquire` Ctrl-C may come, and the team would stay busy.
        (free,) = map(self._busy.acquire, [False])
        if not free:
            return False
        try:
            self._job[16] = kernel
            self._lead(args, launch, self._address, blocks)
        finally:
            self._busy.release()
        return True

    def serve(self, me: int) -> bool:
        """Help with every job as thread `me`, from 1 on, until none was open for some time.

        Return True if another launch has begun meanwhile: it saw no idle worker, and woke none.
        """
        # A worker that wakes may have taken the caller's own core from it.
        while self.coming and not self._job[0]:
            time.sleep(1e-6)
        last = self._serve(self._address, ctypes.c_int64(me), self._looks)
        return self.coming and self._job[0] != last


def make_team(threads: int) -> Team | None:
    """Return a new team; None where its code cannot be made."""
    if driver.symbol_address(YIELD) is None:
        return None
    try:
        return Team(threads)
    except HalError:
        return None


@cache
def _functions() -> dict[str, loader.Code]:
    return compiled(_TEXT, "hal_lead", "hal_serve")


def compiled(text: str, *names: str) -> dict[str, loader.Code]:
    """Compile functions in which threads wait for each other; the compile cache keeps the code."""
    from hal_cpu.compilers.llvm import LLVMCompiler

    declare_pause, pause = PAUSES[processor.machine()]
    words = {
        "yield_": YIELD, "nap": _NAP, "declare_pause": declare_pause, "pause": pause,
        "spins": _SPINS, "naps_from": _NAPS_FROM, "chunks": CHUNKS_PER_THREAD,
    }  # fmt: skip
    waits = {"wait": _WAIT.format(**words), "declare_waits": _DECLARE_WAITS.format(**words)}
    whole = text.format(**words, **waits)
    source = Source(names[0], whole, "", language="llvm", rendered=True)
    image, _ = LLVMCompiler().compile_or_reuse(source)
    load = loader.named(LOADER.read())
    return {name: load(image, name, name) for name in names}
