"""Split a kernel at its barriers, for machines that run the threads of a block in a loop.

    s = hal.shared(hal.float32, 64)
    t = hal.thread_idx(0)
    v = x[t]
    s[t] = v
    hal.barrier()
    y[t] = s[63 - t] + v

     0 PARAM 0                   |  0 PARAM 0
     1 PARAM 1                   |  1 PARAM 1
     2 SHARED ('s', 64)          |  2 SHARED ('s', 64)
     3 SPECIAL ('thread_idx', 0) |  3 CONST 63
     4 LOAD %1 %3                |  4 SPILL load
     5 STORE %2 %3 %4            |  5 THREADS True
     6 BARRIER                   |  6   SPECIAL ('thread_idx', 0)
     7 CONST 63                  |  7   LOAD %1 %6
     8 SUB %7 %3                 |  8   SET %4 %7
     9 LOAD %2 %8                |  9   STORE %2 %6 %7
    10 ADD %9 %4                 | 10 ENDTHREADS %5
    11 STORE %0 %3 %10           | 11 THREADS True
                                 | 12   SPECIAL ('thread_idx', 0)
                                 | 13   GET %4
                                 | 14   SUB %3 %12
                                 | 15   LOAD %2 %14
                                 | 16   ADD %15 %13
                                 | 17   STORE %0 %12 %16
                                 | 18 ENDTHREADS %11

The loaded value is live across the barrier, so it is kept in an array with one element per thread,
its SPILL. The thread's index is cheap, and is computed again instead.

The result is a list of nodes like a kernel's, without BARRIERs and with these:

| op | src | arg | meaning |
| --- | --- | --- | --- |
| THREADS | | bool | each thread of the block runs the region; True: in any interleaving |
| ENDTHREADS | its THREADS | | the end of the loop over the threads |
| SPILL | | name | a variable of each thread that is live from one region to a later one |

A *region* is the nodes between THREADS and ENDTHREADS; renderers write the loops over the threads
around it. Nodes outside of regions run once per block. A RETURN outside of regions ends the block,
a RETURN inside a region ends its thread. SPILLs are declared before the first region; a SET or GET
of a SPILL stands in a region, and accesses the element of the running thread.

Source: Stratton, Stone, Hwu: MCUDA, 2008 (loop fission, selective replication).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from hal_core.dtypes import bool_, float32, float64
from hal_core.errors import Unsupported
from hal_kernel.ir.blocks.common_loads import with_common_loads, without_repeated_loads
from hal_kernel.ir.blocks.counting import with_ranges
from hal_kernel.ir.blocks.early_loads import with_early_loads
from hal_kernel.ir.blocks.groups import (
    WIDE,
    Registers,
    counts_in_groups,
    in_groups,
    runs_in_parts,
)
from hal_kernel.ir.blocks.hoisting import Hoisted, is_common
from hal_kernel.ir.blocks.independence import stores_last
from hal_kernel.ir.blocks.leaving import with_lockstep
from hal_kernel.ir.blocks.local_arrays import with_common_arrays
from hal_kernel.ir.blocks.lockstep import Lockstep, in_step
from hal_kernel.ir.blocks.region import Region, enclosed
from hal_kernel.ir.blocks.returns import without_returns
from hal_kernel.ir.blocks.row_loops import in_row_groups, in_rows, repeats_vectors
from hal_kernel.ir.blocks.running import with_products
from hal_kernel.ir.blocks.shortcuts import without_shortcuts
from hal_kernel.ir.blocks.stores import with_one_store
from hal_kernel.ir.blocks.unrolling import with_bits, with_elements
from hal_kernel.ir.blocks.values import with_values
from hal_kernel.ir.blocks.windows import with_windows
from hal_kernel.ir.uop import ATOMIC_OPS, PURE, Kernel, UOp

SPILL_LIMIT = 256 << 10  # bytes per block: often half of a core's second-level cache
_ROUNDS = 8  # of hoisting; each may cut regions and so make more values cross
_CHEAP = PURE - {
    "DIV", "POW", "ATAN2", "FMOD", "FLOORDIV", "MOD", "TRUNCDIV", "TRUNCMOD", "SQRT", "RSQRT",
    "EXP", "EXP2", "LOG", "LOG2", "SIN", "COS", "TAN", "TANH", "ATAN",
}  # fmt: skip
# Rows in parts or not, and whether threads may leave a loop one by one: the first that gains.
_WAYS = ((True, True), (False, True), (True, False), (False, False))
_DEPTH = {"IF": 1, "ENDIF": -1}
_MEMORY = frozenset({"PARAM", "SHARED", "TABLE", "VIEW"})
_MOST_AGAIN = 12  # nodes that a region may compute again; a longer computation gets a SPILL


def split(kernel: Kernel, grouped: bool = False, registers: Registers = WIDE) -> tuple[UOp, ...]:
    """Return the nodes of a verified kernel, split into regions.

    `grouped` marks the loops that a few threads should run at a time: `groups.py`. It is for LLVM,
    which makes vectors of longer bodies than other compilers, so that loops over bits are written
    out for it. The variables of such a group fill half of the `registers`.

    Raises: Unsupported when the values that live across barriers are too large for a block.
    """
    written_out = with_elements(kernel)
    if written_out is not kernel:
        with suppress(Unsupported):  # elements that live across barriers take SPILLs, as variables
            return _split(written_out, grouped, registers)
    return _split(kernel, grouped, registers)


def _split(kernel: Kernel, grouped: bool, registers: Registers) -> tuple[UOp, ...]:
    threads = kernel.most_threads
    kernel = with_common_arrays(kernel, threads)
    uops = without_shortcuts(without_returns(with_common_loads(kernel.uops)))
    uops = with_one_store(uops) if grouped else uops
    uops = with_ranges(without_repeated_loads(with_values(uops)))
    uops = with_windows(with_bits(uops) if grouped else uops)
    uops = with_early_loads(with_products(uops))
    kernel = kernel._replace(uops=uops)
    found = in_rows(kernel) if grouped else None
    if found and repeats_vectors(made := _Fission(found).whole(grouped, registers)):
        return tuple(made)
    leaving = with_lockstep(kernel.uops) if grouped else None
    for in_parts, leaves in _WAYS if grouped else _WAYS[-1:]:
        found = in_step(kernel, in_parts, leaving if leaves else None)
        made = _Fission(found).whole(grouped, registers) if found else []
        if found is None or (
            (not found.flat or runs_in_parts(made, found.strides))
            and (
                not found.leaves
                or (counts_in_groups(made) and spill_nbytes(made, threads) <= SPILL_LIMIT)
            )
        ):
            break
    # Hoisted loops cut regions, and more values cross. If they are too many, the loops stay inside:
    # slower, but the kernel runs.
    if found and spill_nbytes(made, threads) <= SPILL_LIMIT:
        return tuple(made)
    if "BARRIER" not in [node.op for node in kernel.uops]:
        return in_one_region(kernel.uops)
    return _fitting(kernel, _Fission(Lockstep(kernel.uops)).whole(grouped, registers))


def at_barriers(kernel: Kernel) -> tuple[UOp, ...]:
    """Return the nodes of a verified kernel, split into regions at its barriers and nowhere else.

    Raises: Unsupported when the values that live across barriers are too large for a block.
    """
    kernel = with_common_arrays(kernel, kernel.most_threads)
    return _fitting(kernel, _Fission(Lockstep(kernel.uops)).whole(False, WIDE))


def _fitting(kernel: Kernel, made: Sequence[UOp]) -> tuple[UOp, ...]:
    """Return the nodes of a kernel that was split, unless its SPILLs are too large for a block."""
    threads = kernel.most_threads
    nbytes = spill_nbytes(made, threads)
    if nbytes > SPILL_LIMIT:
        spills = [node for node in made if node.op == "SPILL"]
        names = dict.fromkeys(
            f"{node.arg} (line {node.line})" if node.line else str(node.arg) for node in spills
        )
        raise Unsupported(
            f"render kernel {kernel.name!r}",
            f"{nbytes} bytes live across barriers in a block of {threads} threads: "
            + ", ".join(names),
            got=nbytes,
            limit=SPILL_LIMIT,
            fix="Fix a smaller block (@hal.kernel(block=...)), or keep less across barriers.",
        )
    return tuple(made)


def in_one_region(uops: Sequence[UOp], claims: bool = True) -> tuple[UOp, ...]:
    """Return the nodes of a kernel without barriers as one region, in their order.

    `claims=False`: the compiler is not told that its threads may be interleaved.
    """
    loads = [node for node in uops if node.op == "LOAD" and is_common(node)]
    ahead = {*loads, *(node.src[1] for node in loads)}
    front = [node for node in uops if node.op in _MEMORY or node in ahead]
    body = [node for node in uops if node.op not in _MEMORY and node not in ahead]
    threads = UOp("THREADS", None, (), claims and stores_last(body))
    return (*front, threads, *body, UOp("ENDTHREADS", None, (threads,)))


def spill_nbytes(uops: Sequence[UOp], block_threads: int) -> int:
    """Return the bytes of all SPILLs of a block, each rounded up to 64."""
    sizes = [node.dtype.itemsize for node in uops if node.op == "SPILL" and node.dtype]
    return sum(-(-size * block_threads // 64) * 64 for size in sizes)


class _Plan:
    """A kernel cut into parts in order: hoisted nodes, and regions as lists of nodes."""

    def __init__(
        self, uops: tuple[UOp, ...], hoisted: Sequence[UOp], guards: Sequence[UOp]
    ) -> None:
        self.uops, self.guards = uops, guards
        self.hoisted = Hoisted(uops)
        self.hoisted.add(hoisted)
        # Hoisting a value may cut a region in two, so that more values cross. Values that still
        # cross after the last round get SPILLs, which is slower and as correct.
        for _ in range(_ROUNDS):
            self._cut()
            per_thread = self.hoisted.per_thread()
            common = [node for node in self.crossing() if node not in per_thread]
            if not common:
                return
            self.hoisted.add(common)
        self._cut()

    def _cut(self) -> None:
        self.parts: list[UOp | list[UOp]] = []
        self.home: dict[UOp, int] = {}  # node of a region -> the region's index in `parts`
        region = _OpenRegion()
        for node in self.uops:
            if is_common(node):
                continue
            # All threads read the same value from a hoisted variable: once per block is enough.
            if (
                node.op == "GET"
                and node.src[0] in self.hoisted
                and self.hoisted.all_threads_reach(node)
            ):
                self.hoisted.add([node])
            if node not in self.hoisted:
                region.append(node)
                continue
            if region.must_end_before(node):
                self._close(region)
                region = _OpenRegion()
            self.parts.append(node)
        self._close(region)

    def _close(self, region: _OpenRegion) -> None:
        if region.nodes:
            self.home.update(dict.fromkeys(region.nodes, len(self.parts)))
            self.parts.append(region.nodes)

    def regions(self) -> list[tuple[int, list[UOp]]]:
        return [(n, part) for n, part in enumerate(self.parts) if isinstance(part, list)]

    def crossing(self) -> list[UOp]:
        """Return the values and VARs of one region that another uses, in a fixed order."""
        found: dict[UOp, None] = {}
        for number, nodes in self.regions():
            for sources in (self.guards, *(node.src for node in nodes)):
                for source in sources:
                    if self.home.get(source, number) != number:
                        found[source] = None
        return list(found)


class _OpenRegion:
    """A region that may still grow, past hoisted nodes that can be moved in front of it."""

    def __init__(self) -> None:
        self.nodes: list[UOp] = []
        self.reads: set[UOp] = set()  # the VARs it reads
        self.counts: set[UOp] = set()  # the VARs it adds to
        self.writes = False  # whether it writes memory

    def append(self, node: UOp) -> None:
        self.nodes.append(node)
        if node.op == "GET":
            self.reads.add(node.src[0])
        if node.op == "COUNT":
            self.counts.add(node.src[0])
        self.writes |= node.op == "STORE" or node.op in ATOMIC_OPS

    def must_end_before(self, node: UOp) -> bool:
        """Tell whether a hoisted node has to run after the region, not in front of it.

        Moved in front, a LOAD would miss what the region stores, and a SET would change what the
        region still reads.
        """
        if node.op == "LOAD":
            return self.writes
        if node.op == "SET":
            return node.src[0] in self.reads
        if node.op == "GET":
            return node.src[0] in self.counts
        return node.op not in PURE and node.op not in ("GET", "VAR")


class _Fission:
    """Write the parts of a plan, with values that cross between regions spilled or recomputed."""

    def __init__(self, kernel: Lockstep) -> None:
        self.row_guards = kernel.row_guards
        self.plan = plan = _Plan(kernel.uops, kernel.hoisted, kernel.guards)
        self.flat, self.leaves = kernel.flat, kernel.leaves
        prices = self._prices()
        self.spills: dict[UOp, UOp] = {}  # a value or VAR -> its SPILL
        self.regions = {
            number: Region(nodes, number, plan.home, prices, self.spills, kernel.guards)
            for number, nodes in plan.regions()
        }
        # Variables that a region may read before it sets them need their value from another one.
        exposed = {v for region in self.regions.values() for v in region.variables.exposed}
        for node in plan.crossing():
            if node in exposed or (node.op != "VAR" and node not in prices):
                name = node.arg if node.op == "VAR" else node.op.lower()
                self.spills[node] = UOp("SPILL", node.dtype, (), name, node.line)

    def _prices(self) -> dict[UOp, int]:
        """Return the cheap values, each with the number of nodes that compute it again.

        A value that crosses and has no price gets a SPILL.
        """
        prices: dict[UOp, int] = {}
        for node in self.plan.uops:
            if node in self.plan.hoisted or node.op == "SPECIAL":
                prices[node] = 0
            elif node.op in _CHEAP or node in self.flat:
                price = 1 + sum(prices.get(source, _MOST_AGAIN) for source in node.src)
                if price <= _MOST_AGAIN:
                    prices[node] = price
        return prices

    def whole(self, grouped: bool, registers: Registers) -> list[UOp]:
        """Return the nodes of all parts, in order."""
        ahead = self._flag_returns()
        if self.leaves:
            ahead += self._cleared()
        body: list[UOp] = []
        for number, part in enumerate(self.plan.parts):
            if isinstance(part, UOp):
                body.append(part)
                continue
            nodes = self.regions[number].written()
            # A region that divides nothing needs no parts of a row.
            body += _without_unused(nodes) if self.flat else nodes
        front = [node for node in self.plan.uops if is_common(node)]
        if self.row_guards:
            body = in_row_groups(self.row_guards, body, registers)
        elif grouped:
            body = in_groups(body, registers)
        body = [node for node in body if node.op != "BARRIER"]
        return [*front, *self.spills.values(), *ahead, *body]

    def _cleared(self) -> list[UOp]:
        """Return a region that sets floats to zero which only some threads set: for `leaving`.

        Vectors compute with them for all threads, and a processor takes 100 times as long for
        subnormal numbers, which memory may hold.
        """
        some = {v for region in self.regions.values() for v in region.variables.uncertain}
        depth = 0
        for node in self.plan.uops:
            depth += _DEPTH.get(node.op, 0)
            if depth and node.op != "VAR":
                some.add(node)
        clear: list[UOp] = []
        for node, spill in self.spills.items():
            if node in some and spill.dtype in (float32, float64):
                clear.append(UOp("CONST", spill.dtype, (), 0.0))
                clear.append(UOp("SET", None, (spill, clear[-1])))
        return enclosed(clear, ()) if clear else []

    def _flag_returns(self) -> list[UOp]:
        """Make threads that have returned skip the regions that follow.

        Returns the nodes that declare and clear their flag.
        """
        numbers = list(self.regions)
        first = next((n for n in numbers if self.regions[n].returns), None)
        if first is None or first == numbers[-1]:
            return []
        flag = UOp("SPILL", bool_, (), "returned")
        for number in numbers:
            if number > first:
                self.regions[number].skipped_if = flag
            if number != numbers[-1]:
                self.regions[number].set_at_return = flag
        false = UOp("CONST", bool_, (), False)
        start = [false, UOp("SET", None, (flag, false))]
        return [flag, *enclosed(start, ())]


def _without_unused(nodes: Sequence[UOp]) -> list[UOp]:
    """Return the nodes of a region without arithmetic that no other node of it uses."""
    used: set[UOp] = set()
    kept: list[UOp] = []
    for node in reversed(nodes):
        if node in used or node.op not in PURE:
            used.update(node.src)
            kept.append(node)
    return kept[::-1]
