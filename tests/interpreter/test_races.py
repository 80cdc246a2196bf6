"""The shadow's few facts of each element find the races that a full list of accesses shows."""

from itertools import combinations
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hal_kernel.interpreter.order import Order
from hal_kernel.interpreter.races import ATOMIC, ATOMIC_READ, EPOCH_BITS, READ, WRITE, Shadow

PLACES = 3
BLOCK = 3  # threads
THREADS = 9


class Access(NamedTuple):
    how: str
    place: int
    thread: int
    number: int

    def races(self, other):
        if self.place != other.place or self.thread == other.thread:
            return False
        kinds = {self.how, other.how}
        return WRITE in kinds or kinds == {READ, ATOMIC}


# One instruction: how, and where each thread of some goes. A number is a block's barrier.
instructions = st.tuples(
    st.sampled_from([READ, READ, WRITE, ATOMIC, ATOMIC_READ]),
    st.dictionaries(st.integers(0, THREADS - 1), st.integers(0, PLACES - 1), min_size=1),
)
barriers = st.integers(0, THREADS // BLOCK - 1)
# A thread acquires or releases one of two flags.
flags = st.tuples(st.booleans(), st.integers(0, THREADS - 1), st.integers(0, 1))


def check(history, exactly=True):
    """Compare with a model in which each thread has the set of the accesses it knows of."""
    order, shadow, record = Order(), Shadow(PLACES), list[Access]()
    shadow.order = None if exactly else order
    threads, elements = np.arange(THREADS), np.zeros(2, "i4")
    block = threads // BLOCK
    lanes = SimpleNamespace(threads=threads, epochs=block << EPOCH_BITS, blocks=THREADS // BLOCK)
    lanes.fenced, lanes.heard, lanes.knows = np.zeros((3, THREADS), np.int64)
    known, left = [set() for _ in threads], [set() for _ in elements]
    for item in history:
        if isinstance(item, int):
            mates = threads[block == item]
            lanes.epochs = lanes.epochs + (block == item)
            order.meet(lanes, mates)
            known[item * BLOCK : (item + 1) * BLOCK] = [
                set.union(*(known[t] for t in mates))
            ] * BLOCK
        elif len(item) == 3:
            acquires, thread, flag = item
            at = np.array([thread]), elements, np.array([flag]), True
            if acquires:
                order.load(lanes, *at)
                known[thread] = known[thread] | left[flag]
            else:
                order.store(lanes, *at)
                left[flag] = known[thread]
        else:
            how, goes = item
            running = np.array(sorted(goes))
            new = [Access(how, goes[t], t, len(record)) for t in running]
            expected = any(a.races(b) and b not in known[a.thread] for a in new for b in record)
            expected = expected or any(a.races(b) for a, b in combinations(new, 2))
            places = np.array([goes[t] for t in running])
            at = lanes.threads[running], lanes.epochs[running], lanes.knows[running]
            found = shadow.touch(how, places, *at)
            assert (found is None or expected) and (found or not (exactly and expected)), history
            if expected:
                return
            record += new
            for access in new:
                known[access.thread] = known[access.thread] | {access}


@given(st.lists(st.one_of(instructions, barriers), max_size=12))
def test_exactly_the_races_are_seen(history):
    check(history)


@given(st.lists(st.one_of(instructions, flags, barriers), max_size=14))
@example([(READ, {0: 0}), (False, 0, 0), (True, 3, 0), (READ, {3: 0}), (WRITE, {3: 0})])
@example([(ATOMIC, {0: 0}), (False, 0, 0), (ATOMIC, {1: 0}), (True, 1, 0), (READ, {1: 0})])
@example([(READ, {0: 0}), (False, 0, 0), (READ, {3: 0}), 1, (True, 4, 0), (WRITE, {4: 0})])
def test_what_flags_order_is_no_race(history):
    """A flag may order more than it should, never less."""
    check(history, exactly=False)


# Each is judged by one part of the watch alone.
HISTORIES = [
    [(WRITE, {0: 0}), (READ, {1: 0})], [(READ, {0: 0, 1: 0}), (WRITE, {0: 0})],
    [(READ, {0: 0}), (READ, {1: 0}), (WRITE, {1: 0})], [(WRITE, {0: 0, 1: 0})],
    [(ATOMIC, {0: 0, 1: 0}), (READ, {1: 0})], [(READ, {0: 0, 3: 0}), 0, (WRITE, {0: 0})],
    [(READ, {0: 0}), 0, (READ, {3: 0}), (WRITE, {3: 0})],
    [(WRITE, {0: 0}), 0, (WRITE, {1: 0}), 0, (READ, {2: 0})], [(WRITE, {0: 0}), 0, (WRITE, {3: 0})],
    [(ATOMIC, {0: 0}), (ATOMIC, {4: 0}), 0, (READ, {1: 0})],
    [(ATOMIC_READ, {0: 0}), (WRITE, {1: 0})], [(WRITE, {0: 0}), (ATOMIC_READ, {1: 0})],
    [(ATOMIC, {0: 0}), (ATOMIC_READ, {1: 0})],
]  # fmt: skip


@pytest.mark.parametrize("history", HISTORIES)
def test_each_way_to_race(history):
    check(history)
