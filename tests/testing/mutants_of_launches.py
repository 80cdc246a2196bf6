"""Mutants whose kernels, launches, order, times or compilers are wrong."""

import time

import numpy as np
from mutants import around, mutant

from hal_core.errors import HalError
from hal_core.geometry import Rules
from hal_testing.fake import chip, chip_kernels, driver
from hal_testing.fake.allocator import FakeAllocator
from hal_testing.fake.chip import Block, Chip
from hal_testing.fake.device import FakeDevice
from hal_testing.fake.program import FakeProgram

# -- which threads run


def _interprets(change):
    """Replace each launch by the ones that `change(grid, block)` returns."""

    @around(Chip, "_interpret")
    def _interpret(inner, self, kernel, args, grid, block, done):
        for times in change(grid, block):
            status = int(inner(self, kernel, args, *times, done))
        return status


@mutant("P6", "program")
def launch_runs_one_block_twice():
    _interprets(lambda grid, block: [(grid, block), ((1, 1, 1), block)])


@mutant("P6", "program")
def block_x_and_y_are_swapped():
    _interprets(lambda grid, block: [(grid, (block[1], block[0], block[2]))])


@mutant("P6", "program", Rules, "blocks_of")
def surplus_threads_do_not_run(inner, self, grid, block, threads):
    if threads is not None and self.fixed is None:
        grid, block, threads = threads, 1, None
    return inner(self, grid, block, threads)


@mutant("P5", "program", Rules, "blocks_of")
def zero_launches_one(inner, self, *extents):
    return tuple(max(1, n) for n in inner(self, *extents))


# -- arguments


def _changes_values(change):
    """Replace the numbers of each launch by what `change` returns for them."""

    @around(Chip, "launch")
    def launch(inner, self, program, args, *rest):
        values = iter(change([arg for arg in args if not isinstance(arg, Block | None)]))
        args = tuple(arg if isinstance(arg, Block | None) else next(values) for arg in args)
        return int(inner(self, program, args, *rest))


@mutant("P3 P6", "program")
def values_are_swapped():
    _changes_values(lambda values: values[::-1])


@mutant("P3", "program")
def values_have_sixteen_bits():
    _changes_values(
        lambda values: [
            int(np.int64(value).astype(np.int16)) if type(value) is int and 0 < value < 1 << 63
            else value
            for value in values
        ]
    )  # fmt: skip


@mutant("V3 P7", "view language", chip_kernels, "_elements")
def nans_are_made_alike(inner, memory, dtype):
    found = inner(memory, dtype)
    if found.dtype.kind == "f":
        found[np.isnan(found)] = np.nan
    return found


@mutant("X1", "process", FakeProgram, "_bind")
def threads_share_the_storage_of_arguments(inner, self):
    launch, storage = inner(self), [None] * len(self.signature.params)

    def shared(geometry, *args):
        storage[:] = args
        time.sleep(0)  # as a binding that releases the GIL
        launch(geometry, *storage)

    return shared


# -- order


@mutant("P8", "program process", Chip, "copy")
def copies_overtake_launches(inner, self, dest, src, nbytes):
    with self._lock:
        if any(work.call == "write" for work in self._queue):
            return int(inner(self, dest, src, nbytes))
        return int(self._put(dest, bytes(self._at(src, nbytes))))


@mutant("P8 P6 P3 P5", "program", Chip, "read")
def reads_do_not_wait_for_launches(inner, self, dest, src):
    with self._lock:
        launches = [work for work in self._queue if work.call == "run"]
        self._queue = type(self._queue)(work for work in self._queue if work.call != "run")
        try:
            return int(inner(self, dest, src))
        finally:
            self._queue.extend(launches)


@mutant("P8", "program process", Chip, "_drain")
def the_queue_is_a_stack(inner, self, *args, **named):
    tail = []
    while self._queue and self._queue[-1].call == "run":
        tail.append(self._queue.pop())
    self._queue.extend(tail)
    return inner(self, *args, **named)


@mutant("synchronize", "program", FakeDevice, "_synchronize")
def waiting_returns_at_once(inner, self, timeout):
    return True


@mutant("P9", "process", FakeDevice, "close")
def close_does_not_wait(inner, self):
    self.chip._queue.clear()
    inner(self)


# -- times


@mutant("P4", "program", FakeProgram, "_launch_timed")
def times_are_missing(inner, self, geometry, args):
    inner(self, geometry, args)


@mutant("P4", "program", FakeProgram, "_launch_timed")
def times_are_known_before_the_end(inner, self, geometry, args):
    start = time.perf_counter()
    self._bind()(geometry, *args)
    return time.perf_counter() - start


# -- binaries and failures


@mutant("P1", "program", Chip, "load")
def the_name_of_the_entry_is_ignored(inner, self, image, entry):
    for line in image.decode(errors="replace").splitlines():
        words = line.replace("(", " ").split()
        for word in words[:3]:
            status, handle = inner(self, image, word)
            if status == chip.OK:
                return status, handle
    return inner(self, image, entry)


@mutant("P1", "program", driver, "check")
def a_bad_binary_is_another_error(inner, call, status, *rest):
    inner(call, chip.FAULT if status == chip.BAD_BINARY else status, *rest)


@mutant("P10", "program process")
def unloading_does_nothing():
    FakeProgram._unload = lambda self: None  # type: ignore[method-assign]


@mutant("P10", "program", Chip, "unload")
def unloading_does_not_wait_for_the_queue(inner, self, program):
    kernel = self._programs.get(program)
    name = kernel.name if kernel is not None else ""
    self._queue = type(self._queue)(work for work in self._queue if work.name != name)
    return int(inner(self, program))


@mutant("P9", "process", Chip, "_drain")
def failures_on_the_device_are_not_raised(inner, self, *args, **named):
    inner(self, *args, **named)
    return chip.OK


@mutant("P9", "process", FakeDevice, "check")
def failures_name_no_program(inner, self, call, status):
    driver.check(call, status, self.name)


@mutant("P9", "process", driver, "check")
def failures_are_raw_errors(inner, *args):
    try:
        inner(*args)
    except HalError as error:
        raise RuntimeError(str(error)) from None


@mutant("P5", "program")
def blocks_beyond_a_limit_are_cut():
    _interprets(lambda grid, block: [(grid, (min(block[0], 128), *block[1:]))])


# -- names


@mutant("the_names_of_base_classes", "program")
def a_program_keeps_its_own_things_under_a_name_of_the_base_class():
    whole = FakeProgram.__init__

    def __init__(self, *parts):
        whole(self, *parts)
        self._unloaded = False

    FakeProgram.__init__ = __init__  # type: ignore[method-assign]


@mutant("the_names_of_base_classes", "program")
def a_class_attribute_has_the_name_of_an_attribute_of_the_base_class():
    FakeAllocator._held = 0
