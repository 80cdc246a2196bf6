"""Sealed binaries: what was changed is not read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal_core.compiler.seal import seal, unseal
from hal_core.errors import CompileError

ATOMS = st.none() | st.booleans() | st.integers() | st.text()
LABELS = ATOMS | st.lists(ATOMS, max_size=3)


@given(LABELS, st.binary())
def test_what_is_sealed_comes_back(label, payload):
    assert unseal("hal-x 1", seal("hal-x 1", label, payload), "load k", "X") == (label, payload)


@given(st.binary(min_size=1), st.data())
def test_a_changed_byte_is_found(payload, data):
    image = bytearray(seal("hal-x 1", ["cubin", "sm_90"], payload))
    place = data.draw(st.integers(0, len(image) - 1))
    image[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CompileError, match=r"load k: .*(not a binary of hal-x|damaged).* on X\."):
        unseal("hal-x 1", bytes(image), "load k", "X")


def test_a_cut_and_a_longer_image_are_found():
    image = seal("hal-x 1", None, b"payload")
    for other in (*(image[:end] for end in range(len(image))), image + b"\0"):
        with pytest.raises(CompileError):
            unseal("hal-x 1", other, "load k", "X")


def test_another_maker_or_version_is_refused():
    for maker in ("hal-y 1", "hal-x 2"):
        with pytest.raises(CompileError, match="not a binary of hal-x"):
            unseal("hal-x 1", seal(maker, None, b""), "load k", "X")
