"""Random expressions of the kernel language, as text of a known dtype."""

from typing import NamedTuple

from guards import near

from hal_core.dtypes import STORAGE_DTYPES, DType, bool_, float32, int32, int64

MATH = ["exp", "exp2", "log", "log2", "rsqrt", "sin", "cos", "tan", "tanh", "atan"]


def spell(dtype):
    return f"hal.{dtype.__name__}"


class Function:
    """A `hal.func` that gives a value. Without parameters' dtypes: two of one dtype, as given."""

    def __init__(self, name, result, params):
        self.name, self.result, self.params = name, result, params


class Local(NamedTuple):
    """An array of the thread's own; `fixed` if all indices are constants."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    fixed: bool


class Expressions:
    """Draws from what is visible: `names` by dtype, and the buffers that may be read."""

    def __init__(self, random, kinds, products=True):
        self.random, self.kinds = random, kinds
        self.products = products  # whether floats are multiplied, and so may be contracted
        self.frames = [{}]
        self.inputs = []
        self.own = {}  # elements of the thread's own: text -> dtype
        self.functions = []
        self.locals = []
        self.tables = []

    def names(self, dtype):
        return [name for frame in self.frames for name, kind in frame.items() if kind is dtype]

    def pick(self, dtype, depth):
        """An expression of this dtype."""
        if depth <= 0 or self.random.random() < 0.3:
            return self.leaf(dtype)
        return self.random.choice(WAYS[dtype.kind])(self, dtype, depth - 1)

    def some(self, dtype):
        """Small, mostly: a compiler's time is the fuzzer's."""
        return self.pick(dtype, self.random.choice([1, 2, 2, 3]))

    def condition(self, depth=2):
        return self.pick(bool_, depth)

    def index(self, size, depth=2, wide=0.1):
        """Return an index of an array: clamped, or a floor modulo, and never negative."""
        if self.random.random() < 0.3:
            return near(self.random, size)
        kind = int64 if self.random.random() < wide else int32
        value = self.pick(kind, depth)
        if self.random.random() < 0.3:
            forms = ["min(max({0}, 0), {1})", "max(min({1}, {0}), 0)", "max(0, min({0}, {1}))"]
            return self.random.choice(forms).format(value, size - 1)
        return f"{value} % {size}"

    # -- leaves

    def leaf(self, dtype):
        names, chance = self.names(dtype), self.random.random()
        if names and chance < 0.6:
            return self.random.choice(names)
        if chance < 0.8 and (self.inputs or self.own):
            return self.load(dtype)
        other = self.random.choice(self.kinds.computed)
        if chance < 0.9 and self.names(other):
            return f"{spell(dtype)}({self.random.choice(self.names(other))})"
        return self.constant(dtype)

    def constant(self, dtype):
        if dtype is bool_:
            return f"hal.bool_({self.random.random() < 0.5})"
        if dtype.is_float:
            texts = ["0.0", "-0.0", "1.0", "-1.5", "0.1", "3.0e9", "1e-40", "math.inf", "math.nan"]
            return f"{spell(dtype)}({self.random.choice(texts)})"
        return f"{spell(dtype)}({self.literal(dtype)})"

    def literal(self, dtype):
        large = self.random.getrandbits(self.random.randint(3, 8 * dtype.itemsize - 1))
        limits = [int(dtype.min), int(dtype.max), large, large]
        some = [0, 1, 2, 3, 7, *(limits if self.random.random() < 0.3 else [])]
        return self.random.choice(some if dtype.kind == "u" else [*some, -1, -2, -5])

    def element(self, array, depth=0):
        """Any element of an array of the thread's own."""
        if array.fixed:
            indices = [str(self.random.randrange(size)) for size in array.shape]
        else:
            indices = [self.index(size, depth, wide=0) for size in array.shape]
        sign = self.random.choice([", ", "]["]) if array in self.tables else ", "
        return f"{array.name}[{sign.join(indices)}]"

    def load(self, dtype):
        if self.tables and self.random.random() < 0.15:
            array = self.random.choice(self.tables)
            text, stored = self.element(array), array.dtype
        elif self.locals and self.random.random() < 0.3:
            array = self.random.choice(self.locals)
            text, stored = self.element(array), array.dtype
        elif self.own and (not self.inputs or self.random.random() < 0.3):
            text, stored = self.random.choice(list(self.own.items()))
        else:
            name, stored, size = self._seen(self.random.choice(self.inputs))
            if self.random.random() < 0.15:
                return self._gated(dtype, name, stored, size)
            text = f"{name}[{self.index(size, 0)}]"
            if self.random.random() < 0.25:
                text = self._shaped(name, size)
        held = float32 if stored in STORAGE_DTYPES else stored
        return text if held is dtype else f"{spell(dtype)}({text})"

    def _seen(self, place):
        """The memory of an input, sometimes as elements of another dtype that fit its alignment."""
        if self.random.random() < 0.8:
            return place.name, place.dtype, place.size
        able = [dtype for dtype in self.kinds.stored if dtype.itemsize <= place.dtype.itemsize]
        dtype = self.random.choice(able)
        size = place.size * place.dtype.itemsize // dtype.itemsize
        return f"hal.bitcast({spell(dtype)}, {place.name})", dtype, size

    def _shaped(self, name, size):
        """An element of a part of the memory, with extents known at compile time or not."""
        start = self.random.randrange(size)
        part, left = name, size
        if start:
            part, left = f"{name}[{self.random.choice(AS_IS).format(start)}:]", size - start
        if self.random.random() < 0.3:
            return f"{part}[{self.index(left, 0, wide=0)}]"
        rows = self.random.randint(1, left)
        shape = [rows, left // rows] if self.random.random() < 0.8 else [1, rows, 1, left // rows]
        extents = ", ".join(self.random.choice(AS_IS).format(extent) for extent in shape)
        indices = ", ".join(self.index(extent, 0, wide=0) for extent in shape)
        return f"hal.view({part}, ({extents}))[{indices}]"

    def _gated(self, dtype, name, stored, size):
        """An index that may be outside, and a gate that keeps it from being read."""
        index = self.random.choice(self.names(int32)) if self.names(int32) else "hal.int32(3)"
        held = float32 if stored in STORAGE_DTYPES else stored
        gate = f"0 <= {index} < {size}"
        text = f"hal.load_if({gate}, {name}, {index}, {self.constant(held)})"
        return text if held is dtype else f"{spell(dtype)}({text})"

    # -- operations on all dtypes

    def _choice(self, dtype, depth):
        first, second = self.pick(dtype, depth), self.pick(dtype, depth)
        return f"({first} if {self.pick(bool_, depth)} else {second})"

    def _cast(self, dtype, depth):
        target = dtype
        if dtype is float32 and self.random.random() < 0.3:
            target = self.random.choice(sorted(STORAGE_DTYPES, key=str))
        return f"{spell(target)}({self.pick(self.random.choice(self.kinds.computed), depth)})"

    def _call(self, dtype, depth):
        able = [f for f in self.functions if f.result in (dtype, None)]
        if not able or dtype is bool_:
            return self._cast(dtype, depth)
        function = self.random.choice(able)
        kinds = function.params if function.result else [dtype, dtype]
        return f"{function.name}({', '.join(self.pick(kind, depth) for kind in kinds)})"

    def _extreme(self, dtype, depth):
        values = [self.pick(dtype, depth) for _ in range(self.random.choice([2, 2, 3]))]
        return f"{self.random.choice(['min', 'max'])}({', '.join(values)})"

    def _one_of(self, dtype, depth, forms):
        form = self.random.choice(forms)
        return form.format(*(self.pick(dtype, depth) for _ in range(form.count("{}"))))

    # -- by kind

    def _integers(self, dtype, depth):
        operators = ["+", "-", "*", "//", "%", "&", "|", "^", "<<", ">>"]
        forms = [f"({{}} {operator} {{}})" for operator in operators]
        return self._one_of(dtype, depth, [*forms, "hal.truncdiv({}, {})", "hal.truncmod({}, {})"])

    def _with_number(self, dtype, depth):
        operator = self.random.choice(["+", "-", "*", "//", "%", "&", "|", "^", "<<", ">>"])
        number = self.literal(dtype)
        number = abs(number) % 64 if operator in ("<<", ">>") else number
        return f"({self.pick(dtype, depth)} {operator} {number})"

    def _integer_unary(self, dtype, depth):
        return self._one_of(dtype, depth, ["(-{})", "(~{})", "abs({})"])

    def _bits(self, dtype, depth):
        """A NaN has many bit patterns, so none becomes an integer."""
        if dtype.itemsize == 2 and self.random.random() < 0.5:
            half = self.random.choice(["hal.float16", "hal.bfloat16"])
            value = f"{half}({self.pick(self.random.choice(self.kinds.integers), depth)})"  # no NaN
            return f"hal.bitcast({spell(dtype)}, {value})"
        widths = [kind for kind in self.kinds.computed if kind.itemsize == dtype.itemsize]
        source = self.random.choice([kind for kind in widths if kind is not bool_])
        value = self.leaf(source) if source.is_float else self.pick(source, depth)
        if source.is_float and dtype.is_integer:
            value = f"{spell(source)}(1.5) if hal.isnan({value}) else {value}"
        return f"hal.bitcast({spell(dtype)}, {value})"

    def _floats(self, dtype, depth):
        products = ["({} * {})", "({} ** 2)"] if self.products else []
        forms = ["({} + {})", "({} - {})", "({} / {})", "hal.fmod({}, {})", "hal.fma({}, {}, {})"]
        return self._one_of(dtype, depth, [*forms, *products])

    def _float_unary(self, dtype, depth):
        names = ["-", "abs", "round", "hal.floor", "hal.ceil", "hal.trunc", "hal.sqrt"]
        halves = ["hal.float16", "hal.bfloat16"] if dtype is float32 else []
        forms = [f"{name}({{}})" for name in [*names, *halves]]
        return self._one_of(dtype, depth, [*forms, "round({} / 2)"])  # halves go to the even one

    def _comparison(self, dtype, depth):
        signs = ["<", "<=", ">", ">=", "==", "!="]
        kind = self.random.choice([*self.kinds.computed, *self.kinds.floats, *self.kinds.floats])
        values = [self.pick(kind, depth) for _ in range(self.random.choice([2, 2, 2, 3]))]
        text = values[0]
        for value in values[1:]:
            text += f" {self.random.choice(signs)} {value}"
        return f"({text})"

    def _logic(self, dtype, depth):
        forms = ["({} and {})", "({} or {})", "(not {})", "({} & {})", "({} | {})", "({} ^ {})"]
        return self._one_of(bool_, depth, forms)

    def _is_nan(self, dtype, depth):
        return f"hal.isnan({self.pick(self.random.choice(self.kinds.floats), depth)})"

    # -- what is not exact, and so goes to memory at once

    def inexact(self, dtype):
        chance, a, b = self.random.random(), self.pick(dtype, 1), self.pick(dtype, 1)
        if chance < 0.1:
            return f"hal.atan2({a}, {b})"
        if chance < 0.2:
            return f"hal.pow({a}, {b})" if chance < 0.15 else f"({a} ** {b})"
        return f"hal.{self.random.choice(MATH)}({a})"

    def any_dtype(self):
        return self.random.choice([*self.kinds.computed, int32, int32, float32])


AS_IS = ["{}", "hal.int32({})", "min(n, 0) + {}"]  # the same number; n is not negative
IN_ANY_ORDER = ["add", "min", "max", "and", "or", "xor"]  # atomics that give the same

INTEGER_WAYS = [
    Expressions._integers, Expressions._integers, Expressions._integers, Expressions._with_number,
    Expressions._integer_unary, Expressions._choice, Expressions._cast, Expressions._extreme,
    Expressions._bits, Expressions._call,
]  # fmt: skip
WAYS = {
    "i": INTEGER_WAYS,
    "u": INTEGER_WAYS,
    "f": [
        Expressions._floats, Expressions._floats, Expressions._float_unary, Expressions._choice,
        Expressions._cast, Expressions._extreme, Expressions._bits, Expressions._call,
    ],
    "b": [
        Expressions._comparison, Expressions._comparison, Expressions._comparison,
        Expressions._logic, Expressions._logic, Expressions._is_nan, Expressions._choice,
        Expressions._cast,
    ],
}  # fmt: skip
