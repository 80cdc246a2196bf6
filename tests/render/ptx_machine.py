"""A machine for the PTX that the renderer writes: strict, in numpy, all threads side by side.

Threads whose place in the text is least go on together, up to the next label or jump. What PTX
leaves open is a Fault: an unknown instruction or a register of another type, a value that was
never written, an access out of bounds or unaligned, a division by zero, a barrier that some
threads of a block miss.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from ptx_operations import TYPES, compute, fault_of_division
from ptx_program import Instruction, Program
from ptx_space import Fault, Space, number

Array = npt.NDArray[Any]
Triple = tuple[int, int, int]
GENERIC = 1 << 40  # what cvta takes off an address
MOST_TURNS = 2_000_000


_ATOMICS: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "min": min,
    "max": max,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "exch": lambda _, b: b,
    "cas": lambda a, expected, b: b if a == expected else a,
}


class Machine:
    """One launch."""

    def __init__(self, text: str, arguments: dict[str, Any], grid: Triple, block: Triple) -> None:
        self.program = Program(text)
        self.program.check_block(block)
        self.grid, self.block = grid, block
        self.in_block = math.prod(block)
        self.size = math.prod(grid) * self.in_block
        self.threads = np.arange(self.size)
        self.registers: dict[str, Array] = {}
        self.known: dict[str, Array] = {}
        for name, kind in self.program.registers.items():
            self.registers[name] = np.zeros(self.size, TYPES[kind])
            self.known[name] = np.zeros(self.size, bool)
        self.pc = np.zeros(self.size, np.int64)
        self.alive, self.waiting = np.ones(self.size, bool), np.zeros(self.size, bool)
        self.arrays: list[tuple[Array, int]] = []
        self.params = self._place(arguments)
        self.starts: dict[str, int] = {}  # of the arrays, in the part of a block or a thread
        self._place_tables()
        self.bases = {
            "shared": self._place_arrays("shared", self.threads // self.in_block),
            "local": self._place_arrays("local", self.threads),
        }

    # memory

    def _place(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Arrays go to the global space; views of one array stay views of one."""
        roots: dict[int, int] = {}
        end = 256
        placed = {}
        for name, value in arguments.items():
            if not isinstance(value, np.ndarray):
                placed[name] = value
                continue
            root: Any = value
            while isinstance(root.base, np.ndarray):
                root = root.base
            if id(root) not in roots:
                roots[id(root)] = end
                self.arrays.append((root, end))
                end += -(-root.nbytes // 256) * 256 + 256
            placed[name] = GENERIC + roots[id(root)] + value.ctypes.data - root.ctypes.data
        self.spaces = {"global": Space(end)}
        for root, start in self.arrays:
            inside = slice(start, start + root.nbytes)
            self.spaces["global"].bytes[inside] = root.reshape(-1).view(np.uint8)
            self.spaces["global"].placed[inside] = self.spaces["global"].written[inside] = True
        return placed

    def _place_tables(self) -> None:
        tables = {
            name: np.concatenate([number(value, TYPES[kind]) for value in values])
            for name, (kind, values) in self.program.tables.items()
        }
        space = self.spaces["const"] = Space(sum(table.nbytes + 32 for table in tables.values()))
        start = 0
        for name, table in tables.items():
            self.starts[name], inside = start, slice(start, start + table.nbytes)
            space.bytes[inside] = table.view(np.uint8)
            space.placed[inside] = space.written[inside] = True
            start += -(-table.nbytes // 16) * 16 + 16

    def _place_arrays(self, kind: str, owners: Array) -> Array:
        """Where each thread's part of a space begins; threads of one owner share one."""
        arrays = self.program.arrays[kind]
        # Behind each array a gap, to catch what goes beyond.
        extents = {name: -(-size // 16) * 16 + 16 for name, size in arrays.items()}
        stride = sum(extents.values())
        space = self.spaces[kind] = Space(stride * (int(owners[-1]) + 1))
        start = 0
        for name, nbytes in arrays.items():
            self.starts[name] = start
            space.placed.reshape(-1, stride)[:, start : start + nbytes] = True
            start += extents[name]
        return owners * stride

    def _address(self, operand: str, space: str, lanes: Array) -> Array:
        base, _, offset = operand.strip("[]").partition("+")
        address = self.read(base, "u64", lanes).astype(np.int64) + int(offset or 0)
        return address + self.bases[space][lanes] if space in self.bases else address

    # operands

    def read(self, operand: str, kind: str, lanes: Array, narrower: bool = False) -> Array:
        """The operand as `kind`; with `narrower`, of a register that may be wider."""
        dtype = TYPES[kind]
        if not operand.startswith("%"):
            return np.broadcast_to(number(operand, dtype), lanes.shape)
        if operand not in self.registers:
            return self._special(operand)[lanes].astype(dtype)
        register = self.registers[operand]
        if not self.known[operand][lanes].all():
            raise Fault(f"{operand} is read before it is written")
        self._check(operand, kind, narrower)
        values = register[lanes]
        if register.itemsize > dtype.itemsize:
            values = values.astype(f"u{dtype.itemsize}")
        return values.view(dtype)

    def write(self, register: str, kind: str, lanes: Array, values: Array, wider: bool) -> None:
        self._check(register, kind, wider)
        target = self.registers[register]
        values = np.asarray(values).astype(TYPES[kind])
        if target.itemsize > values.itemsize:
            values = values.astype(f"{values.dtype.kind}{target.itemsize}")
        target[lanes] = values.view(target.dtype)
        self.known[register][lanes] = True

    def _check(self, register: str, kind: str, wider: bool) -> None:
        declared = self.program.registers[register]
        same = TYPES[declared].itemsize == TYPES[kind].itemsize
        larger = wider and declared[0] == "b" and TYPES[declared].itemsize > TYPES[kind].itemsize
        floats = {declared[0], kind[0]} & {"f"}
        alike = declared == kind or kind[0] == "b" or not floats
        if "pred" in (declared, kind) and declared != kind:
            raise Fault(f"{register} is a {declared}, not a {kind}")
        if not (larger or (same and (alike or (declared[0] == "b" and kind in ("f16", "bf16"))))):
            raise Fault(f"{register} is a {declared}, not a {kind}")

    def _special(self, name: str) -> Array:
        kind, axis = name[1:].split(".")
        extents = self.block if kind in ("tid", "ntid") else self.grid
        if kind in ("ntid", "nctaid"):
            return np.full(self.size, extents["xyz".index(axis)])
        if kind not in ("tid", "ctaid"):
            raise Fault(f"no such register: {name}")
        number = self.threads % self.in_block if kind == "tid" else self.threads // self.in_block
        before = math.prod(extents[: "xyz".index(axis)])
        return np.asarray(number // before % extents["xyz".index(axis)])

    # running

    def run(self) -> None:
        turns = 0
        with np.errstate(all="ignore"):
            while (ready := np.flatnonzero(self.alive & ~self.waiting)).size or self._release():
                turns += 1
                if turns > MOST_TURNS:
                    raise Fault("the kernel does not end")
                if ready.size:
                    self._together(ready)
        for root, start in self.arrays:
            data = self.spaces["global"].bytes[start : start + root.nbytes]
            root.reshape(-1).view(np.uint8)[:] = data

    def _release(self) -> bool:
        """All threads wait or have ended: those of whole blocks that wait at one place go on."""
        if not self.waiting.any():
            return False
        waiting, places = (part.reshape(-1, self.in_block) for part in (self.waiting, self.pc))
        alive = self.alive.reshape(-1, self.in_block)
        for row, at, living in zip(waiting, places, alive, strict=True):
            if len(set(at[row])) > 1 or (living & ~row).any():
                raise Fault("a barrier that some threads of the block miss")
        self.waiting[:] = False
        return True

    def _together(self, ready: Array) -> None:
        """One stretch of text without labels and jumps."""
        here = int(self.pc[ready].min())
        lanes = ready[self.pc[ready] == here]
        while True:
            instruction = self.program.code[here]
            here += 1
            self.pc[lanes] = here
            try:
                ended = self._step(instruction, lanes)
            except (Fault, KeyError, ValueError) as error:
                raise Fault(f"{instruction.text}: {error!r}") from error
            if ended or here in self.program.leaders:
                return

    def _step(self, instruction: Instruction, lanes: Array) -> bool:
        """Execute one instruction for some lanes. Returns: it ends the stretch."""
        name, operands = instruction.name, instruction.operands
        if name == "bra":
            taken = lanes
            if instruction.guard:
                condition = self.read(instruction.guard.lstrip("!"), "pred", lanes)
                taken = lanes[condition != instruction.guard.startswith("!")]
            self.pc[taken] = self.program.labels[operands[0]]
            return True
        if instruction.guard:
            if name.split(".")[0] not in ("ld", "st"):
                raise Fault("only a bra and accesses to memory are guarded")
            holds = self.read(instruction.guard.lstrip("!"), "pred", lanes)
            lanes = lanes[holds != instruction.guard.startswith("!")]
            if not lanes.size:
                return False
        if name in ("ret", "bar.sync"):
            (self.waiting if name == "bar.sync" else self.alive)[lanes] = name == "bar.sync"
            return True
        words = name.split(".")
        if name == "fence.acq_rel.gpu":  # what is written is seen at once here
            return False
        if words[0] in ("ld", "st", "atom", "cvta", "shfl", "vote"):
            getattr(self, f"_{words[0]}")(words, operands, lanes)
        elif operands[-1] in self.starts and name == "mov.u64":
            start = np.full(lanes.shape, self.starts[operands[-1]])
            self.write(operands[0], "u64", lanes, start, False)
        else:
            self._compute(name, operands, lanes)
        return False

    def _compute(self, name: str, operands: tuple[str, ...], lanes: Array) -> None:
        takes, gives, function = compute(name)
        if len(takes) != len(operands) - 1:
            raise Fault(f"{len(takes)} operands expected")
        relaxed = name.startswith("cvt")
        values = [
            self.read(operand, kind, lanes, relaxed)
            for operand, kind in zip(operands[1:], takes, strict=True)
        ]
        problem = fault_of_division(name, values)
        if problem:
            raise Fault(problem)
        self.write(operands[0], gives, lanes, function(*values), relaxed)

    # instructions of whole warps

    def _warps(self, mask: str, lanes: Array) -> tuple[Array, Array]:
        """The warp of each lane, and its place in it; all that live are here."""
        per_block = -(-self.in_block // 32)
        warps = self.threads // self.in_block * per_block + self.threads % self.in_block // 32
        living = np.bincount(warps[self.alive], minlength=warps.max() + 1)
        if mask != "0xffffffff" or (np.bincount(warps[lanes])[warps[lanes]]
                                    != living[warps[lanes]]).any():  # fmt: skip
            raise Fault("not all threads of a warp are here")
        return warps[lanes], (self.threads % self.in_block % 32)[lanes]

    def _shfl(self, words: list[str], operands: tuple[str, ...], lanes: Array) -> None:
        target, value, index, clamp, mask = operands
        if words != ["shfl", "sync", "idx", "b32"] or clamp != "31" or not value.startswith("%"):
            raise Fault("unknown")
        warps, place = self._warps(mask, lanes)
        at = {(int(w), int(p)): n for n, (w, p) in enumerate(zip(warps, place, strict=True))}
        wanted = self.read(index, "u32", lanes).astype(np.int64) & 31
        values = self.read(value, "b32", lanes)
        # What an absent thread gives is open; it must not be used.
        found = [at.get((int(w), int(i)), 0) for w, i in zip(warps, wanted, strict=True)]
        self.write(target, "b32", lanes, values[found], False)

    def _vote(self, words: list[str], operands: tuple[str, ...], lanes: Array) -> None:
        if words != ["vote", "sync", "ballot", "b32"]:
            raise Fault("unknown")
        warps, place = self._warps(operands[2], lanes)
        bits = self.read(operands[1], "pred", lanes).astype(np.uint32) << place.astype(np.uint32)
        whole = np.zeros(int(warps.max()) + 1, np.uint32)
        np.bitwise_or.at(whole, warps, bits)
        self.write(operands[0], "b32", lanes, whole[warps], False)

    # memory instructions

    def _cvta(self, words: list[str], operands: tuple[str, ...], lanes: Array) -> None:
        if words != ["cvta", "to", "global", "u64"]:
            raise Fault("unknown")
        address = self.read(operands[1], "u64", lanes)
        if (address < GENERIC).any():
            raise Fault("no generic address")
        self.write(operands[0], "u64", lanes, address - np.uint64(GENERIC), False)

    def _ld(self, words: list[str], operands: tuple[str, ...], lanes: Array) -> None:
        _, space, *vector, kind = self._ordered(words, "acquire")
        registers = self._registers(operands[0], vector)
        if space == "param":
            name = operands[1].strip("[]")
            if self.program.params[name] != kind:
                raise Fault(f"{name} is a {self.program.params[name]}")
            value = np.array([self.params[name.removeprefix(f"{self.program.name}_param_")]])
            values = np.broadcast_to(value.astype(TYPES[kind]), lanes.shape)
            self.write(operands[0], kind, lanes, values, True)
            return
        places = self._elements(operands[1], space, lanes, TYPES[kind].itemsize, len(registers))
        for register, place in zip(registers, places, strict=True):
            values = self.spaces[space].load(place, TYPES[kind])
            self.write(register, kind, lanes, values, True)

    def _registers(self, operand: str, vector: list[str]) -> list[str]:
        """The registers of an access: one, or those of a vector in braces."""
        registers = operand.strip("{}").split(", ")
        if vector != ([f"v{len(registers)}"] if operand.startswith("{") else []):
            raise Fault(f"not {len(registers)} registers")
        return registers

    def _elements(
        self, operand: str, space: str, lanes: Array, size: int, count: int
    ) -> list[Array]:
        """The addresses of a vector's elements; all of it is aligned, and has 16 bytes at most."""
        place = self._address(operand, space, lanes)
        if (place % (size * count)).any() or size * count > 16:
            raise Fault(f"unaligned access of {size * count} bytes")
        return [place + lane * size for lane in range(count)]

    def _ordered(self, words: list[str], order: str) -> list[str]:
        """The words of a load or a store without its order; its threads run in turns anyhow."""
        if words[1] not in ("relaxed", order):
            return words
        if words[2] != "gpu" or len(words) != 5:
            raise Fault("unknown")
        return [words[0], *words[3:]]

    def _st(self, words: list[str], operands: tuple[str, ...], lanes: Array) -> None:
        _, space, *vector, kind = self._ordered(words, "release")
        registers = self._registers(operands[1], vector)
        places = self._elements(operands[0], space, lanes, TYPES[kind].itemsize, len(registers))
        for register, place in zip(registers, places, strict=True):
            self.spaces[space].store(place, self.read(register, kind, lanes, True))

    def _atom(self, words: list[str], operands: tuple[str, ...], lanes: Array) -> None:
        """One thread after the other."""
        _, order, scope, space, action, kind = words
        allowed = {"add": "u32 u64 f32 f64"}
        allowed |= dict.fromkeys(("cas", "exch", "and", "or", "xor"), "b32 b64")
        if (order, scope) != ("relaxed", "gpu") or kind not in allowed.get(
            action, "s32 u32 s64 u64"
        ).split():
            raise Fault("unknown")
        addresses = self._address(operands[1], space, lanes)
        values = [self.read(operand, kind, lanes) for operand in operands[2:]]
        old = self.spaces[space].load(addresses, TYPES[kind])  # checks all of them
        cells = self.spaces[space].bytes.view(TYPES[kind])
        function = _ATOMICS[action]
        for k, (place, *now) in enumerate(zip(addresses // old.itemsize, *values, strict=True)):
            old[k] = cells[place]
            cells[place] = function(old[k], *now)
        self.write(operands[0], kind, lanes, old, False)
