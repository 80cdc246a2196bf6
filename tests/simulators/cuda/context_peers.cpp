// Entry points: kernels of one device on the memory of another.
#include "context.h"
#include "cuda_api.h"
#include "memory.h"

using namespace sim;

EXPORT CUresult cuDeviceCanAccessPeer(int* out, CUdevice device, CUdevice peer) {
    return enter("cuDeviceCanAccessPeer", [&](Lock&) {
        need(out != nullptr);
        *out = &device_at(device) != &device_at(peer);
    });
}

EXPORT CUresult cuDeviceGetP2PAttribute(int* out, int attribute, CUdevice device, CUdevice peer) {
    return enter("cuDeviceGetP2PAttribute", [&](Lock&) {
        need(out && attribute >= 1 && attribute <= 4);
        need(&device_at(device) != &device_at(peer), INVALID_DEVICE);
        *out = attribute != 1;  // performance rank 0, everything else supported
    });
}

EXPORT CUresult cuCtxEnablePeerAccess(CUcontext handle, unsigned flags) {
    return enter_context("cuCtxEnablePeerAccess", [&](Context& context, Lock&) {
        need(flags == 0);
        Context& peer = context_of(handle);
        need(&peer != &context, INVALID_CONTEXT);
        need(&peer.device != &context.device, PEER_ACCESS_UNSUPPORTED);
        need(!context.peers.count(&peer), PEER_ACCESS_ALREADY_ENABLED);
        context.peers.insert(&peer);
    });
}

EXPORT CUresult cuCtxDisablePeerAccess(CUcontext handle) {
    return enter_context("cuCtxDisablePeerAccess", [&](Context& context, Lock&) {
        Context& peer = context_of(handle);
        need(context.peers.erase(&peer) == 1, PEER_ACCESS_NOT_ENABLED);
        forget_cached_blocks();
    });
}
