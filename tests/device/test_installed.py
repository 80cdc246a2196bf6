"""Loading: each plugin alone, failures remembered, conflicts, refresh, zip files."""

import builtins
import logging
import sys
import textwrap
import zipfile

import pytest
from fake_site import PLUGIN, FakeSite
from in_threads import outcomes

import hal_core as hal
from hal_core.device import DeviceRegistry

pytestmark = pytest.mark.lowest


@pytest.fixture(autouse=True)
def on_the_path(site, monkeypatch):
    monkeypatch.syspath_prepend(str(site))


@pytest.fixture
def registry(site):
    return DeviceRegistry([str(site)])


# -- failures

FAILURES = {
    "exception": ("raise ZeroDivisionError('at import')", ZeroDivisionError),
    "missing package": ("import no_such_vendor_package", ModuleNotFoundError),
    "exit": ("raise SystemExit('bye')", SystemExit),
    "sys.exit": ("import sys; sys.exit()", SystemExit),
    "syntax": ("def plugin(:", SyntaxError),
    "base exception": ("class Odd(BaseException): pass\nraise Odd()", BaseException),
    "no plugin attribute": ("pluggin = 1", AttributeError),
    "own error": ("import hal_core\nraise hal_core.InvalidArgument('x', 'y')", hal.InvalidArgument),
}


TERMINATED = """
import os, signal, sys
import hal_core as hal
def end(number, frame):
    sys.exit(7)
signal.signal(signal.SIGTERM, end)
try:
    hal.Device["SLOW"]
except Exception as error:
    print(error)
print("still here")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows sends no SIGTERM")
def test_R8_a_signal_while_a_plugin_is_imported_ends_the_program(site):
    site.backend("SLOW", "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)")
    done = site.run(TERMINATED)
    assert (done.returncode, done.stdout) == (7, ""), done.stderr


@pytest.mark.parametrize("source, cause", FAILURES.values(), ids=FAILURES.keys())
def test_R8_a_plugin_that_fails_at_import(site, registry, source, cause):
    module = site.backend("BAD", source, distribution="hal_bad")
    site.backend("GOOD")
    with pytest.raises(hal.PluginError) as caught:
        registry["BAD"]
    assert isinstance(caught.value.__cause__, cause)
    for fact in (f"BAD = {module}:plugin", "hal-bad", "1.0", str(site), "Upgrade or uninstall"):
        assert fact in str(caught.value)
    assert registry["GOOD"].name == "GOOD"
    assert registry.get_available_devices() == ["GOOD", "GOOD:1"]
    assert module in registry.skipped["BAD"]
    assert registry.states()["BAD"] == "broken"


def test_R8_keyboard_interrupt_passes_through(site, registry):
    once = """
    import pathlib
    flag = pathlib.Path(__file__).with_suffix(".flag")
    if not flag.exists():
        flag.touch()
        raise KeyboardInterrupt
    """
    site.backend("BAD", textwrap.dedent(once) + PLUGIN)
    with pytest.raises(KeyboardInterrupt):
        registry["BAD"]
    assert registry["BAD"].name == "BAD"  # and is not remembered


def test_R8_failures_are_listed_where_a_name_is_unknown(site, registry):
    site.backend("BAD", "raise OSError('libvendor.so: not found')")
    site.distribution("damaged", b"[hal.devices]\nCUDA -> hal_cuda\n")
    registry.get_available_devices()
    with pytest.raises(hal.UnknownDevice) as caught:
        registry["CUDA"]
    assert "libvendor.so: not found" in str(caught.value)
    assert "damaged-1.0.dist-info" in str(caught.value)


def test_R9_a_load_failure_is_remembered_until_refresh(site, registry):
    module = site.backend("BAD", "import no_such_vendor_package")
    errors = []
    for _ in range(3):
        with pytest.raises(hal.PluginError) as caught:
            registry["BAD"]
        errors.append(caught.value)
    assert len(set(map(str, errors))) == 1
    assert len(set(map(id, errors))) == 3  # a shared object would grow its traceback
    assert len({id(error.__cause__) for error in errors}) == 1
    site.module(module, PLUGIN + "\n")
    with pytest.raises(hal.PluginError):
        registry["BAD"]
    registry.refresh()
    assert registry["BAD"].name == "BAD"


@pytest.mark.parametrize(
    "value", ["", ":", "no.such.module", "os:no.attr", "1:2", "a b:c", "x..y:z"]
)
def test_R8_an_entry_point_that_names_nothing(site, registry, value):
    site.distribution("hal_bad", f"[hal.devices]\nBAD = {value}\n")
    with pytest.raises(hal.PluginError, match="hal-bad"):
        registry["BAD"]


def test_an_entry_point_may_name_an_attribute_of_an_attribute_and_extras(site, registry):
    name = site.module("fake_nested", PLUGIN + "\nclass holder: inner = plugin\n")
    site.distribution("hal_good", f"[hal.devices]\nGood = {name}:holder.inner [extra]\n")
    assert registry["GOOD"].name == "GOOD"


# -- duplicates


def test_R11_two_distributions_for_one_family(site, registry, monkeypatch):
    mine = site.backend("ACC", distribution="hal_acc")
    theirs = site.backend("acc", distribution="other.acc")
    with pytest.raises(hal.PluginConflict) as caught:
        registry["ACC"]
    for fact in (mine, theirs, "hal-acc 1.0", "other-acc 1.0", "HAL_PREFER=ACC="):
        assert fact in str(caught.value)
    assert registry.states() == {"ACC": "in conflict"}
    assert registry.get_available_devices() == []
    assert not {mine, theirs} & set(sys.modules)
    monkeypatch.setenv("HAL_PREFER", "acc=Other_Acc")
    assert registry["ACC"].name == "ACC"
    assert theirs in sys.modules and mine not in sys.modules


def test_R11_hal_prefer_that_settles_nothing(site, registry, monkeypatch):
    site.backend("ACC", distribution="one")
    site.backend("LONE", distribution="only")
    site.backend("ACC", distribution="two")
    monkeypatch.setenv("HAL_PREFER", "ACC=three,LONE=two")
    for family, said in {
        "ACC": "HAL_PREFER names three.*= .* of one.*= .* of two.* Set HAL_PREFER=ACC=one",
        "LONE": "HAL_PREFER names two.*= .* of only.* LONE_CC chooses.* Set HAL_PREFER=LONE=only",
    }.items():
        with pytest.raises(hal.PluginConflict, match=said):
            registry[family]
    monkeypatch.setenv("HAL_PREFER", "ACC=three")
    with pytest.warns(UserWarning, match="ACC is left out: open: HAL_PREFER names three"):
        assert registry.DEFAULT == "LONE"


def test_R11_one_distribution_on_two_folders_is_no_conflict(site, tmp_path):
    site.backend("ACC")
    (tmp_path / "lib64").symlink_to(site.folder)
    registry = DeviceRegistry([str(site), str(tmp_path / "lib64")])
    assert registry["ACC"].name == "ACC"


@pytest.mark.parametrize("name", ["GPU", "default", "my-chip", "chip:1", "\u00c4"])
def test_a_reserved_or_impossible_name_hides_nothing(site, registry, name):
    site.distribution("odd", f"[hal.devices]\n{name} = x:plugin\n")
    site.backend("GOOD")
    assert list(registry) == ["GOOD"]
    assert registry.get_available_devices() == ["GOOD", "GOOD:1"]


# -- finding late


def test_R18_register_plugin_needs_no_metadata(tmp_path):
    registry = DeviceRegistry([str(tmp_path)])
    space = {}
    exec(PLUGIN, space)
    registry.register_plugin("frozen", space["plugin"])
    assert list(registry) == ["FROZEN"]
    assert registry["frozen:1"].name == "FROZEN:1"


def test_R18_a_plugin_inside_a_zip(site, tmp_path, monkeypatch):
    source = FakeSite(tmp_path / "zipped")
    source.backend("ZIPPED", distribution="hal_zipped")
    archive = tmp_path / "plugins.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for member in source.folder.rglob("*"):
            file.write(member, member.relative_to(source.folder))
    monkeypatch.syspath_prepend(str(archive))
    registry = DeviceRegistry([str(archive), str(site)])
    assert registry["ZIPPED"].name == "ZIPPED"
    assert "hal-zipped 1.0" in registry.backend("ZIPPED").origin


def test_R19_refresh_finds_what_was_installed_meanwhile(site, registry):
    site.backend("OLD")
    old = registry["OLD"]
    site.backend("NEW")
    assert "NEW" not in registry
    registry.refresh()
    assert registry["NEW"].name == "NEW"
    assert registry["OLD"] is old


def test_R19_refresh_drops_what_was_uninstalled(site, registry):
    site.backend("ACC", distribution="hal_acc")
    device = registry["ACC"]
    for file in (site.folder / "hal_acc-1.0.dist-info").iterdir():
        file.unlink()
    registry.refresh()
    assert list(registry) == []
    assert registry["ACC"] is device  # what is open stays
    device.close()
    with pytest.raises(hal.UnknownDevice):
        registry["ACC"]


# -- threads

COUNTED = """
import builtins, time
counts = builtins.__dict__.setdefault("KEY", [])
counts.append(1)
time.sleep(0.1)
"""


@pytest.mark.parametrize("ending", [PLUGIN, "raise OSError('no driver')"], ids=["loads", "fails"])
def test_R14_one_load_for_64_threads(site, registry, ending):
    key = str(site)
    site.backend("ACC", COUNTED.replace("KEY", key) + ending)
    found = outcomes(*[lambda: registry["ACC"]] * 64)
    assert len(set(map(str, found))) == 1 and type(found[0]) in (hal.Compiled, hal.PluginError)
    assert len(getattr(builtins, key)) == 1
    delattr(builtins, key)


# Each case is a process of its own with a time limit: a dead-lock fails, it does not hang.
ASKING = "import hal_core as hal, time; time.sleep(0.1); hal.Device['OTHER']\n" + PLUGIN

THREADS = """
import threading, importlib
import hal_core as hal
said = []
def ask(work):
    try:
        said.append(f"got {work()}")
    except hal.HalError as error:
        said.append(f"error {type(error).__name__}")
    except Exception as error:
        said.append(f"other {error!r}")
threads = [threading.Thread(target=ask, args=(work,), daemon=True) for work in [WORKS]]
for thread in threads: thread.start()
for thread in threads: thread.join(20)
assert not any(thread.is_alive() for thread in threads), "dead-lock"
print("\\n".join(said))
"""


class TestR14ImportsThatAsk:
    def run(self, site, *works):
        done = site.run(THREADS.replace("WORKS", ", ".join(f"lambda: {work}" for work in works)))
        assert (done.returncode, done.stderr) == (0, "")
        return sorted(done.stdout.split("\n")[:-1])

    def test_R14_an_import_may_ask_for_another_device(self, site):
        site.backend("C", "import time; time.sleep(0.1)\n" + PLUGIN)
        site.backend("A", ASKING.replace("OTHER", "C"))
        site.backend("B", ASKING.replace("OTHER", "C"))
        works = [f"hal.Device['{name}'].name" for name in "ABCABC"]
        assert self.run(site, *works) == sorted(f"got {name}" for name in "ABCABC")

    def test_R14_an_import_that_asks_for_its_own_device_fails(self, site):
        site.backend("A", ASKING.replace("OTHER", "A"))
        site.backend("C")
        assert self.run(site, "hal.Device['A']", "hal.Device['C'].name") == [
            "error PluginError", "got C",
        ]  # fmt: skip

    def test_R14_imports_that_ask_for_each_other_end(self, site):
        site.backend("A", ASKING.replace("OTHER", "B"))
        site.backend("B", ASKING.replace("OTHER", "A"))
        said = self.run(site, *["hal.Device['A'].name", "hal.Device['B'].name"] * 4)
        assert len(said) == 8 and not any(line.startswith("other") for line in said)

    def test_R14_a_module_imported_directly_while_another_thread_loads_it(self, site):
        site.backend("C")
        module = site.backend("A", ASKING.replace("OTHER", "C"))
        works = ["hal.Device['A'].name", f"bool(importlib.import_module({module!r}))"]
        assert self.run(site, *works) == ["got A", "got True"]

    def test_R14_a_user_module_that_opens_a_device_while_it_is_imported(self, site):
        # The plugin imports the user's module, which another thread is importing already and
        # which waits for the plugin: Python's import lock has to see the circle, not ours.
        site.module("user_module", "import hal_core as hal, time; time.sleep(0.1)\n"
                    "try: DEV = hal.Device['A']\nexcept hal.HalError: DEV = None\n")  # fmt: skip
        site.backend("A", "import time; time.sleep(0.05)\nimport user_module\n" + PLUGIN)
        works = ["hal.Device['A'].name", "bool(importlib.import_module('user_module'))"]
        assert len(self.run(site, *works)) == 2

    def test_R14_what_is_asked_for_too_early_is_there_later(self, site):
        source = "import hal_core as hal\ntry: hal.Device['A']\n"
        source += "except hal.InvalidState as error: EARLY = 'asks for this device' in str(error)\n"
        site.module("user_module", source + "LATER = 1\n")
        site.backend("A", "from user_module import LATER\n" + PLUGIN)
        work = "(importlib.import_module('user_module').EARLY, hal.Device['A'].name)"
        assert self.run(site, work) == ["got (True, 'A')"]

    # Opening A takes a while, then needs `what`; another thread has begun with B by then.
    OPENING = """# more
import importlib, time
good = Plugin.hal_open_device
def slow(self, family, index, info):
    time.sleep(0.4)
    {what}
    return good(self, family, index, info)
Plugin.hal_open_device = hookimpl(slow)
"""

    @pytest.mark.parametrize("imported", [False, True], ids=["asked for", "imported directly"])
    def test_R14_opening_needs_what_an_import_that_asks_for_it_is_loading(self, site, imported):
        site.backend("A", self.OPENING.format(what="import hal_core; hal_core.Device['B']"))
        module = site.backend("B", ASKING.replace("OTHER", "A"))
        second = f"importlib.import_module({module!r})" if imported else "hal.Device['B']"
        said = self.run(site, "hal.Device['A']", second)
        assert len(said) == 2 and any("InvalidState" in line or "Plugin" in line for line in said)

    def test_R14_opening_imports_a_module_that_waits_for_it(self, site):
        source = "import hal_core as hal, time; time.sleep(0.1)\n"
        source += "try: DEV = hal.Device['A']\nexcept hal.InvalidState: DEV = None\n"
        site.module("user_module", source)
        # However late the other thread is, it has begun.
        what = "import sys\n    while 'user_module' not in sys.modules: time.sleep(0.01)\n"
        what += "    time.sleep(0.3)\n    importlib.import_module('user_module')"
        site.backend("A", self.OPENING.format(what=what))
        works = ["hal.Device['A'].name", "importlib.import_module('user_module').DEV"]
        assert self.run(site, *works) == ["got A", "got None"]

    def test_R14_two_registries(self, site):
        what = "import builtins; builtins.second['B']"
        site.backend("A", self.OPENING.format(what=what))
        site.backend("B", "import time, builtins; time.sleep(0.1); builtins.first['A']\n" + PLUGIN)
        start = (
            "import builtins; builtins.first, builtins.second = hal.Device, hal.DeviceRegistry()"
        )
        code = THREADS.replace("said = []", f"said = []; {start}")
        done = site.run(code.replace("WORKS", "lambda: first['A'], lambda: second['B']"))
        assert (done.returncode, done.stderr) == (0, "")


# -- extensions

EXTENSION = """
from hal_core.hookspecs import hookimpl

class Plugin:
    hal_api = (1, 0)
    def __init__(self):
        self.seen = []
    @hookimpl
    def hal_device_opened(self, device):
        self.seen.append(("opened", device.name))
    @hookimpl
    def hal_compiled(self, device, program, cached):
        self.seen.append(("compiled", device.name, program, cached))
    @hookimpl
    def hal_device_closed(self, device):
        self.seen.append(("closed", device.name))
    @hookimpl
    def hal_make_compilers(self, device):
        from hal_core.compiler import CompilerPair
        return [CompilerPair("extra", "python", None, None)]

plugin = Plugin()
"""


def test_R21_an_extension_observes_and_adds_without_being_a_device(site, registry):
    module = site.backend("watch", EXTENSION, group="hal.extensions")
    site.backend("CPU", "# more\n")
    assert list(registry) == ["CPU"]
    assert module not in sys.modules  # loaded when the first device is opened
    device = registry["CPU"]
    registry.backend("CPU").observe("hal_compiled", device, program="a program", cached=True)
    device.close()
    plugin = sys.modules[module].plugin
    assert plugin.seen == [
        ("opened", "CPU"), ("compiled", "CPU", "a program", True), ("closed", "CPU"),
    ]  # fmt: skip


def test_R21_an_extension_that_fails_is_logged_once_and_left_out(site, registry, caplog):
    site.backend("watch", "raise OSError('no such thing')", group="hal.extensions")
    good = site.backend("second", EXTENSION, group="hal.extensions", distribution="second")
    site.backend("CPU")
    with caplog.at_level(logging.WARNING, "hal_core"):
        registry["CPU"]
        registry["CPU:1"]
    assert [record.getMessage().count("no such thing") for record in caplog.records] == [1]
    assert [seen[1] for seen in sys.modules[good].plugin.seen] == ["CPU", "CPU:1"]


def test_R21_an_extension_whose_import_opens_a_device(site, registry, as_hal_device):
    as_hal_device(registry)
    source = "import hal_core as hal\nhal.Device['CPU']\n" + EXTENSION
    module = site.backend("watch", source, group="hal.extensions")
    site.backend("CPU")
    registry["CPU"]
    registry["CPU:1"]
    assert sys.modules[module].plugin.seen == [("opened", "CPU:1")]


def test_R21_hal_disable_names_extensions_too(site, registry, monkeypatch):
    module = site.backend("watch", EXTENSION, group="hal.extensions")
    site.backend("CPU")
    monkeypatch.setenv("HAL_DISABLE", "Watch")
    registry["CPU"]
    assert module not in sys.modules
