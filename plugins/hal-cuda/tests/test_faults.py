"""Kernels that lose the context, each in a process of its own: on a real GPU no other test could
follow in the same one."""

from pathlib import Path

import pytest
from forked import Programs
from simulator import SYSTEM

import hal_core as hal
from hal_testing.conformance.kernels import add_one

TEXTS = {
    "cuda": 'extern "C" __global__ void stop(int *y) { asm("trap;"); y[0] = 1; }',
    "ptx": ".version 8.0\n.target sm_50\n.address_size 64\n"
    ".visible .entry stop(.param .u64 y) { trap; }\n",
}


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
            source = hal.Source("stop", TEXTS[kernel], "y: int32*", language=kernel)
            opened.compile(source)(y, threads=64)
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


@pytest.fixture(scope="module")
def programs():
    folder = str(Path(__file__).parent)
    # The first import loads the driver.
    with Programs(f"import sys; sys.path[:0] = [{folder!r}]; import conftest, test_faults") as made:
        yield made


@pytest.mark.parametrize(
    ("kernel", "said"),
    [("astray", "ILLEGAL_ADDRESS"), ("cuda", "LAUNCH_FAILED"), ("ptx", "LAUNCH_FAILED")],
)
def test_P9_a_kernel_that_faults_costs_the_context(
    device: hal.Compiled, programs: Programs, kernel: str, said: str
) -> None:
    """CUDA documents that the process must end; a driver may give a new context all the same."""
    done = programs.run(f"print(test_faults.lose_the_context({kernel!r}))")
    assert done.returncode == 0, done.stderr
    first, then = done.stdout.splitlines()
    assert said in first and ("astray" if kernel == "astray" else "stop") in first, first
    refused = SYSTEM and then.startswith("not opened: ") and "restart the process" in then
    assert refused or then == "opened: {1}", then
