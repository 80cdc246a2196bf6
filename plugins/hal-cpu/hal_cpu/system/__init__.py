"""Calls of the operating system, a module for each: `driver` and `processor` ask the right one.

posix      memory, stacks and libraries on Linux and macOS
windows    the same on Windows, and facts of the processor there
linux      facts of the processor: /proc and the auxiliary vector
macos      facts of the processor: sysctl
"""
