"""Memory: what the host sees, blits, foreign buffers, no room."""

import ctypes

import numpy as np
import pytest

import hal_core as hal


def test_copies_and_fills_go_by_blit_where_metal_takes_them(device, control):
    made = hal.zeros(64, hal.uint8, device)
    other = hal.zeros(64, hal.uint8, device)
    device.synchronize()
    rows = [
        (lambda: made.copy_from(other), 1), (lambda: made.fill(0xCB), 1),
        (lambda: made.view(8, hal.uint8, 4).copy_from(made.view(8, hal.uint8, 12)), 1),
        (lambda: made.view(8, hal.uint8, 4).copy_from(made.view(8, hal.uint8, 8)), 0),  # overlap
        (lambda: made.view(8, hal.uint8, 2).copy_from(other.view(8, hal.uint8, 4)), 0),
        (lambda: made.view(7, hal.uint8, 4).fill(1), 0),
        (lambda: made.view(4, hal.uint16, 4).fill(0x0102), 0),
        (lambda: hal.zeros(0, hal.uint8, device).fill(1), 0),
    ]  # fmt: skip
    for number, (work, blits) in enumerate(rows):
        control.messages.clear()
        work()
        assert control.messages["blitCommandEncoder"] == blits, number
        device.synchronize()


def test_B7_what_is_no_metal_buffer_is_refused(device, control):
    import objc

    memory = ctypes.create_string_buffer(256)
    fake = (ctypes.c_uint64 * 2)(id(object), 0)
    queue = device.commands
    for pointer in (ctypes.addressof(memory), ctypes.addressof(fake), 8, 1 << 60, (1 << 64) - 8,
                    objc.pyobjc_id(queue), objc.pyobjc_id(device.nothing[0]) + 4):  # fmt: skip
        with pytest.raises(hal.InvalidArgument, match="no MTLBuffer lies at the address"):
            hal.Buffer(device, 4, hal.int32, hal.BufferSpec(external_ptr=pointer)).allocate()


@pytest.mark.usefixtures("control")
def test_B7_a_buffer_of_another_gpu_or_too_small_is_refused(device):
    import objc

    with hal.Device["METAL:1"] as other:
        theirs = hal.zeros(64, hal.int32, other)
        pointer = objc.pyobjc_id(theirs._buf.buffer)
        with pytest.raises(hal.InvalidArgument, match="belongs to another GPU"):
            hal.Buffer(device, 4, hal.int32, hal.BufferSpec(external_ptr=pointer)).allocate()
    ours = hal.zeros(64, hal.int32, device)
    pointer = objc.pyobjc_id(ours._buf.buffer)
    with pytest.raises(hal.InvalidArgument, match=r"too small .got '256 bytes'; needs 260"):
        hal.Buffer(device, 65, hal.int32, hal.BufferSpec(external_ptr=pointer)).allocate()


def test_A4_out_of_memory_in_the_middle(device, control):
    device.allocator.free_cache()
    control.room = 8 << 20
    kept = []
    with pytest.raises(hal.OutOfMemory, match=r"no room for .*bytes in use"):
        while len(kept) < 20:
            kept.append(hal.Buffer(device, 1 << 20, hal.uint8).allocate().fill(7))
    assert 1 <= len(kept) < 20
    assert all(one.numpy()[-1] == 7 for one in kept)
    image = hal.BufferSpec(image=hal.Image(1024, 1024))
    with pytest.raises(hal.OutOfMemory):
        hal.Buffer(device, 1 << 22, hal.float32, image).allocate()
    del kept[:]
    hal.Buffer(device, 1 << 20, hal.uint8).allocate()


def test_dlpack_has_the_id_and_a_byte_offset(device):
    import objc

    from hal_core.buffer import capsule

    made = hal.Buffer.from_numpy(np.arange(64, dtype="i4"), device)
    part = made.view(16, hal.int32, 128)
    assert part.__dlpack_device__() == (1, 0)
    taken = capsule.take(part.__dlpack__(dl_device=(8, 0), max_version=capsule.VERSION))
    assert (taken.pointer, taken.offset) == (objc.pyobjc_id(made._buf.buffer), 128)
    host = np.from_dlpack(part)
    part.fill(5)
    device.synchronize()
    assert host.tolist() == [5] * 16
