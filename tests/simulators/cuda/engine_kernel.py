"""Kernels written by hand, each called `k`, and what comes of running them."""

import numpy as np
import pytest
from engine_runner import Fault

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
REGISTERS = """
    .reg .pred %p<8>;
    .reg .b16 %h<8>;
    .reg .b32 %r<16>;
    .reg .b64 %rd<16>;
    .reg .f32 %f<8>;
"""


def entry(body, params=".param .u64 to", before="", after=""):
    """A kernel `k`; %rd1 is its first parameter, %r1 the thread and %r2 the block."""
    start = "ld.param.u64 %rd1, [to];" if ".u64 to" in params else ""
    return f"""{HEAD}{before}
.visible .entry k({params}) {after}
{{{REGISTERS}
    {start}
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
{body}
    ret;
}}
"""


# Each thread writes %r3 to its place.
STORE = """
    mov.u32 %r15, %ntid.x;
    mad.lo.u32 %r15, %r2, %r15, %r1;
    mad.wide.u32 %rd15, %r15, 4, %rd1;
    st.global.u32 [%rd15], %r3;
"""


def words(engine, text, threads=1, **options):
    got = np.zeros(threads, np.uint32)
    engine.run(text, "k", [got], (1, 1, 1), (threads, 1, 1), **options)
    return [int(word) for word in got]


def fault(engine, text, *arguments, threads=1, **options):
    with pytest.raises(Fault) as caught:
        engine.run(text, "k", list(arguments), (1, 1, 1), (threads, 1, 1), **options)
    return caught.value
