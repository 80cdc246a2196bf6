"""Read the kernels of a text in a language of the C family: their names and parameters.

__global__ void scale(float *__restrict__ y, const pair *p, T a)     with typedef double T

name    kind       type     const
y       pointer    float    no
p       pointer    pair     yes
a       value      double   no

The text is read without its comments and with its simple macros replaced; what a type is, its
typedefs tell. A backend lets the compiler confirm what is read here.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from hal_core.concurrency import suppress
from hal_core.dtypes import DTYPES, IMAGES, DType, alignment, alike, any_, as_dtype
from hal_core.errors import CompileError
from hal_core.signature import CONST_POINTER, POINTER, VALUE, Param, Signature

if TYPE_CHECKING:
    from hal_core.source import Source

_SKIPPED = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.DOTALL)
_DIRECTIVE = re.compile(
    r"^[ \t]*#[ \t]*(?:define[ \t]+(\w+)[ \t]+([^\n]*)|(if|el|endif))?[^\n]*", re.MULTILINE
)
_UNSURE = "#"  # in the place of what only a preprocessor knows: an #if, a name with two meanings
_TYPEDEF = re.compile(r"\btypedef\s+([\w\s*]+?)\s*\b(\w+)\s*;")
_ATTRIBUTED = re.compile(
    r"\btypedef\s+([\w\s]+?)\s+(\w+)\s*__attribute__\s*\(\(([^;]*?)\)\s*\)\s*;"
)
_STRUCT = re.compile(r"\bstruct\s*(\w*)\s*\{([^{}]*)\}\s*(\w*)\s*;")
_FIELD = re.compile(r"\s*(\w+)\s*((?:\[\s*[0-9]+\s*\]\s*)*)\Z")
_USING = re.compile(r"\busing\s+(\w+)\s*=\s*([\w\s]+?)\s*;")
_WORD = re.compile(r"\w+")
_SQUARE = re.compile(r"\[\[.*?\]\]", re.DOTALL)
_ATTRIBUTE = re.compile(
    r"\b__(?:attribute|launch_bounds)__\s*\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)", re.DOTALL
)
_CONSTANT = frozenset({"const", "constant", "__constant", "read_only", "__read_only"})
# Words beside a type that are no part of it.
_QUALIFIERS = frozenset({
    "const", "volatile", "restrict", "__restrict", "__restrict__", "global", "__global", "constant",
    "__constant", "local", "__local", "private", "__private", "device", "threadgroup", "thread",
    "register", "struct", "union", "enum", "__read_only", "__write_only", "__read_write",
    "read_only", "write_only", "read_write", "static", "inline", "__grid_constant__",
})  # fmt: skip
_INTEGERS = {"char": 1, "short": 2, "int": 4, "long": 8}
_NAMED = {
    "bool": "bool", "_Bool": "bool", "float": "float32", "double": "float64", "half": "float16",
    "__half": "float16", "bfloat": "bfloat16", "__nv_bfloat16": "bfloat16", "__hip_bfloat16":
    "bfloat16", "size_t": "uint64", "ptrdiff_t": "int64", "uintptr_t": "uint64",
    "intptr_t": "int64",
    "uchar": "uint8", "ushort": "uint16", "uint": "uint32", "ulong": "uint64", "longlong": "int64",
    "ulonglong": "uint64", "cuFloatComplex": "complex64", "cuComplex": "complex64",
    "cuDoubleComplex": "complex128", "hipFloatComplex": "complex64", "void": "any",
    **{f"{name}_t": name for name in DTYPES if "int" in name},
}  # fmt: skip
# Objects of images: a texture is only read. How many axes it has, the functions tell that use it.
_OBJECTS = {"cudaTextureObject_t": CONST_POINTER, "cudaSurfaceObject_t": POINTER}
_OBJECTS |= {name.replace("cuda", "hip"): use for name, use in _OBJECTS.items()}
_USE = re.compile(r"\b(?:tex|surf)([123])D\w*\s*(?:<[^<>()]*>)?\s*\(")
_VECTOR = re.compile(r"([a-z]+?)(2|3|4|8|16)")


class Declared(NamedTuple):
    """A parameter as a text declares it."""

    name: str
    text: str  # all of it, for errors
    type: str  # without qualifiers: "unsigned int"
    stars: int
    words: frozenset[str]  # qualifiers and address spaces
    axes: int = 0  # of an image that it takes as an object; 0: unknown


class Text:
    """A text that is read, with its macros, typedefs and the text of kernels."""

    def __init__(
        self, text: str, defines: Iterable[tuple[str, str]] = (), *, long: int = 8, three: str = "",
        confirmed: bool = False,
    ) -> None:  # fmt: skip
        text = _SKIPPED.sub(lambda found: '""' if found[0][0] in "\"'" else " ", text)
        text = re.sub(r"\\[ \t]*\r?\n", " ", text)
        meanings = dict if confirmed else _meanings
        macros = meanings((name, value) for name, value, _ in _DIRECTIVE.findall(text) if name)
        macros |= {name: value for name, value in defines if _WORD.fullmatch(name)}
        self.text = _DIRECTIVE.sub(lambda found: _UNSURE if found[3] else "", text)
        for _ in range(8 if macros else 0):  # of macros in macros
            replaced = _WORD.sub(lambda found: macros.get(found[0], found[0]), self.text)
            if replaced == self.text or len(replaced) > 1 << 22:
                break
            self.text = replaced
        # By name, typedefs with an attribute: a vector, or a type whose layout is not read.
        attributed = {}
        for type, name, after in _ATTRIBUTED.findall(self.text):
            kind, _, size = after.replace("__", "").partition("(")
            attributed[name] = (type, kind.strip(), size.strip(" )"))
        self.text = _ATTRIBUTE.sub(" ", self.text)
        pairs = [(name, type) for type, name in _TYPEDEF.findall(self.text)]
        self.types = meanings([*pairs, *_USING.findall(self.text)])
        # The fields of structs, by their tags and by their typedefs.
        found = _STRUCT.findall(self.text)
        self.structs = meanings(
            (one, fields) for tag, fields, name in found for one in {tag, name} - {""}
        )
        # Bytes of a long, and the vector that has the memory of one of three.
        self._long, self._three = long, three
        self.vectors: dict[str, DType | None] = {}  # and what a language adds: images
        for name, (type, kind, size) in attributed.items():
            scalar = self.dtype(self.types.pop(name, type))
            count = int(size) if size.isdigit() else 0
            if scalar is not None and kind == "vector_size":
                count //= scalar.itemsize
            is_vector = scalar is not None and "vector" in kind and count in (2, 4, 8, 16)
            self.vectors[name] = as_dtype(f"{scalar}x{count}") if is_vector else None

    def dtype(self, type: str, depth: int = 0) -> DType | None:
        """Return the dtype of a type, vectors included; None for a type of the text's own."""
        words = [word for word in type.split() if word not in _QUALIFIERS]
        unsigned = "unsigned" in words
        rest = [word for word in words if word not in ("unsigned", "signed")]
        if words and set(rest) <= _INTEGERS.keys():
            base = next((word for word in rest if word != "int"), "int")
            nbytes = self._long if rest.count("long") == 1 else _INTEGERS[base]
            return DTYPES[f"{'u' * unsigned}int{8 * nbytes}"]
        if len(rest) == 2 and {"_Complex", "complex"} & set(rest):
            rest = [{"float": "cuFloatComplex", "double": "cuDoubleComplex"}.get(
                next((word for word in rest if "omplex" not in word), ""), "")]  # fmt: skip
        [name] = rest if len(rest) == 1 else ("",)
        name = f"u{name}" if unsigned else name  # `unsigned char4`, as some drivers write it
        if name in self.vectors:
            return self.vectors[name]
        if name in self.types and depth < 16:
            return self.dtype(self.types[name], depth + 1)
        if name in self.structs and depth < 16:
            return self._struct(self.structs[name], depth + 1)
        if name in _NAMED:
            return any_ if name == "void" else as_dtype(_NAMED[name])
        match = _VECTOR.fullmatch(name)
        scalar = self.dtype(match[1]) if match and match[1] != "void" else None
        if match and scalar is not None and not match[1].endswith("_"):
            count = match[2] if match[2] != "3" else self._three
            return as_dtype(f"{scalar.name}x{count}") if count else None
        return None

    def object_of(self, type: str) -> str | None:
        """Return how a kernel uses an image that it takes as an object of this type, if it does."""
        for _ in range(16):
            type = self.types.get(type, type)
        return _OBJECTS.get(type)

    def _struct(self, fields: str, depth: int) -> DType | None:
        """Return the dtype of a struct as compilers lay it out; None for fields that are not read.

        The compiler confirms it: `checks`.
        """
        end, widest, found = 0, 1, ""
        for line in filter(str.strip, fields.split(";")):
            first, *more = line.split(",")
            type, _, name = first.rstrip().replace("[", " [", 1).partition(" [")[0].rpartition(" ")
            bounds = first[first.index("[") :] if "[" in first else ""
            dtype = self.dtype(type, depth) if "*" not in line else None
            if dtype is None or dtype is any_:
                return None
            align = alignment(dtype)
            for one in (name + bounds, *more):
                match = _FIELD.match(one)
                if match is None:
                    return None
                shape = re.sub(r"\s", "", match[2])
                start = -(-end // align) * align
                found += f"{match[1]}:{dtype.name}{shape}@{start};"
                end = start + dtype.itemsize * math.prod(map(int, re.findall("[0-9]+", shape)))
            widest = max(widest, align)
        return as_dtype(f"struct<{found}{-(-end // widest) * widest}>") if found else None

    def kernels(self, mark: str) -> dict[str, list[Declared]]:
        """Return the kernels: `mark` is the word before them, or a pattern up to the parenthesis.

        A template is none. Of those that are declared, `defined` has the ones with a body; it has
        those, too, whose parameters depend on an #if, and the result does not. `doubled` has the
        ones with two bodies: overloads of C++, or a mistake.
        """
        found: dict[str, list[Declared]] = {}
        unsure: set[str] = set()
        self.defined: dict[str, None] = {}
        self.doubled: set[str] = set()
        head = mark if "(\\w+)" in mark else rf"\b{mark}\b[^;{{}}()]*?\b(\w+)\s*\("
        for match in re.finditer(head, self.text):
            begin = max(self.text.rfind(letter, 0, match.start()) for letter in ";{}") + 1
            if "template" in self.text[begin : match.start()]:
                continue
            inside, end = self._inside(match.end())
            body = self.text[end:].lstrip(_UNSURE + " \t\r\n")[:1] == "{"
            again = body and match[1] in self.defined
            self.doubled |= {match[1]} if again and _UNSURE not in self.text else set()
            self.defined |= {match[1]: None} if body else {}
            if body or match[1] not in found:
                declared = [] if inside in ([""], ["void"]) else list(map(_declared, inside))
                made = [one._replace(axes=self._axes(one, end)) for one in declared]
                differs = again and made != found[match[1]]
                types = [
                    known.get(one.type, "") for one in made for known in (self.types, self.structs)
                ]
                unsure |= {match[1]} if differs or _UNSURE in "".join(inside + types) else set()
                found[match[1]] = made
        return {name: made for name, made in found.items() if name not in unsure}

    def _axes(self, one: Declared, start: int) -> int:
        """Return how many axes an image has, as the body of a kernel uses it; 0: unknown, or none.

        surf2Dwrite(value, name, 16 * x, y) and tex2D<float4>(name, x, y): two
        """
        if not self.object_of(one.type):
            return 0
        depth, end = 0, start
        for end in range(start, len(self.text)):
            depth += (self.text[end] == "{") - (self.text[end] == "}")
            if depth == 0 and self.text[end] == "}":
                break
        uses = _USE.finditer(self.text, start, end)
        found = {int(use[1]) for use in uses if one.name in self._inside(use.end())[0][:2]}
        return found.pop() if len(found) == 1 else 0

    def _inside(self, start: int) -> tuple[list[str], int]:
        """Return what stands between commas, up to the parenthesis that closes, and its end."""
        depth, parts, begin = 0, [], start
        for place in range(start, len(self.text)):
            letter = self.text[place]
            depth += (letter in "([<") - (letter in ")]>")
            if depth < 0 or (letter == "," and not depth):
                parts.append(self.text[begin:place].strip())
                begin = place + 1
                if depth < 0:
                    break
        return parts, begin


def _meanings(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the meaning of each name; branches of an #if, or #undef, may give it two."""
    found: dict[str, str] = {}
    for name, meaning in pairs:
        found[name] = meaning if found.get(name, meaning) == meaning else _UNSURE
    return found


def _declared(text: str) -> Declared:
    plain = _SQUARE.sub(" ", text.partition("=")[0])
    stars = plain.count("*") + plain.count("[") + plain.count("&")
    before, _, after = re.sub(r"[*&]", " * ", plain.partition("[")[0]).rpartition("*")
    words = (before + " " + after).split() if stars else plain.split()
    name = words[-1] if len(words) > 1 and words[-1] not in _QUALIFIERS else ""
    rest = [word for word in words[: len(words) - bool(name)] if word != "*"]
    type = " ".join(word for word in rest if word not in _QUALIFIERS)
    ahead = plain.partition("*")[0].split()  # `float *const y` is no const memory
    qualifiers = frozenset(word for word in (ahead if stars else rest) if word in _QUALIFIERS)
    return Declared(name, text, type, stars, qualifiers)


def signature_of(name: str, found: list[Declared], text: Text, device: str) -> Signature:
    """Return the signature of a kernel as it is declared.

    Raises: CompileError naming a parameter whose type cannot be read.
    """
    params: list[Param] = []
    for position, one in enumerate(found):
        dtype = text.dtype(one.type)
        label = one.name or f"_{position}"
        use = text.object_of(one.type)
        if use and one.axes and not one.stars:
            params.append(Param(label, IMAGES[f"image{one.axes}d"], use, position))
            continue
        if one.stars > 1 or (dtype in (None, any_) and not one.stars):
            problem = f"the type of parameter {label!r} cannot be read"
            fix = f"Give the kernel's signature. {_OWN_TYPE}"
            if use:
                problem = f"the type of parameter {label!r} does not tell how many axes it has"
                access = "const " * (use == CONST_POINTER)
                fix = f"Give the kernel's signature, with '{label}: {access}image2d' for two."
            raise CompileError(f"compile {name}", problem, source=one.text, device=device, fix=fix)
        memory = one.stars or (dtype and dtype.kind == "I")
        const = bool(one.words & _CONSTANT)
        kind = (CONST_POINTER if const else POINTER) if memory else VALUE
        params.append(Param(label, dtype or any_, kind, position))
    return Signature(name, tuple(params))


# What a signature says of a value whose type is the text's own.
_OWN_TYPE = (
    "A struct or union is a numpy dtype with fields there, or a complex or vector of its size."
)


def advice(one: Declared | None = None, text: Text | None = None) -> str:
    """Return what to do about a signature that says something else of a parameter."""
    if one and text and not one.stars and text.dtype(one.type) is None:
        return f"Mend the signature. {_OWN_TYPE}"
    return "Write the signature as the kernel declares it, or leave it out."


def _is_own(written: DType | None) -> bool:
    """Tell whether a type is the text's own, whose layout the compiler has."""
    return written is None or written.name.startswith("struct<")


def holds(written: DType | None, param: Param) -> bool:
    """Tell whether memory or a value of a type is what a signature says.

    Elements may be counted otherwise: `float4 *` fits `float32*`. A type of the text's own fits any
    pointer.
    """
    dtype = param.dtype
    if written is None or written is any_ or dtype is any_ or _is_own(written):
        return param.is_pointer
    base, _, count = written.name.partition("x") if written.kind == "V" else (written.name, "", "")
    if param.is_pointer and count:
        return dtype.name == base or dtype in alike(written)
    return dtype in alike(written) or written.name in _STORED.get(dtype.name, ())


# Dtypes whose bits a text may take as an integer.
_STORED = {
    "bool": ("uint8", "int8"), "float16": ("uint16",), "bfloat16": ("uint16",),
}  # fmt: skip


def headers(text: str, folders: Iterable[str], depth: int = 8) -> str:
    """Return the texts that a text includes from folders, for their typedefs."""
    found = ""
    for name in re.findall(r"""#\s*include\s*["<]([^">\n]+)[">]""", text) if depth else ():
        for folder in folders:
            with suppress(OSError), open(os.path.join(folder, name), errors="replace") as file:
                more = file.read()
                found += headers(more, folders, depth - 1) + more + "\n"
                break
    return found


class Reading:
    """The kernels of a source as its text declares them, and what a compiler has to confirm."""

    def __init__(
        self, source: Source[Any], mark: str, device: str, *, long: int = 8, three: str = "",
        text: str = "", hidden: int = 0, confirmed: bool = False,
    ) -> None:  # fmt: skip
        """Read the text, or `text` where a preprocessor gave one.

        `mark` is the word before a kernel; the first `hidden` parameters are no arguments.
        `confirmed` says that the compiler compares types that only its own headers tell.
        Raises: CompileError for a kernel that is asked for and defined twice.
        """
        self.source, self.device, self._operation = source, device, f"compile {source.name}"
        self._confirmed = confirmed
        whole = text or headers(source.text, source.includes) + source.text
        self.text = Text(
            whole, () if text else source.defines, long=long, three=three,
            confirmed=confirmed or bool(text),
        )  # fmt: skip
        self.kernels: tuple[Signature, ...] = ()
        found = self.text.kernels(mark)
        # What macros hide is the compiler's to find; what is only declared has no code.
        self._wanted = list(self.text.defined if source.kernels is None else dict(source.kernels))
        for name in sorted(self.text.doubled.intersection(self._wanted)):
            fix = "Rename one; or, if they are overloads of C++, name the kernels: {'one': None}."
            raise self._refused(f"the text defines the kernel {name!r} twice", fix=fix)
        self.declared = {name: params[hidden:] for name, params in found.items()}

    def compare(self) -> tuple[Signature, ...]:
        """Return the signatures of the kernels that are asked for, as given or as declared.

        Raises: CompileError for a kernel that the text lacks, and a parameter that does not fit.
        """
        kernels = []
        for name, given in asked(self.source, self._wanted, self.device).items():
            declared = self.declared.get(name)
            if given is None and declared is None:
                fix = "Give its signature (an #if may decide it), or mark it as the language says."
                problem = f"the text has no kernel {name!r} that can be read"
                raise self._refused(problem, fix=fix)
            made = given or signature_of(name, declared or [], self.text, self.device)
            if given and declared is not None:
                self._compare(made, declared)
            kernels.append(made)
        self.kernels = tuple(kernels)
        return self.kernels

    def confirmed(self) -> str:
        """Return the checks of the structs of all kernels that can be read.

        For a compiler that tells itself what its kernels take.
        """
        found = []
        given = dict(self.source.kernels or ())
        for name, declared in self.declared.items():
            with suppress(CompileError):
                made = given.get(name) or signature_of(name, declared, self.text, self.device)
                found.append(made)
        self.kernels = tuple(found)
        return self.checks()

    def _compare(self, signature: Signature, declared: list[Declared]) -> None:
        if any("(" in _SQUARE.sub("", one.text) for one in declared):
            return  # macros with arguments: what they give, the compiler knows
        if len(declared) != len(signature.params):
            problem = f"the kernel {signature.name} takes {len(declared)} arguments, its signature "
            problem += f"({signature}) gives {len(signature.params)}"
            raise self._refused(problem, fix=advice())
        for param, one in zip(signature.params, declared, strict=True):
            known = self.text.dtype(one.type) is not None or param.dtype.kind == "I"
            known |= param.is_pointer and self.text.object_of(one.type) is not None
            if (known or not self._confirmed) and not fits(one, param, self.text):
                problem = f"argument {param.position} of the kernel is {one.text}, "
                problem += f"its signature says {param}"
                raise self._refused(problem, fix=advice(one, self.text))

    def checks(self) -> str:
        """Return lines that no compiler takes if a type of the text's own differs from its dtype.

        For all languages of the family, in one line each, to be put behind the text.
        """
        lines = ""
        for number, signature in enumerate(self.kernels):
            declared = self.declared.get(signature.name, ())
            for param, one in zip(signature.params, declared, strict=False):
                dtype, is_struct = param.dtype, param.dtype.name.startswith("struct<")
                is_sized = dtype.kind in ("c", "V") and not param.is_pointer and "(" not in one.type
                if not (is_struct or is_sized) or not _is_own(self.text.dtype(one.type)):
                    continue
                type = " ".join([*(one.words & {"struct", "union"}), one.type])
                facts = {"": f"sizeof({type}) == {dtype.itemsize}"}
                fields = dtype.to_numpy().fields if is_struct else None
                for name, (_, offset, *_) in (fields or {}).items():
                    facts[name] = f"__builtin_offsetof({type}, {name}) == {offset}"
                for name, fact in facts.items():
                    label = f"hal_layout_{number}_{param.position}_{name}"
                    lines += f"typedef char {label}[({fact}) ? 1 : -1];\n"
        return lines and f'\n#line 1 "layout"\n{lines}'

    def misfit(self, log: str) -> CompileError | None:
        """Return the error of a struct that has another layout; None for another fault."""
        match = re.search(r"\bhal_layout_([0-9]+)_([0-9]+)_(\w*)", log)
        if match is None:
            return None
        param = self.kernels[int(match[1])].params[int(match[2])]
        what = f"the field {match[3]!r} in another place" if match[3] else "another size"
        problem = f"the type of argument {param.name!r} has {what} in the text"
        fix = "Give a signature with the numpy dtype of that layout: align=True, or its offsets."
        return self._refused(f"{problem}, its dtype is {param.dtype.name}", log=log, fix=fix)

    def _refused(self, problem: str, *, fix: str, log: str = "") -> CompileError:
        return CompileError(
            self._operation, problem, log=log, source=self.source.text, device=self.device, fix=fix
        )


def fits(one: Declared, param: Param, text: Text) -> bool:
    """Tell whether a declared parameter is what the signature says."""
    written = text.dtype(one.type)
    writes = param.kind == CONST_POINTER and not one.words & _CONSTANT
    if "I" in (param.dtype.kind, written.kind if written else ""):
        use = text.object_of(one.type)
        if use:
            same_axes = param.dtype.name == f"image{one.axes}d" or not one.axes
            return param.kind == use and not one.stars and same_axes
        same_access = bool(one.words & _CONSTANT) == (param.kind == CONST_POINTER)
        return written is param.dtype and not one.stars and same_access
    if bool(one.stars) != param.is_pointer or one.stars > 1:
        return False
    if param.is_pointer:
        return not writes and holds(written, param)
    if _is_own(written):  # `checks` compares the layout, or of a number of several its size
        return param.dtype.kind in ("c", "V") and "*" not in text.types.get(one.type, "")
    return holds(written, param)


def asked(source: Source, found: list[str], device: str) -> dict[str, Signature | None]:
    """Return the kernels to compile and their given signatures, of those that a text holds.

    Raises: CompileError for a text without kernels, and for a kernel that it lacks.
    """
    operation = f"compile {source.name}"
    if not found:
        raise CompileError(
            operation, "the text has no kernel", source=source.text, device=device,
            fix="Mark a function as the language says: docs/source-kernels.md has one of each.",
        )  # fmt: skip
    kernels = dict.fromkeys(found) if source.kernels is None else dict(source.kernels)
    for name in kernels:
        if name not in found:
            problem = f"the text has no kernel {name!r}, it has {', '.join(found)}"
            raise CompileError(operation, problem, device=device)
    return kernels
