"""Runs kernel IR on lists, one thread after the other: what a loop in Python would do."""

from unittest import mock

import numpy as np

from hal_kernel.interpreter import interpret, lanes


def run(kernel, arguments, threads):
    """`arguments` are lists and numbers in the order of the signature; lists are written to.

    Every thread is a block of its own, and later ones see what earlier ones have written.
    """
    given = list(zip(kernel.signature.params, arguments, strict=True))
    lists = [value for param, value in given if param.is_pointer]
    bufs = [np.array(value, param.dtype.to_numpy()) for param, value in given if param.is_pointer]
    vals = [value for param, value in given if not param.is_pointer]
    with mock.patch.object(lanes, "_LANES", 1):
        interpret(kernel._replace(block=None), *bufs, vals=vals, grid=threads, block=1, races=False)
    for value, buffer in zip(lists, bufs, strict=True):
        value[:] = buffer.tolist()
