"""Kernels in two forms: the first launches measure both, and keep the faster one."""

from __future__ import annotations

import os
from ctypes import byref, c_int32, c_int64
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hal_core as hal
from hal_cpu import trial
from hal_cpu.program import CPUProgram, has_two_forms, is_settled
from hal_cpu.threads.pool import Pool
from hal_cpu.trial import CUT, PLAIN, Trial
from hal_kernel.interpreter import interpret

pytestmark = pytest.mark.skipif(
    os.environ.get("HAL_CHECK") == "1", reason="of machine code that runs in this process"
)
LIVE = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


@hal.kernel
def counted(y: hal.Ptr[hal.int32], x: hal.ConstPtr[hal.uint8], w: hal.int32, h: hal.int32) -> None:
    b = hal.global_idx(0)
    j = hal.global_idx(1)
    if b < 16 and j < h:
        found = 0
        for k in range(w):
            if hal.int32(x[j * w + k] >> 4) == b:
                found += 1
        y[j * 16 + b] = found


@hal.kernel
def doubled(y: hal.Ptr[hal.int32], x: hal.ConstPtr[hal.int32], n: hal.int32) -> None:
    i = hal.global_idx(0)
    if i < n:
        y[i] = 2 * x[i]


class Launches:
    """A kernel of which a block takes `seconds` of its form, by a clock that only it moves."""

    def __init__(
        self, blocks: int, seconds: tuple[float, float], patch: pytest.MonkeyPatch, cores: int = 1
    ) -> None:
        self.blocks, self.seconds, self.now = blocks, seconds, 0.0
        self.ran: list[tuple[int, int, int]] = []  # form, first block, last block
        patch.setattr(trial, "perf_counter", lambda: self.now)
        self.geometry: list[Any] = [self.run, byref((c_int32 * 7)(blocks, 1, 1, 1, 1, 1)), None]
        self.geometry[2] = c_int64(blocks)
        pool = Pool(cores) if cores > 1 else None
        self.geometry[0] = self.trial = Trial(self.run, self.run, pool, self.geometry)
        self.trial._settled = "settled"

    def run(self, args: bytes, launch: Any, first: c_int64, last: c_int64) -> None:
        form = launch._obj[6]
        self.ran.append((form, first.value, last.value))
        self.now += self.seconds[form] * (last.value - first.value)

    def launch(self) -> list[tuple[int, int, int]]:
        """Launch once; return what has run, in the order of the blocks."""
        self.ran.clear()
        self.trial(b"", self.geometry[1], c_int64(0), self.geometry[2])
        return sorted(self.ran, key=lambda ran: ran[1])

    @property
    def settled(self) -> bool:
        return self.geometry[0] == "settled"

    @property
    def form(self) -> int:
        return int(self.geometry[1]._obj[6])


@pytest.mark.parametrize(
    ("plain", "expected"), [(5e-6, PLAIN), (8e-6, PLAIN), (9.7e-6, CUT), (20e-6, CUT)]
)
def test_short_launches_take_turns_and_the_faster_form_stays(
    plain: float, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    launches = Launches(10, (10e-6, plain), monkeypatch)
    forms = []
    while not launches.settled:
        forms.append([form for form, _, _ in launches.launch()])
    assert forms == [[CUT], [CUT], [PLAIN], [CUT], [PLAIN], [CUT], [PLAIN]]
    assert launches.form == expected
    assert launches.launch() == [(expected, 0, 10)]  # by a thread that saw the trial's geometry


def test_a_form_that_is_far_slower_is_asked_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    launches = Launches(10, (1e-6, 5e-6), monkeypatch)
    forms = []
    while not launches.settled:
        forms += [form for form, _, _ in launches.launch()]
    assert forms == [CUT, CUT, PLAIN, CUT, PLAIN] and launches.form == CUT


def test_a_form_that_is_far_slower_everywhere_is_asked_in_one_launch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    launches = Launches(1000, (10e-6, 50e-6), monkeypatch)
    launches.launch()
    launches.launch()
    assert launches.settled and launches.form == CUT


@pytest.mark.parametrize("cores", [1, 3])
@pytest.mark.parametrize(("plain", "expected"), [(1e-6, PLAIN), (9.7e-6, CUT)])
def test_long_launches_are_measured_in_pieces(
    plain: float, expected: int, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = 1000
    launches = Launches(blocks, (10e-6, plain), monkeypatch, cores)
    assert launches.launch() == [(CUT, 0, blocks)]
    for _ in range(3):
        assert not launches.settled
        ran = launches.launch()
        assert [first for _, first, _ in ran] == [0, *(last for _, _, last in ran[:-1])]
        assert ran[-1][2] == blocks
        pieces = [n for n, (form, _, _) in enumerate(ran) if form == PLAIN]
        for at, place in zip(pieces, (1 / 6, 3 / 6, 5 / 6), strict=True):
            assert ran[at][2] - ran[at][1] == 10  # of 100 us
            beside = ran[at - 1 : at + 2 : 2]
            assert (10, CUT) in [(last - first, form) for form, first, last in beside]
            assert abs(ran[at][1] - place * blocks) <= 11
        assert (len(ran) > 10) == (cores > 1)
    assert launches.settled and launches.form == expected
    if cores > 1:
        launches.trial._pool.close()


def test_the_blocks_that_take_long_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    """A picture's rim is soon done, and as fast in either form."""
    launches = Launches(1000, (0, 0), monkeypatch)

    def run(args: bytes, launch: Any, first: c_int64, last: c_int64) -> None:
        for block in range(first.value, last.value):
            inside = 300 <= block < 700
            launches.now += (40e-6, 15e-6)[launch._obj[6]] if inside else 1e-6

    launches.trial._run = launches.trial._function = run
    while not launches.settled:
        launches.launch()
    assert launches.form == PLAIN


@pytest.mark.parametrize(("interrupted", "seconds"), [(2, 20e-6), (1, 5e-3)])
@pytest.mark.parametrize("blocks", [10, 1000])
def test_a_sample_that_was_interrupted_does_not_decide(
    blocks: int, interrupted: int, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    launches = Launches(blocks, (10e-6, 5e-6), monkeypatch)
    samples = 0

    def run(args: bytes, launch: Any, first: c_int64, last: c_int64) -> None:
        nonlocal samples
        launches.run(args, launch, first, last)
        if launch._obj[6] == PLAIN:
            samples += 1
            if samples <= interrupted:  # of nine or three
                launches.now += seconds * (last.value - first.value)

    launches.trial._run = launches.trial._function = run
    while not launches.settled:
        launches.launch()
    assert launches.form == PLAIN


@LIVE
@given(
    blocks=st.integers(1, 40),
    cut=st.sampled_from([1e-6, 3e-5, 3e-4, 6e-3, 0.5]),
    ratio=st.sampled_from([0.1, 0.98, 1.0, 2.0, 30.0]),
)
def test_every_launch_runs_each_block_once(blocks: int, cut: float, ratio: float) -> None:
    with pytest.MonkeyPatch.context() as patch:
        launches = Launches(blocks, (cut, cut * ratio), patch)
        for _ in range(60):
            ran = launches.launch()
            assert [first for _, first, _ in ran] == [0, *(last for _, _, last in ran[:-1])]
            assert ran[-1][2] == blocks
            slow = sum(last - first for form, first, last in ran if form == PLAIN) * cut * ratio
            # The other form took no longer than this launch, or than its own time for a piece.
            assert slow <= max(0.1, 3.1 * cut * ratio, blocks * cut) or ratio < 1
            if launches.settled:
                break
        else:
            raise AssertionError("not decided")
        assert launches.form == (PLAIN if ratio < 0.5 and cut < 0.02 else CUT)


def test_blocks_that_take_long_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    launches = Launches(3, (1.0, 0.1), monkeypatch)
    assert launches.launch() == [(CUT, 0, 3)]
    assert launches.settled and launches.form == CUT


# -- programs


def arrays(w: int, h: int) -> tuple[Any, Any]:
    x = np.random.default_rng(w).integers(0, 256, w * h, dtype="u1")
    rows = x.reshape(h, w) >> 4
    return x, np.stack([np.bincount(row, minlength=16) for row in rows]).astype("i4").ravel()


@pytest.mark.parametrize("form", ["cut", "plain", ""])
def test_both_forms_of_a_kernel_give_the_same(
    form: str, device: hal.Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HAL_CPU_FORM", form)
    program = device.load(device.compile(counted).binary)
    assert isinstance(program, CPUProgram) and has_two_forms(program.binary)
    for w, h in ((1, 1), (7, 300), (200, 64)):
        x, expected = arrays(w, h)
        given, y = hal.Buffer.from_numpy(x, device), hal.zeros(16 * h, hal.int32, device)
        for _ in range(9):
            y.fill(0)
            program(y, given, vals=(w, h), threads=(16, h))
            assert np.array_equal(y.numpy(), expected)
        here = np.zeros(16 * h, "i4")
        interpret(counted, here, x, vals=(w, h), threads=(16, h))
        assert np.array_equal(here, expected)
        geometry = program._resolved(threads=(16, h))
        assert is_settled(geometry)
        if form:
            assert geometry[1]._obj[6] == (form == "plain")


def test_the_first_launches_settle_a_geometry(device: hal.Compiled) -> None:
    program = device.load(device.compile(counted).binary)
    x, y = hal.zeros(700, hal.uint8, device), hal.zeros(1600, hal.int32, device)
    geometry = program._resolved(threads=(16, 100))
    assert not is_settled(geometry)
    for _ in range(8):
        program(y, x, vals=(7, 100), threads=(16, 100))
    assert is_settled(geometry)


def test_a_kernel_without_loops_and_choices_has_one_form(device: hal.Compiled) -> None:
    program = device.compile(doubled)
    assert not has_two_forms(program.binary)
    assert is_settled(program._resolved(threads=100))


def test_a_setting_that_means_nothing_is_refused(
    device: hal.Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HAL_CPU_FORM", "fast")
    with pytest.raises(hal.InvalidArgument, match=r"HAL_CPU_FORM.*cut or plain"):
        device.load(device.compile(doubled).binary)


def test_G3_a_graph_measures_the_forms_of_its_launches(device: hal.Compiled) -> None:
    program = device.load(device.compile(counted).binary)
    x, expected = arrays(50, 64)
    given, y = hal.Buffer.from_numpy(x, device), hal.zeros(16 * 64, hal.int32, device)
    with device.capture() as graph:
        program(y, given, vals=(50, 64), threads=(16, 64))
    geometry = program._resolved(threads=(16, 64))
    settled = []
    for _ in range(9):
        y.fill(0)
        settled.append(is_settled(geometry))
        graph.replay(wait=True)
        assert np.array_equal(y.numpy(), expected)
    assert settled[0] is False and settled[-1] is True


@hal.kernel
def escaped(y: hal.Ptr[hal.float64], x: hal.ConstPtr[hal.float64], n: hal.int32) -> None:
    """Products, sums, functions and a quotient, of which threads need different ones."""
    i = hal.global_idx(0)
    if i < n:
        a = x[i]
        b = 0.3 * a - 0.7
        v = hal.float64(0)
        for k in range(40):
            if a * a + b * b > 16.0:
                v = hal.float64(k) - hal.log2(0.5 * hal.log2(a * a + b * b))
                break
            t = a * a - b * b + 0.1
            b = 2.0 * a * b - 0.65
            a = t
        if x[i] > 1.5:
            v += hal.exp(-v) / (1.0 + v * v)
        y[i] = v


def test_both_forms_give_the_same_bits(
    device: hal.Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    n = 5000
    x = hal.Buffer.from_numpy(np.random.default_rng(0).uniform(-2, 2, n), device)
    found = []
    for form in ("cut", "plain"):
        monkeypatch.setenv("HAL_CPU_FORM", form)
        program = device.load(device.compile(escaped).binary)
        assert has_two_forms(program.binary)
        y = hal.zeros(n, hal.float64, device)
        program(y, x, vals=(n,), threads=n)
        found.append(y.numpy().view(np.int64))
    np.testing.assert_array_equal(found[0], found[1])
    assert len(np.unique(found[0])) > 100
