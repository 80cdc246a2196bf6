"""Arrays, and kernels that see them through objects; hal-cuda's test_images.py reads textures."""

import ctypes
import struct

import pytest
from driver_kernels import entry

INVALID, NOT_SUPPORTED, FAULT, TRAPPED, ILLEGAL, MISALIGNED = 1, 801, 700, 719, 715, 716
U8, U32, FLOAT = 1, 3, 32
CLAMP, LINEAR, AS_INTEGERS, NORMALISED, SURFACES = 1, 1, 1, 2, 2


def array(cuda, *sizes, format=FLOAT, channels=1):
    sizes = (*sizes, 0, 0)[:3]
    return cuda.get("cuArray3DCreate", struct.pack("3Q3I", *sizes, format, channels, SURFACES))


def texture(cuda, of):
    sampling = struct.pack("5I84x", CLAMP, CLAMP, CLAMP, 0, AS_INTEGERS)
    return cuda.get("cuTexObjectCreate", struct.pack("I4xQ128x", 0, of), sampling, None)


def surface(cuda, of):
    return cuda.get("cuSurfObjectCreate", struct.pack("I4xQ128x", 0, of))


def box(dest, src, *extent, offsets=(0, 0, 0)):
    """The copy of a box; a list of one is an array, and starts at the offsets."""
    width, height, depth = (*extent, 1, 1)[:3]
    packed = b""
    for side in (src, dest):
        start, kind = (offsets, 3) if isinstance(side, list) else ((0, 0, 0), 4)
        address, handle = (0, side[0]) if isinstance(side, list) else (side, 0)
        packed += struct.pack("4QI4x6Q", *start, 0, kind, 0, address, handle, 0, width, height)
    return packed + struct.pack("3Q", width, height, depth)


def put(cuda, of, data, *extent):
    address = cuda.alloc(len(data))
    cuda.cuMemcpyHtoD(address, data, len(data))
    cuda.cuMemcpy3DAsync(box([of], address, *extent), 0)
    cuda.cuMemFree(address)


def pixels(cuda, of, nbytes, *extent):
    address = cuda.alloc(nbytes)
    cuda.cuMemcpy3DAsync(box(address, [of], *extent), 0)
    data = cuda.read(address, nbytes)
    cuda.cuMemFree(address)
    return data


def drop(cuda, of, textures=(), surfaces=()):
    for one in textures:
        cuda.cuTexObjectDestroy(one)
    for one in surfaces:
        cuda.cuSurfObjectDestroy(one)
    cuda.cuArrayDestroy(of)


def test_copies_that_no_array_has_room_for(cuda):
    of, address = array(cuda, 4, 2), cuda.alloc(64)
    for extent, offsets in {
        (20, 1): (0, 0, 0), (16, 3): (0, 0, 0), (16, 1): (0, 2, 0), (6, 1): (0, 0, 0),
        (16, 2, 2): (0, 0, 0), (0, 1): (0, 0, 0),
    }.items():  # fmt: skip
        assert cuda.code.cuMemcpy3DAsync(box([of], address, *extent, offsets=offsets), 0) == INVALID
    other = array(cuda, 2, 2, channels=2)  # rows of as many bytes
    assert cuda.code.cuMemcpy3DAsync(box([of], [other], 16, 2), 0) == INVALID
    drop(cuda, other)
    drop(cuda, of)
    assert cuda.code.cuMemcpy3DAsync(box([of], address, 16, 2), 0) == 400
    cuda.cuMemFree(address)


@pytest.mark.parametrize(
    ("sizes", "format", "channels", "code"),
    [((0, 0, 0), FLOAT, 1, INVALID), ((4, 0, 4), FLOAT, 1, INVALID), ((4, 4, 0), 7, 1, INVALID),
     ((4, 4, 0), FLOAT, 3, INVALID), ((32769, 0, 0), FLOAT, 1, INVALID),
     ((131073, 1, 0), FLOAT, 1, INVALID), ((4, 4, 16385), FLOAT, 1, INVALID)],
)  # fmt: skip
def test_arrays_that_cannot_be(cuda, sizes, format, channels, code):
    out, packed = ctypes.c_uint64(), struct.pack("3Q3I", *sizes, format, channels, SURFACES)
    assert cuda.code.cuArray3DCreate(ctypes.byref(out), packed) == code


def test_objects_that_cannot_be(cuda):
    out = ctypes.c_uint64()
    plain = cuda.get("cuArray3DCreate", struct.pack("3Q3I", 4, 4, 0, U8, 1, 0))
    resource = struct.pack("I4xQ128x", 0, plain)
    assert cuda.code.cuSurfObjectCreate(ctypes.byref(out), resource) == INVALID  # made without
    for sampling in ((CLAMP, LINEAR, 0), (CLAMP, 0, NORMALISED), (0, 0, 0)):
        packed = struct.pack("5I84x", CLAMP, CLAMP, *sampling)
        code = cuda.code.cuTexObjectCreate(ctypes.byref(out), resource, packed, None)
        assert code == NOT_SUPPORTED, sampling
    made = texture(cuda, plain)
    assert cuda.code.cuSurfObjectDestroy(made) == INVALID
    drop(cuda, plain, (made,))
    assert cuda.code.cuTexObjectDestroy(made) == 400


def shifter(beyond, part="b32"):
    """A kernel that moves a pixel of a surface by a number of bytes and rows."""
    return entry(
        "shift",
        ".param .u64 im, .param .b32 x, .param .b32 y, .param .b32 tox, .param .b32 toy",
        f"""
    ld.param.u64 %rd1, [im]; ld.param.b32 %r1, [x]; ld.param.b32 %r2, [y];
    ld.param.b32 %r3, [tox]; ld.param.b32 %r4, [toy];
    suld.b.2d.{part}.{beyond} {{%r5}}, [%rd1, {{%r1, %r2}}];
    sust.b.2d.{part}.{beyond} [%rd1, {{%r3, %r4}}], {{%r5}};
""",
    )


@pytest.mark.parametrize(
    ("beyond", "at", "wanted"),
    [("trap", (4, 1, 0, 0), [4, 2, 3, 4]), ("clamp", (99, -1, -8, 9), [1, 2, 2, 4]),
     ("zero", (99, -1, 0, 1), [1, 2, 0, 4]), ("zero", (0, 0, 0, 2), [1, 2, 3, 4])],
)  # fmt: skip
def test_a_surface_is_read_and_written(cuda, beyond, at, wanted):
    of = array(cuda, 2, 2, format=U32)
    put(cuda, of, struct.pack("4I", 1, 2, 3, 4), 8, 2)
    made, module = surface(cuda, of), cuda.module(shifter(beyond))
    cuda.launch(cuda.function(module, "shift"), made, *map(ctypes.c_int32, at))
    assert list(struct.unpack("4I", pixels(cuda, of, 16, 8, 2))) == wanted
    cuda.cuModuleUnload(module)
    drop(cuda, of, (), (made,))


@pytest.mark.parametrize(
    ("which", "at", "code", "message"),
    [("surface", (8, 0, 0, 0), TRAPPED, "a surface ends at"),
     ("surface", (2, 0, 0, 0), MISALIGNED, "no multiple of 4"),
     ("texture", (0, 0, 0, 0), ILLEGAL, "a texture object where a surface belongs"),
     ("cube", (0, 0, 0, 0), ILLEGAL, "a surface of 3 axes, taken for one of 2"),
     ("gone", (0, 0, 0, 0), FAULT, "no surface object")],
)  # fmt: skip
def test_what_a_kernel_does_wrong_with_an_image(load_driver, which, at, code, message):
    cuda = load_driver()
    cuda.start()
    of = array(cuda, 2, 2, *[2] * (which == "cube"), format=U32)
    made = texture(cuda, of) if which == "texture" else surface(cuda, of)
    if which == "gone":
        cuda.cuSurfObjectDestroy(made)
    function = cuda.function(cuda.module(shifter("trap")), "shift")
    cuda.launch(function, made, *map(ctypes.c_int32, at))
    assert cuda.code.cuCtxSynchronize() == code
    assert message in cuda.message()


def test_a_ready_graph_keeps_its_copies_of_arrays(cuda):
    of, other = array(cuda, 4), array(cuda, 4)
    address, context = cuda.alloc(16), cuda.contexts[0]
    cuda.cuMemsetD32(address, 7, 4)
    graph = cuda.get("cuGraphCreate", 0)
    into, back = box([of], address, 16), box([other], address, 16)
    node = cuda.get("cuGraphAddMemcpyNode", graph, None, 0, into, context)
    ready = cuda.get("cuGraphInstantiate", graph, 0)
    for given in (back, into):
        assert cuda.code.cuGraphExecMemcpyNodeSetParams(ready, node, given, context) == INVALID
    cuda.cuGraphLaunch(ready, 0)
    assert pixels(cuda, of, 16, 16) == struct.pack("4I", 7, 7, 7, 7)
    cuda.cuGraphExecDestroy(ready)
    cuda.cuGraphDestroy(graph)
    cuda.cuMemFree(address)
    drop(cuda, of)
    drop(cuda, other)
