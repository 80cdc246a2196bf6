"""Renderers of the C family: one engine writes a kernel, and a row of data describes a language."""
