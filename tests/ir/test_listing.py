"""Kernels as text and back."""

import math
import struct

import pytest
from generator import generate
from hypothesis import given
from hypothesis import strategies as st
from kernel_files import load

from hal_core.dtypes import DTYPES, any_, float32, float64
from hal_core.signature import Signature
from hal_kernel.errors import InvalidKernel
from hal_kernel.ir import Kernel, UOp
from hal_kernel.ir.listing import listing, parse_listing
from hal_kernel.render.uops import UOpsRenderer


def _facts(kernel):
    """All a kernel is, with sources by place and floats by their bits."""
    places = {node: place for place, node in enumerate(kernel.uops)}
    rows = [
        (node.op, node.dtype, tuple(places[part] for part in node.src), _bits(node.arg), node.line)
        for node in kernel.uops
    ]
    return kernel._replace(uops=()), rows


def _bits(arg):
    if isinstance(arg, float):
        return "nan" if math.isnan(arg) else struct.pack("d", arg)
    return type(arg), arg


@pytest.mark.parametrize("seed", range(60))
def test_drawn_kernels_come_back(seed, tmp_path):
    case = generate(seed)
    kernel = load(tmp_path, case.source).fuzzed.lower()
    text = UOpsRenderer().render(kernel)
    assert _facts(parse_listing(text)) == _facts(kernel)
    assert listing(parse_listing(text)) == text


@given(
    st.one_of(
        st.floats(), st.integers(), st.booleans(), st.text(), st.tuples(st.text(), st.integers())
    ),
    st.sampled_from([*DTYPES.values(), any_, None]),
    st.integers(0, 10**6),
)
def test_any_argument_comes_back(arg, dtype, line):
    dtype = dtype or float64 if isinstance(arg, float) else dtype
    one = UOp("CONST", float32, (), 1.0)
    kernel = Kernel(
        "k",
        Signature.parse("k", "a: int32, p: const any*"),
        (one, UOp("X", dtype, (one,), arg, line)),
    )
    assert _facts(parse_listing(listing(kernel))) == _facts(kernel)


def test_block_and_contraction_come_back():
    kernel = Kernel("k", Signature.parse("k", ""), (), (4, 2, 1), False)
    assert parse_listing(listing(kernel)) == kernel


@pytest.mark.parametrize(
    ("text", "line"),
    [("", 1), ("kernel", 1), ("kernel k()\nRETURN", 2), ("kernel k()\n0 = NEG int32 %0", 2),
     ("kernel k()\n0 = CONST int33 1", 2),
     ("kernel k()\n0 = CONST int32 1\n1 = CONST int32 __import__('os')", 3)],
)  # fmt: skip
def test_what_is_no_listing_is_refused_with_its_line(text, line):
    with pytest.raises(InvalidKernel, match=f"line {line} cannot be read"):
        parse_listing(text)
