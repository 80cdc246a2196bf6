"""Tests in a process of their own: two devices, imports, forks and the end of the process."""

import os
import subprocess
import sys

import pytest
from run_python import printed

from hal_opencl import driver

HEAD = """
import os
import hal_core as hal, numpy as np
from hal_opencl import plugin
hal.Device.register_plugin("OPENCL", plugin)
NAME = os.environ.get("HAL_TEST_OPENCL", "OPENCL")
"""


def own(tmp_path):
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return {"PYTHONPATH": path, "HAL_CACHE_DIR": str(tmp_path)}


def start(text, tmp_path, **environment):
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", text],
        env=os.environ | own(tmp_path) | environment, stdin=pipe, stdout=pipe, stderr=pipe,
        text=True,
    )  # fmt: skip


def says(text, tmp_path, **environment):
    return printed(text, **own(tmp_path) | environment)


def test_A4_memory_that_the_system_refuses_is_out_of_memory_and_not_the_end(device, tmp_path):
    """PoCL allocates lazily unless told otherwise, and ends the process where it cannot."""
    text = """
import resource
dev = hal.Device[NAME]
x = hal.zeros(16, hal.int32, dev)
assert not x.numpy().any()
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (128 << 20), resource.RLIM_INFINITY))
held = []
try:
    while len(held) < 24:
        held.append(hal.empty(25 << 20, hal.uint8, dev))
except hal.OutOfMemory as error:
    assert "OPENCL" in str(error), error
else:
    raise SystemExit("600 MiB of 128 were granted")
for part in held:
    part.fill(3)
assert held[0][:2].numpy().tolist() == held[-1][-2:].numpy().tolist() == [3, 3]
held.clear()
del part
dev.allocator.free_cache()
assert hal.zeros(100 << 20, hal.uint8, dev)[-4:].numpy().tolist() == [0] * 4
"""
    if device.info.kind != "cpu" or sys.platform != "linux":
        pytest.skip("the limit is one of Linux, on memory of the process")
    assert says(HEAD + text, tmp_path) == ""


def test_R15_the_process_ends_cleanly_with_work_in_flight(device, tmp_path):
    """Also where the home cannot be written."""
    text = """
code = '''__kernel void busy(__global float *x) {
    float s = 0;
    for (int i = 0; i < 500; i++) s = s * 0.5f + i;
    x[get_global_id(0)] = s;
}'''
dev = hal.Device[NAME]
program = dev.compile(hal.Source("busy", code, "x: float32*", language="opencl"))
x = hal.Buffer(dev, 256, hal.float32)
program(x, threads=256)
assert set(x.numpy().tolist()) == {996.0}
for _ in range(5):
    program(x, threads=256)
"""
    nowhere = dict.fromkeys(("HOME", "XDG_CACHE_HOME"), os.devnull)
    assert says(HEAD + text, tmp_path, POCL_CACHE_DIR=str(tmp_path / "pocl"), **nowhere) == ""


def test_X2_objects_of_the_parent_never_reach_the_driver_and_the_child_ends(device, tmp_path):
    """The parent has work in flight; the child runs all its finalizers at its end.

    The kit has every other call.
    """
    text = """
import sys, time, warnings
warnings.simplefilter("ignore", DeprecationWarning)
dev = hal.Device[NAME]
code = "__kernel void one(__global int *x, int n) { x[get_global_id(0)] = n; }"
kernel = hal.Source("one", code, "x: int32*, n: int32", language="opencl")
program = dev.compile(kernel)
x = hal.zeros(1 << 20, hal.int32, dev)
view = x[:1024]
other = hal.Buffer(dev, 4, hal.int32, hal.BufferSpec(external_ptr=x._buf[0].int_ptr)).allocate()
hal.empty(1 << 20, hal.int32, dev).deallocate()  # in the cache
for _ in range(4):
    program(x, vals=(7,), threads=1 << 20)
child = os.fork()
if child == 0:
    try:
        other.fill(1)
    except hal.ForkError:
        pass
    else:
        os._exit(100)
    dev.close()
    del program, view, x, other, dev
    sys.exit(7)
for _ in range(600):
    done, status = os.waitpid(child, os.WNOHANG)
    if done:
        break
    time.sleep(0.05)
else:
    os.kill(child, 9)
    raise SystemExit("the child hangs")
assert os.waitstatus_to_exitcode(status) == 7, os.waitstatus_to_exitcode(status)
program(x, vals=(9,), threads=1 << 20)
assert set(x.numpy().tolist()) == {9}
"""
    assert says(HEAD + text, tmp_path) == ""


def test_R10_a_platform_without_devices_says_what_it_may_need(device, tmp_path):
    if len(driver.cl.get_platforms()) > 1 or "Portable" not in device.info.vendor["platform"]:
        pytest.skip("PoCL alone gives up its device when it has no cache folder")
    text = """
try:
    hal.Device["OPENCL"]
except hal.DeviceUnavailable as error:
    assert "POCL_CACHE_DIR" in str(error), error
else:
    raise SystemExit("opened")
"""
    assert says(HEAD + text, tmp_path, POCL_CACHE_DIR=os.devnull + "/none") == ""


def test_a_thread_that_outlives_the_main_one_compiles(device, tmp_path):
    """Python starts no threads by then; a build has one of its own where it can."""
    text = """
import threading
dev, x = hal.Device[NAME], hal.zeros(1, hal.int32, hal.Device[NAME])
def work():
    threading.main_thread().join()
    code = "__kernel void one(__global int *x) { x[0] = 9; }"
    dev.compile(hal.Source("one", code, "x: int32*", language="opencl"))(x, threads=1)
    print(x.numpy()[0])
threading.Thread(target=work).start()
"""
    assert says(HEAD + text, tmp_path) == "9\n"


def test_processes_that_build_one_kernel_take_turns_on_pocl(device, tmp_path):
    """PoCL ends processes that build at once (pocl/pocl#1480); the second finds what is built."""
    if not driver.is_pocl(driver.find_devices()[0]):
        pytest.skip("only PoCL's builds read and write files that processes share")
    text = """
from hal_opencl.compiler import OpenCLCompiler
dev, build, built = hal.Device[NAME], OpenCLCompiler._compile, []
OpenCLCompiler._compile = lambda *given: built.append(1) or build(*given)
code = "__kernel void one(__global int *x) { x[get_global_id(0)] = 9; }"
x = hal.zeros(64, hal.int32, dev)
print("ready", flush=True)
input()
dev.compile(hal.Source("one", code, "x: int32*", language="opencl"))(x, threads=64)
assert set(x.numpy().tolist()) == {9}
print(len(built))
"""
    env = {"POCL_CACHE_DIR": str(tmp_path / "pocl")}
    processes = [start(HEAD + text, tmp_path, **env) for _ in range(2)]
    said = [process.stdout.readline() for process in processes]
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    ends = [process.communicate(timeout=120) for process in processes]
    assert (said, [error for _, error in ends]) == (["ready\n"] * 2, [""] * 2)
    assert sorted(out for out, _ in ends) == ["0\n", "1\n"]


def test_pocl_without_a_linker_is_unavailable(device, tmp_path):
    """PoCL 3 ended the process."""
    if not driver.is_pocl(device.hardware):
        pytest.skip("another platform is first, which links by itself")
    text = f"""
import hal_core as hal
try:
    hal.Device[{device.name!r}]
    print("it brings a linker")
except hal.DeviceUnavailable as error:
    print("no linker (ld)" in str(error) and "binutils" in str(error))
"""
    caches = {name: str(tmp_path) for name in ("HAL_CACHE_DIR", "POCL_CACHE_DIR")}
    assert says(text, tmp_path, PATH=str(tmp_path), **caches) in ("True\n", "it brings a linker\n")
