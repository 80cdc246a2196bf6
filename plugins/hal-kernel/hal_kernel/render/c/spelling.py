"""Write types, literals and helper functions in a language of the C family."""

from __future__ import annotations

from hal_core.dtypes import DTYPES, DType, any_
from hal_kernel.render.c.expression import Expression
from hal_kernel.render.c.language import Language
from hal_kernel.render.c.words import AXES, filled
from hal_kernel.render.literals import c_float, c_integer


class Spelling:
    """Spell words of a language, and collect the headers and helpers that they need."""

    def __init__(self, row: Language) -> None:
        self.row = row
        self.features: set[str] = set()
        self.helpers: dict[str, str] = {}  # name -> definition
        self.aliases: dict[str, None] = {}  # types that need one which may alias others

    def type(self, dtype: DType) -> str:
        if dtype is DTYPES["float64"]:
            self.features.add("float64")
        return self.row.types[dtype.name]

    def storage(self, dtype: DType) -> str:
        if dtype is any_:
            return self.row.types["uint8"]
        return self.row.bool_storage if dtype.kind == "b" else self.type(dtype)

    def aliasing(self, dtype: DType) -> str:
        """Return the storage type in a form that may alias other types."""
        kind = self.storage(dtype)
        if not self.row.alias:
            return kind
        self.aliases[kind] = None
        return f"hal_any_{kind}"

    def unsigned(self, dtype: DType) -> str:
        """Return the unsigned type for arithmetic on integers of this width: 32 bits or 64."""
        return self.row.types["uint64" if dtype.itemsize == 8 else "uint32"]

    def special(self, kind: str, axis: int) -> str:
        return filled(self.row.specials[kind], AXES[axis])

    def literal(self, value: float, dtype: DType) -> Expression:
        if dtype.kind == "b":
            return Expression("true" if value else "false", atom=True)
        suffix = self.row.suffixes.get(dtype.name, "")
        if dtype.is_integer:
            text = c_integer(int(value), dtype, suffix)
        else:
            self.type(dtype)
            infinity = self.row.infinities.get(dtype.name, ("INFINITY", "NAN"))
            text = c_float(value, dtype, suffix, *infinity)
            if "N" in text:  # INFINITY or NAN, which <math.h> defines
                self.features.add("math")
        return Expression(text, atom=not text.startswith("-"))

    def bits(self, dtype: DType) -> tuple[str, str]:
        """Return the functions from a float to its bits as an unsigned integer, and back."""
        functions = self.row.bits[dtype.name]
        for name in functions:
            if name in self.row.helpers:
                self.helpers.setdefault(name, self.row.helpers[name])
        return functions

    def helper(self, name: str, template: str, **fields: str) -> None:
        """Add a small function to the text, once."""
        if name not in self.helpers:
            self.helpers[name] = template.format(name=name, static=self.row.helper, **fields)
