"""Find the tones in noisy signals by a fast Fourier transform, a launch for each of its passes.

A pass combines pairs of numbers that are half a signal apart, and writes them where the next pass
wants them (Stockham's order), so that nothing is sorted at the end. A row of threads has one
signal. The roots of unity come from a table, more exact than sin and cos in float32, and faster.

    python examples/fft.py --signals 256 --size 4096 --device CPU
"""

import argparse
import math
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hal_core as hal

TOLERANCE = 1e-5  # relative to the largest number of the result, against numpy in float64
LOUDEST = 3  # tones in each signal

Numbers = hal.Ptr[hal.float32]  # complex: a real and an imaginary part, side by side
Input = hal.ConstPtr[hal.float32]


@hal.kernel
def combine(
    out: Numbers, x: Input, roots: Input, done: hal.int32, half: hal.int32, signals: hal.int32
) -> None:
    """Make transforms of 2 * done numbers of those of `done`; a signal has 2 * half numbers."""
    j = hal.global_idx(0)
    signal = hal.global_idx(1)
    if j < half and signal < signals:
        k = j & (done - 1)  # j % done, of a power of two
        root = 2 * k * (half // done)
        cosine = roots[root]
        sine = roots[root + 1]
        row = 2 * signal * 2 * half
        low = row + 2 * j
        high = low + 2 * half
        real = cosine * x[high] - sine * x[high + 1]
        imaginary = cosine * x[high + 1] + sine * x[high]
        to = row + 2 * (2 * (j - k) + k)
        out[to] = x[low] + real
        out[to + 1] = x[low + 1] + imaginary
        out[to + 2 * done] = x[low] - real
        out[to + 2 * done + 1] = x[low + 1] - imaginary


def transform(
    device: hal.Compiled, signals: NDArray[np.complex64]
) -> tuple[NDArray[np.complex64], float]:
    """Return the transforms, and the seconds. The length of a signal is a power of two."""
    rows, size = signals.shape
    x = hal.Buffer.from_numpy(signals.view("f4").reshape(-1), device)
    out = hal.Buffer(device, x.size, hal.float32)
    angles = -np.pi * np.arange(size // 2) / (size // 2)
    table = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype("f4")
    roots = hal.Buffer.from_numpy(table, device)
    program, seconds, done = device.compile(combine), 0.0, 1
    while done < size:
        vals = (done, size // 2, rows)
        seconds += program(out, x, roots, vals=vals, threads=(size // 2, rows), wait=True)
        x, out = out, x
        done *= 2
    found: Any = x.numpy((rows, 2 * size))
    return found.view(np.complex64), seconds


def make_signals(rows: int, size: int) -> tuple[NDArray[np.complex64], NDArray[np.int64]]:
    """Make signals of some tones and noise; return them, and the sorted tones of each."""
    random = np.random.default_rng(0)
    most = size // 2
    tones = np.sort([random.choice(most, LOUDEST, replace=False) for _ in range(rows)], axis=1)
    angles = 2 * np.pi * tones[:, :, None] * np.arange(size) / size
    noise = random.standard_normal((rows, size))
    return (np.cos(angles).sum(axis=1) + noise).astype(np.complex64), tones


def run(device: hal.Compiled, signals: NDArray[np.complex64], tones: NDArray[np.int64]) -> bool:
    """Print the device's lines; return True if its transform is numpy's and has the tones."""
    rows, size = signals.shape
    found, seconds = transform(device, signals)
    exact = np.fft.fft(signals.astype("c16"))
    error = float(np.max(np.abs(found - exact)) / np.max(np.abs(exact)))
    loudness = np.abs(found[:, : size // 2])
    heard = np.sort(np.argsort(loudness, axis=1)[:, -LOUDEST:], axis=1)
    right = int((heard == tones).all(axis=1).sum())
    speed = 5 * rows * size * math.log2(size) / seconds / 1e9
    print(f"{device.name}: all tones heard in {right} of {rows} signals; in the first: {heard[0]}")
    print(f"    off by {error:.1e}; {speed:.2f} GFLOP/s on {device.info.title}")
    return error <= TOLERANCE and right >= 0.9 * rows


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", help="its name; left out: every device of this machine")
    parser.add_argument("--signals", type=int, default=256, help="how many signals")
    parser.add_argument("--size", type=int, default=4096, help="of a signal, a power of two")
    chosen = parser.parse_args()
    if chosen.size < 2 or chosen.size & (chosen.size - 1):
        parser.error(f"--size is no power of two (got {chosen.size})")
    signals, tones = make_signals(chosen.signals, chosen.size)
    names = [chosen.device] if chosen.device else hal.Device.get_available_devices()
    right = [run(hal.Device[name], signals, tones) for name in names]
    return 0 if right and all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
