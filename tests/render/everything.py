"""Kernels that together hold every operation on every dtype: whatever a language can spell."""

from builder import Builder

from hal_core.dtypes import DTYPES, STORAGE_DTYPES, bool_, float32, uint64
from hal_kernel.ir.rules import RULES
from hal_kernel.ir.uop import (
    ARITHMETIC,
    ATOMICS,
    BITWISE,
    COMPARISON,
    FLOAT_BINARY,
    FLOAT_UNARY,
    INTEGER_BINARY,
    ORDERS,
    SPECIALS,
    SUBGROUP,
)

KINDS = (*DTYPES, "control", "subgroups")


def everything(without=frozenset(), wide_atomics=True):
    """One kernel a dtype, and one for control flow; the dtypes in `without` occur nowhere."""
    left = {dtype.name for dtype in without}
    return [every(kind, without, wide_atomics) for kind in KINDS[:-1] if kind not in left]


def every(kind, without=frozenset(), wide_atomics=True):
    """One of KINDS: all of a dtype, of control flow, or of subgroups."""
    if kind == "subgroups":
        return subgroups(without)
    dtypes = [dtype for dtype in DTYPES.values() if dtype not in without]
    return _control() if kind == "control" else _Writer(DTYPES[kind], dtypes, wide_atomics).kernel()


def subgroups(without=frozenset()):
    """What threads of a subgroup do together, on every dtype that they may."""
    dtypes = [dtype for dtype in DTYPES.values() if dtype.itemsize >= 4 and dtype not in without]
    b = Builder("together", ", ".join(f"r_{dtype.name}: {dtype.name}*" for dtype in dtypes))
    numbers = [b.special(kind, 0) for kind in SUBGROUP]
    for dtype in dtypes:
        value = b.load(f"r_{dtype.name}", b.index())
        b.store(f"r_{dtype.name}", b.index(), b.add("SHUFFLE", dtype, value, numbers[2]))
    for number in numbers:
        b.atomic("ADD", "r_int32", b.const(3), number)
    b.add("FENCE")
    votes = b.add("BALLOT", uint64, b.op("LT", numbers[2], numbers[0]))
    b.store("r_uint64", b.index(), votes)
    return b.kernel()


def ops_of(dtype):
    """Operations on operands of `dtype`, how many, and what they give."""
    if dtype in STORAGE_DTYPES:
        return []
    rows = [(op, 2, bool_) for op in sorted(COMPARISON)]
    if dtype is bool_:
        return [*rows, *((op, 2, dtype) for op in sorted(BITWISE)), ("NOT", 1, dtype)]
    rows += [(op, 2, dtype) for op in sorted(ARITHMETIC)] + [("NEG", 1, dtype), ("ABS", 1, dtype)]
    if dtype.is_integer:
        rows += [(op, 2, dtype) for op in sorted(INTEGER_BINARY | BITWISE)]
        return [*rows, ("NOT", 1, dtype)]
    rows += [(op, 2, dtype) for op in sorted(FLOAT_BINARY)]
    rows += [(op, 1, bool_ if op == "ISNAN" else dtype) for op in sorted(FLOAT_UNARY)]
    return [*rows, ("FMA", 3, dtype)]


def atomics_of(dtype):
    if dtype.itemsize < 4:
        return []
    return [*sorted(ATOMICS), "CAS"] if dtype.is_integer else ["ADD", "EXCHANGE"]


class _Writer:
    """All of one dtype: loads, stores, constants, values, operations, casts, atomics."""

    def __init__(self, dtype, dtypes, wide_atomics):
        self.dtype, self.dtypes = dtype, dtypes
        value = "" if dtype in STORAGE_DTYPES else f", v: {dtype.name}"
        outputs = ", ".join(f"r_{other.name}: {other.name}*" for other in dtypes)
        self.b = Builder(
            f"every_{dtype.name}", f"{outputs}, x: const {dtype.name}*, p: {dtype.name}*{value}"
        )
        self.has_atomics = dtype.itemsize < 8 or wide_atomics
        self.count = 0

    def keep(self, value):
        """Each result is stored, so that no compiler drops it."""
        if value.dtype is None:
            raise ValueError(f"{value!r} is not a value")
        place = self.b.op("ADD", self.b.index(), self.b.const(self.count))
        self.b.store(f"r_{value.dtype.name}", place, value)
        self.count += 1

    def operands(self):
        b = self.b
        while True:
            yield b.load("x", b.op("ADD", b.index(), b.const(self.count)))

    def kernel(self):
        b, dtype = self.b, self.dtype
        operands = self.operands()
        self.keep(next(operands))
        self.shared()
        self.local()
        gate = b.op("LT", b.index(), b.const(7))
        self.keep(b.add("LOAD", dtype, b.params["x"], b.index(), gate, next(operands)))
        for op, count, gives in ops_of(dtype):
            self.keep(b.add(op, gives, *(next(operands) for _ in range(count))))
        for target in self.dtypes:
            halves = {dtype, target} & STORAGE_DTYPES
            if not halves or float32 in (dtype, target):
                self.keep(b.cast(next(operands), target))
            if bool_ not in (dtype, target) and dtype.itemsize == target.itemsize:
                self.keep(b.bitcast(next(operands), target))
        if dtype not in STORAGE_DTYPES:
            table = b.table((0, 1, 1), dtype)
            self.keep(b.load(table, b.op("AND", b.special("thread_idx"), b.const(1))))
            self.values(operands)
        return b.kernel()

    def values(self, operands):
        b, dtype = self.b, self.dtype
        low, high = (0, 1) if dtype is bool_ else (dtype.min, dtype.max)
        special = [float("inf"), -float("inf"), float("nan")] if dtype.is_float else []
        for constant in (low, high, 1, 0, *special):
            self.keep(b.const(constant, dtype))
        self.keep(b.params["v"])
        condition = b.op("EQ", next(operands), next(operands))
        self.keep(b.op("WHERE", condition, next(operands), next(operands)))
        if self.has_atomics:
            for memory in ("p", self.tile):
                for op in atomics_of(dtype):
                    count = 2 if op == "CAS" else 1
                    values = [next(operands) for _ in range(count)]
                    self.keep(b.atomic(op, memory, b.const(3), *values))
                for order in ORDERS["ATOMICLOAD"] if atomics_of(dtype) else ():
                    self.keep(b.atomic("ATOMICLOAD", memory, b.const(3), order=order))
                for order in ORDERS["ATOMICSTORE"] if atomics_of(dtype) else ():
                    b.atomic("ATOMICSTORE", memory, b.const(3), next(operands), order=order)
        if dtype.is_integer:
            for step in (1, 3):
                k = b.range(next(operands), next(operands), b.const(step, dtype))
                self.keep(k)
                b.end(k)
            self.keep(b.load("x", next(operands)))

    def shared(self):
        b = self.b
        self.tile = b.shared("tile", 64, self.dtype)
        t = b.special("thread_idx")
        b.store(self.tile, t, b.load("x", b.index()))
        b.barrier()
        self.keep(b.load(self.tile, b.op("XOR", t, b.const(1))))
        for target in self.dtypes:
            for array in (self.tile, b.params["x"]):
                self.keep(b.load(b.add("VIEW", target, array), t))
            b.store(b.add("VIEW", target, b.params["p"]), t, b.load(f"r_{target.name}", t))

    def local(self):
        b = self.b
        array = b.local("own", 4, self.dtype)
        t = b.op("AND", b.special("thread_idx"), b.const(3))
        b.store(array, t, b.load("x", b.index()))
        self.keep(b.load(array, t))


def _control():
    """Every special, and every way through a kernel."""
    b = Builder("every_way", "r: int32*, c: bool, n: int32")
    total = b.var("total", b.const(0))
    for kind in SPECIALS:
        for axis in range(3):
            b.set(total, b.op("ADD", b.get(total), b.special(kind, axis)))
    loop = b.loop()
    with b.when(b.op("GT", b.get(total), b.params["n"])):
        b.break_(loop)
    b.set(total, b.op("ADD", b.op("MUL", b.get(total), b.const(2)), b.const(1)))
    with b.when(b.params["c"]):
        b.continue_(loop)
    k = b.range(b.get(total), b.params["n"], b.const(-5))
    branch = b.if_(b.op("EQ", k, b.const(7)))
    b.continue_(k)
    b.else_(branch)
    b.add("ASSERT", None, b.params["c"], arg="c")
    b.add("PRINT", None, b.params["c"], k, arg="{} {}")
    with b.when(b.op("LT", k, b.const(-100))):
        b.return_()
    b.end(branch)
    b.set(total, b.op("ADD", b.get(total), k))
    b.end(k)
    b.end(loop)
    b.store("r", b.index(), b.get(total))
    return b.kernel(block=(8, 4, 2), contract=True)


def missing_ops(kernels):
    """Operations of the IR that occur in none of them."""
    return set(RULES) - {node.op for kernel in kernels for node in kernel.uops}
