// Entry points: the context that all users of a device share.
#include "context.h"
#include "cuda_api.h"

using namespace sim;

// A retained context that failed stays failed: only a reset, or the last release, takes it away.
EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext* out, CUdevice ordinal) {
    return enter("cuDevicePrimaryCtxRetain", [&](Lock&) {
        Device& device = device_at(ordinal);
        need(out != nullptr);
        if (!device.primary) {
            device.primary = make_context(device, device.primary_flags);
            device.primary->primary = true;
        }
        ++device.retained;
        *out = device.primary->handle;
    });
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice ordinal) {
    return enter("cuDevicePrimaryCtxRelease", [&](Lock& lock) {
        Device& device = device_at(ordinal);
        need(device.retained > 0, INVALID_CONTEXT);
        if (--device.retained > 0) return;
        Context& context = *device.primary;
        device.primary = nullptr;
        destroy(lock, context);
    });
}

// Whoever still holds the old context finds it destroyed, and has to retain anew.
EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice ordinal) {
    return enter("cuDevicePrimaryCtxReset", [&](Lock& lock) {
        Device& device = device_at(ordinal);
        if (!device.primary) return;
        Context& context = *device.primary;
        device.primary = nullptr;
        device.retained = 0;
        destroy(lock, context);
    });
}

EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned* flags, int* active) {
    return enter("cuDevicePrimaryCtxGetState", [&](Lock&) {
        Device& device = device_at(ordinal);
        if (flags) *flags = device.primary_flags;
        if (active) *active = device.primary != nullptr;
    });
}
