"""Random statements: each draws its lines from the expressions and adds to what is visible."""

from contextlib import contextmanager
from itertools import count

from expressions import IN_ANY_ORDER, Local, spell
from guards import CLAMPED, INDICES, counted

from hal_core.dtypes import STORAGE_DTYPES, bool_, float32, int32, int64

INTEGER = ["+=", "-=", "*=", "//=", "%=", "&=", "|=", "^=", "<<=", ">>="]
AUGMENTED = {"b": ["&=", "|=", "^="], "f": ["+=", "-="], "i": INTEGER, "u": INTEGER}


class Statements:
    """The body of a kernel that is being written."""

    def __init__(self, random, expressions):
        self.random, self.e = random, expressions
        self.lines = []
        self.depth = 1  # of the indentation
        self.numbers = count()
        self.variables = {}  # assigned at the start, and again at will
        self.own = []  # the thread's elements: text and memory's dtype
        self.vectors = []  # of them: memory, index, number
        self.sweeps = []  # of them: array, elements of a thread
        self.tallies = []  # and the one atomic each is changed by
        self.procedures = []
        self.pairs = []  # they give two values
        self.loops = []  # around this place: "for", "while" or "unroll"
        self.returns = True

    def write(self, line):
        self.lines.append("    " * self.depth + line)

    def new(self, prefix):
        return f"{prefix}{next(self.numbers)}"

    @contextmanager
    def block(self, header):
        """What is assigned in a block for the first time is not visible behind it."""
        self.write(header)
        self.depth += 1
        self.e.frames.append({})
        arrays = len(self.e.locals)
        yield
        self.e.frames.pop()
        del self.e.locals[arrays:]
        self.depth -= 1

    def body(self, nesting):
        for _ in range(self.random.choice([1, 1, 2, 3])):
            self.statement(nesting)

    def statement(self, nesting):
        ways = [*SIMPLE, *(NESTED if nesting else [])]
        self.random.choice(ways)(self, nesting)

    # -- simple statements

    def temporary(self, nesting):
        dtype, name = self.e.any_dtype(), self.new("t")
        self.write(f"{name} = {self.e.some(dtype)}")
        self.e.frames[-1][name] = dtype

    def assign(self, nesting):
        name, dtype = self.random.choice(list(self.variables.items()))
        if self.random.random() < 0.4:
            operators = AUGMENTED[dtype.kind]
            extra = ["*="] if dtype.is_float and self.e.products else []
            operator = self.random.choice([*operators, *extra])
            self.write(f"{name} {operator} {self.e.pick(dtype, 2)}")
        else:
            self.write(f"{name} = {self.e.some(dtype)}")

    def several(self, nesting):
        """Two targets: `v, y[q] = w, v`, `v = w = 1`, or the two values of a function."""
        places = [*self.variables.items()]
        places += [(text, float32 if kind in STORAGE_DTYPES else kind) for text, kind in self.own]
        (a, first), (b, second) = self.random.choice(places), self.random.choice(places)
        if first is second and self.random.random() < 0.3:
            self.write(f"{a} = {b} = {self.e.pick(first, 1)}")
        elif self.pairs and self.random.random() < 0.5:
            function, results = self.random.choice(self.pairs)
            names = [self.new("t"), self.new("t")]
            given = ", ".join(self.e.pick(dtype, 1) for dtype in function.params)
            self.write(f"{', '.join(names)} = {function.name}({given})")
            self.e.frames[-1].update(zip(names, results, strict=True))
        else:
            values = [a, b] if first is not second else [b, a]
            if self.random.random() < 0.5:
                values = [self.e.pick(first, 1), self.e.pick(second, 1)]
            self.write(f"{a}, {b} = {', '.join(values)}")

    def store(self, nesting):
        text, dtype = self.random.choice(self.own)
        held = float32 if dtype in STORAGE_DTYPES else dtype
        operator = "=" if dtype is bool_ else self.random.choice(["=", "=", "+="])
        self.write(f"{text} {operator} {self.e.some(held)}")

    def replace(self, nesting):
        """Read an element, store to it, and use what was read."""
        text, dtype = self.random.choice(self.own)
        held = float32 if dtype in STORAGE_DTYPES else dtype
        old, (variable, kind) = self.new("t"), self.random.choice([*self.variables.items()])
        self.write(f"{old} = {text}")
        self.write(f"{text} = {self.e.some(held)}")
        self.write(f"{variable} = {spell(kind)}({old})")

    def vector(self, nesting):
        """Several elements at once: of an input, or the thread's own, which are also written."""
        own = bool(self.vectors) and self.random.random() < 0.6
        if own:
            memory, index, count, dtype = self.random.choice(self.vectors)
        else:
            place = self.random.choice(self.e.inputs)
            counts = [count for count in (2, 4, 8) if count <= place.size]
            if not counts:
                return self.store(nesting)
            memory, count, dtype = place.name, self.random.choice(counts), place.dtype
            index = f"({self.e.index(place.size // count, 1)}) * {count}"
        held = float32 if dtype in STORAGE_DTYPES else dtype
        if own and self.random.random() < 0.6:
            values = ", ".join(self.e.pick(held, 1) for _ in range(count))
            return self.write(f"hal.store({memory}, {index}, {values})")
        names = [self.new("t") for _ in range(count)]
        self.write(f"{', '.join(names)} = hal.load({memory}, {index}, {count})")
        return self.e.frames[-1].update(dict.fromkeys(names, held))

    def local(self, nesting):
        """An array of the thread's own, all of whose elements are written before any is read."""
        random, name, dtype = (
            self.random, self.new("l"), self.random.choice([*self.e.kinds.stored, int32]),
        )  # fmt: skip
        shape = tuple(random.randint(1, 4) for _ in range(random.choice([1, 1, 2])))
        array = Local(name, dtype, shape, random.random() < 0.5)
        self.write(f"{name} = hal.local({spell(dtype)}, {shape if len(shape) > 1 else shape[0]})")
        counters = [self.new("k") for _ in shape]
        kind = "hal.unroll" if array.fixed else "range"
        for depth, (counter, size) in enumerate(zip(counters, shape, strict=True)):
            self.write("    " * depth + f"for {counter} in {kind}({size}):")
        held = float32 if dtype in STORAGE_DTYPES else dtype
        value = self.e.pick(held, 1)
        self.write("    " * len(shape) + f"{name}[{', '.join(counters)}] = {value}")
        self.e.locals.append(array)

    def local_store(self, nesting):
        if not self.e.locals:
            return self.store(nesting)
        array = self.random.choice(self.e.locals)
        held = float32 if array.dtype in STORAGE_DTYPES else array.dtype
        operator = "=" if array.dtype is bool_ else self.random.choice(["=", "=", "+="])
        return self.write(f"{self.e.element(array, 1)} {operator} {self.e.some(held)}")

    def tally(self, nesting):
        """Atomics whose order is not seen: one kind an array, and the old value is not used."""
        if not self.tallies:
            return self.store(nesting)
        place, kind = self.random.choice(self.tallies)
        value = self.e.pick(place.dtype, 2)
        if place.dtype.is_float:  # small whole numbers, so that no sum is rounded
            value = f"{spell(place.dtype)}({self.e.pick(int32, 1)} % 16)"
        index = self.e.index(place.size)
        order = self.random.choice(["", "", ", hal.release", ", hal.acquire", ", hal.acq_rel"])
        return self.write(f"hal.atomic_{kind}({place.name}, {index}, {value}{order})")

    def own_atomic(self, nesting):
        """On the thread's own element, so that the old value is known."""
        able = [(text, dtype) for text, dtype in self.own if dtype in self.e.kinds.atomic]
        if not able:
            return self.assign(nesting)
        text, dtype = self.random.choice(able)
        array, index = text[:-1].rsplit("[", 1)
        index = f"({index})"
        kind = self.random.choice([*IN_ANY_ORDER, "exchange", "compare_exchange", "load", "store"])
        count = {"compare_exchange": 2, "load": 0}.get(kind, 1)
        given = [array, index, *(self.e.pick(dtype, 1) for _ in range(count))]
        order = {"load": "hal.acquire", "store": "hal.release"}.get(kind)
        given += [order] if order and self.random.random() < 0.5 else []
        call = f"hal.atomic_{kind}({', '.join(given)})"
        if kind == "store":
            return self.write(call)
        name = self.new("t")
        self.write(f"{name} = {call}")
        self.e.frames[-1][name] = dtype
        return None

    def claim(self, nesting):
        a = self.e.pick(int32, 1)
        self.write(f"assert {a} <= 2147483647, 'an int32'")
        if self.random.random() < 0.3:
            self.write(f"hal.print('seen:', {self.e.pick(self.e.any_dtype(), 1)}, 0.5)")

    def procedure(self, nesting):
        able = [(f, text) for f in self.procedures for text, dtype in self.own
                if dtype is f.params[0] and "," not in text[text.rindex("[") :]]  # fmt: skip
        if not able:
            return self.assign(nesting)
        function, text = self.random.choice(able)
        array, index = text[:-1].rsplit("[", 1)
        return self.write(
            f"{function.name}({array}, {index}, {self.e.pick(function.params[1], 2)})"
        )

    # -- blocks

    def branch(self, nesting):
        with self.block(f"if {self.e.condition()}:"):
            self.body(nesting - 1)
        while self.random.random() < 0.25:
            with self.block(f"elif {self.e.condition()}:"):
                self.body(nesting - 1)
        if self.random.random() < 0.5:
            with self.block("else:"):
                self.body(nesting - 1)

    def for_range(self, nesting):
        wide = self.random.random() < 0.15
        bound = f"{self.e.pick(int64 if wide else int32, 1)} % 5"
        forms = ["3", "{0}", "-1, {0}", "{0}, -2, -1", "{0}, 9, 4", "2, {0}", "{0}, 1, -2"]
        with self.loop("for", self.random.choice(forms).format(bound), int64 if wide else int32):
            self.loop_body(nesting)

    def rounds(self):
        """A loop that all threads agree on, too long to be unrolled: they run it in lockstep."""
        end = self.random.choice(["20", "n + 17", "hal.block_idx(0) + 18"])
        with self.loop("for", self.random.choice(["{}", "2, {}", "n, {}", "0, {}, 2"]).format(end),
                       int32):  # fmt: skip
            self.gather(self.lines[-1].split()[1])

    def gather(self, counter):
        """Change each variable by an element that the counter chooses."""
        for name, dtype in self.variables.items():
            place = self.random.choice(self.e.inputs)
            value = f"{spell(dtype)}({place.name}[{counter} % {place.size}])"
            operator = self.random.choice(AUGMENTED[dtype.kind])
            header = f"if {self.random.choice(self.e.names(bool_) or ['q % 3 == 0'])}:"
            if self.random.random() < 0.8:
                self.write(f"{name} {operator} {value}")
            else:
                with self.block(header):
                    self.write(f"{name} {operator} {value}")

    def stride(self):
        """A loop in which a thread strides over more elements than there are threads."""
        name, random, place = self.new("s"), self.random, self.random.choice(self.e.inputs)
        neighbours = random.random() < 0.7  # else any elements: such loops are left alone
        index = "hal.global_idx(0)" if neighbours else "hal.global_idx(1)"
        start = random.choice([index, index, "hal.thread_idx(0)"])
        self.write(f"{name} = {start}{random.choice(['', '', ' + 1', ' + 3'])}")
        ends = (
            [str(place.size), f"min(n, {place.size})"] if neighbours else ["40", "n + 30", "q + 9"]
        )
        step = random.choice(["hal.grid_dim(0) * hal.block_dim(0)", "hal.block_dim(0)", "7",
                              "max(1, n - 3)", "(n % 4 + 1)"])  # fmt: skip
        with self.block(f"while {name} < {random.choice(ends)}:"):
            if neighbours:
                for variable, dtype in self.variables.items():
                    value = f"{spell(dtype)}({place.name}[{name}])"
                    self.write(f"{variable} {random.choice(AUGMENTED[dtype.kind])} {value}")
            else:
                self.gather(name)
            if random.random() < 0.3:
                self.store(0)
            self.write(f"{name} += {step}")

    def taps(self, nesting):
        """Read beside the thread's own place, in steps that all threads share."""
        name, dtype = self.random.choice(list(self.variables.items()))
        place = self.random.choice(self.e.inputs)
        with self.loop("for", self.random.choice(["-2, 3", "4", "3, -2, -2"]), int32):
            counter = self.lines[-1].split()[1]
            steps = [counter, f"{counter} * n", f"n * {counter}", f"{counter} * (n - 3)",
                     f"{counter} * 1073741824", f"{counter} * hal.block_idx(0)"]  # fmt: skip
            index = f"{self.random.choice(INDICES)} + {self.random.choice(steps)}"
            index = self.random.choice(CLAMPED).format(f"({index})", place.size)
            operator = self.random.choice(AUGMENTED[dtype.kind])
            self.write(f"{name} {operator} {spell(dtype)}({place.name}[{index}])")

    def sweep(self, nesting):
        """Go through the thread's elements in a short loop, under a guard with its counter."""
        if not self.sweeps:
            return self.store(nesting)
        name, each, dtype = self.random.choice(self.sweeps)
        held = float32 if dtype in STORAGE_DTYPES else dtype
        numbers = [name for name in self.e.names(int32) if name == "n"] or ["3"]
        with self.loop(self.random.choice(["for", "for", "unroll"]), str(each), int32):
            counter = self.lines[-1].split()[1]
            index = self.random.choice([f"{each} * q + {counter}", f"{counter} + q * {each}"])
            with self.block(f"if {counted(self.random, f'{each} * q', counter, numbers)}:"):
                self.write(f"{name}[{index}] = {self.e.some(held)}")
                if nesting and self.random.random() < 0.3:
                    self.body(nesting - 1)
        return None

    def carry(self, nesting):
        """Carry a variable from one turn of a loop to the next that the loop inside alone uses."""
        name, (text, kind) = self.new("c"), self.random.choice(self.own)
        self.write(f"{name} = {self.e.pick(int32, 1)}")
        with self.loop("for", "3", int32), self.loop("for", f"{self.e.pick(int32, 1)} % 5", int32):
            self.e.frames[-1][name] = int32
            self.write(f"{name} = {name} * 5 + {self.e.pick(int32, 1)}")
            self.write(f"{text} = {spell(float32 if kind in STORAGE_DTYPES else kind)}({name})")
            self.loop_body(nesting)

    @contextmanager
    def loop(self, kind, bounds, dtype):
        name = self.new("k")
        function = "hal.unroll" if kind == "unroll" else "range"
        if dtype is int64 and kind == "for" and "%" not in bounds:
            dtype = int32
        with self.block(f"for {name} in {function}({bounds}):"):
            if kind == "for":
                self.e.frames[-1][name] = dtype
            self.loops.append(kind)
            yield
            self.loops.pop()

    def unroll(self, nesting):
        with self.loop("unroll", self.random.choice(["2", "1, 4", "3, 0, -2"]), int32):
            name = self.lines[-1].split()[1]
            self.e.frames[-1][f"hal.int32({name})"] = int32
            self.body(nesting - 1)

    def while_loop(self, nesting):
        """Counts first of all, so that a `continue` cannot make it endless."""
        name = self.new("w")
        self.write(f"{name} = hal.int32(0)")
        extra = f" and {self.e.condition(1)}" if self.random.random() < 0.5 else ""
        header = f"while {name} < {self.random.randint(1, 5)}{extra}:"
        if self.random.random() < 0.2:
            header = "while True:"
        with self.block(header):
            self.loops.append("while")
            self.e.frames[-1][name] = int32
            self.write(f"{name} += 1")
            if header == "while True:":
                with self.block(f"if {name} > 3 or {self.e.condition(1)}:"):
                    self.write("break")
            self.loop_body(nesting)
            self.loops.pop()

    def loop_body(self, nesting):
        self.body(nesting - 1)
        if self.random.random() < 0.5:
            self.leave(nesting)
            self.body(nesting - 1)

    def leave(self, nesting):
        inner = self.loops[-1] if self.loops else ""
        words = ["break", "continue"] if inner in ("for", "while") else []
        words += ["return"] if self.returns else []
        if not words:
            return self.assign(nesting)
        with self.block(f"if {self.e.condition()}:"):
            if self.random.random() < 0.5:
                self.body(0)
            self.write(self.random.choice(words))
        return None


SIMPLE = [
    Statements.temporary, Statements.temporary, Statements.assign, Statements.assign,
    Statements.assign, Statements.store, Statements.store, Statements.store, Statements.tally,
    Statements.own_atomic, Statements.claim, Statements.procedure, Statements.several,
    Statements.local_store, Statements.vector, Statements.replace,
]  # fmt: skip
NESTED = [
    Statements.branch, Statements.branch, Statements.branch, Statements.for_range,
    Statements.for_range, Statements.sweep, Statements.taps, Statements.while_loop,
    Statements.unroll, Statements.leave, Statements.local, Statements.carry,
]  # fmt: skip
