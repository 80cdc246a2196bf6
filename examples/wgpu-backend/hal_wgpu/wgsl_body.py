"""The lines of a kernel's function in WGSL: one a node."""

from __future__ import annotations

from hal_kernel.ir import Kernel, UOp

from hal_wgpu import wgsl_values as values
from hal_wgpu.wgsl_memory import Accesses, element

SPECIALS = {
    "global_idx": "i32(hal_global.{axis})",
    "block_idx": "i32(hal_block.{axis})",
    "thread_idx": "i32(hal_thread.{axis})",
    "grid_dim": "i32(hal_grid.{axis})",
    "block_dim": "i32(block_{axis})",
}
FIXED = {
    "BARRIER": ("workgroupBarrier();", "storageBarrier();"),
    "BREAK": ("break;",),
    "CONTINUE": ("continue;",),
    "RETURN": ("return;",),
    "ASSERT": (),
}


class Body(Accesses):
    """A method a kind of node is given the node and the names of its sources."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self.params = kernel.signature.params
        for at, param in enumerate(self.params):
            if param.is_pointer:
                self.stored[f"p{at}"] = element(param.dtype, packed=True)
        for uop in kernel.uops:
            self._write(uop)

    def _write(self, uop: UOp) -> None:
        names = [self.names[source] for source in uop.src if source in self.names]
        if uop.op in FIXED:
            for text in FIXED[uop.op]:
                self.line(text)
        elif method := getattr(self, f"_{uop.op.lower()}", None):
            method(uop, *names)
        else:
            self.let(uop, values.value(uop, names))

    def _param(self, uop: UOp) -> None:
        param, name = self.params[uop.arg], f"p{uop.arg}"
        if param.is_pointer:
            self.names[uop] = name
            self.stored[name] = element(param.dtype, packed=True, atomic=uop in self.atomic)
        else:
            self.let(uop, f"hal_values.{name}" + " != 0u" * (param.dtype.name == "bool"))

    def _const(self, uop: UOp) -> None:
        self.names[uop] = values.literal(uop.dtype, uop.arg)

    def _special(self, uop: UOp) -> None:
        kind, axis = uop.arg
        self.let(uop, SPECIALS[kind].format(axis="xyz"[axis]))

    def _var(self, uop: UOp) -> None:
        self.names[uop] = f"v{len(self.names)}"
        self.line(f"var {self.names[uop]}: {values.local(uop.dtype)}; // {uop.arg}")

    def _set(self, uop: UOp, variable: str, value: str) -> None:
        self.line(f"{variable} = {value};")

    def _get(self, uop: UOp, variable: str) -> None:
        self.let(uop, variable)

    def _open(self, text: str) -> None:
        self.line(f"{text} {{")
        self.depth += 1

    def _close(self, text: str = "}") -> None:
        self.depth -= 1
        self.line(text)

    def _if(self, uop: UOp, condition: str) -> None:
        self._open(f"if ({condition})")

    def _else(self, uop: UOp) -> None:
        self._close("} else {")
        self.depth += 1

    def _endif(self, uop: UOp) -> None:
        self._close()

    def _loop(self, uop: UOp) -> None:
        self._open("loop")

    def _endloop(self, uop: UOp) -> None:
        self._close()

    def _range(self, uop: UOp, start: str, stop: str, step: str) -> None:
        # Turns are counted before the loop, as the counter could overflow behind the last one.
        turn, turns = f"turn{len(self.lines)}", f"turns{len(self.lines)}"
        size, kind = abs(uop.src[2].arg), values.local(uop.dtype)
        low, high = (start, stop) if uop.src[2].arg > 0 else (stop, start)
        count = f"(u32({high}) - u32({low}) - 1u) / {size}u + 1u"
        self.line(f"let {turns} = select(0u, {count}, {low} < {high});")
        self._open(f"for (var {turn} = 0u; {turn} < {turns}; {turn}++)")
        self.let(uop, values.wrapped(uop.dtype, f"{start} + {kind}({turn}) * {step}"))

    def _endrange(self, uop: UOp, *_: str) -> None:
        self._close()
