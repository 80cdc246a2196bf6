"""Kernels of several tests, and kernels from text, which must be a file for the front end."""

from itertools import count
from types import ModuleType

import pytest

import hal_core as hal
from hal_kernel.ir.verify import verify

_numbers = count()
IMPORTS = "import math\n\nimport hal_core as hal\n\n"


@hal.kernel
def saxpy(
    y: hal.Ptr[hal.float32], x: hal.ConstPtr[hal.float32], a: hal.float32, n: hal.int32
) -> None:
    """y = a * x + y"""
    i = hal.global_idx(0)
    if i < n:
        y[i] = a * x[i] + y[i]


@hal.kernel
def copy(y: hal.Ptr[hal.float32], x: hal.ConstPtr[hal.float32]) -> None:
    i = hal.global_idx(0)
    y[i] = x[i]


@hal.kernel
def add(y: hal.Ptr[hal.int32], a: hal.int32, n: hal.int32) -> None:
    i = hal.global_idx(0)
    if i < n:
        y[i] += a


def load(folder, text):
    """A module of its own with this text."""
    name = f"kernels_{next(_numbers)}"
    path = folder / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    module = ModuleType(name)
    module.__file__ = str(path)
    exec(compile(text, str(path), "exec", dont_inherit=True), module.__dict__)
    return module


def function(head, body, folder):
    """Return the kernel `f` of a text: a head that ends within it, and the rest of its body."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    made = load(folder, head + lines).f
    verify(made.lower())
    return made


def lowered(head, body, folder):
    """Return the IR of the kernel of a text."""
    return function(head, body, folder).lower()


def refusal(work, at, says, fix):
    """Return the error of `work`, which has what is wrong, then the advice, and shows the place."""
    with pytest.raises(hal.KernelSyntaxError) as raised:
        work()
    error = raised.value
    place = (error.text or "")[(error.offset or 1) - 1 :]
    if fix not in str(error).partition(says)[2] or not place.startswith(at):
        raise AssertionError(f"{says}, {fix} and {at} are not in {error}")
    return error


def refused(head, rows):
    """Return a test of bodies that are refused: what stands at the caret, is said, and helps."""

    @pytest.mark.parametrize(("body", "at", "says", "fix"), rows, ids=lambda part: part[:40])
    def test(body, at, says, fix, tmp_path):
        refusal(lambda: function(head, body, tmp_path), at, says, fix)

    return test
