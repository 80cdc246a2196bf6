"""Write CAST and BITCAST in a language of the C family."""

from __future__ import annotations

from hal_core.dtypes import DTYPES, DType, float32
from hal_kernel.render.c import helpers
from hal_kernel.render.c.expression import Expression
from hal_kernel.render.c.spelling import Spelling


def cast(to: Spelling, value: Expression, source: DType, target: DType) -> tuple[str, bool]:
    """Return the text of `value` as `target`, and True if it is an atom: needs no parentheses."""
    if source is target:
        return value.text, value.atom
    pair = f"{target.name} from {source.name}"
    if pair in to.row.casts:
        name = f"hal_{pair.replace(' ', '_')}"
        bits, of_bits = to.bits(DTYPES["float32"])
        to.helper(
            name,
            to.row.casts[pair],
            type=to.row.types[(target if source is float32 else source).name],
            float=to.row.types["float32"],
            uint=to.row.types["uint32"],
            bits=bits,
            of_bits=of_bits,
        )
        return f"{name}({value.text})", True
    if target.kind == "b":
        return f"{value.operand} != 0", False
    if source.kind == "f" and target.is_integer:
        # In C the cast of a number outside of the integer's range is undefined.
        name = f"hal_{target.name}_from_{source.name}"
        to.helper(
            name,
            helpers.FLOAT_TO_INTEGER[target.kind],
            type=to.type(target),
            source=to.type(source),
            # Powers of two or 0, which every float dtype holds.
            above=to.literal(float(int(target.max) + 1), source).text,
            below=to.literal(float(target.min), source).text,
            max=to.literal(target.max, target).text,
            min=to.literal(target.min, target).text,
        )
        return f"{name}({value.text})", True
    return f"({to.type(target)}){value.operand}", True


def bitcast(to: Spelling, value: Expression, source: DType, target: DType) -> tuple[str, bool]:
    """Return C text that reinterprets `value` as `target`, and True if it needs no parentheses.

    The language's functions convert a float to or from the unsigned integer of its width; a C cast
    changes the sign of an integer's type. Most languages keep a 16-bit float as its bits.
    """
    source, target = (
        DTYPES["uint16"] if to.row.types[end.name] == to.row.types["uint16"] else end
        for end in (source, target)
    )
    if source is target:
        return value.text, value.atom
    text, atom = value.text, value.atom
    if source.is_float:
        text, atom = f"{to.bits(source)[0]}({text})", True
    if target.is_float:
        return f"{to.bits(target)[1]}({text})", True
    if source.is_float and target.kind == "u":
        return text, atom
    return f"({to.type(target)}){text if atom else f'({text})'}", True
