"""The Mandelbrot set: for each pixel c, count the steps of z = z * z + c that stay in a circle.

Some pixels leave the circle after a few steps and their neighbours never, so each thread loops for
as long as its pixel needs.

    python examples/mandelbrot.py --size 600 --device CPU --out mandelbrot.png
"""

import argparse
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import hal_core as hal

LIMIT = 200
LEFT, TOP, SIDE = -2.1, -1.35, 2.7  # the part of the plane that is shown


@hal.func
def position(start: hal.float32, pixel: hal.int32, step: hal.float32) -> hal.float32:
    return start + hal.float32(pixel) * step


# Without fused operations every device counts the same steps, down to the last pixel.
@hal.kernel(contract=False)
def mandelbrot(counts: hal.Ptr[hal.int32], size: hal.int32, step: hal.float32) -> None:
    x = hal.global_idx(0)
    y = hal.global_idx(1)
    if x >= size or y >= size:
        return
    across = position(hal.float32(LEFT), x, step)
    down = position(hal.float32(TOP), y, step)
    real = hal.float32(0)
    imaginary = hal.float32(0)
    count = hal.int32(0)
    while count < LIMIT:
        real_square = real * real
        imaginary_square = imaginary * imaginary
        if real_square + imaginary_square > 4:
            break
        imaginary = 2 * real * imaginary + down
        real = real_square - imaginary_square + across
        count += 1
    counts[y * size + x] = count


def reference(size: int) -> NDArray[np.int32]:
    """Count by numpy, one step of all pixels at a time."""
    step = np.float32(SIDE / size)
    pixels = np.arange(size, dtype="f4")
    across, down = np.float32(LEFT) + pixels * step, (np.float32(TOP) + pixels * step)[:, None]
    real, imaginary = np.zeros((size, size), "f4"), np.zeros((size, size), "f4")
    counts, inside = np.zeros((size, size), "i4"), np.ones((size, size), bool)
    for _ in range(LIMIT):
        inside &= real * real + imaginary * imaginary <= 4
        counts += inside
        moved = real * real - imaginary * imaginary + across, 2 * real * imaginary + down
        real, imaginary = (
            np.where(inside, new, old) for new, old in zip(moved, (real, imaginary), strict=True)
        )
    return counts


def run(device: hal.Compiled, expected: NDArray[np.int32], out: Path | None) -> bool:
    """Print the device's lines; return True if its counts are those of numpy."""
    size = len(expected)
    buffer = hal.Buffer(device, size * size, hal.int32)
    program = device.compile(mandelbrot)
    seconds = min(
        program(buffer, vals=(size, SIDE / size), threads=(size, size), wait=True) for _ in range(3)
    )
    counts = buffer.numpy((size, size))
    speed = counts.sum(dtype="i8") / seconds / 1e9
    print(f"{device.name}: {np.mean(counts == LIMIT):.2%} of the pixels stay inside")
    print(f"    {speed:.2f} G steps/s on {device.info.title}")
    if out:
        save(counts, out)
        print(f"    {out}")
    return bool(np.array_equal(counts, expected))


def save(counts: NDArray[np.int32], path: Path) -> None:
    from PIL import Image  # only the picture needs it

    shade = 255 * np.sqrt(np.where(counts == LIMIT, 0, counts) / LIMIT)
    Image.fromarray(shade.astype(np.uint8)).save(path)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", help="its name; left out: every device of this machine")
    parser.add_argument("--size", type=int, default=600, help="pixels of a side")
    parser.add_argument("--out", type=Path, help="file for the picture; needs Pillow")
    chosen = parser.parse_args()
    expected = reference(chosen.size)
    names = [chosen.device] if chosen.device else hal.Device.get_available_devices()
    right = [run(hal.Device[name], expected, chosen.out) for name in names]
    return 0 if right and all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
