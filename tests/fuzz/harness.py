"""Runs a case on a device and compares every byte of its buffers with the interpreter's."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from case import CLOSE, EITHER, GUARD, Array, Case, Place

import hal_core as hal
from hal_core.testing import interpret

OK, DISCARDED, UNSUPPORTED, WRONG = "ok", "discarded", "unsupported", "wrong"
TURNS = 5000
ULPS = 32  # of what is only close; OpenCL allows pow 16


class Verdict(NamedTuple):
    kind: str
    why: str = ""


class Target(NamedTuple):
    """A device and, by the environment, how it is driven."""

    device: str
    environment: dict[str, str]


TARGETS = {
    "llvm": Target("CPU", {"CPU_CC": "llvm"}),
    "gcc": Target("CPU", {"CPU_CC": "gcc"}),
    "clang": Target("CPU", {"CPU_CC": "clang"}),
    "zig": Target("CPU", {"CPU_CC": "zig"}),
    "opencl": Target("OPENCL", {}),
    "oclgrind": Target("OPENCL", {"OCLGRIND_DATA_RACES": "1", "OCLGRIND_QUICK": "0"}),
}


class Runner:
    """One target, opened. `why` says why it is not there."""

    def __init__(self, name: str) -> None:
        self.name, self.why = name, ""
        target = TARGETS[name]
        os.environ.update(target.environment, HAL_CCACHE="0", POCL_CACHE_DIR=tempfile.mkdtemp())
        self.reports = Path(tempfile.mkdtemp()) / "oclgrind.log"
        if name == "oclgrind":
            os.environ["OCLGRIND_LOG"] = str(self.reports)
        self.device = self._open(target.device)

    def _open(self, family: str) -> Any:
        try:
            devices = [d for d in hal.Device.get_available_devices() if d.split(":")[0] == family]
            for device in devices:
                opened = hal.Device[device]
                title = str(opened.info.vendor.get("platform", "")).lower()
                if ("oclgrind" in title) == (self.name == "oclgrind"):
                    opened.compiler  # raises where the compiler is missing
                    return opened
            self.why = f"no {family} device"
        except (hal.DeviceUnavailable, hal.CompilerUnavailable, hal.UnknownDevice) as error:
            self.why = str(error)
        return None

    def run(self, case: Case) -> Verdict:
        before = case.arrays()
        expected = [array.copy() for array in before]
        try:
            kernel = load(case.source)
            inside = [array[GUARD:-GUARD] for array in expected]
            interpret(kernel, *inside, vals=case.vals, turns=TURNS, **case.launch)
        except (SyntaxError, NameError, hal.KernelFault) as error:
            return Verdict(DISCARDED, f"{type(error).__name__}: {error}")
        got = self._launch(kernel, case, before)
        return self._reported() or compare(case.places, got, expected)

    def _launch(self, kernel: Any, case: Case, before: list[Array]) -> list[Array]:
        buffers = [hal.Buffer.from_numpy(array, self.device) for array in before]
        views = [
            buffer.view(place.size, place.dtype, GUARD * place.dtype.itemsize)
            for buffer, place in zip(buffers, case.places, strict=True)
        ]
        self.device.compile(kernel)(*views, vals=case.vals, wait=True, **case.launch)
        return [buffer.numpy() for buffer in buffers]

    def _reported(self) -> Verdict | None:
        """What Oclgrind has seen: races, accesses out of bounds, divergent barriers."""
        if self.name != "oclgrind" or not self.reports.exists():
            return None
        text = self.reports.read_text(errors="replace")
        self.reports.write_text("")
        return Verdict(WRONG, f"Oclgrind: {text[:2000]}") if text.strip() else None


def compare(places: tuple[Place, ...], got: list[Array], expected: list[Array]) -> Verdict:
    for place, mine, theirs in zip(places, got, expected, strict=True):
        right = _equal(mine, theirs)
        inside = slice(GUARD, -GUARD)
        if place.compare == CLOSE:
            right[inside] |= _close(mine[inside], theirs[inside])
        elif place.compare == EITHER:  # the first of a pair may be as the second
            right[inside][::2] |= _equal(mine[inside][::2], theirs[inside][1::2])
        if not right.all():
            first = int(np.flatnonzero(~right)[0])
            return Verdict(
                WRONG,
                f"{place.name}[{first - GUARD}] is {mine[first]!r}, not {theirs[first]!r}; "
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
