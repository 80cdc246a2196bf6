"""Compilation, its errors, and the binaries that it stores."""

import _thread
import os
import subprocess
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from ctrl_c import Scene, press_everywhere

import hal_core as hal
from hal_core.concurrency import poll
from hal_opencl import driver
from hal_opencl.compiler import Sealed
from hal_opencl.stderr import quietly

ONE = "__kernel void one(__global int *x) { x[get_global_id(0)] = VALUE; }"


def source(text, signature, name="one", **more):
    return hal.Source(name, text, signature, language="opencl", **more)


def value_of(device, kernel):
    x = hal.zeros(1, hal.int32, device)
    device.compile(kernel)(x, threads=1)
    return int(x.numpy()[0])


def test_C5_a_compile_error_shows_log_source_and_line_and_prints_nothing(device, capfd):
    """Also below lines that defines become."""
    text, line = "__kernel void one(__global int *x) {\n  x[0] = 1;\n  x[1] = y;\n}", 3
    defines = {"A": 1, "B": "2 + 3"}
    with pytest.raises(hal.CompileError) as caught:
        device.compile(source(text, "x: int32*", defines=defines))
    error = caught.value
    assert error.line == line
    assert error.source == text
    assert "error" in error.log
    assert f"> {line:4d} | {text.splitlines()[line - 1]}" in str(error)
    shown = "".join(traceback.format_exception(error))
    assert shown.count("Traceback") == 1 and "BUILD_PROGRAM_FAILURE" in shown
    assert capfd.readouterr() == ("", "")


def test_C2_identity_has_what_the_environment_tells_pocl(device, monkeypatch):
    before = driver.identity_of(device.hardware)
    monkeypatch.setenv("POCL_EXTRA_BUILD_FLAGS", "-cl-opt-disable")
    after = driver.identity_of(device.hardware)
    assert ("-cl-opt-disable" in after) == (device.hardware.platform.name.startswith("Portable"))
    assert (before != after) == ("-cl-opt-disable" in after)


@pytest.mark.parametrize("option", ["-I{0}", "-I", "-cl-mad-enable -I {0}", "-include"])
def test_C2_options_that_name_files_are_refused(device, tmp_path, option):
    """The cache key knows the files of `includes`; others could change unseen."""
    kernel = source(ONE, "x: int32*", defines={"VALUE": 1}, options=(option.format(tmp_path),))
    with pytest.raises(hal.InvalidArgument, match="includes="):
        device.compile(kernel)


def test_C5_an_error_in_a_header_is_not_shown_as_a_line_of_the_kernel(device, tmp_path):
    (tmp_path / "bad.h").write_text("\n\nint broken(\n")
    text = '#include "bad.h"\n' + ONE
    with pytest.raises(hal.CompileError, match=r"bad\.h") as caught:
        device.compile(source(text, "x: int32*", includes=(str(tmp_path),)))
    assert caught.value.line != 3


def test_C5_a_warning_prints_nothing_and_fails_nothing(device, capfd):
    text = "#warning look\n" + ONE.replace("VALUE", "3")
    assert value_of(device, source(text, "x: int32*")) == 3
    assert capfd.readouterr() == ("", "")


def test_a_build_takes_stderr_from_no_other_thread_and_no_child(capfd):
    building, end = threading.Event(), threading.Event()

    def build():
        os.write(2, b"mine\n2 errors generated.\n1 warning and 1 error generated.\nmore\n")
        building.set()
        assert end.wait(30)
        return "built"

    with ThreadPoolExecutor() as pool:
        built = pool.submit(quietly, build)
        assert building.wait(30)
        os.write(2, b"a thread\n")
        subprocess.run(["sh", "-c", "echo a child >&2"], check=True)
        assert capfd.readouterr().err == "a thread\na child\n"
        end.set()
        assert built.result() == "built"
    assert capfd.readouterr().err == "mine\nmore\n"


def test_ctrl_c_while_a_build_begins():
    """The build's thread ends, wherever Ctrl-C comes: the exit of the process waits for it."""

    def scene():
        def check(heard):
            # Python keeps a thread without a number in a list where Ctrl-C comes before its start.
            names = lambda: [one.name for one in threading.enumerate() if one.ident is not None]  # noqa: E731
            assert poll(lambda: "hal-opencl build" not in names(), 10)

        return Scene(lambda: quietly(lambda: None), check)

    assert press_everywhere(scene, 60) > 10


def test_ctrl_c_while_a_build_runs():
    """The exit of the process still waits for its thread, which PyOpenCL would end the process in.

    A join that Ctrl-C ends takes the thread for one that has ended, in Python 3.11 and 3.12.
    """
    end = threading.Event()

    def build():
        time.sleep(0.1)  # until `quietly` waits
        _thread.interrupt_main()
        end.wait(10)

    try:
        with pytest.raises(KeyboardInterrupt):
            quietly(build)
        assert "hal-opencl build" in [one.name for one in threading.enumerate()]
    finally:
        end.set()


def test_a_build_whose_files_ctrl_c_deletes_is_made_again(device, monkeypatch):
    class Torn(driver.Program):
        def _build(self, *_):
            monkeypatch.undo()
            raise driver.cl.Error

        def get_build_info(self, *_):
            return "error: <invalid loc>: unable to rename temporary 'a.cl.tmp'"

    monkeypatch.setattr(driver, "Program", Torn)
    assert value_of(device, source(ONE, "x: int32*", defines={"VALUE": 14})) == 14


def test_an_option_without_its_macro_is_refused(device):
    with pytest.raises(hal.InvalidArgument, match="-D has no macro"):
        device.compile(source(ONE, "x: int32*", options=("-DVALUE=1", "-D")))


def test_an_include_folder_that_no_option_can_carry_is_refused(device, tmp_path):
    folder = tmp_path / "a b"
    folder.mkdir()
    with pytest.raises(hal.Unsupported, match="blanks"):
        device.compile(source(ONE, "x: int32*", includes=(str(folder),)))


def test_C2_the_identity_names_platform_device_and_driver(device):
    for fact in ("platform_version", "version", "driver_version"):
        assert device.info.vendor[fact] in device.compiler.identity
    assert device.info.title in device.compiler.identity


def test_C8_disassembly_of_a_binary_that_is_text(device):
    sealed = Sealed("binary", "somebody", b".version 7.0\n.entry one\n")
    assert device.compiler.disassemble(sealed.to_bytes()) == ".version 7.0\n.entry one\n"


# -- what kernels may hold


def test_D1_half_floats_are_storage_without_arithmetic(device, capfd):
    text = """__kernel void one(__global half *x, __global float *y) {
        y[0] = vload_half(0, x);
    }"""
    x = hal.Buffer(device, 1, hal.float16).copyin(np.array([1.5], "f2"))
    y = hal.zeros(1, hal.float32, device)
    device.compile(source(text, "x: float16*, y: float32*"))(x, y, threads=1)
    assert y.numpy()[0] == 1.5
    text = "__kernel void one(__global float *x, half h) { x[0] = h; }"
    if "fp16" not in device.info.capabilities:
        with pytest.raises(hal.Unsupported, match="'h' has dtype float16"):
            device.compile(source(text, "x: float32*, h: float16"))
    text = "__kernel void one(__global float *x, ushort h) { x[0] = h; }"
    with pytest.raises(hal.Unsupported, match="bfloat16"):
        device.compile(source(text, "x: float32*, h: bfloat16"))


def test_P1_a_kernel_may_be_called_like_a_built_in_function(device):
    text = "__kernel void {0}(__global int *x) {{ x[0] = 4; }}\n"
    names = ("dot", "mix", "step", "select")
    for name in names:
        assert value_of(device, source(text.format(name), "x: int32*", name)) == 4
    every = "".join(map(text.format, names))
    assert tuple(device.compile(hal.Source(None, every, language="opencl"))) == names
    with pytest.raises(hal.CompileError) as caught:
        device.compile(hal.Source(None, every + "int here", language="opencl"))
    assert caught.value.line == 5 and "undef" not in caught.value.log


# -- what is stored


def load(device, image, entry="one"):
    signature = hal.Signature.parse(entry, "x: int32*")
    return device.load(hal.Binary(image, "opencl", "", hal.Interface(signature)))


@pytest.fixture(scope="module")
def image(device):
    return device.compile(source(ONE, "x: int32*", defines={"VALUE": 5})).binary.image


def test_P1_a_binary_of_another_driver_is_refused(device, image):
    sealed = Sealed.of_bytes(image, "test", "")
    with pytest.raises(hal.CompileError, match="another driver"):
        load(device, sealed._replace(identity="somebody else").to_bytes())
    assert sealed.identity == device.compiler.identity


def test_P1_a_binary_the_driver_refuses_is_an_error(device):
    sealed = Sealed("binary", device.compiler.identity, b"garbage" * 100)
    with pytest.raises(hal.CompileError, match=r"refuses|no __kernel"):
        load(device, sealed.to_bytes())


def test_without_binaries_the_source_is_stored(device, monkeypatch):
    monkeypatch.setattr(driver, "binary_of", lambda program: b"")
    kernel = source(ONE, "x: int32*", options=("-DVALUE=31",))
    assert value_of(device, kernel) == 31
    image = device.compile(kernel).binary.image
    assert Sealed.of_bytes(image, "test", "").kind == "source"


@pytest.mark.parametrize("rendered", [False, True])
def test_P16_a_text_is_built_once_and_a_binary_that_pocl_would_compile_for_is_not_asked_for(
    device, monkeypatch, rendered
):
    if "Portable" not in device.info.vendor["platform"]:
        pytest.skip("another platform than PoCL")

    @hal.kernel
    def fresh(x: hal.Ptr[hal.int32], n: hal.int32):
        x[0] = n - 17

    made = []
    for name in ("build", "binary_of"):
        inner = getattr(driver, name)
        counted = lambda *args, inner=inner, name=name: [made.append(name), inner(*args)][1]  # noqa: E731
        monkeypatch.setattr(driver, name, counted)
    several = hal.Source(
        None, ONE + ONE.replace("one", "k"), language="opencl", defines={"VALUE": 17}
    )
    program = device.compile(fresh) if rendered else device.compile(several)["k"]
    assert made == (["build", "binary_of", "build"] if rendered else ["build"])
    assert device.load(program.binary).name == program.name and made[-1] == "build"
