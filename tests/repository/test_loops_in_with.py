"""No loop goes back to its head from outside of the `with` or `finally` that it stands in.

Python 3.13 compiles `while condition:`, and a loop that ends with `if`, to a jump that its table of
exceptions leaves out. Ctrl-C is heard at that jump, and then skips the end of the `with`: the lock
stays held. `while True:` with a `break`, `filter`, and `if not condition: continue` have none.
"""

import dis
import sys
from pathlib import Path
from types import CodeType

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = [
    "hal_core",
    *sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("plugins/*/hal_*")),
]
# Nothing is left undone there: a file that is read, a program of one command.
HARMLESS = ("hal_testing", "hal_ray", "cli")

needs_the_table = pytest.mark.skipif(
    sys.version_info < (3, 12), reason="3.11 compiles no such jump"
)


def open_jumps(code):
    """Yield the lines of jumps back that leave out the end of a `with` or a `finally`."""
    bytecode = dis.Bytecode(code)
    rows, steps = bytecode.exception_entries, list(bytecode)
    place = {step.offset: number for number, step in enumerate(steps)}

    def handler(offset):
        return next((row.target for row in rows if row.start <= offset < row.end), None)

    def ends_something(target):
        first = steps[place[target] : place[target] + 8]
        names = [step.opname for step in first]
        is_narrow = "CHECK_EXC_MATCH" in names and first[1].argval != "BaseException"
        return names[0] == "PUSH_EXC_INFO" and not is_narrow

    for step in steps:
        if step.opname != "JUMP_BACKWARD" or handler(step.offset) is not None:
            continue
        if not (step.positions and step.positions.lineno):
            continue  # of `yield from`, when the generator is closed: there is no other way
        target, seen = handler(step.argval), set[int]()
        while target is not None and target not in seen:
            seen.add(target)
            if ends_something(target):
                yield step.positions.lineno
                break
            target = handler(target)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from open_jumps(constant)


@needs_the_table
@pytest.mark.parametrize("package", PACKAGES)
def test_ctrl_c_at_the_end_of_a_turn_is_heard_inside_of_the_with(package):
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted((ROOT / package).rglob("*.py"))
        if not any(part in HARMLESS for part in path.relative_to(ROOT).parts)
        and "template" not in path.parts
        for line in open_jumps(compile(path.read_text("utf-8"), str(path), "exec"))
    ]
    assert not found, found


@needs_the_table
def test_the_jump_is_found():
    text = "def f(lock, busy, one):\n with lock:\n  while busy():\n   one()\n"
    assert list(open_jumps(compile(text, "f", "exec")))
    text = (
        "def f(lock, busy, one):\n with lock:\n  while True:\n   if not busy(): break\n   one()\n"
    )
    assert not list(open_jumps(compile(text, "f", "exec")))
