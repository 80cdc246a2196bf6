"""Blur a photograph and find its edges, with the same kernels on every device of the machine.

Shows all steps: find devices, open, copy in, compile, launch, copy out. Writes pictures, prints one
table, and ends with an error when a device's result differs from scipy's.

    python examples/edges.py --out pictures
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table
from scipy import ndimage
from sklearn.datasets import load_sample_image

import hal_core as hal

SIGMA = 1.5
RADIUS = 4  # pixels on either side; a compile-time constant of the kernels
TOLERANCE = 1e-5  # of values from 0 to about 4, against scipy in float64
REPEAT_SECONDS = 0.3  # measured this long, for the best time

Picture = NDArray[Any]


# -- the kernels


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


KERNELS = (grey, blur, edges)


# -- one device


class Result(NamedTuple):
    blurred: Picture
    edges: Picture
    seconds: float  # the sum of all four launches, in the best of several runs
    nbytes: int  # that the launches read and write, at least


def weights() -> Picture:
    offsets = np.arange(-RADIUS, RADIUS + 1)
    bell: Picture = np.exp(-(offsets**2) / (2 * SIGMA**2))
    bell /= bell.sum()
    return bell


def run(device: hal.Compiled, photograph: Picture) -> Result:
    """Make the two pictures of the photograph on one device, and time the kernels."""
    height, width = photograph.shape[:2]
    count = height * width
    rgb = hal.Buffer.from_numpy(photograph.reshape(-1), device=device)
    bell = hal.Buffer.from_numpy(weights().astype("f4"), device=device)
    plain, rows, blurred, found = (hal.Buffer(device, count, hal.float32) for _ in range(4))
    to_grey, to_blur, to_edges = (device.compile(kernel) for kernel in KERNELS)
    whole = (width, height)

    def once() -> float:
        return (
            to_grey(plain, rgb, vals=(count,), threads=count, wait=True)
            + to_blur(rows, plain, bell, vals=(width, height, 1, 0), threads=whole, wait=True)
            + to_blur(blurred, rows, bell, vals=(width, height, 0, 1), threads=whole, wait=True)
            + to_edges(found, blurred, vals=(width, height), threads=whole, wait=True)
        )

    seconds, end = once(), time.perf_counter() + REPEAT_SECONDS
    while time.perf_counter() < end:
        seconds = min(seconds, once())
    shape = (height, width)
    return Result(blurred.numpy(shape), found.numpy(shape), seconds, count * (3 + 7 * 4))


def reference(photograph: Picture) -> tuple[Picture, Picture]:
    """Compute both pictures by scipy, in float64."""
    plain = photograph @ np.array([0.299, 0.587, 0.114]) / 255
    blurred = plain
    for axis in (1, 0):
        blurred = ndimage.correlate1d(blurred, weights(), axis=axis, mode="nearest")
    across, down = (ndimage.sobel(blurred, axis=axis, mode="nearest") for axis in (1, 0))
    return blurred, np.hypot(across, down)


# -- pictures and the table


def picture(values: Picture) -> Image.Image:
    scaled = values * (255 / max(float(values.max()), 1e-9))
    return Image.fromarray(scaled.astype(np.uint8))


def save(folder: Path, name: str, photograph: Picture, result: Result) -> None:
    """Save the device's two pictures, and one that shows them next to the photograph."""
    stem = name.lower().replace(":", "-")
    parts = {"blurred": picture(result.blurred), "edges": picture(result.edges)}
    for part, image in parts.items():
        image.save(folder / f"{stem}-{part}.png")
    height, width = photograph.shape[:2]
    sheet = Image.new("RGB", (3 * width, height + 20), "white")
    shown = {"photograph": Image.fromarray(photograph), **parts}
    for place, (part, image) in enumerate(shown.items()):
        sheet.paste(image, (place * width, 20))
        ImageDraw.Draw(sheet).text((place * width + 6, 4), f"{name}: {part}", fill="black")
    sheet.save(folder / f"{stem}-sheet.png")


def examine(name: str, photograph: Picture, folder: Path) -> tuple[float, list[str]]:
    """Return the largest difference from scipy, and the device's row of the table."""
    with hal.Device[name] as device:
        title = device.info.title
        result = run(device, photograph)
    save(folder, name, photograph, result)
    pairs = zip((result.blurred, result.edges), reference(photograph), strict=True)
    difference = max(float(np.abs(ours - theirs).max()) for ours, theirs in pairs)
    speed = result.nbytes / result.seconds / 1e9
    colour = "green" if difference <= TOLERANCE else "red"
    last = (f"{result.seconds * 1e3:.3f}", f"{speed:.1f}", f"[{colour}]{difference:.1e}[/]")
    return difference, [name, title, *last]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", help="its name; left out: every device of this machine")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder of the pictures")
    return parser.parse_args()


def main() -> int:
    chosen = arguments()
    console = Console(width=max(Console().width, 110))
    names = [chosen.device] if chosen.device else hal.Device.get_available_devices()
    folder: Path = chosen.out
    folder.mkdir(parents=True, exist_ok=True)
    photograph: Picture = load_sample_image("china.jpg")
    Image.fromarray(photograph).save(folder / "original.png")

    heads = ("device", "hardware", "kernels ms", "GB/s", "difference")
    table = Table(
        *heads,
        title=f"{len(KERNELS)} kernels, {photograph.shape[1]} x {photograph.shape[0]} pixels",
    )
    wrong = []
    columns = (TextColumn("{task.description}"), BarColumn())
    with Progress(*columns, console=console) as progress:
        steps = progress.add_task("", total=len(names))
        for name in names:
            progress.update(steps, description=name)
            difference, row = examine(name, photograph, folder)
            table.add_row(*row)
            if not difference <= TOLERANCE:  # a NaN is wrong too
                wrong.append(name)
            progress.update(steps, description=f"{name}: done", advance=1)
    console.print(table)
    console.print(f"Pictures: {folder}. Difference allowed from scipy: {TOLERANCE:g}.")
    if wrong:
        console.print(f"[red]Wrong result on {', '.join(wrong)}.[/]")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
