"""Speed of the front end, and of first and later compiles."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from unittest.mock import patch

import hal_core as hal
from bench.kernels import make_saxpy
from bench.measure import OURS, Effort, Task, call, compare
from bench.report import Row, beside
from hal_cpu.vectors import LLVMRenderer

LIMIT = 0.005  # seconds that the front end may take for fifty lines


def make_fifty_lines() -> hal.KernelFunction:
    """Make a kernel of fifty lines, escape times of a fractal: loops, branches, casts and calls."""

    @hal.kernel
    def fifty(
        out: hal.Ptr[hal.int32],
        shade: hal.Ptr[hal.float32],
        palette: hal.ConstPtr[hal.float32],
        width: hal.int32,
        height: hal.int32,
        zoom: hal.float32,
    ):
        column = hal.global_idx(0)
        row = hal.global_idx(1)
        if column >= width or row >= height:
            return
        place = row * width + column
        left = zoom * (hal.float32(column) / hal.float32(width) - 0.5)
        top = zoom * (hal.float32(row) / hal.float32(height) - 0.5)
        total = hal.float32(0)
        steps = 0
        for sample in range(4):
            across = left + 0.25 * hal.float32(sample % 2)
            down = top + 0.25 * hal.float32(sample // 2)
            real = hal.float32(0)
            imaginary = hal.float32(0)
            turns = 0
            while turns < 200:
                squared = real * real
                other = imaginary * imaginary
                if squared + other > 4.0:
                    break
                imaginary = 2.0 * real * imaginary + down
                real = squared - other + across
                turns += 1
            steps += turns
            if turns == 200:
                continue
            size = hal.sqrt(real * real + imaginary * imaginary)
            smooth = hal.float32(turns) + 1.0 - hal.log2(hal.log2(max(size, hal.float32(1.5))))
            total += smooth
        out[place] = steps
        entry = hal.int32(total) % 16
        low = palette[entry]
        high = palette[entry + 1]
        part = total - hal.floor(total)
        colour = low + part * (high - low)
        if colour < 0.0:
            colour = hal.float32(0)
        elif colour > 1.0:
            colour = hal.float32(1)
        angle = hal.atan2(top, left)
        ring = 0.5 + 0.5 * hal.sin(4.0 * angle)
        dark = steps == 800
        light = hal.float32(0) if dark else colour * ring
        if row % 64 == 0 or column % 64 == 0:
            light = 0.5 * light
        parity = (row >> 6 ^ column >> 6) & 1
        light = light * 0.9 if parity == 1 else light
        shade[place] = light

    return fifty


def rows(effort: Effort) -> Iterator[Row]:
    yield front_end(effort.rarely())
    yield first_compile(effort.rarely())
    yield later_compile(effort)


def front_end(effort: Effort) -> Row:
    renderer = LLVMRenderer()
    times = compare({OURS: call(lambda: renderer.render(make_fifty_lines().lower()))}, effort)
    spent = times.typical(OURS)
    what = "front end, verify and render of 50 lines"
    return Row(what, spent, "the limit", LIMIT, LIMIT / spent, target=1.0)


def first_compile(effort: Effort) -> Row:
    """Measure from a function to a loaded program, compared with LLVM for the rendered text."""
    device = hal.Device["CPU"]
    with patch.dict(os.environ, HAL_CCACHE="0"):
        tasks = {OURS: call(lambda: device.compile(make_saxpy())), "llvmlite": call(_llvmlite())}
        times = compare(tasks, effort)
    what = "first compile of saxpy, no cache"
    return beside(what, times, "llvmlite", 0.67, name="llvmlite, its IR")


def later_compile(effort: Effort) -> Row:
    """Measure `compile` of a kernel that the device has compiled before."""
    kernel, device = make_saxpy(), hal.Device["CPU"]
    names = {"device": device, "kernel": kernel, "plain": {id(kernel): device.compile(kernel)}}
    tasks = {OURS: Task("device.compile(kernel)", names), "dict": Task("plain[id(kernel)]", names)}
    times = compare(tasks, effort)
    return beside("compile of a kernel compiled before", times, "dict", 0.2, name="dict lookup")


def _llvmlite() -> Callable[[], None]:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=3,
        reloc="pic",
    )
    text = LLVMRenderer().render(make_saxpy().lower())

    def compile_() -> None:
        module = llvm.parse_assembly(text)
        module.verify()
        tuning = llvm.create_pipeline_tuning_options(speed_level=3)
        tuning.loop_vectorization = tuning.slp_vectorization = True
        builder = llvm.create_pass_builder(machine, tuning)
        builder.getModulePassManager().run(module, builder)
        machine.emit_object(module)

    return compile_
