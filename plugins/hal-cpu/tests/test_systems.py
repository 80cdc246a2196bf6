"""The ways of macOS and Windows, as far as they can be run on another system.

`windows.py` runs here on a kernel32 and a C library in Python, over pages of this system. They
refuse what Windows refuses: an address that is no mapping's, rights that do not exist.
"""

import ctypes
import importlib
import os
import sys
from contextlib import nullcontext
from types import ModuleType

import numpy as np
import pytest
from mapped import resident, rights_at
from run_python import printed
from slices import usual
from unregistered import open_device

import hal_core as hal
from hal_cpu import driver, processor
from hal_cpu.checked.guarded_memory import Block
from hal_cpu.device import describe
from hal_cpu.system import linux, macos, posix
from hal_cpu.system.refused import Refused
from hal_cpu.threads import stacks
from hal_testing.conformance.forked import findings_of_child

RESERVE, COMMIT, DECOMMIT, RELEASE = 0x2000, 0x1000, 0x4000, 0x8000
SMALL = ("allocate_small", "free_small")
RIGHTS = {0x01: 0, 0x02: 1, 0x04: 3, 0x20: 5}  # PAGE_NOACCESS and so on


class Call:
    """A function of a library, which ctypes gives argument types and a result type."""

    def __init__(self, function):
        self.function = function
        self.argtypes = None

    def __call__(self, *arguments):
        if self.argtypes is not None:
            assert len(arguments) == len(self.argtypes)
        return self.function(*arguments)


class Library:
    """Kernel32 and the C library, with the calls that windows.py makes."""

    def __init__(self):
        self.mapped = {}
        self.small = set()
        self.error = 0
        self.features = {39, 40}

    def __getattr__(self, name):
        call = Call(getattr(type(self), f"do_{name.lstrip('_')}").__get__(self))
        setattr(self, name, call)
        return call

    def do_VirtualAlloc(self, address, nbytes, kind, rights):
        assert (address, kind, rights) == (None, RESERVE | COMMIT, 0x04) and nbytes > 0
        if nbytes > 1 << 46:
            self.error = 8
            return None
        found = posix.map_pages(driver.pages(nbytes), 1 << 16)
        self.mapped[found] = driver.pages(nbytes)
        return found

    def do_VirtualFree(self, address, nbytes, kind):
        if kind == RELEASE:
            assert nbytes == 0, "MEM_RELEASE takes the whole mapping, and no size"
            posix.unmap_pages(address, self.mapped.pop(address))
            return True
        assert kind == DECOMMIT
        posix.retire_pages(address, driver.pages(nbytes))
        return True

    def do_VirtualProtect(self, address, nbytes, rights, before):
        inside = any(low <= address < low + size for low, size in self.mapped.items())
        if not inside:
            self.error = 487
            return False
        posix.protect_pages(address, driver.pages(nbytes), RIGHTS[rights])
        return True

    def do_aligned_malloc(self, nbytes, alignment):
        if nbytes > 1 << 46:
            return None
        found = posix.allocate_small(nbytes, alignment)
        self.small.add(found)
        return found

    def do_aligned_free(self, address):
        self.small.remove(address)
        posix.free_small(address)

    def do_GetCurrentThreadStackLimits(self, low, high):
        low._obj.value, high._obj.value = 1 << 30, (1 << 30) + (1 << 21)

    def do_IsProcessorFeaturePresent(self, feature):
        return feature in self.features

    def do_GetCurrentProcess(self):
        return -1

    def do_GetProcessAffinityMask(self, process, own, all_of_them):
        own._obj.value, all_of_them._obj.value = 0b1011, 0b1111
        return True

    def do_GlobalMemoryStatusEx(self, status):
        assert status._obj.nbytes == 64
        status._obj.total = 16 << 30
        return True


@pytest.fixture
def library():
    return Library()


@pytest.fixture
def windows(library):
    """The module windows.py, imported over the library in Python."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ctypes, "WinDLL", lambda name, use_last_error: library, raising=False)
        patch.setattr(ctypes, "get_last_error", lambda: library.error, raising=False)
        patch.setattr(ctypes, "FormatError", lambda code: f"Error {code}.", raising=False)
        real = ctypes.CDLL
        patch.setattr(
            ctypes, "CDLL", lambda name, **more: library if name == "ucrtbase" else real(name)
        )
        patch.delitem(sys.modules, "hal_cpu.system.windows", raising=False)
        yield importlib.import_module("hal_cpu.system.windows")
        sys.modules.pop("hal_cpu.system.windows", None)


def use(monkeypatch, system):
    """Put the memory calls of a system under `driver`."""
    for name, made in (("system", system), *((n, getattr(system, n)) for n in SMALL)):
        monkeypatch.setattr(driver, name, made)


@pytest.fixture(params=["posix", "windows"])
def system(request, monkeypatch):
    chosen = posix if request.param == "posix" else request.getfixturevalue("windows")
    use(monkeypatch, chosen)
    return chosen


def test_both_systems_have_the_same_functions(windows):
    names = {"map_pages", "unmap_pages", "protect_pages", "retire_pages", "allocate_small",
             "free_small", "stack_nbytes", "usual_stack_nbytes", "LIBRARIES"}  # fmt: skip
    for module in (posix, windows):
        assert names <= set(vars(module))
    for module in (linux, macos, windows):
        assert "facts" in vars(module)


def test_pages(system):
    for nbytes, huge in ((1, False), (100_000, False), (5 << 20, True)):
        address = driver.map_pages(nbytes, huge=huge)
        memory = driver.memory_at(address, nbytes)
        assert address % driver.PAGE == 0 and not any(bytes(memory[:4096]))
        memory[-1] = 7
        driver.protect_pages(address, nbytes, driver.READ)
        assert memory[-1] == 7
        driver.unmap_pages(address, nbytes)


def test_memory_that_is_refused(system):
    with pytest.raises(Refused, match="rr"):
        driver.map_pages(1 << 60)
    with pytest.raises(Refused):
        driver.allocate_small(1 << 60)
    with pytest.raises(Refused):
        driver.protect_pages(driver.PAGE, driver.PAGE, driver.READ)


def test_small_blocks(system):
    addresses = [driver.allocate_small(100) for _ in range(10)]
    assert all(address % 64 == 0 for address in addresses)
    for address in addresses:
        driver.free_small(address)


def test_guarded_memory(system):
    block = Block(100, 1, zero=False, poison=True)
    driver.memory_at(block.address, 100)[:] = bytes(100)
    driver.memory_at(block.end, 1)[0] = 0
    assert block.find_damage() == 100
    driver.retire_guarded(block.low, block.high - block.low)
    assert rights_at(block.low).startswith("---p")
    driver.unmap_guarded(block.low, block.high - block.low)


def test_retired_pages_take_no_memory():
    address = driver.map_pages(8 << 20)
    ctypes.memset(address, 1, 8 << 20)

    before = resident()
    driver.retire_guarded(address, 8 << 20)
    assert before - resident() > 7 << 20
    driver.unmap_pages(address, 8 << 20)


def test_stacks_and_the_processor_on_windows(windows, library):
    assert windows.stack_nbytes() == 2 << 20 and windows.usual_stack_nbytes() == 1 << 20
    assert windows.affinity() == 3 and windows.memory_nbytes() == 16 << 30
    key = ModuleType("winreg")
    key.HKEY_LOCAL_MACHINE = 1
    key.OpenKey = lambda root, path: nullcontext()
    key.QueryValueEx = lambda key, name: (" Some CPU  ", 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "winreg", key)
        patch.setenv("PROCESSOR_IDENTIFIER", "Model 1")
        title, model, flags = windows.facts("x86-64")
    assert (title, model, set(flags)) == ("Some CPU", "Model 1", {"avx", "avx2", "fma", "f16c"})


def test_a_device_over_the_memory_of_windows(windows, library, monkeypatch):
    use(monkeypatch, windows)
    device = open_device(HAL_CPU_LOADER="llvmlite")
    for size in (10, 100_000, 3_000_000):
        buffer = hal.Buffer.from_numpy(np.arange(size, dtype=np.float32), device)
        assert (buffer.numpy() == np.arange(size)).all()
        buffer.deallocate()
    device.close()
    assert not library.mapped and not library.small


def test_facts_of_a_mac(monkeypatch):
    answers = {
        "machdep.cpu.brand_string": b"Apple M1\0",
        "hw.cpufamily": b"\x5f\x00\x00\x1b",
        "machdep.cpu.features": b"FPU SSE4.2 AVX1.0 FMA F16C\0",
        "machdep.cpu.leaf7_features": b"AVX2 BMI1\0",
    }
    monkeypatch.setattr(macos, "_ask", lambda name: answers.get(name, b""))
    title, model, flags = macos.facts("aarch64")
    assert (title, model, flags) == ("Apple M1", f"{0x1B00005F}/0/0", ("asimd",))
    assert {"avx", "avx2", "fma", "f16c"} <= set(macos.facts("x86-64")[2])


def test_features_of_arm_are_the_kernels_words():
    assert linux.features_of(0b11, 1 << 1) == ("fp", "asimd", "sve2")
    assert linux.features_of(1 << 40, 1 << 60) == ("hwcap.40", "hwcap2.60")


# -- what a system lacks


def test_without_affinity_all_processors_count(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    monkeypatch.setattr(linux, "read", lambda path: "")
    assert processor.usable_cores() == 6


def test_a_thread_has_enough_stack_where_the_system_names_none(monkeypatch):
    monkeypatch.setattr(driver, "usual_stack_nbytes", lambda: 64 << 10)
    sizes = []
    stacks.start_thread("probe", lambda: sizes.append(posix.stack_nbytes())).join()
    assert sizes[0] >= stacks.STACK_NBYTES


def test_machine_code_in_checked_mode_is_refused_where_there_is_no_fork(monkeypatch):
    monkeypatch.setenv("CPU_CC", "llvm")
    device = open_device(HAL_CHECK="1")
    monkeypatch.setattr(processor, "is_linux", lambda: False)

    @hal.kernel
    def once(y: hal.Ptr[hal.int32]):
        y[hal.global_idx(0)] = 1

    try:
        with pytest.raises(hal.Unsupported, match="Leave CPU_CC unset"):
            device.compile(once)
    finally:
        monkeypatch.undo()
        device.close()


@pytest.mark.parametrize(
    ("system", "machine", "runs"),
    [("linux", "aarch64", True), ("darwin", "arm64", True), ("darwin", "x86_64", True),
     ("win32", "AMD64", True), ("win32", "ARM64", False), ("freebsd14", "amd64", False)],
)  # fmt: skip
def test_systems_that_kernels_run_on(windows, monkeypatch, system, machine, runs):
    processor.machine.cache_clear()
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(processor, "_facts", lambda: ("A processor", "", ()))
    try:
        if runs:
            assert describe("CPU").title == "A processor"
        else:
            with pytest.raises(hal.DeviceUnavailable, match="runs on Linux and macOS"):
                describe("CPU")
    finally:
        processor.machine.cache_clear()


WITHOUT = """
import os, select, signal
for name in ("fork", "register_at_fork", "geteuid", "sched_getaffinity", "pread", "WNOHANG"):
    delattr(os, name)
for name in ("SIGKILL", "SIGBUS", "SIGTRAP"):
    delattr(signal, name)
import numpy as np
import hal_core as hal

@hal.kernel
def twice(y: hal.Ptr[hal.float32], n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        y[i] = 2 * y[i]

for _ in range(2):  # the second finds the kernel in the compile cache
    with hal.Device["CPU"] as device:
        y = hal.Buffer.from_numpy(np.ones(3_000_000, np.float32), device)
        device.compile(twice)(y, vals=(3_000_000,), threads=3_000_000)
        print(int(y.numpy().sum()))
"""


@pytest.mark.parametrize("check", usual(["0", "1"], "0"))
def test_a_kernel_runs_without_the_names_that_windows_lacks(tmp_path, check):
    script = tmp_path / "without.py"
    script.write_text(WITHOUT.replace("3_000_000", "3_000") if check == "1" else WITHOUT)
    said = printed(script, HAL_CPU_LOADER="llvmlite", HAL_CHECK=check)
    assert said.split() == ["6000" if check == "1" else "6000000"] * 2


def test_tests_of_forks_are_skipped_where_there_is_no_fork(monkeypatch):
    monkeypatch.delattr(os, "fork")
    with pytest.raises(pytest.skip.Exception, match="this system has no fork"):
        findings_of_child(list)
