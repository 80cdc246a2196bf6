"""C++ that makes a compiler confirm that kernels take what their signatures say.

For each parameter of each kernel one line, which does not compile if the type is another:

typedef char hal_fits_0_2[
    hal_check::hal_at<2, decltype(scale)>::hal_type::hal_code == 104 ? 1 : -1];
"""

from __future__ import annotations

import re

from hal_core.dtypes import DType, any_
from hal_core.errors import CompileError
from hal_core.signature import CONST_POINTER, VALUE, Param, Signature
from hal_kernel.c_texts.prototypes import Reading, advice

_KINDS = {"b": 0, "i": 100, "u": 200, "f": 300}
_TYPES = {
    0: "bool", 101: "signed char", 102: "short", 104: "int", 108: "long long", 201: "unsigned char",
    202: "unsigned short", 204: "unsigned", 208: "unsigned long long", 304: "float", 308: "double",
}  # fmt: skip
# `long` is as wide as a pointer, and `char` signed or not.
_LONGS = {"char": "101", "long": "100 + sizeof(long)", "unsigned long": "200 + sizeof(long)"}
# Of the label's line; a name that does not exist makes other errors there.
_MISFIT = re.compile(
    r"(?:greater than zero\s*typedef char |')hal_(fits|count)_([0-9]+)(?:_([0-9]+))?"
    r"(?:' declared as an array with a negative|\[)"
)
_OWN, _INCOMPLETE = 1000, 9999  # and its bytes: a type of the text's own; one without a size
# All names get hal_ ahead: a macro of the text, such as N, would replace them.
_NAMES = re.compile(r"\b([TNFRAB]|number|code|one|pointer|at|type|count|value)\b")
_HEAD = _NAMES.sub(
    r"hal_\1",
    """
#line 1 "signature"
namespace hal_check {
template <class T, class = int[1]> struct number { enum { code = 9999 }; };
template <class T> struct number<T, int[sizeof(T) ? 1 : 1]> { enum { code = 1000 + sizeof(T) }; };
template <> struct number<void> { enum { code = -1 }; };
%s
template <class T> struct one { enum { code = number<T>::code, pointer = 0 }; };
template <class T> struct one<T *> { enum { code = number<T>::code, pointer = 1 }; };
template <class T> struct one<const T *> { enum { code = number<T>::code, pointer = 2 }; };
template <class T> struct one<volatile T *> : one<T *> {};
template <class T> struct one<const volatile T *> : one<const T *> {};
template <int N, class F> struct at;
template <class R, class A, class... B> struct at<0, R(A, B...)> { typedef one<A> type; };
template <int N, class R, class A, class... B> struct at<N, R(A, B...)> : at<N - 1, R(B...)> {};
template <class F> struct count;
template <class R, class... A> struct count<R(A...)> { enum { value = sizeof...(A) }; };
}
""",
)


def confirmation(kernels: tuple[Signature, ...], text: str) -> str:
    """Return the lines to be put behind a text; none for a kernel that it does not name."""
    named = {**{name: str(code) for code, name in _TYPES.items()}, **_LONGS}
    numbers = "\n".join(
        f"template <> struct hal_number<{name}> {{ enum {{ hal_code = {code} }}; }};"
        for name, code in named.items()
    )
    lines = _HEAD % numbers
    for number, signature in enumerate(kernels):
        if not re.search(rf"\b{signature.name}\b", text):
            continue  # loading it says what the binary lacks
        kind = f"decltype({signature.name})"
        fact = f"hal_check::hal_count<{kind}>::hal_value == {len(signature.params)}"
        lines += f"typedef char hal_count_{number}[{fact} ? 1 : -1];\n"
        for param in signature.params:
            found = f"hal_check::hal_at<{param.position}, {kind}>::hal_type"
            label = f"hal_fits_{number}_{param.position}"
            lines += f"typedef char {label}[({_fact(param, found)}) ? 1 : -1];\n"
    return lines


def _fact(param: Param, found: str) -> str:
    if param.dtype.kind == "I" or (param.dtype.name == "uint64" and param.kind == VALUE):
        # Objects are numbers, and in HIP pointers.
        return (
            f"({found}::hal_pointer == 0 && {found}::hal_code == 208) || "
            f"({found}::hal_pointer == 1 && {found}::hal_code == {_INCOMPLETE})"
        )
    pointer = f"{found}::hal_pointer" + (" == 2" if param.kind == CONST_POINTER else " > 0")
    if param.dtype is any_:
        return pointer
    codes = [_code(param.dtype)]
    if param.dtype.name in ("bool", "float16", "bfloat16"):  # as bits
        codes += {"bool": [201, 101]}.get(param.dtype.name, [202])
    either = " || ".join(f"{found}::hal_code == {code}" for code in codes)
    if param.kind == VALUE:
        return f"{found}::hal_pointer == 0 && ({either})"
    # A pointer to a type of the text's own, as float4, may be given any elements.
    return f"{pointer} && ({either} || {found}::hal_code >= {_OWN} || {found}::hal_code == -1)"


def _code(dtype: DType) -> int:
    if dtype.kind in ("c", "V") or dtype.name in ("float16", "bfloat16"):
        return _OWN + dtype.itemsize
    return _KINDS[dtype.kind] + (dtype.itemsize if dtype.kind != "b" else 0)


def refused(reading: Reading, log: str) -> CompileError | None:
    """Return the error for a line that the compiler refused; None for another fault."""
    match = _MISFIT.search(log)
    if match is None:
        return reading.misfit(log)
    signature = reading.kernels[int(match[2])]
    declared = reading.declared.get(signature.name, [])
    if match[1] == "count":
        problem = f"the kernel {signature.name} does not take {len(signature.params)} arguments"
        problem += f", as its signature says ({signature})"
    else:
        param = signature.params[int(match[3])]
        found = [one.text for one in declared[param.position : param.position + 1]]
        written = found[0] if found else "of another type"
        problem = (
            f"argument {param.position} of the kernel is {written}, its signature says {param}"
        )
    return CompileError(
        f"compile {reading.source.name}", problem, log=log, device=reading.device,
        fix=advice(),
    )  # fmt: skip
