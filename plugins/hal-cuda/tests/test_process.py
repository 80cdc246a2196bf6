"""Tests in a process of their own: no driver, no device, exit with work in flight, faults."""

from pathlib import Path

import pytest
from forked import Programs
from run_python import ask
from simulator import SYSTEM

import hal_core as hal
from hal_cuda import nvrtc
from hal_testing.conformance.kernels import add_one

HEAD = f"""
import os, sys, threading, time
sys.path.insert(0, {str(Path(__file__).parent)!r})
import conftest
import hal_core as hal
from simulator import Simulator
sim = conftest.DRIVER and Simulator(conftest.DRIVER)
from test_device import add_one
from test_process import lose_the_context
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


ASK = "\nhal.Device.refresh()" + ask("CUDA")


NO_GPU = (
    "the NVIDIA driver finds no GPU (cuInit gave 100, CUDA_ERROR_NO_DEVICE). nvidia-smi lists the "
    "GPUs; CUDA_VISIBLE_DEVICES may hide them."
)
REFUSED = {
    100: NO_GPU,
    35: "the NVIDIA driver is too old (cuInit gave 35, an unknown code). "
    "Upgrade the NVIDIA driver.",
    803: "the NVIDIA driver's parts differ in version (cuInit gave 803, "
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH). Reboot, or reload the driver.",
    999: "the NVIDIA driver does not start (cuInit gave 999, CUDA_ERROR_UNKNOWN). See whether "
    "nvidia-smi runs; reboot if the driver was upgraded.",
    34: "the NVIDIA driver found is a stub (cuInit gave 34, "
    "CUDA_ERROR_STUB_LIBRARY). Take its folder out of LD_LIBRARY_PATH.",
}
TOO_OLD = (
    "the NVIDIA driver is too old (got CUDA 11.8; from 12.0 on). Upgrade the NVIDIA driver.",
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("".join(f"sim.fail('cuInit', {code}){ASK}" for code in REFUSED), REFUSED.values()),
        (f"os.environ['CUDA_VISIBLE_DEVICES'] = '-1'{ASK}", (NO_GPU,)),
        (f"os.environ['SIM_CUDA_DEVICES'] = '0'{ASK}", (NO_GPU,)),
        (f"os.environ['SIM_CUDA_DRIVER'] = '11.8'{ASK}", TOO_OLD),
    ],
    ids=["refused", "all hidden", "none", "too old"],
)
def test_R10_a_driver_that_does_not_start_says_why(run, text, said):
    each = (f"DeviceUnavailable enumerate CUDA: {one}\nno hardware\n" for one in said)
    assert run(text) == "".join(each)


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
os.environ["CUDA_CC"] = "ptx"
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
def repeat(work):
    while not device.closed:
        try:
            work()
        except hal.InvalidState:
            return
for work in (lambda: ({}), lambda: ({}), lambda: ({})):
    threading.Thread(target=repeat, args=(work,), daemon=True).start()
time.sleep(0.05)
"""


LAUNCH = "program(y, vals=(1000,), threads=1000)"


@pytest.mark.parametrize(
    "text",
    [f"for _ in range(5): {LAUNCH}\nthere.copy_from(y)",
     f"{LAUNCH}\ndel y, there, export\nsys.exit(0)",
     DAEMONS.format("program(y, vals=(1000,), threads=1000, wait=True)",
                    "y.copyin(bytes(4000)), y.fill(1), y.copyout(bytearray(4000))",
                    "device.load(program.binary)(y, vals=(1000,), threads=1000)"),
     DAEMONS.format("large.copyin(data), large.copyout(data)",
                    "there.copy_from(y), y.copy_from(there)",
                    "hal.Buffer(device, 99, hal.int32, NO_CACHE).allocate()")],
    ids=["queued", "dropped", "threads that launch, copy, load",
         "threads that stage, transfer, allocate"],
)  # fmt: skip
def test_the_interpreter_ends_with_work_in_flight(simulator, programs, text):
    done = programs.run(END + text)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr


TRAP = """.version 8.0
.target sm_50
.address_size 64
.visible .entry stop(.param .u64 y) { trap; }
"""


@hal.kernel
def astray(y: hal.Ptr[hal.int32], where: hal.int64) -> None:
    y[where + hal.int64(hal.global_idx(0))] = 1


def lose_the_context(kernel):
    """Launch a kernel that faults, look at each error, and say what opening anew gives."""
    with hal.Device["CUDA"] as opened:
        y = hal.zeros(64, hal.int32, opened)
        if kernel == "astray":
            opened.compile(astray)(y, vals=(1 << 40,), threads=64)
        else:
            opened.compile(hal.Source("stop", TRAP, "y: int32*", language="ptx"))(y, threads=64)
        said = [_fault(opened.synchronize), _fault(lambda: y.copyout(bytearray(256)))]
        said.append(_fault(opened.close))
        if not opened.closed:
            raise AssertionError("still open")
    if "open it again" not in said[0] or not all("context is lost" in text for text in said):
        raise AssertionError(said)
    try:
        again = hal.Device["CUDA"]
    except hal.DeviceFault as error:
        return f"{said[0]}\nnot opened: {error}"
    fresh = hal.zeros(100, hal.int32, again)
    again.compile(add_one)(fresh, vals=(100,), threads=100)
    return f"{said[0]}\nopened: {set(fresh.numpy().tolist())}"


def _fault(work):
    try:
        work()
    except hal.DeviceFault as error:
        return str(error)
    raise AssertionError("no fault was raised")


@pytest.mark.parametrize(
    ("kernel", "said"), [("astray", "ILLEGAL_ADDRESS"), ("stop", "LAUNCH_FAILED")]
)
def test_P9_a_kernel_that_faults_costs_the_context(device, programs, kernel, said):
    """CUDA documents that the process must end; a driver may give a new context all the same.

    On a real GPU no other test could follow in the same process.
    """
    done = programs.run(f"print(lose_the_context({kernel!r}))")
    assert done.returncode == 0, done.stderr
    first, then = done.stdout.splitlines()
    assert said in first and kernel in first, first
    refused = SYSTEM and then.startswith("not opened: ") and "restart the process" in then
    assert refused or then == "opened: {1}", then
