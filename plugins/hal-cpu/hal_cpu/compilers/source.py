"""C `Source` kernels: the user writes one thread, this adds the loop over threads.

The user's function takes the thread, then the parameters of the signature in order:

    void scale(const hal_thread *t, float *y, const float *x, int32_t n) {
        int64_t i = hal_global_idx(t, 0);
        if (i < n) y[i] = 2 * x[i];
    }
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from hal_core.errors import InvalidArgument
from hal_core.ir import CONST_POINTER, Param, Signature

if TYPE_CHECKING:
    from hal_core.compiler import CompileOptions

PREFIX = "hal_run_"  # before the kernel's name: the function that is launched

_TYPES = {
    "bool": "bool", "int8": "int8_t", "int16": "int16_t", "int32": "int32_t", "int64": "int64_t",
    "uint8": "uint8_t", "uint16": "uint16_t", "uint32": "uint32_t", "uint64": "uint64_t",
    "float32": "float", "float64": "double",
    "float16": "uint16_t", "bfloat16": "uint16_t",  # the bits: not every compiler has a type
}  # fmt: skip

_BEFORE = """\
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

# The table of one function makes a missing or differently typed function a compile error.
_AFTER = """
#line 1 "{place}"
static void (*const hal_entry)({types}) = {name};
void {prefix}{name}(const char *hal_args, const int32_t *hal_launch, int64_t hal_first,
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
                    hal_entry({arguments});
                }}
    }}
}}
"""


# Options that make a compiler read files, whose texts the cache key would not have.
_READS_FILES = re.compile(
    r"@|-I|-i|-B|-?-(include|imacros|sysroot|specs|config|prefix|embed-dir)|-Wp,|-fplugin"
)


def arguments_of(options: CompileOptions) -> list[str]:
    """The compiler's command line. Raises: InvalidArgument for options that name files."""
    for option in options.options:
        if _READS_FILES.match(option):
            raise InvalidArgument(
                f"compile {options.entry}",
                "options cannot name files: the compile cache would not see them change",
                got=option,
                device="CPU",
                fix="Give folders of headers with includes=.",
            )
    defines = [f"-D{name}={value}" for name, value in options.defines]
    includes = [f"-I{os.path.abspath(folder)}" for folder in options.includes]
    return [*defines, *includes, *options.options]


def text_of(text: str, options: CompileOptions) -> str:
    """What the compiler is given: a rendered kernel as it is, a user's with what it needs."""
    if options.rendered:
        return f'#line 1 "{options.entry}.c"\n{text}'
    return complete(text, options.signature)


def complete(text: str, signature: Signature) -> str:
    """The whole translation unit."""
    types = ["const hal_thread *"] + [_type(param) for param in signature.params]
    loads = [
        f"    {_type(param)} const a{param.position} = "
        f"*({_type(param)} const *)(hal_args + {8 * param.position});"
        for param in signature.params
    ]
    arguments = ["&t"] + [f"a{param.position}" for param in signature.params]
    after = _AFTER.format(
        place=_place(signature),
        name=signature.name,
        prefix=PREFIX,
        types=", ".join(types),
        loads="\n".join(loads),
        arguments=", ".join(arguments),
    )
    return f'{_BEFORE}#line 1 "{signature.name}.c"\n{text}\n{after}'


def how_to_write(signature: Signature, log: str) -> str | None:
    """What to do when a compiler's log says that the function is missing or has another type."""
    table = f"{_place(signature)}:1:"
    if not any(table in line and "error" in line for line in log.splitlines()):
        return None
    takes = ["const hal_thread *t"]
    for param in signature.params:
        name = _type(param)
        takes.append(f"{name}{'' if name.endswith('*') else ' '}{param.name}")
    return (
        f"Write: void {signature.name}({', '.join(takes)}) - the code of one thread, which is "
        "number hal_global_idx(t, 0)."
    )


def _place(signature: Signature) -> str:
    return f"signature of {signature.name}"  # what a log calls the text after the user's


def _type(param: Param) -> str:
    name = _TYPES[param.dtype.name]
    if not param.is_pointer:
        return name
    return f"const {name} *" if param.kind == CONST_POINTER else f"{name} *"
