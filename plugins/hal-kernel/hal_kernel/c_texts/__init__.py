"""Texts of the C family by hand: their kernels and headers, compiler options and logs."""
