"""Test programs: promises P1 to P6, P8, P10 and P11. P7 is in test_language."""

from __future__ import annotations

import math
import re
import time
from typing import Any

import numpy as np
import pytest

import hal_core as hal
from hal_testing.conformance.differential import compiled
from hal_testing.conformance.kernels import (
    add_one,
    add_plainly,
    all_keeper,
    copier,
    count_up,
    keeper,
    slowly,
    tiled,
    triple,
    visit,
)
from hal_testing.conformance.names import taken_from_base
from hal_testing.conformance.raw import buffer_of, pattern, read
from hal_testing.conformance.slow import SlowCounter

# Bytes that begin as formats which a loader could mistake for its own.
FOREIGN = {
    "nothing": b"",
    "one-byte": b"\0",
    "zeros": bytes(5000),
    "noise": pattern(5000),
    "words": b"this is not a program\n",
    "an-ELF-of-another-machine": b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x01\0\xf7\0" + bytes(500),
    "a-Windows-program": b"MZ\x90\0" + bytes(500),
    "a-Mach-O-object": b"\xcf\xfa\xed\xfe" + bytes(500),
    "SPIR-V": b"\x03\x02\x23\x07" + bytes(500),
    "PTX": b".version 7.0\n.target sm_50\n.address_size 64\n",
    "a-zip-file": b"PK\x03\x04" + bytes(500),
}
# The test takes the first pair that the device supports.
WIDEST = ((hal.int64, hal.uint64), (hal.int32, hal.uint32))
VALUE_DTYPES = (
    hal.bool_, hal.int8, hal.int16, hal.int32, hal.int64, hal.uint8, hal.uint16, hal.uint32,
    hal.uint64, hal.float32, hal.float64,
)  # fmt: skip


def spelt(value: Any) -> str:
    """Return a test's id without blanks, as lines of known gaps need it."""
    pairs = [f"{key}={one!r}" for key, one in value.items()] if type(value) is dict else [value]
    return ",".join(map(str, pairs)).replace(" ", "") or "nothing"


def numbers(buffer: hal.Buffer) -> list[Any]:
    found: list[Any] = np.frombuffer(read(buffer), buffer.dtype.to_numpy()).tolist()
    return found


def zeros(device: hal.Compiled, size: int, dtype: hal.DType = hal.int32) -> hal.Buffer:
    return buffer_of(device, bytes(size * dtype.itemsize), dtype)


def works(program: hal.Program) -> None:
    """Check that a program of `count_up` still works."""
    made = zeros(program.device, 5)
    program(made, vals=(7, 5), threads=5)
    assert numbers(made) == [7, 8, 9, 10, 11]


class TestProgram:
    # -- loading

    def test_P1_a_binary_loads_again(self, device: hal.Compiled) -> None:
        program = device.compile(count_up)
        again = device.load(program.binary)
        assert again is not program and again.name == "count_up"
        works(again)
        again.unload()
        works(program)

    @pytest.mark.parametrize("entry", ["nobody", "count", "count_up_", "COUNT_UP", "main"])
    def test_P1_an_entry_that_is_not_there(self, device: hal.Compiled, entry: str) -> None:
        program = device.compile(count_up)
        named = program.binary.interface._replace(signature=program.signature._replace(name=entry))
        with pytest.raises(hal.CompileError, match=entry):
            # Some loaders fall back to the first function of a binary.
            device.load(program.binary._replace(interface=named))
        works(program)

    @pytest.mark.parametrize("image", FOREIGN.values(), ids=FOREIGN)
    def test_P1_what_is_no_binary_is_refused(self, device: hal.Compiled, image: bytes) -> None:
        program = device.compile(count_up)
        with pytest.raises(hal.CompileError, match="count_up"):
            device.load(program.binary._replace(image=image))
        works(program)

    def test_P1_a_binary_of_another_format_is_refused(self, device: hal.Compiled) -> None:
        program = device.compile(count_up)
        other = program.binary._replace(format="papyrus")
        try:
            works(device.load(other))
        except hal.CompileError as error:
            assert re.search(r"the device loads .+, not 'papyrus'", str(error))
        else:
            assert not program.formats, "it looks at the bytes alone"

    # Some formats are loaded lazily: a missing end is found at the launch, or never.
    def test_P1_a_truncated_binary_is_refused(self, device: hal.Compiled) -> None:
        program = device.compile(count_up)
        image = program.binary.image
        for part in (0.02, 0.25, 0.5, 0.75, 0.9):  # fractions, as the formats' sizes differ
            with pytest.raises(hal.CompileError, match="count_up"):
                device.load(program.binary._replace(image=image[: int(len(image) * part)]))
        works(program)

    # -- arguments

    # Each letter of `bufs` is a key of `made` in the test; 1, N and A are no buffers.
    @pytest.mark.parametrize("is_warm", [False, True], ids=["first", "later"])
    @pytest.mark.parametrize(
        ("bufs", "said"),
        [
            ("", "buffers.*got 0.*2"), ("y", "buffers.*got 1.*2"), ("yxx", "buffers.*got 3.*2"),
            ("y1", "'x'.*float32"), ("yN", "'x'.*float32"), ("yA", "'x'.*float32"),
            ("yi", "'x'.*int32.*float32"), ("dx", "'y'.*float64.*float32"),
            ("by", "'y'.*uint8.*float32"),
        ],
        ids=lambda given: given.split(".")[0] or "none",
    )  # fmt: skip
    def test_P2_wrong_buffers(
        self, device: hal.Compiled, bufs: str, said: str, is_warm: bool
    ) -> None:
        data = pattern(32)
        made: dict[str, Any] = {
            "y": buffer_of(device, data, hal.float32), "x": zeros(device, 8, hal.float32),
            "i": zeros(device, 8), "d": zeros(device, 4, hal.float64),
            "b": zeros(device, 32, hal.uint8), "1": 1.5, "N": None, "A": np.zeros(8, np.float32),
        }  # fmt: skip
        # Loaded again, as compile() would return a program that earlier tests have launched.
        program = device.load(device.compile(copier(hal.float32)).binary)
        if is_warm:  # take the fast path, which an earlier launch has prepared
            program(made["x"], made["x"], vals=(8,), threads=8)
        with pytest.raises(hal.InvalidArgument, match=f"copies.*{said}"):
            program(*(made[key] for key in bufs), vals=(8,), threads=8)
        assert read(made["y"]) == data, "something ran"

    @pytest.mark.parametrize("is_warm", [False, True], ids=["first", "later"])
    @pytest.mark.parametrize(
        ("dtype", "value"),
        [
            (hal.int32, 2**31), (hal.int32, -(2**31) - 1), (hal.int32, 2**40), (hal.int32, 1.0),
            (hal.int32, math.nan), (hal.int32, "1"), (hal.int32, None), (hal.int32, 1j),
            (hal.int32, [1]), (hal.int32, np.zeros(2, np.int32)), (hal.int32, np.float32(1)),
            (hal.int8, 128), (hal.uint8, -1), (hal.uint8, 256), (hal.uint16, 1 << 16),
            (hal.uint32, -1), (hal.uint64, 1 << 64), (hal.int64, 1 << 63), (hal.bool_, 2),
            (hal.float32, 1e40), (hal.float32, 10**40), (hal.float32, "1"), (hal.int16, 10**400),
        ],
        ids=lambda value: str(value)[:12].replace(" ", ""),
    )  # fmt: skip
    def test_P2_wrong_values(
        self, device: hal.Compiled, dtype: hal.DType, value: Any, is_warm: bool
    ) -> None:
        if not (kept := compiled(device, keeper(dtype))):
            return
        program, made = device.load(kept.binary), zeros(device, 1, dtype)
        if is_warm:
            program(made, vals=(0,), threads=1)
        with pytest.raises(hal.InvalidArgument, match=f"keeps.*'v'.*got.*{dtype.name}"):
            program(made, vals=(value,), threads=1)
        assert not any(read(made)), "something ran"

    @pytest.mark.parametrize("vals", [(), (1,), (1, 2, 3), 1, None, "12", {1: 2}], ids=spelt)
    def test_P2_wrong_number_of_values(self, device: hal.Compiled, vals: Any) -> None:
        with pytest.raises(hal.InvalidArgument, match="count_up.*vals"):
            device.compile(count_up)(zeros(device, 8), vals=vals, threads=8)

    def test_P2_freed_and_foreign_buffers(
        self, device: hal.Compiled, second_device: hal.Compiled
    ) -> None:
        program, made = device.compile(count_up), zeros(device, 8)
        program(made, vals=(0, 8), threads=8)
        view = made.view(4)
        made.deallocate()
        for gone in (made, view):
            with pytest.raises(hal.InvalidState):
                program(gone, vals=(0, 4), threads=4)
        if second_device is not device:
            there = zeros(second_device, 8)
            with pytest.raises(hal.InvalidArgument, match=f"'y'.*{second_device.name}"):
                program(there, vals=(0, 8), threads=8)
            assert not any(read(there))

    def test_P2_a_buffer_that_was_never_allocated_is(self, device: hal.Compiled) -> None:
        made = hal.Buffer(device, 5, hal.int32)
        device.compile(count_up)(made, vals=(3, 5), threads=5)
        assert numbers(made) == [3, 4, 5, 6, 7]

    @pytest.mark.parametrize("dtype", VALUE_DTYPES, ids=str)
    def test_P3_numbers_are_converted(self, device: hal.Compiled, dtype: hal.DType) -> None:
        if not device.supports(dtype):
            with pytest.raises(hal.Unsupported, match=dtype.name):
                device.compile(keeper(dtype))
            return
        program, scalar = device.compile(keeper(dtype)), dtype.to_numpy().type
        given: list[Any] = [0, 1, True, False, dtype.min, dtype.max, scalar(dtype.max), scalar(1)]
        if dtype.is_float:
            given += [-0.0, 0.1, -7, 1 << 24, math.nan, math.inf, -math.inf, np.float32(0.1)]
            given += [np.float64(0.1), np.int8(-3), np.bool_(True), scalar(math.nan), 5e-7]
            given.append(3.4028235e38)  # above the largest float32, which it rounds to
        elif dtype.is_integer:
            given += [np.int64(100), np.uint8(7), np.bool_(True), dtype.max - 1, np.array(5)]
        made = zeros(device, 1, dtype)
        # The second time each value takes the fast path.
        for value in given * 2:
            # A launch that does nothing must not pass as one that stores 0.
            made.copyin(b"\x55" * dtype.itemsize)
            program(made, vals=(value,), threads=1)
            got, expected = read(made), scalar(value)
            # NaN: devices may change its payload.
            if expected != expected:
                assert math.isnan(np.frombuffer(got, scalar)[0])
            else:
                assert got == expected.tobytes(), value

    def test_P3_values_and_pointers_may_be_mixed(self, device: hal.Compiled) -> None:
        signed, unsigned = next(pair for pair in WIDEST if all(map(device.supports, pair)))
        program = device.compile(all_keeper(signed, unsigned))
        made = [zeros(device, 1, param.dtype) for param in program.signature.pointers]
        for vals in (
            (-128, unsigned.max, True, 0.5, -(2**15), signed.min, 255, 2**32 - 1, -(2**31), 65535),
            (127, unsigned.max // 16, False, -1e38, 2**15 - 1, signed.max, 1, 77, 2**31 - 1, 2),
        ):
            program(*made, vals=vals, threads=1)
            for buffer, value in zip(made, vals, strict=True):
                assert numbers(buffer)[0] == buffer.dtype.to_numpy().type(value), buffer

    def test_P3_arguments_may_stand_in_the_order_of_the_kernel(self, device: hal.Compiled) -> None:
        program, made = device.compile(count_up), zeros(device, 8)
        queue = device.queue()
        launches: list[tuple[Any, hal.Queue | None]] = [(1, None), (2, None), (3, queue)]
        for start, where in [*launches, (np.int64(4), None)]:
            program(made, start, 5, threads=8, queue=where)
            queue.synchronize()
            assert numbers(made) == [*range(start, start + 5), 0, 0, 0]
        with pytest.raises(hal.InvalidArgument, match="arguments: 'n' missing .got 2; expected 3"):
            program(made, 1, threads=8)
        with pytest.raises(hal.InvalidArgument, match="shared memory .got 4; expected 3"):
            program(made, 1, 5, 6, threads=8)
        with pytest.raises(hal.InvalidArgument, match=r"'start' is a number, not a buffer"):
            program(made, made, 5, threads=8)
        with pytest.raises(hal.InvalidArgument, match=r"'y' is not a hal.Buffer .*int32\*"):
            program(1, made, 5, threads=8)
        assert numbers(made) == [*range(4, 9), 0, 0, 0]

    # -- time

    def test_P4_wait_gives_seconds(self, device: hal.Compiled) -> None:
        program, made = device.compile(slowly), zeros(device, 64)
        assert program(made, vals=(5, 64), threads=64) is None
        if "timing" not in device.info.capabilities:
            with pytest.raises(hal.Unsupported):
                program(made, vals=(6, 64), threads=64, wait=True)
            return
        for turns in (6, 7):
            start = time.perf_counter()
            seconds = program(made, vals=(turns, 64), threads=64, wait=True)
            assert type(seconds) is float and 0 < seconds <= time.perf_counter() - start
            assert numbers(made) == [turns] * 64

    def test_P4_more_work_takes_longer(self, device: hal.Compiled) -> None:
        if "timing" not in device.info.capabilities:
            return  # the test above checks the refusal
        slow = SlowCounter(device)
        made, turns = slow.buffer(device), slow.turns

        def shortest(times: int) -> float:
            slow.turns = turns * times
            return min(slow.timed(made) for _ in range(2))

        for _ in range(8):  # a pause of a busy machine can be longer than the work
            if shortest(16) > 4 * shortest(1):
                return
        pytest.fail("sixteen times the work does not take four times as long")

    # -- geometry

    @pytest.mark.parametrize(
        "how",
        [
            {"threads": 12}, {"threads": (12,)}, {"threads": [12, 1]}, {"threads": (12, 1, 1)},
            {"threads": np.int64(12)}, {"threads": 12, "block": 4}, {"threads": 10, "block": 4},
            {"threads": 9, "block": (4, 1)}, {"grid": 3, "block": 4}, {"grid": (3,), "block": [4]},
            {"grid": np.int32(3), "block": (np.uint8(4), 1, 1)}, {"grid": True, "block": 12},
            {"grid": 12, "block": 1}, {"grid": 1, "block": 12},
        ],
        ids=spelt,
    )  # fmt: skip
    def test_P5_ways_to_give_a_geometry(self, device: hal.Compiled, how: dict[str, Any]) -> None:
        made = zeros(device, 12)
        for _ in range(2):
            device.compile(add_one)(made, vals=(12,), **how)
        assert numbers(made) == [2] * 12

    @pytest.mark.parametrize(
        "how",
        [
            {}, {"grid": 3}, {"block": 4}, {"grid": 3, "threads": 12}, {"threads": -1},
            {"grid": 3, "block": 4, "threads": 12}, {"threads": 2.5}, {"threads": "12"},
            {"threads": ()}, {"threads": (1, 1, 1, 1)}, {"threads": (4, -1)}, {"threads": {12}},
            {"grid": 1, "block": None}, {"grid": -1, "block": 1}, {"grid": 1, "block": (1, 2.5)},
            {"threads": 12, "shared": -1}, {"threads": 12, "shared": "1"},
            {"threads": 12, "shared": 1 << 40}, {"threads": 12, "block": 0},
            {"threads": (4, 3), "block": (4, 0)}, {"threads": 1 << 31}, {"threads": 1 << 70},
            {"grid": 1 << 63, "block": 1}, {"threads": np.uint64(1 << 63), "block": 64},
        ],
        ids=spelt,
    )  # fmt: skip
    def test_P5_other_ways_are_refused(self, device: hal.Compiled, how: dict[str, Any]) -> None:
        made = zeros(device, 12)
        # A prepared launch must not let through what the first one refuses.
        for warm in (False, True):
            if warm:
                device.compile(add_one)(made, vals=(0,), threads=12)
            with pytest.raises(hal.InvalidArgument, match="add_one"):
                device.compile(add_one)(made, vals=(12,), **how)
        assert numbers(made) == [0] * 12

    @pytest.mark.parametrize("axis", range(3), ids="xyz")
    @pytest.mark.parametrize("what", ["grid", "block", "threads"])
    def test_P5_zero_anywhere_launches_nothing(
        self, device: hal.Compiled, what: str, axis: int
    ) -> None:
        # Drivers treat a zero as an error, as 1, or as garbage: hal-core has to catch it.
        sizes = [2, 2, 2]
        sizes[axis] = 0
        how = {"threads": sizes} if what == "threads" else {"grid": 2, "block": 2, what: sizes}
        made = zeros(device, 64)
        assert device.compile(add_one)(made, vals=(64,), **how) is None
        if "timing" in device.info.capabilities:
            assert device.compile(add_one)(made, vals=(64,), wait=True, **how) == 0.0
        assert numbers(made) == [0] * 64

    @pytest.mark.parametrize("axis", range(3), ids="xyz")
    @pytest.mark.parametrize("what", ["grid", "block"])
    def test_P5_beyond_a_limit_is_refused(self, device: hal.Compiled, what: str, axis: int) -> None:
        limits = device.info.limits
        most = (limits.max_grid if what == "grid" else limits.max_block)[axis]
        sizes = [1, 1, 1]
        sizes[axis] = most + 1
        how: dict[str, Any] = {"grid": 1, "block": 1, what: tuple(sizes)}
        with pytest.raises(hal.InvalidArgument, match=f"{what}.{'xyz'[axis]}.*{most + 1}.*{most}"):
            device.compile(add_one)(zeros(device, 1), vals=(1,), **how)

    def test_P5_the_largest_block_runs_and_no_larger(self, device: hal.Compiled) -> None:
        program, limits = device.compile(add_plainly), device.info.limits
        most = min(program.info.max_block_threads or limits.max_block_threads, limits.max_block[0])
        made = zeros(device, 2 * most)
        program(made, vals=(1,), grid=2, block=most)
        assert numbers(made) == list(range(1, 2 * most + 1))
        sizes = [min(most, limits.max_block[0]), *limits.max_block[1:]]
        total = math.prod(sizes)
        if total > limits.max_block_threads:
            with pytest.raises(hal.InvalidArgument, match=f"threads.*{total}"):
                program(made, vals=(1,), grid=1, block=tuple(sizes))

    def test_P5_a_block_that_the_kernel_fixes(self, device: hal.Compiled) -> None:
        program = device.compile(tiled)
        for how in ({"threads": (11, 8)}, {"grid": (2, 2)}, {"grid": (2, 2), "block": (6, 5)}):
            made = zeros(device, 120)
            program(made, **how)  # type: ignore[call-overload]
            expected = [[x // 6 * 6 + 5 - x % 6 for x in range(12)]] * 10
            assert np.reshape(numbers(made), (10, 12)).tolist() == expected, how
        with pytest.raises(hal.InvalidArgument, match=r"tiled.*\(6, 5, 1\)"):
            program(zeros(device, 120), grid=(2, 2), block=(5, 6))

    def test_P5_dynamic_shared_memory_is_given_or_refused(self, device: hal.Compiled) -> None:
        made, program = zeros(device, 8), device.compile(add_one)
        try:
            program(made, vals=(8,), threads=8, shared=64)
        except hal.Unsupported:
            assert numbers(made) == [0] * 8
        else:
            assert numbers(made) == [1] * 8
        too_much = device.info.limits.shared_nbytes + 1
        with pytest.raises(hal.InvalidArgument, match=f"shared.*{too_much}"):
            program(made, vals=(8,), threads=8, shared=too_much)

    # -- threads

    @pytest.mark.parametrize(
        ("threads", "block"),
        [
            (1, 1), (100, 7), (1000, 256), (5, 64), ((3, 5, 7), (2, 2, 2)), ((1, 1, 9), (1, 1, 4)),
            ((2, 30, 3), (1, 8, 1)), ((17, 1, 2), (4, 2, 1)), ((13, 11, 1), (8, 8, 1)),
            ((1, 257, 1), (1, 1, 1)), ((4, 4, 4), (4, 4, 4)), ((3, 3, 65), (1, 1, 2)),
        ],
    )  # fmt: skip
    def test_P6_every_thread_runs_once_and_knows_who_it_is(
        self, device: hal.Compiled, threads: Any, block: Any
    ) -> None:
        if np.size(block) == 1:
            block = min(block, device.info.limits.max_block[0])
        wanted, size = np.ones(3, np.int64), np.ones(3, np.int64)
        wanted[: np.size(threads)], size[: np.size(block)] = threads, block
        grid = -(-wanted // size)
        width, height, depth = (int(count) for count in grid * size)
        total = width * height * depth
        program = device.compile(visit)
        made = [zeros(device, total), zeros(device, 12 * total), zeros(device, 1)]
        for times in (1, 2):
            program(*made, threads=threads, block=block)
            assert numbers(made[0]) == [times] * total
            assert numbers(made[2]) == [times * total]
        place = np.arange(total)
        at = np.stack([place % width, place // width % height, place // (width * height)], 1)
        same = np.broadcast_to(np.concatenate([size, grid]), (total, 6))
        expected = np.concatenate([at % size, at // size, same], 1)
        assert np.array_equal(np.reshape(numbers(made[1]), (total, 12)), expected)

    @pytest.mark.parametrize("grid", [1, 3, 1021, 20_000])
    def test_P6_without_atomics(self, device: hal.Compiled, grid: int) -> None:
        """Count without atomics in small launches and in ones that a device may split."""
        block, turns = 33, 3
        count = grid * block
        # The last 64 bytes are no thread's.
        made = buffer_of(device, bytes(4 * count) + pattern(64), hal.int32)
        program, expected = device.compile(add_plainly), np.zeros(count, np.int32)
        for turn in range(turns):
            program(made, vals=(turn,), grid=grid, block=block)
            expected *= 2
            expected += turn + np.arange(count, dtype=np.int32)
        assert read(made) == expected.tobytes() + pattern(64)

    # -- order

    def test_P8_launches_and_copies_keep_their_order(self, device: hal.Compiled) -> None:
        program = device.compile(triple)
        for size in (3, 30_000):
            made, other = zeros(device, size), zeros(device, size)
            expected = 0
            # The periods have no common factor, so the steps come in many combinations.
            for turn in range(40):
                if turn % 11 == 5:
                    made.copyin(np.full(size, turn, np.int32))
                    expected = turn
                if turn % 13 == 7:
                    made.fill(turn)
                    expected = turn
                if turn % 7 == 3:
                    other.copy_from(made)
                    program(made, vals=(1, size), threads=size)
                    made.copy_from(other)
                program(made, vals=(turn, size), threads=size)
                # Wrapped as an int32.
                expected = (3 * expected + turn + 2**31) % 2**32 - 2**31
            assert numbers(made) == [expected] * size

    def test_P8_a_copy_waits_for_a_slow_launch(self, device: hal.Compiled) -> None:
        program, after = device.compile(slowly), device.compile(add_one)
        made, other = zeros(device, 64), zeros(device, 64)
        for turns in (3000, 2000):
            program(made, vals=(turns, 64), threads=64)
            other.copy_from(made)
            program(made, vals=(turns // 2, 64), threads=64)
            after(other, vals=(64,), threads=64)
            assert numbers(other) == [turns + 1] * 64
            assert numbers(made) == [turns // 2] * 64

    def test_synchronize_waits(self, device: hal.Compiled) -> None:
        """Reading after `synchronize` takes less time than `synchronize` took."""
        slow, quick, turn = SlowCounter(device, seconds=0.03), 0, 0
        made = slow.buffer(device)
        while quick < 2 and turn < 30:  # a busy machine may delay most reads, but not all
            begin = time.perf_counter()
            slow(made, turn)
            # In turn without and with a timeout.
            assert device.synchronize(*(60.0,) * (turn % 2)) is True
            waited = time.perf_counter()
            assert read(made) == slow.counted(turn)
            quick += time.perf_counter() - waited < (waited - begin) / 2
            turn += 1
        assert quick == 2, "the work was still going on"

    # -- end

    def test_P10_an_unloaded_program_is_refused(self, device: hal.Compiled) -> None:
        binary, made = device.compile(count_up).binary, zeros(device, 5)
        cold, warm, other = (device.load(binary) for _ in range(3))
        warm(made, vals=(0, 5), threads=5)
        for program in (cold, warm):
            program.unload()
            program.unload()  # a second time does nothing
            with pytest.raises(hal.InvalidState, match="count_up"):
                program(made, vals=(9, 5), threads=5)
        works(other)
        assert numbers(made) == list(range(5))

    def test_P10_unloading_does_not_hurt_what_runs(self, device: hal.Compiled) -> None:
        made = zeros(device, 64)
        program = device.load(device.compile(slowly).binary)
        program(made, vals=(3000, 64), threads=64)
        program.unload()
        del program
        assert numbers(made) == [3000] * 64

    def test_P10_unloading_does_not_hurt_what_waits(self, device: hal.Compiled) -> None:
        program, made = device.load(device.compile(add_one).binary), zeros(device, 5)
        graph, gate = hal.Graph(device), hal.Event()
        graph.add(program, made, vals=(5,), threads=5)
        with device.queue() as queue:
            queue.wait(gate)
            program(made, vals=(5,), threads=5, queue=queue)
            graph.replay(queue=queue)
            program.unload()
            gate.set()
        assert numbers(made) == [2] * 5

    def test_P10_loading_and_unloading_again_and_again(self, device: hal.Compiled) -> None:
        binary, made = device.compile(count_up).binary, zeros(device, 5)
        for turn in range(200):
            program = device.load(binary)
            program(made, vals=(turn, 5), threads=5)
            program.unload()
        assert numbers(made) == list(range(199, 204))

    def test_P10_closing_the_device_ends_what_it_made(self, device: hal.Compiled) -> None:
        name, made = device.name, zeros(device, 5)
        warm, cold = device.compile(count_up), device.load(device.compile(add_one).binary)
        warm(made, vals=(0, 5), threads=5)
        device.close()
        device.close()
        assert device.closed
        for outlived in (warm, cold):
            vals = (0,) * len(outlived.signature.values)
            with pytest.raises(hal.InvalidState):
                outlived(made, vals=vals, threads=5)
        for use in (
            made.allocate, lambda: read(made), lambda: made.copyin(bytes(20)), device.synchronize,
            lambda: device.compile(count_up), lambda: device.load(warm.binary),
            hal.Buffer(device, 4, hal.int8).allocate, hal.Buffer(device, 0, hal.int8).allocate,
        ):  # fmt: skip
            with pytest.raises(hal.InvalidState):
                use()
        again = hal.Device[name]
        assert again is not device and not again.closed
        with pytest.raises(hal.HalError):
            again.compile(count_up)(made, vals=(0, 5), threads=5)
        works(again.compile(count_up))
        works(again.load(warm.binary))

    def test_P10_closing_waits_for_what_is_queued(self, device: hal.Compiled) -> None:
        name = device.name
        for _ in range(3):
            opened = hal.Device[name]
            made = zeros(opened, 64)
            opened.compile(slowly)(made, vals=(3000, 64), threads=64)
            opened.close()
        works(hal.Device[name].compile(count_up))

    # -- facts

    def test_the_names_of_base_classes_are_theirs(self, device: hal.Compiled) -> None:
        """A backend's `self._lock = ...` would replace one that hal-core uses, in silence."""
        for part in (device, device.allocator, device.compile(add_one), device.compiler):
            assert taken_from_base(part) == [], "hal-core keeps something of its own there"

    def test_P11_facts_of_a_kernel(self, device: hal.Compiled) -> None:
        limits = device.info.limits
        for kernel in (count_up, tiled, visit):
            info = device.compile(kernel).info
            for name, value in info._asdict().items():
                numbers = value if name == "block" and value is not None else (value,)
                for one in numbers:
                    assert one is None or (type(one) is int and one >= 0), name
            if info.max_block_threads is not None:
                assert 1 <= info.max_block_threads <= limits.max_block_threads
        static = device.compile(tiled).info.shared_nbytes
        assert static is None or 120 <= static <= limits.shared_nbytes
        assert device.compile(count_up).info.shared_nbytes in (None, 0)
        # Too much, as `tiled` has 120 bytes of its own.
        room = limits.shared_nbytes - 16
        with pytest.raises(hal.InvalidArgument, match=f"{room}"):
            device.compile(tiled)(zeros(device, 30), grid=1, shared=room)

    def test_P11_what_it_was_made_of(self, device: hal.Compiled) -> None:
        program = device.compile(count_up)
        assert (program.name, program.signature.name) == ("count_up", "count_up")
        assert str(program.signature) == "y: int32*, start: int32, n: int32"
        assert program.source and program.pair in [pair.name for pair in device.compilers]
        assert program.binary.image and program.binary.name == "count_up"
        assert device.name in repr(program) and "count_up" in repr(program)
        assert device.compile(count_up) is program, "compiled once"
