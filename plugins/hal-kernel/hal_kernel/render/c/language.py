"""Describe a language of the C family, as data from which `body.py` and `frame.py` write a kernel.

Templates: `{0}`, `{1}` are operands, `{f}` the suffix of a float function or literal, `{axis}` is
x, y or z and `{dim}` the same as 0, 1 or 2. In a frame, `$name` stands for a word; a line that
is `$body`, `$arguments` or `$shared` stands for any number of lines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import NamedTuple

from hal_kernel.ir import Kernel, UOp
from hal_kernel.render.c.helpers import DIVISIONS


class Space(NamedTuple):
    """One kind of memory: that of buffers, or the shared memory of a block."""

    name: str  # part of helpers' names; spaces with the same name share helpers
    qualifier: str  # before a pointer's type
    atomics: Mapping[str, str]  # "ADD int32", "ADD i" or "ADD" -> body; see `helpers.ATOMIC`


class Language(NamedTuple):
    """The properties in which one language of the C family differs from the others."""

    types: Mapping[str, str]  # dtype name -> type of a value
    bool_storage: str  # type of a bool in memory and as an argument
    suffixes: Mapping[str, str]  # dtype name -> suffix of its literals
    functions: Mapping[str, str]  # op -> call
    specials: Mapping[str, str]  # kind of special index -> expression
    bits: Mapping[str, tuple[str, str]]  # float dtype name -> function to its bits, and back
    casts: Mapping[str, str]  # "float32 from float16" -> helper; the others are C casts
    spaces: Mapping[str, Space]  # "PARAM" or "SHARED" -> its memory
    helper: str  # the qualifiers of a helper function
    frame: str  # the whole kernel around its body
    pointer_parameter: str  # in the kernel's head; "" for none
    value_parameter: str
    shared: str  # declares an array of a block; {offset}: the bytes of those before it
    barrier: str
    fence: str
    headers: Mapping[str, str] = {}  # feature -> line; "always", "math", "float64", "no contract"
    helpers: Mapping[str, str] = {}  # functions of `bits` that the text must carry
    divisions: Mapping[str, str] = DIVISIONS  # "FLOORDIV uint32" or "FLOORDIV u" -> helper
    # dtype name -> helper that hides a number from a compiler: a zero of a choice, where it orders
    # zeros; a zero divided by an integer, of which NVRTC 13 believes that it is never a NaN; the
    # operand of NOT, where it mistakes that
    hidden: Mapping[str, str] = {}
    low_bits: str = ""  # helper that hides low bits of an index, given grid_dim_x too
    infinities: Mapping[str, tuple[str, str]] = {}  # dtype name -> infinity, NaN where not C's
    keywords: frozenset[str] = frozenset()  # besides those of C and the words in the templates
    last_parameters: tuple[str, ...] = ()  # after the kernel's own
    subgroup_parameters: tuple[str, ...] = ()  # behind those, if the kernel uses subgroups
    pointer_line: str = ""  # declares the pointer in the body; "" if the head does
    value_line: str = ""
    packed: str = ""  # declares a struct of all values, where they are one argument; else ""
    packed_field: str = ""
    packed_parameter: str = ""
    alias: str = ""  # declares {alias}, a {type} that may alias others; "": all may
    local_nbytes: int = 1  # the least size of a LOCAL of elements of one byte
    block_attribute: str = ""  # for a kernel that fixes its block; {x}, {y}, {z}, {threads}
    block_dims: tuple[str, str, str] = ("", "", "")  # $block_x, ... if the block is not fixed
    wide_indices: bool = False  # computes `x[i * w + j]` in 64 bits; free on a CPU only
    # Returns the nodes to write: on a CPU those of loops over threads.
    nodes: Callable[[Kernel], tuple[UOp, ...]] = attrgetter("uops")
    rows: str = ""  # the loops over a block's rows; "" where the device runs threads
    threads: str = ""  # the loop over the threads of a row
    unroll: str = ""  # line before a short loop of a thread, so that threads are the innermost loop
    vector: str = ""  # declares {name}, a struct of {count} at a multiple of {nbytes}; "": none
    table: str = "static const {type} {name}[{count}] = {{{values}}};"  # ahead of the kernel
    spill: str = ""  # declares a SPILL; "": like a shared array
    thread_number: str = ""  # the linear index of a thread in its block, x fastest
    shuffle: tuple[str, str] = ("", "")  # of {0} from thread {1}, of 32 and of 64 bits
    ballot: str = ""  # of the bool {0}, as 64 bits
    options: tuple[str, ...] = ()  # compiler options that belong to the text
    contract_options: tuple[str, str] = ("", "")  # with contraction forbidden, and allowed


TYPES = {  # of Metal and OpenCL C
    "bool": "bool",
    "int8": "char",
    "int16": "short",
    "int32": "int",
    "int64": "long",
    "uint8": "uchar",
    "uint16": "ushort",
    "uint32": "uint",
    "uint64": "ulong",
    "float16": "ushort",
    "bfloat16": "ushort",
    "float32": "float",
}

_OF_ONE = (
    "SQRT", "EXP", "EXP2", "LOG", "LOG2", "SIN", "COS", "TAN", "TANH", "ATAN", "FLOOR", "CEIL",
    "TRUNC",
)  # fmt: skip
FUNCTIONS = {
    **{name: f"{name.lower()}{{f}}({{0}})" for name in _OF_ONE},
    "RSQRT": "(1.0{f} / sqrt{f}({0}))",
    "ROUND": "rint{f}({0})",
    "ABS": "fabs{f}({0})",
    "POW": "pow{f}({0}, {1})",
    "ATAN2": "atan2{f}({0}, {1})",
    "FMOD": "fmod{f}({0}, {1})",
    "FMA": "fma{f}({0}, {1}, {2})",
}
