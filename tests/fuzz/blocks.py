"""Statements of a whole block: shared memory, barriers, and the control flow around them.

What stands here is written only where all threads of a block come along.
"""

from typing import NamedTuple

from expressions import IN_ANY_ORDER, spell

from hal_core.dtypes import STORAGE_DTYPES, DType, bool_, float32, int32, int64

WHOLE = "whole"  # a loop that all threads leave together, so that no statement of one does


class Tile(NamedTuple):
    """A shared array with an element for each thread of the block."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    own: str  # the thread's index


class Blocks:
    """Draws statements with barriers between those of each thread."""

    def __init__(self, statements, threads, exchange):
        self.s, self.threads = statements, threads  # of a block
        self.exchange = exchange  # a buffer with an element for each thread of the grid
        self.exchanged = int32
        self.tiles = []
        self.bins = []
        self.uniform = ["n > 1", "n % 2 == 0", "hal.block_idx(0) % 2 == 0", "hal.grid_dim(0) > 1"]

    def declare(self):
        """At the top of the kernel."""
        random, s = self.s.random, self.s
        for _ in range(random.randint(1, 2)):
            dtype, name = random.choice([*s.e.kinds.stored, int32, float32]), s.new("tile")
            shape, own = self._shape()
            text = str(shape) if len(shape) > 1 or random.random() < 0.3 else str(shape[0])
            s.write(f"{name} = hal.shared({spell(dtype)}, {text})")
            self.tiles.append(Tile(name, dtype, shape, own))
        if random.random() < 0.4:
            name, dtype, size = s.new("bins"), random.choice(s.e.kinds.atomic), random.randint(1, 5)
            s.write(f"{name} = hal.shared({spell(dtype)}, {size})")
            self.bins.append((name, dtype, size))

    def _shape(self):
        divisors = [d for d in range(2, self.threads) if self.threads % d == 0]
        chance = self.s.random.random()
        if not divisors or chance < 0.5:
            return (self.threads,), "lane"
        columns = self.s.random.choice(divisors)
        rows = self.threads // columns
        if chance < 0.9:
            return (rows, columns), f"lane // {columns}, lane % {columns}"
        return (1, rows, columns), f"0, lane // {columns}, lane % {columns}"

    def body(self, nesting):
        for _ in range(self.s.random.choice([1, 1, 2, 3])):
            if self.s.random.random() < 0.4:
                self.s.statement(1)
            else:
                self.s.random.choice(DEEP if nesting else FLAT)(self, nesting)

    # -- what needs barriers

    def share(self, nesting):
        """Each thread writes its element, then reads any."""
        tile, s = self.s.random.choice(self.tiles), self.s
        held = float32 if tile.dtype in STORAGE_DTYPES else tile.dtype
        s.write(f"{tile.name}[{tile.own}] = {s.e.some(held)}")
        if tile.dtype is not bool_ and s.random.random() < 0.3:
            s.write(f"{tile.name}[{tile.own}] += {s.e.pick(held, 1)}")
        s.write("hal.barrier()")
        for _ in range(s.random.randint(1, 2)):
            index = ", ".join(s.e.index(size, wide=0) for size in tile.shape)
            self._keep(f"{tile.name}[{index}]", held)
        s.write("hal.barrier()")

    def _keep(self, text, dtype):
        name = self.s.new("t")
        self.s.write(f"{name} = {text}")
        self.s.e.frames[-1][name] = dtype

    def together(self, nesting):
        """What the threads of a subgroup tell each other, whatever its size."""
        e = self.s.e
        dtype = self.s.random.choice([*e.kinds.atomic, float32])
        if self.s.random.random() < 0.2:
            return self._keep(f"hal.bitcast(hal.int64, hal.ballot({e.condition()}))", int64)
        calls = ["hal.shuffle({}, 0)", "hal.shuffle({}, hal.subgroup_lane() // 2)",
                 "hal.shuffle_xor({}, hal.subgroup_lane() & 1)"]  # fmt: skip
        if dtype.is_integer:
            names = ["sum", "min", "max", "inclusive_sum", "exclusive_sum"]
            calls += [f"hal.subgroup_{name}({{}})" for name in names]
        value = f"{spell(dtype)}({e.pick(dtype, 2)})"
        return self._keep(self.s.random.choice(calls).format(value), dtype)

    def count(self, nesting):
        """Atomics on shared memory, read when all are done."""
        if not self.bins:
            return self.share(nesting)
        s = self.s
        name, dtype, size = s.random.choice(self.bins)
        s.write(f"for {(k := s.new('k'))} in range(lane, {size}, {self.threads}):")
        s.write(f"    {name}[{k}] = {s.e.constant(dtype)}")
        s.write("hal.barrier()")
        kind = s.random.choice(IN_ANY_ORDER)
        change = f"hal.atomic_{kind}({name}, {s.e.index(size)}, {s.e.pick(dtype, 2)})"
        if s.random.random() < 0.5:
            with s.block(f"if {s.e.condition()}:"):
                s.write(change)
        else:
            s.write(change)
        s.write("hal.barrier()")
        read = s.random.choice(["{}[{}]", "hal.atomic_load({}, {})"])
        self._keep(read.format(name, s.e.index(size)), dtype)
        return s.write("hal.barrier()")

    def pass_on(self, nesting):
        """Device memory that the threads of a block exchange."""
        if self.exchange is None:
            return self.share(nesting)
        s = self.s
        held = float32 if self.exchanged in STORAGE_DTYPES else self.exchanged
        s.write(f"{self.exchange}[q] = {s.e.pick(held, 2)}")
        s.write("hal.barrier()")
        self._keep(f"{self.exchange}[q - lane + {s.e.index(self.threads, wide=0)}]", held)
        return s.write("hal.barrier()")

    # -- control flow of the whole block

    def branch(self, nesting):
        with self.s.block(f"if {self.s.random.choice(self.uniform)}:"):
            self.body(nesting - 1)
        if self.s.random.random() < 0.4:
            with self.s.block("else:"):
                self.body(nesting - 1)

    def loop(self, nesting):
        kind = self.s.random.choice(["for", "for", "unroll"])
        bounds = ["2"] if kind == "unroll" else ["3", "n % 4", "2, -1, -1", "hal.block_idx(0) % 3"]
        with self.s.loop(kind, self.s.random.choice(bounds), int32):
            counter = self.s.lines[-1].split()[1]
            self.s.loops[-1] = WHOLE
            self.uniform.append(f"{counter} % 2 == 0" if kind == "for" else "n != 3")
            self.body(nesting - 1)
            if kind == "for" and self.s.random.random() < 0.4:
                self._leave(["break", "continue"])
                self.body(0)
            self.uniform.pop()

    def while_loop(self, nesting):
        name = self.s.new("w")
        self.s.write(f"{name} = hal.int32(0)")
        with self.s.block(f"while {name} < {self.s.random.choice(['2', '3', 'n % 4'])}:"):
            self.s.write(f"{name} += 1")
            self.s.loops.append(WHOLE)
            self.uniform.append(f"{name} % 2 == 0")
            self.body(nesting - 1)
            self.uniform.pop()
            self.s.loops.pop()

    def end(self, nesting):
        self._leave(["return"])

    def _leave(self, words):
        with self.s.block(f"if {self.s.random.choice(self.uniform)}:"):
            self.s.write(self.s.random.choice(words))


FLAT = [Blocks.share, Blocks.share, Blocks.count, Blocks.pass_on, Blocks.together]
DEEP = [
    *FLAT, Blocks.share, Blocks.branch, Blocks.loop, Blocks.loop, Blocks.while_loop, Blocks.end,
]  # fmt: skip
