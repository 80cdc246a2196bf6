"""R10: where a package, driver or GPU is missing, one error names it and what to install."""

import ctypes.util
import importlib.util
from functools import partial

import pytest
from run_python import ask, printed

pytestmark = pytest.mark.results

HIDE = """
import sys
class Nobody:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {hidden!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Nobody())
"""

ASK = "import hal_core as hal" + ask("CUDA")

_run = partial(printed, env={"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": "/nonexistent"})


@pytest.mark.parametrize(
    ("hidden", "binding", "said"),
    [
        ("cuda", "cuda-bindings",
         "cuda-bindings is not installed. Run: python -m pip install 'cuda-bindings'"),
        ("pycuda", "pycuda",
         "pycuda is not installed. Run: python -m pip install 'hal-cuda[pycuda]'"),
    ],
)  # fmt: skip
def test_R10_without_a_package_it_says_what_to_install(hidden, binding, said):
    text = _run(HIDE.format(hidden=[hidden]) + ASK, HAL_CUDA_DRIVER=binding)
    assert text == f"PluginError enumerate CUDA: {said}\nbroken\n"


NO_DRIVER = (
    "enumerate CUDA: no NVIDIA driver is installed: libcuda.so.1 is not found. "
    "Install the NVIDIA driver; no toolkit is needed."
)
NEEDED = {"cuda-bindings": "cuda.bindings.driver", "pycuda": "pycuda"}


@pytest.fixture(params=NEEDED)
def binding(request):
    """Return an installed package that reaches the driver, on a machine without a driver."""
    name = request.param
    if importlib.util.find_spec(NEEDED[name].partition(".")[0]) is None:
        pytest.skip(f"{name} is not installed")
    if ctypes.util.find_library("cuda"):
        pytest.skip("this machine has an NVIDIA driver")
    return name


def test_R10_without_a_driver_it_says_so_in_a_line_and_the_raw_reason_with_v_only(binding):
    doctor = "from hal_core.cli import main\nfor v in [], ['-v']: print(main(['doctor','CUDA',*v]))"
    text = _run(ASK + doctor, HAL_CUDA_DRIVER=binding)
    asked = f"DeviceUnavailable {NO_DRIVER}\nno hardware\n"
    short, _, long = text.removeprefix(asked).partition("\n0\n")
    [line] = [line for line in short.splitlines() if "CUDA" in line]
    assert text.startswith(asked) and NO_DRIVER in line and line.rstrip().endswith("needed."), text
    raw = "libcuda.so.1: cannot open" if binding == "pycuda" else "NVIDIA driver library"
    assert raw not in short and raw in long, text


def test_R10_on_a_system_that_NVIDIA_has_no_driver_for():
    mac = "import sys; sys.platform = 'darwin'\n"
    text = _run(HIDE.format(hidden=["cuda"]) + mac + ASK)
    assert "NVIDIA has no driver for macOS. Use METAL or CPU.\nno hardware\n" in text


def test_C6_without_NVRTC_one_line_says_so_and_nothing_is_wrong():
    pytest.importorskip("cuda.pathfinder", reason="cuda-pathfinder is not installed")
    text = _run("""
import cuda.pathfinder as finder
def refuse(name):
    raise finder.DynamicLibNotFoundError("a long sentence about folders")
finder.load_nvidia_dynamic_lib = refuse
from hal_cuda import doctor
print(doctor.checks("CUDA")[1])
""")
    assert "ok=True, detail='NVRTC is not installed: kernels of hal.kernel compile th" in text, text
    assert "python -m pip install 'hal-cuda[nvrtc]'" in text, text


def test_another_binding_is_refused_with_the_names_of_both():
    said = _run(ASK, HAL_CUDA_DRIVER="cupy")
    assert "InvalidArgument" in said and "cuda-bindings or pycuda" in said
