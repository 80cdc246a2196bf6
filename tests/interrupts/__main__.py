"""Press Ctrl-C in work of queues, graphs, profiles, kernels, devices and memory; check the rest.

`python tests/interrupts CPU OPENCL PYTHON --minutes 10 --seed 3 --only graphs`
"""

import argparse
import functools
import itertools
import os
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from interrupts import child
from interrupts.campaign import Campaign, Tally, batches, chosen, moments, sample
from interrupts.child import FIRST, LATER, MOMENT, Count, Point
from interrupts.scenes import SCENES

_SAID_SECONDS = 60.0  # between two lines of counts


def main():
    options = _options()
    campaign = Campaign(options.jobs, options.limit)
    try:
        return _run(campaign, options)
    finally:
        campaign.close()


def _run(campaign, options):
    names = [name for name in SCENES if any(name.startswith(one) for one in options.only or [""])]
    devices = []
    for device in options.devices:
        answer = campaign.ask(functools.partial(child.title, device))
        if isinstance(answer, child.Title):
            devices.append(device)
        else:
            print(f"{device} is not here: {answer}", flush=True)
    scenes = list(itertools.product(devices, names))
    if options.at:
        kind, _, number = options.at.partition(":")
        order = iter([[Point(*scene, kind, int(number))] for scene in scenes])
    elif options.points:
        order = sample(scenes, options.points, random.Random(options.seed))
    else:
        order = _all_of_them(_counts(campaign, scenes), options)
    tally = _play(campaign, order, options)
    _summary(tally)
    return 1 if tally.findings or not scenes else 0


def _options():
    parser = argparse.ArgumentParser(prog="interrupts", description=__doc__)
    parser.add_argument("devices", nargs="*", default=["CPU", "OPENCL", "PYTHON"])
    parser.add_argument("--minutes", type=float, help="by default until all places were played")
    parser.add_argument("--seed", type=int, default=0, help="of the order and of the moments")
    parser.add_argument("--only", action="append", help="scenes whose names begin so")
    parser.add_argument("--points", type=int, help="so many places and moments of each scene")
    parser.add_argument("--at", help="one point of one scene and device, as a finding prints it")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at once")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds of one point")
    return parser.parse_args()


def _counts(campaign, scenes):
    """Count what the scenes have, and print it for each device."""
    counts = {}
    for scene in scenes:
        found = campaign.ask(functools.partial(child.count, *scene, campaign.files))
        if not isinstance(found, Count):
            raise SystemExit(f"{' '.join(scene)} fails without Ctrl-C: {found}")
        counts[scene] = found
    for device in dict.fromkeys(device for device, _ in counts):
        mine = [found for (one, _), found in counts.items() if one == device]
        first, later, bytecodes, _ = map(sum, zip(*mine, strict=True))
        print(
            f"{device}: {len(mine)} scenes, {bytecodes} bytecodes of hal at {first} places in a "
            f"new process, {later} in a warm one",
            flush=True,
        )
    return counts


def _all_of_them(counts, options):
    """Yield all places in an order by chance, moments between them and, while there is time,
    behind them."""
    source = random.Random(options.seed)
    by_chance = moments(counts, source)
    for number, places in enumerate(batches(chosen(counts), source)):
        yield places
        if number % 8 == 0:
            yield next(by_chance)
    if options.minutes is not None:
        yield from by_chance


def _play(campaign, order, options):
    """Play what is asked for, print what is found at once, and counts now and then."""
    tally, begin, said = Tally(), time.monotonic(), time.monotonic()
    end = begin + 60 * (1e9 if options.minutes is None else options.minutes)
    in_time = itertools.takewhile(lambda _: time.monotonic() < end, order)
    for outcome in campaign.play(in_time):
        tally.add(outcome)
        if outcome.fault:
            print(f"\nFOUND {outcome.point.device}, {outcome.point.scene}: {outcome.fault}")
            print(f"    again: python tests/interrupts {outcome.point}", flush=True)
        if time.monotonic() - said > _SAID_SECONDS:
            said = time.monotonic()
            print(f"{sum(tally.played.values())} points, {len(tally.findings)} found", flush=True)
    return tally


def _summary(tally):
    words = {FIRST: "places in new processes", LATER: "places in warm ones", MOMENT: "moments"}
    for (device, kind), played in sorted(tally.played.items()):
        struck = tally.struck[device, kind]
        print(f"{device}: {struck} of {played} {words[kind]} came in the work")
    print(f"{len(tally.findings)} found")
    for outcome in tally.findings:
        print(f"    {outcome.point}: {outcome.fault.splitlines()[0]}")


if __name__ == "__main__":
    sys.exit(main())
