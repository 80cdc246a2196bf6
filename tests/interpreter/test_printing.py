"""`hal.print`: what a thread sees, in the interpreter, and nothing of it in code at full speed."""

import numpy as np
import pytest

import hal_core as hal
from hal_kernel.interpreter import interpret
from hal_kernel.interpreter.printing import MOST_LINES
from hal_kernel.render import RENDERERS


@hal.func
def say(value: hal.float32) -> None:
    hal.print("is {", value, "}", value < 1)


@hal.kernel
def shown(y: hal.Ptr[hal.float32], n: hal.int32) -> None:
    i = hal.global_idx(0)
    if i < n and i % 2 == 1:
        hal.print("y ; line 3:", y[i], "of", n, 0.5)
    if i == 2:
        say(y[i] + 1)
        hal.print()


def test_lines_have_the_place_the_thread_and_the_values(capsys):
    lines = shown.lower().uops
    where = sorted({node.line for node in lines if node.op == "PRINT"})
    y = np.array([0, 0.1, 2, np.nan], "f4")
    interpret(shown, y, vals=(4,), grid=2, block=2)
    assert capsys.readouterr().out.splitlines() == [
        f"kernel shown, line {where[1]}, thread (1, 0, 0) of block (0, 0, 0): "
        "y ; line 3: 0.1 of 4 0.5",
        f"kernel shown, line {where[1]}, thread (1, 0, 0) of block (1, 0, 0): "
        "y ; line 3: nan of 4 0.5",
        f"kernel shown, line {where[0]}, thread (0, 0, 0) of block (1, 0, 0): is {{ 3.0 }} False",
        f"kernel shown, line {where[2]}, thread (0, 0, 0) of block (1, 0, 0): ",
    ]


@pytest.mark.parametrize("language", [name for name in RENDERERS if name != "uops"])
def test_no_other_language_has_any_of_it(language):
    assert "line 3" not in RENDERERS[language]().render(shown.lower())


@hal.kernel
def talk(y: hal.Ptr[hal.int32]) -> None:
    hal.print(hal.global_idx(0))


def test_a_launch_prints_a_limited_number_of_lines(capsys):
    for _ in range(2):  # each launch has its own limit
        interpret(talk, np.zeros(1, "i4"), grid=70, block=1024)
        *lines, last = capsys.readouterr().out.splitlines()
        assert len(lines) == MOST_LINES and lines[-1].endswith(f": {MOST_LINES - 1}")
        assert last == f"hal.print: {MOST_LINES} lines; the rest is left out. Print under an if."


def test_other_libraries_spellings_are_answered():
    with pytest.raises(hal.InvalidArgument, match=r"no elements.*hal\.Ptr\[hal\.float32\]"):
        hal.float32[:]
    with pytest.raises(hal.InvalidArgument, match=r"no complex numbers.*z\[2 \* i\]"):
        hal.Ptr[hal.complex64]
