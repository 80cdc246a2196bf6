// Entry points: allocation and copies of plain ranges, in the forms that CUDA alone has.
#include "memory_copy.h"

#include "cuda_api.h"

using namespace sim;

namespace {

Status anywhere(const char* name, Address to, Address from, size_t nbytes,
                  CUstream* stream = nullptr) {
    return enter_context(name, [&](Context& context, Lock& lock) {
        if (nbytes == 0) return;
        copy_range(context, lock, name, any_place(to, nbytes), any_place(from, nbytes), nbytes,
                   stream);
    });
}

Status between(const char* name, Address to, ContextHandle to_context, Address from,
                 ContextHandle from_context, size_t nbytes, CUstream* stream = nullptr) {
    return enter_context(name, [&](Context& context, Lock& lock) {
        Context &receiver = context_of(to_context), &sender = context_of(from_context);
        if (nbytes == 0) return;
        Place target = device_place(to, nbytes), source = device_place(from, nbytes);
        need(target.block->context == &receiver && source.block->context == &sender);
        copy_range(context, lock, name, target, source, nbytes, stream);
    });
}

}  // namespace

unsigned sim::memory_type(bool on_host) {
    return on_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr* out, size_t nbytes) {
    return enter_context("cuMemAlloc", [&](Context& context, Lock& lock) {
        need(out != nullptr);
        *out = allocate(lock, context, Kind::Device, nbytes)->address;
    });
}

EXPORT CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t nbytes) {
    return anywhere("cuMemcpy", to, from, nbytes);
}

EXPORT CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t nbytes, CUstream stream) {
    return anywhere("cuMemcpyAsync", to, from, nbytes, &stream);
}

EXPORT CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                             CUcontext from_context, size_t nbytes) {
    return between("cuMemcpyPeer", to, to_context, from, from_context, nbytes);
}

EXPORT CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                                  CUcontext from_context, size_t nbytes, CUstream stream) {
    return between("cuMemcpyPeerAsync", to, to_context, from, from_context, nbytes, &stream);
}
