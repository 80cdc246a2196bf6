"""hal-core without any other distribution: what a backend of text kernels and its users have.

`nox -s core` runs this where nothing else of the project is installed.
"""

import ctypes
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest

import hal_core as hal
from hal_core.cli import commands, main
from hal_core.hookspecs import DeviceInfo


class Memory(hal.LRUAllocator[int]):
    def __init__(self, device):
        super().__init__(device)
        self.blocks = {}  # address -> the memory

    def _alloc(self, nbytes, options):
        block = ctypes.create_string_buffer(nbytes)
        self.blocks[ctypes.addressof(block)] = block
        return ctypes.addressof(block)

    def _free(self, opaque, nbytes, options):
        del self.blocks[opaque]

    def _offset(self, opaque, nbytes, offset):
        return opaque + offset

    def _copyin(self, dest, src):
        ctypes.memmove(dest, bytes(src), src.nbytes)

    def _copyout(self, dest, src):
        dest.cast("B")[:] = ctypes.string_at(src, dest.nbytes)


class Compiler(hal.Compiler):
    language = format = target = identity = "python"

    def _compile(self, source):
        compile(source.text, source.name, "exec")
        return source.text.encode()


class Program(hal.Program):
    def __init__(self, device, binary):
        super().__init__(device, binary)
        exec(binary.image.decode(), names := {})
        self.function = names[binary.name]

    def _bind(self):
        def launch(geometry, *args):
            (grid, _, _), (block, _, _), _ = geometry
            memory, *numbers = args
            y = (ctypes.c_float * numbers[-1]).from_address(memory)
            for i in range(grid * block):
                self.function(i, y, *numbers)

        return launch


class Plugin:
    hal_api = (1, 0)

    @hal.hookimpl
    def hal_enumerate(self, family):
        limits = hal.Limits((64, 1, 1), 64, (1 << 20, 1, 1), 0, 4, 1 << 30)
        return [
            DeviceInfo(
                family, "accelerator", "Python's exec", arch="python", memory_nbytes=1 << 30,
                compute_units=1, host_visible=False, limits=limits, capabilities=frozenset(),
            )
        ]  # fmt: skip

    @hal.hookimpl
    def hal_open_device(self, family, index, info):
        return hal.Compiled(info.name, info)

    @hal.hookimpl
    def hal_make_allocator(self, device):
        return Memory(device)

    @hal.hookimpl
    def hal_make_compilers(self, device):
        return [hal.CompilerPair("exec", "python", None, Compiler)]

    @hal.hookimpl
    def hal_make_program(self, device, binary):
        return Program(device, binary)


SCALE = "def scale(i, y, a, n):\n    if i < n: y[i] = a * y[i]\n"


@pytest.fixture
def device():
    hal.Device.register_plugin("TEXT", Plugin())
    with hal.Device["TEXT"] as opened:
        yield opened


def test_nothing_else_is_installed():
    for name in ("hal_kernel", "hal_streams", "hal_testing", "hal_cpu"):
        assert find_spec(name) is None, name


def test_a_backend_of_text_kernels_compiles_launches_and_replays(device):
    scale = hal.Source("scale", SCALE, "y: float32*, a: float32, n: int32", language="python")
    program = device.compile(scale)
    y = hal.Buffer.from_numpy(np.arange(5, dtype="f4"), device)
    program(y, vals=(2.0, 4), threads=5)
    with device.capture() as graph:
        program(y[1:3], vals=(10.0, 2), threads=2)
    graph.replay()
    with hal.profile() as profile:
        device.compile(hal.Source("scale", SCALE, scale.signature, language="python"))
    assert y.numpy().tolist() == [0, 20, 40, 6, 4]
    assert any(isinstance(event, hal.ProfileProgramEvent) for event in profile.events)


def test_names_of_hal_kernel_say_what_is_missing():
    for name in ("kernel", "Ptr", "global_idx", "Kernel", "MultiBuffer"):
        said = (
            rf"hal\.{name} is in hal-kernel, which is not installed. Run: .*pip install hal-kernel"
        )
        with pytest.raises(ModuleNotFoundError, match=said):
            getattr(hal, name)
        assert name not in dir(hal) and name not in hal.__all__
    namespace = {}
    exec("from hal_core import *", namespace)
    assert "Device" in namespace and "kernel" not in namespace


def test_a_device_that_is_not_installed_says_what_to_install():
    with pytest.raises(hal.UnknownDevice, match="pip install hal-cpu"):
        hal.Device["CPU"]


@pytest.mark.parametrize("command", ["devices", "doctor", "cache"])
def test_the_commands_of_the_core_run(command, capsys):
    assert main([command]) == 0
    assert capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "distribution"), [("render", "hal-kernel"), ("check", "hal-testing")]
)
def test_a_command_that_is_elsewhere_says_where(command, distribution, capsys):
    assert command not in commands()
    with pytest.raises(SystemExit):
        main([command, "x.py"])
    said = capsys.readouterr().err
    assert f"in {distribution}, which is not installed" in said
    assert f"pip install {distribution}" in said


def test_importing_the_core_loads_no_numpy_and_nothing_of_a_vendor():
    code = "import sys, hal_core; print(*sorted(sys.modules))"
    done = subprocess.run((sys.executable, "-c", code), capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert not loaded & {"numpy", "rich", "pluggy", "importlib_metadata", "platformdirs"}
