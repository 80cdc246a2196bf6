"""The kernels of several tests compiled in one text, where each runs as in a text of its own."""

from __future__ import annotations

import subprocess

import numpy as np
import pytest
from builder import Builder
from launched import launched
from toolchains import GCC, Toolchain, joined, renamed

from hal_kernel.ir import Kernel


def remainders(divisor: int, contract: bool = True) -> Kernel:
    """A kernel whose text contains a helper function in most languages."""
    b = Builder("remainders", "r: int32*, x: const int32*")
    i = b.index()
    b.store("r", i, b.op("MOD", b.load("x", i), b.op("ADD", i, b.const(divisor))))
    return b.kernel(contract=contract)


def test_kernels_of_one_text(compiler: Toolchain) -> None:
    """Kernels and helper functions with equal names are compiled together.

    A kernel whose pragma differs is compiled apart.
    """
    if not compiler.joins:
        pytest.skip("each kernel is a text")
    kernels = [remainders(3), remainders(5), remainders(7, contract=False)]
    compiler.prepare(kernels)
    images = [compiler.made(kernel).image for kernel in kernels]
    assert images[0] is images[1] is not images[2]
    for kernel, divisor in zip(kernels, (3, 5, 7), strict=True):
        got, x = np.zeros(4, "i4"), np.array([-20, -1, 8, 40], "i4")
        compiler.run(kernel, {"r": got, "x": x}, (4, 1, 1))
        assert got.tolist() == (x % np.arange(divisor, divisor + 4)).tolist()


@pytest.fixture(scope="module")
def gcc(tmp_path_factory: pytest.TempPathFactory) -> GCC:
    made = GCC(tmp_path_factory.mktemp("gcc"))
    if made.missing:
        pytest.skip(made.missing)
    return made


def test_a_kernel_may_not_use_the_functions_of_another(gcc: GCC) -> None:
    """If a renderer leaves out a helper function, the joined text does not compile.

    The helper of another kernel is not used.
    """
    whole, other = (gcc.text(renamed(remainders(3), number)) for number in (0, 1))
    head, _, _ = other.partition("static inline")
    lacking = head + other[other.index("void remainders_1") :]
    assert "hal_mod_int32(" in lacking
    gcc.build(joined([whole, other]), gcc.renderer.options(remainders(3)))
    with pytest.raises(subprocess.CalledProcessError):
        gcc.build(joined([whole, lacking]), gcc.renderer.options(remainders(3)))


def test_a_text_that_is_refused_leaves_each_kernel_to_its_test(
    gcc: GCC, monkeypatch: pytest.MonkeyPatch
) -> None:
    build, built = gcc.build, []

    def refusing(text: str, options: tuple[str, ...]) -> object:
        built.append(text)
        return build("this is no text" if "1234567" in text else text, options)

    monkeypatch.setattr(gcc, "build", refusing)
    bad, good = kernels = [remainders(1234567), remainders(13)]
    gcc.prepare(kernels)
    gcc.made(good)
    with pytest.raises(subprocess.CalledProcessError):
        gcc.made(bad)
    assert built[1:] == [gcc.text(good), gcc.text(bad)]


def test_the_kernel_that_a_test_launches_first(gcc: GCC) -> None:
    after = []

    def that_launches(toolchain: Toolchain, divisor: int) -> None:
        assert isinstance(toolchain, GCC)
        toolchain.run(remainders(divisor), {})
        after.append(divisor)

    def that_compiles(toolchain: Toolchain) -> None:
        toolchain.compile(remainders(1))
        after.append(1)

    def that_skips(toolchain: Toolchain) -> None:
        pytest.skip("not here")

    (found,) = launched(that_launches, gcc, divisor=3)
    assert gcc.text(found) == gcc.text(remainders(3))
    assert launched(that_compiles, gcc) == launched(that_skips, gcc) == []
    assert not after
