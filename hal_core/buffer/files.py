"""Reading files into buffers, and writing buffers to files.

A file is cut into pieces, and a few threads work at once. Where the host sees the memory they read
straight into it; elsewhere each has some memory of the host, and one copies to the device while
another reads. No file is mapped: one that another process cuts would end this process by SIGBUS.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hal_core.buffer.host import in_place
from hal_core.concurrency import start_thread, suppress, unless_of_a_signal
from hal_core.dtypes import uint8
from hal_core.errors import InvalidArgument, InvalidState, shown
from hal_core.files import as_path, explained
from hal_core.queue import check_no_capture

if TYPE_CHECKING:
    from hal_core.buffer import Buffer

Path = str | bytes | os.PathLike[str] | os.PathLike[bytes]

_PIECE_NBYTES = 8 << 20
_THREADS = 4
# Captured work has not run yet: the file would get what was there before.
_IN_CAPTURE = "a file cannot be used"
_MOST = (1 << 63) - 1  # bytes of a file
_FLAGS = getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
_seek_lock = threading.Lock()  # where a file has one position for all threads
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)  # to open a pipe would wait for its other end


def elements_in(path: Path, itemsize: int, offset: int, operation: str) -> int:
    """Count the elements from a byte of a file to its end.

    Raises: OSError, InvalidState, InvalidArgument for a file that ends elsewhere than after an
    element.
    """
    check_no_capture(operation, _IN_CAPTURE)
    with open_file(path, os.O_RDONLY, operation) as file:
        nbytes = os.fstat(file).st_size - offset
    if nbytes < 0:
        raise InvalidArgument(
            operation, f"{os.fspath(path)!r} ends before the offset", got=offset,
            limit=f"has {offset + nbytes} bytes", fix="offset counts bytes.",
        )  # fmt: skip
    if nbytes % itemsize:
        raise InvalidArgument(
            operation, f"{os.fspath(path)!r} does not end after a whole number of elements",
            got=f"{shown(nbytes)} bytes from byte {shown(offset)}",
            limit=f"a multiple of {itemsize}", fix="Give size=, in elements.",
        )  # fmt: skip
    return nbytes // itemsize


def read(buffer: Buffer, path: Path, offset: int, operation: str) -> None:
    """Fill the buffer from a byte of a file on. Raises: OSError, InvalidArgument, InvalidState."""
    check_no_capture(operation, _IN_CAPTURE)
    with open_file(path, os.O_RDONLY, operation) as file:
        length = os.fstat(file).st_size
        if offset + buffer.nbytes > length:
            raise InvalidArgument(
                operation, f"{os.fspath(path)!r} is too short",
                got=f"{buffer.nbytes} bytes from byte {shown(offset)}", limit=f"has {length} bytes",
                device=buffer.device, fix="size counts elements, offset bytes.",
            )  # fmt: skip

        buffer.ensure_allocated()

        def fill(memory: memoryview, start: int) -> None:
            done = 0
            while done < len(memory):
                count = _read_at(file, memory[done:], offset + start + done)
                if not count:
                    problem = f"{os.fspath(path)!r} became shorter while it was read"
                    fix = "Read it again when its writer is done."
                    raise InvalidState(operation, problem, device=buffer.device, fix=fix)
                done += count

        _in_pieces(buffer, operation, fill, writes_file=False)


def write(buffer: Buffer, path: Path, offset: int, operation: str) -> None:
    """Write the buffer's bytes into a file from a byte on. Raises: OSError, InvalidArgument.

    What can fail on the device fails before the file is touched, and a full disk before a byte is
    written, where the system can reserve room. A file that was made for this goes after a failure.
    """
    buffer._opaque_to_read(operation)
    buffer._device.synchronize()
    if offset + buffer.nbytes > _MOST:
        problem, got = "beyond the end of any file", shown(offset)
        raise InvalidArgument(operation, problem, got=got, limit=_MOST, device=buffer.device)
    check_no_capture(operation, _IN_CAPTURE)
    existed = os.path.lexists(as_path(path, operation))
    with open_file(path, os.O_RDWR | os.O_CREAT, operation) as file:
        length = os.fstat(file).st_size

        def put(memory: memoryview, start: int) -> None:
            while memory:
                count = _write_at(file, memory, offset + start)
                memory, start = memory[count:], start + count

        try:
            _reserve(file, offset, buffer.nbytes)
            _in_pieces(buffer, operation, put, writes_file=True)
        except BaseException:
            os.truncate(file, length)
            if not existed:
                os.unlink(path)
            raise


def _reserve(file: int, offset: int, nbytes: int) -> None:
    """Make room in a file, where the system can. Raises: OSError when the disk is full."""
    if not nbytes or not hasattr(os, "posix_fallocate"):
        return
    try:
        os.posix_fallocate(file, offset, nbytes)
    except unless_of_a_signal(OSError) as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
            raise


def _in_pieces(
    buffer: Buffer, operation: str, move: Callable[[memoryview, int], None], *, writes_file: bool
) -> None:
    """Call `move` for each piece, as memory of the host, with its first byte; a few at a time."""
    whole = buffer.options.image is not None  # an image has no parts
    size = max(1, buffer.nbytes) if whole else _PIECE_NBYTES
    starts = range(0, buffer.nbytes, size)
    seen = buffer._device.allocator._host_sees(buffer.options)
    memory = in_place(buffer, operation, is_new=not writes_file).data if seen else None

    def work(start: int) -> None:
        if memory is not None:
            move(memory[start : start + size], start)
            return
        part = buffer if whole else buffer.view(min(size, buffer.nbytes - start), uint8, start)
        staging = memoryview(bytearray(part.nbytes))
        if writes_file:
            part.copyout(staging)
        move(staging, start)
        if not writes_file:
            part.copyin(staging)

    _share(work, iter(starts), min(len(starts), _THREADS))


def _share(work: Callable[[int], None], starts: Iterator[int], threads: int) -> None:
    """Call `work` for each start, in this thread and others. After a failure none is begun.

    Where no thread can be started, as while Python ends, this one does all.
    """
    failed, others = list[BaseException](), list[threading.Thread]()

    def help() -> None:
        try:
            for start in starts:  # one step under the GIL gives each to one thread
                work(start)
        except BaseException as error:
            failed.append(error)
            deque(starts, 0)  # leaves none

    try:
        with suppress(InvalidState):
            others += (start_thread("hal-file", help) for _ in range(threads - 1))
        for start in starts:
            work(start)
    finally:
        deque(starts, 0)
        for thread in others:
            thread.join()
    if failed:
        raise failed[0]


@contextmanager
def open_file(path: Path, flags: int, operation: str) -> Iterator[int]:
    """Open a regular file. Raises: OSError, InvalidArgument for a pipe."""
    text = as_path(path, operation)
    with explained(operation, text, "the file cannot be used"):
        # In one step: behind a call of `os.open` Ctrl-C may come, and nobody would close the file.
        (file,) = map(os.open, [text], [flags | _FLAGS | _NO_WAIT], [0o666])
        try:
            mode = os.fstat(file).st_mode
            if stat.S_ISDIR(mode):  # as the system says to one who would write it
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            if not stat.S_ISREG(mode):
                problem = f"{text!r} is no regular file"
                fix = "Pipes and devices have no offsets: read them with Python."
                raise InvalidArgument(operation, problem, fix=fix)
            yield file
        finally:
            os.close(file)


def _read_at(file: int, memory: memoryview, at: int) -> int:
    if hasattr(os, "preadv"):
        return os.preadv(file, [memory], at)
    with _seek_lock:
        os.lseek(file, at, os.SEEK_SET)
        data = os.read(file, len(memory))
    memory[: len(data)] = data
    return len(data)


def _write_at(file: int, memory: memoryview, at: int) -> int:
    if hasattr(os, "pwritev"):
        return os.pwritev(file, [memory], at)
    with _seek_lock:
        os.lseek(file, at, os.SEEK_SET)
        return os.write(file, memory)
