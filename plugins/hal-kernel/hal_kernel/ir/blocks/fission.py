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
     5 STORE %2 %3 %4            |  5 THREADS
     6 BARRIER                   |  6   SPECIAL ('thread_idx', 0)
     7 CONST 63                  |  7   LOAD %1 %6
     8 SUB %7 %3                 |  8   SET %4 %7
     9 LOAD %2 %8                |  9   STORE %2 %6 %7
    10 ADD %9 %4                 | 10 ENDTHREADS %5
    11 STORE %0 %3 %10           | 11 THREADS
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
| THREADS | | | each thread of the block runs the region |
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

from hal_core.dtypes import bool_
from hal_core.errors import Unsupported
from hal_kernel.ir.blocks.hoisting import Hoisted, is_common
from hal_kernel.ir.blocks.local_arrays import with_common_arrays
from hal_kernel.ir.blocks.region import Region, enclosed
from hal_kernel.ir.uop import ATOMIC_OPS, PURE, Kernel, UOp

SPILL_LIMIT = 256 << 10  # bytes per block: often half of a core's second-level cache
_ROUNDS = 8  # of hoisting; each may cut regions and so make more values cross
_CHEAP = PURE - {
    "DIV", "POW", "ATAN2", "FMOD", "FLOORDIV", "MOD", "TRUNCDIV", "TRUNCMOD", "SQRT", "RSQRT",
    "EXP", "EXP2", "LOG", "LOG2", "SIN", "COS", "TAN", "TANH", "ATAN",
}  # fmt: skip
_MEMORY = frozenset({"PARAM", "SHARED", "TABLE", "VIEW"})
_MOST_AGAIN = 12  # nodes that a region may compute again; a longer computation gets a SPILL


def at_barriers(kernel: Kernel) -> tuple[UOp, ...]:
    """Return the nodes of a verified kernel, split into regions at its barriers.

    Raises: Unsupported when the values that live across barriers are too large for a block.
    """
    if "BARRIER" not in [node.op for node in kernel.uops]:
        front = [node for node in kernel.uops if node.op in _MEMORY]
        body = [node for node in kernel.uops if node.op not in _MEMORY]
        return (*front, *enclosed(body))
    kernel = with_common_arrays(kernel, kernel.most_threads)
    return _fitting(kernel, _Fission(kernel.uops).whole())


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


def spill_nbytes(uops: Sequence[UOp], block_threads: int) -> int:
    """Return the bytes of all SPILLs of a block, each rounded up to 64."""
    sizes = [node.dtype.itemsize for node in uops if node.op == "SPILL" and node.dtype]
    return sum(-(-size * block_threads // 64) * 64 for size in sizes)


class _Plan:
    """A kernel cut into parts in order: hoisted nodes, and regions as lists of nodes."""

    def __init__(self, uops: tuple[UOp, ...]) -> None:
        self.uops, self.hoisted = uops, Hoisted(uops)
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
            for source in (source for node in nodes for source in node.src):
                if self.home.get(source, number) != number:
                    found[source] = None
        return list(found)


class _OpenRegion:
    """A region that may still grow, past hoisted nodes that can be moved in front of it."""

    def __init__(self) -> None:
        self.nodes: list[UOp] = []
        self.reads: set[UOp] = set()  # the VARs it reads
        self.writes = False  # whether it writes memory

    def append(self, node: UOp) -> None:
        self.nodes.append(node)
        if node.op == "GET":
            self.reads.add(node.src[0])
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
        return node.op not in PURE and node.op not in ("GET", "VAR")


class _Fission:
    """Write the parts of a plan, with values that cross between regions spilled or recomputed."""

    def __init__(self, uops: tuple[UOp, ...]) -> None:
        self.plan = plan = _Plan(uops)
        prices = self._prices()
        self.spills: dict[UOp, UOp] = {}  # a value or VAR -> its SPILL
        self.regions = {
            number: Region(nodes, number, plan.home, self.spills)
            for number, nodes in plan.regions()
        }
        # Variables that a region may read before it sets them need their value from another one.
        exposed = {v for region in self.regions.values() for v in region.exposed}
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
            elif node.op in _CHEAP:
                price = 1 + sum(prices.get(source, _MOST_AGAIN) for source in node.src)
                if price <= _MOST_AGAIN:
                    prices[node] = price
        return prices

    def whole(self) -> list[UOp]:
        """Return the nodes of all parts, in order."""
        ahead = self._flag_returns()
        body: list[UOp] = []
        for number, part in enumerate(self.plan.parts):
            body += [part] if isinstance(part, UOp) else self.regions[number].whole()
        front = [node for node in self.plan.uops if is_common(node)]
        body = [node for node in body if node.op != "BARRIER"]
        return [*front, *self.spills.values(), *ahead, *body]

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
        return [flag, *enclosed(start)]
