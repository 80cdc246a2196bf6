"""Sort numbers by their digits: a radix sort, four bits at a time, that keeps equal ones in order.

For each digit, blocks count how often each value occurs in their share, a scan of the counts says
where each block's share of each value begins, and the blocks move their numbers there.

    python examples/sort.py --count 1000000 --device CPU
"""

import argparse
import sys

import numpy as np
from numpy.typing import NDArray

import hal_core as hal

BLOCK = 64
ITEMS = 16  # numbers of a thread, neighbours of each other
SHARE = BLOCK * ITEMS
BITS = 4
VALUES = 1 << BITS  # of a digit
SCAN = 256  # threads of the scan


@hal.func
def digit(key: hal.uint32, shift: hal.int32) -> hal.int32:
    return hal.int32((key >> hal.uint32(shift)) & (VALUES - 1))


@hal.kernel(block=BLOCK)
def count(
    counts: hal.Ptr[hal.int32], keys: hal.ConstPtr[hal.uint32], shift: hal.int32, n: hal.int32
) -> None:
    """Count the digits of each block's share: a row for each value, a column for each block."""
    own = hal.shared(hal.int32, VALUES)
    t = hal.thread_idx(0)
    if t < VALUES:
        own[t] = 0
    hal.barrier()
    for k in range(ITEMS):
        i = hal.block_idx(0) * SHARE + k * BLOCK + t
        if i < n:
            hal.atomic_add(own, digit(keys[i], shift), 1)
    hal.barrier()
    if t < VALUES:
        counts[t * hal.grid_dim(0) + hal.block_idx(0)] = own[t]


@hal.kernel(block=SCAN)
def scan(counts: hal.Ptr[hal.int32], n: hal.int32) -> None:
    """Replace each count by the sum of all before it. One block goes through all of them."""
    total = hal.shared(hal.int32, SCAN)
    t = hal.thread_idx(0)
    before = hal.int32(0)  # of all earlier rounds
    for first in range(0, n, SCAN):
        i = first + t
        own = counts[i] if i < n else 0
        total[t] = own
        hal.barrier()
        step = hal.int32(1)
        while step < SCAN:
            left = total[t - step] if t >= step else 0
            hal.barrier()
            total[t] += left
            hal.barrier()
            step *= 2
        if i < n:
            counts[i] = before + total[t] - own
        before += total[SCAN - 1]
        hal.barrier()  # all have read the last sum


@hal.kernel(block=BLOCK)
def move(
    out: hal.Ptr[hal.uint32], keys: hal.ConstPtr[hal.uint32], before: hal.ConstPtr[hal.int32],
    shift: hal.int32, n: hal.int32,
) -> None:  # fmt: skip
    """Move each key behind all smaller digits, and behind the same digit further left."""
    place = hal.shared(hal.int32, (VALUES, BLOCK))  # of the next key of a value and a thread
    t = hal.thread_idx(0)
    first = hal.block_idx(0) * SHARE + t * ITEMS
    for value in range(VALUES):
        place[value, t] = 0
    for k in range(ITEMS):
        if first + k < n:
            place[digit(keys[first + k], shift), t] += 1
    hal.barrier()
    if t < VALUES:  # each of these threads turns the counts of one value into places
        next_place = before[t * hal.grid_dim(0) + hal.block_idx(0)]
        for thread in range(BLOCK):
            found = place[t, thread]
            place[t, thread] = next_place
            next_place += found
    hal.barrier()
    for k in range(ITEMS):
        if first + k < n:
            key = keys[first + k]
            to = place[digit(key, shift), t]
            place[digit(key, shift), t] = to + 1
            out[to] = key


def sort(device: hal.Compiled, keys: hal.Buffer) -> tuple[hal.Buffer, float]:
    """Return the sorted keys, and the seconds; the given buffer serves as the second one."""
    n, blocks = keys.size, -(-keys.size // SHARE)
    out, counts = hal.Buffer(device, n, hal.uint32), hal.Buffer(device, VALUES * blocks, hal.int32)
    to_count, to_scan, to_move = (device.compile(kernel) for kernel in (count, scan, move))
    seconds = 0.0
    for shift in range(0, 32, BITS):
        seconds += to_count(counts, keys, vals=(shift, n), grid=blocks, wait=True)
        seconds += to_scan(counts, vals=(counts.size,), grid=1, wait=True)
        seconds += to_move(out, keys, counts, vals=(shift, n), grid=blocks, wait=True)
        keys, out = out, keys
    return keys, seconds


def run(device: hal.Compiled, keys: NDArray[np.uint32]) -> bool:
    """Print the device's lines; return True if its order is that of numpy."""
    found, seconds = sort(device, hal.Buffer.from_numpy(keys, device))
    result = found.numpy()
    print(f"{device.name}: from {result[0]} to {result[-1]}")
    print(f"    {keys.size / seconds / 1e6:.1f} M numbers/s on {device.info.title}")
    return bool(np.array_equal(result, np.sort(keys)))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", help="its name; left out: every device of this machine")
    parser.add_argument("--count", type=int, default=1_000_000, help="how many numbers")
    chosen = parser.parse_args()
    keys = np.random.default_rng(0).integers(0, 1 << 32, chosen.count, dtype=np.uint32)
    names = [chosen.device] if chosen.device else hal.Device.get_available_devices()
    right = [run(hal.Device[name], keys) for name in names]
    return 0 if right and all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
