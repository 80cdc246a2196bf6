"""A kernel cut at its barriers does what its threads do from barrier to barrier."""

import pytest
from builder import Builder
from counts import calls
from kernel_files import IMPORTS, lowered
from worked_examples import side_by_side

import hal_core as hal
from hal_core.dtypes import float16, float32, int32
from hal_kernel.ir.blocks import fission
from hal_kernel.ir.blocks.fission import SPILL_LIMIT, at_barriers, spill_nbytes
from hal_kernel.ir.blocks.interchange import at_barriers_in_step

HEAD = (
    IMPORTS
    + """
@hal.kernel
def f(y: hal.Ptr[hal.int32], x: hal.ConstPtr[hal.int32], n: hal.int32):
    own = hal.local(hal.int32, 4)
    t, v = hal.thread_idx(0), 0
"""
)


def test_the_module_begins_with_what_becomes_of_a_kernel():
    @hal.kernel
    def mirror(y: hal.Ptr[hal.float32], x: hal.ConstPtr[hal.float32]) -> None:
        s = hal.shared(hal.float32, 64)
        t = hal.thread_idx(0)
        v = x[t]
        s[t] = v
        hal.barrier()
        y[t] = s[63 - t] + v

    kernel = mirror.lower()
    assert side_by_side(kernel.uops, at_barriers(kernel)) in str(fission.__doc__)


# -- its form


def _ops(uops):
    return " ".join(node.op for node in uops)


def test_without_barriers_all_is_one_region():
    b = Builder("k", "y: int32*, n: int32")
    array = b.add("SHARED", int32, arg=("s", 4))
    i = b.index()
    block = b.if_(b.op("LT", i, b.params["n"]))
    b.add("ATOMIC", int32, array, i, i, arg="ADD")
    b.end(block)
    uops = b.uops
    made = at_barriers(b.kernel())
    assert _ops(made) == ("PARAM PARAM SHARED THREADS SPECIAL LT IF ATOMIC ENDIF ENDTHREADS")
    assert set(uops) < set(made), "nothing is written anew"


def tiled(width=16):
    """c = a @ b through tiles in shared memory; `base` goes on with the tiles, by a maximum."""
    b = Builder("tiled", "c: float32*, a: const float32*, b: const float32*, n: int32")
    tiles = [b.add("SHARED", float32, arg=(name, width * width)) for name in ("left", "right")]
    x, y, n, one = b.special("thread_idx"), b.special("thread_idx", 1), b.params["n"], b.const(1)
    row, column, wide = b.special("global_idx", 1), b.special("global_idx"), b.const(width)
    here = b.op("ADD", b.op("MUL", y, wide), x)
    total, base = b.var("total", b.const(0, float32)), b.var("base", b.const(0))
    start = b.op("MUL", row, n)
    outer = b.range(b.const(0), b.op("FLOORDIV", n, wide), one, "tile")
    left = b.load("a", b.op("ADD", start, b.op("ADD", b.get(base), x)))
    b.add("STORE", None, tiles[0], here, left)
    place = b.op("ADD", b.op("MUL", b.op("ADD", b.get(base), y), n), column)
    b.add("STORE", None, tiles[1], here, b.load("b", place))
    b.add("BARRIER")
    k = b.range(b.const(0), wide, one)
    row_of = b.add("LOAD", float32, tiles[0], b.op("ADD", b.op("MUL", y, wide), k))
    column_of = b.add("LOAD", float32, tiles[1], b.op("ADD", b.op("MUL", k, wide), x))
    b.set(total, b.op("ADD", b.get(total), b.op("MUL", row_of, column_of)))
    b.end(k)
    b.set(base, b.op("MAX", b.op("ADD", b.get(base), wide), wide))
    b.add("BARRIER")
    b.end(outer)
    b.store("c", b.op("ADD", start, column), b.get(total))
    return b.kernel(block=(width, width, 1))


def test_what_a_tiled_product_keeps():
    """The sum lives across barriers; the place in the row is the block's, not a thread's."""
    made = at_barriers(tiled())
    assert [(node.arg, node.dtype) for node in made if node.op == "SPILL"] == [("total", float32)]
    assert spill_nbytes(made, 256) == 1024
    assert spill_nbytes(made, 1) == 64
    regions = [node for node in made if node.op == "THREADS"]
    assert len(regions) == 4, "before, load, multiply, after"
    outside = _outside(made)
    assert _ops(outside).count("SET") == 2, "base is set once a block"
    assert _ops(outside).count("GET") == 3
    inner = made.index(next(node for node in made if node.op == "RANGE" and node.arg == "k"))
    between = made[inner : made.index(next(n for n in made if n.op == "ENDRANGE"))]
    assert all(node.src[0].op == "VAR" for node in between if node.op in ("GET", "SET"))


def _outside(uops):
    found, inside = [], False
    for node in uops:
        inside |= node.op == "THREADS"
        if not inside:
            found.append(node)
        inside &= node.op != "ENDTHREADS"
    return found


def test_a_bound_that_is_loaded_splits_only_behind_a_store():
    def regions(store_first):
        b = Builder("k", "y: int32*, x: const int32*")
        i = b.index()
        if store_first:
            b.store("y", i, i)
        else:
            b.load("y", i)
        stop = b.load("x", b.const(0))
        b.store("y", b.op("ADD", i, b.const(100)), i)
        loop = b.range(b.const(0), stop, b.const(1))
        b.add("BARRIER")
        b.end(loop)
        return _ops(at_barriers(b.kernel())).split().count("THREADS")

    assert regions(store_first=True) == 2
    assert regions(store_first=False) == 1


def test_what_is_cheap_is_computed_again_and_what_is_not_is_kept():
    def kept(op, count):
        b = Builder("k", "y: float32*, a: float32")
        i = b.index()
        value = b.cast(i, float32)
        for _ in range(count):
            value = b.op(op, value, b.params["a"])
        b.add("BARRIER")
        b.store("y", i, value)
        return [node.arg for node in at_barriers(b.kernel()) if node.op == "SPILL"]

    assert kept("MUL", 3) == []
    assert kept("MUL", 30) == ["mul"]
    assert kept("POW", 1) == ["pow"]


def test_storage_dtypes_cross_barriers_too():
    b = Builder("k", "y: float32*, x: const float16*")
    i = b.index()
    value = b.load("x", i)
    b.add("BARRIER")
    b.store("y", i, b.cast(value, float32))
    assert [(n.arg, n.dtype) for n in at_barriers(b.kernel()) if n.op == "SPILL"] == [
        ("load", float16)
    ]


def _greedy(values, block):
    b = Builder("greedy", "y: float64*, x: const float64*")
    i = b.index()
    kept = [b.var(f"kept{number}", b.load("x", i)) for number in range(values)]
    b.add("BARRIER")
    for variable in kept:
        b.store("y", i, b.get(variable))
    return b.kernel(block=block)


def test_what_lives_across_barriers_is_bounded():
    assert spill_nbytes(at_barriers(_greedy(32, None)), 1024) == SPILL_LIMIT
    assert at_barriers(_greedy(512, (64, 1, 1)))
    with pytest.raises(hal.Unsupported, match="limit 262144") as caught:
        at_barriers(_greedy(33, None))
    text = str(caught.value)
    assert "kept0, kept1" in text and "in a block of 1024 threads" in text
    assert "block=" in text and "'greedy'" in text
    with pytest.raises(hal.Unsupported, match="block of 64 threads"):
        at_barriers(_greedy(513, (64, 1, 1)))


def _long(regions):
    """Every region reads the one before, and all share an index."""
    b = Builder("long", "y: int32*, n: int32")
    array = b.add("SHARED", int32, arg=("s", 64))
    t = b.special("thread_idx")
    last, count = b.load("y", t), b.var("count", b.const(0))
    for _ in range(regions):
        b.add("STORE", None, array, t, last)
        b.add("BARRIER")
        last = b.add("LOAD", int32, array, b.op("XOR", t, b.const(1)))
        b.set(count, b.op("ADD", b.get(count), last))
        b.add("BARRIER")
    b.store("y", t, b.get(count))
    return b.kernel(block=(64, 1, 1))


def test_the_time_it_takes_grows_with_the_kernel_only():
    short, long = _long(100), _long(400)
    assert calls(lambda: at_barriers(long)) < 4.5 * calls(lambda: at_barriers(short))


def test_deep_nesting_is_no_recursion():
    b = Builder("deep", "y: int32*, n: int32")
    i = b.index()
    levels = [b.if_(b.op("LT", b.params["n"], b.const(level))) for level in range(2000)]
    b.store("y", i, i)
    b.add("BARRIER")
    b.store("y", i, i)
    for block in reversed(levels):
        b.end(block)
    assert _ops(at_barriers(b.kernel())).count("THREADS SPECIAL STORE ENDTHREADS") == 2


@pytest.mark.parametrize(
    ("loop", "block", "in_step"),
    [
        ("for k in range(n):\n    v += x[k]", None, True),
        ("for k in range(hal.block_idx(0), 17):\n    v += x[k]", None, True),
        ("for k in range(17):\n    v += x[k]", (33, 1, 1), True),
        ("for k in range(17):\n    v += x[k]", (32, 2, 1), False),
        ("for k in range(16):\n    v += x[k]", None, False),
        ("for k in range(t):\n    v += x[k]", None, False),
        ("for k in range(n):\n    if x[k] > t:\n        v += 1", None, False),
        ("for k in range(n):\n    for j in range(n):\n        v += x[j + k]", None, True),
        ("if t < n:\n    for k in range(n):\n        v += x[k]", None, False),
        ("for k in range(n):\n    own[k % 4] += x[k]", None, False),
    ],
)
def test_loops_without_branches_that_all_threads_run_alike_are_run_in_step(
    loop, block, in_step, tmp_path
):
    body = f"own[0] = 0\n{loop}\nhal.barrier()\ny[t] = v + own[0]"
    kernel = lowered(HEAD, body, tmp_path)._replace(block=block)
    inside, found = 0, False
    for node in at_barriers_in_step(kernel):
        inside += (node.op == "RANGE") - (node.op == "ENDRANGE")
        found |= node.op == "THREADS" and inside > 0
    assert found == in_step


def test_a_loop_whose_threads_keep_too_much_is_not_run_in_step(tmp_path):
    lines = [f"v{n} = x[t + {n}]" for n in range(70)]
    lines += ["for k in range(n):", *[f"    v{n} += x[k + {n}]" for n in range(70)]]
    total = " + ".join(f"v{n}" for n in range(70))
    kernel = lowered(HEAD, "\n".join([*lines, f"v = {total}\nhal.barrier()\ny[t] = v"]), tmp_path)
    assert _ops(at_barriers_in_step(kernel)) == _ops(at_barriers(kernel))
