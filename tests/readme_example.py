"""Tests of the example in a plugin's README; the plugin's test_readme.py imports them."""

import re

import pytest

import hal_core as hal


@pytest.fixture
def example(request):
    text = (request.path.parents[1] / "README.md").read_text("utf-8")
    [block] = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    return str(block)


def test_the_example_prints_what_it_says(device, example, capsys):
    exec(example, {})
    promised = re.findall(r"^print\(.*\)  # (.*)", example, re.M)
    printed = capsys.readouterr().out.splitlines()
    if not promised or printed != promised:
        pytest.fail(f"the README promises {promised}, its example prints {printed}")


def scale_of(example):
    space = {}
    exec(example.partition("x = hal.zeros")[0], space)
    return space["scale"]


def test_P6_the_example_guards_against_surplus_threads(device, example):
    program = device.compile(scale_of(example))
    numbers = [param.name for param in program.signature.values]
    for n in (1, 257, 300):
        x = hal.zeros(1024, hal.float32, device).fill(2)
        y = hal.zeros(1024, hal.float32, device).fill(-1)
        program(y, x, vals=[n if name == "n" else 2.0 for name in numbers], threads=n, block=256)
        if y.numpy().tolist() != [4.0] * n + [-1.0] * (1024 - n):
            pytest.fail(f"{n} threads do not write exactly the first {n} elements")


def test_without_extern_c_loading_says_so(device, example):
    with pytest.raises(hal.CompileError, match='mark the kernel extern "C"'):
        device.compile(scale_of(example.replace('extern "C" ', "")))
