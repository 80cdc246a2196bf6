"""Calls for arguments that are seldom met: a branch in a loop that becomes vectors.

    y = near(x) if |x| < 2**27 else sin(x)

LLVM makes no vectors of a loop with such a branch. So the call of the library stands in a function
that has variants for vectors, and these look whether any element needs it:

    y = select |x| < 2**27, near(x), far.sin(|x|, x)      for 8 elements far.sin.8(|x|, x)
"""

from __future__ import annotations

from hal_core.dtypes import float64
from hal_kernel.render.literals import llvm_float

_WIDTHS = (2, 4, 8, 16)  # elements of the vectors of any processor
_TEXT = """\
define internal {type} {name}({parameters}) noinline nounwind willreturn readnone {{
  %far = fcmp uge {type} %size, {limit}
{test}  br i1 %{any}, label %call, label %near
call:
{call}
near:
  ret {type} zeroinitializer
}}
"""
DECLARATIONS = [
    f"declare i1 @llvm.vector.reduce.or.v{n}i1(<{n} x i1>)" for n in _WIDTHS
]  # what the variants call


def call_of(name: str, operands: list[str]) -> str:
    """Return the call of the function `name`, of a size and arguments."""
    shape = "v" * len(operands)
    variants = ",".join(f"_ZGV_LLVM_N{n}{shape}_{name[1:]}({name[1:]}.{n})" for n in _WIDTHS)
    given = ", ".join(f"double {operand}" for operand in operands)
    return f'call double {name}({given}) "vector-function-abi-variant"="{variants}"'


def definitions(name: str, library: str, limit: float, arguments: int) -> tuple[str, list[str]]:
    """Return the text of a function and its variants, and the names of these."""
    taken = ["%size", *(f"%a{k}" for k in range(arguments))]
    bound = llvm_float(limit, float64)
    given = ", ".join(f"double {argument}" for argument in taken[1:])
    texts = [
        _TEXT.format(
            type="double",
            name=name,
            parameters=", ".join(f"double {argument}" for argument in taken),
            limit=bound,
            test="",
            any="far",
            call=f"  %y = call double {library}({given})\n  ret double %y",
        )
    ]
    for count in _WIDTHS:
        type_ = f"<{count} x double>"
        lines, last = list[str](), "poison"
        for k in range(count):
            parts = [f"{argument}.{k}" for argument in taken]
            lines += [
                f"  {part} = extractelement {type_} {argument}, i32 {k}"
                for part, argument in zip(parts, taken, strict=True)
            ]
            passed = ", ".join(f"double {part}" for part in parts)
            lines.append(f"  %y.{k} = call double {name}({passed})")
            lines.append(f"  %all.{k} = insertelement {type_} {last}, double %y.{k}, i32 {k}")
            last = f"%all.{k}"
        reduced = f"@llvm.vector.reduce.or.v{count}i1(<{count} x i1> %far)"
        texts.append(
            _TEXT.format(
                type=type_,
                name=f"{name}.{count}",
                parameters=", ".join(f"{type_} {argument}" for argument in taken),
                limit=f"<{', '.join([f'double {bound}'] * count)}>",
                test=f"  %any = call i1 {reduced}\n",
                any="any",
                call="\n".join([*lines, f"  ret {type_} {last}"]),
            )
        )
    return "\n".join(texts), [f"{name}.{count}" for count in _WIDTHS]
