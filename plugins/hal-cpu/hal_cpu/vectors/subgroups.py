"""Write what the threads of a subgroup tell each other; a gang is a subgroup.

    hal.shuffle(x, 0)                       one lane, as a scalar
    hal.shuffle_xor(x, 1)                   a shuffle by constants: 1, 0, 3, 2, ...
    hal.shuffle(x, p[i] % 8)                an index for each lane
    hal.ballot(x > 0)                       the bits of a mask
    hal.subgroup_sum(x)                     shuffles and sums in turns, and the last lane

`verify` has made sure that all threads of a subgroup come here, or none.
"""

from __future__ import annotations

from hal_core.dtypes import uint64
from hal_cpu.vectors.arithmetic import mangled, of, scalar
from hal_cpu.vectors.variables import Variables
from hal_kernel.ir.uop import UOp


class Subgroups(Variables):
    """Pass values on from lane to lane."""

    def on_SHUFFLE(self, uop: UOp) -> None:
        value, lane = map(self.get, uop.src)
        dtype, kind, n = value.dtype, scalar(value.dtype), self.w
        if self.is_uniform(value):
            self.note(uop, "uniform: nothing to do")
            self.values[uop] = value
        elif self.is_uniform(lane):
            self.note(uop, "one lane, as a scalar")
            at = self.let(f"and i32 {lane.base}, {n - 1}")  # another one is undefined, but no lane
            wide = self.let(f"zext i32 {at} to i64")
            self.values[uop] = self.uniform(dtype, self.lane(kind, self.vec(value), n, wide))
        elif lane.lanes and not lane.base.startswith("%") and self.holds(lane.tests):
            self.note(uop, "one shuffle, by constants")
            order = self.per_lane("i32", [(int(lane.base) + k) % n for k in lane.lanes])
            vector, whole = self.vec(value), of(kind, n)
            text = f"shufflevector {whole} {vector}, {whole} poison, {of('i32', n)} {order}"
            self.values[uop] = self.vector(dtype, self.let(text))
        else:
            self.note(uop, "one shuffle, by an index for each lane")
            name, whole = f"@hal.shuffle.{mangled(kind, n)}", of(kind, n)
            self.helpers[name] = _shuffle(name, kind, n)
            given = f"{whole} {self.vec(value)}, {of('i32', n)} {self.vec(lane)}"
            self.values[uop] = self.vector(dtype, self.let(f"call {whole} {name}({given})"))

    def on_BALLOT(self, uop: UOp) -> None:
        self.note(uop, "the bits of a mask")
        bools, n = self.vec(self.get(uop.src[0])), self.w
        if self.mask is not None:
            bools = self.let(f"and {of('i1', n)} {bools}, {self.bools()}")
        bits = self.as_bits(bools)
        bits = bits if n == 64 else self.let(f"zext i{n} {bits} to i64")
        self.values[uop] = self.uniform(uint64, bits)


def _shuffle(name: str, kind: str, n: int) -> str:
    """Return a function that LLVM makes one instruction of, where the processor has it."""
    whole, index, last = of(kind, n), of("i32", n), "poison"
    lines = [f"define internal {whole} {name}({whole} %x, {index} %lanes) alwaysinline {{"]
    lines.append(f"  %inside = and {index} %lanes, splat (i32 {n - 1})")
    for k in range(n):
        lines += [
            f"  %at.{k} = extractelement {index} %inside, i64 {k}",
            f"  %x.{k} = extractelement {whole} %x, i32 %at.{k}",
            f"  %y.{k} = insertelement {whole} {last}, {kind} %x.{k}, i64 {k}",
        ]
        last = f"%y.{k}"
    return "\n".join([*lines, f"  ret {whole} {last}", "}", ""])
