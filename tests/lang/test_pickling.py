"""Kernels in another process: by name where an import finds them there, else by value."""

import copy
import importlib
import math
import pickle
import sys
import types

import pytest
import run_on_lists
from kernel_files import IMPORTS, load
from run_python import printed

import hal_core as hal
from hal_kernel.ir.listing import listing
from hal_kernel.lang.function import KernelFunction

pytestmark = pytest.mark.syntax

SCALE = 3.0
SIZES = types.ModuleType("sizes_of_this_test")
vars(SIZES).update(WIDTH=4, inner=types.ModuleType("inner"))
vars(SIZES.inner).update(TABLE=(1.5, 2.5))


@hal.func
def scaled(x: hal.float32) -> hal.float32:
    return x * SCALE


@hal.kernel
def of_a_module(y: hal.Ptr[hal.float32]) -> None:
    y[0] = scaled(2.0)


def made(factor):
    @hal.func
    def twice(x: hal.float32) -> hal.float32:
        """Twice x."""
        return hal.sqrt(x) * factor * SIZES.inner.TABLE[0]

    @hal.kernel(block=(16, 4), contract=False)
    def inside(y: hal.Ptr[hal.float32], n: hal.int32) -> None:
        """What it does."""
        i = hal.global_idx(0)
        assert n < 100, "too many"
        if i < n:
            y[i] = twice(y[i]) + math.pi * SIZES.WIDTH

    return inside


def by_cloudpickle(value):
    cloudpickle = pytest.importorskip("cloudpickle", reason="cloudpickle is not installed")
    return pickle.loads(cloudpickle.dumps(value))


SENT = {f"pickle {n}": lambda value, n=n: pickle.loads(pickle.dumps(value, n)) for n in range(6)}
SENT["cloudpickle"] = by_cloudpickle


@pytest.fixture(params=SENT)
def send(request):
    return SENT[request.param]


IMPORTABLE = """
import hal_core as hal

@hal.func
def scaled(x: hal.float32) -> hal.float32:
    return x * 3.0

@hal.kernel
def of_a_module(y: hal.Ptr[hal.float32]) -> None:
    y[0] = scaled(2.0)
"""


@pytest.fixture
def importable(tmp_path, monkeypatch):
    (tmp_path / "importable_kernels.py").write_text(IMPORTABLE)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("importable_kernels")
    del sys.modules["importable_kernels"]


def test_what_an_import_finds_travels_by_name(send, importable):
    assert send(importable.of_a_module) is importable.of_a_module
    assert send(importable.scaled) is importable.scaled


def test_a_finder_without_find_spec_is_passed_over(importable, monkeypatch):
    """Python itself passes over such finders, which are older than find_spec."""
    monkeypatch.setattr(sys, "meta_path", [object(), *sys.meta_path])
    assert pickle.loads(pickle.dumps(importable.of_a_module)) is importable.of_a_module


def test_a_kernel_of_a_factory_travels_by_value(send):
    """Name, signature, block and text of the IR are the same, line numbers included."""
    kernel = made(2.0)
    there = send(kernel)
    assert there is not kernel and isinstance(there, KernelFunction)
    assert repr(there) == repr(kernel) and there.signature == kernel.signature
    assert (there.__doc__, there.__module__) == ("What it does.", __name__)
    assert listing(there.lower()) == listing(kernel.lower())
    y = [4.0]
    run_on_lists.run(there.lower(), [y, 1], threads=64)
    assert y == [pytest.approx(2.0 * 2.0 * 1.5 + 4 * math.pi)]
    assert listing(send(there).lower()) == listing(kernel.lower())


def test_a_copy_of_a_kernel_is_the_kernel():
    """A copy of a kernel is the kernel, as with functions; nothing is read or lowered."""
    for original in (made(2.0), of_a_module, scaled):
        assert copy.copy(original) is original and copy.deepcopy([original])[0] is original


def test_what_a_kernel_has_captured_travels_as_it_is_now(tmp_path):
    """From the first lowering on it is fixed, and pickling lowers."""
    module = load(
        tmp_path,
        IMPORTS + "N = 3\n@hal.kernel\ndef k(y: hal.Ptr[hal.int32]) -> None:\n    y[0] = N\n",
    )
    sent = pickle.dumps(module.k)
    module.N = 4
    for kernel in (pickle.loads(sent), pickle.loads(pickle.dumps(module.k)), module.k):
        assert [node.arg for node in kernel.lower().uops if node.op == "CONST"] == [3, 0]


def test_a_hidden_name_or_module_does_not_lead_to_the_kernel(tmp_path, monkeypatch):
    """Another process would import another object, or none."""
    text = IMPORTS + "@hal.kernel\ndef k(y: hal.Ptr[hal.int32]) -> None:\n    y[0] = 1\n"
    module = load(tmp_path, text)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    assert pickle.loads(pickle.dumps(module.k)) is not module.k  # not on sys.path
    (tmp_path / "on_the_path.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    found = importlib.import_module("on_the_path")
    monkeypatch.setitem(sys.modules, "on_the_path", found)
    assert pickle.loads(pickle.dumps(found.k)) is found.k
    first, found.k = found.k, "another"
    assert isinstance(pickle.loads(pickle.dumps(first)), KernelFunction)
    monkeypatch.setitem(sys.modules, "on_the_path", types.ModuleType("on_the_path"))
    assert isinstance(pickle.loads(pickle.dumps(first)), KernelFunction)


def test_a_kernel_with_an_error_is_refused_where_it_is_written(tmp_path):
    """A captured object that is no constant of the language, by its name, file and line."""
    module = load(
        tmp_path,
        IMPORTS + "TABLE = {}\n@hal.kernel\ndef k(y: hal.Ptr[hal.int32]) -> None:\n"
        "    y[0] = TABLE\n",
    )
    with pytest.raises(hal.KernelSyntaxError, match="'dict'|a dict is not a value") as raised:
        pickle.dumps(module.k)
    assert raised.value.filename == module.__file__ and "Capture Python ints" in str(raised.value)


def test_a_function_that_no_import_finds_is_refused():
    @hal.func
    def halved(x: hal.float32) -> hal.float32:
        return x * 0.5

    with pytest.raises(hal.Unsupported, match="pickle func halved: .* Send a kernel that calls it"):
        pickle.dumps(halved)


# -- another process

SCRIPT = (
    IMPORTS
    + """
import pickle, subprocess, sys

FACTOR = 3

@hal.func
def times(x):
    return x * FACTOR

@hal.kernel
def k(y: hal.Ptr[hal.int32]) -> None:
    i = hal.global_idx(0)
    y[i] = times(i)

if __name__ == "__main__":
    from hal_kernel.ir.listing import listing
    sent = pickle.dumps((k, listing(k.lower())))
    command = [sys.executable, "-W", "error", "-c", sys.argv[1]]
    sys.exit(subprocess.run(command, input=sent).returncode)
"""
)

RECEIVER = """
import pickle, sys
import numpy as np
import hal_core as hal
from hal_kernel.ir.listing import listing
from hal_kernel.interpreter import interpret
k, expected = pickle.load(sys.stdin.buffer)
assert listing(k.lower()) == expected
y = np.zeros(4, np.int32)
interpret(k, y, threads=4, block=4)
print(y.tolist(), k)
"""


def test_a_script_sends_its_kernel_to_another_process(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    expected = "[0, 3, 6, 9] <kernel k(y: int32*)>\n"
    assert printed(script, RECEIVER) == expected


# -- the other public objects of a kernel


def source():
    return hal.Source(
        "scale", "text", "y: float32*, n: int32", language="opencl", options=("-O2",),
        defines={"N": 4}, includes=("here",), block=(8, 2), work=7, offsets=True,
    )  # fmt: skip


def test_a_source_travels_and_is_copied(send):
    for made in (send(source()), copy.copy(source()), copy.deepcopy(source())):
        assert repr(made) == repr(source())
        for slot in hal.Source.__slots__[1:]:
            assert getattr(made, slot) == getattr(source(), slot)


def test_the_ir_travels_and_is_copied(send):
    """Also one that is too deep for pickle's recursion, node by node."""

    @hal.kernel
    def deep(y: hal.Ptr[hal.int32]) -> None:
        x = y[0]
        for k in hal.unroll(200):
            x += x * k + k
        y[0] = x

    kernel = deep.lower()
    for made in (send(kernel), copy.copy(kernel), copy.deepcopy(kernel)):
        assert isinstance(made, hal.Kernel) and made[:2] == kernel[:2]
        assert listing(made) == listing(kernel)
    node = send(kernel.uops[3])
    assert isinstance(node, hal.UOp) and repr(node) == repr(kernel.uops[3])
    assert send(kernel.signature) == kernel.signature


def test_a_kernel_with_a_node_from_elsewhere_is_refused():
    kernel = made(1.0).lower()
    with pytest.raises(hal.InvalidKernel, match="pickle kernel 'inside'"):
        pickle.dumps(kernel._replace(uops=kernel.uops[5:]))
