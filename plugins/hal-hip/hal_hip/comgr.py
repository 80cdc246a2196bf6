"""comgr, the library under hiprtc, which takes code objects apart."""

from __future__ import annotations

import ctypes
from contextlib import ExitStack
from typing import Any

from hal_streams.runtime_compiler import CompilerRefused, first_of

_LIBRARIES = [f"libamd_comgr.so.{n}" for n in (3, 2)]
_SOURCE, _EXECUTABLE = 0x1, 0x8  # AMD_COMGR_DATA_KIND_...
_DISASSEMBLE_EXECUTABLE_TO_SOURCE = 0xC  # AMD_COMGR_ACTION_...


def disassemble(isa: str, code: bytes) -> bytes:
    """Return the text of a code object's instructions.

    Raises: OSError where there is no comgr; CompilerRefused where it refuses the code.
    """
    library, nbytes = first_of(_LIBRARIES, ctypes.CDLL), ctypes.c_size_t(len(code))

    def call(name: str, *arguments: Any) -> None:
        if getattr(library, f"amd_comgr_{name}")(*arguments):
            raise CompilerRefused(f"amd_comgr_{name} refuses the code object for {isa}", "")

    def make(name: str, end: str, *arguments: Any) -> ctypes.c_uint64:
        handle = ctypes.c_uint64()  # a structure of one such number, passed by value
        call(name, *arguments, ctypes.byref(handle))
        steps.callback(getattr(library, f"amd_comgr_{end}"), handle)
        return handle

    with ExitStack() as steps:
        data = make("create_data", "release_data", _EXECUTABLE)
        call("set_data", data, nbytes, code)
        call("set_data_name", data, b"kernel.co")
        given, found = (make("create_data_set", "destroy_data_set") for _ in range(2))
        call("data_set_add", given, data)
        action = make("create_action_info", "destroy_action_info")
        call("action_info_set_isa_name", action, isa.encode())
        call("do_action", _DISASSEMBLE_EXECUTABLE_TO_SOURCE, action, given, found)
        text = make("action_data_get_data", "release_data", found, _SOURCE, ctypes.c_size_t(0))
        call("get_data", text, ctypes.byref(nbytes), None)
        content = ctypes.create_string_buffer(nbytes.value)
        call("get_data", text, ctypes.byref(nbytes), content)
        return content.raw
