"""`@hal.kernel`: signatures, constants from outside, source text, and what a kernel object is."""

import ast
import gc
import importlib
import math
import os
import pickle
import subprocess
import sys
import traceback
import weakref
from pathlib import Path

import numpy as np
import pytest
import run_on_lists
from in_threads import results
from kernel_files import IMPORTS, load, saxpy

import hal_core as hal
from hal_core.dtypes import DTYPES
from hal_kernel.ir.verify import verify
from hal_kernel.lang.function import KernelFunction
from hal_kernel.lang.mathematics import LANGUAGE

pytestmark = pytest.mark.syntax

SCALE = 3.0
KERNEL = "@hal.kernel\ndef f(y: hal.Ptr[hal.int32]):\n    y[0] = 1\n"


def constants_of(kernel):
    return [node.arg for node in kernel.uops if node.op == "CONST"]


# -- the object


def test_kernel_function_says_what_it_is():
    assert repr(saxpy) == "<kernel saxpy(y: float32*, x: const float32*, a: float32, n: int32)>"
    assert saxpy.name == saxpy.signature.name == "saxpy"
    assert saxpy.__doc__ == "y = a * x + y"
    assert saxpy.__module__ == saxpy.__wrapped__.__module__ == "kernel_files"
    assert saxpy.__wrapped__.__code__.co_name == "saxpy"
    assert saxpy.block is None and saxpy.contract is True


def test_block_and_contract_reach_the_kernel():
    @hal.kernel(block=(16, 8), contract=False)
    def fixed(y: hal.Ptr[hal.float32]) -> None:
        y[0] = 1.0

    assert repr(fixed) == "<kernel fixed(y: float32*) block=(16, 8, 1) contract=False>"
    assert fixed.lower()[3:] == ((16, 8, 1), False)
    assert hal.kernel(block=64)(fixed.__wrapped__).block == (64, 1, 1)  # as at a launch


@pytest.mark.parametrize(
    "block", [0, -4, True, 1.0, (), (1, 2, 3, 4), (0,), (-1, 1), (1.0,), (True,), [16]]
)
def test_bad_block_is_refused(block):
    with pytest.raises(hal.InvalidArgument, match=r"one to three positive ints \(got"):
        hal.kernel(block=block)


def test_contract_is_a_bool():
    with pytest.raises(hal.InvalidArgument, match="contract must be True or False"):
        hal.kernel(contract="off")


def test_calling_a_kernel_says_how_it_is_done():
    said = []
    for launch in (lambda: saxpy(1, 2), lambda: saxpy[1, 32], lambda: saxpy[1, 32](1, 2)):
        with pytest.raises(hal.Unsupported) as raised:
            launch()
        said.append(str(raised.value))
    assert len(set(said)) == 1
    assert said[0].endswith(
        "Write program = device.compile(saxpy), then program(y, x, a, n, threads=...)."
    )


@pytest.mark.parametrize(
    "name", [name for name in sorted(LANGUAGE) if name.rstrip("_") not in DTYPES]
)
def test_kernel_functions_refuse_outside_kernels(name):
    function = getattr(hal, name)
    with pytest.raises(hal.Unsupported, match=f"{name}.*inside @hal.kernel functions only"):
        function(*[0] * function.__code__.co_argcount)


def test_lower_is_computed_once_by_many_threads(tmp_path):
    module = load(tmp_path, IMPORTS + "@hal.kernel\ndef f(y: hal.Ptr[hal.int32]): y[0] = 1\n")
    assert len(set(map(id, results(*[module.f.lower] * 16)))) == 1


def test_a_kernel_goes_when_its_last_user_goes():
    @hal.kernel
    def brief(y: hal.Ptr[hal.float32]) -> None:
        y[0] = 1.0

    brief.lower()
    watch = weakref.ref(brief)
    del brief
    gc.collect()
    assert watch() is None


# -- constants


def test_captured_numbers_are_constants():
    weights, on, modulus = (0.25, (1, 2)), True, 7

    @hal.kernel
    def captured(y: hal.Ptr[hal.float64], k: hal.Ptr[hal.int32]) -> None:
        y[0] = weights[0] * 2 + math.pi
        k[0] = weights[1][1] ** 10 % modulus
        if on:
            k[1] = len(weights)
        else:
            k[1] = y  # not looked at: the condition is known

    y, k = [0.0], [0, 0]
    run_on_lists.run(captured.lower(), [y, k], threads=1)
    assert y == [0.5 + math.pi]
    assert k == [1024 % 7, 2]
    assert not [node for node in captured.lower().uops if node.op in ("ADD", "MUL", "IF")]


@pytest.mark.parametrize("kind", ["bool_", "int8", "uint64", "float16", "float32", "float64"])
def test_a_numpy_number_is_a_constant_like_pythons(kind):
    number = getattr(np, kind)(1)
    both = number, number.item()

    @hal.kernel
    def captured(y: hal.Ptr[hal.float32], k: hal.Ptr[hal.int64]) -> None:
        y[0] = hal.float32(number) / 3
        k[0] = hal.int64(both[0] == both[1])

    y, k = [0.0], [0]
    run_on_lists.run(captured.lower(), [y, k], threads=1)
    assert (y, k) == ([float(np.float32(1) / np.float32(3))], [1])


def test_factory_over_dtype_and_size():
    def make(dtype: type[hal.float32], size: int) -> KernelFunction:
        @hal.kernel
        def total(y: hal.Ptr[dtype], x: hal.ConstPtr[dtype]) -> None:
            acc = dtype(0)
            for k in range(size):
                acc += x[k]
            y[0] = max(acc, dtype.min)

        return total

    for dtype in (hal.float32, hal.float64, hal.int32, hal.int64, hal.uint8):
        kernel = make(dtype, 3).lower()
        verify(kernel)
        assert kernel.signature.dtypes == {dtype}
        y = [0]
        run_on_lists.run(kernel, [y, [1, 2, 3]], threads=1)
        assert y == [6]


class Unhashable:
    """Callable and, as every class with `__eq__` alone, without a hash."""

    def __eq__(self, other):
        return self is other

    def __call__(self):
        return 1


def test_what_is_called_may_have_no_hash():
    strange = Unhashable()

    @hal.kernel
    def f(y: hal.Ptr[hal.int32]) -> None:
        y[0] = strange()

    with pytest.raises(hal.KernelSyntaxError, match="what is called is not a function"):
        f.lower()


def test_globals_are_read_at_the_first_use_and_fixed_from_then():
    @hal.kernel
    def f(y: hal.Ptr[hal.float32]) -> None:
        y[0] = SCALE

    global SCALE
    SCALE = 4.0
    try:
        assert 4.0 in constants_of(f.lower())
        SCALE = 5.0
        assert 4.0 in constants_of(f.lower())
    finally:
        SCALE = 3.0


@pytest.mark.parametrize(
    ("value", "dtype"),
    [("1", hal.int32), ("2**31", hal.int64), ("-(2**31)", hal.int32), ("1.0", hal.float32),
     ("True", hal.bool_), ("0.0 if y[0] > 1 else 1", hal.float32), ("hal.uint8(1)", hal.uint8)],
)  # fmt: skip
def test_dtype_of_a_new_local(value, dtype, tmp_path):
    text = f"@hal.kernel\ndef f(y: hal.Ptr[hal.float32]):\n    v = {value}\n    v = v\n"
    (variable,) = (
        node
        for node in load(tmp_path, IMPORTS + text).f.lower().uops
        if node.op == "VAR" and node.arg == "v"
    )
    assert variable.dtype is dtype


# -- signature


@pytest.mark.parametrize(
    ("head", "at", "says"),
    [
        ("def f(y):", "y)", "'y' has no annotation"),
        ("def f(self, y: hal.Ptr[hal.int8]):", "self", "not a method.*put @staticmethod above"),
        ("def f(cls, y: hal.Ptr[hal.int8]):", "cls", "not a method. Leave cls out.*@staticmethod"),
        ("def f(a: float):", "a: float", "float is not a parameter's type.*Write a: hal.float32"),
        ("def f(a: str):", "a: str", "str is not a parameter's type.*Write a: hal.Ptr"),
        ("def f(y: 'hal.Ptr[float]'):", "y: 'hal", "'float'>.*Write hal.float32, or hal.float64"),
        ("def f(y: 'hal.ConstPtr[hal.Ptr]'):", "y: 'hal",
         "not a dtype.*uint64, float16, bfloat16, float32"),
        ("def f(y: hal.Ptr):", "y: hal.Ptr", "Ptr is not a parameter's type"),
        ("def f(y: 'hal.Prt[hal.int8]'):", "y: 'hal.Prt", "has no attribute 'Prt'"),
        ("def f(y: 'hal.Ptr[hal.flaot32]'):", "y: 'hal.Ptr", "'flaot32'"),
        ("def f(a: hal.bfloat16):", "a: hal.bf", "a value is a float32. Write a: hal.float32"),
        ("def f(*y: hal.int32):", "def f", "plain parameters only"),
        ("def f(**y: hal.int32):", "def f", "plain parameters only"),
        ("def f(*, y: hal.int32):", "def f", "plain parameters only"),
        ("def f(n: hal.int32 = 3):", "def f", "no default"),
        ("def f(n: hal.int32) -> hal.int32:", "hal.int32:", "returns no value"),
        ("def f(größe: hal.int32):", "größe", "not ASCII"),
        ("def é(n: hal.int32):", "def é", "not ASCII"),
        (f"def f({'n' * 129}: hal.int32):", "nnn", "128 letters at most, not 129"),
        (f"def {'f' * 129}(n: hal.int32):", "def fff", "128 letters at most, not 129"),
        ("async def f(n: hal.int32):", "", "a plain function"),
        *(
            (f"def {name}(n: hal.int32):", f"def {name}", f"{name}' is a word.* Rename the kernel")
            for name in ("half", "float4", "kernel", "exp", "j0", "WARP_SZ", "atomicAdd", "hal_x")
        ),
    ],
)  # fmt: skip
def test_bad_signature_is_refused_at_the_definition(head, at, says, tmp_path):
    with pytest.raises(hal.KernelSyntaxError, match=says) as raised:
        load(tmp_path, f"{IMPORTS}@hal.kernel\n{head}\n    pass\n")
    error = raised.value
    assert error.fix
    if at:
        assert error.text is not None and error.offset is not None
        assert error.text[error.offset - 1 :].startswith(at)


def test_variables_and_functions_may_have_names_that_kernels_may_not(tmp_path):
    text = f"""{IMPORTS}
@hal.func
def half(exp): return exp / 2

@hal.kernel
def f(kernel: hal.Ptr[hal.float32], float4: hal.float32):
    atomicAdd = half(float4)
    kernel[0] = atomicAdd
"""
    y = [0.0]
    run_on_lists.run(load(tmp_path, text).f.lower(), [y, 3.0], threads=1)
    assert y == [1.5]


@pytest.mark.parametrize("future", ["", "from __future__ import annotations\n"])
def test_annotations_may_name_the_enclosing_functions_variables(future, tmp_path):
    text = """
def make(element, count):
    @hal.kernel
    def f(y: hal.Ptr[element], n: count): y[0] = n

    @hal.kernel(block=(4,))
    def g(y: "hal.Ptr[element]", n: "count") -> "None": y[0] = n

    return f, g
"""
    made = load(tmp_path, future + IMPORTS + text).make(hal.int64, hal.int64)
    assert [str(kernel.signature) for kernel in made] == ["y: int64*, n: int64"] * 2
    assert all(kernel.lower() for kernel in made)


# -- source text


LAYOUTS = {
    "decorator over lines": """
@hal.kernel(
    block=(
8, 8),
)
def f(y: hal.Ptr[hal.float32]):
    y[0] = 1.0
""",
    "closing bracket at the margin": """
@hal.kernel
def f(
    y: hal.Ptr[hal.float32],
):
    y[0] = 1.0
""",
    "text and comments at the margin": '''
@hal.kernel
def f(y: hal.Ptr[hal.float32]):
    """A line

at the margin.
"""
# a comment

    y[0] = 1.0
# the end
''',
    "one line": "@hal.kernel\ndef f(y: hal.Ptr[hal.float32]): y[0] = 1.0",
    "continued line": """
@hal.kernel
def f(y: hal.Ptr[hal.float32]):
    y[0] = \\
1.0
""",
    "tabs in a class": """
class Kernels:
\t@staticmethod
\t@hal.kernel
\tdef f(y: hal.Ptr[hal.float32]):
\t\ty[0] = 1.0
f = Kernels.f
""",
    "nested twice": """
def outer():
    if True:
        @hal.kernel
        def f(y: hal.Ptr[hal.float32]):
            y[0] = 1.0
        return f
f = outer()
""",
    "another statement behind": """
@hal.kernel
def f(y: hal.Ptr[hal.float32]):
    if True:
        y[0] = 1.0
    else:
        pass
x = 1
""",
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_layout_is_read(layout, tmp_path):
    kernel = load(tmp_path, IMPORTS + LAYOUTS[layout]).f.lower()
    y = [0.0]
    run_on_lists.run(kernel, [y], threads=1)
    assert y == [1.0]


@pytest.mark.parametrize("indent", ["", "    ", "\t"])
def test_error_place_counts_characters(indent, tmp_path):
    text = f"""
if True:
    pass
{"if True:" if indent else ""}
{indent}@hal.kernel
{indent}def f(y: hal.Ptr[hal.float32]):
{indent} "äöü"; v = "äöü"
"""
    module = load(tmp_path, IMPORTS + text)
    with pytest.raises(hal.KernelSyntaxError) as raised:
        module.f.lower()
    error = raised.value
    assert error.text is not None and error.offset is not None and error.lineno is not None
    assert error.text[error.offset - 1 :] == '"äöü"\n'
    assert (IMPORTS + text).splitlines()[error.lineno - 1] + "\n" == error.text


def kernel_without_source():
    scope = {"hal": hal}
    exec("@hal.kernel\ndef f(y: hal.Ptr[hal.float32]):\n    y[0] = 1.0", scope)
    return scope["f"].lower()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: hal.kernel(lambda y: None), "Write it with def"),
        (kernel_without_source, "build its IR with hal.Kernel"),
    ],
)
def test_no_source_text(make, says):
    with pytest.raises(hal.KernelSyntaxError, match=says):
        make()


def test_a_file_that_changed_is_not_read_as_the_kernel(tmp_path):
    text = IMPORTS + "@hal.kernel\ndef f(y: hal.Ptr[hal.float32]): y[0] = 1.0\n"
    path = tmp_path / "changes.py"
    path.write_text(text.replace("def f(y", "def g(y"), encoding="utf-8")
    scope = {}
    exec(compile(text, str(path), "exec", dont_inherit=True), scope)
    with pytest.raises(hal.KernelSyntaxError, match="the file has changed"):
        scope["f"].lower()


def test_an_edit_changes_nothing_until_the_module_is_loaded_again(tmp_path, monkeypatch):
    text = IMPORTS + "@hal.kernel\ndef f(y: hal.Ptr[hal.float32]): y[0] = 1.5\n"
    path = tmp_path / "loaded_again.py"
    path.write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("loaded_again")
    try:
        first = module.f
        path.write_text("# a line more\n" + text.replace("1.5", "22.5"), encoding="utf-8")
        assert constants_of(first.lower())[0] == 1.5
        importlib.reload(module)
        assert constants_of(module.f.lower())[0] == 22.5
    finally:
        del sys.modules["loaded_again"]


UNDERLINED = [
    ("y[0] = nothing + 1.0", "nothing"), ("y[0] = hal.exp(y[0], y[1])", "hal.exp(y[0], y[1])"),
    ('v = "äöü"', '"äöü"'), ("with y[0]:\n        pass", "with y[0]:"),
    ("y[0] = hal.exp(\n        y[0], y[1])", "hal.exp("),
]  # fmt: skip


@pytest.mark.parametrize(("body", "under"), UNDERLINED)
def test_python_underlines_the_whole_expression(body, under, tmp_path):
    text = f"@hal.kernel\ndef f(y: hal.Ptr[hal.float32]):\n    {body}\n"
    with pytest.raises(hal.KernelSyntaxError) as raised:
        load(tmp_path, IMPORTS + text).f.lower()
    error = raised.value
    line = body.split("\n")[0]
    carets = " " * line.index(under) + "^" * len(under)
    assert str(error).endswith(f"    {line}\n    {carets}")
    shown = "".join(traceback.format_exception_only(error))
    assert f"    {line}\n    {carets}\n" in shown


def test_a_refusal_survives_pickling(tmp_path):
    text = "@hal.kernel\ndef f(y: hal.Ptr[hal.float32]):\n    y[0] = nothing\n"
    with pytest.raises(hal.KernelSyntaxError) as raised:
        load(tmp_path, IMPORTS + text).f.lower()
    copy = pickle.loads(pickle.dumps(raised.value))
    assert str(copy) == str(raised.value) and copy.fix == raised.value.fix
    assert "".join(traceback.format_exception_only(copy)) == "".join(
        traceback.format_exception_only(raised.value)
    )


def test_a_refusal_shows_the_kernel_and_not_the_front_end(tmp_path):
    text = "@hal.kernel\ndef f(y: hal.Ptr[hal.float32]):\n    y[0] = nothing\n"
    module = load(tmp_path, IMPORTS + text)
    with pytest.raises(hal.KernelSyntaxError) as raised:
        module.f.lower()
    frames = traceback.extract_tb(raised.value.__traceback__)
    assert [frame.name for frame in frames[-2:]] == [
        "test_a_refusal_shows_the_kernel_and_not_the_front_end",
        "lower",
    ]
    assert raised.value.__cause__ is None and raised.value.__suppress_context__


def test_other_decorators_below_are_not_read_over(tmp_path):
    text = """
def wrap(f):
    def inner(y: hal.Ptr[hal.float32]): f(y)
    return inner
@hal.kernel
@wrap
def f(y: hal.Ptr[hal.float32]): y[0] = 1.0
"""
    with pytest.raises(hal.KernelSyntaxError, match="the function f is not part"):
        load(tmp_path, IMPORTS + text).f.lower()


FORK_WHILE_LOWERING = """import os, sys, threading
import hal_core as hal
from hal_kernel.lang import function

@hal.kernel
def one(y: hal.Ptr[hal.int32]):
    y[0] = 1

def hold():
    with function._lock:
        held.set()
        threading.Event().wait()

held = threading.Event()
threading.Thread(target=hold, daemon=True).start()
held.wait()
child = os.fork()
if not child:
    threading.Timer(10, os._exit, [1]).start()
    one.lower()
    os._exit(7)
os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_lowers_although_a_thread_of_its_parent_was_at_it(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(FORK_WHILE_LOWERING, encoding="utf-8")
    command = [sys.executable, "-W", "ignore::DeprecationWarning", str(program)]
    assert subprocess.run(command, timeout=30).returncode == 7


FACTORIES = """
def first():
    @hal.kernel
    def k(y: hal.Ptr[hal.int32]) -> None:
        y[0] = 1
    return k


def second():
    @hal.kernel
    def k(y: hal.Ptr[hal.int32]) -> None:
        y[0] = 2
    return k
"""


@pytest.mark.parametrize(
    ("factory", "edited"),
    [("second", FACTORIES.replace("y[0] = 2", "y[0] = 3")),
     ("second", FACTORIES.replace("def k(y", "def j(y")),
     ("first", FACTORIES.replace("def first():", "def second():").replace("= 1", "= 2")),
     ("first", FACTORIES[: FACTORIES.index("def first")] + FACTORIES.split("\n\n\n")[1]),
     ("first", FACTORIES + "this is no Python"), ("second", "\n\n" + FACTORIES), ("first", "")],
    ids=["another number", "another name", "swapped", "gone", "no Python", "below", "empty"],
)  # fmt: skip
def test_a_factory_called_after_an_edit_is_refused(tmp_path, factory, edited):
    """It would make a kernel of the new text, or of another function that stands there now."""
    module = load(tmp_path, IMPORTS + FACTORIES)
    before, path = module.second(), Path(module.__file__ or "")
    path.write_text(IMPORTS + edited)
    with pytest.raises(hal.KernelSyntaxError, match=r"the file has changed since it was imported"):
        getattr(module, factory)().lower()
    assert set(constants_of(before.lower())) == {0, 2}


def test_a_factory_called_after_an_edit_elsewhere_makes_its_kernel(tmp_path):
    module = load(tmp_path, IMPORTS + FACTORIES)
    Path(module.__file__ or "").write_text(IMPORTS + FACTORIES.replace("y[0] = 2", "y[0] = 3"))
    assert set(constants_of(module.first().lower())) == {0, 1}


def test_another_thread_that_parses_disturbs_no_kernel(tmp_path, monkeypatch):
    """`ast.parse` of Python 3.11 raises SystemError now and then, and not again."""
    module, parse, disturbed = load(tmp_path, IMPORTS + KERNEL), ast.parse, [3]

    def disturbed_parse(*args):
        if disturbed[0]:
            disturbed[0] -= 1
            raise SystemError("AST constructor recursion depth mismatch (before=63, after=60)")
        return parse(*args)

    with monkeypatch.context() as patched:  # pytest parses, too, to show a failure
        patched.setattr(ast, "parse", disturbed_parse)
        assert module.f.lower().name == "f" and not disturbed[0]
        disturbed[0] = 10**6
        with pytest.raises(hal.InvalidState, match="Python could not parse its text"):
            load(tmp_path, IMPORTS + KERNEL).f.lower()
