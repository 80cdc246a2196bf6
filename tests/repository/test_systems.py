"""Every use of what not all systems have stands in a table, with what the others do instead.

A name that is in neither table is new: look up in Python's documentation which systems have it.
"""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLUGINS = "kernel", "streams", "testing", "cpu", "cuda", "hip", "metal", "opencl", "ray"
PACKAGES = ["hal_core", *(f"plugins/hal-{name}/hal_{name}" for name in PLUGINS)]
MODULES = ("os", "mmap", "ctypes", "signal", "select", "socket", "platform")
# Modules that Windows lacks, or that no other system has.
FOREIGN = ("fcntl", "grp", "msvcrt", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty",
           "winreg")  # fmt: skip

EVERYWHERE = {
    "os": """DirEntry O_CREAT O_RDONLY O_RDWR O_WRONLY PathLike R_OK SEEK_SET W_OK X_OK _exit access
        close cpu_count devnull dup dup2 environ fdopen fsdecode fsencode fstat fspath getpid kill
        listdir lseek lstat makedirs mkdir name open path pipe read replace scandir sep stat
        stat_result strerror truncate unlink urandom utime waitpid waitstatus_to_exitcode walk
        write""",
    "mmap": "PAGESIZE mmap",
    "ctypes": """Array CDLL CFUNCTYPE POINTER PYFUNCTYPE PyDLL Structure addressof byref c_char
        c_char_p c_float c_int c_int32 c_int64 c_size_t c_ssize_t c_ubyte c_uint c_uint16 c_uint32
        c_uint64 c_uint8 c_ulonglong c_ushort c_void_p cast create_string_buffer get_errno memmove
        memset py_object pythonapi sizeof string_at""",
    "signal": """default_int_handler getsignal SIG_DFL SIG_IGN SIGABRT SIGFPE SIGILL SIGINT
        signal Signals SIGSEGV SIGTERM""",
    "select": "",
    "socket": "create_connection",
    "platform": "machine platform python_version system",
}

# file -> names -> what holds on the systems that lack them
ONLY_SOME = {
    "hal_core/buffer/files.py": {
        "os.posix_fallocate os.preadv os.pwritev":
            "asked for with hasattr; the others seek, and see a full disk when they write",
    },
    "plugins/hal-kernel/hal_kernel/cli/arguments.py": {
        "os.sysconf": "Windows raises an AttributeError, and the limit is 4 GiB there",
    },
    "hal_core/compiler/cache.py": {
        "os.geteuid": "asked for with hasattr; Windows keeps other users out of the folder",
    },
    "hal_core/concurrency/fork.py": {
        "os.register_at_fork": "asked for with hasattr; Windows has no fork to prepare for",
    },
    "plugins/hal-kernel/hal_kernel/python/device.py": {
        "os.sysconf": "not asked on Windows, where the size of the memory is unknown",
    },
    "plugins/hal-testing/hal_testing/conformance/forked.py": {
        "os.fork signal.SIGKILL select.select": "the tests of forks skip where there is no os.fork",
    },
    "plugins/hal-cpu/hal_cpu/checked/child_process.py": {
        "os.WIFSIGNALED os.WNOHANG os.WTERMSIG signal.SIGBUS signal.SIGKILL signal.SIGTRAP":
            "imported on Linux alone: CheckedDevice.make_program raises Unsupported elsewhere",
    },
    "plugins/hal-cpu/hal_cpu/checked/native.py": {
        "signal.SIGBUS signal.SIGTRAP": "imported on Linux alone, as child_process.py",
    },
    "plugins/hal-cpu/hal_cpu/compilers/source.py": {"ctypes.c_long": "every system has one"},
    "plugins/hal-cpu/hal_cpu/processor.py": {
        "os.sched_getaffinity": "macOS has no affinity: all processors count; Windows has its own",
        "os.sysconf": "Windows is asked with GlobalMemoryStatusEx",
    },
    "plugins/hal-cpu/hal_cpu/system/posix.py": {
        "import resource resource.RLIMIT_STACK resource.RLIM_INFINITY resource.getrlimit "
        "mmap.MAP_ANONYMOUS mmap.MAP_PRIVATE mmap.PROT_READ mmap.PROT_WRITE ctypes.c_long":
            "windows.py has the same functions, and driver.py chooses",
    },
    "plugins/hal-cpu/hal_cpu/system/linux.py": {
        "ctypes.c_ulong": "macos.py and windows.py have the same function; processor.py chooses",
    },
    "plugins/hal-cpu/hal_cpu/system/windows.py": {
        "import winreg ctypes.FormatError ctypes.WinDLL ctypes.get_last_error":
            "posix.py and linux.py have the same functions",
    },
    "plugins/hal-opencl/hal_opencl/build_lock.py": {
        "import fcntl fcntl.LOCK_EX fcntl.lockf": "not on Windows, where threads alone take turns",
    },
    "plugins/hal-opencl/hal_opencl/stderr.py": {
        "os.memfd_create os.pread": "on Linux alone: elsewhere what PoCL prints stays on stderr",
    },
}  # fmt: skip


def uses(text):
    """`os.fork` for each use of a listed module's name, `import x` for each foreign module."""
    found, imported = set(), set()
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in (*MODULES, *FOREIGN):
            found |= {f"{node.module}.{one.name}" for one in node.names}
        elif isinstance(node, ast.Import):
            imported |= {one.name for one in node.names}
    known = {*MODULES, *FOREIGN} & imported
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=module)) if module in known:
                found.add(f"{module}.{node.attr}")
    return found | {f"import {name}" for name in imported & {*FOREIGN}}


def listed(file):
    """What the second table has of a file."""
    rows = " ".join(ONLY_SOME.get(file, {})).replace("import ", "import_")
    return {name.replace("import_", "import ") for name in rows.split()}


def unlisted(file, text):
    everywhere = {f"{name}.{one}" for name, names in EVERYWHERE.items() for one in names.split()}
    return uses(text) - everywhere - listed(file)


FILES = {
    str(path.relative_to(ROOT)): path
    for package in PACKAGES
    for path in sorted((ROOT / package).rglob("*.py"))
}


def test_every_use_is_listed():
    found = {
        file: names
        for file, path in FILES.items()
        if (names := unlisted(file, path.read_text(encoding="utf-8")))
    }
    assert not found


@pytest.mark.parametrize("file", ONLY_SOME)
def test_what_is_listed_is_used(file):
    assert listed(file) <= uses(FILES[file].read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "text",
    ["import os\nos.getuid()", "from os import mkfifo", "import fcntl", "import signal\n"
     "signal.SIGUSR1", "import socket\nsocket.AF_UNIX", "import mmap\nmmap.MAP_SHARED"],
)  # fmt: skip
def test_a_new_use_is_found(text):
    assert unlisted("hal_core/compiler/cache.py", text)


@pytest.mark.parametrize("workflow", ["systems", "release"])
def test_a_workflow_runs_sessions_that_exist(workflow):
    noxfile = (ROOT / "noxfile.py").read_text(encoding="utf-8")
    sessions = {node.name for node in ast.parse(noxfile).body if isinstance(node, ast.FunctionDef)}
    text = (ROOT / f".github/workflows/{workflow}.yml").read_text(encoding="utf-8")
    named = re.findall(r'nox -s "?(\w+)', text)
    assert len(named) >= 2 and set(named) <= sessions
