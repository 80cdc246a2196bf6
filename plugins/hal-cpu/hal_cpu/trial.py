"""Measure the two forms of a kernel in its first launches, and keep the faster one.

    launch 1   cut            touches the memory first: not counted
    launch 2   cut    40 us
    launch 3   plain  25 us
    ...
    launch 7   plain  26 us   decided: plain, for this grid and block

`hal_kernel/ir/blocks/plain.py` says what the forms are. Both give the same bits, so only the time
of these launches tells them apart. A launch that takes long is measured in pieces, some of its
blocks in one form and some in the other: no whole launch takes as long as the slower form would. Of
several times of the same blocks the least counts: the first may be that of a cold cache.
"""

from __future__ import annotations

import math
from ctypes import c_int64
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from hal_cpu.threads.pool import split

if TYPE_CHECKING:
    from hal_cpu.threads.pool import LaunchFunction, Pool

CUT, PLAIN = 0, 1  # what the last word of a launch says
_FORM = 6  # the place of that word, behind the grid and the block
_ROUNDS = 3  # of samples of each form, of which the least counts
_PLACES = 3  # in a launch, where pieces of it are measured
_GAIN = 0.95  # of the cut form's time; a smaller gain may be chance
_HOPELESS = 4.0  # times the cut form's time, in several samples: no other is taken then
_PIECE_SECONDS = 100e-6
_MOST_SECONDS = 20e-3  # of a piece in the cut form, as the plain one may take ten times as long


class Trial:
    """Launches of one geometry until its form is decided; from then on it has `run` again.

    Concurrency: launches that overlap disturb what is measured, and nothing else.
    """

    def __init__(
        self, run: LaunchFunction, function: LaunchFunction, pool: Pool | None, geometry: list[Any]
    ) -> None:
        """`run` is a whole launch, and `function` the kernel, which may run any of its blocks.

        `geometry` holds what is launched in the end. `pool`: None if the function keeps the GIL.
        """
        self._run, self._function, self._pool = run, function, pool
        self._geometry, self._settled = geometry, geometry[0]
        self._words = geometry[1]._obj
        self._blocks = math.prod(self._words[:3])
        self._size = 0  # blocks of a piece; 0 before the first launch
        # Of each form: the fewest seconds that a block took, at each place in the launch.
        self._best: tuple[dict[int, float], dict[int, float]] = {}, {}
        self._rounds = 0  # in which both forms were measured
        self._turn = CUT
        self._decided = False

    def __call__(self, args: bytes, launch: Any, first: Any, last: Any) -> None:
        if self._decided:  # by another thread, since this launch began
            self._run(args, launch, first, last)
        elif not self._size:
            start = perf_counter()
            self._run(args, launch, first, last)
            seconds = perf_counter() - start
            part = _PIECE_SECONDS / seconds if seconds > 2 * _PIECE_SECONDS else 1.0
            self._size = max(1, int(self._blocks * part))
            if 2 * self._size > self._blocks:
                self._size = self._blocks
            if seconds * self._size > _MOST_SECONDS * self._blocks:
                self._decide(CUT)
        else:
            self._measure(args, launch)

    def _measure(self, args: bytes, launch: Any) -> None:
        """Run a launch, which is one sample, or has samples of both forms amid its other blocks."""
        if self._size == self._blocks:
            form, self._turn = self._turn, 1 - self._turn
            self._take(form, 0, args, launch, 0, self._blocks)
            self._rounds += form  # plain comes second
        else:
            self._measure_pieces(args, launch)
            self._rounds += 1
        cut, plain = self._best
        if len(cut) == len(plain):
            # A single sample may be slow by chance: the thread was interrupted, a cache was cold.
            several = self._rounds * len(plain) > 1
            hopeless = several and all(plain[at] > _HOPELESS * cut[at] for at in cut)
            if self._rounds >= _ROUNDS or hopeless:  # the places that take long count most
                self._decide(PLAIN if sum(plain.values()) < _GAIN * sum(cut.values()) else CUT)

    def _measure_pieces(self, args: bytes, launch: Any) -> None:
        """Run a launch with pieces in both forms, from all over it: rims are often soon done."""
        size, blocks, done = self._size, self._blocks, 0
        places = min(_PLACES, blocks // (2 * size))
        for place in range(places):
            begin = (2 * place + 1) * blocks // (2 * places) - size
            self._run_blocks(args, launch, done, begin)
            turns = (CUT, PLAIN) if (self._rounds + place) % 2 == 0 else (PLAIN, CUT)
            for form, first in zip(turns, (begin, begin + size), strict=True):
                self._take(form, place, args, launch, first, first + size)
            self._words[_FORM] = CUT
            done = begin + 2 * size
        self._run_blocks(args, launch, done, blocks)

    def _take(self, form: int, place: int, args: bytes, launch: Any, first: int, last: int) -> None:
        """Run some blocks in a form, and note the seconds that each took if they are the fewest."""
        self._words[_FORM] = form
        start = perf_counter()
        self._function(args, launch, c_int64(first), c_int64(last))
        seconds, best = (perf_counter() - start) / (last - first), self._best[form]
        best[place] = min(seconds, best.get(place, seconds))

    def _run_blocks(self, args: bytes, launch: Any, first: int, last: int) -> None:
        if first == last:
            return
        if self._pool is None or self._pool.threads == 1:
            self._function(args, launch, c_int64(first), c_int64(last))
            return
        chunks = [
            (c_int64(first + begin.value), c_int64(first + end.value))
            for begin, end in split(last - first, self._pool.threads)
        ]
        # Not as the function itself, which the pool's threads would run from the first block on.
        self._pool.run(partial(self._function), args, launch, chunks)

    def _decide(self, form: int) -> None:
        self._words[_FORM] = form
        self._decided = True
        self._geometry[0] = self._settled
