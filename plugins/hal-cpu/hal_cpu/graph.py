"""Replay of a graph by one call of machine code, in which all cores take part.

    phase 0: kernel f, cut in two        core 0: f blocks 0-31      core 1: f blocks 32-63
             ------------ both are done: each core has waited for the other ------------
    phase 1: small kernels g, h, i       core 0: g, h, i            core 1: waits
    ...

A phase has a task for each core that takes part, so that a core works on the same memory from phase
to phase. A task has steps, which run in order. A core that has waited for a while does the task
that another has not begun: one that comes late runs past the phases that are done, and one that
never comes is not missed. A wait spins briefly, then yields, then sleeps.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import struct
from collections.abc import Callable
from functools import cache
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from hal_core.errors import HalError
from hal_core.graph.node import COPY, COPYIN, Step
from hal_cpu import driver, loader
from hal_cpu.program import CPUProgram
from hal_cpu.threads.stacks import STACK_NBYTES, stack_nbytes
from hal_cpu.threads.team import YIELD, compiled

if TYPE_CHECKING:
    from hal_core.device.base import Compiled
    from hal_cpu.device import CPUDevice

_RELEASING: Any = ctypes.CFUNCTYPE(None)
_ALONE = ctypes.c_int64(0), ctypes.c_int64(0)
SPLIT_FROM = 100_000  # operations; with fewer, waiting for other cores costs more than they save
SHARED_FROM = 10 * SPLIT_FROM  # operations of a phase; with fewer, measured times decide
_LINE_NBYTES = 64
_TRIED_EACH = 32  # calls, after which the slower way is tried again if both take about as long
_PATIENCE = 16  # looks at a task that its core has not begun, before another does it

# The plan is: number of phases; addresses of the phases, the tasks and the steps. A phase has its
# first task and their number, a task its first step and the one behind its last, a step the address
# of its function and that function's four arguments. `%args` has the addresses of the plan and of
# the state: a cache line that is 1 at the end, then one for each task of a phase. That is 2p + 1
# while a core does the task in phase p, and 2p + 2 from its end until it begins in a later phase.
# `%me` is the number of the core; `%last` is 0 for one that works alone and need not wait.
_TEXT = """
{declare_waits}
declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)

define internal void @run_task(ptr %tasks, ptr %steps, i64 %t) {{
  %task_at = getelementptr [2 x i64], ptr %tasks, i64 %t
  %first_step = load i64, ptr %task_at
  %last_step_at = getelementptr i64, ptr %task_at, i64 1
  %last_step = load i64, ptr %last_step_at
  br label %step
step:
  %s = phi i64 [%first_step, %0], [%next_s, %run]
  %more = icmp ult i64 %s, %last_step
  br i1 %more, label %run, label %end
run:
  %step_at = getelementptr [5 x i64], ptr %steps, i64 %s
  %function = load ptr, ptr %step_at
  %a_at = getelementptr i64, ptr %step_at, i64 1
  %a = load ptr, ptr %a_at
  %l_at = getelementptr i64, ptr %step_at, i64 2
  %l = load ptr, ptr %l_at
  %from_at = getelementptr i64, ptr %step_at, i64 3
  %from = load i64, ptr %from_at
  %to_at = getelementptr i64, ptr %step_at, i64 4
  %to = load i64, ptr %to_at
  call void %function(ptr %a, ptr %l, i64 %from, i64 %to)
  %next_s = add i64 %s, 1
  br label %step
end:
  ret void
}}

define void @hal_graph(ptr %args, ptr %launch, i64 %me, i64 %last) {{
  %plan = load ptr, ptr %args
  %state_at = getelementptr i64, ptr %args, i64 1
  %state = load ptr, ptr %state_at
  %count = load i64, ptr %plan
  %phases_at = getelementptr i64, ptr %plan, i64 1
  %phases = load ptr, ptr %phases_at
  %tasks_at = getelementptr i64, ptr %plan, i64 2
  %tasks = load ptr, ptr %tasks_at
  %steps_at = getelementptr i64, ptr %plan, i64 3
  %steps = load ptr, ptr %steps_at
  %ended = load atomic i64, ptr %state acquire, align 8
  %is_alone = icmp eq i64 %last, 0
  %is_ended = icmp ne i64 %ended, 0
  br i1 %is_ended, label %end, label %phase
phase:
  %p = phi i64 [0, %0], [%next_p, %over]
  %left = icmp ult i64 %p, %count
  br i1 %left, label %begin, label %mark
begin:
  %phase_at = getelementptr [2 x i64], ptr %phases, i64 %p
  %first_task = load i64, ptr %phase_at
  %task_count_at = getelementptr i64, ptr %phase_at, i64 1
  %task_count = load i64, ptr %task_count_at
  %twice = shl i64 %p, 1
  %begun = add i64 %twice, 1
  %done = add i64 %twice, 2
  %has_own = icmp ult i64 %me, %task_count
  %own = select i1 %has_own, i64 %me, i64 0
  br label %task
task:
  %seen = phi i64 [0, %begin], [%next_seen, %after]
  %some = icmp ult i64 %seen, %task_count
  br i1 %some, label %choose, label %over
choose:
  %sum = add i64 %own, %seen
  %wraps = icmp uge i64 %sum, %task_count
  %wrapped = sub i64 %sum, %task_count
  %t = select i1 %wraps, i64 %wrapped, i64 %sum
  %line = add i64 %t, 1
  %word = getelementptr [8 x i64], ptr %state, i64 %line
  %is_mine = icmp eq i64 %t, %me
  %at_once = or i1 %is_mine, %is_alone
  %patience = select i1 %at_once, i64 0, i64 {patience}
  br label %look
look:
  %turn = phi i64 [0, %choose], [%next_turn, %pause], [%next_turn, %yield], [%next_turn, %nap],
                  [%turn, %claim]
  %found = load atomic i64, ptr %word acquire, align 8
  %is_done = icmp uge i64 %found, %done
  br i1 %is_done, label %after, label %ask
ask:
  %is_free = icmp ult i64 %found, %begun
  %is_late = icmp uge i64 %turn, %patience
  %takes = and i1 %is_free, %is_late
  br i1 %takes, label %claim, label %wait
claim:
  %pair = cmpxchg ptr %word, i64 %found, i64 %begun acq_rel acquire
  %claimed = extractvalue {{i64, i1}} %pair, 1
  br i1 %claimed, label %run, label %look
run:
  %number = add i64 %first_task, %t
  call void @run_task(ptr %tasks, ptr %steps, i64 %number)
  store atomic i64 %done, ptr %word release, align 8
  br label %after
{wait}after:
  %next_seen = add i64 %seen, 1
  br label %task
over:
  %next_p = add i64 %p, 1
  br label %phase
mark:
  store atomic i64 1, ptr %state release, align 8
  br label %end
end:
  ret void
}}

define void @hal_copy(ptr %args, ptr %launch, i64 %first, i64 %last) {{
  %to = load ptr, ptr %args
  %from_at = getelementptr i64, ptr %args, i64 1
  %from = load ptr, ptr %from_at
  %nbytes_at = getelementptr i64, ptr %args, i64 2
  %nbytes = load i64, ptr %nbytes_at
  call void @llvm.memmove.p0.p0.i64(ptr %to, ptr %from, i64 %nbytes, i1 false)
  ret void
}}

define void @hal_fill(ptr %args, ptr %launch, i64 %first, i64 %last) {{
  %to = load ptr, ptr %args
  %nbytes_at = getelementptr i64, ptr %args, i64 1
  %nbytes = load i64, ptr %nbytes_at
  %pattern = getelementptr i64, ptr %args, i64 2
  %eight = load i64, ptr %pattern
  %words = lshr i64 %nbytes, 3
  br label %word
word:
  %w = phi i64 [0, %0], [%next_w, %store]
  %more_words = icmp ult i64 %w, %words
  br i1 %more_words, label %store, label %rest
store:
  %word_at = getelementptr i64, ptr %to, i64 %w
  store i64 %eight, ptr %word_at, align 1
  %next_w = add i64 %w, 1
  br label %word
rest:
  %done_nbytes = shl i64 %words, 3
  %end_at = getelementptr i8, ptr %to, i64 %done_nbytes
  %left = and i64 %nbytes, 7
  call void @llvm.memmove.p0.p0.i64(ptr %end_at, ptr %pattern, i64 %left, i1 false)
  ret void
}}
"""
_WORDS = struct.Struct("@3Q").pack


class Piece(NamedTuple):
    """Blocks of one step's kernel, or a whole copy or fill."""

    function: int  # its address
    args: bytes
    launch: int  # address of the grid and block; 0 for copies and fills
    first: int
    last: int


class Faster:
    """The faster of two ways to do the same, 0 and 1, as measured times tell.

    The other one is tried now and then, the more rarely the slower it was, as load comes and goes:
    cores that meet at each step lose where another program takes one of them.
    """

    def __init__(self) -> None:
        self._seconds = [0.0, 0.0]  # that each way took of late; 0: it was not tried yet
        self._left = 3  # calls until the slower one is tried

    def choose(self) -> int:
        """Return the way to go now."""
        best = int(self._seconds[1] < self._seconds[0])
        self._left -= 1
        if self._left > 0:
            return best
        ratio = self._seconds[1 - best] / max(self._seconds[best], 1e-9)
        self._left = int(_TRIED_EACH * min(ratio, 1000.0)) + 1
        return 1 - best

    def note(self, way: int, seconds: float) -> None:
        """Note how long a way took. One slow call may be chance; a fast call is not."""
        before = self._seconds[way] or seconds
        self._seconds[way] = min(seconds, 0.75 * before + 0.25 * min(seconds, 2 * before))


class NativeReplay:
    """A graph's steps with the memory of one replay, as a plan for the machine code.

    Owns: the code of its programs and the plan; the memory is the caller's.
    Concurrency: replays that overlap have states of their own.
    """

    def __init__(self, device: CPUDevice, steps: list[Step]) -> None:
        self._device = device
        self._kept: list[Any] = [code := _functions(), steps]
        self._function = _RELEASING(code["hal_graph"].entry)
        self._function.code = code["hal_graph"]  # for the team, which calls it by its address
        self._cores = device.pool.threads
        tasks: list[list[Piece]] = []
        phases: list[tuple[int, int]] = []  # first task, and their number
        alone = False  # the last phase has one task, which takes further small steps
        for level in _levels(steps):
            shares = self._shares(level)
            if len(shares) == 1 and alone:
                tasks[-1] += shares[0]
            else:
                phases.append((len(tasks), len(shares)))
                tasks += shares
            alone = len(shares) == 1
        cores = max(count for _, count in phases)
        self._chunks = [(ctypes.c_int64(core), ctypes.c_int64(core + 1)) for core in range(cores)]
        self._plan = self._laid_out(phases, tasks)
        self._ways = Faster() if sum(map(_operations, steps)) < SHARED_FROM * len(phases) else None
        self._addresses = sorted({
            step.args[param.position]
            for step in steps if step.program is not None
            for param in step.program.signature.pointers
        } | {address for step in steps if step.program is None for address in step.args[:2]
             if step.kind == COPY or address is step.args[0]})  # fmt: skip

    def __call__(self) -> None:
        """Run the graph once, on all cores where a phase is worth it."""
        state = ctypes.create_string_buffer(_LINE_NBYTES * (len(self._chunks) + 2))
        start = (ctypes.addressof(state) + _LINE_NBYTES - 1) & -_LINE_NBYTES
        args = struct.pack("@2Q", ctypes.addressof(self._plan), start)
        with self._device.in_flight.using(*self._addresses):
            if len(self._chunks) == 1:
                self._function(args, None, *_ALONE)
            elif self._ways is None:
                self._device.pool.run(self._function, args, None, self._chunks)
            else:
                self._run_faster(self._ways, args)

    def _run_faster(self, ways: Faster, args: bytes) -> None:
        way, start = ways.choose(), perf_counter()
        if way == 0:
            self._device.pool.run(self._function, args, None, self._chunks)
        else:
            self._function(args, None, *_ALONE)
        ways.note(way, perf_counter() - start)

    def _shares(self, level: list[Step]) -> list[list[Piece]]:
        """Return what each core does of steps that have no order among them."""
        works = [_operations(step) for step in level]
        count = min(self._cores, 2 * sum(works) // SPLIT_FROM)
        if count < 2:
            return [[piece for step in level for piece in self._pieces(step, 1)]]
        shares: list[list[Piece]] = [[] for _ in range(count)]
        turn = itertools.count()
        for step, work in zip(level, works, strict=True):
            for piece in self._pieces(step, min(count, 2 * work // SPLIT_FROM)):
                shares[next(turn) % count].append(piece)
        return [share for share in shares if share]

    def _pieces(self, step: Step, count: int) -> list[Piece]:
        """Return the step in `count` pieces if it can be cut, else as one."""
        if not isinstance(step.program, CPUProgram):
            return [self._memory_piece(step)]
        program, (_, where, _) = step.program, step.geometry
        code: Any = program.code
        self._kept += [code, where, args := program._pack(*step.args)]
        launch = ctypes.addressof(where._obj)
        blocks = math.prod(where._obj[:3])
        count = max(1, min(blocks, count))
        bounds = [blocks * number // count for number in range(count + 1)]
        return [Piece(code.entry, args, launch, *pair) for pair in itertools.pairwise(bounds)]

    def _memory_piece(self, step: Step) -> Piece:
        functions = self._kept[0]
        if step.kind == COPY:
            args, name = _WORDS(*step.args[:3]), "hal_copy"
        elif step.kind == COPYIN:
            address, holder = driver.address_of(step.args[1])
            self._kept.append(holder)
            args, name = _WORDS(step.args[0], address, step.args[1].nbytes), "hal_copy"
        else:
            dest, nbytes, pattern = step.args
            eight = pattern * (8 // len(pattern))
            args, name = struct.pack("@2Q", dest, nbytes) + eight, "hal_fill"
        self._kept.append(args)
        return Piece(functions[name].entry, args, 0, 0, 1)

    def _laid_out(self, phases: list[tuple[int, int]], tasks: list[list[Piece]]) -> Any:
        """Return the plan's memory, which keeps its parts."""
        rows: list[Piece] = []
        bounds: list[int] = []
        for pieces in tasks:
            bounds += [len(rows), len(rows) + len(pieces)]
            rows += pieces
        words: list[int] = []
        for piece in rows:
            address = ctypes.cast(ctypes.c_char_p(piece.args), ctypes.c_void_p).value or 0
            words += [piece.function, address, piece.launch, piece.first, piece.last]
        parts = [
            (ctypes.c_uint64 * len(part))(*part)
            for part in (list(itertools.chain.from_iterable(phases)), bounds, words)
        ]
        self._kept.append(parts)
        return (ctypes.c_uint64 * 4)(len(phases), *map(ctypes.addressof, parts))


def native_replay(device: Compiled, steps: list[Step]) -> Callable[[], None] | None:
    """Return what replays the steps in one call; None where they run one by one.

    They do where a kernel may need a stack of its own, and where the code for replays cannot be
    made.
    """
    programs = [step.program for step in steps if step.program is not None]
    if any(not isinstance(one, CPUProgram) or one._moved is not None for one in programs):
        return None
    if not steps or stack_nbytes() < STACK_NBYTES or driver.symbol_address(YIELD) is None:
        return None
    try:
        _functions()
    except HalError:
        return None
    return NativeReplay(device, steps)  # type: ignore[arg-type]  # the CPU's device calls it


def _operations(step: Step) -> int:
    """Return about how much work a step is, as the kernel IR counts it."""
    if isinstance(step.program, CPUProgram):
        return (step.program.binary.interface.work or 1) * int(math.prod(step.geometry[1]._obj))
    return int(step.args[1].nbytes if step.kind == COPYIN else step.args[-2]) // 8


def _levels(steps: list[Step]) -> list[list[Step]]:
    """Return steps that come after nothing, those that come after only these, and so on."""
    depths: list[int] = []
    levels: list[list[Step]] = []
    for step in steps:
        depth = 1 + max((depths[number] for number in step.dependencies), default=-1)
        depths.append(depth)
        if depth == len(levels):
            levels.append([])
        levels[depth].append(step)
    return levels


@cache
def _functions() -> dict[str, loader.Code]:
    return compiled(
        _TEXT.replace("{patience}", str(_PATIENCE)), "hal_graph", "hal_copy", "hal_fill"
    )
