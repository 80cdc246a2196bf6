"""Compiled: parts made once, lifetimes, the order of closing."""

import threading
from functools import partial

import numpy as np
import pytest
from fake_backend import LIMITS, FakeCompiler, FakePlugin, FakeRenderer
from in_threads import results

import hal_core as hal
from hal_core.dtypes import DTYPES, bool_, float64, int32
from hal_core.program import ProgramInfo
from hal_core.signature import Signature
from hal_kernel.ir import Kernel, UOp


def test_parts_are_made_once_by_however_many_threads(monkeypatch):
    class Slow(FakePlugin):
        made = 0

        @hal.hookimpl
        def hal_make_allocator(self, device):
            Slow.made += 1
            threading.Event().wait(0.05)
            return super().hal_make_allocator(device)

    hal.Device.register_plugin("SLOW", Slow())
    with hal.Device["SLOW"] as device:
        found = results(*[lambda: device.allocator] * 8)
        assert Slow.made == 1 and len(set(map(id, found))) == 1


def test_closing_waits_then_releases_then_closes(plugin):
    device = hal.Device["FAKE:1"]
    buffer = hal.zeros(100, hal.int8, device)
    allocator = device.allocator
    program = device.compile(hal.Source("k", "def k(t): pass", "", language="python"))
    program(threads=1)
    device.close()
    assert device.log == ["synchronize", "close"]
    device.close()
    assert device.log == ["synchronize", "close"], "a second close does nothing"
    assert len(allocator.memory) == 1, "memory that has an owner is not pulled away"
    del buffer
    assert not allocator.memory, "and goes with its owner"
    for use in (device.synchronize, lambda: device.compile(program), lambda: device.renderer):
        with pytest.raises((hal.InvalidState, hal.InvalidArgument)):
            use()
    assert "closed" in repr(device)
    assert hal.Device["FAKE:1"] is not device


@pytest.mark.parametrize("step", ["_synchronize", "_close", "allocator", "program"])
def test_closing_takes_every_step_whatever_one_raises(plugin, step):
    """A device whose `_close` had failed stayed in the registry, closed."""
    device = hal.Device["FAKE:1"]
    source = hal.Source("k", "def k(t): pass", "", language="python")
    programs = [device.compile(source)]
    programs += [device.load(programs[0].binary) for _ in range(2)]
    unloaded = []
    for number, program in enumerate(programs):
        program._unload = partial(unloaded.append, number)

    def fail(*_):
        raise ZeroDivisionError

    if step == "program":
        programs[1]._unload = fail
    elif step == "allocator":
        hal.zeros(10, hal.int8, device).deallocate()
        device.allocator.close = fail
    else:
        setattr(device, step, fail)
    with pytest.raises(ZeroDivisionError):
        device.close()
    assert device.closed and hal.Device["FAKE:1"] is not device
    assert len(unloaded) == (2 if step == "program" else 3)
    if step != "_close":
        assert device.log[-1] == "close"


def test_P10_closing_ends_every_program_before_it_frees_one(plugin):
    """A driver may wait there for launches, which threads with another program went on with."""
    device = hal.Device["FAKE:1"]
    source = hal.Source("k", "def k(t): pass", "", language="python")
    programs = [device.compile(source)]
    programs.append(device.load(programs[0].binary))
    freed = []

    def free(number):
        for program in programs:
            with pytest.raises(hal.InvalidState, match="closed"):
                program(threads=1)
        freed.append(number)

    for number, program in enumerate(programs):
        program._unload = partial(free, number)
    device.close()
    assert sorted(freed) == [0, 1]


def test_with_closes(plugin):
    with hal.Device["FAKE:1"] as device:
        assert not device.closed
    assert device.closed


def test_names_and_facts(plugin):
    device = hal.Device["FAKE:1"]
    assert (device.name, device.family, device.index) == ("FAKE:1", "FAKE", 1)
    assert device.info.limits.max_block == (64, 64, 64)
    assert repr(device) == "<FakeDevice FAKE:1 'Fake accelerator'>"
    assert device.synchronize() is True
    with pytest.raises(hal.InvalidArgument, match="timeout must be a number of seconds or None"):
        device.synchronize("8")
    assert device.graph is None  # replays run step by step
    with pytest.raises(AttributeError, match="no attribute 'alocator'"):
        device.alocator


def test_capabilities_are_a_closed_set(plugin):
    info = plugin.hal_enumerate("FAKE")[0]
    with pytest.raises(hal.InvalidArgument, match="unknown capabilities.*warp_speed"):
        hal.Compiled("FAKE", info._replace(capabilities=frozenset({"warp_speed"})))


# -- what a kernel asks of a device


@pytest.fixture
def plain():
    """A device with no capability at all, and a renderer."""
    plugin = FakePlugin()
    plugin.capabilities, plugin.renderer = frozenset(), FakeRenderer
    hal.Device.register_plugin("PLAIN", plugin)
    with hal.Device["PLAIN"] as device:
        yield device


def kernel(*uops, signature="", **more):
    return Kernel("k", Signature.parse("k", signature), uops, **more)


def atomic(op, dtype):
    memory, zero = UOp("PARAM", dtype, arg=0), UOp("CONST", int32, arg=0)
    value = UOp("CONST", dtype, arg=1)
    if op == "CAS":
        node = UOp("CAS", dtype, (memory, zero, value, value), line=7)
    else:
        node = UOp("ATOMIC", dtype, (memory, zero, value), op, line=7)
    return kernel(memory, zero, value, node, signature=f"p: {dtype.name}*")


def refused(device, wanted, pattern):
    before = FakeCompiler.compiled
    with pytest.raises(hal.Unsupported, match=pattern) as caught:
        device.compile(wanted)
    assert FakeCompiler.compiled == before
    assert str(caught.value).startswith(("compile k: ", "render kernel 'k' "))
    assert f"on {device.name}. " in str(caught.value), "the device, and then what to do"


def test_D1_a_dtype_the_device_lacks_is_refused_before_compilation(plain):
    refused(
        plain,
        hal.Source("k", "not even python", "y: float64*", language="python"),
        r"'y' has dtype float64, which the device does not have \(fp64\)",
    )
    zero = UOp("CONST", int32, arg=0)
    refused(plain, kernel(zero, UOp("CAST", float64, (zero,), line=5)), "float64 at line 5")
    refused(plain, kernel(signature="n: float64"), "'n' has dtype float64")
    for name, capability in (("float16", "fp16"), ("bfloat16", "bf16")):
        source = hal.Source("k", "def k(t, h): pass", f"h: {name}", language="python")
        refused(plain, source, rf"value 'h' has dtype {name}, which.*\({capability}\)")
        memory = hal.Source("k", "def k(t, h): pass", f"h: {name}*", language="python")
        plain.compile(memory)


def test_D1_a_dtype_the_language_lacks_is_refused_with_the_device(plain):
    class Short(FakeRenderer):
        dtypes = frozenset({bool_, int32})

    plain.compilers[:] = [plain.compilers[0]._replace(renderer=Short)]
    refused(plain, kernel(signature="y: int64*"), "no such dtype .got 'int64'; it has bool, int32")
    taken = Kernel("main", Signature.parse("main", ""), ())
    with pytest.raises(hal.Unsupported, match=r"got 'main'\) on PLAIN. Rename the kernel.$"):
        plain.compile(taken)
    assert [name for name in DTYPES if plain.supports(DTYPES[name])] == ["bool", "int32"]


@pytest.mark.parametrize("op", ["ADD", "MIN", "MAX", "EXCHANGE", "CAS"])
def test_D1_atomics_of_64_bits_are_a_capability(plain, op):
    for dtype in (DTYPES["int64"], DTYPES["uint64"]):
        refused(plain, atomic(op, dtype), rf"on {dtype.name} at line 7.*\(int64_atomics\)")
    for dtype in (DTYPES["int32"], DTYPES["uint32"]):
        plain.compile(atomic(op, dtype))
    if op in ("ADD", "EXCHANGE"):
        plain.compile(atomic(op, DTYPES["float32"]))
        able = plain.info.capabilities | {"fp64"}
        plain.info = plain.info._replace(capabilities=able)
        refused(plain, atomic(op, float64), r"on float64 at line 7.*\(int64_atomics\)")
        plain.info = plain.info._replace(capabilities=able | {"int64_atomics"})
        plain.compile(atomic(op, float64))


def test_subgroups_are_a_capability(plain):
    lane = UOp("SPECIAL", int32, (), ("subgroup_lane", 0), 7)
    kernel = hal.Kernel("k", hal.Signature.parse("k", ""), (lane,))
    refused(plain, kernel, r"it uses subgroups at line 7.*\(subgroups\)")
    plain.info = plain.info._replace(capabilities=plain.info.capabilities | {"subgroups"})
    plain.compile(kernel)


def test_P5_a_block_that_no_launch_could_have_is_refused_at_once(plain):
    for block in ((65, 1, 1), (1, 1, 65), (16, 16, 1)):
        pattern = (
            rf"block that the kernel fixes is too large .got \({block[0]},.*128 threads in all"
        )
        refused(plain, kernel(block=block), pattern)
        text = "def k(t): pass"
        refused(plain, hal.Source("k", text, "", language="python", block=block), pattern)
    for block in ((64, 2, 1), (1, 1, 64)):
        plain.compile(kernel(block=block))(grid=1)


def shared(nbytes):
    return kernel(UOp("SHARED", DTYPES["uint8"], arg=("tile", nbytes)))


def test_P5_shared_memory_is_limited_at_compilation_and_with_what_a_launch_adds(plain):
    most = LIMITS.shared_nbytes
    refused(plain, shared(most + 1), f"shared memory is larger.*got {most + 16}; limit {most}")
    program = plain.compile(shared(most - 30))
    assert program.binary.interface.shared_nbytes == program.info.shared_nbytes == most - 16
    program(threads=1)
    program(threads=1, shared=16)
    for _ in range(2):
        with pytest.raises(
            hal.InvalidArgument,
            match=f"beside the kernel's own {most - 16} bytes .got 17; limit 16",
        ):
            program(threads=1, shared=17)
    program = plain.compile(shared(most))
    program(threads=1)


def test_P11_facts_nobody_knows_are_None(plain):
    source = hal.Source("k", "def k(t): pass", "", language="python")
    assert set(plain.compile(source).info) == {None}
    assert plain.compile(shared(16)).info == ProgramInfo(shared_nbytes=16)


def test_C9_supports_takes_what_a_buffer_takes(plain):
    assert plain.supports("float32")
    assert plain.supports(np.float32)
    with pytest.raises(hal.InvalidArgument, match="supports: not a dtype"):
        plain.supports("f4")
