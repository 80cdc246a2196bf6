// Entry points: device and managed memory.
#include "memory.h"

using namespace sim;

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr* out, size_t nbytes) {
    return enter_context("cuMemAlloc", [&](Context& context, Lock& lock) {
        need(out != nullptr);
        *out = allocate(lock, context, Kind::Device, nbytes)->address;
    });
}

EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr* out, size_t* pitch, size_t width, size_t height,
                                   unsigned element) {
    return enter_context("cuMemAllocPitch", [&](Context& context, Lock& lock) {
        need(out && pitch && width > 0 && height > 0);
        need(element == 4 || element == 8 || element == 16);
        uint64_t row = (width + 511) / 512 * 512;
        *out = allocate(lock, context, Kind::Device, row * height)->address;
        *pitch = row;
    });
}

EXPORT CUresult cuMemAllocManaged(CUdeviceptr* out, size_t nbytes, unsigned flags) {
    return enter_context("cuMemAllocManaged", [&](Context& context, Lock& lock) {
        need(out != nullptr);
        need(flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST);
        *out = allocate(lock, context, Kind::Managed, nbytes)->address;
    });
}

// Waits for the work of the memory's context, as the vendor's does; not for a pool's memory.
EXPORT CUresult cuMemFree_v2(CUdeviceptr address) {
    return enter_context("cuMemFree", [&](Context&, Lock& lock) {
        if (address == 0) return;
        auto block = owned_block(address);
        block->free_under_way = true;
        if (!block->pool) wait_for_all(lock, *block->context);
        release(block);
    });
}

EXPORT CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
    return enter_context("cuMemGetInfo", [&](Context& context, Lock&) {
        need(free && total);
        *total = driver().settings.memory_nbytes;
        *free = *total - context.device.used_nbytes;
    });
}

EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* nbytes, CUdeviceptr address) {
    return enter_context("cuMemGetAddressRange", [&](Context&, Lock&) {
        auto block = block_at(address);
        need(block != nullptr, CUDA_ERROR_NOT_FOUND);
        if (base) *base = block->address;
        if (nbytes) *nbytes = block->nbytes;
    });
}
