"""LLVM IR for the CPU, in the calling convention of hal-cpu; text that LLVM 15 and later read.

Names with a dot are ours, names without are the user's parameters. No target is named: the
backend sets triple and data layout.
"""

from __future__ import annotations

from collections.abc import Callable

from hal_core.dtypes import DTYPES, DType, float32, float64
from hal_core.ir import Kernel, UOp
from hal_core.ir.blocks.fission import block_threads, split
from hal_core.ir.blocks.thread_bounds import limits
from hal_core.ir.expand import expand
from hal_core.render.llvm.control import Blocks
from hal_core.render.llvm.values import literal, type_of
from hal_core.render.names import Names
from hal_core.render.renderer import Renderer, dtype_of

_AXES = "xyz"
_BLOCKS = "each.block"  # the loop over the blocks of this call
_PARAMETERS = "ptr %hal.args, ptr %hal.launch, i64 %hal.first, i64 %hal.last"


# Formulas that LLVM vectorises to more speed than its library has, within its time to compile.
_FORMULAS = {
    **dict.fromkeys(("EXP", "EXP2", "LOG", "LOG2", "TANH", "ATAN", "ATAN2"), (float32, float64)),
    **dict.fromkeys(("SIN", "COS", "TAN"), (float32,)),
}


class LLVMRenderer(Renderer):
    """LLVM IR; one exported function, everything else internal.

    `half`: whether the processor converts float16 itself. Where it does not, LLVM would call a
    library, and the text brings its own conversion.
    `fma`: whether it multiplies and adds in one instruction; what the formulas of math functions
    are made of. Without them the C library's functions are called.
    """

    name, language = "LLVM IR", "llvm"
    dtypes = frozenset(DTYPES.values())

    def __init__(self, half: bool = False, fma: bool = True) -> None:
        self.half, self.fma = half, fma

    def _render(self, kernel: Kernel) -> str:
        cut = kernel._replace(uops=split(kernel))
        if self.fma:
            # Vectors of them are quick. One at a time, as in a thread's loop, a call is quicker.
            cut = expand(cut, _FORMULAS, in_loops=False)
        return _Module(cut, self.half).whole()


class _Module(Blocks):
    """One kernel, cut at its barriers, on its way to text."""

    def __init__(self, kernel: Kernel, half: bool) -> None:
        super().__init__(kernel.contract, half, block_threads(kernel))
        self.kernel, self.uops = kernel, kernel.uops
        self.spills = any(uop.op == "SPILL" for uop in self.uops)
        self.limits = limits(self.uops)
        self.given: set[UOp] = set()  # tests that hold for every thread that gets to them
        names = Names(frozenset())
        self.params = [names.take(param.name) for param in kernel.signature.params]
        self.specials: dict[tuple[str, int], str] = {}
        self.first: list[str] = []  # global index of the block's first thread
        self.regions = 0
        self.metadata: list[str] = []

    def whole(self) -> str:
        self._enter()
        for uop in self.uops:
            self._node(uop)
        self.close_loop()
        self.line("ret void")
        head = f"define void @{self.kernel.name}({_PARAMETERS}) {{"
        parts = [*self.declarations, "", *self.helpers.values(), head, "hal.entry:"]
        parts += [*self.frame, *self.lines, "}", *(["", *self.metadata] if self.metadata else [])]
        return "\n".join(parts).lstrip("\n") + "\n"

    def _node(self, uop: UOp) -> None:
        op = uop.op
        if op in _STATEMENTS:
            _STATEMENTS[op](self, uop)
        elif op == "PARAM":
            self.values[uop] = f"%{self.params[uop.arg]}"
        elif op == "CONST":
            self.values[uop] = literal(uop.arg, dtype_of(uop))
        elif op == "SPECIAL":
            self.values[uop] = self.specials[uop.arg]
        elif uop in self.given:
            self.values[uop] = "true"
        elif op != "ASSERT":
            operands = [self.values[source] for source in uop.src]
            self.values[uop] = self.value(uop, operands)

    # the frame: arguments, the loop over blocks, the loops over threads

    def _enter(self) -> None:
        for param, name in zip(self.kernel.signature.params, self.params, strict=True):
            slot = self.let(f"getelementptr i8, ptr %hal.args, i64 {8 * param.position}")
            self._load_argument(name, "ptr" if param.is_pointer else param.dtype, slot)
        dims = ["grid.dim.x", "grid.dim.y", "grid.dim.z"]
        fixed = self.kernel.block
        for axis in range(3):
            if fixed is None:
                dims.append(f"block.dim.{_AXES[axis]}")
            else:
                self.specials["block_dim", axis] = str(fixed[axis])
        for position, name in enumerate(dims):
            slot = self.let(f"getelementptr i32, ptr %hal.launch, i64 {position}")
            kind = "grid_dim" if position < 3 else "block_dim"
            self.specials[kind, position % 3] = self.let(f"load i32, ptr {slot}", f"%{name}")
        self._enter_block()

    def _load_argument(self, name: str, kind: DType | str, slot: str) -> None:
        if isinstance(kind, str):
            self.let(f"load {kind}, ptr {slot}", f"%{name}")
        elif kind.kind == "b":
            byte = self.let(f"load i8, ptr {slot}")
            self.let(f"icmp ne i8 {byte}, 0", f"%{name}")
        else:
            self.let(f"load {type_of(kind)}, ptr {slot}", f"%{name}")

    def _enter_block(self) -> None:
        wide = [self.let(f"zext i32 {self.specials['grid_dim', axis]} to i64") for axis in (0, 1)]
        block = self.open_loop(_BLOCKS, "i64", "%hal.first", "%hal.last", "slt")
        self.frame_loop = _BLOCKS
        rows = self.let(f"sdiv i64 {block}, {wide[0]}")
        places = (
            self.let(f"srem i64 {block}, {wide[0]}"),
            self.let(f"srem i64 {rows}, {wide[1]}"),
            self.let(f"sdiv i64 {rows}, {wide[1]}"),
        )
        for axis, place in enumerate(places):
            index = self.let(f"trunc i64 {place} to i32", f"%block.{_AXES[axis]}")
            self.specials["block_idx", axis] = index
            dim = self.specials["block_dim", axis]
            self.first.append(self.let(f"mul nsw i32 {index}, {dim}"))

    def _threads(self, uop: UOp) -> None:
        """The loops over the threads of a region."""
        suffix = f".{self.regions}" if self.regions else ""
        self.regions += 1
        row = "0"
        for axis in (2, 1, 0):
            dim, name = self.specials["block_dim", axis], f"thread.{_AXES[axis]}{suffix}"
            end = self._end(uop, dim) if axis == 0 else dim
            thread = self.open_loop(name, "i32", "0", end, "slt")
            self.specials["thread_idx", axis] = thread
            # The launch checks that it fits: no wrap, which is what lets LLVM vectorise.
            place = f"add nsw i32 {self.first[axis]}, {thread}"
            self.specials["global_idx", axis] = self.let(place, f"%global.{_AXES[axis]}{suffix}")
            if self.spills:
                row = self._count(row, dim, thread)
        self.thread, self.frame_loop = row, name
        self.access = f", !llvm.access.group !{self._group()}" if uop.arg else ""

    def _end(self, region: UOp, dim: str) -> str:
        """Where the loop over x ends."""
        found = self.limits.get(region, [])
        if not found:
            return dim
        end = self.let(f"zext i32 {dim} to i64")
        for test, number, last, inclusive in found:
            self.given.add(test)
            threads = self.let(f"sext i32 {self._outer(last)} to i64")
            if inclusive:
                threads = self.let(f"add nsw i64 {threads}, 1")
            if number.arg[0] == "global_idx":
                first = self.let(f"sext i32 {self.first[0]} to i64")
                threads = self.let(f"sub nsw i64 {threads}, {first}")
            end = self._call("@llvm.smin.i64", "i64", ["i64"] * 2, [end, threads])
        some = self._call("@llvm.smax.i64", "i64", ["i64"] * 2, [end, "0"])
        return self.let(f"trunc i64 {some} to i32")

    def _outer(self, uop: UOp) -> str:
        """A value from outside; a constant is one, wherever it stands."""
        return literal(uop.arg, dtype_of(uop)) if uop.op == "CONST" else self.values[uop]

    def _count(self, row: str, dim: str, thread: str) -> str:
        """row * dim + thread: how many threads of the block come before, along the axes so far."""
        wide = self.let(f"zext i32 {thread} to i64")
        if row == "0":
            return wide
        width = dim if dim.isdigit() else self.let(f"zext i32 {dim} to i64")
        skipped = self.let(f"mul nuw nsw i64 {row}, {width}")
        return self.let(f"add nuw nsw i64 {skipped}, {wide}")

    def _group(self) -> int:
        """Metadata: no access of one turn of the loop over x waits for another turn's."""
        group = len(self.metadata)
        self.metadata += [
            f"!{group} = distinct !{{}}",
            f'!{group + 1} = !{{!"llvm.loop.parallel_accesses", !{group}}}',
            f"!{group + 2} = distinct !{{!{group + 2}, !{group + 1}}}",
        ]
        return group

    def _end_threads(self, uop: UOp) -> None:
        free = uop.src[0].arg
        self.close_loop(f", !llvm.loop !{len(self.metadata) - 1}" if free else "")
        self.close_loop()
        self.close_loop()
        self.access, self.thread, self.frame_loop = "", "", _BLOCKS


_STATEMENTS: dict[str, Callable[[_Module, UOp], None]] = {
    "THREADS": _Module._threads,
    "ENDTHREADS": _Module._end_threads,
    "SHARED": _Module.declare_shared,
    "SPILL": _Module.declare,
    "VAR": _Module.declare,
    "SET": _Module.set,
    "GET": _Module.get,
    "LOAD": _Module.load,
    "STORE": _Module.store,
    "ATOMIC": _Module.atomic,
    "CAS": _Module.compare_and_swap,
    "IF": _Module.if_,
    "ELSE": _Module.else_,
    "ENDIF": _Module.end_if,
    "RANGE": _Module.range,
    "ENDRANGE": _Module.end_range,
    "LOOP": _Module.loop,
    "ENDLOOP": _Module.end_loop,
    "BREAK": _Module.break_,
    "CONTINUE": _Module.continue_,
    "RETURN": _Module.return_,
}
