// Entry points: host memory that the device can reach.
#include <sys/mman.h>

#include "memory.h"

using namespace sim;

namespace {

std::shared_ptr<Block> host_block(void* pointer, Kind kind, Status otherwise) {
    auto block = block_at(reinterpret_cast<uint64_t>(pointer));
    need(block && block->kind == kind, otherwise);
    need(block->address == reinterpret_cast<uint64_t>(pointer) && !block->free_under_way);
    return block;
}

void* allocate_host(Lock& lock, Context& context, size_t nbytes, unsigned flags) {
    auto block = allocate(lock, context, Kind::Pinned, nbytes);
    block->flags = flags;
    return block->bytes;
}

void free_host(Lock& lock, const std::shared_ptr<Block>& block) {
    block->free_under_way = true;
    wait_for_all(lock, *block->context);
    release(block);
}

// Real drivers ask the system to pin the pages, which fails where there are none.
bool mapped(void* pointer, size_t nbytes) {
    uint64_t start = reinterpret_cast<uint64_t>(pointer) / 4096 * 4096;
    uint64_t end = reinterpret_cast<uint64_t>(pointer) + nbytes;
    return msync(reinterpret_cast<void*>(start), end - start, MS_ASYNC) == 0;
}

}  // namespace

EXPORT Status ENTRY(cuMemHostAlloc, hipHostMalloc)(void** out, size_t nbytes, unsigned flags) {
    return enter_context(NAME(cuMemHostAlloc, hipHostMalloc), [&](Context& context, Lock& lock) {
        need(out && (flags & ~HOST_FLAGS) == 0);
        *out = allocate_host(lock, context, nbytes, flags);
    });
}

EXPORT Status ENTRY(cuMemAllocHost_v2, hipMemAllocHost)(void** out, size_t nbytes) {
    return enter_context(NAME(cuMemAllocHost, hipMemAllocHost), [&](Context& context, Lock& lock) {
        need(out != nullptr);
        *out = allocate_host(lock, context, nbytes, MAPPED);
    });
}

EXPORT Status ENTRY(cuMemFreeHost, hipHostFree)(void* pointer) {
    return enter_context(NAME(cuMemFreeHost, hipHostFree), [&](Context&, Lock& lock) {
        free_host(lock, host_block(pointer, Kind::Pinned, INVALID_VALUE));
    });
}

EXPORT Status ENTRY(cuMemHostGetFlags, hipHostGetFlags)(unsigned* out, void* pointer) {
    return enter_context(NAME(cuMemHostGetFlags, hipHostGetFlags), [&](Context&, Lock&) {
        need(out != nullptr);
        *out = host_block(pointer, Kind::Pinned, INVALID_VALUE)->flags;
    });
}

EXPORT Status ENTRY(cuMemHostGetDevicePointer_v2, hipHostGetDevicePointer)(Address* out, void* pointer, unsigned flags) {
    return enter_context(NAME(cuMemHostGetDevicePointer, hipHostGetDevicePointer), [&](Context&, Lock&) {
        need(out && flags == 0);
        auto block = block_at(reinterpret_cast<uint64_t>(pointer));
        need(block && block->on_host() && !block->free_under_way);
        *out = reinterpret_cast<uint64_t>(pointer);
    });
}

EXPORT Status ENTRY(cuMemHostRegister_v2, hipHostRegister)(void* pointer, size_t nbytes, unsigned flags) {
    return enter_context(NAME(cuMemHostRegister, hipHostRegister), [&](Context& context, Lock&) {
        need(pointer && nbytes > 0 && (flags & ~0xfu) == 0 && mapped(pointer, nbytes));
        add_registered(context, pointer, nbytes)->flags = flags;
    });
}

EXPORT Status ENTRY(cuMemHostUnregister, hipHostUnregister)(void* pointer) {
    return enter_context(NAME(cuMemHostUnregister, hipHostUnregister), [&](Context&, Lock& lock) {
        need(pointer != nullptr);
        free_host(lock, host_block(pointer, Kind::Registered,
                                   HOST_MEMORY_NOT_REGISTERED));
    });
}
