"""Read a safetensors file onto a device: its header says where the elements of each tensor are.

Only the header is read by Python; the elements go from the file to the device. Without a file, the
example writes one with the package `safetensors` and compares what it reads with what it wrote.

    python examples/weights.py model.safetensors --device CPU
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import hal_core as hal

# The names of the file's format and ours.
DTYPES = {
    "F64": hal.float64, "F32": hal.float32, "F16": hal.float16, "BF16": hal.bfloat16,
    "I64": hal.int64, "I32": hal.int32, "I16": hal.int16, "I8": hal.int8,
    "U64": hal.uint64, "U32": hal.uint32, "U16": hal.uint16, "U8": hal.uint8, "BOOL": hal.bool_,
}  # fmt: skip


class Tensor(NamedTuple):
    buffer: hal.Buffer
    shape: tuple[int, ...]


def read(path: Path, device: hal.Compiled) -> dict[str, Tensor]:
    """The file begins with the header's length, eight bytes, and the header, which is JSON."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    tensors = {}
    for name, facts in header.items():
        if name == "__metadata__":
            continue
        dtype, (begin, end) = DTYPES[facts["dtype"]], facts["data_offsets"]
        size = (end - begin) // dtype.itemsize
        buffer = hal.Buffer.from_file(path, dtype, 8 + length + begin, size, device)
        tensors[name] = Tensor(buffer, tuple(facts["shape"]))
    return tensors


@hal.kernel
def layer(
    y: hal.Ptr[hal.float32], weight: hal.ConstPtr[hal.float16], bias: hal.ConstPtr[hal.float32],
    x: hal.ConstPtr[hal.float32], rows: hal.int32, columns: hal.int32,
) -> None:  # fmt: skip
    """Compute a row of y = max(0, weight x + bias), a thread for each."""
    row = hal.global_idx(0)
    if row < rows:
        total = bias[row]
        for column in range(columns):
            total += hal.float32(weight[row * columns + column]) * x[column]
        y[row] = total if total > 0 else 0.0


def made() -> dict[str, NDArray[np.generic]]:
    """The tensors of a small layer."""
    numbers = np.random.default_rng(0)
    return {
        "weight": numbers.standard_normal((300, 200)).astype("f2"),
        "bias": numbers.standard_normal(300).astype("f4"),
        "steps": np.arange(7, dtype="i8"),
    }


def run(device: hal.Compiled, path: Path, arrays: dict[str, NDArray[np.generic]]) -> bool:
    """Print the device's lines; return True if it holds `arrays` and computes what numpy does."""
    tensors = read(path, device)
    same = all(np.array_equal(tensors[name].buffer.numpy(array.shape), array)
               for name, array in arrays.items())  # fmt: skip
    weight, bias = tensors["weight"], tensors["bias"]
    rows, columns = weight.shape
    x = np.linspace(-1, 1, columns, dtype="f4")
    y = hal.empty(rows, hal.float32, device)
    program = device.compile(layer)
    inputs = weight.buffer, bias.buffer, hal.Buffer.from_numpy(x, device)
    program(y, *inputs, vals=(rows, columns), threads=rows)
    expected = np.maximum(arrays["weight"].astype("f4") @ x + arrays["bias"], 0)
    right = np.allclose(y.numpy(), expected, rtol=1e-4, atol=1e-4)
    print(f"{device.name}: {len(tensors)} tensors, read {'right' if same else 'WRONG'}")
    print(f"    and computed with, {'right' if right else 'WRONG'}, on {device.info.title}")
    return same and right


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", nargs="?", type=Path, help="list the tensors of this file")
    parser.add_argument("--device", help="its name; left out: every device of this machine")
    chosen = parser.parse_args()
    names = [chosen.device] if chosen.device else hal.Device.get_available_devices()
    if chosen.file:
        for name, tensor in read(chosen.file, hal.Device[names[0]]).items():
            print(f"{name}: {tensor.shape} {tensor.buffer.dtype.name} on {names[0]}")
        return 0
    from safetensors.numpy import save_file

    with tempfile.TemporaryDirectory() as folder:
        path, arrays = Path(folder, "layer.safetensors"), made()
        save_file(arrays, path)
        right = [run(hal.Device[name], path, arrays) for name in names]
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
