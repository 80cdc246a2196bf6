"""Compilers that make ELF objects for this processor: LLVM in the process, and C compilers."""
