"""The short form of the campaign of interrupts, and what the campaign says of a fault."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no forks")

# Each scene opens its device anew, which takes long with OpenCL.
ARGUMENTS = {
    "CPU": "--points 3", "PYTHON": "--points 3", "OPENCL": "--points 1 --only queues --only graphs",
}  # fmt: skip
PRESENT = [
    name for name in ARGUMENTS if name == "PYTHON" or find_spec(f"hal_{name.lower()}") is not None
]


def _run(command):
    # Without -O, which would leave out the assert of the wrong scene below.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONOPTIMIZE"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env)


@pytest.mark.full
@pytest.mark.parametrize("device", PRESENT)
def test_ctrl_c_anywhere_leaves_all_in_order(device):
    command = [sys.executable, str(FOLDER), device, *ARGUMENTS[device].split()]
    done = _run(command)
    assert done.returncode == 0, done.stdout + done.stderr


FAULTY = """
import os, signal, sys, threading, time
sys.path.insert(0, {tests!r})
from ctrl_c import Scene
from interrupts import __main__, scenes

def wrong(device):
    done = []
    def check(heard):
        assert done, "the work is not done"
    return Scene(lambda: done.append(device.synchronize()), check)

def slow(device):
    def work():
        try:
            device.synchronize()
        except KeyboardInterrupt:
            while True:
                time.sleep(1)
    return Scene(work, lambda heard: None)

def dying(device):
    def work():
        try:
            device.synchronize()
        except KeyboardInterrupt:
            os.kill(os.getpid(), signal.SIGKILL)
    return Scene(work, lambda heard: None)

scenes.SCENES.clear()
scenes.SCENES.update(wrong=wrong, slow=slow, dying=dying)
sys.argv[1:] = ["PYTHON", "--at", "later:2", "--limit", "1.5"]
sys.exit(__main__.main())
"""


def test_faults_are_found_and_can_be_repeated():
    text = FAULTY.format(tests=str(FOLDER.parent))
    done = _run([sys.executable, "-c", text])
    assert done.returncode == 1, done.stderr
    for scene, problem in (
        ("wrong", "AssertionError: the work is not done"),
        ("slow", "it hangs"),
        ("dying", "the process ended with -9"),
    ):
        assert f"FOUND PYTHON, {scene}: {problem}" in done.stdout
        assert f"again: python tests/interrupts PYTHON --only {scene} --at later:2" in done.stdout
