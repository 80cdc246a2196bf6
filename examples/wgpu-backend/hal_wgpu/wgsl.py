"""Kernels as WGSL. The function's lines are made by wgsl_body.py, what is around them here."""

from __future__ import annotations

from hal_kernel.ir import Kernel
from hal_kernel.ir.expand import expand
from hal_kernel.render import ByHand, Renderer

from hal_core.dtypes import DTYPES, STORAGE_DTYPES, float32
from hal_core.errors import Unsupported
from hal_wgpu import wgsl_values as values
from hal_wgpu.wgsl_body import Body
from hal_wgpu.wgsl_helpers import HELPERS

# WGSL allows its own up to 4096 units in the last place. hal-core's EXP, EXP2 and TANH are no help:
# they add and take away a large number, and compilers of WGSL may leave both out.
INEXACT = dict.fromkeys(("LOG", "LOG2", "ATAN", "ATAN2"), (float32,))
FRAME = """\
{globals}
{helpers}
@compute @workgroup_size(block_x, block_y, block_z)
fn hal_{name}(
    @builtin(global_invocation_id) hal_global: vec3u, @builtin(workgroup_id) hal_block: vec3u,
    @builtin(local_invocation_id) hal_thread: vec3u, @builtin(num_workgroups) hal_grid: vec3u,
) {{
{body}
}}
"""


class WGSLRenderer(Renderer):
    """A pointer is a binding and an offset in bytes, which is a value: views work at any offset."""

    name, language = "WGSL", "wgsl"
    by_hand = ByHand(
        """\
@compute @workgroup_size(block_x, block_y, block_z)
fn NAME(@builtin(global_invocation_id) at: vec3u) {
    let i = i32(at.x);
    if (i < values.n) { y[i] = FACTOR * x[i]; }
}
""",
        """\
struct Values { n: i32 }
@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<uniform> values: Values;
""",
        has_macros=False,
    )
    dtypes = frozenset(DTYPES[name] for name in values.TYPES)

    def _render(self, kernel: Kernel) -> str:
        for node in kernel.uops:
            halves = {part.dtype for part in (node, *node.src)} & STORAGE_DTYPES
            if node.op == "VIEW" or (node.op == "BITCAST" and halves):
                raise Unsupported(
                    f"render kernel {kernel.name!r} as WGSL",
                    "hal.bitcast takes no memory and no 16-bit float here",
                    fix="Take the memory as hal.Ptr[hal.uint32], and compute with its bits.",
                )
        body = Body(expand(kernel, INEXACT))
        lines = "\n".join(body.lines)
        frame = {"globals": "\n".join(_globals(kernel, body)), "body": lines, "name": kernel.name}
        return FRAME.format(helpers=_helpers(lines), **frame)


def _helpers(text: str) -> str:
    """Those that a text uses, and those that these use, in the order of the table."""
    used: list[str] = []
    for name, helper in reversed(HELPERS.items()):
        if f"{name}(" in text:
            used.insert(0, helper)
            text += helper
    return "".join(used)


def _globals(kernel: Kernel, body: Body) -> list[str]:
    """The struct of all that is no pointer, the bindings, and shared memory."""
    params = list(enumerate(kernel.signature.params))
    pointers = [(at, param) for at, param in params if param.is_pointer]
    fields = [f"p{at}_at: u32" for at, _ in pointers]
    fields += [f"p{at}: {values.TYPES[p.dtype.name]}" for at, p in params if not p.is_pointer]
    lines = [f"struct HalValues {{ {', '.join(fields) or 'none: u32'} }}"]
    lines.append(f"@group(0) @binding({len(pointers)}) var<uniform> hal_values: HalValues;")
    for place, (at, param) in enumerate(pointers):
        memory = f"@group(0) @binding({place}) var<storage, read_write>"
        lines.append(f"{memory} p{at}: array<{body.stored[f'p{at}']}>; // {param.name}")
    return lines + body.shared
