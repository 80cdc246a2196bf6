"""Let each turn of a driver call fail in a program: what it raises, and that nothing leaks."""

import gc
from collections import Counter
from typing import NamedTuple

from every_call import everything

import hal_core as hal

UNKNOWN, OUT_OF_MEMORY = 999, 2


def require(holds, *about):
    """Assert, also under `python -O`, where helpers of tests have no assert."""
    if not holds:
        raise AssertionError(*about)


class Failure(NamedTuple):
    """The exceptions and losses that a failed call may cause."""

    operations: str  # the first words of those that may raise
    kinds: tuple[type[hal.HalError], ...] = (hal.HalError,)
    # Kinds of the objects that only this call could have freed; of several such calls, each with
    # a comma behind: "blocks, arrays images".
    lost: str = ""
    passes: int = 0  # number of calls whose failure has a fallback and raises nothing


IN_QUEUE = (hal.HalError, hal.DeviceFault)  # as what fails in a queue is raised at its waits
# The calls that CUDA and HIP name alike but for the prefix, and whose failure does the same.
_ALIKE = {
    "DeviceGetAttribute DeviceGetName DeviceTotalMem": Failure("enumerate"),
    "DeviceCanAccessPeer MemcpyAsync MemcpyPeerAsync": Failure("copy_from"),
    # The driver copies through the host; what cannot become its graph is replayed step by step.
    "MemPoolSetAccess GraphCreate GraphAddKernelNode GraphAddMemsetNode": Failure("", passes=1),
    "MemGetInfo": Failure("", passes=2),  # only for the text of an OutOfMemory
    "MemPoolCreate MemPoolSetAttribute": Failure("allocate"),
    "MemPoolTrimTo": Failure("allocate free close"),
    "MemPoolDestroy": Failure("close", lost="pools"),
    "Array3DCreate TexObjectCreate": Failure("allocate"),
    "ArrayDestroy": Failure("free", lost="arrays"),
    "TexObjectDestroy": Failure("free", lost="images"),
    "Memcpy3DAsync": Failure("copyin copyout"),
    "MemcpyHtoDAsync": Failure("copyin"),
    "MemcpyDtoHAsync": Failure("copyout"),
    "MemsetD8Async MemsetD16Async": Failure("fill"),
    "MemsetD32Async": Failure("wait fill", IN_QUEUE),
    "StreamDestroy": Failure("close", lost="streams"),
    "StreamSynchronize": Failure("copyin copyout wait free wrap allocate unload close"),
    "EventDestroy": Failure("wait copy_from free close", lost="events"),
    "EventQuery": Failure("wait free", IN_QUEUE),
    "EventElapsedTime": Failure("wait"),
    "ModuleGetFunction FuncGetAttribute": Failure("load"),
    "GraphExecKernelNodeSetParams GraphExecMemsetNodeSetParams GraphLaunch": Failure("replay"),
    "GraphExecDestroy": Failure("load unload close", lost="execs"),
    "GraphDestroy": Failure("load unload close", lost="graphs"),
}


def failures_of(prefix):
    """Return what the calls of every driver do where they fail, by their whole names."""
    return {prefix + name: one for names, one in _ALIKE.items() for name in names.split()}


class EachTurn:
    """The runs of `everything`, on a driver in software that `control` lets fail.

    `says` are the driver's words for each status, and `current` is the call that makes a context
    current, without which nothing can be freed. What a test wants after a failure, it gives as
    `after`.
    """

    def __init__(self, family, control, says, current, after=lambda name, error: None):
        self.family, self.control, self.says = family, control, says
        self.current, self.after = current, after
        self.names = [family.name, f"{family.name}:1"]
        self.close_what_is_open()
        everything(family)

    def close_what_is_open(self):
        for name in reversed(self.names):
            if name in hal.Device._devices:
                hal.Device[name].close()

    def end(self):
        """Leave a driver that tests of other things can start."""
        self.control.clear()
        self.family.forget()
        hal.Device.refresh()

    def calls(self):
        """Count the calls of one run."""
        before = self.control.all_calls()
        everything(self.family)
        return self.control.calls_since(before)

    def check(self, name, code, expected):
        turns = self.calls().get(name, 0)
        require(turns, f"{name} is not called")
        passed, clean = 0, self._left()
        for nth in range(1, turns + 1):
            self.control.fail(name, code, nth)
            before = self.control.all_calls()
            error = self._one_run(name)
            # How often one polls varies.
            reached = self.control.calls_since(before).get(name, 0) >= nth
            self.control.clear()
            self.close_what_is_open()
            if error is None:
                passed += reached
            else:
                self._check_error(error, name, code, expected)
                self.after(name, error)
            everything(self.family)
            left = self._left()
            lost = {what: count for what in left if (count := left[what] - clean[what])}
            clean = left
            if error is None or not expected.lost:
                cannot = name == self.current and error and error.operation in ("free", "close")
                require(cannot or not lost, name, nth, error, lost)
            else:
                all_lost = [Counter(one.split()) for one in expected.lost.split(", ")]
                require(lost in all_lost, name, nth, error, lost)
        require(passed == expected.passes, name, passed)

    def _one_run(self, name):
        """Return the error of `everything` without its frames, which keep buffers alive."""
        try:
            everything(self.family)
        except hal.HalError as error:
            error.__context__ = error.__cause__ = None
            return error.with_traceback(None)
        except RuntimeError as error:
            if str(error) != f"{name} gave {UNKNOWN}":  # the test's own call
                raise
        return None

    def _left(self):
        gc.collect()
        live = self.control.live()
        return Counter({name: live[name] for name in live if name not in ("abandoned", "nbytes")})

    def _check_error(self, error, name, code, expected):
        require(type(error) in expected.kinds, name, error)
        require(error.operation.split()[0] in expected.operations.split(), name, error)
        if isinstance(error, hal.DeviceUnavailable):
            word = self.says[code].partition(":")[0]
            require(f"({name} gave {code}, {word})" in str(error), error)
            return
        require(f"{name} failed with {self.says[code]}" in str(error), error)
        require(error.device in self.names, error)
