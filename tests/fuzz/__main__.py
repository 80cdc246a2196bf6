"""The long run: `python tests/fuzz --kernels 10000 --targets llvm,gcc,clang,opencl,ptx,hip`."""

import argparse
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from campaign import small, together, verdicts
from device import TARGETS, built
from harness import DISCARDED, MISSING, OK, UNSUPPORTED, WRONG
from rich.console import Console
from rich.progress import Progress

console = Console(soft_wrap=True)
SHOWN = 500  # numbers after which the counts are printed where no bar is


def main():
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("--kernels", type=int, default=200, help="on each target")
    parser.add_argument("--first", type=int, default=0, help="number of the first kernel")
    every = ",".join(TARGETS)
    parser.add_argument("--targets", default=every, help=f"of {every}; by default all")
    parser.add_argument("--batch", type=int, default=8, help="kernels that are compiled at once")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no kernel after these")
    parser.add_argument("--reduce", type=int, default=3, help="findings to print, made small")
    options = parser.parse_args()
    names = options.targets.split(",")
    unknown = set(names) - set(TARGETS)
    if unknown:
        parser.error(f"no such target: {', '.join(sorted(unknown))}")
    wrong = [_run(group, options) for group in together(names)]
    return 1 if any(wrong) else 0


class Counts:
    """Count the outcomes of one target's kernels."""

    def __init__(self):
        self.kinds = Counter()
        self.why = Counter()
        self.wrong = []

    def add(self, seed, verdict):
        self.kinds[verdict.kind] += 1
        if verdict.kind == WRONG:
            self.wrong.append(seed)
        elif verdict.kind != OK:
            self.why[verdict.why.splitlines()[0][:100]] += 1

    def __str__(self):
        kinds = self.kinds
        return (
            f"{kinds[OK] + kinds[WRONG]} kernels run, {kinds[DISCARDED]} discarded, "
            f"{kinds[UNSUPPORTED]} unsupported, {kinds[WRONG]} mismatches"
        )


def _run(names, options):
    """Print what becomes of the kernels on these targets; tell whether one came out wrong."""
    counts = defaultdict(Counts)
    for name in names:  # before a worker is waited for
        built(TARGETS[name].device)
    start, done = time.monotonic(), 0
    with Progress(console=console) as progress:
        task = progress.add_task(", ".join(names), total=options.kernels)
        for seed, name, verdict in verdicts(names, options.first, options.kernels, options.batch):
            if verdict.kind == MISSING:
                console.print(f"{name}: not on this machine: {verdict.why}", markup=False)
                continue
            if seed - options.first > done:
                done = seed - options.first
                progress.update(task, completed=done)
                if time.monotonic() - start > options.minutes * 60:
                    break
                if done % SHOWN == 0 and not console.is_terminal:
                    for shown, count in counts.items():
                        print(f"{shown}: to {seed - 1}: {count}", flush=True)
            counts[name].add(seed, verdict)
            if verdict.kind == WRONG:
                console.print(f"{name} {seed}: {verdict.why[:300]}", markup=False)
    minutes = (time.monotonic() - start) / 60
    for name, count in counts.items():
        console.print(f"{name}: {count}; {minutes:.1f} minutes", markup=False)
        for text, number in count.why.most_common(5):
            console.print(f"    {number} x {text}", markup=False)
    for name, count in counts.items():
        for seed in count.wrong[: options.reduce]:
            console.print(f"\n# {name}, seed {seed}\n{small(name, seed)}", markup=False)
    return any(count.wrong for count in counts.values())


if __name__ == "__main__":
    sys.exit(main())
