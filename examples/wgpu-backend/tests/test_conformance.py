"""What every backend of hal-core must keep. The device is named in pyproject.toml."""

import pytest
from hal_testing.conformance import *  # noqa: F403
from hal_testing.conformance.sources import Texts

BINDINGS = """\
struct Values { n: i32 }
@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<uniform> values: Values;
"""
FUNCTION = """\
@compute @workgroup_size(block_x, block_y, block_z)
fn NAME(@builtin(global_invocation_id) at: vec3u) {
    let i = i32(at.x);
    if (i < values.n) { y[i] = FACTOR * x[i]; }
}
"""


def function(name: str, factor: str) -> str:
    return FUNCTION.replace("NAME", name).replace("FACTOR", factor)


@pytest.fixture
def hal_source() -> Texts:
    doubled = BINDINGS + function("doubled", "2")
    return Texts(
        "wgsl",
        doubled=doubled,
        broken=BINDINGS + function("doubled", "there_is_no_such_name"),
        broken_line=8,
        two=doubled + function("fivefold", "5"),
    )
