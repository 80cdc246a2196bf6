"""comgr, the library under hiprtc, which takes code objects apart."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

LIBRARIES = tuple(f"libamd_comgr.so.{n}" for n in (3, 2))
_SOURCE, _EXECUTABLE = 0x1, 0x8  # AMD_COMGR_DATA_KIND_...
_DISASSEMBLE_EXECUTABLE_TO_SOURCE = 0xC  # AMD_COMGR_ACTION_...

# The handles are structures of one such number, and passed by value.
_Handle = ctypes.c_uint64


def disassemble(isa: str, code: bytes) -> bytes:
    """Return the text of a code object's instructions.

    Raises: OSError where there is no comgr; ValueError where it refuses the code.
    """
    library = _load()

    def call(name: str, *arguments: Any) -> None:
        if getattr(library, f"amd_comgr_{name}")(*arguments):
            raise ValueError(f"amd_comgr_{name} refuses the code object for {isa}")

    def make(end: str, begin: Callable[[Any], None]) -> Any:
        handle = _Handle()
        begin(ctypes.byref(handle))
        steps.callback(getattr(library, f"amd_comgr_{end}"), handle)
        return handle

    with ExitStack() as steps:
        data = make("release_data", lambda place: call("create_data", _EXECUTABLE, place))
        call("set_data", data, ctypes.c_size_t(len(code)), code)
        call("set_data_name", data, b"kernel.co")
        given, found = (
            make("destroy_data_set", lambda place: call("create_data_set", place)) for _ in "12"
        )
        call("data_set_add", given, data)
        action = make("destroy_action_info", lambda place: call("create_action_info", place))
        call("action_info_set_isa_name", action, isa.encode())
        call("do_action", _DISASSEMBLE_EXECUTABLE_TO_SOURCE, action, given, found)
        first = ctypes.c_size_t(0)
        text = make(
            "release_data",
            lambda place: call("action_data_get_data", found, _SOURCE, first, place),
        )
        nbytes = ctypes.c_size_t()
        call("get_data", text, ctypes.byref(nbytes), None)
        content = ctypes.create_string_buffer(nbytes.value)
        call("get_data", text, ctypes.byref(nbytes), content)
        return content.raw


def _load() -> ctypes.CDLL:
    for name in LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise OSError(f"comgr is not installed: none of {', '.join(LIBRARIES)} is found")
