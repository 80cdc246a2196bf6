"""Test `hal doctor`: it names the state of every plugin, also of one that crashes or hangs."""

import json
import time

import pytest
from fake_site import PLUGIN

pytestmark = pytest.mark.alone

DOCTOR = "from hal_core.cli import main; sys.exit(main(['doctor', {options}]))"


def doctor(site, options="'--json'", env=None):
    return site.run(DOCTOR.format(options=options), env=env)


def findings(site, env=None):
    done = doctor(site, env=env)
    assert done.stderr == ""
    *rows, last = json.loads(done.stdout)
    assert (last["name"], last["kind"]) == ("compile cache", "cache")
    return done.returncode, {row["name"]: row for row in rows}


def test_nothing_installed(site):
    assert findings(site) == (0, {})
    assert "No plugin is installed" in doctor(site, "").stdout


def test_the_compile_cache(site, tmp_path):
    folder = tmp_path / "cache" / "not yet made"
    done = doctor(site, "'-v'", env={"HAL_CACHE_DIR": str(folder), "HAL_CACHE_LIMIT": "1M"})
    assert done.returncode == 0 and not folder.exists()
    lines = [line.strip() for line in done.stdout.splitlines()]
    where = lines.index("compile cache: ready")
    assert lines[where + 1 : where + 3] == [
        str(folder),
        "writable: ok 0 entries, 0 B of at most 1 MiB",
    ]
    (tmp_path / "file").write_text("in the way")
    done = doctor(site, "", env={"HAL_CACHE_DIR": str(tmp_path / "file" / "cache")})
    assert done.returncode == 1
    assert "compile cache: ready, with faults" in done.stdout
    assert "writable: FAILED" in done.stdout and "-> Set HAL_CACHE_DIR" in done.stdout
    done = doctor(site, "", env={"HAL_CCACHE": "0"})
    assert done.returncode == 0 and "compile cache disabled" in row(done.stdout, "compile cache")


def row(table, name):
    """Return one line of the table, with single blanks between its columns."""
    (line,) = [line for line in table.splitlines() if line.strip().startswith(name + "  ")]
    return " ".join(line.split())


def test_the_sound_states(site):
    site.backend("READY", "# more\nprint('a plugin that prints')\n")
    site.backend("NONE", "# more\nPlugin.kinds = ()\n")
    site.backend("OFF", "raise OSError('never looked at')")
    site.backend("watch", "raise OSError('never looked at')", group="hal.extensions")
    code, found = findings(site, env={"HAL_DISABLE": "OFF,WATCH"})
    assert code == 0
    assert {name: row["state"] for name, row in found.items()} == {
        "READY": "ready", "NONE": "no hardware", "OFF": "disabled", "watch": "disabled",
    }  # fmt: skip
    ready = found["READY"]
    assert ready["devices"] == ["READY: Fake accelerator", "READY:1: Fake accelerator"]
    assert [check["ok"] for check in ready["checks"]] == [True, True]
    assert "hal-ready 1.0" in ready["origin"] and str(site) in ready["origin"]
    assert "HAL_DISABLE" in found["OFF"]["why"]


BROKEN = {
    "IMPORT": ("import no_such_vendor_package", "broken", "no_such_vendor_package"),
    "EXIT": ("raise SystemExit(0)", "broken", "SystemExit"),
    "GONE": ("import os; print('last words', flush=True); os._exit(0)", "broken", "last words"),
    "SEGFAULT": ("import ctypes; ctypes.string_at(0)", "broken", "SIGSEGV"),
    "OLD": (PLUGIN.replace("(1, 0)", "(0, 3)"), "incompatible", "plugin API 0.3"),
    "NEW": (PLUGIN.replace("(1, 0)", "(9, 0)"), "incompatible", "pip install --upgrade hal-core"),
    "OPENS": (
        "# more\nPlugin.hal_open_device = hookimpl(lambda self: 1 / 0)\n",
        "broken",
        "ZeroDivisionError",
    ),
    "LATE": ("# more\nimport atexit, os\natexit.register(os.abort)\n", "broken", "SIGABRT"),
}  # fmt: skip


def test_every_fault_is_named_and_hides_no_other(site):
    for family, (source, _, _) in BROKEN.items():
        site.backend(family, source)
    site.backend("TWICE", distribution="one")
    site.backend("TWICE", distribution="two")
    site.backend("GOOD")
    site.backend("watch", "raise OSError('no file')", group="hal.extensions")
    site.distribution("odd", "[hal.devices]\nGPU = x:y\n")
    damaged = site.distribution("damaged", b"[hal.devices]\n\xff\n") / "entry_points.txt"
    unrelated = site.distribution("unrelated", b"[console_scripts]\nx\n") / "entry_points.txt"
    code, found = findings(site)
    assert code == 1
    for family, (_, state, why) in BROKEN.items():
        assert found[family]["state"] == state, found[family]
        assert why in found[family]["why"], found[family]
    assert found["TWICE"]["state"] == "in conflict" and "HAL_PREFER" in found["TWICE"]["why"]
    assert found["GOOD"]["state"] == "ready"
    assert found["watch"]["state"] == "broken" and "no file" in found["watch"]["why"]
    assert found["GPU"]["state"] == "broken"
    assert "not UTF-8" in found[str(damaged)]["why"]
    assert "line 2" in found[str(unrelated)]["why"]


def test_plugins_that_hang(site):
    site.backend("HANGS", "import time; time.sleep(600)\n")
    thread = "threading.Thread(target=threading.Event().wait).start()"
    site.backend("LINGERS", f"# more\nimport threading\n{thread}\n")
    started = time.monotonic()
    done = doctor(site, "'--time-limit', '4'")
    assert time.monotonic() - started < 30
    assert done.returncode == 1
    for name, began in (("HANGS", "No answer: the probe"), ("LINGERS", "The probe answered, then")):
        assert row(done.stdout, name).startswith(f"{name} broken")
        assert f"{began} did not end within 4 s." in done.stdout


CHECKS = """# more
from hal_core.hookspecs import Check
Plugin.hal_doctor = hookimpl(lambda self: [
    Check("driver", True, "12.3"),
    Check("permissions", False, "no /dev/acc", "Join group acc."),
])
"""


def test_what_a_person_reads(site):
    """The table has a line for each plugin; below are the faults alone, or everything with -v."""
    site.backend("ACC", CHECKS)
    site.backend("GOOD")
    site.backend("NONE", "# more\nPlugin.kinds = ()\n")
    done = doctor(site, "")
    assert (done.returncode, done.stderr) == (1, "")  # a check of a ready backend is not ok
    table, *details = done.stdout.split("\n\n")
    assert [line.split()[0] for line in table.splitlines()] == [
        "name", "ACC", "GOOD", "NONE", "compile",
    ]  # fmt: skip
    good = "GOOD ready hal-good 1.0 GOOD: Fake accelerator, GOOD:1: Fake accelerator"
    assert row(table, "GOOD") == good
    assert row(table, "ACC").startswith("ACC ready, with faults hal-acc 1.0 permissions: no")
    assert row(table, "NONE").startswith("NONE no hardware")
    lines = [line.strip() for line in details[0].splitlines()]
    assert lines[0] == "ACC: ready, with faults" and "hal-acc 1.0 in" in lines[1]
    assert lines[-1] == "permissions: FAILED no /dev/acc -> Join group acc."
    assert "driver: ok" not in done.stdout and details[1:] == ["1 to mend.\n"]
    lines = [line.strip() for line in doctor(site, "'--verbose'").stdout.split("\n")]
    for said in ("driver: ok 12.3", "ACC opens: ok", "GOOD: ready", "GOOD opens: ok"):
        assert said in lines


def test_the_plugins_that_are_named_are_examined_alone(site):
    site.backend("GOOD")
    site.backend("BAD", "raise OSError('no file')")
    said = "[bold]no[/bold] :warning: " + "x" * 200
    site.backend("watch", f"raise OSError({said!r})", group="hal.extensions")
    done = doctor(site, "'Watch', 'good:1', '--json'")
    found = {row["name"]: row["devices"] for row in json.loads(done.stdout)}
    assert found == {"GOOD:1": ["GOOD:1: Fake accelerator"], "watch": []}
    assert (done.returncode, done.stderr) == (1, "")
    done = doctor(site, "'good:7'")
    assert done.returncode == 1 and "GOOD has 2 devices" in row(done.stdout, "GOOD:7")
    done = doctor(site, "'good'")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("\n\nNothing to mend. `hal doctor -v` shows every check.\n")
    assert f"OSError: {said};" in doctor(site, "'watch'").stdout, "text, not markup"
    done = doctor(site, "'GOOD', 'GOOOD'")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no installed backend has this name (got 'GOOOD'). Did you mean GOOD?" in done.stderr


def test_json_stays_clean_whatever_a_plugin_prints(site):
    site.backend("LOUD", "# more\nimport os\nprint('x' * 10_000_000)\nos.write(2, b'y' * 99)\n")
    site.backend("DIES", "import os\nprint('x' * 10_000_000 + '\\nlast words', flush=True)\n"
                 "os._exit(3)")  # fmt: skip
    code, found = findings(site)
    assert (code, found["LOUD"]["state"], found["LOUD"]["why"]) == (1, "ready", "")
    assert found["DIES"]["why"].endswith("| last words") and len(found["DIES"]["why"]) < 500


def test_R21_an_extension_may_have_checks(site):
    source = """
        from hal_core.hookspecs import Check, hookimpl
        class Plugin:
            hal_api = (1, 0)
            @hookimpl
            def hal_doctor(self, family):
                return [Check(family, False, "no room", "Make some.")]
        plugin = Plugin()
    """
    site.backend("watch", source, group="hal.extensions")
    code, found = findings(site)
    assert (code, found["watch"]["state"]) == (1, "ready")
    assert found["watch"]["checks"] == [
        {"title": "watch", "ok": False, "detail": "no room", "hint": "Make some."}
    ]


def test_plugins_are_examined_at_once(site, tmp_path):
    """Each waits until all have started, so they hang where probes take turns."""
    begun = tmp_path / "begun"
    begun.mkdir()
    for family in "ABC":
        meet = f"""
import os, time
os.mkdir(os.path.join({str(begun)!r}, {family!r}))
while len(os.listdir({str(begun)!r})) < 3:
    time.sleep(0.01)
"""
        site.backend(family, meet + PLUGIN)
    code, found = findings(site)
    assert (code, len(found)) == (0, 3)
    assert {one["state"] for one in found.values()} == {"ready"}


# -- settings

NOSY = """# more
from hal_core import config
from hal_core.compiler import CompilerPair
config.declare("HAL_ACC_SPEED", 1, "how fast it is", int)
Plugin.hal_make_compilers = hookimpl(lambda self, device: [
    CompilerPair("fast", "c", lambda: None, lambda: "a compiler"),
    CompilerPair("slow", "c", lambda: None, lambda: 1 / 0),
])
"""
# Those of a dictionary are set in one run, which has one default device and asks for one compiler.
WRONG_SETTINGS = (
    {"HAL_DEVICE=FOO": ("default device", "HAL_DEVICE=FOO asks for it."),
     "HAL_CACHE_LIMIT=abc": ("HAL_CACHE_LIMIT", "expected a size"),
     "HAL_PREFER=abc": ("HAL_PREFER", "expected NAME=value"),
     "HAL_CCACHE=abc": ("HAL_CCACHE", "expected 1 or 0"),
     "HAL_PROFILE=x.txt": ("HAL_PROFILE", "expected 1, 0 or a file: .json"),
     "HAL_DEBUG=abc": ("HAL_DEBUG", "expected 1 or 0"),
     "HAL_CHEK=1": ("HAL_CHEK", "is it HAL_CHECK that you mean?"),
     "HAL_ACC_SPED=1": ("ACC", "is it HAL_ACC_SPEED that you mean?"),
     "HAL_ACC_SPEED=abc": ("ACC", "environment variable HAL_ACC_SPEED: invalid literal"),
     "ACC_CC=foo": ("ACC", "ACC_CC: no such compiler (got 'foo')")},
    {
        "HAL_DEVICE=ACC:7": ("default device", "ACC has 2 devices"),
        "ACC_SLOW=1": ("ACC", "ZeroDivisionError"),
    },
    {"HAL_DEVICE=A B": ("default device", "environment variable HAL_DEVICE: a device is")},
    {"HAL_DEVICE=GPU": ("default device", "there is no device of kind gpu")},
    {"METAL=1": ("default device", "METAL=1 asks for it.")},
)  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG_SETTINGS, ids=lambda wrong: next(iter(wrong)))
def test_a_wrong_setting_is_a_fault(site, wrong):
    """Whatever the setting, what else was found is told too."""
    site.backend("ACC", NOSY)
    code, found = findings(site, env=dict(setting.split("=") for setting in wrong))
    assert code == 1 and set(found) == {"ACC", *(name for name, _ in wrong.values())}
    for setting, (name, text) in wrong.items():
        assert text in json.dumps([found[name]["why"], found[name]["checks"]]), setting


def test_a_setting_that_keeps_one_device_from_opening_is_told_with_it(site):
    site.backend("ACC", PLUGIN)
    done = doctor(site, "'ACC', '--json'", env={"HAL_LRU_LIMIT": "12Q", "HAL_CHEK": "1"})
    found = [row["name"] for row in json.loads(done.stdout)]
    assert found == ["ACC", "HAL_LRU_LIMIT", "HAL_CHEK"]
    assert done.returncode == 1


def test_sound_settings_are_none(site):
    site.backend("ACC", NOSY)
    sound = {"HAL_DEVICE": "acc:1", "HAL_ACC_SPEED": "3", "ACC_CC": "fast", "HAL_LRU": "0"}
    code, found = findings(site, env=sound)
    assert code == 0 and list(found) == ["ACC", "default device"]
    assert found["default device"]["devices"] == ["ACC:1: Fake accelerator"]
    assert found["default device"]["origin"] == "HAL_DEVICE=acc:1"
