"""The examples that run on several devices run on a cluster, as a user would start them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import hal_core as hal

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
HERE = pytest.mark.skipif("CPU" not in hal.Device, reason="the examples compare with hal-cpu")


def run(cluster, folder, example, *arguments):
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / example), *arguments],
        env=os.environ | {"HAL_RAY_ADDRESS": cluster.address},
        cwd=folder, capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


@pytest.fixture(autouse=True)
def free_cores(cluster):
    """Close what this process has open: each node has one core."""
    for info in hal.Device.devices("RAY"):
        if info.name in hal.Device._devices:
            hal.Device[info.name].close()


def cpus():
    infos = hal.Device.devices("RAY")
    return ",".join(info.name for info in infos if info.vendor["device"] == "CPU")


@HERE
def test_the_plate_is_the_same_on_nodes_after_a_worker_was_killed(cluster, tmp_path):
    pytest.importorskip("PIL.Image", reason="pillow is not installed here")
    said = run(cluster, tmp_path, "cluster.py", "--devices", cpus(), "--kill")
    assert "differ from CPU by 0" in said and "repeating steps from 200" in said


@HERE
@pytest.mark.full  # half a minute; the kit has M1, too
def test_M1_digits_learns_on_two_nodes(cluster, tmp_path):
    pytest.importorskip("sklearn", reason="scikit-learn is not installed here")
    devices = ",".join(cpus().split(",")[1:])
    run(cluster, tmp_path, "digits.py", "--devices", devices)  # ends with 1 where it read too few
