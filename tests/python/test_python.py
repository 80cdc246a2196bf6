"""PYTHON: how it is found, what a launch on it checks, what its threads wait for."""

import re
import threading
import tomllib
from pathlib import Path

import numpy as np
import pytest
from fake_site import FakeSite
from kernel_files import copy

import hal_core as hal
from hal_kernel.python import program as programs
from hal_testing.conformance.forked import findings_of_child

ROOT = Path(__file__).resolve().parents[2]


@hal.kernel
def endless(y: hal.Ptr[hal.int32]) -> None:
    while y[0] == 0:
        y[1] += 1


@pytest.fixture
def alone(tmp_path):
    """A site-packages in which hal-kernel is installed, and no backend."""
    project = ROOT / "plugins" / "hal-kernel" / "pyproject.toml"
    points = tomllib.loads(project.read_text())["project"]["entry-points"]
    site = FakeSite(tmp_path / "site")
    lines = [f"{name} = {value}" for name, value in points["hal.devices"].items()]
    site.distribution("hal_kernel", "\n".join(["[hal.devices]", *lines]))
    return site


# -- how it is found


def test_R13_the_ten_lines_of_the_readme_run_on_the_core_alone(alone):
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    block = re.search(r"^```python\n(import numpy.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert block is not None
    file = alone.folder / "ten_lines.py"
    file.write_text(block[1], encoding="utf-8")
    done = alone.run(f"import runpy; runpy.run_path({str(file)!r})")
    assert done.stderr == ""
    assert done.stdout.startswith("y = [1.000e+00 3.000e+00 5.000e+00"), done.stdout
    assert done.stdout.endswith("us on PYTHON\n")


def test_R13_it_is_the_default_and_listed_where_it_is_alone(alone):
    code = "from hal_core import Device; print(Device.DEFAULT, Device.get_available_devices())"
    assert alone.run(code).stdout == "PYTHON ['PYTHON']\n"


def test_R13_any_other_device_comes_before_it(alone):
    alone.backend("ACC")
    code = """
    from hal_core import Device
    print(Device.DEFAULT, Device.get_available_devices())
    print(Device.get_available_devices(interpreters=True))
    """
    assert alone.run(code).stdout == "ACC ['ACC', 'ACC:1']\n['ACC', 'ACC:1', 'PYTHON']\n"


def test_R7_its_plugin_loads_no_numpy(alone):
    code = """
    import sys
    from hal_core import Device
    print(Device.states()); Device.info("PYTHON"); print("numpy" in sys.modules)
    """
    assert alone.run(code).stdout == "{'PYTHON': 'installed'}\nFalse\n"


def test_the_list_of_devices_says_that_it_is_slow(alone):
    done = alone.run("from hal_core.cli import main; main(['devices'])")
    assert "PYTHON interprets kernels, which is slow." in done.stdout, done.stderr
    assert "pip install hal-cpu" in done.stdout


# -- what a launch checks


def test_P9_an_index_out_of_bounds_is_found_to_the_element(python):
    """Blocks are rounded up to 256 bytes, but what was asked for is the limit."""
    x, y = hal.zeros(5, hal.float32, python), hal.zeros(6, hal.float32, python)
    with pytest.raises(hal.OutOfBounds, match=r"'x' .* \(got 5; limit 0 to 4\) on PYTHON"):
        python.compile(copy)(y, x, threads=6)


@pytest.mark.parametrize("reused", [False, True], ids=["a new block", "a cached block"])
def test_B14_memory_that_nothing_has_written_may_not_be_read(python, reused):
    if reused:
        hal.zeros(6, hal.float32, python).fill(1).deallocate()
    x, y = hal.empty(8, hal.float32, python), hal.zeros(8, hal.float32, python)
    assert bytes(x.as_memoryview()) == b"\xcb" * 32  # and counts as written from now on
    python.compile(copy)(y, x, threads=8)
    x = hal.empty(8, hal.float32, python)
    x[:4].fill(1.0)
    with pytest.raises(hal.KernelFault, match="a read of element 4 of 'x', which nothing has"):
        python.compile(copy)(y, x, threads=8)
    python.compile(copy)(y, x[:4], threads=4)
    x[4:].copy_from(x[:4])
    python.compile(copy)(y, x, threads=8)
    assert (y.numpy() == 1).all()


def test_P9_a_launch_without_end_is_ended(python):
    python.seconds = 0.2
    y = hal.zeros(2, hal.int32, python)
    with pytest.raises(hal.KernelFault, match="HAL_PYTHON_SECONDS"):
        python.compile(endless)(y, threads=1)
    assert y.numpy()[1] > 0


def test_external_memory_is_the_callers(python):
    array = np.arange(4, dtype="f4")
    shared = hal.Buffer.from_dlpack(array, python, copy=False)
    y = hal.zeros(4, hal.float32, python)
    python.compile(copy)(y, shared, threads=4)
    array[:] = 7
    assert y.numpy().tolist() == [0, 1, 2, 3] and shared.numpy().tolist() == [7] * 4


# -- threads


def test_A7_what_comes_during_a_launch_waits_for_it(python, monkeypatch):
    """A block that is freed during a launch is filled anew for its next owner after it."""
    began, go, seen = threading.Event(), threading.Event(), []
    x, y = hal.zeros(8, hal.float32, python).fill(1), hal.zeros(8, hal.float32, python)
    program, inputs_of = python.compile(copy), programs.inputs_of

    def slow(*arguments):
        began.set()
        go.wait(30)
        return inputs_of(*arguments)

    def take():
        x.deallocate()
        seen.append(python.synchronize(timeout=0.01))
        go.set()
        hal.empty(8, hal.float32, python)
        seen.append(y.numpy().tolist())

    monkeypatch.setattr(programs, "inputs_of", slow)
    other = threading.Thread(target=lambda: (began.wait(30), take()))
    other.start()
    program(y, x, threads=8)
    other.join(30)
    assert seen == [False, [1.0] * 8]


def test_X2_a_child_works_although_another_thread_of_its_parent_was_in_a_launch(python):
    x, held, release = hal.zeros(4, hal.float32, python), threading.Event(), threading.Event()

    def launch():
        with python.turn:
            held.set()
            release.wait()

    thread = threading.Thread(target=launch)
    thread.start()
    held.wait()
    found = findings_of_child(lambda: [] if x.fill(3).numpy().all() else ["not filled"])
    release.set()
    thread.join()
    assert found == [] and not x.numpy().any()


def test_Q8_a_wait_of_a_handler_within_a_launch_raises(python):
    with python.turn:
        event = hal.zeros(4, hal.int32, python).fill(1, queue=python.queue())
        with pytest.raises(hal.InvalidState, match="a signal's handler waits within"):
            event.wait(5)
    assert event.wait(10)
