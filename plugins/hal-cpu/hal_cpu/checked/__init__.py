"""The device under HAL_CHECK=1: docs/checked-mode.md says what it promises.

Rendered kernels are interpreted, other machine code runs in a child process, and memory lies
between inaccessible pages. A device that was opened without the setting imports nothing from here.
"""
