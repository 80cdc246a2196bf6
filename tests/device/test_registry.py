"""The registry: names, the default, opening in many threads, exit and fork."""

import os
import threading
import time
from contextvars import Context
from functools import partial

import pytest
from counts import calls
from fake_backend import FakePlugin
from hypothesis import given
from hypothesis import strategies as st
from in_threads import outcomes, results, wait_until

import hal_core as hal
from hal_core.concurrency import flights
from hal_core.device import DeviceRegistry
from hal_core.hookspecs import hookimpl


@pytest.fixture
def registry(tmp_path):
    """Sees no installed distribution."""
    return DeviceRegistry([str(tmp_path)])


@pytest.fixture
def cpu(registry):
    plugin = FakePlugin("cpu", rank={"cpu": 0})
    registry.register_plugin("CPU", plugin)
    return plugin


# -- names

NAMES = {
    "metal": "METAL", "cuda:0": "CUDA", "gpu:1": "GPU:1", "GPU": "GPU", "Cpu": "CPU",
    "OPENCL:12": "OPENCL:12", "my_chip2:3": "MY_CHIP2:3",
}  # fmt: skip


@pytest.mark.parametrize("name, canonical", NAMES.items())
def test_R1_canonicalize(registry, name, canonical):
    assert registry.canonicalize(name) == canonical
    assert registry.canonicalize(canonical) == canonical


def test_R1_canonicalize_looks_at_no_plugin(site):
    site.backend("BAD", "raise SystemExit('touched')")
    code = "import hal_core as hal; print(hal.Device.canonicalize('bad:0'))"
    assert site.run(code).stdout == "BAD\n"


MALFORMED = [
    "", ":", ":0", "CPU:", "CPU:abc", "CPU:-1", "CPU::0", "CPU:00", "CPU:01", "CPU:1:2", " CPU",
    "CPU ", "CPU: 1", "CPU:+1", "CPU:1.0", "CPU:1_0", "\uff23\uff30\uff35", "CPU:\u0661",
    "CPU:\u00b2", "C\u00df", "1CPU", "_CPU", "C-PU", "CPU\n", "CPU:0\n", "CPU\0", "DEFAULT",
    "default:0", "CPU:/path", "CPU:9999999999", "9" * 5000, "CPU:" + "9" * 5000, b"CPU", 0, 1.5,
    True, ["CPU"], {"CPU": 1}, ("CPU", 1), object(),
]  # fmt: skip


@pytest.mark.parametrize("name", MALFORMED, ids=lambda name: repr(name)[:20])
def test_R4_malformed_names(site, monkeypatch, name):
    site.backend("CPU", "raise AssertionError('a plugin was touched')")
    monkeypatch.syspath_prepend(str(site))
    registry = DeviceRegistry([str(site)])
    for use in (registry.__getitem__, registry.canonicalize, registry.info):
        with pytest.raises(hal.InvalidArgument):
            use(name)
    assert name not in registry
    with pytest.raises(hal.InvalidArgument), registry.default(name):
        pass


@given(st.one_of(st.text(max_size=8), st.from_regex(r"[A-Za-z_0-9]{1,4}(:[0-9]{1,3})?")))
def test_R4_a_name_is_malformed_or_canonicalize_is_stable(name):
    registry = DeviceRegistry([])
    try:
        canonical = registry.canonicalize(name)
    except hal.InvalidArgument:
        return
    assert registry.canonicalize(canonical) == canonical
    assert canonical.isascii() and canonical == canonical.upper()


@pytest.mark.usefixtures("cpu")
def test_R3_one_device_under_every_spelling(registry):
    device = registry["CPU"]
    assert all(registry[name] is device for name in ("cpu", "cpu:0", "CPU:0", "cPu", None))
    assert all(registry[name] is device for name in ("cpu", "cpu:0"))


def test_R3_spellings_are_forgotten_with_the_device(registry):
    registry.register_plugin("LONGNAME", FakePlugin())
    spellings = [
        "".join(c.lower() if number >> bit & 1 else c for bit, c in enumerate("LONGNAME"))
        for number in range(256)
    ]
    first = registry["LONGNAME"]
    assert all(registry[name] is first for name in spellings)
    first.close()
    second = registry["longname"]
    assert second is not first
    assert all(registry[name] is second for name in spellings)


@pytest.mark.usefixtures("cpu")
def test_a_lookup_is_one_call(registry):
    registry["CPU"]
    assert calls(lambda: registry["CPU"]) == 1


# -- what there is


def test_R5_index_beyond_the_count(registry):
    plugin = FakePlugin("accelerator", "accelerator")
    registry.register_plugin("ACC", plugin)
    with pytest.raises(hal.UnknownDevice, match=r"ACC has 2 devices.*'ACC:99'.*ACC, ACC:1"):
        registry["ACC:99"]
    assert registry["ACC:1"].index == 1 and plugin.opened == 1  # and no other
    assert registry["ACC"].index == 0


@pytest.mark.usefixtures("cpu")
@pytest.mark.parametrize(
    ("name", "says"),
    [("CPV:1", "Did you mean CPU? Installed: CPU."),
     ("CUDA", "Installed: CPU. `python -m pip install hal-cuda` installs it."),
     ("METAL:1", "Installed: CPU. `python -m pip install hal-metal` installs it."),
     ("OPNCL", "Did you mean OPENCL? Installed: CPU."),
     ("NPU", "Did you mean GPU or CPU? Installed: CPU."),
     ("GPPU", "Did you mean GPU or CPU? Installed: CPU."), ("TENSIX", "Installed: CPU.")],
)  # fmt: skip
def test_R6_only_families_of_this_project_have_a_pip_command(registry, name, says):
    with pytest.raises(hal.UnknownDevice) as caught:
        registry[name]
    assert str(caught.value).endswith(f"(got '{name.partition(':')[0]}'). {says}")


def test_R6_unknown_family_with_nothing_installed(registry):
    with pytest.raises(hal.UnknownDevice, match="no backend at all"):
        registry["CPU"]


def test_R13_the_default_says_why_no_device_is_there(registry, monkeypatch):
    """CPU is the last resort, which the user has not asked for."""
    registry.register_plugin("ACC", NoHardware("no driver"))
    with pytest.raises(hal.UnknownDevice) as caught:
        registry[None]
    assert str(caught.value).endswith(
        "(got 'CPU'). Installed: ACC. `python -m pip install hal-cpu` installs it. "
        "It is the default as there is no other device: open: no driver on ACC."
    )
    with pytest.raises(hal.UnknownDevice, match="installs it[.]$"):
        registry["CPU"]
    monkeypatch.setenv("HAL_DEVICE", "CPU")
    with pytest.raises(hal.UnknownDevice, match="installs it. HAL_DEVICE=CPU asks for it[.]$"):
        registry[None]


class NoHardware(FakePlugin):
    def __init__(self, why=""):
        super().__init__()
        self.why = why
        self.asked = 0

    @hookimpl
    def hal_enumerate(self, family):
        self.asked += 1
        if self.why:
            raise hal.DeviceUnavailable("open", self.why, device=family)
        return []


@pytest.mark.parametrize("why", ["", "the driver is too old"])
def test_R10_no_hardware_is_a_normal_answer(registry, why):
    plugin = NoHardware(why)
    registry.register_plugin("ACC", plugin)
    for _ in range(3):
        with pytest.raises(hal.DeviceUnavailable, match=why or "finds no hardware"):
            registry["ACC"]
    assert plugin.asked == 1
    assert registry.states() == {"ACC": "no hardware"}
    assert registry.get_available_devices() == []
    registry.refresh()
    with pytest.raises(hal.DeviceUnavailable):
        registry["ACC:7"]
    assert plugin.asked == 2


def test_R10_an_answer_that_the_program_can_change_is_not_remembered(registry):
    class Connected(FakePlugin):
        asked = 0

        @hookimpl
        def hal_enumerate(self, family):
            self.asked += 1
            if self.asked == 1:
                raise hal.InvalidArgument("environment variable HAL_ACC", "connect first")
            if self.asked < 4:
                error = hal.DeviceUnavailable("list", "connect first")
                error.lasting = False
                raise error
            return super().hal_enumerate(family)

    plugin = Connected()
    registry.register_plugin("ACC", plugin)
    for count in (1, 2):
        with pytest.raises(hal.HalError, match="connect first"):
            registry["ACC"]
        assert plugin.asked == count
    assert registry.states() == {"ACC": "no hardware"}
    assert registry.get_available_devices() == [] and plugin.asked == 3
    assert registry["ACC"].name == "ACC" and registry.states() == {"ACC": "open"}
    assert registry.devices("ACC") and plugin.asked == 4


REFUSES = """# more
from hal_core.errors import DeviceUnavailable
def refuse(self, family):
    raise DeviceUnavailable("open", "driver 3 is too old", device=family)
Plugin.hal_enumerate = hookimpl(refuse)
"""


def test_R10_four_answers_that_are_not_each_other(site):
    """No hardware, refused by the driver, broken, not installed."""
    site.backend("NONE", "# more\nPlugin.kinds = ()\n")
    site.backend("REFUSED", REFUSES)
    site.backend("BROKEN", "import no_such_vendor_package")
    code = """
    import hal_core as hal
    for name in ("NONE", "REFUSED", "BROKEN", "ABSENT"):
        try:
            hal.Device[name]
        except hal.HalError as error:
            print(type(error).__name__, error.problem.split(";")[0])
    print(hal.Device.states())
    """
    assert site.run(code).stdout.splitlines() == [
        "DeviceUnavailable the backend is installed, but finds no hardware",
        "DeviceUnavailable driver 3 is too old",
        "PluginError ModuleNotFoundError: No module named 'no_such_vendor_package'",
        "UnknownDevice no installed backend has this name",
        "{'BROKEN': 'broken', 'NONE': 'no hardware', 'REFUSED': 'no hardware'}",
    ]


class Busy(FakePlugin):
    """Refuses the first two opens."""

    @hookimpl
    def hal_open_device(self, family, index, info):
        self.opened += 1
        if self.opened < 3:
            raise hal.DeviceUnavailable("open", "busy", device=info.name)
        return super().hal_open_device(family, index, info)


def test_R9_a_failed_open_is_retried(registry):
    registry.register_plugin("ACC", Busy())
    for _ in range(2):
        with pytest.raises(hal.DeviceUnavailable, match="busy"):
            registry["ACC"]
    assert registry["ACC"].name == "ACC"


def test_a_closed_device_is_opened_anew(registry, cpu):
    first = registry["cpu"]
    first.close()
    second = registry["cpu"]
    assert second is not first and second is registry["CPU"]
    assert cpu.opened == 2
    first.close()  # a second close does not take the new one away
    assert registry["CPU"] is second


def test_a_family_in_use_is_not_replaced(registry, cpu):
    device = registry["CPU"]
    with pytest.raises(hal.PluginConflict, match="in use"):
        registry.register_plugin("cpu", FakePlugin())
    device.close()
    registry.register_plugin("cpu", FakePlugin("accelerator"))
    assert registry["CPU"].info.kind == "accelerator"


@pytest.mark.parametrize("name", ["GPU", "default", "A:1", "", None, "a b"])
def test_a_plugin_needs_a_family_name(registry, name):
    with pytest.raises(hal.InvalidArgument):
        registry.register_plugin(name, FakePlugin())


# -- the default


def machine(registry, **families):
    for name, plugin in families.items():
        registry.register_plugin(name, plugin)
    return registry


def opencl(*kinds):
    return FakePlugin(*kinds, rank={"gpu": 200})


def host():
    return FakePlugin("cpu", rank={"cpu": 0})


def test_R13_the_order_of_everything(registry):
    machine(
        registry, CPU=host(), ACC=FakePlugin("accelerator"), CL=opencl("cpu", "gpu"),
        NATIVE=FakePlugin("gpu", "gpu"),
    )  # fmt: skip
    best_first = ["NATIVE", "NATIVE:1", "CL:1", "ACC", "CPU", "CL"]
    assert registry.get_available_devices() == best_first
    assert registry.DEFAULT == "NATIVE"


def test_R13_hal_plugins_gives_the_order(registry, monkeypatch):
    machine(registry, CPU=host(), CL=opencl("cpu", "gpu"), NATIVE=FakePlugin("gpu"))
    monkeypatch.setenv("HAL_PLUGINS", "cl, cpu, missing")
    assert list(registry) == ["CL", "CPU"]
    assert registry.get_available_devices() == ["CL", "CL:1", "CPU"]
    with pytest.raises(
        hal.DeviceUnavailable, match="switched off by HAL_PLUGINS=CL,CPU,MISSING on NATIVE"
    ):
        registry["NATIVE"]


def test_R13_hal_disable(registry, monkeypatch):
    machine(registry, CPU=host(), NATIVE=FakePlugin("gpu"))
    monkeypatch.setenv("HAL_DISABLE", "native")
    assert registry.DEFAULT == "CPU"
    assert registry.states()["NATIVE"] == "disabled"
    assert "NATIVE" not in registry
    with pytest.raises(hal.DeviceUnavailable, match="switched off by HAL_DISABLE="):
        registry["NATIVE"]


def test_R13_plugins_that_are_not_installed(registry, monkeypatch):
    machine(registry, CPU=host())
    monkeypatch.setenv("HAL_PLUGINS", "CUDA")
    with pytest.raises(hal.DeviceUnavailable) as caught:
        registry[None]
    assert str(caught.value) == (
        "open: the backend is installed, but switched off by HAL_PLUGINS=CUDA on CPU. Add CPU to "
        "the environment variable HAL_PLUGINS, or unset it. Nothing that it lists is installed: "
        "CUDA."
    )
    with pytest.raises(hal.DeviceUnavailable, match="may be used: none. HAL_PLUGINS=CUDA allows"):
        registry["GPU"]


def test_R13_hal_device_is_not_replaced_by_another(registry, monkeypatch):
    machine(registry, CPU=host(), ACC=NoHardware())
    for wanted, error in (("acc", "finds no hardware"), ("nowhere:1", "no installed backend")):
        monkeypatch.setenv("HAL_DEVICE", wanted)
        assert wanted.upper() == registry.DEFAULT
        with pytest.raises(hal.HalError, match=f"{error}.*HAL_DEVICE={wanted} asks for it"):
            registry[None]
    monkeypatch.setenv("HAL_DEVICE", "CPU:x")
    with pytest.raises(hal.InvalidArgument, match="HAL_DEVICE"):
        _ = registry.DEFAULT
    for wanted, says in (
        ("CUP", "Did you mean CPU? Installed: ACC, CPU. HAL_DEVICE=CUP asks for it."),
        ("cuda", "`python -m pip install hal-cuda` installs it. HAL_DEVICE=cuda asks for it."),
        ("gpu:0", "HAL_DEVICE=gpu:0 asks for it."),
    ):
        monkeypatch.setenv("HAL_DEVICE", wanted)
        for look in (registry.__getitem__, registry.info):
            with pytest.raises(hal.HalError) as caught:
                look(registry.DEFAULT)
            assert str(caught.value).endswith(says)
            assert str(caught.value).count("asks for it") == 1


def test_R13_family_in_the_environment(registry, monkeypatch):
    machine(registry, CPU=host(), ACC=FakePlugin("gpu"))
    monkeypatch.setenv("CUDA", "1")  # known and not installed: not to be replaced in silence
    with pytest.raises(hal.UnknownDevice, match=r"'CUDA'.*pip install hal-cuda.*CUDA=1 asks"):
        _ = registry.DEFAULT
    monkeypatch.setenv("CPU", "1")
    with pytest.raises(hal.InvalidArgument, match="CPU=1 and CUDA=1"):
        _ = registry.DEFAULT
    monkeypatch.delenv("CUDA")
    assert registry[None].name == "CPU"
    monkeypatch.setenv("ACC", "x86_64")  # build systems set such names to other things
    assert registry.DEFAULT == "CPU"
    monkeypatch.setenv("ACC", "1")
    with pytest.raises(hal.InvalidArgument, match="ACC=1 and CPU=1"):
        _ = registry.DEFAULT
    monkeypatch.setenv("HAL_DEVICE", "acc")
    assert registry.DEFAULT == "ACC"


def test_R13_a_default_that_a_wrong_setting_changes_is_said(registry):
    class Misset(FakePlugin):
        @hal.hookimpl
        def hal_enumerate(self):
            raise hal.InvalidArgument("environment variable HAL_ACC", "expected a number", got="x")

    machine(registry, CPU=host(), ACC=Misset("gpu"))
    with pytest.warns(UserWarning, match="ACC is left out: environment variable HAL_ACC"):
        assert registry.DEFAULT == "CPU"
    assert registry.DEFAULT == "CPU"  # and once is enough


def test_R13_choosing_opens_nothing_and_keeps_the_reasons(registry):
    plugins = {"CPU": host(), "ACC": NoHardware("no cable"), "NATIVE": FakePlugin("gpu")}
    machine(registry, **plugins)
    before = dict(os.environ)
    assert registry.DEFAULT == "NATIVE"
    assert "no cable" in registry.skipped["ACC"]
    assert [plugin.opened for plugin in plugins.values()] == [0, 0, 0]
    assert dict(os.environ) == before


def test_R2_none_follows_the_default_of_this_thread(registry):
    machine(registry, CPU=host(), ACC=FakePlugin("accelerator", "accelerator"))
    with registry.default("acc:1") as name:
        assert (name, registry.canonicalize(None), registry[None].name) == ("ACC:1",) * 3
        with registry.default("CPU"):
            assert registry.canonicalize(None) == "CPU"
        assert registry.canonicalize(None) == "ACC:1"
        assert results(lambda: registry.canonicalize(None)) == ["ACC"]
    assert registry.canonicalize(None) == "ACC"


def test_R2_blocks_of_generators_end_in_any_order_and_anywhere(registry):
    machine(registry, CPU=host(), ACC=FakePlugin("accelerator", "accelerator"))
    outer, inner, elsewhere = (registry.default(name) for name in ("CPU", "ACC:1", "CPU"))
    outer.__enter__()
    inner.__enter__()
    outer.__exit__(None, None, None)
    assert registry.DEFAULT == "ACC:1"
    inner.__exit__(None, None, None)
    Context().run(elsewhere.__enter__)
    elsewhere.__exit__(None, None, None)
    assert registry.DEFAULT == "ACC"


def test_R2_default_refuses_what_cannot_be_one(registry):
    for name, error in (("nowhere", hal.UnknownDevice), ("CPU:x", hal.InvalidArgument)):
        with pytest.raises(error), registry.default(name):
            pass
    assert registry.canonicalize(None) == "CPU"


def test_R20_gpu_is_a_device_of_kind_gpu(registry, monkeypatch):
    machine(registry, CPU=host(), CL=opencl("cpu", "gpu"), NATIVE=FakePlugin("gpu"))
    assert [registry[name].name for name in ("GPU", "gpu:1")] == ["NATIVE", "CL:1"]
    assert registry.info("GPU:1").name == "CL:1"
    with pytest.raises(hal.UnknownDevice, match="GPU has 2 devices"):
        registry["GPU:2"]
    monkeypatch.setenv("HAL_DEVICE", "gpu")
    assert registry[None].name == "NATIVE"


def test_R20_a_cpu_behind_opencl_is_no_gpu(registry):
    machine(registry, CPU=host(), CL=opencl("cpu"), ACC=NoHardware("no cable"))
    with pytest.raises(hal.DeviceUnavailable, match=r"no device of kind gpu\. .*no cable") as e:
        registry["GPU"]
    assert "Use one of CPU, CL." in str(e.value)
    assert "`python -m pip install hal-cuda hal-hip hal-metal hal-opencl`" in str(e.value)
    assert registry.DEFAULT == "CPU"
    assert registry.get_available_devices() == ["CPU", "CL"]


# -- looking


def test_R7_looking_loads_no_plugin(site):
    site.backend("BAD", "raise SystemExit('touched')")
    site.backend("WORSE", "import os; os._exit(9)")
    done = site.run(
        """
        import hal_core as hal
        D = hal.Device
        assert list(D) == ["BAD", "WORSE"] and len(D) == 2, list(D)
        assert "bad" in D and "WORSE:3" in D and "CPU" not in D and 7 not in D
        assert repr(D) == "<hal.Device BAD: installed, WORSE: installed>", repr(D)
        assert dir(D) and D._ipython_key_completions_() == ["BAD", "WORSE"]
        assert D.states() == {"BAD": "installed", "WORSE": "installed"}
        import sys
        assert not [name for name in sys.modules if "fake_plugin" in name]
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_states_follow_what_happens(registry):
    machine(registry, CPU=host(), ACC=NoHardware())
    assert registry.states() == {"ACC": "installed", "CPU": "installed"}
    registry.get_available_devices()
    assert registry.states() == {"ACC": "no hardware", "CPU": "ready"}
    device = registry["CPU"]
    assert repr(registry) == "<hal.Device ACC: no hardware, CPU: open>"
    device.close()
    assert registry.states()["CPU"] == "ready"


def test_nothing_is_printed_unless_hal_debug_asks(site):
    site.backend("ACC")
    site.backend("BAD", "raise OSError('no driver')")
    site.backend("watch", "raise OSError('no file')", group="hal.extensions")
    code = "import hal_core as hal; hal.Device[None]"
    quiet = site.run(code, fresh=True)
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, "", "")
    said = site.run(code, env={"HAL_DEBUG": "1"}, fresh=True).stderr
    for text in ("BAD is left out", "the default device is ACC", "no file", "opened ACC"):
        assert text in said


# -- threads


class Slow(FakePlugin):
    @hookimpl
    def hal_open_device(self, family, index, info):
        time.sleep(0.05)
        return super().hal_open_device(family, index, info)


def test_R14_64_threads_one_object(registry):
    plugin = Slow()
    registry.register_plugin("ACC", plugin)
    found = outcomes(*[lambda: registry["ACC"], lambda: registry["acc:0"]] * 32)
    assert set(found) == {registry["ACC"]}
    assert plugin.opened == 1


def test_R14_64_threads_share_one_failure(registry):
    class Failing(FakePlugin):
        @hookimpl
        def hal_open_device(self, family, index, info):
            flight = flights._flights[registry.backend(family), "open", index]
            wait_until(lambda: list(flights._waiting.values()).count(flight) == 63)
            self.opened += 1
            raise hal.DeviceUnavailable("open", "busy", device=family)

    plugin = Failing()
    registry.register_plugin("ACC", plugin)
    found = outcomes(*[lambda: registry["ACC"]] * 64)
    assert all(isinstance(one, hal.DeviceUnavailable) for one in found)
    assert plugin.opened == 1


def test_R14_different_devices_open_in_parallel(registry):
    meeting = threading.Barrier(4, timeout=20)  # opens only when all four are opening

    class Meeting(FakePlugin):
        @hookimpl
        def hal_open_device(self, family, index, info):
            meeting.wait()
            return super().hal_open_device(family, index, info)

    machine(registry, A=Meeting("gpu", "gpu"), B=Meeting("gpu", "gpu"))
    names = ["A", "A:1", "B", "B:1"]
    opened = results(*(partial(registry.__getitem__, name) for name in names))
    assert [device.name for device in opened] == names


class Asking(FakePlugin):
    """Opening asks for another device first."""

    def __init__(self, registry, other):
        super().__init__()
        self.registry, self.other = registry, other

    @hookimpl
    def hal_open_device(self, family, index, info):
        time.sleep(0.05)
        self.registry[self.other]
        return super().hal_open_device(family, index, info)


def test_R14_a_device_may_need_another(registry):
    machine(registry, A=Asking(registry, "C"), B=Asking(registry, "C"), C=Slow())
    opened = results(*(partial(registry.__getitem__, name) for name in "ABCABC"))
    assert [device.name for device in opened] == list("ABCABC")


def test_R14_devices_that_need_each_other_are_an_error_not_a_dead_lock(registry):
    machine(
        registry, A=Asking(registry, "B"), B=Asking(registry, "A"), SELF=Asking(registry, "self")
    )
    found = outcomes(*[lambda: registry["A"], lambda: registry["B"]] * 4)
    assert all(isinstance(one, hal.InvalidState) for one in found)
    with pytest.raises(hal.InvalidState, match="already under way"):
        registry["SELF"]


def test_X1_an_answer_that_comes_after_refresh_is_not_kept(registry):
    class Changing(FakePlugin):
        asked = 0

        @hookimpl
        def hal_enumerate(self, family):
            self.asked += 1
            if self.asked == 1:  # as another thread might, while the driver is being asked
                registry.refresh()
            return super().hal_enumerate(family)

    plugin = Changing()
    registry.register_plugin("ACC", plugin)
    for asked in (1, 2, 2):
        assert registry.DEFAULT == "ACC" and plugin.asked == asked


# -- exit


EXIT = """
import hal_core as hal, logging
from hal_core.device import Device
{setup}
plugin = Device.backend("A").plugin
def close_of(device):
    def close():
        print("closed", device.name)
        if device.name == "A:1":
            raise {error}
        device._backend.observe("hal_device_closed", device)
    return close
for name in ("B", "A", "A:1", "B:1"):
    device = Device[name]
    device.close = close_of(device)
import sys
sys.exit(7)
"""


@pytest.mark.parametrize(
    ("error", "setup", "told"),
    [
        ("RuntimeError('no')", "", None), ("SystemExit(3)", "", None),
        ("KeyboardInterrupt", "", None),
        ("RuntimeError('no')", "logging.basicConfig()", "closing A:1 at exit failed"),
        # The work is lost, and nobody waited for it to hear so.
        ("hal.DeviceFault('wait', 'work was lost')", "", "DeviceFault: wait: work was lost"),
    ],
)  # fmt: skip
def test_R15_at_exit_newest_first_whatever_fails(site, error, setup, told):
    site.backend("A")
    site.backend("B")
    done = site.run(EXIT.format(setup=setup, error=error))
    assert done.stdout.split() == ["closed", "B:1", "closed", "A:1", "closed", "A", "closed", "B"]
    assert done.returncode == 7
    assert told in done.stderr if told else not done.stderr


def test_R15_a_closed_device_is_not_closed_again(site):
    site.backend("A")
    code = """
    from hal_core.device import Device
    device = Device["A"]
    device.close()
    def twice(): print("again")
    device.close = twice
    """
    done = site.run(code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# -- fork

FORK = """
import os, sys
import hal_core as hal
from hal_core.device import Device
{parent}
child = os.fork()
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
try:
    {child}
except hal.HalError as error:
    print(type(error).__name__, error)
sys.stdout.flush()
os._exit(5)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
class TestFork:
    def child(self, site, parent, child):
        site.backend("DRV")
        site.backend("CPU", "# more\nPlugin.capabilities = frozenset({'subprocess_fork'})\n")
        site.backend("OTHER")
        # Python warns that other threads may hold locks; that is what these tests are about.
        flags = ("-W", "ignore::DeprecationWarning")
        done = site.run(FORK.format(parent=parent, child=child), *flags)
        assert (done.returncode, done.stderr) == (5, "")
        return done.stdout

    def test_X2_what_the_parent_left_alone_works(self, site):
        child = "print(Device['OTHER'].name, Device.states())"
        out = self.child(site, "Device['DRV']; list(Device)", child)
        assert out.startswith("OTHER {'CPU': 'installed'")

    def test_X2_the_cpu_stays_open_after_refresh(self, site):
        parent = "cpu = Device['CPU']; Device.refresh()"
        child = "Device.refresh(); print(Device['cpu:0'] is cpu, Device.states()['CPU'])"
        assert self.child(site, parent, child) == "True open\n"

    def test_X2_a_family_stays_refused_when_its_plugin_is_replaced(self, site):
        parent = "plugin = Device.backend('DRV').plugin; Device['DRV']"
        child = "Device.register_plugin('DRV', plugin); Device['DRV']"
        assert self.child(site, parent, child).startswith("ForkError")

    def test_X2_a_thread_that_opens_leaves_no_lock_behind(self, site):
        parent = """
import threading
class Slow(type(Device.backend("CPU").plugin)):
    from hal_core.hookspecs import hookimpl
    @hookimpl
    def hal_open_device(self, family, index, info):
        opening.set()
        threading.Event().wait()
opening = threading.Event()
Device.register_plugin("SLOW", Slow())
threading.Thread(target=lambda: Device["SLOW"], daemon=True).start()
opening.wait()
"""
        assert self.child(site, parent, "print(Device['CPU'].name)") == "CPU\n"

    def test_X2_a_thread_that_closes_leaves_no_lock_behind(self, site):
        parent = """
import threading
cpu, closing = Device["CPU"], threading.Event()
cpu._synchronize = lambda timeout: closing.set() or threading.Event().wait()
threading.Thread(target=cpu.close, daemon=True).start()
closing.wait()
"""
        child = "print(Device['CPU'] is cpu, Device['CPU'].closed)"
        assert self.child(site, parent, child) == "False False\n"


# -- settings


def test_a_misspelt_setting_is_told_once(site):
    """HAL_CHEK=1 would run unchecked, and look as if nothing were wrong."""
    code = """
import hal_core as hal
from hal_testing.fake import plugin
hal.Device.register_plugin("FAKE", plugin)
for turn in range(2):
    hal.Device["FAKE"].close()
"""
    plain = site.run(code, env={"HAL_SOMETHING_ELSE": "1", "HALCHECK": "1"})
    assert (plain.stderr, plain.returncode) == ("", 0)
    told = site.run(code, "-W", "default", env={"HAL_CHEK": "1", "HAL_LRU_LIMT": "0"}).stderr
    assert told.count("UserWarning: ") == 2
    assert "HAL_CHEK is no setting and does nothing; is it HAL_CHECK that you mean?" in told
    assert "HAL_LRU_LIMT is no setting and does nothing; is it HAL_LRU_LIMIT" in told
    assert "registry.py" not in told, "the line is the user's"


SPEED = """# more
from hal_core import config
config.declare("HAL_ACC_SPEED", 1, "how fast it is", int)
"""


@pytest.mark.parametrize("name, text", [("HAL_CACHE_LIMIT", "much"), ("HAL_ACC_SPEED", "abc")])
def test_a_wrong_setting_is_refused_when_a_device_is_opened(site, name, text):
    """The setting is needed much later; one of another backend stops no device."""
    site.backend("ACC", SPEED)
    site.backend("OTHER")
    program = """
        import hal_core as hal
        for family in ("ACC", "OTHER"):
            try:
                print(hal.Device[family].name)
            except hal.InvalidArgument as error:
                print(error)
    """
    done = site.run(program, env={name: text})
    assert (done.returncode, done.stderr) == (0, "")
    first, second = done.stdout.splitlines()
    assert first.startswith(f"environment variable {name}: ") and f"got '{text}'" in first
    assert second == (first if name == "HAL_CACHE_LIMIT" else "OTHER")


def test_a_wrong_HAL_DEBUG_is_told_by_the_first_device_and_not_by_an_import(site):
    site.backend("ACC")
    program = """
        import hal_core as hal
        print("ACC" in hal.Device)
        try:
            hal.Device["ACC"]
        except hal.InvalidArgument as error:
            print(error)
    """
    done = site.run(program, env={"HAL_DEBUG": "abc"}, fresh=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("True\nenvironment variable HAL_DEBUG: expected 1 or 0")


# -- other ways to write hal.Device["CPU"]


def test_a_call_teaches_the_brackets():
    with pytest.raises(
        hal.InvalidArgument, match=r"got \('CPU',\)\)\. Write hal.Device\[\"CPU\"\]"
    ):
        hal.Device("CPU")


@pytest.mark.parametrize("name", ["CPU", "cuda", "GPU", "NEAR"])
def test_an_attribute_teaches_the_brackets(registry, name):
    machine(registry, NEAR=FakePlugin("gpu"))
    with pytest.raises(AttributeError) as caught:
        getattr(registry, name)
    assert f'Write hal.Device["{name.upper()}"].' in str(caught.value)
    with pytest.raises(AttributeError) as caught:
        registry.opne
    assert str(caught.value) == "hal.Device has no attribute 'opne'."


def test_R5_devices_of_a_kind(registry):
    registry.register_plugin("ACC", FakePlugin("gpu", "cpu", "gpu"))
    assert [one.name for one in registry.devices("ACC", kind="gpu")] == ["ACC", "ACC:2"]
    assert len(registry.devices("ACC")) == 3
    with pytest.raises(hal.DeviceUnavailable, match=r"this kind .*npu.* on ACC. It has gpu, cpu."):
        registry.devices("ACC", kind="npu")
    assert registry.devices("acc") == registry.devices("ACC"), "a name is one in any case"
    for wrong in (3, []):
        with pytest.raises(hal.InvalidArgument, match="a device is FAMILY or FAMILY:INDEX"):
            registry.devices(wrong)


def test_the_default_is_not_assigned(registry):
    with pytest.raises(AttributeError, match=r"default\(\"CPU\"\):`, or set HAL_DEVICE=CPU"):
        registry.DEFAULT = "CPU"
