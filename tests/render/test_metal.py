"""Rules of Metal that its own compiler would tell us of, and where there is one, that compiler."""

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from builder import Builder
from everything import everything
from samples import SAMPLES

from hal_core.dtypes import float32, float64
from hal_core.errors import Unsupported
from hal_metal.render import MetalRenderer

GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.metal.txt"))


def with_buffers(count, values=""):
    pointers = ", ".join(f"p{k}: float32*" for k in range(count))
    b = Builder("many", f"{pointers}{values}")
    b.store(f"p{count - 1}", b.index(), b.const(1.0, float32))
    return b.kernel()


@pytest.mark.parametrize(
    ("count", "values"), [(31, ""), (30, ", n: int32"), (30, ", a: int8, b: float32")]
)
def test_all_31_places_of_buffers_are_used(metal, count, values):
    kernel = with_buffers(count, values)
    text = metal.renderer.render(kernel)
    places = [int(place) for place in re.findall(r"\[\[buffer\((\d+)\)\]\]", text)]
    assert places == list(range(31))
    arrays = {f"p{k}": np.zeros(4, np.float32) for k in range(count)}
    metal.run(kernel, {**arrays, "n": 1, "a": 1, "b": 1.0}, block=(4, 1, 1))
    assert arrays[f"p{count - 1}"].tolist() == [1.0] * 4
    assert not arrays["p0"].any()


@pytest.mark.parametrize(("count", "values"), [(32, ""), (31, ", n: int32")])
def test_a_32nd_buffer_is_refused_before_metal_refuses_it(count, values):
    with pytest.raises(Unsupported, match=r"'many' as Metal: too many buffers.*got 32; limit 31"):
        MetalRenderer().render(with_buffers(count, values))


def test_values_of_every_size_lie_where_a_struct_of_them_has_them(metal):
    """Each begins at a multiple of its size, in any order: bool, char, short, half, int, long."""
    random = np.random.default_rng(3)
    names = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint64", "float32"] * 3
    random.shuffle(names)
    params = ", ".join(f"a{k}: {name}" for k, name in enumerate(names))
    b = Builder("layout", f"out: float32*, {params}")
    for k in range(len(names)):
        b.store("out", b.const(k), b.cast(b.params[f"a{k}"], float32))
    numbers = {f"a{k}": 1 if name == "bool" else k + 2 for k, name in enumerate(names)}
    got = np.zeros(len(names), np.float32)
    metal.run(b.kernel(), {"out": got, **numbers})
    assert got.tolist() == [float(number) for number in numbers.values()]


def test_what_blocks_tell_each_other_is_coherent_memory():
    """Else a fence orders writes that another block does not see: section 4.8 of Metal 3.2."""
    b = Builder("told", "data: float32*, ready: int32*, seen: const float32*")
    b.store("data", b.index(), b.load("seen", b.index()))
    b.add("FENCE")
    b.atomic("ADD", "ready", b.const(0), b.const(1))
    text = MetalRenderer().render(b.kernel())
    assert text.count("coherent(device) device ") == 5  # three arguments, and a helper's two
    plain = text.replace("coherent(device) device ", "")
    assert re.findall(r"\bdevice\b", plain) == []
    assert "coherent" not in MetalRenderer().render(SAMPLES["histogram"].lower())


@pytest.mark.parametrize("name", [
    "precise", "mem_flags", "values", "global_id", "simd_vote", "select", "dot", "vec", "buffer_",
    "hal", "kernel_", "bits",
])  # fmt: skip
def test_a_kernel_may_have_a_name_that_the_text_does_not_call(metal, name):
    b = Builder(name, "x: float32*, n: int32")
    b.store("x", b.index(), b.op("EXP", b.cast(b.params["n"], float32)))
    b.barrier()
    got = np.zeros(4, np.float32)
    metal.run(b.kernel(), {"x": got, "n": 0}, block=(4, 1, 1))
    assert got.tolist() == [1.0] * 4


def test_every_pointer_names_its_memory():
    """Arguments, helpers and casts name it: without a name it would be a thread's own."""
    kernels = everything(frozenset({float64}), wide_atomics=False)
    texts = [*map(MetalRenderer().render, kernels), *(path.read_text() for path in GOLDEN)]
    types = r"(?:const )?(?:hal_any_)?(?:atomic_)?(?:u?(?:char|short|int|long)|half|float)"
    for text in texts:
        found = re.findall(rf"(\w+ )?\b{types} \*", text)
        assert found
        assert set(found) <= {"device ", "threadgroup "}, text


def test_apples_compiler_takes_every_text(tmp_path):
    """On a Mac with Xcode: all operations, and the samples."""
    if shutil.which("xcrun") is None:
        pytest.skip("xcrun is not installed: Apple's compiler is part of Xcode")
    found = subprocess.run(["xcrun", "-f", "metal"], capture_output=True, text=True, check=False)
    if found.returncode:
        pytest.skip(f"xcrun has no metal: {found.stderr.strip()}")
    kernels = [
        *everything(frozenset({float64}), wide_atomics=False),
        with_buffers(30, ", n: int32"),
    ]
    texts = [MetalRenderer().render(kernel) for kernel in kernels]
    texts += [path.read_text() for path in GOLDEN]
    for number, text in enumerate(texts):
        path = tmp_path / f"{number}.metal"
        path.write_text(text)
        command = ["xcrun", "metal", "-std=metal3.2", "-fno-fast-math", "-Werror", "-c", str(path)]
        done = subprocess.run([*command, "-o", str(path.with_suffix(".air"))], capture_output=True,
                              text=True, check=False)  # fmt: skip
        assert not done.returncode, f"{done.stderr}\n{text}"
