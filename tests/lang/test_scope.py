"""Names in annotations that are text mean what they mean where the function stands."""

import pytest
from kernel_files import IMPORTS, load

import hal_core as hal

HEAD = "from __future__ import annotations\nimport functools\n" + IMPORTS
DECORATORS = ("hal.kernel", "hal.func")
# Texts in which the annotation's `dtype` is int32, and other variables of that name are not.
SCOPES = {
    "a user's decorator with a variable of that name": """
def decorator(function):
    dtype = hal.int8
    return hal.kernel(function)

def make(dtype):
    @decorator
    def f(y: hal.Ptr[dtype]): y[0] = 1
    return f
made = make(hal.int32)
""",
    "decorators between": """
def pass_on(function):
    dtype = hal.int8
    return function

def make(dtype):
    @functools.lru_cache
    def decorated(function):
        return hal.kernel(block=64)(function)
    @decorated
    @pass_on
    def f(y: hal.Ptr[dtype]): y[0] = 1
    return f
made = make(hal.int32)
""",
    "a call below the def": """
def make(dtype):
    def f(y: hal.Ptr[dtype]): y[0] = 1
    for kernel in [hal.kernel(f) for _ in range(1)]:
        return kernel
made = make(hal.int32)
""",
    "a global beside the caller's variable": """
dtype = hal.int32
def f(y: hal.Ptr[dtype]): y[0] = 1
def compile_it(function):
    dtype = hal.int8
    return hal.kernel(function)
made = compile_it(f)
""",
    "a class": """
dtype = hal.int8
def make():
    dtype = hal.int16
    class Kernels:
        dtype = hal.int32
        @staticmethod
        @hal.kernel
        def f(y: hal.Ptr[dtype]): y[0] = dtype(1)
    return Kernels.f
made = make()
""",
    "a class in a function": """
dtype = hal.int8
def make(dtype):
    class Outer:
        class Inner:
            @hal.kernel
            def f(y: hal.Ptr[dtype]): y[0] = 1
    return Outer.Inner.f
made = make(hal.int32)
""",
    "a class around a class is not seen": """
dtype = hal.int32
class Outer:
    dtype = hal.int8
    class Inner:
        @hal.kernel
        def f(y: hal.Ptr[dtype]): y[0] = 1
made = Outer.Inner.f
""",
    "the closure": """
dtype = hal.int8
def make(dtype):
    def f(y: hal.Ptr[dtype]): y[0] = dtype(1)
    return f
made = hal.kernel(make(hal.int32))
""",
    "a wrapper's annotations are those of what it wraps": """
def decorator(function):
    dtype = hal.int8
    @functools.wraps(function)
    def wrapper(y): y[0] = 1
    return hal.kernel(wrapper)

def make(dtype):
    @decorator
    def wrapper(y: hal.Ptr[dtype]): y[0] = 1
    return wrapper
made = make(hal.int32)
""",
}


# Texts in which it is a variable of a call or a class that is not at hand; the global is not meant.
LOST = {
    "a factory that has ended": """
dtype = hal.int8
def make(dtype):
    def f(y: hal.Ptr[dtype]): y[0] = 1
    return f
hal.kernel(make(hal.int32))
""",
    "another call of the factory": """
def make(dtype, other=None):
    def f(y: hal.Ptr[dtype]): y[0] = 1
    return hal.kernel(other) if other else f
make(hal.int8, make(hal.int32))
""",
    "a factory around a factory": """
dtype = hal.int8
def outer(dtype):
    def inner():
        @hal.kernel
        def f(y: hal.Ptr[dtype]): y[0] = 1
    return inner
outer(hal.int32)()
""",
    "a class that is complete": """
dtype = hal.int8
class Kernels:
    dtype = hal.int32
    def f(y: hal.Ptr[dtype]): y[0] = 1
hal.kernel(Kernels.f)
""",
    "a variable that is assigned below": """
dtype = hal.int8
def make():
    @hal.kernel
    def f(y: hal.Ptr[dtype]): y[0] = 1
    dtype = hal.int32
make()
""",
}


def _with(decorator, text):
    return HEAD + text.replace("hal.kernel(block=64)", "hal.kernel").replace(
        DECORATORS[0], decorator
    )


@pytest.mark.parametrize("decorator", DECORATORS)
@pytest.mark.parametrize("name", SCOPES)
def test_a_name_is_looked_up_where_the_function_stands(name, decorator, tmp_path):
    made = load(tmp_path, _with(decorator, SCOPES[name])).made
    if isinstance(made, hal.KernelFunction):
        assert str(made.signature) == "y: int32*"
    else:
        assert repr(made.parameters) == "(('y', int32*),)"


@pytest.mark.parametrize("decorator", DECORATORS)
@pytest.mark.parametrize("name", LOST)
def test_a_name_whose_value_is_out_of_reach_is_refused(name, decorator, tmp_path):
    with pytest.raises(hal.KernelSyntaxError) as raised:
        load(tmp_path, _with(decorator, LOST[name]))
    assert "'dtype' is a variable of" in str(raised.value)
    assert f"Put @{decorator} above its def, below the line that" in str(raised.value)


def test_a_name_of_a_decorator_alone_is_not_defined(tmp_path):
    text = """
def decorator(function):
    dtype = hal.int8
    return hal.kernel(function)

@decorator
def f(y: hal.Ptr[dtype]): y[0] = 1
"""
    with pytest.raises(hal.KernelSyntaxError, match="name 'dtype' is not defined"):
        load(tmp_path, HEAD + text)
