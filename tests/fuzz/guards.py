"""Conditions on the index of a thread, in the spellings that become bounds of a loop."""

BELOW = [
    "{i} < {n}", "{i} <= {n} - 1", "{n} > {i}", "{i} + 1 <= {n}", "not {i} >= {n}",
    "0 <= {i} < {n}", "{i} - 3 < {n} - 3", "not ({i} < 0 or {i} > {n} - 1)",
]  # fmt: skip
INDICES = [
    "hal.global_idx(0)", "hal.global_idx(0)", "hal.global_idx(0)", "hal.thread_idx(0)",
    "hal.block_idx(0) * hal.block_dim(0) + hal.thread_idx(0)", "hal.global_idx(1)",
    "hal.thread_idx(2)",
]  # fmt: skip
ADDED = ["", "", "", " + 1", " - 1", " + 3", " + 65536", " + 65537", " - 2147483647"]
STEPS = [
    "", "", "", "", " * 2", " // 2", " >> 1", " << 30", " * 3", " & -4", " * {kind}(n)",
    " // {kind}(n)", " * {large}", " * {large}",
]  # fmt: skip
CHANGED = ["", "", " - 1", " + 2", " // 2", " * 3"]
AROUND = ["({})", "({})", "({})", "(not ({}))", "(0 <= n < 9 and {})", "({} or n % 3 == 7)"]
COUNTED = [
    " + {k}", " + {k}", " + {k}", " - {k}", " + 3 * {k}", " + {k} * {n}", " - {n} * {k}",
    " + {k} * {n} * hal.grid_dim(0)", " + {k} * 536870912", " + ({k} + 1) * 65536",
]  # fmt: skip
CLAMPED = [
    "min(max({0}, 0), {1} - 1)", "max(min({1} - 1, {0}), 0)", "max(0, min({0}, {1} - 1))",
    "({0}) % {1}", "({0} + {1}) % {1}", "({1} + {0}) % {1}", "max(min(abs({0}), {1} - 1), 0)",
    "({0} if 0 <= {0} < {1} else 0)", "({0} if not ({0} < 0 or {0} > {1} - 1) else {1} - 1)",
]  # fmt: skip
FLAT = ["{0} // {1}", "{0} % {1}", "({0} - {0} // {1} * {1})", "{0} // 2 % {1}", "{0} % {1} // 3"]
WIDTHS = ["n", "(n + 5)", "hal.int32(37)", "hal.block_dim(0)", "hal.int64(n * 4)"]


def index_of(random):
    """Write the index of a thread, or its row or column in an image of some width."""
    index = random.choice(INDICES)
    if random.random() < 0.2:
        width = random.choice(WIDTHS)
        index = f"({index})" if "int64" not in width else f"hal.int64({index})"
        index = f"hal.int32({random.choice(FLAT).format(index, width)})"
    return index


def near(random, size):
    """An index of an array with this many elements, beside the thread's."""
    index = f"{index_of(random)}{random.choice(['', ' + 1', ' - 1', ' - 2', ' + 5', ' + n'])}"
    return random.choice(CLAMPED).format(index, random.choice([str(size), f"hal.int32({size})"]))


def below(random, index, end):
    """Write the condition that an index is less than a number."""
    return f"({random.choice(BELOW).format(i=index, n=f'hal.int32({end})')})"


def bound(random, numbers):
    """Write the condition that an index lies within `numbers`, int32 values of all threads."""
    kind = random.choice(["hal.int32", "hal.int32", "hal.int64"])
    index = f"{kind}({index_of(random)}){random.choice(ADDED)}"
    large = random.getrandbits(random.choice([31, 63] if kind == "hal.int64" else [31]))
    index = f"({index}){random.choice(STEPS).format(kind=kind, large=large)}"
    end = f"{kind}({random.choice([*numbers, *numbers, '0', '1', '5', 'hal.block_idx(1)'])})"
    sides = [index, f"({end}{random.choice(CHANGED)})"]
    random.shuffle(sides)
    sign = random.choice(["<", "<=", ">", ">=", "<", ">", "==", "!="])
    return random.choice(AROUND).format(f"{sides[0]} {sign} {sides[1]}")


def counted(random, index, counter, numbers):
    """Write a condition on an index and the counter of a loop inside of a thread."""
    number = random.choice(numbers)
    if random.random() < 0.3:
        index = f"({random.choice(INDICES)}{random.choice(ADDED)}){random.choice(STEPS)}"
        index = index.format(kind="hal.int32", large=random.getrandbits(31))
    index += random.choice(COUNTED).format(k=counter, n=number)
    ends = [number, f"{number} * 9", "0", "5", "17", f"hal.block_idx(0) + {number}", "1 << 30"]
    sides = [index, f"({random.choice(ends)})"]
    random.shuffle(sides)
    sign = random.choice(["<", "<", "<=", ">", ">", ">=", "==", "!="])
    return random.choice(AROUND).format(f"{sides[0]} {sign} {sides[1]}")
