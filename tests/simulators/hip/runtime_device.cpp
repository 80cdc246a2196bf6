// Entry points: coming up, and a thread's device. HIP has no contexts but the one of each device.
#include <cstdlib>
#include <cstring>

#include "faults.h"
#include "memory.h"
#include "runtime.h"
#include "stream.h"

using namespace sim;

// "6.3" and "60342134" both.
void VendorSettings::read() {
    if (auto text = setting("VERSION")) {
        const char* dot = std::strchr(text, '.');
        version = dot ? std::atoi(text) * 10'000'000 + std::atoi(dot + 1) * 100'000
                      : std::atoi(text);
    }
    fault_aborts = setting("FAULT") && std::strcmp(setting("FAULT"), "abort") == 0;
}

// Every call starts the runtime.
void sim::wake() { initialize(); }

int& sim::current_device() {
    thread_local int device = 0;
    return device;
}

Context& sim::context_of_device(int ordinal) {
    Device& device = device_at(ordinal);
    if (!device.primary) {
        device.primary = make_context(device, device.primary_flags);
        device.primary->primary = true;
        device.retained = 1;
    }
    return *device.primary;
}

Context& sim::current(bool even_failed) {
    Context& context = context_of_device(current_device());
    if (!even_failed) check(context);
    return context;
}

EXPORT Status hipInit(unsigned flags) {
    return enter("hipInit", [&](Lock&) { need(flags == 0); });
}

EXPORT Status hipGetDeviceCount(int* out) {
    if (out) *out = 0;  // also where there is none, which is a failure
    return enter("hipGetDeviceCount", [&](Lock&) {
        need(out != nullptr);
        *out = int(driver().devices.size());
    });
}

EXPORT Status hipSetDevice(int ordinal) {
    return enter("hipSetDevice", [&](Lock&) {
        device_at(ordinal);
        current_device() = ordinal;
    });
}

EXPORT Status hipGetDevice(int* out) {
    return enter("hipGetDevice", [&](Lock&) {
        need(out != nullptr);
        *out = current_device();
    });
}

EXPORT Status hipDeviceGet(int* out, int ordinal) {
    return enter("hipDeviceGet", [&](Lock&) {
        need(out != nullptr);
        *out = device_at(ordinal).ordinal;
    });
}

EXPORT Status hipDeviceSynchronize() {
    return enter_context("hipDeviceSynchronize",
                         [](Context& context, Lock& lock) { wait_for_all(lock, context); });
}

// The device's memory, streams, events and modules are gone, and so is a fault.
EXPORT Status hipDeviceReset() {
    return enter("hipDeviceReset", [](Lock& lock) {
        Device& device = device_at(current_device());
        if (!device.primary) return;
        Context& context = *device.primary;
        device.primary = nullptr;
        device.retained = 0;
        destroy(lock, context);
    });
}

EXPORT Status hipDeviceCanAccessPeer(int* out, int device, int peer) {
    return enter("hipDeviceCanAccessPeer", [&](Lock&) {
        need(out != nullptr);
        *out = &device_at(device) != &device_at(peer);
    });
}

namespace {

Status version(const char* name, int* out) {
    return enter(name, [&](Lock&) {
        need(out != nullptr);
        *out = driver().settings.version;
    });
}

}  // namespace

EXPORT Status hipRuntimeGetVersion(int* out) { return version("hipRuntimeGetVersion", out); }
EXPORT Status hipDriverGetVersion(int* out) { return version("hipDriverGetVersion", out); }
