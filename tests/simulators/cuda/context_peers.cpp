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
