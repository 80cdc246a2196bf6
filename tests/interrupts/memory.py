"""Memory: blocks taken and given back, copies, files."""

import os
import tempfile
from pathlib import Path

import numpy as np
from ctrl_c import Scene, expect

import hal_core as hal


def allocates(device):
    """The work takes blocks fresh, filled and from the cache, and gives them back in each way."""
    device.allocator.cache_limit = 3 << 10
    kept = [hal.empty(size, hal.int8, device) for size in (300, 600)]
    views = [kept[0].view(size) for size in (10, 20)]

    def work():
        made = hal.empty(300, hal.int8, device)
        zeros = hal.zeros(100, hal.int8, device)
        kept[1].deallocate()
        again = hal.empty(600, hal.int8, device)
        del made, zeros
        hal.empty(900, hal.int8, device, hal.BufferSpec(nolru=True)).deallocate()
        for size in (900, 2000, 2500):  # the oldest goes from the cache
            hal.empty(size, hal.int8, device)
        again.view(10).fill(1)
        device.allocator.free_cache()

    def check(heard):
        views[0].fill(3)
        expect(kept[0].numpy()[:10].tolist() == [3] * 10, "the view is of other memory")
        expect(
            hal.zeros(100, hal.int8, device).numpy().tolist() == [0] * 100, "memory is not filled"
        )

    return Scene(work, check)


def copies(device):
    x, y = hal.zeros(64, hal.int32, device), hal.zeros(64, hal.int32, device)
    data = np.arange(64, dtype=np.int32)

    def work():
        x.copyin(data)
        y.copy_from(x)
        y.view(16, offset=64).copy_from(x.view(16))
        y.fill(2)
        y.copyout(np.empty_like(data))
        hal.Buffer.from_numpy(data, device).numpy()

    def check(heard):
        x.copyin(data)
        y.copy_from(x)
        expect(y.numpy().tolist() == data.tolist(), "the copy after it is wrong")

    return Scene(work, check)


class NewFile:
    """A path in a folder of its own."""

    def __init__(self, name):
        self._folder = tempfile.TemporaryDirectory()
        self.path = Path(self._folder.name, name)

    def check(self):
        """No other file is beside it, and none of the folder is open."""
        expect(os.listdir(self._folder.name) == [self.path.name], "a file stays")
        expect(not any(map(self._is_here, Path("/proc/self/fd").glob("*"))), "a file stays open")
        self._folder.cleanup()

    def _is_here(self, link):
        try:
            return os.readlink(link).startswith(self._folder.name)
        except OSError:  # the folder of descriptors itself
            return False


def files(device):
    file = NewFile("numbers")
    path = file.path
    x = hal.Buffer.from_numpy(np.arange(5000, dtype=np.int32), device)

    def work():
        x.to_file(path)
        hal.Buffer.from_file(path, hal.int32, device=device)

    def check(heard):
        x.to_file(path)
        read = hal.Buffer.from_file(path, hal.int32, device=device)
        expect(read.numpy().tolist() == list(range(5000)), "the file after it is wrong")
        file.check()

    return Scene(work, check)


SCENES = (allocates, copies, files)
