"""A kernel for machines on which the threads of a block are loops: cut at its barriers.

The result is a list of nodes like a kernel's, with these besides:

| op | src | arg | meaning |
| --- | --- | --- | --- |
| THREADS | | bool | every thread of the block runs what follows; True: in any interleaving |
| ENDTHREADS | its THREADS | | all threads have come here |
| SPILL | | name | a variable of each thread that lives on from one region to a later one |

A *region* is what stands between THREADS and ENDTHREADS; the loops over the threads go there. What
stands outside runs once a block, a RETURN there ends the block, one inside ends its thread.
SPILLs stand in front; SET and GET, inside regions only, mean this thread's element. There is no
BARRIER any more.

Source: Stratton, Stone, Hwu: MCUDA, 2008 (loop fission, selective replication).
"""

from __future__ import annotations

from collections.abc import Sequence

from hal_core.dtypes import bool_
from hal_core.errors import Unsupported
from hal_core.ir.blocks.lockstep import in_step
from hal_core.ir.blocks.outside import PURE, Outside, is_common
from hal_core.ir.blocks.region import Region, enclosed
from hal_core.ir.uop import Kernel, UOp

SPILL_LIMIT = 256 << 10  # bytes a block: half of what a core's second cache holds, often
MOST_THREADS = 1024  # of a block whose shape the launch decides
_ROUNDS = 8
_CHEAP = PURE - {
    "DIV", "POW", "ATAN2", "FMOD", "FLOORDIV", "MOD", "SQRT", "RSQRT", "EXP", "EXP2", "LOG", "LOG2",
    "SIN", "COS", "TAN", "TANH", "ATAN",
}  # fmt: skip
_MOST_AGAIN = 12  # nodes that are computed again in a region rather than kept


def split(kernel: Kernel) -> tuple[UOp, ...]:
    """The CPU form of a verified kernel.

    Raises: Unsupported when the values that live across barriers are too large for a block.
    """
    threads = block_threads(kernel)
    found = in_step(kernel)
    if found is not None:
        made = _Fission(found.uops, found.outside, found.stay).whole()
        if spill_nbytes(made, threads) <= SPILL_LIMIT:
            return tuple(made)
    if any(node.op == "BARRIER" for node in kernel.uops):
        made = _Fission(kernel.uops).whole()
        _check(kernel, made)
        return tuple(made)
    front = [node for node in kernel.uops if node.op in ("PARAM", "SHARED")]
    body = [node for node in kernel.uops if node.op not in ("PARAM", "SHARED")]
    return tuple(front + enclosed(body, body))


def spill_nbytes(uops: Sequence[UOp], block_threads: int) -> int:
    """Bytes of all SPILLs of a block, each rounded up to 64."""
    sizes = [node.dtype.itemsize for node in uops if node.op == "SPILL" and node.dtype]
    return sum(-(-size * block_threads // 64) * 64 for size in sizes)


def block_threads(kernel: Kernel) -> int:
    """The most threads a block of this kernel can have."""
    if kernel.block is None:
        return MOST_THREADS
    return kernel.block[0] * kernel.block[1] * kernel.block[2]


def _check(kernel: Kernel, uops: Sequence[UOp]) -> None:
    nbytes = spill_nbytes(uops, block_threads(kernel))
    if nbytes > SPILL_LIMIT:
        names = dict.fromkeys(
            f"{node.arg} (line {node.line})" if node.line else str(node.arg)
            for node in uops
            if node.op == "SPILL"
        )
        raise Unsupported(
            f"render kernel {kernel.name!r}",
            f"{nbytes} bytes live across barriers in a block of {block_threads(kernel)} threads: "
            + ", ".join(names),
            got=nbytes,
            limit=SPILL_LIMIT,
            fix="Fix a smaller block (@hal.kernel(block=...)), or keep less across barriers.",
        )


class _Plan:
    """A kernel cut into parts: nodes outside, and regions as lists."""

    def __init__(self, uops: tuple[UOp, ...], outside: Sequence[UOp], stay: Sequence[UOp]) -> None:
        self.uops, self.stay = uops, stay
        self.outside = Outside(uops)
        self.outside.add(outside)
        for _ in range(_ROUNDS):  # each may cut regions in two, and make more values cross
            self._cut()
            own = self.outside.own()
            common = [node for node in self.crossing() if id(node) not in own]
            if not common:
                return
            self.outside.add(common)
        self._cut()

    def _cut(self) -> None:
        self.parts: list[UOp | list[UOp]] = []
        self.home: dict[UOp, int] = {}  # of a region's node: the region's number among the parts
        region = _Open()
        for node in self.uops:
            if is_common(node):
                continue
            if node.op == "GET" and node.src[0] in self.outside and self.outside.is_top(node):
                self.outside.add([node])
            if node not in self.outside:
                region.append(node)
                continue
            if region.must_end_before(node):
                self._close(region)
                region = _Open()
            if node.op != "BARRIER":
                self.parts.append(node)
        self._close(region)

    def _close(self, region: _Open) -> None:
        if region.nodes:
            self.home.update(dict.fromkeys(region.nodes, len(self.parts)))
            self.parts.append(region.nodes)

    def regions(self) -> list[tuple[int, list[UOp]]]:
        return [(n, part) for n, part in enumerate(self.parts) if isinstance(part, list)]

    def crossing(self) -> list[UOp]:
        """Values and VARs of one region that another uses, in a fixed order."""
        found: dict[UOp, None] = {}
        for number, nodes in self.regions():
            for sources in (self.stay, *(node.src for node in nodes)):
                for source in sources:
                    if self.home.get(source, number) != number:
                        found[source] = None
        return list(found)


class _Open:
    """A region that goes on, and what nodes outside may not be moved in front of."""

    def __init__(self) -> None:
        self.nodes: list[UOp] = []
        self.reads: set[UOp] = set()  # VARs
        self.writes = False  # memory

    def append(self, node: UOp) -> None:
        self.nodes.append(node)
        if node.op == "GET":
            self.reads.add(node.src[0])
        self.writes |= node.op in ("STORE", "ATOMIC", "CAS")

    def must_end_before(self, node: UOp) -> bool:
        """Pure arithmetic never waits: it stands in front of the region."""
        if node.op == "LOAD":
            return self.writes
        if node.op == "SET":
            return node.src[0] in self.reads
        return node.op not in PURE and node.op not in ("GET", "VAR")


class _Fission:
    """Writes the parts of a plan down, with what crosses between them kept or computed again."""

    def __init__(
        self, uops: tuple[UOp, ...], outside: Sequence[UOp] = (), stay: Sequence[UOp] = ()
    ) -> None:
        self.plan = plan = _Plan(uops, outside, stay)
        again = self._prices()
        self.spills: dict[UOp, UOp] = {}  # a value or VAR -> its SPILL
        self.regions = {
            number: Region(nodes, number, plan.home, again, self.spills, stay)
            for number, nodes in plan.regions()
        }
        exposed = {v for region in self.regions.values() for v in region.variables.exposed}
        for node in plan.crossing():
            if node in exposed or (node.op != "VAR" and node not in again):
                name = node.arg if node.op == "VAR" else node.op.lower()
                self.spills[node] = UOp("SPILL", node.dtype, (), name, node.line)

    def _prices(self) -> dict[UOp, int]:
        """How many nodes it takes to compute a value once more; absent: it must be kept."""
        prices: dict[UOp, int] = {}
        for node in self.plan.uops:
            if node in self.plan.outside or node.op == "SPECIAL":
                prices[node] = 0
            elif node.op in _CHEAP:
                price = 1 + sum(prices.get(source, _MOST_AGAIN) for source in node.src)
                if price <= _MOST_AGAIN:
                    prices[node] = price
        return prices

    def whole(self) -> list[UOp]:
        gone = self._early_returns()
        body: list[UOp] = []
        for number, part in enumerate(self.plan.parts):
            body += [part] if isinstance(part, UOp) else self.regions[number].written()
        front = [node for node in self.plan.uops if is_common(node)]
        return [*front, *self.spills.values(), *gone, *body]

    def _early_returns(self) -> list[UOp]:
        """A thread that returns sits out the regions that follow; what stands in front of all."""
        numbers = list(self.regions)
        first = next((n for n in numbers if self.regions[n].returns), None)
        if first is None or first == numbers[-1]:
            return []
        flag = UOp("SPILL", bool_, (), "returned")
        for number in numbers:
            if number > first:
                self.regions[number].skipped_if = flag
            if number != numbers[-1]:
                self.regions[number].told = flag
        false = UOp("CONST", bool_, (), False)
        start = [false, UOp("SET", None, (flag, false))]
        return [flag, *enclosed(start, ())]
