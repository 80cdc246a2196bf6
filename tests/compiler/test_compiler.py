"""C1-C2, C5-C7 with the fake backend's compilers: caching, selection, errors."""

import numpy as np
import pytest
from ctrl_c import raise_in_handler
from fake_backend import FakeCompiler, FakePlugin

import hal_core as hal
from hal_core.compiler import digest

TEXT = "def k(t): pass"


def source(text=TEXT, **more):
    return hal.Source("k", text, more.pop("signature", ""), language="python", **more)


class Second(FakeCompiler):
    identity = "second 1"


class PairsPlugin(FakePlugin):
    """Three pairs: the first cannot be made."""

    @hal.hookimpl
    def hal_make_compilers(self, device):
        def missing():
            self.tries += 1
            raise hal.CompilerUnavailable("pair best", "bestcc is missing", fix="Install bestcc.")

        return [
            hal.CompilerPair("best", "python", None, missing),
            hal.CompilerPair("good", "python", None, FakeCompiler),
            hal.CompilerPair("plain", "python", None, Second),
            hal.CompilerPair("other", "basic", None, Second),
        ]

    tries = 0


@pytest.fixture
def pairs():
    plugin = PairsPlugin()
    hal.Device.register_plugin("PAIRS", plugin)
    yield plugin
    hal.Device["PAIRS"].close()


def plain(name="k", text=TEXT, signature="n: int32", **facts):
    return hal.Source(name, text, signature, language="python", **facts)


def test_C2_all_that_decides_the_code_is_in_the_key():
    facts = [
        {}, {"text": TEXT + " "}, {"name": "j"}, {"signature": "n: int64"}, {"options": ("-O2",)},
        {"options": ("-O", "2")}, {"defines": {"A": "1"}}, {"block": 8}, {"rendered": True},
        {"shared_nbytes": 16},
    ]  # fmt: skip

    def keys():
        others = digest(plain(), "id 2"), digest(plain(), "id 1", "headers")
        return {*others, *(digest(plain(**fact), "id 1") for fact in facts)}

    first = keys()
    assert len(first) == 12
    assert keys() == first


def test_headers_are_refused_where_no_text_includes_files(tmp_path):
    with pytest.raises(hal.Unsupported, match="texts in 'python' include no files") as caught:
        FakeCompiler().compile(plain(includes=(str(tmp_path),)))
    assert "put headers into the text" in str(caught.value)


def test_C6_a_missing_compiler_leaves_the_others(pairs):
    device = hal.Device["PAIRS"]
    assert device.compile(source()).pair == "good"
    device.compile(source())
    assert pairs.tries == 1, "a failure is remembered"
    with pytest.raises(hal.CompilerUnavailable, match="in basic, python"):
        device.compile(hal.Source("k", TEXT, "", language="fortran"))

    @hal.kernel
    def nothing(n: hal.int32) -> None:
        pass

    with pytest.raises(hal.CompilerUnavailable, match="text alone, and no @hal.kernel.*in basic"):
        device.compile(nothing)


def test_C7_selection(pairs, monkeypatch):
    device = hal.Device["PAIRS"]
    assert device.compile(source()).pair == "good"
    monkeypatch.setenv("PAIRS_PLAIN", "1")
    assert device.compile(source()).pair == "plain"
    monkeypatch.setenv("PAIRS_GOOD", "0")
    assert device.compile(source()).pair == "plain"
    monkeypatch.setenv("PAIRS_CC", "good")
    assert device.compile(source()).pair == "good", "a name beats a switch"
    monkeypatch.setenv("PAIRS_CC", "goood")
    with pytest.raises(hal.InvalidArgument, match=r"Did you mean good\?.*Known: best, good"):
        device.compile(source())
    monkeypatch.delenv("PAIRS_CC")
    monkeypatch.setenv("PAIRS_GOOD", "1")
    with pytest.raises(hal.InvalidArgument, match="PAIRS_GOOD=1 and PAIRS_PLAIN=1"):
        device.compile(source())


def test_C7_a_kernel_s_compiler_is_decided_at_its_first_compile(pairs, monkeypatch):
    device, kernel = hal.Device["PAIRS"], source()
    program = device.compile(kernel)
    monkeypatch.setenv("PAIRS_CC", "plain")
    assert device.compile(kernel) is program and program.pair == "good"
    device.close()
    assert hal.Device["PAIRS"].compile(kernel).pair == "plain", "a device that is opened anew"


def test_C7_what_is_forced_never_falls_back(pairs, monkeypatch):
    device = hal.Device["PAIRS"]
    monkeypatch.setenv("PAIRS_CC", "best")
    with pytest.raises(
        hal.CompilerUnavailable,
        match=r"best: bestcc is missing \(Install bestcc\) on PAIRS. .*: unset PAIRS_CC, ",
    ):
        device.compile(source())
    monkeypatch.setenv("PAIRS_CC", "other")
    with pytest.raises(hal.CompilerUnavailable, match="'other', which the .* in basic, python"):
        device.compile(source())


def test_C7_when_all_fail_every_reason_is_shown(monkeypatch):
    def failing(name):
        def make():
            raise hal.CompilerUnavailable(name, f"{name} is not here")

        return make

    class Nothing(FakePlugin):
        @hal.hookimpl
        def hal_make_compilers(self, device):
            return [hal.CompilerPair(n, "python", None, failing(n)) for n in ("one", "two")]

    hal.Device.register_plugin("NOTHING", Nothing())
    with hal.Device["NOTHING"] as device:
        with pytest.raises(hal.CompilerUnavailable, match="one is not here.*two is not here"):
            device.compile(source())
        with pytest.raises(hal.CompilerUnavailable):
            device.supports(hal.float32)


@pytest.mark.parametrize(
    "error",
    [ZeroDivisionError("by what"), TypeError(3), KeyError("cc"), NameError("no name cc"), None],
)
def test_C6_a_compiler_whose_making_fails_in_any_way_leaves_the_others(error, monkeypatch):
    class Wild(FakePlugin):
        @hal.hookimpl
        def hal_make_compilers(self, device):
            def wild():
                if error:
                    raise error

            pair = super().hal_make_compilers(device)[0]
            return [hal.CompilerPair("wild", "python", None, wild), pair]

    hal.Device.register_plugin("WILD", Wild())
    with hal.Device["WILD"] as device:
        assert device.compile(source()).pair == "python"
        monkeypatch.setenv("WILD_CC", "wild")
        kind = type(error or TypeError()).__name__
        with pytest.raises(hal.CompilerUnavailable, match=f"wild: {kind}: "):
            device.compile(source())


@pytest.mark.parametrize("place", ["renderer", "compiler", "compile"])
def test_C6_what_a_signal_raises_is_no_failure_of_a_compiler(place, own_cache):
    """Also where the plugin makes an error of its own of it; the next use is as the first."""
    left = [place]

    def stop(at):
        if at in left:
            try:
                raise_in_handler(TimeoutError)
            except OSError as error:
                raise hal.CompileError("run", str(error)) from None
            finally:
                left.clear()

    class Slow(FakeCompiler):
        def __init__(self):
            stop("compiler")

        def _compile(self, source):
            stop("compile")
            return super()._compile(source)

    class Interrupted(FakePlugin):
        @hal.hookimpl
        def hal_make_compilers(self, device):
            pair = super().hal_make_compilers(device)[0]
            first = pair._replace(renderer=lambda: stop("renderer") or "written", compiler=Slow)
            return [first, pair._replace(name="second")]

    hal.Device.register_plugin("INTERRUPTED", Interrupted())
    with hal.Device["INTERRUPTED"] as device:
        with pytest.raises(TimeoutError):
            device.compile(source()), device.renderer
        assert device.renderer and device.compile(source()).pair == "python"


@pytest.mark.parametrize("kind", [hal.DeviceFault, hal.InvalidState, hal.ForkError])
def test_C6_a_device_that_fails_while_a_compiler_is_made_is_no_missing_compiler(kind):
    class Lost(FakePlugin):
        @hal.hookimpl
        def hal_make_compilers(self, device):
            def lost():
                raise kind("make", "the device is lost")

            return [hal.CompilerPair("lost", "python", None, lost)]

    hal.Device.register_plugin("LOST", Lost())
    with hal.Device["LOST"] as device, pytest.raises(kind, match="make: the device is lost"):
        device.compile(source())


def test_sources_check_what_they_are_given():
    for arguments, pattern in [
        (("1k", TEXT, ""), "C identifier"), (("k", b"bytes", ""), "text must be a str"),
        (("k", TEXT, "y: f32*"), "no known dtype"), (("k", TEXT, "y float32*"), "cannot be read"),
        (("k", TEXT, "y: float32**"), "cannot be read"),
        (("k", TEXT, "n: const int32"), "const is for memory"),
        (("k", TEXT, "n: int32, n: int32"), "the same name"),
        (("k", TEXT, "n: int32,"), "cannot be read"), (({}, TEXT), "a dict of kernels"),
        (({"k": 3}, TEXT), "a signature is a str"), ((None, TEXT, ""), "beside their names"),
        (("k", TEXT, b""), "a signature is a str"),
    ]:  # fmt: skip
        with pytest.raises(hal.InvalidArgument, match=pattern):
            hal.Source(*arguments, language="c")
    texts = ({"options": "-O2"}, {"options": (3,)}, {"options": None}, {"includes": "/usr"})
    for facts in texts:
        with pytest.raises(hal.InvalidArgument, match=r"(\w+) must be a sequence of str.* \1="):
            hal.Source("k", TEXT, "", language="c", **facts)
    for macros in ([("A", 1)], "A=1"):
        with pytest.raises(hal.InvalidArgument, match="defines must be a dict"):
            hal.Source("k", TEXT, "", language="c", defines=macros)
    for macro in (3, "", "A B", "A=1", "-DA", "1A", "A\n", "MAX(a"):
        with pytest.raises(hal.InvalidArgument, match="no name of a macro"):
            hal.Source("k", TEXT, "", language="c", defines={macro: 1})
    for value in ("1\n#error", "1\r", "1\\"):
        with pytest.raises(hal.InvalidArgument, match="the macro 'A' has a line break"):
            hal.Source("k", TEXT, "", language="c", defines={"A": value})
    for value in (None, hal.float32, float("inf"), np.float32("nan"), [1], np.zeros(2), b"1"):
        with pytest.raises(hal.InvalidArgument, match="'A' has no text .*Give a finite number"):
            hal.Source("k", TEXT, "", language="c", defines={"A": value})
    macros = {"MAX(a, b)": "a > b", "A": True, "B": np.False_, "C": np.int8(-1), "D": 1e-7}
    found = dict(hal.Source("k", TEXT, "", language="c", defines=macros).defines)
    assert found == {"MAX(a, b)": "a > b", "A": "1", "B": "0", "C": "-1", "D": "1e-07"}
    for language in (None, b"c", 3):
        with pytest.raises(hal.InvalidArgument, match="language must be a str"):
            hal.Source("k", TEXT, "", language=language)
    for shared in (-1, 1.5, None):
        with pytest.raises(hal.InvalidArgument, match="number of bytes of a block, 0 or more"):
            hal.Source("k", TEXT, "", language="c", shared_nbytes=shared)
    for wrong in (-1, 1.5, True, "9"):
        with pytest.raises(
            hal.InvalidArgument, match=r"work must be the number of operations .*, 0 or more"
        ):
            hal.Source("k", TEXT, "", language="c", work=wrong)


def test_a_byte_order_mark_ahead_of_a_text_is_dropped():
    assert hal.Source("k", "\ufeff" + TEXT, "", language="c").text == TEXT


def test_a_compiler_that_gives_no_offsets_refuses_them(fake, monkeypatch):
    with pytest.raises(hal.Unsupported, match=r"compile k: .*without an offset.*offsets=True"):
        fake.compile(source(offsets=True))
    monkeypatch.setattr(FakeCompiler, "takes_offsets", True)
    program = fake.compile(source(offsets=True, signature="y: int32*"))
    assert program.binary.interface.offsets
    assert "_misaligned" in type(program).__call__.__code__.co_names  # it takes any view


def test_the_work_of_a_source_reaches_the_launch_and_not_the_cache_key(fake):
    before = FakeCompiler.compiled
    assert fake.compile(source()).binary.interface.work is None
    assert fake.compile(source(work=40)).binary.interface.work == 40
    assert FakeCompiler.compiled == before + 1


def test_a_source_is_frozen_so_what_was_compiled_of_it_stays_true():
    made = source(defines={"N": 4}, block=(8, 4))
    assert made.block == (8, 4, 1) and made.defines == (("N", "4"),)
    for name in ("text", "block", "extra"):
        with pytest.raises(AttributeError, match="frozen"):
            setattr(made, name, "other")
    for block in ((0,), (1, 2, 3, 4), 0, (1.5,), ()):
        with pytest.raises(hal.InvalidArgument, match="one to three positive ints"):
            source(block=block)


@pytest.mark.parametrize("wrong", ["\0", "\udc80"])
@pytest.mark.parametrize("part", ["text", "options", "defines", "includes"])
def test_K_characters_that_no_compiler_can_read_are_refused(part, wrong):
    parts = {"text": "x", "options": ("-DA",), "defines": {"A": 1}}
    parts[part] = {"text": wrong, "defines": {"A": wrong}}.get(part, (wrong,))
    with pytest.raises(hal.InvalidArgument, match="Source 'k': it has a character"):
        hal.Source("k", parts.pop("text"), "", language="c", **parts)
