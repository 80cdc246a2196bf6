"""Metal in software is as strict as Metal: each rule is broken once, and each break is seen."""

import gc
import re

import pytest
from in_threads import results
from metal_software import SYSTEM

pytestmark = pytest.mark.skipif(SYSTEM, reason="this is about Metal in software")

TEXT = """\
#include <metal_stdlib>
using namespace metal;
[[max_total_threads_per_threadgroup(32)]]
kernel void add(device int *y [[buffer(0)]], constant int &a [[buffer(1)]],
                threadgroup int *t [[threadgroup(0)]], uint i [[thread_position_in_grid]]) {
    t[0] = 0;
    y[i] += a;
}
kernel void both(texture2d<uint, access::read_write> x [[texture(0)]]) {
    x.write(x.read(uint2(0, 0)), uint2(1, 0));
}
"""


class Bench:
    """A GPU, used by hand."""

    def __init__(self):
        import Metal
        import objc

        self.objc = objc
        self.device, self.other = Metal.MTLCopyAllDevices()[:2]
        options = Metal.MTLCompileOptions.alloc().init()
        options.setMathMode_(0)
        library, _ = self.device.newLibraryWithSource_options_error_(TEXT, options, None)
        pipeline_of = self.device.newComputePipelineStateWithFunction_options_reflection_error_
        self.pipeline, self.both = (
            pipeline_of(library.newFunctionWithName_(name), 0, None, None)[0]
            for name in ("add", "both")
        )
        self.queue = self.device.newCommandQueue()
        self.buffer = self.device.newBufferWithLength_options_(256, 0)
        self.buffer.contents().as_buffer(256)[:] = bytes(256)

    def commands(self):
        return self.queue.commandBuffer()

    def encoder(self, commands):
        encoder = commands.computeCommandEncoder()
        encoder.setComputePipelineState_(self.pipeline)
        encoder.setBuffer_offset_atIndex_(self.buffer, 0, 0)
        encoder.setBytes_length_atIndex_(b"\5\0\0\0", 4, 1)
        encoder.setThreadgroupMemoryLength_atIndex_(16, 0)
        return encoder

    def dispatch(self, encoder, grid=(2, 1, 1), block=(4, 1, 1)):
        encoder.dispatchThreadgroups_threadsPerThreadgroup_(grid, block)

    def texture(self, format=123, device=None, **fields):
        """Make one of 4 x 2 pixels, of RGBA32Uint if no other format is asked for."""
        import Metal

        asked = Metal.MTLTextureDescriptor.alloc().init()
        asked.setPixelFormat_(format)
        for name, value in {
            "Width": 4,
            "Height": 2,
            "StorageMode": 2,
            "Usage": 3,
            **fields,
        }.items():
            getattr(asked, f"set{name}_")(value)
        return (device or self.device).newTextureWithDescriptor_(asked)

    def pixels(self, offset=0, row=64, layer=0, size=(4, 2, 1), level=0):
        encoder = self.commands().blitCommandEncoder()
        try:
            encoder.copyFromBuffer_sourceOffset_sourceBytesPerRow_sourceBytesPerImage_sourceSize_toTexture_destinationSlice_destinationLevel_destinationOrigin_(
                self.buffer, offset, row, layer, size, self.texture(), 0, level, (0, 0, 0)
            )
        finally:
            encoder.endEncoding()

    def blit(self, *span, overlap=False):
        src, dest, nbytes = span
        to = self.buffer if overlap else self.device.newBufferWithLength_options_(256, 0)
        encoder = self.commands().blitCommandEncoder()
        try:
            encoder.copyFromBuffer_sourceOffset_toBuffer_destinationOffset_size_(
                self.buffer, src, to, dest, nbytes
            )
        finally:
            encoder.endEncoding()


@pytest.fixture
def bench(device):
    import metal_control as control
    import objc

    with objc.autorelease_pool():
        yield Bench()
    control.reset()


def _open_at_commit(bench):
    commands = bench.commands()
    encoder = bench.encoder(commands)
    try:
        commands.commit()
    finally:
        encoder.endEncoding()


def _second_encoder(bench):
    commands = bench.commands()
    encoder = bench.encoder(commands)
    try:
        commands.blitCommandEncoder()
    finally:
        encoder.endEncoding()


def _second_commit(bench):
    commands = bench.commands()
    commands.commit()
    commands.commit()


def _after_commit(bench):
    commands = bench.commands()
    commands.commit()
    commands.computeCommandEncoder()


def _after_the_end(bench):
    encoder = bench.encoder(bench.commands())
    encoder.endEncoding()
    bench.dispatch(encoder)


def _dropped(bench):
    bench.encoder(bench.commands())  # released when its pool ends, which is what is checked


def _encoding(do):
    def run(bench):
        encoder = bench.encoder(bench.commands())
        try:
            do(bench, encoder)
        finally:
            encoder.endEncoding()

    return run


def _bare(bench, encoder):
    encoder.setBuffer_offset_atIndex_(None, 0, 0)
    bench.dispatch(encoder)


def _without_memory(bench, encoder):
    encoder._shared.clear()
    bench.dispatch(encoder)


def _odd_offset(bench, encoder):
    encoder.setBuffer_offset_atIndex_(bench.buffer, 2, 0)
    bench.dispatch(encoder)


def _of_another(bench, encoder):
    theirs = bench.other.newBufferWithLength_options_(16, 0)
    encoder.setBuffer_offset_atIndex_(theirs, 0, 0)


def _bound(format=123, **fields):
    """Launch a kernel that reads and writes a texture."""

    def run(bench, encoder):
        encoder.setComputePipelineState_(bench.both)
        if format:
            encoder.setTexture_atIndex_(bench.texture(format, **fields), 0)
        bench.dispatch(encoder)

    return _encoding(run)


def _much_shared(bench, encoder):
    encoder.setThreadgroupMemoryLength_atIndex_(32768 + 16, 0)
    bench.dispatch(encoder)


RULES = {
    "committed while an encoder is open": _open_at_commit,
    "while another one is open": _second_encoder,
    "committed twice": _second_commit,
    "encoded after its commit": _after_commit,
    "used after endEncoding": _after_the_end,
    "missing buffer binding at index 0": _encoding(_bare),
    "missing threadgroup memory at index 0": _encoding(_without_memory),
    "offset 256 of a buffer of 256": _encoding(
        lambda b, e: e.setBuffer_offset_atIndex_(b.buffer, 256, 0)),
    "between elements": _encoding(_odd_offset),
    "of another device": _encoding(_of_another),
    "index 31 is above 30": _encoding(lambda b, e: e.setBytes_length_atIndex_(b"1234", 4, 31)),
    "setBytes of 4097 bytes": _encoding(
        lambda b, e: e.setBytes_length_atIndex_(bytes(4097), 4097, 1)),
    "not a multiple of 16": _encoding(lambda b, e: e.setThreadgroupMemoryLength_atIndex_(20, 0)),
    "more than 32768 bytes of threadgroup": _encoding(_much_shared),
    "33 threads of a block, limit 32": _encoding(lambda b, e: b.dispatch(e, block=(33, 1, 1))),
    "without threads": _encoding(lambda b, e: b.dispatch(e, grid=(2, 0, 1))),
    "not 4 x n": lambda b: b.blit(2, 0, 8),
    "a blit of 0 bytes": lambda b: b.blit(0, 0, 0),
    "bytes 252 to 260 of a buffer of 256": lambda b: b.blit(252, 0, 8),
    "overlap": lambda b: b.blit(0, 4, 8, overlap=True),
    "private textures only": lambda b: b.texture(StorageMode=0),
    "a texture of 2 axes, and the size (0, 2, 1)": lambda b: b.texture(Width=0),
    "a texture of 1 axes, and the size (4, 2, 1)": lambda b: b.texture(TextureType=0),
    "a texture of 3 axes, and the size (2049, 2, 1)": (
        lambda b: b.texture(TextureType=7, Width=2049)),
    "a texture of another device": _encoding(
        lambda b, e: e.setTexture_atIndex_(b.texture(device=b.other), 0)),
    "texture index 128 is above 127": _encoding(
        lambda b, e: e.setTexture_atIndex_(b.texture(), 128)),
    "missing texture binding at index 0": _bound(0),
    "access::read_write> of 2 axes, 32Float": _bound(125),
    "access::read_write> of 3 axes, 32Uint": _bound(TextureType=7),
    "access::read_write>, and the texture's usage is 1": _bound(Usage=1),
    "access::read_write> of 2 channels, 8Uint": _bound(33),
    "offset 8 or bytes per row between pixels": lambda b: b.pixels(8),
    "a part of a texture of (4, 2, 1)": lambda b: b.pixels(size=(2, 2, 1)),
    "80 bytes for a row of 4": lambda b: b.pixels(row=80),
    "128 for a layer": lambda b: b.pixels(layer=128),
    "bytes 192 to 320 of a buffer of 256": lambda b: b.pixels(192),
    "a buffer of 0 bytes": lambda b: b.device.newBufferWithLength_options_(0, 0),
    "fast math": lambda b: b.device.newLibraryWithSource_options_error_(TEXT, None, None),
}  # fmt: skip


@pytest.mark.parametrize("rule", RULES)
def test_what_ends_the_process_is_an_error_that_is_remembered(bench, rule):
    import metal_control as control

    with pytest.raises(control.ProcessEnds, match=re.escape(rule)):
        RULES[rule](bench)
    assert len(control.aborts) == 1


def test_an_encoder_that_is_dropped_ends_the_process(bench):
    import metal_control as control

    with bench.objc.autorelease_pool():
        _dropped(bench)
    gc.collect()
    assert control.aborts == ["an encoder is released without endEncoding"]


WRONG = {
    "count": (lambda b: b.buffer.contents(1), "takes 0 arguments, not 1"),
    "type": (lambda b: b.device.newBufferWithLength_options_("8", 0), "argument 0 is '8', not Q"),
    "negative": (lambda b: b.device.newBufferWithLength_options_(-1, 0), "is -1, not Q"),
    "out": (lambda b: b.device.newComputePipelineStateWithFunction_options_reflection_error_(
        None, 0, None, 5), "pass None"),
    "byte": (lambda b: b.commands().blitCommandEncoder().fillBuffer_range_value_(
        b.buffer, (0, 4), 200), "is 200, not z"),
    "size": (lambda b: b.dispatch(b.encoder(b.commands()), grid=(1, 1)), "not {MTLSize=QQQ}"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_arguments_are_those_of_pyobjcs_table(bench, what):
    do, says = WRONG[what]
    with pytest.raises(TypeError, match=re.escape(says)):
        do(bench)
    gc.collect()


def test_in_buffers_have_their_length(bench):
    encoder = bench.encoder(bench.commands())
    with pytest.raises(ValueError, match="3 bytes, and the length 4"):
        encoder.setBytes_length_atIndex_(b"123", 4, 1)
    encoder.endEncoding()


def test_a_selector_that_the_table_lacks_cannot_be_written(bench):
    import Metal

    with pytest.raises(TypeError, match="no selector newBufferWithSize:"):
        type("Wrong", (Metal.MTLDevice,), {"newBufferWithSize_": lambda self, n: None})
    with pytest.raises(AttributeError):
        _ = Metal.MTLNoSuchConstant
    assert (Metal.MTLCommandBufferStatusError, Metal.MTLMathModeSafe) == (5, 0)


def test_ownership_is_counted(bench):
    import metal_control as control
    import objc

    rows = objc._registered.pop("newSharedEvent")
    try:
        bench.device.newSharedEvent()
    finally:
        objc._registered["newSharedEvent"] = rows
    assert len(control.over_retained) == 1
    results(bench.device.name)  # a thread has no pool
    assert control.outside == [("name", "Software GPU 0")]


def test_metadata_that_comes_after_the_first_device_is_not_seen(bench):
    import objc

    before = dict(objc._registered)
    objc.registerMetaDataForSelector(b"NSObject", b"commit", {"retval": {"type": b"v"}})
    assert objc._registered == before


def test_an_out_parameter_that_is_not_restated_is_forgotten(bench):
    import objc

    selector = "newLibraryWithSource:options:error:"
    row = objc._registered[selector]
    objc._registered[selector] = {"retval": {"type": "@", "already_retained": True}}
    try:
        with pytest.raises(TypeError, match="nobody says that argument 2 is an out one"):
            bench.device.newLibraryWithSource_options_error_(TEXT, None, None)
    finally:
        objc._registered[selector] = row
