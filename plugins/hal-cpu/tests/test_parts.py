"""HAL_CPU_DEVICES splits the processor into devices, each with its share of the cores."""

import pytest
from run_python import printed
from slices import usual

import hal_core as hal
from hal_cpu import processor
from hal_cpu.device import enumerate_devices

COUNT = 70_000  # elements, of which a copy takes the long way


@pytest.mark.parametrize(
    ("cores", "count", "shares"),
    [(8, 2, [4, 4]), (7, 2, [3, 4]), (2, 2, [1, 1]), (8, 3, [2, 3, 3]), (2, 4, [1, 1, 1, 1])],
)
def test_each_has_its_share(cores, count, shares, monkeypatch):
    monkeypatch.setattr(processor, "usable_cores", lambda: cores)
    monkeypatch.setenv("HAL_CPU_DEVICES", str(count))
    found = enumerate_devices("CPU")
    assert [info.name for info in found] == ["CPU", *(f"CPU:{n}" for n in range(1, count))]
    assert [info.compute_units for info in found] == shares
    assert all(info.title.endswith(f", {info.compute_units} of {cores} cores") for info in found)
    assert sum(info.memory_nbytes for info in found) <= processor.usable_memory()


@pytest.mark.parametrize("text", ["0", "-1", "65", "two", "1.5"])
def test_another_number_is_refused(text, monkeypatch):
    monkeypatch.setenv("HAL_CPU_DEVICES", text)
    with pytest.raises(hal.InvalidArgument, match=r"HAL_CPU_DEVICES: expected .* 1 to 64"):
        enumerate_devices("CPU")


@pytest.mark.parametrize(("index", "advice"), [(1, "=2 splits"), (63, "=64 splits"), (64, "")])
def test_R5_an_index_beyond_the_count_says_how_to_split(index, advice):
    with pytest.raises(hal.UnknownDevice) as caught:
        hal.Device[f"CPU:{index}"]
    assert f"HAL_CPU_DEVICES{advice}" in str(caught.value) or not advice
    assert bool(advice) == ("HAL_CPU_DEVICES" in str(caught.value))


PROGRAM = """
import numpy as np
import hal_core as hal
print(hal.Device.get_available_devices()[:2], hal.Device.DEFAULT)
one, two = hal.Device["CPU"], hal.Device["CPU:1"]
array = np.arange(COUNT, dtype="f4")
x = hal.Buffer.from_numpy(array, one)
y = hal.Buffer(two, x.size, hal.float32).allocate()
for count in (3, x.size):  # a short copy and a long one
    y[:count].copy_from(x[x.size - count :])
    np.testing.assert_array_equal(y[:count].numpy(), array[-count:])
y[1:].copy_from(y[:-1])
assert one.pool.threads == max(1, one.info.compute_units)

print("done")
"""


@pytest.mark.parametrize("check", usual(["0", "1"], "0"))
def test_T1_two_parts_copy_to_each_other(check, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.replace("COUNT", str(COUNT)), encoding="utf-8")
    said = printed(program, HAL_CPU_DEVICES="2", HAL_CHECK=check)
    assert said == "['CPU', 'CPU:1'] CPU\ndone\n"
