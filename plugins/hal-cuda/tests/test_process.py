"""Tests in a process of their own: no driver, no device, fork, exit with work in flight."""

from pathlib import Path

import pytest
from forked import Programs

from hal_cuda import nvrtc

HEAD = f"""
import os, sys, threading, time
sys.path.insert(0, {str(Path(__file__).parent)!r})
import conftest
import hal_core as hal
from simulator import Simulator
sim = Simulator(conftest.DRIVER)
from test_device import add_one
"""


@pytest.fixture(scope="module")
def programs():
    with Programs(HEAD) as programs:
        yield programs


@pytest.fixture
def run(simulator, programs, tmp_path):
    def run(text, **environment):
        done = programs.run(text, **{"HAL_CACHE_DIR": str(tmp_path)} | environment)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        return done.stdout

    return run


ASK = """
try:
    hal.Device["CUDA"]
except hal.HalError as error:
    print(type(error).__name__, error)
print(hal.Device.states()["CUDA"])
"""


NO_GPU = (
    "the NVIDIA driver finds no GPU (cuInit gave 100, CUDA_ERROR_NO_DEVICE). nvidia-smi lists the "
    "GPUs; CUDA_VISIBLE_DEVICES may hide them."
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sim.fail('cuInit', 100)", NO_GPU),
        ("os.environ['CUDA_VISIBLE_DEVICES'] = '-1'", NO_GPU),
        ("os.environ['SIM_CUDA_DEVICES'] = '0'", NO_GPU),
        (
            "os.environ['SIM_CUDA_DRIVER'] = '11.8'",
            "the NVIDIA driver is too old (got CUDA 11.8; from 12.0 on). "
            "Upgrade the NVIDIA driver.",
        ),
        (
            "sim.fail('cuInit', 35)",
            "the NVIDIA driver is too old (cuInit gave 35, an unknown code). "
            "Upgrade the NVIDIA driver.",
        ),
        (
            "sim.fail('cuInit', 803)",
            "the NVIDIA driver's parts differ in version (cuInit gave 803, "
            "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH). Reboot, or reload the driver.",
        ),
        (
            "sim.fail('cuInit', 999)",
            "the NVIDIA driver does not start (cuInit gave 999, CUDA_ERROR_UNKNOWN). See whether "
            "nvidia-smi runs; reboot if the driver was upgraded.",
        ),
        (
            "sim.fail('cuInit', 34)",
            "the NVIDIA driver found is a stub (cuInit gave 34, "
            "CUDA_ERROR_STUB_LIBRARY). Take its folder out of LD_LIBRARY_PATH.",
        ),
    ],
)
def test_R10_a_driver_that_does_not_start_says_why(run, text, said):
    assert run(text + ASK) == f"DeviceUnavailable enumerate CUDA: {said}\nno hardware\n"


def test_one_GPU_has_no_peer(run):
    ask = "print('peer' in hal.Device.info('CUDA').capabilities)"
    assert run(ask, SIM_CUDA_DEVICES="1") == "False\n"
    assert run(ask) == "True\n"


def test_a_fault_that_nobody_waits_for_is_told_at_exit(simulator, programs):
    """R15 leaves the exit code as it is."""
    done = programs.run(f"{END}sim.fail('run', 700)\nprogram(y, vals=(1000,), threads=1000)")
    assert done.returncode == 0
    assert "Exception ignored in atexit" in done.stderr and "DeviceFault" in done.stderr
    assert "the last program launched was add_one" in done.stderr, done.stderr


OWN_PTX_ONLY = """
device = hal.Device["CUDA"]
y = hal.Buffer(device, 10, hal.int32).allocate().fill(0)
program = device.compile(add_one)
program(y, vals=(10,), threads=10)
print(program.pair, set(y.numpy().tolist()))
try:
    device.compile(hal.Source("f", 'extern "C" __global__ void f() {}', "", language="cuda"))
except hal.HalError as error:
    print(type(error).__name__, error)
"""


def test_a_driver_too_old_for_NVRTC_leaves_our_own_PTX(run):
    text = run(OWN_PTX_ONLY, SIM_CUDA_DRIVER="12.0")
    assert text.startswith("ptx {1}\n") and "CompilerUnavailable" in text, text
    assert "too new for this driver" in text, text
    assert "python -m pip install 'nvidia-cuda-nvrtc-cu12==12.0.*'" in text, text
    assert "uninstall nvidia-cuda-nvrtc" in text, "the newer one would still be found first"


def test_C6_machine_code_of_a_newer_CUDA_than_the_drivers_is_not_made(run):
    """A driver refuses machine code of a newer major version; doctor says it beforehand."""
    major = nvrtc.find().version[0]
    if major < 13:
        pytest.skip(f"NVRTC {major} is installed, and hal-cuda takes no driver that is older")
    text = run(
        OWN_PTX_ONLY + "from hal_cuda.doctor import checks; print(checks('CUDA')[1])",
        SIM_CUDA_DRIVER=f"{major - 1}.9", SIM_CUDA_CC="9.0",
    )  # fmt: skip
    ran, refused, checked = text.splitlines()
    assert ran == "ptx {1}", text
    said = f"is too new for this driver, CUDA {major - 1}.9"
    assert refused.startswith("CompilerUnavailable") and said in refused, text
    assert "pip uninstall nvidia-cuda-nvrtc" in refused and "pip uninstall" in checked, text
    assert "ok=False" in checked and said in checked, text


def test_a_GPU_of_an_architecture_that_nobody_compiles_for_says_so(run):
    text = run(
        """
for kernel in (add_one, hal.Source("f", 'extern "C" __global__ void f() {}', "", language="cuda")):
    try:
        hal.Device["CUDA"].compile(kernel)
    except hal.HalError as error:
        print(type(error).__name__, error)
""",
        SIM_CUDA_CC="3.5",
    )
    ours, theirs = text.splitlines()
    assert ours.startswith("CompilerUnavailable") and "too old for PTX 8.0" in ours, text
    assert "NVRTC no longer compiles for this device" in theirs, text


END = """
device = hal.Device["CUDA"]
y = hal.Buffer(device, 1000, hal.int32).allocate().fill(0)
there = hal.Buffer(hal.Device["CUDA:1"], 1000, hal.int32).allocate()
program = device.compile(add_one)
export = y.__dlpack__()
sim.delay("cuLaunchKernel", 0.2)
"""


# At exit Python ends daemon threads where they return from the driver, inside its caller.
DAEMONS = """
sim.delay("cuLaunchKernel", 0.002)
NO_CACHE = hal.BufferSpec(nolru=True)
data = bytearray(2 << 20)
large = hal.Buffer(device, len(data), hal.uint8).allocate().copyin(data)
def work():
    while not device.closed:
        try:
            {work}
        except hal.InvalidState:
            return
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.05)
"""


@pytest.mark.parametrize(
    "text",
    ["for _ in range(5): program(y, vals=(1000,), threads=1000)",
     "program(y, vals=(1000,), threads=1000)\nthere.copy_from(y)",
     "program(y, vals=(1000,), threads=1000)\nsys.exit(0)",
     "program(y, vals=(1000,), threads=1000)\ndel y, there, export",
     DAEMONS.format(work="program(y, vals=(1000,), threads=1000, wait=True)"),
     DAEMONS.format(work="y.copyin(bytes(4000)), y.fill(1), y.copyout(bytearray(4000))"),
     DAEMONS.format(work="large.copyin(data), large.copyout(data)"),
     DAEMONS.format(work="there.copy_from(y), y.copy_from(there)"),
     DAEMONS.format(work="device.load(program.binary)(y, vals=(1000,), threads=1000)"),
     DAEMONS.format(work="hal.Buffer(device, 99, hal.int32, NO_CACHE).allocate()")],
    ids=[
        "queued", "peer copy", "exit", "dropped", "threads that launch", "threads that copy",
        "threads that stage", "threads that transfer", "threads that load",
        "threads that allocate",
    ],
)  # fmt: skip
def test_the_interpreter_ends_with_work_in_flight(simulator, programs, text):
    done = programs.run(END + text)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
