"""Runs a case one way, and compares every byte of its buffers with the interpreter's."""

from __future__ import annotations

import tempfile
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from case import CLOSE, EITHER, Array, Case, Place, within

import hal_core as hal
from hal_core.testing import interpret

OK, DISCARDED, UNSUPPORTED, WRONG = "ok", "discarded", "unsupported", "wrong"
TURNS = 5000
ULPS = 32  # of what is only close; OpenCL allows pow 16


class Verdict(NamedTuple):
    kind: str
    why: str = ""


class Runner:
    """A way to run kernels, in subgroups of this size."""

    subgroup = 32
    why = ""  # why it is not on this machine

    def run(self, case: Case) -> Verdict:
        """Raises: what the way itself raises."""
        before = case.arrays()
        expected = [array.copy() for array in before]
        try:
            kernel = load(case.source)
            inside = [a[within(place, a)] for place, a in zip(case.places, expected, strict=True)]
            with redirect_stdout(StringIO()):  # of `hal.print`
                how = {"vals": case.vals, "turns": TURNS, "subgroup": self.subgroup}
                interpret(kernel, *inside, **how, **case.launch)
        except (SyntaxError, NameError, hal.KernelFault) as error:
            return Verdict(DISCARDED, f"{type(error).__name__}: {error}")
        return compare(case.places, self.launch(kernel, case, before), expected)

    def launch(self, kernel: Any, case: Case, before: list[Array]) -> list[Array]:
        """The buffers afterwards; the kernel sees them without their guard elements."""
        raise NotImplementedError


def compare(places: tuple[Place, ...], got: list[Array], expected: list[Array]) -> Verdict:
    for place, mine, theirs in zip(places, got, expected, strict=True):
        right = _equal(mine, theirs)
        inside = within(place, mine)
        if place.compare == CLOSE:
            right[inside] |= _close(mine[inside], theirs[inside])
        elif place.compare == EITHER:  # the first of a pair may be as the second
            right[inside][::2] |= _equal(mine[inside][::2], theirs[inside][1::2])
        if not right.all():
            first = int(np.flatnonzero(~right)[0])
            return Verdict(
                WRONG,
                f"{place.name}[{first - inside.start}] is {mine[first]!r}, not {theirs[first]!r}; "
                f"{int((~right).sum())} of {len(right)} elements differ",
            )
    return Verdict(OK)


def _equal(a: Array, b: Array) -> Array:
    """The same bits, or both NaN."""
    bits = np.dtype(f"u{a.itemsize}")
    same = a.view(bits) == b.view(bits)
    return same if a.dtype.kind in "iub" else same | (np.isnan(a) & np.isnan(b))


def _close(a: Array, b: Array) -> Array:
    kind = np.finfo(a.dtype)
    with np.errstate(all="ignore"):
        unit = np.spacing(np.maximum(np.abs(b), kind.tiny))
        near = np.abs(a - b) <= ULPS * unit
        limit = (np.abs(a) > kind.max * 0.999) & (np.abs(b) > kind.max * 0.999)
        return near | (limit & (np.sign(a) == np.sign(b)))


def load(source: str) -> Any:
    """The kernel of a module's text. The front end reads a function's text from its file."""
    with tempfile.TemporaryDirectory(prefix="hal-fuzz-") as folder:
        path = Path(folder) / "fuzzed.py"
        path.write_text(source, encoding="utf-8")
        space: dict[str, Any] = {"__name__": "fuzzed"}
        exec(compile(source, str(path), "exec", dont_inherit=True), space)
        space["fuzzed"].lower()
        return space["fuzzed"]
