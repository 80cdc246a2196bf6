"""The shadow's few facts of each element find every race that a full list of accesses shows."""

from itertools import combinations
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal_kernel.interpreter.races import ATOMIC, ATOMIC_READ, EPOCH_BITS, READ, WRITE, Shadow

PLACES = 3
BLOCK = 3  # threads
THREADS = 9


class Access(NamedTuple):
    how: str
    place: int
    thread: int
    passed: int  # barriers of its block

    def races(self, other):
        if self.place != other.place or self.thread == other.thread:
            return False
        kinds = {self.how, other.how}
        if WRITE not in kinds and kinds != {READ, ATOMIC}:
            return False
        together = self.thread // BLOCK == other.thread // BLOCK
        return not together or self.passed == other.passed


# One instruction: how, and where each thread of some goes. A number is a block's barrier.
instructions = st.tuples(
    st.sampled_from([READ, READ, WRITE, ATOMIC, ATOMIC_READ]),
    st.dictionaries(st.integers(0, THREADS - 1), st.integers(0, PLACES - 1), min_size=1),
)
histories = st.lists(st.one_of(instructions, st.integers(0, THREADS // BLOCK - 1)), max_size=12)


def check(history):
    shadow, record = Shadow(PLACES), list[Access]()
    passed = [0] * (THREADS // BLOCK)
    for item in history:
        if isinstance(item, int):
            passed[item] += 1
            continue
        how, goes = item
        lanes = sorted(goes)
        new = [Access(how, goes[t], t, passed[t // BLOCK]) for t in lanes]
        expected = any(a.races(b) for a in new for b in record)
        expected = expected or any(a.races(b) for a, b in combinations(new, 2))
        threads = np.array(lanes)
        epochs = threads // BLOCK << EPOCH_BITS | np.array([access.passed for access in new])
        found = shadow.touch(how, np.array([goes[t] for t in lanes]), threads, epochs)
        assert (found is not None) == expected, f"{history}: {found}"
        if found is not None:
            return
        record += new


@given(histories)
def test_exactly_the_races_are_seen(history):
    check(history)


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
