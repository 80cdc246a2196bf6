"""Queues as streams of the runtime: order and calls."""

import ctypes
from concurrent.futures import ThreadPoolExecutor

from any_order import *  # noqa: F403
from captures import *  # noqa: F403

import hal_core as hal


def test_a_stream_is_on_its_own_GPU_whichever_is_current(device, runtime):
    """A thread knows its GPU from an earlier time; another library has changed it since."""
    index = ctypes.c_int(-1)
    with ThreadPoolExecutor(1) as thread:
        thread.submit(device.own, "test").result()
        device.close()
        thread.submit(runtime.set_device, 1).result()
        opened = thread.submit(lambda: hal.Device["HIP"]).result()
    runtime.driver.hipStreamGetDevice(ctypes.c_void_p(opened.stream), ctypes.byref(index))
    assert index.value == 0
