"""R10: where the Mac, pyobjc, a GPU or its shared memory is missing, one error says which."""

import os
from functools import partial

import pytest
from metal_software import FOLDER, SYSTEM, WHY
from run_python import ask, printed

pytestmark = [
    pytest.mark.results,
    pytest.mark.skipif(SYSTEM, reason="this machine has what is missing in these tests"),
]

ASK = "import sys\n{before}\nimport hal_core as hal" + ask("METAL", turns=2)

_kept = {name: text for name, text in os.environ.items() if name.startswith(("PATH", "SIM_"))}
_run = partial(printed, env=_kept)


def _ask(before="", **environment):
    first, second, state = _run(ASK.format(before=before), **environment).splitlines()
    assert first == second and first.startswith("DeviceUnavailable ")
    return first.removeprefix("DeviceUnavailable "), state


def test_R10_on_another_system_metal_is_apples():
    said, state = _ask()
    assert said.startswith("enumerate METAL: Metal is Apple's: this is no Mac. Use it on a Mac; ")
    assert state == "no hardware"


def test_R10_on_a_mac_without_pyobjc_it_says_what_to_install():
    said, state = _ask("sys.platform = 'darwin'")
    assert said.startswith("enumerate METAL: pyobjc cannot be loaded: No module named ")
    assert said.endswith("pip install pyobjc-framework-Metal (a dependency of hal-metal on a Mac)")
    assert state == "no hardware"


@pytest.mark.skipif(bool(WHY), reason=WHY)
def test_R10_without_a_gpu():
    said, state = _ask(PYTHONPATH=str(FOLDER), SIM_METAL_DEVICES="0")
    assert said.startswith("enumerate METAL: the system has no Metal device")
    assert state == "no hardware"


@pytest.mark.skipif(bool(WHY), reason=WHY)
def test_R10_a_gpu_with_memory_of_its_own_is_refused_when_it_is_opened():
    before = "import metal_control; metal_control.unified = False"
    said, _ = _ask(before, PYTHONPATH=str(FOLDER))
    assert said.startswith("open: the GPU has memory of its own (hasUnifiedMemory is false) on ")
    assert "Apple silicon" in said


def test_hal_doctor_says_that_metal_is_apples():
    text = _run(
        "import sys; from hal_core.cli import main; sys.exit(main(['doctor', 'METAL']) * 0)"
    )
    assert "Metal is Apple's" in text


@pytest.mark.skipif(bool(WHY), reason=WHY)
def test_hal_doctor_opens_each_gpu():
    code = "from hal_metal import doctor\nfor check in doctor.checks('METAL'): print(*check)"
    first, second = _run(code, PYTHONPATH=str(FOLDER)).splitlines()
    assert first.startswith("METAL Software GPU 0 True apple8, macOS Version")
    assert second.startswith("METAL:1 Software GPU 1 True ")
