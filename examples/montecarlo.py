"""The price of an option by many random futures of a share, beside the formula that is exact.

Each thread draws its own random numbers: Philox 4x32-10, a function of a counter and a key, so
that no thread needs a state, and the same numbers come on every device. The error falls with the
square root of the number of futures.

    python examples/montecarlo.py --count 4000000 --device CPU
"""

import argparse
import math
import sys

import numpy as np

import hal_core as hal

BLOCK = 256
DRAWS = 16  # of four futures each, by one thread
SHARE = BLOCK * DRAWS * 4
PRICE, STRIKE, RATE, SPREAD, YEARS = 100.0, 110.0, 0.03, 0.25, 1.0
DRIFT = (RATE - SPREAD * SPREAD / 2) * YEARS
SCALE = SPREAD * math.sqrt(YEARS)
ERRORS = 4.0  # standard errors that the result may be off; more than that is one in 16000


@hal.func
def product(a: hal.uint32, b: hal.uint32) -> tuple[hal.uint32, hal.uint32]:
    """Return the high and the low half of a * b."""
    whole = hal.uint64(a) * hal.uint64(b)
    return hal.uint32(whole >> 32), hal.uint32(whole)


@hal.func
def philox(
    a: hal.uint32, b: hal.uint32, c: hal.uint32, d: hal.uint32, key: hal.uint32
) -> tuple[hal.uint32, hal.uint32, hal.uint32, hal.uint32]:
    """Return four random numbers for the counter (a, b, c, d): Salmon et al., 2011."""
    key2 = hal.uint32(0)
    for _ in range(10):
        high, low = product(a, hal.uint32(0xD2511F53))
        high2, low2 = product(c, hal.uint32(0xCD9E8D57))
        a, b, c, d = high2 ^ b ^ key, low2, high ^ d ^ key2, low
        key += 0x9E3779B9
        key2 += 0xBB67AE85
    return a, b, c, d


@hal.func
def normal(a: hal.uint32, b: hal.uint32) -> tuple[hal.float32, hal.float32]:
    """Return two normally distributed numbers, by the formula of Box and Muller."""
    above_0 = (hal.float32(a >> 8) + 1.0) / 16777216.0
    radius = hal.sqrt(-2.0 * hal.log(above_0))
    angle = hal.float32(b >> 8) * (2 * math.pi / 16777216)
    return radius * hal.cos(angle), radius * hal.sin(angle)


@hal.func
def payoff(chance: hal.float32) -> hal.float32:
    """Return what the option pays if the share has gone that way."""
    return max(PRICE * hal.exp(DRIFT + SCALE * chance) - STRIKE, hal.float32(0))


@hal.kernel(block=BLOCK)
def price(sums: hal.Ptr[hal.float32], squares: hal.Ptr[hal.float32], seed: hal.uint32) -> None:
    """Add up the payoffs, and their squares, of each block's share of the futures."""
    tree = hal.shared(hal.float32, (2, BLOCK))
    t = hal.thread_idx(0)
    own = hal.uint32(hal.global_idx(0))
    zero = hal.uint32(0)
    total = square = hal.float32(0)
    for number in range(DRAWS):
        a, b, c, d = philox(own, hal.uint32(number), zero, zero, seed)
        first, second = normal(a, b)
        third, fourth = normal(c, d)
        one, two, three, four = payoff(first), payoff(second), payoff(third), payoff(fourth)
        total += (one + two) + (three + four)
        square += (one * one + two * two) + (three * three + four * four)
    tree[0, t] = total
    tree[1, t] = square
    hal.barrier()
    half = hal.int32(BLOCK // 2)
    while half > 0:
        if t < half:
            tree[0, t] += tree[0, t + half]
            tree[1, t] += tree[1, t + half]
        hal.barrier()
        half //= 2
    if t == 0:
        sums[hal.block_idx(0)] = tree[0, 0]
        squares[hal.block_idx(0)] = tree[1, 0]


def exact() -> float:
    """Return the price by the formula of Black and Scholes."""

    def below(x: float) -> float:
        return 0.5 * math.erfc(-x / math.sqrt(2))

    d = (math.log(PRICE / STRIKE) + (RATE + SPREAD * SPREAD / 2) * YEARS) / SCALE
    return PRICE * below(d) - STRIKE * math.exp(-RATE * YEARS) * below(d - SCALE)


def simulate(device: hal.Compiled, blocks: int) -> tuple[float, float, float]:
    """Return the price, its standard error, and the seconds of the launch."""
    sums, squares = (hal.Buffer(device, blocks, hal.float32) for _ in range(2))
    seconds = device.compile(price)(sums, squares, vals=(2024,), grid=blocks, wait=True)
    count = blocks * SHARE
    total, square = (float(np.sum(buffer.numpy(), dtype="f8")) for buffer in (sums, squares))
    spread = math.sqrt(max(square / count - (total / count) ** 2, 0.0))
    discount = math.exp(-RATE * YEARS)
    return discount * total / count, discount * spread / math.sqrt(count), seconds


def run(device: hal.Compiled, count: int) -> bool:
    """Print the device's table; return True if each price is as close as chance allows."""
    print(f"{device.name}: the formula says {exact():.4f}; {device.info.title}")
    print("       futures     price   off by  standard error  M futures/s")
    right = True
    for blocks in sorted({-(-count // (SHARE * part)) for part in (64, 8, 1)}):
        found, error, seconds = simulate(device, blocks)
        off, speed = found - exact(), blocks * SHARE / seconds / 1e6
        print(f"    {blocks * SHARE:10d}  {found:8.4f}  {off:+.4f}  {error:14.4f}  {speed:11.0f}")
        right &= error > 0 and abs(off) <= ERRORS * error
    return right


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", help="its name; left out: every device of this machine")
    parser.add_argument("--count", type=int, default=4_000_000, help="how many futures")
    chosen = parser.parse_args()
    names = [chosen.device] if chosen.device else hal.Device.get_available_devices()
    right = [run(hal.Device[name], chosen.count) for name in names]
    if not names:
        print("No device found. `hal doctor` says why.")
    return 0 if right and all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
