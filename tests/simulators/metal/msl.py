"""Compile texts in the Metal shading language for this processor, and run their kernels.

One clang command takes a text as C++ for OpenCL, with our `metal_stdlib`. A function appended to
the text calls each kernel: it takes the arguments from a table, and the indices of the thread from
a record of `runtime.c`, which gives each thread that waits at a barrier a stack.
"""

import ctypes
import functools
import hashlib
import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import NamedTuple

import numpy as np

HERE = Path(__file__).parent
MOST_THREADS = 1024

# Attribute of a parameter -> the field of runtime.c's record, and its number of components.
PLACES = {
    "thread_position_in_grid": "global_id", "threadgroup_position_in_grid": "block_id",
    "thread_position_in_threadgroup": "thread_id", "threads_per_threadgroup": "block_size",
    "threadgroups_per_grid": "grid_size", "threads_per_grid": "threads",
    "thread_index_in_threadgroup": "number", "simdgroup_index_in_threadgroup": "number",
}  # fmt: skip
PROBLEMS = {  # runtime.c's numbers
    1: "some threads of a block end while others wait at a barrier",
    2: "no memory for the stacks of threads",
    3: "threads of a block wait at different barriers",
}
ALONE = {"threads_per_simdgroup": "1u", "thread_index_in_simdgroup": "0u"}  # one thread each
RECORD = """
struct hal_place {
    uint global_id[3], block_id[3], thread_id[3], block_size[3], grid_size[3], threads[3];
    uint number;
};
"""
# What software Metal lacks -> how a text asks for it.
ABSENT = {
    "arrays of textures": r"\btexture(?:[12]d_\w+|cube\w*|_buffer)\s*<|\bdepth(?:2d|cube)\w*\s*<",
    "samplers as arguments": r"\[\[\s*sampler\b",
    "function constants": r"\bfunction_constant\b",
    "simdgroups of several threads": r"\bsimd_(?!vote\b|ballot\b|shuffle\b)\w+\s*[(<]"
    r"|\bsimdgroup_(?!index_in_threadgroup\b)\w+\s*[(<]|\bquad(?:group)?_\w+\s*\(",
    "matrices": r"\b(?:half|float)[234]x[234]\b",
    "function tables": r"\b(?:visible|intersection)_function_table\b",
    "host names": r"\bhost_name\b",
}
_KERNEL = re.compile(
    r"(?P<attributes>(?:\[\[[^\]]*\]\]\s*)*)\bkernel\s+(?P<late>(?:\[\[[^\]]*\]\]\s*)*)void\s+"
    r"(?P<name>\w+)\s*\("
)
_PARAMETER = re.compile(
    r"^(?P<type>.*?[\s*&])(?P<name>\w+)\s*(?:\[\[(?P<attribute>.*?)\]\])?$", re.S
)
_MARKED = re.compile(r"\[\[\s*kernel\s*\]\]")
_HEADER = re.compile(r"#include\s*<(?:metal_\w+|simd/simd\.h)>")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)


class CompileError(Exception):
    """A text that clang refuses; the message is its log."""


class Argument(NamedTuple):
    """A parameter of a kernel that the caller binds."""

    name: str
    kind: str  # "buffer", "texture" or "threadgroup"
    index: int
    type: str

    @property
    def texture(self):
        """The number of axes, type and access of a texture."""
        found = re.search(
            r"texture([123])d\s*<\s*(\w+)\s*(?:,[\w\s:]*access::(\w+)\s*)?>", self.type
        )
        if found is None:
            raise CompileError(f"program_source:1:1: error: cannot read the type {self.type}")
        return int(found[1]), found[2], found[3] or "sample"


class Kernel(NamedTuple):
    name: str
    arguments: tuple[Argument, ...]
    most_threads: int  # that its text allows in a block


@functools.cache
def compilers():
    """Name of each clang on this machine, the first choice first -> its command."""
    names = ("clang", *(f"clang-{version}" for version in range(22, 13, -1)))
    found = {name: (path,) for name in names if (path := shutil.which(name))}
    if importlib.util.find_spec("ziglang"):
        found["zig"] = (sys.executable, "-m", "ziglang", "clang")
    return {name: (*command, "-march=native") for name, command in found.items()}


def compiler():
    """The command of a clang, or () where there is none."""
    return next(iter(compilers().values()), ())


@functools.cache
def _folder():
    """A folder for what is compiled in this process; gone at its end."""
    made = tempfile.TemporaryDirectory(prefix="hal-metal-")
    _keep.append(made)
    return Path(made.name)


_keep = []


@functools.cache
def _runtime():
    path = _folder() / "libruntime.so"
    # zig's bare clang knows no headers of C, as `zig cc` does.
    clang = ["cc" if word == "clang" else word for word in compiler()]
    command = (*clang, "-std=gnu11", "-O2", "-Wall", "-Werror", "-shared", "-fPIC")
    subprocess.run([*command, str(HERE / "runtime.c"), "-o", str(path)], check=True)
    return ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)


def _parts(text):
    """Split parameters at the commas outside of brackets."""
    found, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter in "([{<") - (letter in ")]}>")
        if letter == "," and depth == 0:
            found.append(text[start:at])
            start = at + 1
    return [part.strip() for part in (*found, text[start:]) if part.strip()]


def _closing(text, start):
    depth = 1
    for at in range(start, len(text)):
        depth += (text[at] == "(") - (text[at] == ")")
        if depth == 0:
            return at
    raise CompileError("program_source:1:1: error: a parameter list does not end")


def kernels(text):
    """Find the kernels of a text, and write for each the function that calls it."""
    plain = _COMMENT.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    for what, pattern in ABSENT.items():
        if asked := re.search(pattern, plain):
            line = plain.count("\n", 0, asked.start()) + 1
            column = asked.start() - plain.rfind("\n", 0, asked.start())
            name = asked[0].rstrip("(< ")
            problem = f"software Metal has no {what}: {name}"
            raise CompileError(f"program_source:{line}:{column}: error: {problem}")
    found = []
    for match in _KERNEL.finditer(plain):
        declared = _parts(plain[match.end() : _closing(plain, match.end())])
        arguments = []
        given = []
        for part in declared:
            parameter = _PARAMETER.match(part)
            if parameter is None:
                raise CompileError(f"program_source:1:1: error: cannot read parameter {part!r}")
            given.append(_given(parameter, arguments))
        limit = re.search(r"max_total_threads_per_threadgroup\((\d+)\)", match[0])
        most = int(limit[1]) if limit else MOST_THREADS
        kernel = Kernel(match["name"], tuple(arguments), most)
        found.append((kernel, _CALL.format(name=kernel.name, given=", ".join(given))))
    return found


_CALL = """
extern "C" void hal_call_{name}(const __global ulong *hal_args, const __global hal_place *hal_at)
{{
    ::{name}({given});
}}
"""


def _given(parameter, arguments):
    """Write what a kernel is given for one parameter."""
    kind, attribute = parameter["type"].strip(), (parameter["attribute"] or "").strip()
    if attribute in ALONE:
        return ALONE[attribute]
    if attribute in PLACES:
        field = PLACES[attribute]
        if field == "number":
            return f"({kind})hal_at->number"
        size = re.fullmatch(r"(?:const\s+)?(ushort|uint)([23]?)", kind)
        if size is None:
            raise CompileError(f"program_source:1:1: error: {attribute} cannot be a {kind}")
        parts = ", ".join(f"({size[1]})hal_at->{field}[{n}]" for n in range(int(size[2] or 1)))
        return f"({size[1]}{size[2]})({parts})"
    place = re.fullmatch(r"(buffer|texture|threadgroup)\((\d+)\)", attribute)
    if attribute and place is None:
        raise CompileError(f"program_source:1:1: error: software Metal has no [[{attribute}]]")
    used = next((one for one in ("threadgroup", "texture") if one in kind), "buffer")
    index = int(place[2]) if place else sum(a.kind == used for a in arguments)
    slot = len(arguments)
    arguments.append(Argument(parameter["name"], used, index, kind))
    if kind.endswith("&"):
        return f"*({kind[:-1].strip()} *)hal_args[{slot}]"
    if used == "texture":
        return f"*(const __global {kind} *)hal_args[{slot}]"
    return f"({kind})hal_args[{slot}]"


class Library:
    """A compiled text. Concurrency: one kernel of the process runs at a time."""

    _lock = threading.Lock()

    def __init__(self, text, macros=(), clang=()):
        """Raises: CompileError with clang's log, in which the text is `program_source`."""
        head = "".join(f"#define {name} {value}\n" for name, value in macros)
        if re.search(r"\b(?:texture\dd|sampler)\b", text):
            head += "#define HAL_TEXTURES\n"
        text = _HEADER.sub("#include <metal_stdlib>", _MARKED.sub("kernel", text))
        written = kernels(text)
        self.kernels = {kernel.name: kernel for kernel, _ in written}
        body = text.replace("#pragma METAL fp contract(off)", "#pragma OPENCL FP_CONTRACT OFF")
        calls = "".join(call for _, call in written)
        whole = f'{head}#line 1 "program_source"\n{body}\n#line 1 "calls"\n{RECORD}{calls}'
        self._library = ctypes.CDLL(str(_compiled(whole, clang or compiler())))

    def run(self, name, addresses, threads, block):
        """Run a kernel; `addresses` are those of its arguments, in order."""
        entry = ctypes.cast(self._library[f"hal_call_{name}"], ctypes.c_void_p)
        given = (ctypes.c_void_p * max(1, len(addresses)))(*addresses)
        triple = ctypes.c_uint32 * 3
        with self._lock:
            error = _runtime().metal_run(entry, given, triple(*threads), triple(*block))
        if error:
            raise RuntimeError(f"{name}: {PROBLEMS[error]}")

    def launch(self, signature, given, threads, block):
        """Run a rendered kernel: `given` has an array for each pointer, a number for each value.

        The values are packed as Metal lays out a struct, in which each begins at a multiple of its
        size.
        """
        kinds = [
            (param.name, "u1" if param.dtype.kind == "b" else param.dtype.to_numpy())
            for param in signature.values
        ]
        packed = np.zeros(1, np.dtype(kinds, align=True))
        for name, _ in kinds:
            packed[name] = given[name]
        addresses = [given[param.name].ctypes.data for param in signature.pointers]
        addresses += [packed.ctypes.data] if kinds else []
        self.run(signature.name, addresses, threads, block)


@functools.cache
def _linking(clang):
    """Return a command that links, and the library that is linked for half numbers."""
    if "ziglang" in clang:  # its bare clang has neither
        return (*clang[: clang.index("clang")], "cc"), ()
    if not (linker := shutil.which("ld")):
        return clang, ()
    # Called by clang, the linker takes as long as the compiler.
    ask = (*clang, "-print-libgcc-file-name")
    return (linker,), (subprocess.run(ask, capture_output=True, text=True).stdout.strip(),)


def _compiled(text, clang):
    """Return the library of a text; the same text is compiled once in a process."""
    with _making:  # two threads would write one file
        _runtime()  # which has `metal_wait`
        return _make(text, clang)


_making = threading.Lock()


def _make(text, clang):
    stem = hashlib.sha256(f"{clang}{text}".encode()).hexdigest()[:24]
    made = _folder() / f"{stem}.so"
    if made.exists():
        return made
    source = made.with_suffix(".metal")
    source.write_text(text, encoding="utf-8")
    command = (
        *clang, "-x", "cl", "-cl-std=clc++2021", "-cl-no-stdinc", "-I", str(HERE),
        "-cl-single-precision-constant",  # 1.0 is a float in Metal
        "-O1", "-fPIC", "-c", "-Wall", "-Wno-unknown-attributes",
        "-Wno-unknown-pragmas", "-Wno-char-subscripts", "-Wno-unused-variable",
        "-Wno-unused-function", "-Wno-tautological-compare", "-Wno-unused-value",
    )  # fmt: skip
    partial = made.with_suffix(".o")  # zig goes by the ending
    done = subprocess.run(
        [*command, str(source), "-o", str(partial)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise CompileError(done.stderr)
    library = partial.with_suffix(f"{partial.suffix}-linked")
    link, halves = _linking(clang)
    subprocess.run([*link, "-shared", str(partial), *halves, "-o", str(library)], check=True)
    library.rename(made)
    return made
