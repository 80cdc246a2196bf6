"""Runs a case one way, and compares every byte of its buffers with the interpreter's."""

import re
import tempfile
from contextlib import redirect_stdout
from functools import cached_property
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import numpy as np
from case import CLOSE, EITHER, within

import hal_core as hal
from hal_kernel.interpreter import interpret

OK, DISCARDED, UNSUPPORTED, WRONG = "ok", "discarded", "unsupported", "wrong"
MISSING = "missing"  # the target is not on this machine
ENDED = "ended"  # no verdict came any more
TURNS = 5000
ULPS = 32  # of what is only close; OpenCL allows pow 16


class Verdict(NamedTuple):
    kind: str
    why: str = ""


class Trial:
    """A case, its kernel, and what the interpreter makes of it: computed once for all runners."""

    def __init__(self, case):
        self.case = case
        self._expected = {}

    @cached_property
    def kernel(self):
        """Raises: SyntaxError, NameError, KernelFault for a text that is no kernel."""
        return load(self.case.source, str(self.case.seed))

    def expected(self, subgroup):
        """The buffers afterwards, with subgroups of this size. Raises: as `kernel`."""
        case, key = self.case, subgroup if _sees_subgroups(self.kernel) else 0
        if key not in self._expected:
            arrays = case.arrays()
            inside = [a[within(place, a)] for place, a in zip(case.places, arrays, strict=True)]
            with redirect_stdout(StringIO()):  # of `hal.print`
                how = {"vals": case.vals, "turns": TURNS, "subgroup": subgroup}
                interpret(self.kernel, *inside, **how, **case.launch)
            self._expected[key] = arrays
        return self._expected[key]


def _sees_subgroups(kernel):
    return any(
        node.op in ("SHUFFLE", "BALLOT")
        or (node.op == "SPECIAL" and node.arg[0].startswith("subgroup"))
        for node in kernel.lower().uops
    )


class Runner:
    """A way to run kernels, in subgroups of this size."""

    subgroup = 32
    why = ""  # why it is not on this machine

    def prepare(self, trials):
        """Compile several kernels at once, which `run` then launches; or say why that failed."""
        return ""

    def run(self, trial):
        """Raises: what the way itself raises."""
        try:
            expected = trial.expected(self.subgroup)
        except (SyntaxError, NameError, hal.KernelFault) as error:
            return Verdict(DISCARDED, f"{type(error).__name__}: {error}")
        case = trial.case
        return compare(case.places, self.launch(trial.kernel, case, case.arrays()), expected)

    def launch(self, kernel, case, before):
        """The buffers afterwards; the kernel sees them without their guard elements."""
        raise NotImplementedError


def compare(places, got, expected):
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


def _equal(a, b):
    """The same bits, or both NaN."""
    bits = np.dtype(f"u{a.itemsize}")
    same = a.view(bits) == b.view(bits)
    return same if a.dtype.kind in "iub" else same | (np.isnan(a) & np.isnan(b))


def _close(a, b):
    kind = np.finfo(a.dtype)
    with np.errstate(all="ignore"):
        unit = np.spacing(np.maximum(np.abs(b), kind.tiny))
        near = np.abs(a - b) <= ULPS * unit
        limit = (np.abs(a) > kind.max * 0.999) & (np.abs(b) > kind.max * 0.999)
        return near | (limit & (np.sign(a) == np.sign(b)))


def load(source, number=""):
    """The kernel of a module's text. The front end reads a function's text from its file.

    With a `number` it has names that the kernels of other numbers lack: its own, and its tables'.
    """
    name = f"fuzzed{number}"
    source = re.sub(r"\b(fuzzed|W\d)\b", rf"\g<1>{number}", source)
    with tempfile.TemporaryDirectory(prefix="hal-fuzz-") as folder:
        path = Path(folder) / "fuzzed.py"
        path.write_text(source, encoding="utf-8")
        space = {"__name__": "fuzzed"}
        exec(compile(source, str(path), "exec", dont_inherit=True), space)
        space[name].lower()
        return space[name]
