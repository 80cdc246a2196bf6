"""Fork: a child is refused at once what it may not use of its parent; all else works."""

import os
import sys
import textwrap
from pathlib import Path

import pytest
from forked import Programs

pytestmark = [
    pytest.mark.syntax,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system"),
]

# The parent makes one of everything, on a device that does not survive a fork and on one that
# does. `calls` counts what reaches the "driver" under them.
HEAD = """
import gc, os, sys, threading, time, warnings
from types import SimpleNamespace
import hal_core as hal
from hal_core.device import Device
from fake_backend import FakeAllocator, FakeDevice, FakePlugin, FakeProgram
from hal_testing.fake.chip import Block
"""
PARENT = """
warnings.simplefilter("ignore", DeprecationWarning)  # fork beside threads is what is tested
calls = []
class Handle(Block):
    def __del__(self):
        calls.append("finalizer of a handle")
def counted(cls, name):
    inner = getattr(cls, name)
    def method(self, *args):
        calls.append(name)
        found = inner(self, *args)
        return Handle(*found) if name in ("_alloc", "_offset", "_wrap") else found
    setattr(cls, name, method)
for name in ("_alloc", "_free", "_offset", "_wrap", "_copyin", "_copyout"):
    counted(FakeAllocator, name)
for name in ("_synchronize", "_close"):
    counted(FakeDevice, name)
counted(FakeProgram, "_run")
FakeProgram._unload = lambda self: calls.append("_unload")

class CPU(FakePlugin):
    def __init__(self):
        super().__init__("cpu", rank={"cpu": 0})
        self.capabilities = frozenset({"subprocess_fork"})

Device.register_plugin("DRV", FakePlugin("gpu", "gpu"))
Device.register_plugin("CPU", CPU())

def make(name):
    made = SimpleNamespace()
    made.dev = Device[name]
    made.kernel = hal.Source("one", "def one(t, x, n): x[t[0]] = n",
                             "x: int32*, n: int32", language="python")
    made.program = made.dev.compile(made.kernel)
    made.plain = made.dev.compile(hal.Source("two", "def two(t, n): pass", "n: int32",
                                             language="python"))
    made.buf = hal.zeros(4, hal.int32, made.dev)
    made.view = made.buf[1:3]
    made.lazy = hal.Buffer(made.dev, 4, hal.int32)
    made.external = hal.Buffer(made.dev, 4, hal.int32,
                               hal.BufferSpec(external_ptr=made.buf._buf[0])).allocate()
    made.allocator = made.dev.allocator
    made.compiler = made.dev._ready_compilers["python"]
    made.binary = made.program.binary
    cached = hal.empty(4, hal.int32, made.dev)
    cached.deallocate()
    for _ in range(2):
        made.program(made.buf, vals=(7,), threads=4)
        made.plain(vals=(7,), threads=4)
        made.buf.copyin(bytes(16))
    made.program(made.buf, vals=(7,), threads=4)
    return made

drv, cpu = make("DRV"), make("CPU")
"""

CHILD = """
child = os.fork()
if child:
    for _ in range(300):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            os._exit(os.waitstatus_to_exitcode(status))  # its locks may be held
        time.sleep(0.05)
    os.kill(child, 9)
    print("the child hangs", file=sys.stderr)
    os._exit(1)
"""


@pytest.fixture(scope="module")
def programs():
    paths = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    with Programs(HEAD, "-W", "error", env=os.environ | {"PYTHONPATH": paths}) as made:
        yield made


@pytest.fixture
def run(programs):
    """Return what is printed. Parent and child must end by themselves, well, and silently."""

    def run(text):
        done = programs.run(PARENT + text, HAL_PLUGINS="DRV,CPU")
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    return run


@pytest.fixture
def child(run):
    """Return what the child prints."""

    def child(text, *, before="", leave=True):
        text = before + "\ncalls.clear()" + CHILD + textwrap.dedent(text)
        return run(text + "\nsys.stdout.flush(); os._exit(0)\n" * leave)

    return child


REFUSED = """
def refused(work):
    try:
        work()
    except hal.ForkError as error:
        assert "spawn" in str(error) and "DRV" in str(error), error
        return
    raise SystemExit(f"not refused: {source}")
"""

USES = (
    "Device['DRV']", "Device['drv:0']", "Device['DRV:1']", "hal.Buffer('DRV', 1, hal.int8)",
    "hal.Buffer(drv.dev, 1, hal.int8)", "hal.zeros(1, hal.int8, drv.dev)",
    "drv.program(drv.buf, vals=(1,), threads=4)", "drv.program(drv.buf, vals=(7,), threads=4)",
    "drv.program(drv.buf, vals=(1,), threads=4, wait=True)", "drv.plain(vals=(7,), threads=4)",
    "drv.plain(vals=(7,), threads=2)", "drv.program(drv.view, vals=(1,), threads=2)",
    "cpu.program(drv.buf, vals=(1,), threads=4)", "drv.program(cpu.buf, vals=(7,), threads=4)",
    "drv.buf.copyin(bytes(16))", "drv.buf.copyout(bytearray(16))", "drv.buf.fill(1)",
    "drv.buf.numpy()", "drv.buf[0:1]", "drv.buf.view()", "drv.view.copyin(bytes(8))",
    "drv.view.numpy()", "drv.view.view()", "drv.lazy.copyin(bytes(16))", "drv.lazy.allocate()",
    "drv.lazy.copyout(bytearray(16))", "drv.lazy.numpy()", "drv.lazy.ensure_allocated()",
    "drv.external.fill(3)", "drv.buf.copy_from(cpu.buf)", "cpu.buf.copy_from(drv.buf)",
    "drv.buf.__reduce_ex__(5)", "drv.dev.compile(drv.kernel)", "drv.dev.load(drv.binary)",
    "drv.dev.synchronize()", "drv.dev.synchronize(0.1)", "drv.dev.compiler", "drv.dev.compilers",
    "drv.dev.allocator", "drv.allocator.alloc(16)", "drv.allocator.alloc(4)",
    "drv.allocator.free(drv.buf._buf, 16)", "drv.allocator.free_cache()",
    "drv.compiler.compile(drv.kernel)", "drv.compiler.disassemble(b'')",
)  # fmt: skip


def test_X2_whatever_the_parent_made_refuses_in_the_child(child):
    """One fork for all: the child tries every use, and none reaches the driver."""
    lines = [REFUSED]
    lines += [f"source = {use!r}\nrefused(lambda: {use})" for use in USES]
    lines += ["assert calls == [], calls", "print('done')"]
    assert child("\n".join(lines)) == "done\n"


def test_X2_the_parent_goes_on(run):
    program = """
pid = os.fork()
if not pid:
    os._exit(0)
os.waitpid(pid, 0)
drv.program(drv.buf, vals=(5,), threads=4)
print(drv.buf.numpy().tolist(), drv.dev is Device["DRV"], drv.dev.forked)
"""
    assert run(program) == "[5, 5, 5, 5] True False\n"


def test_X2_finalizers_and_close_leave_the_driver_alone(child):
    text = """
        drv.dev.close()
        drv.allocator.close()
        drv.program.unload()
        with drv.dev:
            pass
        drv.buf.deallocate()
        drv.external.deallocate()
        repr(drv.allocator), repr(drv.buf), repr(drv.dev), repr(drv.program)
        del drv
        for _ in range(3):
            gc.collect()
        print(calls)
        """
    assert child(text) == "[]\n"


def test_X2_a_child_that_ends_as_programs_do(child):
    """The exit handler and the interpreter's end: `calls` is looked at by the very last object."""
    before = """
import builtins
class Last:
    def __del__(self, calls=calls, write=os.write):
        write(1, repr(calls).encode())
for first in ("", "del drv", "drv.buf.deallocate()"):
    pid = os.fork()
    if not pid:
        cpu.dev.close()  # else it is closed at exit, as in any process
        calls.clear()
        exec(first)
        sys.last = Last()
        sys.exit(0)
    os.waitpid(pid, 0)
"""
    assert child("", before=before) == "[]" * 3


def test_X2_a_closed_device_frees_nothing_in_the_child(child):
    before = """
held = drv.buf
drv.dev.close()
"""
    text = """
        del drv, held
        gc.collect()
        print(calls)
        """
    assert child(text, before=before) == "[]\n"


def test_X2_available_devices_are_those_that_can_be_opened(child):
    assert child("print(Device.get_available_devices())") == "['CPU']\n"


def test_X2_a_lock_that_another_thread_held(child):
    before = """
import signal

def hold(lock):
    with lock:
        held.set()
        release.wait()

def use(made):
    try:
        made.dev.compile(made.kernel)
        made.buf.deallocate()
        made.allocator.free_cache()
        Device[made.dev.name]
        made.program(hal.zeros(4, hal.int32, Device[made.dev.name]), vals=(1,), threads=4)
        print("works", flush=True)
    except hal.ForkError:
        print("refused", flush=True)
    repr(made.allocator)
    made.dev.close()

for made in (drv, cpu):
    for name, lock in {
        "device": made.dev._lock, "allocator": made.allocator._lock, "registry": Device._lock,
        "flights": hal.concurrency.flights._lock,
        "backend": Device.backend(made.dev.family)._lock,
    }.items():
        held, release = threading.Event(), threading.Event()
        holder = threading.Thread(target=hold, args=(lock,))
        holder.start()
        held.wait()
        pid = os.fork()
        if not pid:
            signal.alarm(15)
            use(made)
            os._exit(0)
        if os.waitpid(pid, 0)[1]:
            print(name, "stays locked", flush=True)
        release.set()
        holder.join()
"""
    assert child("", before=before).split() == ["refused"] * 5 + ["works"] * 5


def test_X2_accounts_are_right_after_a_change_that_was_cut_short(child):
    """Another thread had taken a block out of the cache and not yet written that down."""
    before = """
small = hal.empty(300, hal.int8, cpu.dev)
cpu.allocator._returned.clear()
blocks = cpu.allocator._cache[256]
blocks.pop()
"""
    text = """
        cpu.allocator.limit = 4096
        facts = cpu.allocator.statistics()
        assert facts.cached == 0 and facts.current == 300 + 16, facts
        assert cpu.allocator._held == 512 + 256
        cpu.allocator.free_cache()
        rest = hal.empty(4096 - 768, hal.int8, cpu.dev)
        print("done")
        """
    assert child(text, before=before) == "done\n"


def test_X2_a_queue_of_the_child_waits_for_no_pending_event_of_the_parent(child):
    before = "queue = cpu.dev.queue().wait(hal.Event())\npending = queue.record()\n"
    text = """
        try:
            cpu.dev.queue().wait(pending)
        except hal.ForkError:
            print("refused")
        """
    assert child(text, before=before, leave=False) == "refused\n"
