// Entry points: device and managed memory.
#include "memory.h"

using namespace sim;

EXPORT Status ENTRY(cuMemAllocManaged, hipMallocManaged)(Address* out, size_t nbytes, unsigned flags) {
    return enter_context(NAME(cuMemAllocManaged, hipMallocManaged), [&](Context& context, Lock& lock) {
        need(out != nullptr);
        need(flags == ATTACH_GLOBAL || flags == ATTACH_HOST);
        *out = allocate(lock, context, Kind::Managed, nbytes)->address;
    });
}

// Waits for the work of the memory's context, as the vendor's does; not for a pool's memory.
EXPORT Status ENTRY(cuMemFree_v2, hipFree)(Address address) {
    return enter_context(NAME(cuMemFree, hipFree), [&](Context&, Lock& lock) {
        if (address == 0) return;
        auto block = owned_block(address);
        block->free_under_way = true;
        if (!block->pool) wait_for_all(lock, *block->context);
        release(block);
    });
}

EXPORT Status ENTRY(cuMemGetInfo_v2, hipMemGetInfo)(size_t* free, size_t* total) {
    return enter_context(NAME(cuMemGetInfo, hipMemGetInfo), [&](Context& context, Lock&) {
        need(free && total);
        *total = driver().settings.memory_nbytes;
        *free = *total - context.device.used_nbytes;
    });
}

EXPORT Status ENTRY(cuMemGetAddressRange_v2, hipMemGetAddressRange)(Address* base, size_t* nbytes, Address address) {
    return enter_context(NAME(cuMemGetAddressRange, hipMemGetAddressRange), [&](Context&, Lock&) {
        auto block = block_at(address);
        need(block != nullptr, NOT_FOUND);
        if (base) *base = block->address;
        if (nbytes) *nbytes = block->nbytes;
    });
}
