"""Train a small network to read handwritten digits; kernels compute every number.

The data are scikit-learn's digits: 1797 pictures of 8 x 8 pixels. Three quarters train a network
of one hidden layer by gradient descent with momentum; the rest test it. The host shuffles and
launches. Kernels make the first weights and the mini-batches, run both passes, take the steps and
count the right answers. Writes a picture of test digits with the answers.

    python examples/digits.py --device CPU --out pictures
    python examples/digits.py --devices CPU,OPENCL

With `--devices` the devices learn together: each takes its share of every mini-batch, and then the
weights of all become their mean, which is one step with the mean of the gradients.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

import hal_core as hal

PIXELS, HIDDEN, CLASSES = 64, 128, 10
SIZES = {  # of the weights, and of the speeds that momentum gives them
    "first": (PIXELS + 1) * HIDDEN, "first_speed": (PIXELS + 1) * HIDDEN,
    "last": (HIDDEN + 1) * CLASSES, "last_speed": (HIDDEN + 1) * CLASSES,
}  # fmt: skip
WEIGHTS = sum(SIZES.values())
BATCH, ROUNDS = 64, 30
RATE, MOMENTUM = 0.1, 0.9
WANTED = 0.95  # share of the test digits that must be read right
TOLERANCE = 1e-3  # of scores, which go up to about 30; numpy computes in float64

Array = NDArray[Any]
Numbers = hal.Ptr[hal.float32]  # that the kernel writes
Input = hal.ConstPtr[hal.float32]


# -- the kernels. Weights have a row for each input and one for the bias, whose input is 1.


@hal.func
def scrambled(x: hal.uint32) -> hal.uint32:
    """Return a pseudo-random number for each x: one step of PCG-RXS-M-XS (O'Neill, 2014)."""
    state = x * 747796405 + 2891336453
    word = ((state >> ((state >> 28) + 4)) ^ state) * 277803737
    return (word >> 22) ^ word


@hal.kernel
def initialise(weights: Numbers, count: hal.int32, seed: hal.uint32, scale: hal.float32) -> None:
    """Draw weights uniformly from -scale to scale."""
    i = hal.global_idx(0)
    if i < count:
        number = scrambled(hal.uint32(i) ^ scrambled(seed)) >> 8  # 24 bits, exact in float32
        weights[i] = scale * (hal.float32(number) / 8388608.0 - 1.0)


@hal.kernel
def gather(
    x: Numbers, labels: hal.Ptr[hal.int32], pictures: hal.ConstPtr[hal.uint8],
    digits: hal.ConstPtr[hal.uint8], order: hal.ConstPtr[hal.int32], first: hal.int32,
    rows: hal.int32,
) -> None:  # fmt: skip
    """Gather a mini-batch: scale pixels of 0 to 16 to 0 to 1, and copy the labels."""
    pixel = hal.global_idx(0)
    row = hal.global_idx(1)
    if pixel < PIXELS and row < rows:
        source = order[first + row]
        x[row * PIXELS + pixel] = hal.float32(pictures[source * PIXELS + pixel]) / 16.0
        if pixel == 0:
            labels[row] = hal.int32(digits[source])


def make_layer(inputs: int, outputs: int, rectified: bool) -> hal.KernelFunction:
    @hal.kernel
    def layer(y: Numbers, x: Input, weights: Input, rows: hal.int32) -> None:
        """Compute y = x @ weights + bias; negative numbers become 0 if `rectified`."""
        column = hal.global_idx(0)
        row = hal.global_idx(1)
        if column < outputs and row < rows:
            total = weights[inputs * outputs + column]
            for k in range(inputs):
                total += x[row * inputs + k] * weights[k * outputs + column]
            y[row * outputs + column] = max(total, hal.float32(0)) if rectified else total

    return layer


@hal.kernel
def loss_gradient(
    gradient: Numbers, loss: Numbers, scores: Input, labels: hal.ConstPtr[hal.int32],
    rows: hal.int32,
) -> None:  # fmt: skip
    """Add the mean cross entropy of the batch's softmax to `loss`, and write its gradient."""
    row = hal.global_idx(0)
    if row >= rows:
        return
    largest = scores[row * CLASSES]
    for k in range(1, CLASSES):
        largest = max(largest, scores[row * CLASSES + k])
    total = hal.float32(0)
    for k in range(CLASSES):
        total += hal.exp(scores[row * CLASSES + k] - largest)
    label = labels[row]
    for k in range(CLASSES):
        share = hal.exp(scores[row * CLASSES + k] - largest) / total
        gradient[row * CLASSES + k] = (share - (1.0 if k == label else 0.0)) / hal.float32(rows)
    surprise = hal.log(total) + largest - scores[row * CLASSES + label]
    hal.atomic_add(loss, 0, surprise / hal.float32(rows))


def make_backward(inputs: int, outputs: int) -> hal.KernelFunction:
    @hal.kernel
    def backward(out: Numbers, x: Input, weights: Input, gradient: Input, rows: hal.int32) -> None:
        """Compute the gradient at a rectified layer's output x from that at the next layer's."""
        column = hal.global_idx(0)
        row = hal.global_idx(1)
        if column < inputs and row < rows:
            total = hal.float32(0)
            if x[row * inputs + column] > 0:
                for k in range(outputs):
                    total += gradient[row * outputs + k] * weights[column * outputs + k]
            out[row * inputs + column] = total

    return backward


def make_step(inputs: int, outputs: int) -> hal.KernelFunction:
    @hal.kernel
    def step(
        weights: Numbers, speed: Numbers, x: Input, gradient: Input, rows: hal.int32,
        rate: hal.float32,
    ) -> None:  # fmt: skip
        """Move each weight against its gradient, x^T @ gradient, with momentum."""
        column = hal.global_idx(0)
        row = hal.global_idx(1)
        if column < outputs and row <= inputs:
            slope = hal.float32(0)
            for k in range(rows):
                value = x[k * inputs + row] if row < inputs else 1.0
                slope += value * gradient[k * outputs + column]
            i = row * outputs + column
            speed[i] = MOMENTUM * speed[i] - rate * slope
            weights[i] += speed[i]

    return step


@hal.kernel
def read(
    answers: hal.Ptr[hal.int32], right: hal.Ptr[hal.int32], scores: Input,
    labels: hal.ConstPtr[hal.int32], rows: hal.int32,
) -> None:  # fmt: skip
    """Find the class with the highest score in each row; add the number of hits to `right`."""
    row = hal.global_idx(0)
    if row < rows:
        best = hal.int32(0)
        for k in range(1, CLASSES):
            if scores[row * CLASSES + k] > scores[row * CLASSES + best]:
                best = hal.int32(k)
        answers[row] = best
        if best == labels[row]:
            hal.atomic_add(right, 0, 1)


@hal.kernel
def average(weights: Numbers, total: Input, count: hal.int32, share: hal.float32) -> None:
    """Write the mean of all devices' weights: their sum times 1 / the number of devices."""
    i = hal.global_idx(0)
    if i < count:
        weights[i] = total[i] * share


first_layer = make_layer(PIXELS, HIDDEN, rectified=True)
last_layer = make_layer(HIDDEN, CLASSES, rectified=False)
hidden_backward = make_backward(HIDDEN, CLASSES)
first_step = make_step(PIXELS, HIDDEN)
last_step = make_step(HIDDEN, CLASSES)


# -- the network


class Digits:
    """Pictures and labels on a device, in an order that `shuffle` changes."""

    def __init__(self, device: hal.Compiled, pictures: Array, labels: Array) -> None:
        self.size = len(labels)
        self.pictures = hal.Buffer.from_numpy(pictures.reshape(-1), device)
        self.labels = hal.Buffer.from_numpy(labels, device)
        self.order = hal.Buffer.from_numpy(np.arange(self.size, dtype="i4"), device)

    def shuffle(self, random: np.random.Generator) -> None:
        self.order.copyin(random.permutation(self.size).astype("i4"))


class Network:
    """The network: weights on one device, and methods that launch the kernels."""

    def __init__(self, weights: hal.Buffer, rows: int, queue: hal.Queue | None = None) -> None:
        """`weights` are zeros, WEIGHTS of them, and `rows` the most digits in one pass."""
        self.device, self.queue = hal.Device[weights.device], queue
        sizes = {
            "x": rows * PIXELS, "hidden": rows * HIDDEN, "hidden_slope": rows * HIDDEN,
            "scores": rows * CLASSES, "slope": rows * CLASSES, "loss": 1,
        }  # fmt: skip
        self.buffers = {
            name: hal.zeros(size, hal.float32, self.device) for name, size in sizes.items()
        }
        start = 0
        for name, size in SIZES.items():
            self.buffers[name] = weights[start : start + size]
            start += size
        self.buffers |= {
            name: hal.zeros(size, hal.int32, self.device)
            for name, size in {"labels": rows, "answers": rows, "right": 1}.items()
        }
        ends = (("first", PIXELS + HIDDEN), ("last", HIDDEN + CLASSES))
        for seed, (name, count) in enumerate(ends):
            scale = (6 / count) ** 0.5  # Glorot and Bengio, 2010
            self.run(initialise, name, (SIZES[name], seed, scale), SIZES[name])

    def run(
        self, kernel: hal.KernelFunction, names: str, vals: tuple[float, ...],
        threads: int | tuple[int, int], *others: hal.Buffer,
    ) -> None:  # fmt: skip
        buffers = [self.buffers[name] for name in names.split()]
        program = self.device.compile(kernel)
        program(*buffers, *others, vals=vals, threads=threads, queue=self.queue)

    def forward(self, digits: Digits, first: int, rows: int) -> None:
        """Compute the scores of `rows` digits, from position `first` of their order."""
        stored = (digits.pictures, digits.labels, digits.order)
        self.run(gather, "x labels", (first, rows), (PIXELS, rows), *stored)
        self.run(first_layer, "hidden x first", (rows,), (HIDDEN, rows))
        self.run(last_layer, "scores hidden last", (rows,), (CLASSES, rows))

    def learn(self, digits: Digits, first: int, rows: int, rate: float) -> None:
        """Take one step of gradient descent, on one mini-batch."""
        self.forward(digits, first, rows)
        self.run(loss_gradient, "slope loss scores labels", (rows,), rows)
        self.run(hidden_backward, "hidden_slope hidden last slope", (rows,), (HIDDEN, rows))
        both = (rows, rate)
        self.run(last_step, "last last_speed hidden slope", both, (CLASSES, HIDDEN + 1))
        self.run(first_step, "first first_speed x hidden_slope", both, (HIDDEN, PIXELS + 1))

    def read(self, digits: Digits) -> float:
        """Return the share of digits that are read right; `answers` then holds what is read."""
        rows = digits.size
        self.forward(digits, 0, rows)
        self.buffers["right"].fill(0)
        self.run(read, "answers right scores labels", (rows,), rows)
        return int(self.buffers["right"].numpy()[0]) / rows


class Team:
    """Networks with the same weights on several devices, which learn together."""

    def __init__(self, devices: list[hal.Compiled], split: list[Array]) -> None:
        pictures, test_pictures, labels, test_labels = split
        self.devices, count = devices, len(devices)
        self.digits = [Digits(device, pictures, labels) for device in devices]
        self.test = Digits(devices[0], test_pictures, test_labels)
        self.weights = hal.MultiBuffer(devices, (count, WEIGHTS), hal.float32).fill(0)
        rows = max(BATCH, self.test.size)
        # A queue of its own lets a device work beside the others.
        queues = [device.queue() if count > 1 else None for device in devices]
        self.networks = [
            Network(buffer, rows, queue)
            for buffer, queue in zip(self.weights.bufs, queues, strict=True)
        ]
        self.gather()

    def gather(self) -> None:
        """Let the default queues wait for what the networks' queues do."""
        ends = [one.queue.record() for one in self.networks if one.queue is not None]
        for device, end in zip(self.devices, ends, strict=False):
            device.default_queue.wait(end)

    def learn(self, first: int, rate: float) -> None:
        """Take one step, each device with its share of one mini-batch."""
        count = len(self.devices)
        rows = BATCH // count
        for place, network in enumerate(self.networks):
            if network.queue is not None:
                network.queue.wait(network.device.default_queue.record())
            network.learn(self.digits[place], first + place * rows, rows, rate)
        if count > 1:
            self.gather()
            total = self.weights.reduce("sum")
            hal.launch(average, self.weights, total, vals=(WEIGHTS, 1 / count), threads=WEIGHTS)

    def shuffle(self, seed: int) -> None:
        for digits in self.digits:  # all in the same order
            digits.shuffle(np.random.default_rng(seed))

    def take_loss(self) -> float:
        """Return the devices' mean sum of losses since the last call."""
        losses = [float(one.buffers["loss"].numpy()[0]) for one in self.networks]
        for network in self.networks:
            network.buffers["loss"].fill(0)
        return sum(losses) / len(losses)


# -- learning


class Learnt(NamedTuple):
    losses: list[float]  # the mean loss of each round through the training digits
    accuracy: float  # share of the test digits that are read right
    answers: Array  # the digits that the network reads in the test pictures
    difference: float  # the largest, of the scores from numpy's with the same weights
    seconds: float  # that learning took


def learn(devices: list[hal.Compiled], split: list[Array], progress: Progress) -> Learnt:
    """Train a network on one device, or on several together, and test it on the first."""
    team, names = Team(devices, split), " + ".join(device.name for device in devices)
    losses, start = list[float](), time.perf_counter()
    steps = range(0, team.digits[0].size - BATCH + 1, BATCH)
    task = progress.add_task(names, total=ROUNDS)
    for done in range(ROUNDS):
        team.shuffle(done)
        rate = RATE * (1 - done / ROUNDS)
        for first in steps:
            team.learn(first, rate)
        losses.append(team.take_loss() / len(steps))
        progress.update(task, advance=1, description=f"{names}: loss {losses[-1]:.4f}")
    seconds = time.perf_counter() - start
    network, test_pictures = team.networks[0], split[1]
    network.queue = None
    accuracy = network.read(team.test)
    read, scores, *weights = (
        network.buffers[name].numpy() for name in ("answers", "scores", "first", "last")
    )
    exact = reference(test_pictures, *weights)
    difference = float(np.abs(scores[: exact.size].reshape(exact.shape) - exact).max())
    return Learnt(losses, accuracy, read[: team.test.size], difference, seconds)


def reference(pictures: Array, first: Array, last: Array) -> Array:
    """Compute the network's scores by numpy, in float64."""
    first, last = (
        part.astype("f8").reshape(-1, width) for part, width in ((first, HIDDEN), (last, CLASSES))
    )
    hidden = np.maximum(pictures / 16 @ first[:-1] + first[-1], 0)
    scores: Array = hidden @ last[:-1] + last[-1]
    return scores


# -- data, pictures and the table; the functions that import scikit-learn and Pillow


def load() -> list[Array]:
    """Return training pictures, test pictures, training labels and test labels."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    pictures, labels = load_digits(return_X_y=True)
    arrays = (pictures.astype("u1"), labels.astype("u1"))
    return [np.asarray(part) for part in train_test_split(*arrays, stratify=labels, random_state=0)]


def draw_digits(pictures: Array, labels: Array, answers: Array, path: Path) -> None:
    """Draw sixty test digits and what was read; the wrong ones come first, in red."""
    from PIL import Image, ImageDraw

    sheet = Image.new("RGB", (12 * 70, 5 * 88), "white")
    pen = ImageDraw.Draw(sheet)
    for place, i in enumerate(np.argsort(answers == labels, kind="stable")[:60]):
        x, y = place % 12 * 70 + 3, place // 12 * 88 + 3
        ink = (255 - pictures[i].reshape(8, 8) * 15).astype(np.uint8)
        sheet.paste(Image.fromarray(ink).resize((64, 64), Image.Resampling.NEAREST), (x, y))
        right = answers[i] == labels[i]
        said = f"{answers[i]}" if right else f"{answers[i]}, is {labels[i]}"
        pen.text((x + 4, y + 66), said, fill="black" if right else "#d1242f")
    sheet.save(path)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", help="its name; left out: every device of this machine")
    parser.add_argument("--devices", help="several names, as in CPU,OPENCL, that learn together")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder of the pictures")
    chosen = parser.parse_args()
    console = Console(width=max(Console().width, 100))
    names = [chosen.device] if chosen.device else hal.Device.get_available_devices()
    teams = [chosen.devices.split(",")] if chosen.devices else [[name] for name in names]
    chosen.out.mkdir(parents=True, exist_ok=True)
    split = load()
    heads = ("device", "hardware", "seconds", "loss", "right", "off by")
    table = Table(*heads, title=f"{len(split[3])} test digits after {ROUNDS} rounds")
    bad = []
    with Progress(TextColumn("{task.description}"), BarColumn(), console=console) as progress:
        for names in teams:
            name = "+".join(names)
            if not console.is_terminal:  # the bar is drawn at the end then
                console.print(f"{name}: learning in {ROUNDS} rounds")
            devices = [hal.Device[one] for one in names]
            learnt = learn(devices, split, progress)
            stem = f"{chosen.out}/{name.lower().replace(':', '-')}"
            draw_digits(split[1], split[3], learnt.answers, Path(f"{stem}-digits.png"))
            good = learnt.accuracy > WANTED and learnt.difference <= TOLERANCE
            bad += [] if good else [name]
            titles = ", ".join(one.info.title for one in devices)
            numbers = (f"{learnt.seconds:.2f}", f"{learnt.losses[-1]:.4f}")
            right = f"[{'green' if good else 'red'}]{learnt.accuracy:.1%}[/]"
            table.add_row(name, titles, *numbers, right, f"{learnt.difference:.0e}")
    console.print(table)
    console.print("off by: the scores, from numpy's with the same weights.")
    console.print(f"Pictures: {chosen.out}.")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
