"""Text for devices that are not here goes through the vendors' compilers, without a warning."""

import pytest
from builder import Builder
from everything import KINDS, every, missing_ops
from offline import NVRTC
from samples import SAMPLES
from slices import OF_EACH_SIZE, usual

from hal_core.dtypes import DTYPES, float32
from hal_core.errors import Unsupported
from hal_metal.render import MetalRenderer


@pytest.mark.parametrize("name", list(SAMPLES))
def test_samples(offline, name):
    offline.compile(SAMPLES[name].lower())


def test_metal_has_no_float64():
    with pytest.raises(Unsupported, match="as Metal.*float64"):
        MetalRenderer().render(SAMPLES["mixed"].lower())


SOME = usual(KINDS, *OF_EACH_SIZE, "control", "subgroups")  # each casts to and from all dtypes


@pytest.mark.parametrize("kind", SOME)
def test_every_operation_on_every_dtype(offline, kind):
    offline.compile(every(kind))


@pytest.mark.parametrize("kind", SOME)
def test_every_operation_on_every_dtype_here(toolchain, kind):
    absent = frozenset(DTYPES.values()) - toolchain.renderer.dtypes
    if kind in map(str, absent) or (kind == "subgroups" and not toolchain.subgroup):
        pytest.skip(f"{type(toolchain).__name__} has no {kind}")
    toolchain.compile(every(kind, absent, toolchain.renderer.language != "metal"))


def test_contraction_only_where_the_kernel_allows_it(offline):
    def made(contract):
        b = Builder("contract", "r: float32*, x: const float32*")
        x = [b.load("x", b.const(number)) for number in range(3)]
        b.store("r", b.index(), b.op("ADD", b.op("MUL", x[0], x[1]), x[2]))
        return offline.compile(b.kernel(contract=contract))

    fused, apart = made(True), made(False)
    if isinstance(offline, NVRTC) and offline.image == "PTX":
        assert b"fma.rn.f32" in fused and b"fma" not in apart
        assert b"mul.f32" in apart.replace(b".rn", b"") and b"add" in apart
    else:
        assert fused != apart


def test_two_views_of_one_buffer_under_two_dtypes(offline):
    """What is read behind a store to the other is read again: C's rules would let it stay."""
    b = Builder("views", "r: int32*, a: int32*, b: float32*")
    zero = b.const(0)
    b.store("a", zero, b.const(1))
    b.store("b", zero, b.const(2.0, float32))
    b.store("r", zero, b.load("a", zero))
    kernel = b.kernel()
    made, options = offline.compile(kernel), offline.renderer.options(kernel)
    if isinstance(offline, NVRTC):  # has no such rule
        assert offline.image != "PTX" or b"ld.global" in made
    else:
        assert "-fno-strict-aliasing" in options


@pytest.mark.parametrize("op", ["ADD", "MIN", "CAS"])
@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_metal_has_no_64_bit_atomics(op, dtype):
    b = Builder("wide", f"r: {dtype}*")
    values = [b.const(1, DTYPES[dtype])] * (2 if op == "CAS" else 1)
    b.atomic(op, "r", b.const(0), *values)
    named = "compare-exchange" if op == "CAS" else op
    with pytest.raises(Unsupported, match=rf"'wide' as Metal.*{named} of {dtype}.*Use int32"):
        MetalRenderer().render(b.kernel())


def test_everything_is_everything():
    assert not missing_ops([*map(every, KINDS)])
