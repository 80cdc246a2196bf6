"""HIP C++, as hiprtc takes it: CUDA's row, but for what the two name or know differently."""

from __future__ import annotations

from hal_core.render.c.cuda import ATOMICS, CUDA, TYPES
from hal_core.render.c.family import CFamilyRenderer
from hal_core.render.c.helpers import BFLOAT16_CASTS
from hal_core.render.c.language import Space

# The smaller or larger of two signed 64-bit numbers came to the headers late.
_BETTER = """\
{uint} *bits = ({uint} *)p;
{uint} old, seen = *(volatile {uint} *)bits;
do {{
    old = seen;
    if (!(v {order} ({type})old)) break;
    seen = atomicCAS(bits, old, ({uint})v);
}} while (seen != old);
return ({type})old;"""
_ATOMICS = {**ATOMICS, "MIN int64": _BETTER, "MAX int64": _BETTER}

HIP = CUDA._replace(
    types={**TYPES, "float16": "_Float16"},  # with casts of its own
    casts=BFLOAT16_CASTS,
    spaces=dict.fromkeys(("PARAM", "SHARED"), Space("atomic", "", _ATOMICS)),
    options=("-fno-strict-aliasing",),  # two parameters may be views of one buffer
    contract_options=("-ffp-contract=off", "-ffp-contract=fast"),
)


class HIPRenderer(CFamilyRenderer):
    """HIP C++ for hiprtc or hipcc."""

    name, language, row = "HIP C++", "hip", HIP
