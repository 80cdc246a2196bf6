"""Blur a photograph and find its edges, with the same kernels on every device of the machine.

Shows all steps: find devices, open, copy in, compile, launch, copy out. Writes for each device a
picture of the photograph, the blurred one and the edges, and ends with an error when a result
differs from scipy's.

    python examples/edges.py --device CPU --out pictures
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage
from sklearn.datasets import load_sample_image

import hal_core as hal

SIGMA = 1.5
RADIUS = 4  # pixels on either side; a compile-time constant of the kernels
TOLERANCE = 1e-5  # of values from 0 to about 4, against scipy in float64
REPEATS = 5  # of all launches, for the best time

Picture = NDArray[Any]


@hal.kernel
def grey(out: hal.Ptr[hal.float32], rgb: hal.ConstPtr[hal.uint8], count: hal.int32):
    """Compute the luminance of each pixel, from 0 to 1."""
    i = hal.global_idx(0)
    if i < count:
        red = hal.float32(rgb[3 * i])
        green = hal.float32(rgb[3 * i + 1])
        blue = hal.float32(rgb[3 * i + 2])
        out[i] = (0.299 * red + 0.587 * green + 0.114 * blue) / 255.0


@hal.kernel
def blur(
    out: hal.Ptr[hal.float32],
    image: hal.ConstPtr[hal.float32],
    weights: hal.ConstPtr[hal.float32],
    width: hal.int32,
    height: hal.int32,
    dx: hal.int32,
    dy: hal.int32,
):
    """Blur in one direction, by a Gaussian: (dx, dy) is (1, 0) for rows, (0, 1) for columns."""
    x = hal.global_idx(0)
    y = hal.global_idx(1)
    if x < width and y < height:
        zero = hal.int32(0)
        total = hal.float32(0)
        for k in range(-RADIUS, RADIUS + 1):
            column = min(max(x + k * dx, zero), width - 1)
            row = min(max(y + k * dy, zero), height - 1)
            total += weights[k + RADIUS] * image[row * width + column]
        out[y * width + x] = total


@hal.kernel
def edges(
    out: hal.Ptr[hal.float32], image: hal.ConstPtr[hal.float32], width: hal.int32, height: hal.int32
):
    """Compute the magnitude of the Sobel gradient."""
    x = hal.global_idx(0)
    y = hal.global_idx(1)
    if x < width and y < height:
        zero = hal.int32(0)
        left = max(x - 1, zero)
        right = min(x + 1, width - 1)
        above = max(y - 1, zero) * width
        here = y * width
        below = min(y + 1, height - 1) * width
        across = image[above + right] + 2.0 * image[here + right] + image[below + right]
        across -= image[above + left] + 2.0 * image[here + left] + image[below + left]
        down = image[below + left] + 2.0 * image[below + x] + image[below + right]
        down -= image[above + left] + 2.0 * image[above + x] + image[above + right]
        out[here + x] = hal.sqrt(across * across + down * down)


def weights() -> Picture:
    offsets = np.arange(-RADIUS, RADIUS + 1)
    bell: Picture = np.exp(-(offsets**2) / (2 * SIGMA**2))
    bell /= bell.sum()
    return bell


def reference(photograph: Picture) -> list[Picture]:
    """Compute the blurred picture and its edges by scipy, in float64."""
    plain = photograph @ np.array([0.299, 0.587, 0.114]) / 255
    blurred = plain
    for axis in (1, 0):
        blurred = ndimage.correlate1d(blurred, weights(), axis=axis, mode="nearest")
    across, down = (ndimage.sobel(blurred, axis=axis, mode="nearest") for axis in (1, 0))
    return [blurred, np.hypot(across, down)]


def run(device: hal.Compiled, photograph: Picture, expected: list[Picture], folder: Path) -> bool:
    """Print the device's lines and save its picture; return True if its pixels are scipy's."""
    height, width = photograph.shape[:2]
    count = height * width
    rgb = hal.Buffer.from_numpy(photograph.reshape(-1), device=device)
    bell = hal.Buffer.from_numpy(weights().astype("f4"), device=device)
    plain, rows, blurred, found = (hal.Buffer(device, count, hal.float32) for _ in range(4))
    to_grey, to_blur, to_edges = (device.compile(kernel) for kernel in (grey, blur, edges))
    whole = (width, height)

    def once() -> float:
        return (
            to_grey(plain, rgb, vals=(count,), threads=count, wait=True)
            + to_blur(rows, plain, bell, vals=(width, height, 1, 0), threads=whole, wait=True)
            + to_blur(blurred, rows, bell, vals=(width, height, 0, 1), threads=whole, wait=True)
            + to_edges(found, blurred, vals=(width, height), threads=whole, wait=True)
        )

    seconds = min(once() for _ in range(REPEATS))
    made = [buffer.numpy((height, width)) for buffer in (blurred, found)]
    pairs = zip(made, expected, strict=True)
    difference = max(float(np.abs(ours - theirs).max()) for ours, theirs in pairs)
    path = folder / f"{device.name.lower().replace(':', '-')}-edges.png"
    save(photograph, made, path)
    speed = count * (3 + 7 * 4) / seconds / 1e9  # bytes that the launches read and write, at least
    print(f"{device.name}: {path} differs from scipy's by {difference:.1e}")
    print(f"    {seconds * 1e3:.3f} ms, {speed:.1f} GB/s on {device.info.title}", flush=True)
    return difference <= TOLERANCE  # a NaN is wrong too


def save(photograph: Picture, made: list[Picture], path: Path) -> None:
    """Save the photograph and what was made of it, side by side."""
    grey_levels = [255 * values / max(float(values.max()), 1e-9) for values in made]
    coloured = [np.stack([levels] * 3, -1).astype(np.uint8) for levels in grey_levels]
    Image.fromarray(np.concatenate([photograph, *coloured], axis=1)).save(path)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", help="its name; left out: every device of this machine")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder of the pictures")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    photograph: Picture = load_sample_image("china.jpg")
    expected = reference(photograph)
    names = [chosen.device] if chosen.device else hal.Device.get_available_devices()
    right = [run(hal.Device[name], photograph, expected, chosen.out) for name in names]
    if not names:
        print("No device found. `hal doctor` says why.")
    return 0 if right and all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
