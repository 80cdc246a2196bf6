"""Tests in a process of their own: no GPU, fork, exit with work in flight, memory faults."""

from pathlib import Path

import pytest
from forked import Programs
from run_python import ask
from runtime_control import SYSTEM

HEAD = f"""
import os, sys, threading, time, warnings
sys.path.insert(0, {str(Path(__file__).parent)!r})
import conftest  # loads the software runtime
import hal_core as hal
from runtime_control import Runtime
from hal_hip import hiprtc
sim = Runtime(conftest.LIBRARY)
hiprtc.find()  # once, in a process that no program starts
from hal_testing.conformance.kernels import add_one
from test_program import far
"""
pytestmark = [
    pytest.mark.usefixtures("device"),
    pytest.mark.skipif(SYSTEM, reason="the machine's own runtime cannot be made to fail"),
]


@pytest.fixture(scope="module")
def run():
    """The cache on disk is that of the session: the kernels are compiled once."""
    with Programs(HEAD) as programs:
        yield programs.run


@pytest.fixture
def said(run):
    def said(text, **environment):
        done = run(text, **environment)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        return done.stdout

    return said


ASK = "\nhal.Device.refresh()" + ask("HIP")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"sim.fail('hipGetDeviceCount', 100){ASK}sim.fail('hipGetDeviceCount', 999){ASK}",
         ("finds no GPU", "does not start (hipGetDeviceCount gave 999, hipErrorUnknown). See "
          "whether rocminfo")),
        (f"os.environ['SIM_HIP_DEVICES'] = '0'{ASK}", ("finds no GPU",)),
        (f"os.environ['HIP_VISIBLE_DEVICES'] = ''{ASK}",
         ("finds no GPU under HIP_VISIBLE_DEVICES=.",)),
        (f"os.environ['ROCR_VISIBLE_DEVICES'] = '9'{ASK}",
         ("under ROCR_VISIBLE_DEVICES=9. It hides the others; unset it to see all.",)),
    ],
    ids=["refused", "none", "all hidden", "others hidden"],
)  # fmt: skip
def test_R10_a_runtime_that_does_not_start_says_why(said, text, words):
    lines = iter(said(text).splitlines())
    for one, error, state in zip(words, lines, lines, strict=True):
        assert error.startswith("DeviceUnavailable enumerate HIP: the HIP runtime "), error
        assert one in error and state == "no hardware"


def test_R4_an_index_that_no_GPU_has(said):
    ask = "try:\n    hal.Device['HIP:7']\nexcept hal.UnknownDevice as error: print(error)"
    more = "\nprint(hal.Device['HIP:1'].name)"
    error, name = said(ask + more, HIP_VISIBLE_DEVICES="0,1").splitlines()
    assert "HIP:7" in error and name == "HIP:1"


END = """
device = hal.Device["HIP"]
y = hal.zeros(1000, hal.int32, device)
there = hal.Buffer(hal.Device["HIP:1"], 1000, hal.int32).allocate()
program = device.compile(add_one)
export = y.__dlpack__()
sim.delay("hipModuleLaunchKernel", 0.2)
"""
COMPILE = """
text = 'extern "C" __global__ void f() {}'
def work(number):
    device.compile(hal.Source("f", text, "", language="hip", defines={"A": str(number)}))
for number in range(3):
    threading.Thread(target=work, args=(number,), daemon=True).start()
"""


@pytest.mark.parametrize(
    "text",
    ["for _ in range(5): program(y, vals=(1000,), threads=1000)\nthere.copy_from(y)",
     "program(y, vals=(1000,), threads=1000)\ndel y, there, export\nsys.exit(0)", COMPILE,
     "sim.fail('run', 700)\nprogram(y, vals=(1000,), threads=1000)"],
    ids=["queued", "dropped", "threads that compile", "fault"],
)  # fmt: skip
def test_the_interpreter_ends_with_work_in_flight(run, text):
    done = run(END + text)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr or "DeviceFault" in done.stderr, done.stderr


def test_a_memory_fault_ends_the_process_as_ROCm_does(run):
    """The README says so: no exception can tell of it."""
    fault = """
device = hal.Device["HIP"]
y = hal.zeros(10, hal.int32, device)
device.compile(far)(y, vals=(1 << 20,), grid=1, block=1)
device.synchronize()
"""
    done = run(fault, SIM_HIP_FAULT="abort")
    assert done.returncode == -6 and "Memory access fault by GPU" in done.stderr
