"""The driver's interface through ctypes: plain calls, with nobody's binding between."""

import ctypes
import json
import struct

LEGACY = 0
OUT_OF_MEMORY, NOT_INITIALIZED, NOT_READY = 2, 3, 600
# The form that headers mean by the plain name is the newest, but for what came with a new layout.
RENAMED = ("_v3", "_v2", "")
NEWER = ("cuCtxCreate_v3",)


def _argument(value):
    """As a register holds it: the callee takes as many of the bits as it declares."""
    if isinstance(value, int):
        return ctypes.c_uint64(value & (1 << 64) - 1)
    return value


class Calls:
    """Every function as an attribute, which gives the code."""

    def __init__(self, library):
        self._library = library

    def __getattr__(self, name):
        for ending in RENAMED:
            if name + ending not in NEWER and hasattr(self._library, name + ending):
                function = getattr(self._library, name + ending)
                return lambda *values: int(function(*map(_argument, values)))
        raise AttributeError(name)


class Driver:
    """The same, where everything but success is an error of the test; and a few short ways."""

    def __init__(self, path):
        self.library = ctypes.CDLL(str(path))
        self.code = Calls(self.library)
        for name in ("sim_live", "sim_message", "sim_all_calls", "sim_stale"):
            getattr(self.library, name).restype = ctypes.c_char_p
        self.library.sim_calls.restype = ctypes.c_uint64
        self.contexts = {}

    def __getattr__(self, name):
        call = getattr(self.code, name)

        def checked(*values):
            self.succeed(name, call(*values))

        return checked

    def succeed(self, name, code):
        if code:
            raise AssertionError(f"{name} gave {code}: {self.message()}")

    def get(self, name, *values, kind=ctypes.c_uint64):
        """What a function writes to its first argument."""
        out = kind(0)
        getattr(self, name)(ctypes.byref(out), *values)
        return int(out.value)

    # -- contexts

    def start(self):
        self.cuInit(0)
        self.use(0)

    def use(self, device):
        """Makes the device's primary context current."""
        if device not in self.contexts:
            self.contexts[device] = self.get("cuDevicePrimaryCtxRetain", device)
        self.cuCtxSetCurrent(self.contexts[device])
        return self.contexts[device]

    def stop(self):
        self.code.cuCtxSetCurrent(None)
        for device in self.contexts:
            self.cuDevicePrimaryCtxRelease(device)
        self.contexts = {}

    # -- memory

    def alloc(self, nbytes):
        return self.get("cuMemAlloc", nbytes)

    def read(self, address, nbytes):
        out = ctypes.create_string_buffer(nbytes)
        self.cuMemcpyDtoH(out, address, nbytes)
        return out.raw

    def words(self, address, count):
        return struct.unpack(f"{count}I", self.read(address, 4 * count))

    # -- streams, modules, launches

    def stream(self, flags=0):
        return self.get("cuStreamCreate", flags)

    def event(self, flags=0):
        return self.get("cuEventCreate", flags)

    def module(self, text):
        return self.get("cuModuleLoadData", text.encode())

    def function(self, module, name):
        return self.get("cuModuleGetFunction", module, name.encode())

    def launch_code(
        self, function, *arguments, grid=(1, 1, 1), block=(1, 1, 1), shared=0, stream=LEGACY
    ):
        """Arguments are ctypes values; plain numbers are addresses."""
        held = [ctypes.c_uint64(a) if isinstance(a, int) else a for a in arguments]
        pointers = (ctypes.c_void_p * max(1, len(held)))(*(ctypes.addressof(a) for a in held))
        return self.code.cuLaunchKernel(function, *grid, *block, shared, stream, pointers, None)

    def launch(self, function, *arguments, **how):
        self.succeed("cuLaunchKernel", self.launch_code(function, *arguments, **how))

    # -- control

    def live(self, *, zero=True):
        text = json.loads(self.library.sim_live())
        return {name: count for name, count in text.items() if zero or count}

    def message(self):
        return str(self.library.sim_message().decode())

    def delay(self, name, seconds):
        self.library.sim_delay(name.encode(), ctypes.c_uint64(int(seconds * 1e6)))
