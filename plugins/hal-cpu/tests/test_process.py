"""Processes: a light import, fork, exit, `python -O`, the number of threads."""

import os
import subprocess
import sys
import threading
import time

import pytest
from run_python import printed

import hal_core as hal
from hal_cpu import plugin

PREFACE = """
import os, time, warnings
import hal_core as hal, hal_cpu
hal.Device.register_plugin("CPU", hal_cpu.plugin)
from hal_core.signature import Signature
@hal.kernel
def slow(y: hal.Ptr[hal.float64], rounds: hal.int32):
    i = hal.global_idx(0)
    total = hal.float64(0.0)
    for k in range(rounds):
        total = total + hal.float64(k % 7)
    y[i] = total
def launch():
    device = hal.Device["CPU"]
    y = hal.Buffer(device, 4096, hal.float64)
    for _ in range(4):
        device.compile(slow)(y, vals=(500,), grid=64, block=64)
    assert set(y.numpy().tolist()) == {float(sum(k % 7 for k in range(500)))}
    return device
def fork():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return os.fork()
def code_of(child):
    for _ in range(400):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.kill(child, 9)
    return "hangs"
"""


PATHS = os.pathsep.join(filter(None, sys.path))


def run(program, tmp_path, **environment):
    """Return what the program prints; it must end well and say nothing on stderr."""
    script = tmp_path / "program.py"
    script.write_text(PREFACE + program)
    return printed(script, PYTHONPATH=PATHS, **environment).strip()


def test_X2_a_fork_while_another_thread_compiles(tmp_path):
    """The child compiles too: it holds no lock of this project or of llvmlite."""
    program = """
import threading
def kernel(number):
    lines = "".join(f"    y[{k}] = y[{k + 1}] * {number + k}.0\\n" for k in range(25))
    name = f"kernel_{number}"
    path = os.path.join(os.environ["HAL_CACHE_DIR"], name + ".py")
    with open(path, "w") as file:
        file.write("import hal_core as hal\\n@hal.kernel\\n"
                   f"def {name}(y: hal.Ptr[hal.float64]):\\n{lines}")
    space = {}
    with open(path) as file:
        exec(compile(file.read(), path, "exec"), space)
    return space[name]
device = hal.Device["CPU"]
device.compile(kernel(0))
stop = threading.Event()
def forever():
    number = 1
    while not stop.is_set():
        device.compile(kernel(number))
        number += 1
worker = threading.Thread(target=forever)
worker.start()
codes = []
for turn in range(4):
    time.sleep(0.05 + 0.03 * turn)
    child = fork()
    if child == 0:
        for dev in (device, hal.Device["CPU"]):
            dev.compile(kernel(10_000 + turn))
        os._exit(0)
    codes.append(code_of(child))
stop.set()
worker.join()
print(codes)
"""
    assert run(program, tmp_path, HAL_CACHE_DIR=str(tmp_path)) == "[0, 0, 0, 0]"


def test_X2_a_fork_while_another_thread_imports(tmp_path):
    """The child waited for ever for the module that its parent's thread was importing."""
    program = """
import sys, threading
device, begun = hal.Device["CPU"], threading.Event()
class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "hal_cpu.compilers.c":
            begun.set()
            time.sleep(0.3)
sys.meta_path.insert(0, Slow())
importer = threading.Thread(target=lambda: device.compilers)
importer.start()
begun.wait()
child = fork()
if child == 0:
    launch()
    os._exit(0)
print(code_of(child))
importer.join()
"""
    assert run(program, tmp_path) == "0"


KERNEL_FILE = """
import hal_core as hal
@hal.kernel
def seven(x: hal.Ptr[hal.int32]):
    x[hal.global_idx(0)] = 7
def run():
    x = hal.zeros(4, hal.int32, "CPU")
    hal.Device["CPU"].compile(seven)(x, grid=1, block=4)
    out = bytearray(16)
    x.copyout(out)
    assert list(memoryview(out).cast("i")) == [7] * 4
"""

HOMES = {
    "no home at all": {},
    "a home that is a file": {"HOME": os.devnull, "XDG_CACHE_HOME": os.devnull},
}


@pytest.mark.parametrize("home", HOMES)
def test_X4_the_cpu_needs_no_home(tmp_path, home):
    """`-I` and warnings as errors besides; kernels are compiled, and nothing is said."""
    (tmp_path / "seven.py").write_text(KERNEL_FILE)
    program = f"""
import sys
sys.path[:] = {[str(tmp_path), *filter(None, sys.path)]!r}
import hal_core as hal, hal_cpu
hal.Device.register_plugin("CPU", hal_cpu.plugin)
assert "CPU" in list(hal.Device)
import seven
seven.run()
"""
    unset = ("HOME", "XDG_CACHE_HOME", "HAL_CACHE_DIR", "PYTHONPATH")
    env = {name: text for name, text in os.environ.items() if name not in unset}
    done = subprocess.run(
        [sys.executable, "-I", "-W", "error", "-c", program],
        env=env | HOMES[home], capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


INTERPRETERS = """
import sys
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
def make(kind):
    try:
        return interpreters.create(kind)
    except TypeError:
        return interpreters.create(isolated=kind == "isolated")
def run(kind, text):
    start = f"import sys; sys.path[:] = {sys.path!r}\\n"
    start += "import hal_core as hal, hal_cpu\\n"
    start += "hal.Device.register_plugin('CPU', hal_cpu.plugin)\\n"
    start += "assert 'CPU' in hal.Device and hal.Device.canonicalize('cpu:0') == 'CPU'\\n"
    try:
        failed = interpreters.run_string(make(kind), start + text)
    except interpreters.RunFailedError as error:
        print(error)
    else:
        print("works" if failed is None else failed.formatted)
run("legacy", "import seven; seven.run(); hal.Device['CPU'].close()")
run("isolated", "")
run("isolated", "try: hal.Device['CPU'].close()\\n"
    "except hal.PluginError as error: assert '_ctypes does not support' in str(error)")
"""


def test_X4_a_sub_interpreter(tmp_path):
    """One that shares the GIL does everything. An isolated one lists; it opens the CPU where
    Python has ctypes for it, and else gets an error that says so."""
    (tmp_path / "seven.py").write_text(KERNEL_FILE)
    paths = os.pathsep.join([str(tmp_path), PATHS])
    assert printed(INTERPRETERS, PYTHONPATH=paths) == "works\n" * 3


def test_X3_R15_exit_under_python_O_with_an_open_device_and_idle_threads(tmp_path):
    program = "launch(); print('last line')"
    assert run(program, tmp_path, PYTHONOPTIMIZE="1", HAL_CPU_THREADS="4") == "last line"


@pytest.mark.parametrize("closed", ["", 'hal.Device["CPU"].close()'])
def test_B8_memory_and_code_that_outlive_the_plugin_go_quietly(tmp_path, closed):
    """At exit Python empties modules that something still holds, before the last buffers go."""
    program = """
import ctypes, sys
import numpy as np
kept = [hal.zeros(n, hal.int8, "CPU") for n in (9, 1 << 20)]
kept += [np.asarray(kept[0]), kept[0][:3], launch().compile(slow)]
kept += [hal.empty(9, hal.int8, "CPU", hal.BufferSpec(nolru=True)), kept[0]._device.allocator.alloc]
{closed}
for name in ("__main__", *sys.modules):  # as a library does that is never unloaded
    if name.startswith(("hal_", "__main__")):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(sys.modules[name]))
print("last line")
"""
    assert run(program.replace("{closed}", closed), tmp_path) == "last line"


def test_exit_while_another_thread_launches(tmp_path):
    program = """
import threading
launch()
def forever():
    while True:
        try:
            launch()
        except hal.HalError:
            return
for _ in range(3):
    threading.Thread(target=forever, daemon=True).start()
time.sleep(0.2)
print("last line")
"""
    assert run(program, tmp_path, HAL_CPU_THREADS="2") == "last line"


@hal.kernel
def count_up(y: hal.Ptr[hal.int32], rounds: hal.int32) -> None:
    i = hal.global_idx(0)
    for k in range(rounds):
        y[i] += k


@pytest.mark.parametrize(("threads", "started"), [("1", 0), ("3", 2)])
def test_the_setting_decides_how_many_threads(own_device, monkeypatch, threads, started):
    monkeypatch.setenv("HAL_CPU_THREADS", threads)
    program, before = own_device.compile(count_up), set(threading.enumerate())
    y = hal.zeros(1 << 20, hal.int32, own_device)
    program(y, vals=(9,), threads=1 << 20)
    assert (y.numpy() == 36).all()
    while len(made := set(threading.enumerate()) - before) < started:
        time.sleep(0.001)  # else the test's own limit ends it
    assert len(made) == started
    own_device.close()
    for worker in made:
        worker.join(20)  # where `close` did not wait long enough for a busy machine
        assert not worker.is_alive()


@pytest.mark.parametrize("text", ["1025", "1000000", "9" * 100])
def test_a_setting_beyond_reason_is_cut(own_device, monkeypatch, text):
    monkeypatch.setenv("HAL_CPU_THREADS", text)
    assert own_device.pool.threads == 1024


@pytest.mark.parametrize("text", ["0", "-2", "many", ""])
def test_a_setting_that_is_no_number_is_refused(own_device, monkeypatch, text):
    monkeypatch.setenv("HAL_CPU_THREADS", text)
    with pytest.raises(hal.InvalidArgument, match="HAL_CPU_THREADS"):
        own_device.pool


def test_doctor_names_every_compiler(monkeypatch):
    checks = {check.title: check for check in plugin.hal_doctor("CPU")}
    assert {"processor", "share", "compiler llvm", "compiler gcc"} <= set(checks)
    assert all(check.ok for check in checks.values())
    monkeypatch.setenv("PATH", "/nowhere")
    checks = {check.title: check for check in plugin.hal_doctor("CPU")}
    assert checks["compiler gcc"].ok and "apt-get" in checks["compiler gcc"].hint
    assert checks["compiler gcc"].detail == "not installed (optional)"
