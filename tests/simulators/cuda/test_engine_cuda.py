"""CUDA C through NVRTC: what the compiler brings along runs, and is right."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine_nvrtc import NVRTCText
from engine_runner import SCHEDULES, Engine, shared_engine

SOURCE = Path(__file__).with_name("engine_programs.cu").read_text()


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return shared_engine(tmp_path_factory)


@pytest.fixture(scope="session", params=["compute_80", "compute_90"])
def text(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    nvrtc = NVRTCText(tmp_path_factory.mktemp("nvrtc"))
    if nvrtc.missing:
        pytest.skip(nvrtc.missing)
    nvrtc.architecture = request.param
    return nvrtc.text(SOURCE)


@pytest.fixture(params=SCHEDULES)
def schedule(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def functions(x: Any) -> list[Any]:
    size = abs(x)
    return [
        np.sin(x), np.cos(x), np.tan(x), np.exp(x), np.log(size), size**1.5, np.sqrt(size),
        size**-0.5, np.arctan2(x, 2), np.fmod(x, 0.5), np.cbrt(x),
    ]  # fmt: skip


def test_float32_functions(engine: Engine, text: str, schedule: str) -> None:
    x = (np.random.default_rng(1).standard_normal(200) * 5).astype(np.float32)
    wide = x.astype(np.float64)
    expected = [*functions(wide), np.log2(abs(wide)), np.sinh(wide), np.tanh(wide), np.rint(wide)]
    expected += [np.hypot(wide, 3), np.sin(wide), np.exp(wide)]
    got = np.zeros((len(expected), len(x)), np.float32)
    engine.run(
        text, "singles", [got, x, np.int32(len(x))], (2, 1, 1), (128, 1, 1), schedule=schedule
    )
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6)


def test_float64_functions(engine: Engine, text: str, schedule: str) -> None:
    x = np.random.default_rng(1).standard_normal(200) * 5
    expected = [*functions(x), 1 / x, np.tanh(x), np.sin(x * 1e9)]
    got = np.zeros((len(expected), len(x)))
    engine.run(
        text, "doubles", [got, x, np.int32(len(x))], (2, 1, 1), (128, 1, 1), schedule=schedule
    )
    np.testing.assert_allclose(got, expected, rtol=1e-14, atol=1e-14)


def integers(
    engine: Engine, text: str, kernel: str, schedule: str, threads: int, *more: Any
) -> list[int]:
    got = np.zeros(threads, np.int32)
    engine.run(
        text, kernel, [got, *more], (1, 1, 1), (threads, 1, 1), schedule=schedule, most=10**8
    )
    return [int(value) for value in got]


def test_recursion(engine: Engine, text: str, schedule: str) -> None:
    numbers = [0, 1]
    while len(numbers) < 12:
        numbers.append(numbers[-1] + numbers[-2])
    assert integers(engine, text, "recursion", schedule, 12) == numbers


def test_structs_by_value(engine: Engine, text: str, schedule: str) -> None:
    layout = {
        "names": ["a", "b", "c", "d"],
        "formats": ["i4", "f4", "f8", "5i1"],
        "offsets": [0, 4, 8, 16],
    }
    record = np.zeros(1, np.dtype({**layout, "itemsize": 24}))  # type: ignore[call-overload]
    record["a"], record["b"], record["c"], record["d"] = 10, 1.5, 100, [1, 2, 3, 4, 5]
    got = np.zeros(8)
    engine.run(text, "records", [got, record[0]], (1, 1, 1), (8, 1, 1), schedule=schedule)
    assert got.tolist() == [113.0 + k % 5 + 1 + k for k in range(8)]


def test_variables_of_the_module(engine: Engine, text: str, schedule: str) -> None:
    factors, counts = np.zeros(9, np.float32), np.zeros(9, np.int32)
    engine.run(text, "tables", [factors, counts], (1, 1, 1), (9, 1, 1), schedule=schedule)
    assert factors.tolist() == [1 + k % 4 for k in range(9)]
    assert counts.tolist() == [
        36000 + b"ab\0cde\0f\0"[[0, 3, 7][k % 3] + k // 3 % 2] for k in range(9)
    ]


def test_choices(engine: Engine, text: str, schedule: str) -> None:
    assert integers(engine, text, "choices", schedule, 9) == [5, 7, 13, 4, 44, 16, -1, 49, 100]


def test_warps(engine: Engine, text: str, schedule: str) -> None:
    first, second = sum(range(32)), sum(range(32, 64))
    expected = [first + 16 + 32 + 8] * 32 + [second + 16 + 32 + 8 + 1] * 32
    assert integers(engine, text, "warps", schedule, 64) == expected


def test_dynamic_shared_memory(engine: Engine, text: str, schedule: str) -> None:
    got, x = np.zeros(64, np.float32), np.arange(64, dtype=np.float32)
    engine.run(text, "turned", [got, x], (1, 1, 1), (64, 1, 1), shared=256, schedule=schedule)
    assert got.tolist() == (x[::-1] + 1).tolist()


def test_printf(engine: Engine, text: str, schedule: str) -> None:
    engine.run(text, "printing", [np.int32(3)], (1, 1, 1), (2, 1, 1), schedule=schedule)
    assert engine.printed == "".join(f"t{k} 1.500000 text 1099511627776 x\n" for k in range(2))


def test_local_arrays(engine: Engine, text: str, schedule: str) -> None:
    expected = [sum((k * 7 + t) % 50 * 3 * k for k in range(50)) for t in range(9)]
    assert integers(engine, text, "local", schedule, 9, np.int32(3)) == expected


def test_a_lock(engine: Engine, text: str, schedule: str) -> None:
    assert integers(engine, text, "lock", schedule, 40) == [40] * 40


def test_vectors(engine: Engine, text: str, schedule: str) -> None:
    x = np.random.default_rng(1).integers(0, 255, (64, 4)).astype(np.uint8)
    got = np.zeros_like(x)
    engine.run(text, "vectors", [got, x], (1, 1, 1), (64, 1, 1), schedule=schedule)
    expected = np.stack([x[:, 0] + 1, x[:, 2] * 3, x[:, 2], np.minimum(x[:, 3], 9)], 1)
    np.testing.assert_array_equal(got, expected)


def test_long_integers(engine: Engine, text: str, schedule: str) -> None:
    source = random.Random(3)
    pairs = [
        (source.getrandbits(63) - 2**62, source.getrandbits(source.randrange(2, 40)) + 1)
        for _ in range(64)
    ]

    def expected(x: int, y: int) -> int:
        quotient = abs(x) // y * (1 if x > 0 else -1)
        result = quotient + (x - quotient * y) * 3 + (x * y >> 64) + (x >> 3)
        result += bin(x & (2**64 - 1)).count("1")
        return (result + 2**63) % 2**64 - 2**63

    got, (x, y) = np.zeros(64, np.int64), np.array(pairs, np.int64).T.copy()
    second = y.copy()
    engine.run(text, "wide", [got, x.copy(), second], (1, 1, 1), (64, 1, 1), schedule=schedule)
    assert got.tolist() == [expected(*pair) for pair in pairs]
