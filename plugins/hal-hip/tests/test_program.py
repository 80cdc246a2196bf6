"""Launches and copies: how many calls of the runtime they are."""

import pytest
from few_calls import *  # noqa: F403

import hal_core as hal

pytestmark = pytest.mark.results


@hal.kernel
def far(y: hal.Ptr[hal.int32], at: hal.int32) -> None:
    y[at] = 1
