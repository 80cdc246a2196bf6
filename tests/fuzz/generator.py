"""Draws kernels: well typed, with a meaning for every value they may meet.

No index leaves its array, no thread touches what another one writes without a barrier or an atomic
between, and every loop ends: by construction, so that few kernels are thrown away.
"""

from __future__ import annotations

import math
from random import Random
from typing import Any

from blocks import Blocks
from case import CLOSE, EITHER, EVERY, EXACT, SUM, Case, Kinds, Place, number
from expressions import IN_ANY_ORDER, Expressions, Function, Local, spell
from guards import below, bound
from statements import Statements

from hal_core.dtypes import STORAGE_DTYPES, DType, bool_, float32, int32

# The elements of a thread, of a buffer with one or with two for each. `min(n, 0)` is 0.
ONE = [
    ["{p}[q]"], ["{p}[q:][0]"], ["hal.view({p}, {size})[q]"],
    ["hal.view({p}, ({size} + min(n, 0), 1))[q, 0]"], ["hal.view({p}[q:], (1, 1))[0, min(n, 0)]"],
]  # fmt: skip
TWO = [
    ["{p}[2 * q]", "{p}[q * 2 + 1]"], ["{p}[q]", "{p}[q + {size}]"],
    ["{p}[2 * q:][0]", "{p}[2 * q:][1]"],
    ["hal.view({p}, ({size}, 2))[q, 0]", "hal.view({p}, ({size}, 2 + min(n, 0)))[q, 1]"],
    ["hal.view({p}, (2, 1, 1, {size}))[0, 0, 0, q]", "hal.view({p}[{size}:], {size})[q]"],
]  # fmt: skip
FOUR = [[f"{{p}}[4 * q + {k}]" for k in range(4)]]
# The same elements at once: memory, index, number.
VECTORS = {
    2: [("{p}", "2 * q", 2), ("hal.view({p}, ({size}, 2))", "(q, 0)", 2)],
    4: [("{p}", "q * 4", 4), ("{p}[4 * q:]", "2", 2), ("hal.view({p}, ({size}, 4))", "(q, 0)", 4)],
}
HEADER = "import math\n\nimport numpy as np\n\nimport hal_core as hal\n"


def generate(seed: int, kinds: Kinds = EVERY) -> Case:
    """The kernel of this number, with these dtypes; the same on every machine."""
    return Generator(seed, kinds).case()


class Generator:
    def __init__(self, seed: int, kinds: Kinds) -> None:
        self.seed, self.random = seed, Random(seed)
        self.contract = self.random.random() < 0.15
        self.kinds = kinds
        self.e = Expressions(self.random, kinds, products=not self.contract)
        self.s = Statements(self.random, self.e)
        self.whole = self.random.random() < 0.45  # has barriers
        self.guarded = not self.whole and self.random.random() < 0.5
        self.sweeps = not self.whole and self.random.random() < 0.15  # does little besides
        self.places: list[Place] = []
        self.const: set[str] = set()
        self.params: list[tuple[str, DType]] = [("n", int32)]
        self.vals: list[Any] = []
        self._geometry()

    def _geometry(self) -> None:
        pick = self.random.randint
        flat = self.random.random() < 0.5
        self.block = (pick(1, 16), 1, 1) if flat else (pick(1, 6), pick(1, 4), pick(1, 2))
        self.grid = (pick(1, 4), 1, 1) if flat else (pick(1, 3), pick(1, 3), pick(1, 2))
        self.wide = flat and self.random.random() < 0.5  # rows of more threads than a group has
        if self.wide:
            self.block, self.grid = (pick(20, 300), 1, 1), (pick(1, 2), 1, 1)
        if self.guarded:
            self.block, self.grid = (*self.block[:2], 1), (*self.grid[:2], 1)
        self.per_block = self.block[0] * self.block[1] * self.block[2]
        self.threads = self.per_block * self.grid[0] * self.grid[1] * self.grid[2]
        extents = [b * g for b, g in zip(self.block, self.grid, strict=True)]
        # Some threads too few for the last blocks: they run, and the guard keeps them out.
        self.extent = [
            max(1, size - pick(0, self.block[axis] - 1)) for axis, size in enumerate(extents)
        ]
        self.size = self.extent[0] * self.extent[1] if self.guarded else self.threads

    def case(self) -> Case:
        tables = self._tables()
        functions = self._functions()
        self._buffers()
        for k in range(self.random.randint(1, 3)):
            self.params.append((f"a{k}", self.random.choice(self.kinds.computed)))
        self.vals = [number(dtype, self.random) for _, dtype in self.params]
        self.vals[0] = self.random.randint(0, 5)
        self.e.frames[0].update(self.params)
        self._body()
        launch: dict[str, Any] = {"grid": self.grid, "block": self.block}
        if self.guarded:
            launch = {"threads": tuple(self.extent[:2]), "block": self.block}
        source = "\n\n".join(
            [HEADER, *tables, *functions, self._header() + "\n".join(self.s.lines) + "\n"]
        )
        return Case(self.seed, source, tuple(self.places), tuple(self.vals), launch)

    def _header(self) -> str:
        options = [f"block={self.block}"] if self.whole and self.random.random() < 0.5 else []
        options += [] if self.contract else ["contract=False"]
        decorator = f"@hal.kernel({', '.join(options)})" if options else "@hal.kernel"
        pointers = [
            f"{place.name}: hal.{'ConstPtr' if place.name in self.const else 'Ptr'}"
            f"[{spell(place.dtype)}]"
            for place in self.places
        ]
        values = [f"{name}: {spell(dtype)}" for name, dtype in self.params]
        return f"{decorator}\ndef fuzzed({', '.join([*pointers, *values])}):\n"

    # -- memory

    def _buffers(self) -> None:
        random = self.random
        for k in range(random.randint(1, 3)):
            self._input(Place(f"x{k}", random.choice(self.kinds.stored), random.randint(1, 9)))
        for k in range(random.randint(1, 3)):
            each = random.choice([2, 4, 4] if self.sweeps else [1, 1, 2, 4])
            place = Place(f"y{k}", random.choice(self.kinds.stored), self.size * each)
            self.places.append(place)
            ways = {1: ONE, 2: TWO, 4: FOUR}[each]
            way = random.choice([ways[0], *ways])
            self.s.own += [(text.format(p=place.name, size=self.size), place.dtype) for text in way]
            if each > 1 and way is ways[0]:
                self.s.sweeps.append((place.name, each, place.dtype))
            for text, index, count in VECTORS.get(each, []) if way is ways[0] else []:
                memory = text.format(p=place.name, size=self.size)
                self.s.vectors.append((memory, index, count, place.dtype))
        self.e.own = dict(self.s.own)
        if random.random() < 0.4:
            dtype, size = random.choice([*self.kinds.atomic, float32]), random.randint(1, 4)
            place = Place("total", dtype, size, SUM if dtype is float32 else EXACT)
            self.places.append(place)
            kind = "add" if place.dtype is float32 else random.choice(IN_ANY_ORDER)
            self.s.tallies.append((place, kind))

    def _input(self, place: Place) -> None:
        self.places.append(place)
        self.const.add(place.name)
        self.e.inputs.append(place)

    def _tables(self) -> list[str]:
        """Numbers that the kernel captures and indexes."""
        texts, random = [], self.random
        for k in range(random.choice([0, 0, 1, 2])):
            dtype = random.choice([*self.kinds.computed, int32, float32])
            shape = tuple(random.randint(1, 4) for _ in range(random.choice([1, 1, 2])))
            numbers = [self._number(dtype) for _ in range(math.prod(shape))]
            width = shape[-1]
            rows = [tuple(numbers[n : n + width]) for n in range(0, len(numbers), width)]
            table: object = rows[0] if len(shape) == 1 else tuple(rows)
            text = f"np.array({table}, {dtype.to_numpy().name!r})"
            if dtype in (int32, float32, bool_) and random.random() < 0.5:
                text = str(table)
            texts.append(f"W{k} = {text}")
            self.e.tables.append(Local(f"W{k}", dtype, shape, fixed=False))
        return texts

    def _number(self, dtype: DType) -> float:
        if dtype is bool_:
            return self.random.random() < 0.5
        if dtype.is_float:
            return self.random.choice([0.0, -0.0, 1.5, -0.1, 3.0e9, 1e-40])
        return self.e.literal(dtype)

    # -- functions

    def _functions(self) -> list[str]:
        texts = []
        for k in range(self.random.choice([0, 0, 1, 2])):
            ways = [self._typed, self._typed, self._generic, self._procedure, self._pair]
            way = self.random.choice(ways)
            texts.append("@hal.func\n" + way(f"f{k}"))
        return texts

    def _typed(self, name: str) -> str:
        """With early returns, in the forms that a function may have."""
        kinds = [self.random.choice(self.kinds.computed) for _ in range(self.random.randint(1, 3))]
        result = self.random.choice(self.kinds.computed)
        params = {f"p{k}": kind for k, kind in enumerate(kinds)}
        e = Expressions(self.random, self.kinds, self.e.products)
        e.frames, e.functions = [dict(params)], self.e.functions[:]
        listed = ", ".join(f"{param}: {spell(kind)}" for param, kind in params.items())
        lines = [f"def {name}({listed}) -> {spell(result)}:"]
        if self.random.random() < 0.5:
            lines.append(f"    local = {e.pick(result, 2)}")
            e.frames[0]["local"] = result
        if self.random.random() < 0.6:
            lines += [f"    if {e.condition()}:", f"        return {e.pick(result, 2)}"]
        if self.random.random() < 0.3:
            lines += self._search(e, (result,))
        lines.append(f"    return {e.some(result)}")
        self.e.functions.append(Function(name, result, kinds))
        return "\n".join(lines)

    def _pair(self, name: str) -> str:
        """Two values, and returns from inside loops."""
        kind, *results = (self.random.choice(self.kinds.computed) for _ in range(3))
        e = Expressions(self.random, self.kinds, self.e.products)
        e.frames = [{"p": kind}]
        declared = f" -> tuple[{', '.join(map(spell, results))}]"
        lines = [f"def {name}(p: {spell(kind)}){self.random.choice([declared, ''])}:"]
        lines += self._search(e, tuple(results))
        lines.append(f"    return {', '.join(e.pick(result, 1) for result in results)}")
        self.s.pairs.append((Function(name, None, [kind]), (results[0], results[1])))
        return "\n".join(lines)

    def _search(self, e: Expressions, results: tuple[DType, ...]) -> list[str]:
        """A loop, or one in another, that a function may return from."""
        lines, depth = [], 1
        for name in self.random.choice([["k"], ["k"], ["k", "j"]]):
            over = self.random.choice(["range(3)", "hal.unroll(3)", "while"])
            if depth == 1 and over == "while":
                e.frames[0]["seen"] = int32  # behind the loop, whose break has assigned it
            if over == "while":
                lines += ["    " * depth + f"{name} = 0", "    " * depth + "while True:"]
                lines += ["    " * depth + f"    {line}" for line in (
                    f"seen = {name} * 3", f"if {name} > 2:", "    break", f"{name} += 1",
                )]  # fmt: skip
            else:
                lines.append("    " * depth + f"for {name} in {over}:")
            e.frames.append({f"hal.int32({name})": int32})
            depth += 1
        values = ", ".join(e.pick(result, 1) for result in results)
        lines += ["    " * depth + f"if {e.condition()}:", "    " * depth + f"    return {values}"]
        for _ in range(depth - 1):
            e.frames.pop()
        return lines

    def _generic(self, name: str) -> str:
        self.e.functions.append(Function(name, None, []))
        form = self.random.choice(["max(a, b) - a", "a if a < b else a + b", "min(b, a, b)"])
        return f"def {name}(a, b):\n    return {form}"

    def _procedure(self, name: str) -> str:
        stored = self.random.choice(self.kinds.stored)
        held = float32 if stored in STORAGE_DTYPES else stored
        self.s.procedures.append(Function(name, None, [stored, held]))
        pointer = f"p: hal.Ptr[{spell(stored)}], at: hal.int32, v: {spell(held)}"
        return f"def {name}({pointer}):\n    if v != p[at]:\n        p[at] = v"

    # -- the body

    def _body(self) -> None:
        s, blocks = self.s, None
        if self.whole:
            blocks = Blocks(s, self.per_block, self._exchange())
            blocks.declare()
        if self.guarded:
            s.write(f"q = hal.global_idx(1) * {self.extent[0]} + hal.global_idx(0)")
            self._guard()
        elif self.grid[1:] == self.block[1:] == (1, 1):
            s.write("q = hal.global_idx(0)")
            s.write("lane = hal.thread_idx(0)")
        else:
            self._count_threads()
        self.e.frames[0]["q"] = int32
        for axis in range(2):
            self.e.frames[0][f"hal.global_idx({axis})"] = int32
        self.e.frames[0]["hal.thread_idx(0)"] = int32
        if not self.whole:
            self._bounds()
        for _ in range(self.random.choice([0, 0, 1])):
            s.local(1)
        for k in range(self.random.randint(2, 4)):
            dtype = self.e.any_dtype()
            s.write(f"v{k} = {spell(dtype)}({self.e.pick(dtype, 1)})")
            s.variables[f"v{k}"] = self.e.frames[0][f"v{k}"] = dtype
        self._statements(blocks)

    def _exchange(self) -> str | None:
        if self.random.random() < 0.6:
            return None
        self.places.append(Place("passed", int32, self.threads))
        return "passed"

    def _guard(self) -> None:
        """Keep out the threads that the last blocks have too many."""
        ends = [below(self.random, f"hal.global_idx({axis})", self.extent[axis]) for axis in (0, 1)]
        self.random.shuffle(ends)
        for end in [" and ".join(ends)] if self.random.random() < 0.6 else ends:
            self._only_if(end)

    def _only_if(self, condition: str) -> None:
        """Write a guard: the following statements are for the threads that meet the condition."""
        if self.random.random() < 0.5:
            self.s.write(f"if not ({condition}):")
            self.s.write("    return")
        else:
            self.s.write(f"if {condition}:")
            self.s.depth += 1

    def _bounds(self) -> None:
        """More guards, of the sort that become bounds of a loop over threads."""
        numbers = [name for name, dtype in self.params if dtype is int32]
        for _ in range(self.random.choice([0, 0, 1, 1, 2])):
            parts = [bound(self.random, numbers) for _ in range(self.random.choice([1, 1, 2]))]
            self._only_if(self.random.choice([" and ", " and ", " or "]).join(parts))

    def _count_threads(self) -> None:
        """The number of the thread in its block, and in the grid."""
        s = self.s
        s.write("lane = (hal.thread_idx(2) * hal.block_dim(1) + hal.thread_idx(1)) * "
                "hal.block_dim(0) + hal.thread_idx(0)")  # fmt: skip
        s.write("number = (hal.block_idx(2) * hal.grid_dim(1) + hal.block_idx(1)) * "
                "hal.grid_dim(0) + hal.block_idx(0)")  # fmt: skip
        s.write(f"q = number * {self.per_block} + lane")

    def _statements(self, blocks: Blocks | None) -> None:
        s, random = self.s, self.random
        if blocks is not None:
            s.returns = False
            for _ in range(random.randint(1, 3)):
                blocks.body(2)
                if self.wide or random.random() < 0.1:
                    random.choice([s.rounds, s.stride])()
        elif self.sweeps:
            for _ in range(random.randint(1, 2)):
                s.sweep(random.choice([0, 0, 1]))
        else:
            for _ in range(random.randint(2, 5)):
                s.statement(random.choice([1, 2, 3]))
            if self.wide or random.random() < 0.1:
                random.choice([s.rounds, s.stride])()
        for name, dtype in s.variables.items():  # nothing that was computed goes unseen
            self.places.append(Place(f"seen_{name}", dtype, self.size))
            s.write(f"seen_{name}[q] = {name}")
        self._inexact()

    def _inexact(self) -> None:
        """Last of all, into buffers that nothing reads."""
        if self.random.random() < 0.5:
            dtype = self.random.choice(self.kinds.floats)
            self.places.append(Place("close", dtype, self.size, CLOSE))
            self.s.write(f"close[q] = {self.e.inexact(dtype)}")
        if self.contract:
            dtype = self.random.choice(self.kinds.floats)
            self.places.append(Place("either", dtype, self.size * 2, EITHER))
            a, b, c = (self.s.new("c") for _ in range(3))
            for name in (a, b, c):
                self.s.write(f"{name} = {self.e.leaf(dtype)}")
            self.s.write(f"either[2 * q] = {a} * {b} + {c}")
            self.s.write(f"either[2 * q + 1] = hal.fma({a}, {b}, {c})")
