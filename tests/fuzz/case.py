"""A generated kernel and all that running it needs."""

from typing import Any, NamedTuple

import numpy as np

from hal_core.dtypes import DTYPES, STORAGE_DTYPES, DType, float64

GUARDS = 5, 16  # elements on each side of a view that must stay as they are; 16: it is aligned

# How a buffer is compared with the interpreter's.
EXACT = "exact"  # NaN is NaN
CLOSE = "close"  # results of exp, sin, ...
SUM = "sum"  # exact, in whole numbers: the order of the atomics must not be seen
EITHER = "either"  # pairs: a * b + c, and the same fused; the first may be both


class Place(NamedTuple):
    """A buffer of the kernel."""

    name: str
    dtype: DType
    size: int
    compare: str = EXACT


class Case(NamedTuple):
    seed: int
    source: str  # a module that defines the kernel `fuzzed`
    places: tuple[Place, ...]
    vals: tuple[Any, ...]
    launch: dict[str, Any]

    @property
    def guard(self):
        """The guard elements on each side of a buffer."""
        return GUARDS[self.seed % 2]

    def arrays(self):
        """The buffers' contents before the launch, with guard elements on both sides."""
        random = np.random.default_rng(self.seed)
        guards = 2 * self.guard
        arrays = [values(place.dtype, place.size + guards, random) for place in self.places]
        for place, array in zip(self.places, arrays, strict=True):
            if place.compare == SUM:
                array[:] = random.integers(-9, 10, len(array))
        return arrays

    def __str__(self):
        places = ", ".join(f"{p.name}: {p.size} x {p.dtype}" for p in self.places)
        return f"# seed {self.seed}: {places}\n# vals={self.vals} {self.launch}\n{self.source}"


def within(place, array):
    """The elements that the kernel sees."""
    guard = (len(array) - place.size) // 2
    return slice(guard, guard + place.size)


def values(dtype, size, random):
    """Numbers of every sort: small, at the limits, any bits, and for floats what is no number."""
    kind = dtype.to_numpy()
    if dtype.kind == "b":
        return random.integers(0, 2, size).astype(bool)
    small = random.integers(-9 if dtype.kind != "u" else 0, 10, size)
    choice = random.integers(0, 4, size)
    if dtype.is_integer:
        low, high = int(dtype.min), int(dtype.max)
        limits = np.array([low, low + 1, high - 1, high, high // 2, 1], kind)
        any_ = np.frombuffer(random.bytes(size * dtype.itemsize), kind)
        parts = [small.astype(kind), small.astype(kind), random.choice(limits, size), any_]
        return np.choose(choice, parts)
    tiny = 2.0**-149 if dtype.name == "float32" else 2.0**-20
    odd = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, np.nan, np.nan, 2.0**31, -(2.0**63), tiny])
    wide = np.ldexp(random.standard_normal(size), random.integers(-40, 60, size))
    parts = [small * 0.5, random.standard_normal(size), wide, random.choice(odd, size)]
    with np.errstate(over="ignore"):
        return np.choose(choice, parts).astype(kind)


def number(dtype, random):
    """A value parameter."""
    if dtype.kind == "b":
        return random.random() < 0.5
    if dtype.is_float:
        some = [0.0, -0.0, 1.5, -3.25, 1e10, -1e-10, float("inf"), float("nan"), 0.1]
        return float(np.float32(random.choice(some)))
    some = [0, 1, 2, 3, 5, int(dtype.max), int(dtype.min), int(dtype.max) - 1]
    return random.choice(some)


class Kinds:
    """The dtypes that kernels draw from."""

    def __init__(self, stored, widest_atomic):
        self.stored = stored
        self.computed = [dtype for dtype in stored if dtype not in STORAGE_DTYPES]
        self.integers = [dtype for dtype in self.computed if dtype.is_integer]
        self.floats = [dtype for dtype in self.computed if dtype.is_float]
        self.atomic = [dtype for dtype in self.integers if 4 <= dtype.itemsize <= widest_atomic]


EVERY = Kinds(list(DTYPES.values()), 8)
OF_METAL = Kinds([dtype for dtype in EVERY.stored if dtype is not float64], 4)
