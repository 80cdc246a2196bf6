"""F3: files read into buffers and written from them, and all that can go wrong with a file."""

import errno
import gc
import os
import threading

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hal_core as hal
from hal_core.buffer import files

HOST = hal.BufferSpec(host=True)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(files, "_PIECE_NBYTES", 100)


@pytest.fixture
def queued():
    """A device with memory that the host sees, HOST, and with memory that it does not."""
    from hal_testing.fake import FakePlugin

    hal.Device.register_plugin("SIM", FakePlugin(1))
    with hal.Device["SIM"] as device:
        yield device


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "numbers"
    path.write_bytes(bytes(range(250)) * 4)
    return path


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_F3_a_part_of_a_file_is_read_as_numpy_reads_it(data, queued, file):
    dtype = data.draw(st.sampled_from([hal.uint8, hal.int16, hal.float64]))
    offset = data.draw(st.integers(0, 1000))
    size = data.draw(st.integers(0, (1000 - offset) // dtype.itemsize))
    options = data.draw(st.sampled_from([None, HOST]))
    made = hal.Buffer.from_file(file, dtype, offset, size, queued, options)
    expected = np.fromfile(file, dtype.to_numpy(), size, offset=offset)
    assert made.dtype is dtype and made.numpy().tobytes() == expected.tobytes()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    offset=st.integers(0, 1500),
    size=st.integers(0, 700),
    options=st.sampled_from([None, HOST]),
    before=st.booleans(),
)
def test_F3_a_part_of_a_file_is_replaced(queued, file, offset, size, options, before):
    old = bytes(range(250)) * 4 if before else b""
    file.write_bytes(old) if before else file.unlink(missing_ok=True)
    data = np.random.default_rng(size).bytes(size)
    made = hal.Buffer(queued, size, hal.uint8, options).allocate().copyin(data)
    assert made.to_file(file, offset) is made
    expected = old.ljust(offset, b"\0") if size else old
    expected = expected[:offset] + data + expected[offset + size :] if size else expected
    assert file.read_bytes() == expected


def test_F3_by_default_the_rest_of_the_file(queued, file):
    assert hal.Buffer.from_file(file, hal.uint8, 990, device=queued).numpy().tolist() == [
        *range(240, 250)
    ]
    assert hal.Buffer.from_file(str(file).encode(), hal.float32, 1000, device=queued).size == 0
    refusals = {998: "whole number of elements .* Give size="}
    refusals |= {far: f"ends before the offset .got {far}; has 1000 by" for far in (1001, 1 << 70)}
    for offset, said in refusals.items():
        with pytest.raises(hal.InvalidArgument, match=said):
            hal.Buffer.from_file(file, hal.float32, offset, device=queued)


@pytest.mark.parametrize(("offset", "size"), [(0, 1001), (1000, 1), (1 << 70, 1), (996, 1 << 70)])
def test_F3_a_short_file_is_refused_with_the_sizes(queued, file, offset, size):
    with pytest.raises(hal.InvalidArgument, match=r"too short \(got .*; has 1000 bytes\) on SIM"):
        hal.Buffer.from_file(file, hal.uint8, offset, size, queued)
    assert queued.allocator.statistics().live == 0


@pytest.mark.parametrize("offset", [-1, 1.5, None, True])
def test_F3_an_offset_is_an_integer(queued, file, offset):
    with pytest.raises(hal.InvalidArgument, match="offset must be an integer"):
        hal.Buffer.from_file(file, hal.uint8, offset, device=queued)
    with pytest.raises(hal.InvalidArgument, match="offset must be an integer"):
        hal.zeros(4, hal.uint8, queued).to_file(file, offset)


def test_F3_directories_and_files_that_are_not_there(queued, tmp_path):
    full = hal.zeros(4, hal.uint8, queued)
    with pytest.raises(IsADirectoryError) as caught:
        hal.Buffer.from_file(tmp_path, hal.uint8, 0, 1, queued)
    assert caught.value.filename == str(tmp_path) and isinstance(caught.value, hal.InvalidArgument)
    with pytest.raises(IsADirectoryError):
        full.to_file(tmp_path)
    with pytest.raises(FileNotFoundError):
        hal.Buffer.from_file(tmp_path / "absent", hal.uint8, device=queued)
    with pytest.raises(FileNotFoundError):
        full.to_file(tmp_path / "absent" / "file")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no pipes in folders")
@pytest.mark.timeout(20)
def test_F3_a_pipe_is_refused_at_once(queued, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(hal.InvalidArgument, match="no regular file"):
        hal.Buffer.from_file(tmp_path / "pipe", hal.uint8, device=queued)
    with pytest.raises(hal.InvalidArgument, match="no regular file"):
        hal.zeros(4, hal.uint8, queued).to_file(tmp_path / "pipe")


@pytest.mark.parametrize("options", [None, HOST], ids=["device", "host"])
@pytest.mark.parametrize("size", [50, 1000], ids=["a piece", "pieces"])
def test_F3_a_file_that_is_cut_while_it_is_read(queued, file, monkeypatch, options, size):
    read_at = files._read_at

    def cuts(number, memory, at):
        os.truncate(file, size // 2)
        return read_at(number, memory, at)

    monkeypatch.setattr(files, "_read_at", cuts)
    with pytest.raises(hal.InvalidState, match="became shorter while it was read"):
        hal.Buffer.from_file(file, hal.uint8, 0, size, queued, options)
    gc.collect()  # the error's traceback holds the buffer in a cycle
    assert queued.allocator.statistics().live == 0


@pytest.mark.parametrize("call", ["_reserve", "_write_at"])
@pytest.mark.parametrize("existed", [True, False])
def test_F3_a_full_disk_leaves_the_file_as_long_as_it_was(queued, file, monkeypatch, call, existed):
    inner, calls = getattr(files, call), list[int]()

    def full(*arguments):
        calls.append(1)
        if call == "_reserve" or len(calls) > 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        return inner(*arguments)

    if not existed:
        file.unlink()
    monkeypatch.setattr(files, call, full)
    with pytest.raises(OSError, match="No space left"):
        hal.zeros(1000, hal.uint8, queued).to_file(file, 900)
    assert file.exists() is existed
    if existed:
        assert (
            file.stat().st_size == 1000 and file.read_bytes()[:900] == (bytes(range(250)) * 4)[:900]
        )


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="this system cannot reserve room")
def test_F3_the_room_is_reserved_before_a_byte_is_written(queued, file):
    before = file.read_bytes()
    with pytest.raises(OSError):
        hal.zeros(1000, hal.uint8, queued).to_file(file, (1 << 63) - 2000)
    assert file.read_bytes() == before
    with pytest.raises(hal.InvalidArgument, match="beyond the end of any file"):
        hal.zeros(1000, hal.uint8, queued).to_file(file, 1 << 63)


def test_F3_a_failure_of_the_device_leaves_the_file_alone(queued, file):
    buffer, before = hal.zeros(1000, hal.uint8, queued), file.read_bytes()
    queued.synchronize()

    @hal.kernel
    def fails(y: hal.Ptr[hal.uint8]) -> None:
        y[hal.global_idx(0)] = 1

    queued.chip.fail("run")
    queued.compile(fails)(buffer, threads=4)
    with pytest.raises(hal.DeviceFault, match="fails"):
        buffer.to_file(file)
    assert file.read_bytes() == before
    with pytest.raises(hal.InvalidState, match="never allocated"):
        hal.Buffer(queued, 4, hal.uint8).to_file(file)


def test_F3_a_read_waits_for_work_that_uses_the_memory(queued, file):
    """The memory may be a block that an earlier owner's queued copy still writes."""
    first = hal.Buffer(queued, 1000, hal.uint8, HOST).allocate()
    first.copyin(b"\x07" * 1000)
    del first
    gate = hal.Event()
    queued.queue().wait(gate)  # queues keep the memory that they use
    threading.Timer(1, gate.set).start()
    made = hal.Buffer.from_file(file, hal.uint8, 0, 1000, queued, HOST)
    assert made.numpy().tobytes() == file.read_bytes() and not gate.done


@pytest.mark.parametrize("size", [4, 400])  # of one piece, and of some that threads read
@pytest.mark.parametrize("options", [HOST, None])
def test_F3_files_are_refused_in_a_capture(queued, tmp_path, size, options):
    """Captured work has not run yet: a file would get what was there before."""
    path = tmp_path / "numbers"
    path.write_bytes(bytes(size))
    buffer = hal.Buffer(queued, size, hal.uint8, options).ensure_allocated()
    with pytest.raises(hal.InvalidState, match="while a graph is captured"), queued.capture():
        buffer.fill(7).to_file(path)
    assert path.read_bytes() == bytes(size)
    with pytest.raises(hal.InvalidState, match="while a graph is captured"), queued.capture():
        hal.Buffer.from_file(path, hal.uint8, device=queued, options=options)
