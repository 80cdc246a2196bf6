"""Kernels: what they may ask for, what a launch sends, arguments in Metal's table."""

import re
import runpy
from pathlib import Path

import numpy as np
import pytest
from kernel_files import saxpy

import hal_core as hal

pytestmark = pytest.mark.results

LAUNCH = {
    "commandBuffer": 1, "computeCommandEncoder": 1, "setComputePipelineState:": 1,
    "dispatchThreadgroups:threadsPerThreadgroup:": 1, "endEncoding": 1, "commit": 1,
}  # fmt: skip
HEAD = "#include <metal_stdlib>\nusing namespace metal;\n"


def source(name, head, body, signature, **options):
    text = f"{HEAD}kernel void {name}({head}) {{ {body} }}\n"
    return hal.Source(name, text, signature, language="metal", **options)


PLACE = "uint i [[thread_position_in_grid]]"


# -- what is sent


def test_a_launch_sends_six_messages_and_one_for_each_pointer_and_one_for_all_values(
    device, control
):
    program = device.compile(saxpy)
    y, x = (hal.zeros(64, hal.float32, device) for _ in range(2))
    program(y, x, vals=(2.0, 64), threads=64)
    device.synchronize()
    for wait in (False, True):
        control.messages.clear()
        program(y, x, vals=(2.0, 64), threads=64, wait=wait)
        sent = dict(control.messages)
        if wait:  # asked until it is over, and then for its times
            assert {sent.pop(name) for name in ("GPUStartTime", "GPUEndTime")} == {1}
            assert sent.pop("status") >= 1
        assert sent == LAUNCH | {"setBuffer:offset:atIndex:": 2, "setBytes:length:atIndex:": 1}


def test_an_allocation_from_the_cache_and_a_copy_to_an_idle_device_send_nothing(device, control):
    hal.Buffer(device, 1000, hal.float32).allocate().deallocate()
    control.messages.clear()
    made = hal.Buffer(device, 1000, hal.float32).allocate().copyin(np.ones(1000, "f4"))
    assert made.view(10, hal.float32, 400).numpy().tolist() == [1] * 10
    made.deallocate()
    assert not control.messages


def test_opening_a_device_sends_less_than_twenty_messages(device, control):
    device.close()
    control.messages.clear()
    opened = hal.Device["METAL"]
    hal.Buffer(opened, 1, hal.int32).allocate()
    assert sum(control.messages.values()) < 20


def test_selectors_stand_in_the_driver_alone(control):
    import pyobjc_table

    import hal_metal

    methods = {name.replace(":", "_") for name in pyobjc_table.table().selectors}
    used = {}
    for path in Path(hal_metal.__file__).parent.glob("*.py"):
        called = set(re.findall(r"\.(\w+)\(", path.read_text(encoding="utf-8")))
        used[path.name] = {name for name in called & methods if "_" in name or name[0:3] == "new"}
    assert used.pop("driver.py") > {"newCommandQueue", "setBuffer_offset_atIndex_"}
    assert not any(used.values()), used


# -- arguments


def test_thirty_pointers_and_many_values(device, tmp_path):
    """All values of a rendered kernel are one struct, in one of Metal's 31 entries."""
    kinds = ("int8", "int64", "bool_", "uint16", "float32")
    head = [f"p{n}: hal.Ptr[hal.float32]" for n in range(30)]
    head += [f"v{n}: hal.{kinds[n % 5]}" for n in range(40)]
    body = [
        f"    p{n}[0] = " + " + ".join(f"hal.float32(v{m})" for m in range(n, 40, 30))
        for n in range(30)
    ]
    text = "\n".join(
        ["import hal_core as hal", "@hal.kernel", f"def many({', '.join(head)}):", *body]
    )
    path = tmp_path / "many.py"
    path.write_text(text + "\n")
    program = device.compile(runpy.run_path(str(path))["many"])
    buffers = [hal.zeros(1, hal.float32, device) for _ in range(30)]
    vals = tuple(n % 2 == 1 if kinds[n % 5] == "bool_" else n for n in range(40))
    program(*buffers, vals=vals, threads=1)
    expected = [float(sum(vals[m] for m in range(n, 40, 30))) for n in range(30)]
    assert [float(one.numpy()[0]) for one in buffers] == expected


@pytest.mark.parametrize(("pointers", "fits"), [(31, True), (32, False)])
def test_a_source_has_31_entries(device, pointers, fits):
    head = ", ".join(f"device int *p{n} [[buffer({n})]]" for n in range(pointers))
    signature = ", ".join(f"p{n}: int32*" for n in range(pointers))
    body = " ".join(f"p{n}[0] = {n};" for n in range(pointers))
    if not fits:
        with pytest.raises(hal.Unsupported, match=r"too many arguments \(got 32; 31 entries"):
            device.compile(source("many", head, body, signature))
        return
    buffers = [hal.zeros(1, hal.int32, device) for _ in range(pointers)]
    device.compile(source("many", head, body, signature))(*buffers, threads=1)
    assert [int(one.numpy()[0]) for one in buffers] == list(range(31))


def test_empty_buffers_and_launches_without_threads(device, control):
    program = device.compile(saxpy)
    none = hal.empty(0, hal.float32, device)
    y = hal.zeros(4, hal.float32, device)
    program(none, none, vals=(1.0, 0), threads=4)
    device.synchronize()
    control.messages.clear()
    program(y, y, vals=(1.0, 4), threads=0)
    assert program(y, y, vals=(1.0, 4), grid=(1, 0, 1), block=4, wait=True) == 0.0
    assert not control.messages


def test_values_are_limited_to_4096_bytes(device):
    signature = ", ".join(["y: int64*", *(f"v{n}: int64" for n in range(513))])
    kernel = hal.Signature.parse("sum", signature)
    from hal_metal.arguments import check_room

    check_room(kernel._replace(params=kernel.params[:513]), True, "compile", "METAL")
    with pytest.raises(hal.Unsupported, match=r"too large together \(got 4104; 4096 bytes\)"):
        check_room(kernel, True, "compile", "METAL")


# -- blocks and shared memory


def test_dynamic_shared_memory_is_rounded_to_16_and_limited(device):
    program = device.compile(
        source("turn", "device int *y [[buffer(0)]], threadgroup int *t [[threadgroup(0)]], "
               "threadgroup int *u, "  # Metal counts it itself
               "uint i [[thread_position_in_threadgroup]], uint n [[threads_per_threadgroup]]",
               "t[i] = u[n - 1 - i] = y[i]; threadgroup_barrier(mem_flags::mem_threadgroup);"
               "y[i] = t[n - 1 - i];", "y: int32*")
    )  # fmt: skip
    y = hal.Buffer.from_numpy(np.arange(5, dtype="i4"), device)
    for _ in range(2):
        with pytest.raises(
            hal.InvalidArgument, match=r"turn.*no memory for .*\[\[threadgroup\(n\)"
        ):
            program(y, threads=5, block=5)
    program(y, threads=5, block=5, shared=20)
    assert y.numpy().tolist() == [4, 3, 2, 1, 0]
    program(y, grid=1, block=5, shared=16384)
    with pytest.raises(hal.InvalidArgument, match=r"of each.*got 16400; limit 16384"):
        program(y, grid=1, block=5, shared=16385)


def test_shared_memory_beside_the_kernels_own(device):
    program = device.compile(
        source("own", "device int *y [[buffer(0)]], threadgroup int *t [[threadgroup(0)]]",
               "threadgroup int a[4001]; a[0] = 1; t[0] = 2; y[0] = a[0] + t[0];", "y: int32*")
    )  # fmt: skip
    assert program.info.shared_nbytes == 16016
    y = hal.zeros(1, hal.int32, device)
    program(y, grid=1, block=1, shared=16752)
    assert y.numpy()[0] == 3
    with pytest.raises(hal.InvalidArgument, match="shared memory"):
        program(y, grid=1, block=1, shared=16753)


def test_a_pipeline_that_allows_fewer_threads(device, control):
    control.most_threads = 64
    plain = device.compile(saxpy.lower())
    assert plain.info.max_block_threads == 64
    y = hal.zeros(200, hal.float32, device)
    plain(y, y, vals=(1.0, 200), threads=200)  # in blocks that fit
    with pytest.raises(hal.InvalidArgument, match=r"too many threads \(got 65; 64\)|got 65.*64"):
        plain(y, y, vals=(1.0, 200), grid=1, block=65)

    @hal.kernel(block=(128, 1, 1))
    def fixed(y: hal.Ptr[hal.float32]) -> None:
        y[hal.thread_idx(0)] = 1.0

    with pytest.raises(hal.Unsupported, match=r"fewer threads.*got \(128, 1, 1\); (limit )?64"):
        device.compile(fixed)


# -- text


REFUSED = {
    "broken": (
        lambda: source("bad", "device int *y [[buffer(0)]]", "\ny[0] = nothing;", "y: int32*"),
        hal.CompileError, "nothing",
    ),
    "no entry": (
        lambda: hal.Source("other", HEAD + "kernel void one(device int *y [[buffer(0)]]) {}\n",
                           "y: int32*", language="metal"),
        hal.CompileError, "no kernel 'other', it has one",
    ),
    "no address space": (
        lambda: source("bad", "int *y [[buffer(0)]]", "y[0] = 1;", "y: int32*"),
        hal.CompileError, "compile bad",
    ),
    "float64": (
        lambda: source("bad", "device float *y [[buffer(0)]]", "", "y: float64*"),
        hal.Unsupported, "float64",
    ),
    "options": (
        lambda: source("bad", "device int *y [[buffer(0)]]", "", "y: int32*", options=("-O3",)),
        hal.Unsupported, "takes no options",
    ),
    "an array of textures": (
        lambda: source("bad", "texture2d_array<float> t [[texture(0)]]", "", ""),
        hal.Unsupported, r"argument 't' is a texture.*got 'texture2d_array<float> t \[\[texture",
    ),
    "a sampler": (
        lambda: source("bad", "sampler s [[sampler(0)]]", "", ""),
        hal.Unsupported, "argument 's' is a sampler, and kernels take.* Write it into the",
    ),
    "a macro of two lines": (
        lambda: source("bad", "device int *y [[buffer(0)]]", "", "y: int32*",
                       defines={"A": "1\n2"}),
        hal.InvalidArgument, "macro",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_texts_that_are_refused(device, what):
    make, kind, says = REFUSED[what]
    with pytest.raises(kind, match=says) as caught:
        device.compile(make())
    assert "METAL" in str(caught.value) or kind is hal.InvalidArgument
    if what == "broken":
        assert caught.value.line == 4 and "nothing" in caught.value.log


def test_macros_are_lines_above_the_text(device):
    kernel = source("scaled", f"device int *y [[buffer(0)]], {PLACE}", "y[i] = FACTOR * i;",
                    "y: int32*", defines={"FACTOR": "(3 + 4)"})  # fmt: skip
    y = hal.zeros(4, hal.int32, device)
    device.compile(kernel)(y, threads=4, block=4)
    assert y.numpy().tolist() == [0, 7, 14, 21]


def test_P17_a_union_is_a_value_of_its_size(device):
    text = "#include <metal_stdlib>\nunion two { float parts[2]; int bits[2]; };"
    text += "kernel void f(device float *y, constant union two &u) { y[0] = u.parts[1]; }"
    source = hal.Source("f", text, "y: float32*, u: complex64", language="metal")
    y = hal.zeros(1, hal.float32, device)
    device.compile(source)(y, 3 + 4j, threads=1)
    assert y.numpy().tolist() == [4]


# -- images


def test_a_kept_library_is_not_compiled_again(device, control):
    program = device.compile(saxpy.lower())
    compiled = "newLibraryWithSource:options:error:"
    control.messages.clear()
    again = device.load(program.binary)
    assert control.messages[compiled] == 0
    device.libraries.clear()
    device.load(program.binary)
    assert control.messages[compiled] == 1
    y = hal.zeros(3, hal.float32, device)
    again(y, y, vals=(1.0, 3), threads=3)
    device.synchronize()


def test_libraries_of_the_last_images_are_kept(device, control):
    from hal_metal.device import KEPT_LIBRARIES

    for number in range(KEPT_LIBRARIES + 3):
        device.keep_library(str(number).encode(), number)
    kept = device.libraries
    assert len(kept) == KEPT_LIBRARIES and b"2" not in kept and b"3" in kept
    kept.clear()


def test_the_key_of_the_cache_has_system_language_and_math(device):
    said = device.compiler.identity
    assert re.match(r"Metal 3_\d, safe math, apple\d+, macOS Version \S+ \(Build \w+\)", said)
