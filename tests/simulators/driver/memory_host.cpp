// Entry points: host memory that the device can reach.
#include "memory.h"

using namespace sim;

namespace {

std::shared_ptr<Block> host_block(void* pointer) {
    auto block = block_at(reinterpret_cast<uint64_t>(pointer));
    need(block && block->on_host());
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
        free_host(lock, host_block(pointer));
    });
}
