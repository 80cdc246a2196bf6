"""Xcode's compiler, for which a script stands in: it takes what it is given for a metallib."""

import os
import sys

import numpy as np
import pytest

import hal_core as hal

SCRIPT = """#!{python}
import pathlib, sys
assert sys.argv[1:4] == ["-sdk", "macosx", "metal"], sys.argv
given = sys.argv[4:]
with open({log!r}, "a") as log:
    print(*given, file=log)
if given == ["--version"]:
    print("Apple metal version 32023.1 (metalfe-32023.1)\\nTarget: air64")
    sys.exit({status})
text = pathlib.Path(given[-1]).read_text()
if "nothing" in text:
    sys.exit("program_source:3:1: error: use of undeclared identifier 'nothing'")
pathlib.Path(given[given.index("-o") + 1]).write_bytes(b"MTLB" + text.encode())
"""
TEXT = """#include <metal_stdlib>
kernel void scale(device int *y [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    y[i] *= FACTOR;
}
"""


@pytest.fixture
def xcrun(tmp_path, monkeypatch, control):
    """Put the script on PATH, or one that fails; return the file of what it was given."""

    def install(status=0):
        log, path = tmp_path / "given", tmp_path / "xcrun"
        path.write_text(SCRIPT.format(python=sys.executable, log=str(log), status=status))
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.setenv("METAL_CC", "xcrun")
        return log

    return install


@pytest.fixture
def opened(device, xcrun):
    device.close()
    with hal.Device["METAL"] as made:
        yield made


def scale(text=TEXT, **options):
    return hal.Source("scale", text, "y: int32*", language="metal", **options)


def test_it_makes_a_metallib_that_is_loaded(opened, xcrun, tmp_path):
    log = xcrun()
    (tmp_path / "headers").mkdir()
    program = opened.compile(
        scale(defines={"FACTOR": "3"}, options=("-O2",), includes=(str(tmp_path / "headers"),))
    )
    assert program.pair == "xcrun" and program.binary.format == "metallib"
    assert b"MTLB" in program.binary.image
    version, compiled = log.read_text().splitlines()
    assert version == "--version"
    assert compiled.startswith(f"-std=metal3.2 -fno-fast-math -O2 -I{tmp_path}/headers -o ")
    opened.libraries.clear()
    y = hal.Buffer.from_numpy(np.arange(4, dtype="i4"), opened)
    opened.load(program.binary)(y, threads=4, block=4)
    assert y.numpy().tolist() == [0, 3, 6, 9]
    damaged = program.binary._replace(image=program.binary.image[:-1])
    with pytest.raises(hal.CompileError, match="checksum"):
        opened.load(damaged)


IMAGES = """#include <metal_stdlib>
using namespace metal;
kernel void k(texture1d<float, access::write> y [[texture(1)]], texture1d<float> x [[texture(0)]],
              uint i [[thread_position_in_grid]]) { y.write(2 * x.read(i), i); }
"""


def test_the_images_of_a_metallib_are_those_of_its_signature(opened, xcrun):
    xcrun()
    options = hal.BufferSpec(image=hal.Image(4))
    x = hal.Buffer.from_numpy(np.ones((4, 4), "f4"), opened, options)
    y = hal.Buffer(opened, 16, hal.float32, options)
    source = hal.Source("k", IMAGES, "x: const image1d, y: image1d", language="metal")
    opened.compile(source)(x, y, threads=4)
    assert (y.numpy() == 2).all()
    for signature, why in {
        "y: image1d, x: const image1d": r"argument 0 of the kernel is texture1d<float, access::re",
        "x: const image2d, y: image1d": r"signature says x: const image2d",
    }.items():
        with pytest.raises(hal.CompileError, match=why):
            opened.compile(hal.Source("k", IMAGES, signature, language="metal"))


def test_its_errors_have_log_and_line(opened, xcrun):
    xcrun()
    with pytest.raises(hal.CompileError, match="xcrun metal refuses the text") as caught:
        opened.compile(scale(TEXT.replace("FACTOR", "nothing")))
    assert caught.value.line == 3 and "undeclared" in caught.value.log


def test_options_that_name_files_are_refused(opened, xcrun):
    xcrun()
    with pytest.raises(hal.InvalidArgument, match="cannot name files"):
        opened.compile(scale(options=("-include=/etc/passwd",)))


@pytest.mark.parametrize("there", [False, True])
def test_C6_without_it_the_error_says_what_to_install(opened, xcrun, monkeypatch, there):
    if there:
        xcrun(status=72)  # Xcode without the Metal toolchain
    else:
        monkeypatch.setenv("METAL_CC", "xcrun")
        monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(hal.CompilerUnavailable, match=r"xcodebuild -downloadComponent"):
        opened.compile(scale(defines={"FACTOR": "3"}))
