"""Tests of how few calls of the driver launches, waits, copies and allocations are.

A plugin's test_program.py imports them, and gives the fixture `control`.
"""

from any_order import N, expect, twofold

import hal_core as hal


def test_calls_of_launches_waits_copies_and_cached_allocations(device, control, calls):
    """No call asks for or sets the current device."""
    program, queue = device.compile(twofold), device.queue()
    x, y = (hal.zeros(N, hal.int32, device) for _ in range(2))
    for one in (queue, None):
        program(y, x, vals=(N,), threads=N, queue=one)
    hal.empty(5000, hal.float32, device).fill(1).deallocate()
    expect(queue.synchronize(20) and device.synchronize(20))
    launch = {"LaunchKernel" if control.prefix == "cu" else "ModuleLaunchKernel": 1}
    mode = {"ThreadExchangeStreamCaptureMode": 2}  # so that it spoils no capture of others
    read = {"MemcpyDtoHAsync": 1, "StreamSynchronize": 1}
    for work, expected in (
        (lambda: program(y, x, vals=(N,), threads=N), launch),
        (device.synchronize, {"StreamSynchronize": 1}),
        (lambda: device.synchronize(timeout=1), {"StreamQuery": 1, **mode}),
        (lambda: y.copyin(bytes(4 * N)), {"MemcpyHtoDAsync": 1}),
        (lambda: y.copyout(bytearray(4 * N)), read),
        (lambda: hal.empty(5000, hal.float32, device).deallocate(), {}),
        (lambda: hal.zeros(5000, hal.float32, device).deallocate(), {"MemsetD8Async": 1}),
        (lambda: program(y, x, vals=(N,), threads=N, queue=queue), launch),
    ):
        for _ in range(3):
            found = calls(work)
            expect(found == expected, f"{found}, not {expected}")
    hal.empty(5000, hal.float32, device).fill(1).deallocate()
    expect(not hal.zeros(5000, hal.float32, device).numpy().any())
