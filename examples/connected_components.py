"""Number the connected parts of a picture: labels spread until a launch changes nothing.

Each pixel begins with its own index as its label, and takes the smallest label that it finds: of
its four neighbours, then of the pixel which that label names, and so on. It tells the pixel that
its old label names, too, so that labels go far in a few launches. Threads read what others write by
atomic loads, and a flag says whether any label has changed.

    python examples/connected_components.py --size 1000 --device CPU
"""

import argparse
import sys

import numpy as np
from numpy.typing import NDArray

import hal_core as hal


@hal.kernel
def begin(labels: hal.Ptr[hal.int32], picture: hal.ConstPtr[hal.uint8], count: hal.int32) -> None:
    """Label each pixel of a part with its index, and all others with -1."""
    i = hal.global_idx(0)
    if i < count:
        labels[i] = i if picture[i] != 0 else -1


@hal.func
def smaller(labels: hal.Ptr[hal.int32], i: hal.int32, least: hal.int32) -> hal.int32:
    """Return the label of pixel i if it has one that is less than `least`; else `least`."""
    label = hal.atomic_load(labels, i)
    return label if 0 <= label < least else least


@hal.kernel
def spread(
    labels: hal.Ptr[hal.int32], changed: hal.Ptr[hal.int32], width: hal.int32, height: hal.int32
) -> None:
    """Take smaller labels, and set `changed` if there is one."""
    x, y = hal.global_idx(0), hal.global_idx(1)
    if x >= width or y >= height:
        return
    i = y * width + x
    own = hal.atomic_load(labels, i)
    if own < 0:
        return
    least = own
    if x > 0:
        least = smaller(labels, i - 1, least)
    if x < width - 1:
        least = smaller(labels, i + 1, least)
    if y > 0:
        least = smaller(labels, i - width, least)
    if y < height - 1:
        least = smaller(labels, i + width, least)
    named = smaller(labels, least, least)
    while named < least:
        least = named
        named = smaller(labels, least, least)
    if least < own:
        hal.atomic_min(labels, i, least)
        hal.atomic_min(labels, own, least)
        hal.atomic_store(changed, 0, 1)


def reference(picture: NDArray[np.uint8]) -> NDArray[np.int32]:
    """Return the labels by filling one part after the other, in plain Python."""
    height, width = picture.shape
    labels = [-1] * picture.size
    inside = picture.reshape(-1).tolist()
    for first in range(picture.size):
        waiting = [first] if inside[first] and labels[first] < 0 else []
        while waiting:
            i = waiting.pop()
            if labels[i] >= 0:
                continue
            labels[i] = first
            x, y = i % width, i // width
            near = (
                (i - 1, x > 0),
                (i + 1, x < width - 1),
                (i - width, y > 0),
                (i + width, y < height - 1),
            )
            waiting += [j for j, exists in near if exists and inside[j]]
    return np.array(labels, np.int32).reshape(picture.shape)


def run(device: hal.Compiled, picture: NDArray[np.uint8], expected: NDArray[np.int32]) -> bool:
    """Print the device's lines; return True if its labels are the expected ones."""
    height, width = picture.shape
    labels, changed = hal.empty(picture.size, hal.int32, device), hal.zeros(1, hal.int32, device)
    buffer = hal.Buffer.from_numpy(picture.reshape(-1), device)
    program = device.compile(spread)
    device.compile(begin)(labels, buffer, vals=(picture.size,), threads=picture.size)
    seconds, rounds, again = 0.0, 0, True
    while again:
        changed.fill(0)
        seconds += program(
            labels, changed, vals=(width, height), threads=(width, height), wait=True
        )
        rounds, again = rounds + 1, bool(changed.numpy()[0])
    found = labels.numpy(picture.shape)
    sizes = np.unique(found[found >= 0], return_counts=True)[1].tolist()
    print(f"{device.name}: {len(sizes)} parts, the largest of {max(sizes, default=0)} pixels")
    speed = picture.size / seconds / 1e6
    print(f"    {rounds} rounds, {speed:.0f} million pixels a second on {device.info.title}")
    return bool(np.array_equal(found, expected))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", help="its name; left out: every device of this machine")
    parser.add_argument("--size", type=int, default=1000, help="of the picture's edge, in pixels")
    chosen = parser.parse_args()
    random = np.random.default_rng(0).random((chosen.size, chosen.size))
    picture = (random < 0.6).astype(np.uint8)
    expected = reference(picture)
    names = [chosen.device] if chosen.device else hal.Device.get_available_devices()
    right = [run(hal.Device[name], picture, expected) for name in names]
    return 0 if right and all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
