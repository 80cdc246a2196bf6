"""R10: where the library, the hardware or a permission is missing, one error says which."""

import os
from functools import partial
from pathlib import Path

import pytest
from run_python import ask, printed

from hal_hip import driver

pytestmark = pytest.mark.results

ASK = "import hal_core as hal\nfrom hal_hip import driver\n{change}" + ask("HIP", turns=2)
NONE = "no HIP runtime is installed: none of libnever.so.7 is found. Install AMD's runtime: "

_run = partial(printed, env={"PATH": "/usr/bin:/bin"})


def _ask(change, **environment):
    first, second, state = _run(ASK.format(change=change), **environment).splitlines()
    assert first == second and state == "no hardware"
    kind, _, text = first.partition(" enumerate HIP: ")
    assert kind == "DeviceUnavailable"
    return text


def test_R10_without_a_runtime_it_says_what_to_install():
    said = _ask("driver.LIBRARIES = ('libnever.so.7',)")
    assert said.startswith(NONE) and "libamdhip64-5" in said


def test_R10_a_library_that_is_no_runtime_is_named_with_what_it_lacks():
    said = _ask("driver.LIBRARIES = ('libnever.so.7', 'libm.so.6')")
    assert said.startswith("libm.so.6 is no HIP runtime, or one older than 5.2: ")
    assert "undefined symbol: hip" in said


def test_R10_a_library_that_cannot_be_loaded_says_why(tmp_path):
    broken = tmp_path / "libamdhip64.so.7"
    broken.write_bytes(b"not a library")
    said = _ask(f"driver.LIBRARIES = ({str(broken)!r},)")
    assert said.startswith(f"{broken} cannot be loaded: ") and "file too short" in said


def test_R10_on_a_system_without_HIP():
    said = _ask("import sys; sys.platform = 'darwin'")
    assert said == "macOS has no HIP. Use METAL or CPU."


def test_R10_a_kernel_without_the_driver_and_a_user_without_permission(monkeypatch, tmp_path):
    for name in driver._HIDE:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(driver, "_KFD", str(tmp_path / "kfd"))
    problem, fix = driver._why_no_device()
    assert problem.endswith(f"there is no {tmp_path}/kfd") and "amdgpu" in fix
    (tmp_path / "kfd").touch()
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    problem, fix = driver._why_no_device()
    assert problem.endswith(f"no permission for {tmp_path}/kfd") and "render,video" in fix


@pytest.mark.skipif(Path("/dev/kfd").exists(), reason="this machine has an AMD GPU")
@pytest.mark.usefixtures("library")
def test_R10_AMDs_own_runtime_without_a_GPU():
    said = _ask("", HIP_VISIBLE_DEVICES="0")
    assert said.startswith("the HIP runtime finds no GPU under HIP_VISIBLE_DEVICES=0.")
    assert "there is no /dev/kfd" in _ask("")


def test_hal_doctor_says_what_to_install():
    text = _run("""
from hal_hip import doctor, driver, hiprtc
driver.LIBRARIES = ("libnever.so.7",)
hiprtc._helper._module = "hal_hip.never"
for check in doctor.checks("HIP"):
    print(check.ok, check.title, check.detail, check.hint)
""")
    runtime, compiler = text.splitlines()
    assert runtime.startswith(f"False runtime {NONE}".partition(". Install")[0])
    assert compiler.startswith("False hiprtc hiprtc cannot be loaded: ")
    assert "libamdhip64-5" in runtime and "libamdhip64-5" in compiler
