"""Test compilation: promises C1 to C8, and P1 and V3 for kernels as text."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import hal_core as hal
from hal_core.compiler import Compiler, CompilerPair, Module, cache
from hal_core.compiler.selection import select
from hal_core.source import Source
from hal_testing.conformance.kernels import add_one, count_up, triple
from hal_testing.conformance.raw import buffer_of, read
from hal_testing.conformance.sources import SIGNATURE, Texts
from hal_testing.kit.abilities import need_modules, nothing_to_try, text_language

DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "half": lambda data: data[: len(data) // 2],
    "all-but-a-byte": lambda data: data[:-1],
    "a-bit-inside": lambda data: data[:90] + bytes([data[90] ^ 16]) + data[91:],
    "noise": lambda data: os.urandom(len(data)),
}


def works(program: hal.Program) -> None:
    """Launch a program of `count_up` and check its result."""
    made = buffer_of(program.device, bytes(20), hal.int32)
    program(made, vals=(7, 5), threads=5)
    assert np.frombuffer(read(made), np.int32).tolist() == [7, 8, 9, 10, 11]


def multiplied(program: hal.Program, factor: float) -> None:
    """Launch a program of the sources and check the factor by which it multiplies."""
    x = np.arange(70, dtype=np.float32)
    made = buffer_of(program.device, bytes(280), hal.float32)
    source = buffer_of(program.device, x.tobytes(), hal.float32)
    program(made, source, vals=(69,), threads=69, block=16)
    expected = factor * x
    expected[69] = 0  # beyond the guard `i < n`
    assert read(made) == expected.tobytes()


def entries(folder: Path) -> list[Path]:
    """Return the entries of a cache, whose names are 64 hexadecimal digits."""
    return [path for path in folder.rglob("*") if len(path.name) == 64 and path.is_file()]


class TestCompile:
    # Compiler and source -> the binary: tests of the cache count compilations, which may be slow.
    _images: ClassVar[dict[tuple[Any, ...], bytes]] = {}

    @pytest.fixture
    def folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """An empty compile cache for one test."""
        monkeypatch.setenv("HAL_CACHE_DIR", str(tmp_path / "cache"))
        monkeypatch.delenv("HAL_CCACHE", raising=False)
        monkeypatch.delenv("HAL_CACHE_ONLY", raising=False)
        return tmp_path / "cache"

    @pytest.fixture
    def runs(
        self, device: hal.Compiled, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> list[str]:
        """The names of the kernels that the compiler has compiled."""
        seen: list[str] = []
        real = device.compiler._compile

        def watched(source: Source) -> bytes:
            seen.append(source.name)
            key = device.compiler.identity, source.text, source.options, source.defines
            if key not in self._images:
                self._images[key] = real(source)
            return self._images[key]

        monkeypatch.setattr(device.compiler, "_compile", watched)
        return seen

    @pytest.fixture
    def unforced(self, device: hal.Compiled, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
        """Remove environment variables that choose a compiler."""
        for name in ("CC", *(pair.name.upper() for pair in device.compilers)):
            monkeypatch.delenv(f"{device.family}_{name}", raising=False)
        return monkeypatch

    # -- the cache

    def test_C1_a_hit_does_not_run_the_compiler(
        self, device: hal.Compiled, runs: list[str], folder: Path
    ) -> None:
        before = cache.statistics()
        for _ in range(3):
            # `lower()` gives a new kernel; the same one would be compiled once, cache or not.
            works(device.compile(count_up.lower()))
        device.compile(triple.lower())
        assert runs == ["count_up", "triple"] and len(entries(folder)) == 2
        after = cache.statistics()
        assert (after.hits - before.hits, after.misses - before.misses) == (2, 2), "C4: counted"
        assert after.entries == 2 and after.nbytes > 0

    def test_C1_the_cache_can_be_switched_off(
        self, device: hal.Compiled, runs: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HAL_CCACHE", "0")
        for _ in range(2):
            works(device.compile(count_up.lower()))
        assert runs == ["count_up"] * 2 and not entries(folder)

    def test_C1_a_miss_can_be_made_an_error(
        self, device: hal.Compiled, runs: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        device.compile(count_up.lower())
        monkeypatch.setenv("HAL_CACHE_ONLY", "1")
        works(device.compile(count_up.lower()))
        with pytest.raises(hal.CompilerUnavailable, match="triple.*HAL_CACHE_ONLY"):
            device.compile(triple.lower())
        assert runs == ["count_up"]

    def test_C2_identity_is_part_of_the_key(
        self, device: hal.Compiled, runs: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        compiler, kernel = device.compiler, count_up.lower()
        source = kernel.__hal_source__(device)
        # The second result of each call: whether the cache had the binary.
        assert [compiler.compile_or_reuse(source)[1] for _ in range(2)] == [False, True]
        # As after an upgrade of the vendor's compiler.
        monkeypatch.setattr(compiler, "identity", compiler.identity + " and a patch")
        assert not compiler.compile_or_reuse(source)[1], "another compiler's binary"
        with pytest.raises(hal.InvalidArgument, match="not a hal.Source"):
            compiler.compile_or_reuse("text")  # type: ignore[arg-type]

    def test_C2_identities_tell_compilers_and_versions_apart(self, device: hal.Compiled) -> None:
        found: dict[str, str] = {}
        for pair in device.compilers:
            try:
                identity = pair.compiler().identity
            except hal.CompilerUnavailable:
                continue
            # Without a version an upgraded compiler would be served old binaries.
            assert re.search(r"\d", identity), f"{pair.name}: no version in {identity!r}"
            assert identity not in found, f"{pair.name} and {found[identity]} have one identity"
            found[identity] = pair.name
        assert found

    def test_C2_what_is_compiled_is_part_of_the_key(
        self, device: hal.Compiled, folder: Path, hal_source: Texts
    ) -> None:
        if not hal_source.macro:
            nothing_to_try(f"the kit knows no macros in {hal_source.language!r}")
        # A key without `defines` would return the binary of another factor.
        for factor in (3, 4, 3):
            made = hal_source.source(hal_source.macro, defines={"FACTOR": factor})
            multiplied(device.compile(made), factor)
        changed = hal_source.macro.replace("FACTOR", "(6 + FACTOR)")
        multiplied(device.compile(hal_source.source(changed, defines={"FACTOR": 3})), 9)
        assert len(entries(folder)) == 3

    @pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
    def test_C3_a_damaged_entry_is_a_miss(
        self, device: hal.Compiled, runs: list[str], folder: Path, damage: Callable[[bytes], bytes]
    ) -> None:
        device.compile(count_up.lower())
        (entry,) = entries(folder)
        whole = entry.read_bytes()
        entry.write_bytes(damage(whole))
        works(device.compile(count_up.lower()))
        works(device.compile(count_up.lower()))
        assert runs == ["count_up"] * 2
        assert len(entry.read_bytes()) == len(whole), "it was not replaced"

    def test_C3_a_folder_that_cannot_be_written(
        self, device: hal.Compiled, runs: list[str], folder: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        # A file in the way, not permissions: root may write to any folder.
        folder.write_bytes(b"a file where the folder should be")
        for _ in range(2):
            works(device.compile(count_up.lower()))
        assert runs == ["count_up"] * 2
        assert len([r for r in caplog.records if r.levelname == "WARNING"]) == 1, "one line"

    # -- faults

    def test_C5_a_fault_in_a_source(
        self, device: hal.Compiled, folder: Path, hal_source: Texts,
        capfd: pytest.CaptureFixture[str],
    ) -> None:  # fmt: skip
        with pytest.raises(hal.CompileError, match="doubled") as caught:
            device.compile(hal_source.source(hal_source.broken))
        error, line = caught.value, hal_source.broken_line
        fault = hal_source.broken.splitlines()[line - 1].strip()
        assert error.log.strip() and fault in error.source
        assert error.line == line and fault in str(error) and error.log.strip() in str(error)
        assert error.device == device.name
        # Compilers like to print; a library must not.
        assert capfd.readouterr() == ("", "")
        assert not entries(folder)
        multiplied(device.compile(hal_source.source(hal_source.doubled)), 2)

    @pytest.mark.parametrize("text", ["", "this is not a kernel\n", "é" * 3000], ids=len)
    def test_C5_what_is_no_source(
        self, device: hal.Compiled, text: str, capfd: pytest.CaptureFixture[str]
    ) -> None:
        """Give garbage to the compiler alone, as the kit does not know every device's language."""
        _, compiler = select(device, text_language(device))
        source = hal.Source("doubled", text, SIGNATURE, language=compiler.language)
        for _ in range(2):
            # An empty text may compile, to a binary that cannot be loaded.
            with pytest.raises(hal.CompileError, match="doubled"):
                image = compiler.compile(source)
                facts = compiler.format, compiler.target, source.interface
                device.load(hal.Binary(image, *facts))
        assert capfd.readouterr() == ("", "")
        works(device.compile(count_up))

    def test_P1_the_named_entry_is_launched(self, device: hal.Compiled, hal_source: Texts) -> None:
        if not hal_source.two:
            nothing_to_try(f"one text in {hal_source.language!r} holds one kernel")
        for name, factor in (("doubled", 2), ("fivefold", 5)):
            multiplied(device.compile(hal_source.source(hal_source.two, name)), factor)
        with pytest.raises(hal.CompileError, match="tenfold"):
            device.compile(hal_source.source(hal_source.two, "tenfold"))

    def test_P16_a_text_of_several_kernels_is_compiled_once(
        self, device: hal.Compiled, folder: Path, hal_source: Texts, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        compiler = need_modules(device, hal_source)
        seen: list[Source[Any]] = []
        real = compiler._compile_module

        def watched(source: Source[Any]) -> Module:
            seen.append(source)
            return real(source)

        monkeypatch.setattr(compiler, "_compile_module", watched)
        names: tuple[dict[str, str | None] | None, ...]
        names = None, {"fivefold": SIGNATURE, "doubled": None}, None
        for name in names:
            source = hal.Source(name, hal_source.two, language=hal_source.language)
            programs = device.compile(source)
            assert set(programs) == {"doubled", "fivefold"} and programs is device.compile(source)
            for one, factor in (("doubled", 2), ("fivefold", 5)):
                multiplied(programs[one], factor)
            images = {id(program.binary.image) for program in programs.values()}
            assert len(images) == 1, "they share the machine code"
            programs["doubled"].unload()
            multiplied(programs["fivefold"], 5)
        assert len(seen) == len(entries(folder)) == 2, "the third was cached"
        with pytest.raises(KeyError, match=r"no such kernel.*doublet.*doubled.*fivefold"):
            programs["doublet"]
        with pytest.raises(hal.CompileError, match="tenfold"):
            wrong: dict[str, str | None] = {"doubled": None, "tenfold": None}
            device.compile(hal.Source(wrong, hal_source.two, language=hal_source.language))

    def test_P17_a_signature_may_be_left_out(
        self, device: hal.Compiled, folder: Path, hal_source: Texts
    ) -> None:
        need_modules(device, hal_source)
        for _ in range(2):  # the second comes from the cache
            source = hal.Source("doubled", hal_source.doubled, language=hal_source.language)
            program = device.compile(source)
            kinds = [(one.dtype, one.kind) for one in program.signature.params]
            given = hal.Signature.parse("doubled", SIGNATURE).params
            assert kinds == [(one.dtype, one.kind) for one in given]
            multiplied(program, 2)
        with pytest.raises(hal.CompileError):
            device.compile(hal.Source(None, "", language=hal_source.language))

    @pytest.mark.parametrize(
        "wrong", ["const float32*, x: const float32*, n: int32",
                  "float32*, x: const float32*, n: int64",
                  "float32*, x: const float32*, n: int32*",
                  "float32*, x: const int32*, n: int32", "float32*, x: const float32*",
                  "float32*, x: const float32*, n: int32, m: int32"],
        ids=["const", "wide", "pointer", "integers", "short", "long"],
    )  # fmt: skip
    def test_P18_a_signature_is_compared_with_the_text(
        self, device: hal.Compiled, hal_source: Texts, wrong: str
    ) -> None:
        need_modules(device, hal_source)
        source = hal.Source("doubled", hal_source.doubled, f"y: {wrong}",
                            language=hal_source.language)  # fmt: skip
        with pytest.raises(hal.CompileError, match="doubled"):
            device.compile(source)

    def test_P1_an_unresolved_symbol_is_refused(
        self, device: hal.Compiled, hal_source: Texts, capfd: pytest.CaptureFixture[str]
    ) -> None:
        if not hal_source.unresolved:
            nothing_to_try(f"the kit knows no foreign functions in {hal_source.language!r}")
        with pytest.raises(hal.CompileError, match="nobody_has_this"):
            device.compile(hal_source.source(hal_source.unresolved))
        assert capfd.readouterr() == ("", "")

    def test_V3_sources_take_views_at_aligned_offsets(
        self, device: hal.Compiled, hal_source: Texts
    ) -> None:
        program = device.compile(hal_source.source(hal_source.doubled))
        least = device.info.limits.view_alignment
        base = buffer_of(device, np.arange(2000, dtype=np.float32).tobytes(), hal.float32)
        made = buffer_of(device, bytes(8000), hal.float32)
        step = max(4, least)
        for _ in range(2):
            program(made.view(9, offset=step), base.view(9, offset=2 * step), vals=(9,), threads=9)
        expected = np.zeros(2000, np.float32)
        expected[step // 4 : step // 4 + 9] = 2 * (np.arange(9) + 2 * step // 4)
        assert read(made) == expected.tobytes()
        # Source kernels get the plain handle, so their views need the device's alignment.
        if least > 4:
            with pytest.raises(hal.InvalidArgument, match=f"'x'.*{least}.*offsets=True"):
                program(made, base.view(9, offset=step + 4), vals=(9,), threads=9)

    def test_V3_sources_take_memory_of_others_where_it_is_aligned(
        self, device: hal.Compiled, hal_source: Texts
    ) -> None:
        if device.allocator.dlpack_device is None:
            pytest.skip("it declares no memory that DLPack has a name for (dlpack_device)")
        program = device.compile(hal_source.source(hal_source.doubled))
        least = device.info.limits.view_alignment
        base = buffer_of(device, np.arange(2000, dtype=np.float32).tobytes(), hal.float32)
        made = buffer_of(device, bytes(36), hal.float32)
        taken = hal.Buffer.from_dlpack(base.view(offset=4), device)
        # The memory begins at byte 4 of the base, so neither of these is aligned.
        for part in (taken, taken.view(9, offset=least)):
            if least > 4:
                with pytest.raises(hal.InvalidArgument, match=f"'x'.*{least}"):
                    program(made, part, vals=(9,), threads=9)
        # Byte 4 * least of the base, which is element `least`.
        program(made, taken.view(9, offset=4 * least - 4), vals=(9,), threads=9)
        expected = 2 * (np.arange(9, dtype=np.float32) + least)
        assert read(made) == expected.tobytes()

    def test_options_are_honoured_or_refused(self, device: hal.Compiled, hal_source: Texts) -> None:
        wrong = hal_source.source(hal_source.doubled, options=("--there-is-no-such-option",))
        with pytest.raises((hal.CompileError, hal.Unsupported, hal.InvalidArgument)):
            device.compile(wrong)
        if not hal_source.macro:
            with pytest.raises((hal.Unsupported, hal.InvalidArgument)):
                device.compile(hal_source.source(hal_source.doubled, defines={"FACTOR": 2}))

    # -- which compiler

    def test_C6_a_missing_compiler_is_named(
        self, device: hal.Compiled, unforced: pytest.MonkeyPatch
    ) -> None:
        """Put a compiler that is not installed before the device's own."""
        asked = []

        def missing() -> Compiler:
            asked.append(1)
            raise hal.CompilerUnavailable("compiler lost", "not installed", fix="pip install lost")

        first = select(device, None)[0]._replace(name="lost", compiler=missing)
        unforced.setattr(device, "compilers", [first, *device.compilers])
        for _ in range(2):
            works(device.compile(count_up.lower()))
        assert len(asked) <= 1, "what fails is remembered"
        unforced.setenv(f"{device.family}_CC", "lost")
        with pytest.raises(hal.CompilerUnavailable, match="lost: not installed.*pip install lost"):
            device.compile(count_up.lower())

    def test_C7_every_compiler_can_be_chosen(
        self, device: hal.Compiled, unforced: pytest.MonkeyPatch
    ) -> None:
        """Choose each compiler; one that is missing says what to install."""
        used, served = [], select(device, None)[0].name
        for pair in device.compilers:
            if pair.renderer is None:
                continue
            for variable, value in (
                (f"{device.family}_CC", pair.name),
                (_switch(device, pair), "1"),
            ):
                with unforced.context() as patch:
                    patch.setenv(variable, value)
                    try:
                        program = device.compile(count_up.lower())
                    except hal.CompilerUnavailable as error:
                        assert re.search(rf"{pair.name}: .* \(.+\)", str(error)), error
                        continue
                    assert program.pair == pair.name
                    works(program)
                    used.append(pair.name)
        assert served in used

    def test_C7_two_forced_and_unknown_names(
        self, device: hal.Compiled, unforced: pytest.MonkeyPatch
    ) -> None:
        own = select(device, None)[0]
        twin = own._replace(name="twin")
        unforced.setattr(device, "compilers", [*device.compilers, twin])
        unforced.setenv(f"{device.family}_CC", "twjn")
        with pytest.raises(hal.InvalidArgument, match="twjn.*twin"):
            device.compile(count_up.lower())
        unforced.delenv(f"{device.family}_CC")
        for pair in (own, twin):
            unforced.setenv(_switch(device, pair), "1")
        with pytest.raises(hal.InvalidArgument, match="two compilers are forced"):
            device.compile(count_up.lower())

    def test_C8_disassemble(self, device: hal.Compiled) -> None:
        compiler, image = device.compiler, device.compile(add_one).binary.image
        if "disassemble" in device.info.capabilities:
            try:
                assert len(compiler.disassemble(image).split()) > 10
                return
            except hal.Unsupported as error:
                assert "nstall" in str(error), "the tool that is missing"
                return
        with pytest.raises(hal.Unsupported) as caught:
            compiler.disassemble(image)
        assert caught.value.fix, "what to do"


def _switch(device: hal.Compiled, pair: CompilerPair) -> str:
    """Return the variable that forces a pair, such as CPU_LLVM."""
    return f"{device.family}_{pair.name.upper()}"
