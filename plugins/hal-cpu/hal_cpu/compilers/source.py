"""`Source` kernels in C: the user writes one thread, this module adds the loop over threads.

the user's text, for "y: float*, n: int32"     the compiler is given after it

void twice(const hal_thread *t,                void hal_run_pi4_twice(args, launch, first, last) {
           float *y, int32_t n) {                  float *const a0 = *(args + 0); ...
    int64_t i = hal_global_idx(t, 0);              for each block b from first to last
    if (i < n) y[i] = 2 * y[i];                        for each thread t of it
}                                                          twice(&t, a0, a1);
                                               }
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterator
from typing import Any

from hal_core.concurrency import suppress
from hal_core.dtypes import any_
from hal_core.errors import CompileError
from hal_core.signature import CONST_POINTER, POINTER, Param, Signature
from hal_core.source import Source
from hal_kernel.c_texts.options import refuse_files
from hal_kernel.c_texts.prototypes import Reading, signature_of

# Functions of one thread: others are static, or inline.
KERNEL = r"(?:\A|(?<=[;}]))\s*(?:extern\s+)?void\s+(\w+)\s*\((?=\s*const\s+hal_thread\s*\*)"
ENTRY_PREFIX = "hal_run_"  # of the function that a launch calls

_TYPES = {
    "bool": "bool", "int8": "int8_t", "int16": "int16_t", "int32": "int32_t", "int64": "int64_t",
    "uint8": "uint8_t", "uint16": "uint16_t", "uint32": "uint32_t", "uint64": "uint64_t",
    "float32": "float", "float64": "double",
    "float16": "uint16_t", "bfloat16": "uint16_t",  # the bits: not every compiler has a type
    "any": "void", "complex64": "float _Complex", "complex128": "double _Complex",
}  # fmt: skip

_DECLARATIONS = """\
#include <stdbool.h>
#include <stdint.h>
typedef struct { int32_t block[3], thread[3], block_dim[3], grid_dim[3]; } hal_thread;
static inline int32_t hal_block_idx(const hal_thread *t, int axis) { return t->block[axis]; }
static inline int32_t hal_thread_idx(const hal_thread *t, int axis) { return t->thread[axis]; }
static inline int32_t hal_block_dim(const hal_thread *t, int axis) { return t->block_dim[axis]; }
static inline int32_t hal_grid_dim(const hal_thread *t, int axis) { return t->grid_dim[axis]; }
static inline int64_t hal_global_idx(const hal_thread *t, int axis) {
    return (int64_t)t->block[axis] * t->block_dim[axis] + t->thread[axis];
}
"""

# The constant `hal_entry_...` makes a missing or differently typed function a compile error, in a
# line that `suggest_signature` finds in the log.
_ENTRY = """
#line 1 "signature of {name}"
static void (*const hal_entry_{name})({types}) = {name};
void {entry}(const char *hal_args, const int32_t *hal_launch, int64_t hal_first,
        int64_t hal_last) {{
    const int32_t gx = hal_launch[0], gy = hal_launch[1], gz = hal_launch[2];
    const int32_t bx = hal_launch[3], by = hal_launch[4], bz = hal_launch[5];
{loads}
    for (int64_t b = hal_first; b < hal_last; b++) {{
        const int32_t kx = (int32_t)(b % gx), ky = (int32_t)(b / gx % gy);
        const int32_t kz = (int32_t)(b / ((int64_t)gx * gy));
        for (int32_t z = 0; z < bz; z++)
            for (int32_t y = 0; y < by; y++)
                for (int32_t x = 0; x < bx; x++) {{
                    const hal_thread t = {{
                        {{kx, ky, kz}}, {{x, y, z}}, {{bx, by, bz}}, {{gx, gy, gz}}}};
                    hal_entry_{name}({arguments});
                }}
    }}
}}
"""


def entry_of(signature: Signature) -> str:
    """Return the name of the function that a launch calls, which tells what it takes."""
    words = (
        "p" if param.is_pointer else f"{param.dtype.kind}{param.dtype.itemsize}"
        for param in signature.params
    )
    return f"{ENTRY_PREFIX}{''.join(words)}_{signature.name}"


# Options that make a compiler read files, whose texts the cache key would not have: those that are
# known to, and those with a path, which is no macro's value.
_READS_FILES = re.compile(
    r"@|-I|-i|-B|-?-(include|imacros|sysroot|specs|config|prefix|embed-dir|load)|-W[ap],"
    r"|-f[a-z-]*(plugin|profile|file|list)|(?!-[DU]).*[/\\]"
)


def arguments_of(source: Source) -> list[str]:
    """Return the compiler's command line. Raises: InvalidArgument for options that name files."""
    refuse_files(source.options, _READS_FILES, f"compile {source.name}", "CPU")
    defines = [f"-D{name}={value}" for name, value in source.defines]
    includes = [f"-I{os.path.abspath(folder)}" for folder in source.includes]
    return [*defines, *includes, *source.options]


def text_of(source: Source) -> str:
    """Return the text to compile: a rendered kernel as it is, a user's with its entry."""
    if source.interface.rendered:
        return f'#line 1 "{source.name}.c"\n{source.text}'
    return complete(source.text, source.signature)


class Words(dict[str, str]):
    """The C types of the values and elements of a text, by their dtypes' names."""

    def of(self, param: Param) -> str:
        # A type that C lacks is shown as the signature has it: the compiler refuses the kernel.
        name = self.get(param.name) or _TYPES.get(param.dtype.name, param.dtype.name)
        if not param.is_pointer:
            return name
        return f"const {name} *" if param.kind == CONST_POINTER else f"{name} *"


def declared_text(source: Source[Any]) -> str:
    """Return the user's text as a preprocessor is given it."""
    return f'{_DECLARATIONS}#line 1 "{source.name}.c"\n{source.text}'


def reading_of(source: Source[Any], preprocessed: str) -> Reading:
    """Read the kernels of a text that a compiler has preprocessed."""
    long = ctypes.sizeof(ctypes.c_long)
    return Reading(source, KERNEL, "CPU", long=long, text=preprocessed, hidden=1)


def nearly_kernels(reading: Reading) -> Iterator[Source]:
    """Yield the functions that are asked for and are no kernels, each with what it takes."""
    source, text, kernels = reading.source, reading.source.text, reading.source.kernels
    for name, declared in reading.text.kernels(r"\bvoid\s+(\w+)\s*\(").items():
        is_asked = (name, None) in kernels if kernels else not reading.declared and name in text
        if is_asked and name not in reading.declared:
            takes = [one for one in declared if one.type != "hal_thread"]
            with suppress(CompileError):
                signature = signature_of(name, takes, reading.text, "CPU")
                yield Source(
                    name, text, signature, language="c", options=source.options,
                    defines=dict(source.defines), includes=source.includes,
                )  # fmt: skip


def complete_all(reading: Reading) -> str:
    """Return the text of several kernels with the declarations ahead and the entries after it."""
    entries = ""
    for signature in reading.kernels:
        words = Words()
        # What is not read, or otherwise declared, the compiler refuses.
        declared = reading.declared.get(signature.name, ())
        for param, one in zip(signature.params, declared, strict=False):
            known = reading.text.dtype(one.type)
            if (
                param.dtype.kind in ("c", "V")
                or known is param.dtype
                or (param.dtype is any_ and one.type)
            ):
                # As the text spells it: `char` and `long long` are types of their own.
                const = "const" if param.kind == POINTER else ""
                kept = [
                    word for word in (const, "volatile", "struct", "union") if word in one.words
                ]
                words[param.name] = " ".join([*kept, one.type])
        entries += _entry(signature, words)
    source = reading.source
    return f'{_DECLARATIONS}#line 1 "{source.name}.c"\n{source.text}\n{entries}{reading.checks()}'


def complete(text: str, signature: Signature) -> str:
    """Return the user's function with the declarations ahead of it and the entry after it."""
    return f'{_DECLARATIONS}#line 1 "{signature.name}.c"\n{text}\n{_entry(signature, Words())}'


def _entry(signature: Signature, words: Words) -> str:
    types = ["const hal_thread *"] + [words.of(param) for param in signature.params]
    loads, place = [], 0
    for param in signature.params:
        type, value = words.of(param), f"a{param.position}"
        # Of a type of the text's own, which may have a larger alignment than 8.
        line = f"{type} {value}; __builtin_memcpy(&{value}, hal_args + {place}, sizeof {value});"
        if param.is_pointer or param.dtype.name in _TYPES:
            line = f"{type} const {value} = *({type} const *)(hal_args + {place});"
        loads.append(f"    {line}")
        place += 8 if param.is_pointer else param.dtype.itemsize + -param.dtype.itemsize % 8
    arguments = ["&t"] + [f"a{param.position}" for param in signature.params]
    return _ENTRY.format(
        name=signature.name,
        entry=entry_of(signature),
        types=", ".join(types),
        loads="\n".join(loads),
        arguments=", ".join(arguments),
    )


# Words of texts for GPUs that a C compiler does not know.
_OF_BLOCKS = re.compile(
    r"\b(hal_barrier|barrier|__syncthreads|__shared__|__local|local|__kernel|kernel|__global__"
    r"|get_(global|local|group)_id|threadIdx|blockIdx)\b"
)


def suggest_signature(source: Source[Any], log: str) -> str | None:
    """Return a function's right first line, as advice, if the log says that it is wrong.

    For a text in another language, which has blocks, the advice is the device that takes it.
    """
    if any("error" in line and _OF_BLOCKS.search(line) for line in log.splitlines()):
        return (
            "C on the CPU is one thread, without barriers and shared memory. Give a text in "
            "OpenCL C to the device OPENCL, which PoCL makes of this processor: "
            "pip install hal-opencl pocl-binary-distribution. Or write the kernel in Python."
        )
    faults = [line for line in log.splitlines() if "error" in line]
    wrong = [
        signature
        for name, signature in source.kernels or ()
        if signature and any(f"signature of {name}:1:" in line for line in faults)
    ]
    if not wrong:
        return None
    takes, signature = ["const hal_thread *t"], wrong[0]
    for param in signature.params:
        name = Words().of(param)
        takes.append(f"{name}{'' if name.endswith('*') else ' '}{param.name}")
    return (
        f"Write: void {signature.name}({', '.join(takes)}) - the code of one thread, which is "
        "number hal_global_idx(t, 0)."
    )


# Every text of this module that a compiler may be given, for the compile cache's key.
WRAPPER = complete("", Signature.parse("every", ", ".join(f"{n}: const {n}*" for n in _TYPES)))
