"""Any order of allocations, copies, fills and frees, against a model of plain bytes."""

from __future__ import annotations

import random

import pytest
from driver_calls import Driver

PAGE = 4096


class Model:
    """Blocks of device memory beside what should be in them."""

    def __init__(self, cuda: Driver, seed: int) -> None:
        self.cuda, self.random = cuda, random.Random(seed)
        self.blocks: dict[int, bytearray] = {}

    def alloc(self) -> None:
        nbytes = self.random.choice([1, 3, 64, 511, PAGE, 3 * PAGE + 5])
        address = self.cuda.alloc(nbytes)
        self.blocks[address] = bytearray(self.cuda.read(address, nbytes))

    def free(self) -> None:
        address = self.random.choice(list(self.blocks))
        del self.blocks[address]
        self.cuda.cuMemFree(address)

    def span(self) -> tuple[int, int, int]:
        address = self.random.choice(list(self.blocks))
        size = len(self.blocks[address])
        start = self.random.randrange(size)
        return address, start, self.random.randint(1, size - start)

    def write(self) -> None:
        address, start, nbytes = self.span()
        data = self.random.randbytes(nbytes)
        self.cuda.write(address + start, data)
        self.blocks[address][start : start + nbytes] = data

    def fill(self) -> None:
        address, start, nbytes = self.span()
        size = self.random.choice([1, 2, 4])
        start, count = start // size * size, nbytes // size
        value = self.random.randrange(1 << 8 * size)
        getattr(self.cuda, f"cuMemsetD{8 * size}")(address + start, value, count)
        data = value.to_bytes(size, "little") * count
        self.blocks[address][start : start + len(data)] = data

    def copy(self) -> None:
        source, start, nbytes = self.span()
        target, place, room = self.span()
        nbytes = min(nbytes, room)
        name = self.random.choice(["cuMemcpyDtoD", "cuMemcpy"])
        getattr(self.cuda, name)(target + place, source + start, nbytes)
        data = bytes(self.blocks[source][start : start + nbytes])
        self.blocks[target][place : place + nbytes] = data

    def check(self) -> None:
        for address, data in self.blocks.items():
            assert self.cuda.read(address, len(data)) == bytes(data)


@pytest.mark.parametrize("seed", range(8))
def test_any_order_of_calls_against_the_model(cuda: Driver, seed: int) -> None:
    model = Model(cuda, seed)
    model.alloc()
    for step in range(120):
        many = len(model.blocks) > 6
        calls = [model.write, model.fill, model.copy, model.free if many else model.alloc]
        model.random.choice(calls)()
        if step % 20 == 0:
            model.check()
    model.check()
    assert cuda.live()["nbytes"] == sum(map(len, model.blocks.values()))
    for address in model.blocks:
        cuda.cuMemFree(address)
