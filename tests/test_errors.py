"""The one form of every message."""

import copy
import pickle

import pytest
from ctrl_c import raise_in_handler

import hal_core as hal
from hal_core import errors
from hal_kernel import errors as kernel_errors
from hal_testing.fake import FakePlugin


@pytest.mark.parametrize(
    ("problem", "facts", "text"),
    [("it hangs", {}, "open: it hangs."),
     ("it hangs", {"got": "x", "limit": 3}, "open: it hangs (got 'x'; limit 3)."),
     ("it hangs", {"device": "CPU", "fix": "Wait."}, "open: it hangs on CPU. Wait."),
     ("a driver's own sentence.", {"fix": "Wait."}, "open: a driver's own sentence. Wait.")],
)  # fmt: skip
def test_a_message_is_made_from_values(problem, facts, text):
    error = hal.HalError("open", problem, **facts)
    assert str(error) == text
    assert error.problem == problem


HUGE = 10**5000  # Python writes no integer of more than 4,300 digits
TOO_LONG = "an integer of 16610 bits"


def test_an_integer_too_long_to_be_written_is_described():
    """In the place of Python's own ValueError, which says nothing of the mistake."""
    assert str(hal.HalError("open", "no", got=HUGE)) == f"open: no (got {TOO_LONG})."
    assert TOO_LONG in str(hal.HalError("open", "no", limit=HUGE))
    inside = str(hal.HalError("open", "no", got=(HUGE, 1)))
    assert inside == "open: no (got a tuple with an integer too long to be shown)."


@pytest.mark.parametrize(
    "mistake",
    [lambda y, program: program(y, vals=(HUGE,), threads=8),
     lambda y, program: program(y, vals=(8,), threads=HUGE), lambda y, program: y.fill(HUGE),
     lambda y, program: y.view(HUGE), lambda y, program: y.view(offset=HUGE),
     lambda y, program: hal.empty(HUGE, hal.int8, y.device), lambda y, program: hal.Device[HUGE],
     lambda y, program: hal.Source("f", "", "", language="c", defines={"A": HUGE}),
     lambda y, program: program.device.compile(hal.Kernel(HUGE, HUGE, ()))],
)  # fmt: skip
def test_a_call_with_such_an_integer_is_refused(mistake):
    hal.Device.register_plugin("SIM", FakePlugin())
    with hal.Device["SIM"] as device, pytest.raises(hal.HalError, match="an integer"):
        mistake(hal.zeros(8, hal.int32, device), device.compile(set_all))


@hal.kernel
def set_all(y: hal.Ptr[hal.int32], n: hal.int32) -> None:
    y[hal.global_idx(0)] = n


KINDS = {kind for kind in (vars(errors) | vars(kernel_errors)).values() if isinstance(kind, type)}


@pytest.mark.parametrize("kind", sorted(KINDS, key=lambda kind: kind.__name__))
def test_every_error_can_be_copied_and_pickled(kind):
    """One with MemoryError among its bases too, whose `__new__` is its own."""
    if kind is not hal.KernelSyntaxError:
        error = kind("open", "it hangs", fix="Wait.")
    else:
        error = hal.KernelSyntaxError("it hangs", filename="f.py", lineno=3, text="y = 1\n")
    copies = [pickle.loads(pickle.dumps(error, protocol)) for protocol in range(6)]
    for made in (copy.copy(error), *copies):
        assert type(made) is kind and str(made) == str(error) and vars(made) == vars(error)
        if isinstance(made, hal.KernelSyntaxError):
            assert (made.filename, made.lineno, made.text) == ("f.py", 3, "y = 1\n")


class DriverError(hal.HalError, OSError):
    """An error that a backend may define: OSError lays out memory of its own."""


def test_an_error_of_a_backend_that_is_an_os_error_can_be_copied_and_pickled():
    error = DriverError("open", "it hangs", got=3)
    copies = [pickle.loads(pickle.dumps(error, protocol)) for protocol in range(6)]
    for made in (copy.copy(error), copy.deepcopy(error), *copies):
        assert type(made) is DriverError and str(made) == str(error) and made.args == error.args
        assert made.got == 3


def test_as_flag_passes_on_what_a_signal_raises():
    class Answer:
        def __eq__(self, other):
            return True

        def __bool__(self):  # a call, behind which Python hears signals
            raise_in_handler(TimeoutError)

    with pytest.raises(TimeoutError):
        hal.errors.as_flag(Answer(), "read", "wait")
