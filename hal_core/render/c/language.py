"""The fields of a language of the C family, from which `body.py` and `frame.py` write a kernel.

Templates: `{0}`, `{1}` are operands, `{f}` the suffix of a float function or literal, `{axis}` is
x, y or z and `{dim}` the same as 0, 1 or 2. In a frame `$name` stands for text, a line of its own
that is `$body`, `$arguments` or `$shared` for any number of lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Space(NamedTuple):
    """One kind of memory: that of buffers, or that of a block."""

    name: str  # in the names of helpers; spaces of one name share them
    qualifier: str  # before a pointer's type
    atomics: Mapping[str, str]  # "ADD int32", "ADD i" or "ADD" -> body; see `helpers.ATOMIC`


class Language(NamedTuple):
    """The differences between one language of the C family and the next."""

    types: Mapping[str, str]  # dtype name -> type of a value
    bool_storage: str  # type of a bool in memory and as an argument
    suffixes: Mapping[str, str]  # dtype name -> suffix of its literals
    functions: Mapping[str, str]  # op -> call
    specials: Mapping[str, str]  # kind of special index -> expression
    bits: Mapping[str, tuple[str, str]]  # float dtype name -> functions to its bits and back
    casts: Mapping[str, str]  # "float32 from float16" -> helper; the others are C casts
    spaces: Mapping[str, Space]  # of a PARAM and of a SHARED
    helper: str  # what stands before a helper function
    frame: str  # the whole kernel around its body
    pointer_parameter: str  # in the kernel's head; "" for none
    value_parameter: str
    shared: str  # declares an array of a block
    barrier: str
    headers: Mapping[str, str] = {}  # feature -> line; "always", "math", "float64", "no contract"
    helpers: Mapping[str, str] = {}  # functions of `bits` that the text must carry
    infinities: Mapping[str, tuple[str, str]] = {}  # dtype name -> infinity, NaN where not C's
    keywords: frozenset[str] = frozenset()  # beyond those of C and what the templates use
    last_parameters: tuple[str, ...] = ()  # behind the kernel's own
    pointer_line: str = ""  # makes the element pointer, at the top of the kernel; "" for none
    value_line: str = ""
    alias: str = ""  # declares {alias}, a {type} that may lie where others do; "": all may
    block_attribute: str = ""  # for a kernel that fixes its block; {x}, {y}, {z}, {threads}
    block_dims: tuple[str, str, str] = ("", "", "")  # else; what $block_x and so on stand for
    wide_indices: bool = False  # computes `x[i * w + j]` in 64 bits; free on a CPU only
    threads: str = ""  # the loops over a block's threads; "" where the device runs them
    independent: str = ""  # before the inner loop, where threads may be interleaved
    spill: str = ""  # declares a variable of all threads; "": as an array of a block
    thread_number: str = ""  # of a thread in its block, counted along x first
    options: tuple[str, ...] = ()  # compiler options that belong to the text
    contract_options: tuple[str, str] = ("", "")  # contraction forbidden, allowed; "" for none


FUNCTIONS = {
    "SQRT": "sqrt{f}({0})",
    "RSQRT": "(1.0{f} / sqrt{f}({0}))",
    "EXP": "exp{f}({0})",
    "EXP2": "exp2{f}({0})",
    "LOG": "log{f}({0})",
    "LOG2": "log2{f}({0})",
    "SIN": "sin{f}({0})",
    "COS": "cos{f}({0})",
    "TAN": "tan{f}({0})",
    "TANH": "tanh{f}({0})",
    "ATAN": "atan{f}({0})",
    "FLOOR": "floor{f}({0})",
    "CEIL": "ceil{f}({0})",
    "TRUNC": "trunc{f}({0})",
    "ROUND": "rint{f}({0})",
    "ABS": "fabs{f}({0})",
    "POW": "pow{f}({0}, {1})",
    "ATAN2": "atan2{f}({0}, {1})",
    "FMOD": "fmod{f}({0}, {1})",
    "FMA": "fma{f}({0}, {1}, {2})",
}
