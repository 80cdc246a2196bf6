"""Compilers that make ELF objects for this processor."""
