"""Commands of `hal` that read kernels of a Python file: render, try and bench."""
