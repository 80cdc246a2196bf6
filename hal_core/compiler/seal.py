"""Seal binaries with a checksum and a label, for drivers that do not check what they load.

Some drivers (PoCL) follow pointers inside a damaged binary and take the process down, so nothing
without a good seal reaches them.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from hal_core.errors import CompileError


def seal(maker: str, label: Any, payload: bytes) -> bytes:
    """Return `payload` sealed. `maker` is the format and its version, `label` any JSON value."""
    body = json.dumps(label).encode() + b"\n" + payload
    return f"{maker}\n".encode() + hashlib.sha256(body).digest() + body


def unseal(maker: str, image: bytes, operation: str, device: str) -> tuple[Any, bytes]:
    """Return the label and the payload. Raises: CompileError naming the cause."""
    magic = f"{maker}\n".encode()
    start = len(magic) + 32  # bytes of a SHA-256
    body = image[start:]
    if not image.startswith(magic):
        problem = f"the bytes are not a binary of {maker.partition(' ')[0]}"
    elif hashlib.sha256(body).digest() != image[len(magic) : start]:
        problem = "the binary is damaged: its checksum does not match"
    else:
        label, _, payload = body.partition(b"\n")
        return json.loads(label), payload
    fix = "Compile the kernel again from its source."
    raise CompileError(operation, problem, device=device, fix=fix)
