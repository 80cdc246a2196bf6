"""Find devices, build programs, turn errors into exceptions of hal-core: all use of PyOpenCL.

Other modules take `cl` and `inner` from here. Kernel arguments and builds go through PyOpenCL's
inner `_Program` and `Kernel._set_arg_*`, the layer that its own launch code is generated for. The
outer layer has a second compile cache, adds options from the environment, warns about every build
log and takes 25 us to set six arguments.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import starmap
from typing import Any, NamedTuple

import platformdirs

from hal_core import concurrency
from hal_core.buffer.host import word_at
from hal_core.errors import (
    CompileError,
    DeviceFault,
    DeviceUnavailable,
    HalError,
    InvalidArgument,
    OutOfMemory,
)
from hal_opencl.stderr import quietly

__all__ = [
    "COMPLETE", "STATUS", "BuildError", "Program", "argument_facts", "argument_setters",
    "argument_spaces", "binary_of", "build", "check", "cl", "enqueue_read", "enqueue_write",
    "explain", "fact", "failed_work", "find_devices", "find_kernel", "has_old_pocl",
    "identity_of", "inner", "is_pocl", "is_simulator", "kept_event", "kernel_facts",
    "kernel_names", "kind_of", "local_arguments", "may_be_memory", "open_queue",
    "raise_failure", "sentence",
]  # fmt: skip

INSTALL = (
    "Install the vendor's OpenCL driver; for the CPU the package pocl-opencl-icd, or "
    "pip install pocl-binary-distribution, which needs a linker (ld). Then see clinfo."
)

try:
    import pyopencl as cl
    from pyopencl import _cl as inner
except ImportError as _error:
    raise DeviceUnavailable(
        "enumerate OPENCL", f"PyOpenCL cannot be loaded: {_error}", fix=INSTALL
    ) from _error

# PyOpenCL stores generated launch code in the user's cache folder, and fails without one.
_folder = platformdirs.user_cache_dir("pytools", "pytools")
_writable = False
with concurrency.suppress(OSError):
    os.makedirs(_folder, exist_ok=True)
    _writable = os.access(_folder, os.W_OK)
if not _writable:
    vars(cl)["_PYOPENCL_NO_CACHE"] = True

Program = inner._Program
COMPLETE = cl.command_execution_status.COMPLETE  # pending work is above it, failures are below
STATUS = cl.event_info.COMMAND_EXECUTION_STATUS  # of an event: `get_info` has a call less
TIMED = cl.command_queue_properties.PROFILING_ENABLE  # a queue with timestamps

# Arguments: queue, memory, host memory, byte offset, events to wait for, blocking. `enqueue_copy`
# ends in these; its dispatch costs 1 us of the 5 that a small copy takes.
enqueue_read = inner._enqueue_read_buffer
enqueue_write = inner._enqueue_write_buffer


_SIMULATORS = ("oclgrind",)  # platforms that interpret kernels: correct, and very slow
_status = cl.status_code
_KINDS: dict[int, type[HalError]] = {
    _status.DEVICE_NOT_FOUND: DeviceUnavailable,
    _status.DEVICE_NOT_AVAILABLE: DeviceUnavailable,
    _status.MEM_OBJECT_ALLOCATION_FAILURE: OutOfMemory,
    _status.OUT_OF_HOST_MEMORY: OutOfMemory,
    _status.OUT_OF_RESOURCES: DeviceFault,  # what drivers say of a wild kernel access, too
    _status.EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST: DeviceFault,
    _status.INVALID_BUFFER_SIZE: OutOfMemory,
    _status.INVALID_ARG_SIZE: InvalidArgument,
    _status.INVALID_ARG_VALUE: InvalidArgument,
    _status.INVALID_WORK_GROUP_SIZE: InvalidArgument,
    _status.INVALID_WORK_ITEM_SIZE: InvalidArgument,
    _status.INVALID_MEM_OBJECT: InvalidArgument,
}


def sentence(error: cl.Error) -> str:
    """Return all that the exception knows: the call, the code's name and what the binding adds."""
    name: Any = _status.to_string
    text = f"{error.routine} failed with {name(error.code, 'code %d')}"
    record: Any = error.what
    more = str(record.what()).strip()
    return f"{text}: {more}" if more else text


def explain(error: cl.Error, operation: str, device: str | None = None, last: str = "") -> HalError:
    """Return the exception of hal-core for a refusal, with the call, the code and its name.

    `last` is the program launched last, which a failed wait names.
    """
    kind, problem, fix = _KINDS.get(error.code, HalError), sentence(error), None
    if operation == "allocate" and error.code == _status.OUT_OF_RESOURCES:
        kind = OutOfMemory
    if operation in ("copyin", "copyout") and error.code == _status.INVALID_OPERATION:
        fix = (
            "The memory object was made without access for the host, as with HOST_NO_ACCESS: copy "
        )
        fix += "between it and a buffer of this device by copy_from."
    if operation == "wait":  # whatever the code is: it is about work that was queued before
        kind = DeviceFault
        problem += f", the last program launched was {last}" if last else ""
        fix = "Look for an index beyond a buffer; Oclgrind names it. Then open the device again."
    return kind(operation, problem, got=error.code, device=device, fix=fix)


class check:
    """`with check("allocate", name):` turns refused calls inside into exceptions of hal-core."""

    # A class: contextlib's generators leave a cycle, which would keep the caller's buffers alive.

    __slots__ = ("device", "operation")

    def __init__(self, operation: str, device: str | None = None) -> None:
        self.operation, self.device = operation, device

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, cl.Error):
            raise explain(error, self.operation, self.device) from None


def kept_event(
    kept: list[cl.Event], enqueue: Callable[..., cl.Event], args: tuple[Any, ...]
) -> cl.Event:
    """Queue a copy to or from the host, and keep its event in a list, in one step.

    Ctrl-C as the call returns would drop the event, and PyOpenCL's waits for its command then. It
    has the GIL meanwhile: what the command waits for might never happen.
    """
    kept.extend(starmap(enqueue, (args,)))
    return kept[-1]


def raise_failure(event: cl.Event) -> None:
    """Raise cl.Error if the work of a complete event failed."""
    status = event.command_execution_status
    if status < 0:
        raise failed_work(status)


def failed_work(status: int) -> cl.Error:
    """Return the exception for work that ended with a status below COMPLETE."""
    return cl.Error(inner._ErrorRecord(msg="", code=status, routine="queued work"))


# -- devices


def find_devices() -> list[cl.Device]:
    """Return every device of every platform, GPUs first, simulators last; the order is stable.

    Raises: DeviceUnavailable when there is none.
    """
    try:
        platforms = cl.get_platforms()
    except cl.Error as error:
        raise DeviceUnavailable(
            "enumerate OPENCL", f"no OpenCL platform is installed: {sentence(error)}", fix=INSTALL
        ) from None
    found = []
    for platform in platforms:
        # Of two versions of one platform the newer one is first.
        version = [-int(digits) for digits in re.findall(r"\d+", platform.version)]
        try:
            devices = platform.get_devices()
        except cl.Error:  # DEVICE_NOT_FOUND: a driver without its hardware
            continue
        for position, device in enumerate(devices):
            place = ["gpu", "accelerator", "cpu"].index(kind_of(device))
            found.append((is_simulator(device), place, platform.name, version, position, device))
    if not found:
        names = ", ".join(platform.name for platform in platforms)
        raise DeviceUnavailable(
            "enumerate OPENCL",
            f"no platform has a device (installed: {names})",
            fix="PoCL needs a cache folder it can write: set POCL_CACHE_DIR. " + INSTALL,
        )
    found.sort(key=lambda row: row[:-1])
    return [row[-1] for row in found]


def kind_of(device: cl.Device) -> str:
    """Return "cpu", "gpu" or "accelerator"."""
    # A simulator claims every type at once: it runs on the CPU.
    if device.type & cl.device_type.CPU:
        return "cpu"
    return "gpu" if device.type & cl.device_type.GPU else "accelerator"


def fact(device: cl.Device, name: str) -> int | None:
    """Return a fact that one vendor's devices tell; None for others."""
    try:
        return int(getattr(device, name)) or None
    except (AttributeError, cl.Error):
        return None


def is_simulator(device: cl.Device) -> bool:
    return device.platform.name.strip().lower() in _SIMULATORS


def is_pocl(device: cl.Device) -> bool:
    return bool(device.platform.name.startswith("Portable Computing"))


def has_old_pocl(device: cl.Device) -> bool:
    """Tell whether the device is PoCL's, of a version before 4."""
    return is_pocl(device) and int(device.driver_version.partition(".")[0]) < 4


def identity_of(device: cl.Device) -> str:
    """Return the facts that, with the text and the options, decide the machine code."""
    platform = device.platform
    facts: tuple[str, ...] = (
        platform.name, platform.version, device.name, device.version, device.driver_version,
    )  # fmt: skip
    if is_pocl(device):
        facts += (os.environ.get("POCL_EXTRA_BUILD_FLAGS", ""),)
    return ", ".join(fact.strip() for fact in facts if fact)


def open_queue(
    device: cl.Device, name: str, context: cl.Context | None = None
) -> tuple[cl.Context, cl.CommandQueue]:
    """Make an in-order queue with timestamps, and a context unless one is given.

    Raises: DeviceUnavailable.
    """
    try:
        context = context or cl.Context([device])
        return context, cl.CommandQueue(context, device, TIMED)
    except cl.Error as error:
        raise DeviceUnavailable(
            "open", sentence(error), got=error.code, device=name,
            fix="See clinfo for the state of the driver.",
        ) from None  # fmt: skip


# -- memory of others


def may_be_memory(pointer: int, context: cl.Context) -> bool:
    """Tell whether a live memory object of the context's platform can be at an address.

    Drivers follow any address that they are given, and many end the process at a wrong one.
    Source: cl_khr_icd: every object begins with the address of its platform's function table.
    """
    found = word_at(pointer)  # first: the next object may lie where one was freed
    known = cl.Buffer(context, cl.mem_flags.READ_WRITE, 1)
    return found is not None and found == word_at(known.int_ptr)


# -- programs


class BuildError(Exception):
    """The platform's compiler refused a program; `log` is all that it said."""

    def __init__(self, problem: str, log: str) -> None:
        super().__init__(problem)
        self.problem, self.log = problem, log


def build(context: cl.Context, code: str | bytes, options: tuple[str, ...] = ()) -> Program:
    """Build a program from text or from a platform's binary, under `build_lock`.

    Raises: BuildError.
    """
    (device,) = context.devices
    given = (code,) if isinstance(code, str) else ([device], [code])
    flags = " ".join(options).encode()
    # The compilers that chatter run in this process, and need no open file of it.
    talks = kind_of(device) == "cpu" and (is_pocl(device) or is_simulator(device))
    tries = 4
    while True:
        program, tries = None, tries - 1
        try:
            program = Program(context, *given)
            work = partial(program._build, flags, [device])
            quietly(work) if talks else work()
            return program
        except cl.Error as error:
            log = None
            if program is not None:
                with suppress(cl.Error):
                    log = program.get_build_info(device, cl.program_build_info.LOG)
            text = str(log or "").replace("\0", "")
            # At Ctrl-C, LLVM's own handler deletes the files of builds in all threads of a process.
            if not tries or "unable to rename temporary" not in text:
                raise BuildError(sentence(error), text) from None


def binary_of(program: Program) -> bytes:
    """Return the machine code, which is empty where a platform does not give it."""
    try:
        binaries: Any = program.get_info(cl.program_info.BINARIES)
    except cl.Error:
        return b""
    return bytes(binaries[0] or b"")


def kernel_names(program: Program) -> list[str]:
    """Return the names of a program's kernels."""
    listed = str(program.get_info(cl.program_info.KERNEL_NAMES))
    return [name for name in listed.split(";") if name]


def find_kernel(program: Program, entry: str, operation: str, device: str) -> cl.Kernel:
    """Find the entry of a program. Raises: CompileError with the names that it has."""
    names = kernel_names(program)
    if entry not in names:
        raise CompileError(
            operation,
            f"the program has no __kernel {entry!r}, it has {', '.join(names) or 'none'}",
            device=device,
        )
    return cl.Kernel(program, entry)


def argument_spaces(kernel: cl.Kernel) -> list[str]:
    """Return for each argument "global", "local", "constant" or "private".

    The list is empty where the platform does not know: PoCL leaves it out of binaries.
    """
    qualifier = cl.kernel_arg_address_qualifier
    words: dict[object, str] = {
        qualifier.GLOBAL: "global", qualifier.LOCAL: "local",
        qualifier.CONSTANT: "constant", qualifier.PRIVATE: "private",
    }  # fmt: skip
    found = _argument_facts(kernel, cl.kernel_arg_info.ADDRESS_QUALIFIER)
    return [words.get(space, "unknown") for space in found]


def argument_facts(kernel: cl.Kernel) -> list[tuple[str, str, str, bool, str]]:
    """Return each argument's name, type as the kernel writes it ("float*", "struct pair*"), address
    space, whether it is const, and of an image the access: "read_only".

    The list is empty where the platform does not know.
    """
    info = cl.kernel_arg_info
    const = cl.kernel_arg_type_qualifier.CONST
    names, types, qualifiers, accesses = (
        _argument_facts(kernel, fact)
        for fact in (info.NAME, info.TYPE_NAME, info.TYPE_QUALIFIER, info.ACCESS_QUALIFIER)
    )
    access: Any = cl.kernel_arg_access_qualifier.to_string
    images = [access(one).lower() for one in accesses] or ["none"] * len(names)
    consts = [bool(one & const) for one in qualifiers]
    return list(zip(names, types, argument_spaces(kernel), consts, images, strict=False))


def _argument_facts(kernel: cl.Kernel, fact: cl.kernel_arg_info) -> list[Any]:
    try:
        return [kernel.get_arg_info(index, fact) for index in range(kernel.num_args)]
    except cl.Error:
        return []


def local_arguments(kernel: cl.Kernel) -> list[int]:
    """Return the numbers of the arguments that are __local memory.

    By trying, as platforms leave what is known of arguments out of their binaries.
    """
    found: list[int] = []
    memory: Any = cl.LocalMemory(1)
    for index in range(kernel.num_args):
        with suppress(cl.Error):
            kernel.set_arg(index, memory)
            found.append(index)
    return found


class KernelFacts(NamedTuple):
    """Facts of a loaded kernel, as the platform gives them."""

    max_block_threads: int
    shared_nbytes: int  # per block
    private_nbytes: int  # per thread
    block_multiple: int
    block: tuple[int, int, int] | None  # the only one that it runs with


def kernel_facts(kernel: cl.Kernel, device: cl.Device) -> KernelFacts:
    """Ask the platform for a kernel's facts."""
    info = cl.kernel_work_group_info
    facts: tuple[Any, ...] = (
        info.WORK_GROUP_SIZE, info.LOCAL_MEM_SIZE, info.PRIVATE_MEM_SIZE,
        info.PREFERRED_WORK_GROUP_SIZE_MULTIPLE,
    )  # fmt: skip
    fixed: Any = tuple(kernel.get_work_group_info(info.COMPILE_WORK_GROUP_SIZE, device))
    found: list[Any] = [kernel.get_work_group_info(fact, device) for fact in facts]
    found.append(fixed if any(fixed) else None)
    return KernelFacts(*found)


def argument_setters(kernel: cl.Kernel) -> tuple[Callable[..., None], Callable[..., None]]:
    """Return two functions that set a kernel's arguments: memory and numbers.

    They take (index, memory, index, memory, ...) and (index, bytes, index, bytes, ...).
    """
    inner: Any = kernel
    return inner._set_arg_multi, inner._set_arg_buf_multi
