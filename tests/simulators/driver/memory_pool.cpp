// Entry points: memory in stream order, and its pools.
#include <algorithm>
#include <cstring>

#include "memory.h"

using namespace sim;

namespace {

void allocate_from(Lock& lock, Stream& stream, const std::shared_ptr<Pool>& pool, Address* out,
                   size_t nbytes) {
    need(out != nullptr);
    need(&pool->device == &stream.context.device);
    need(pool->maximum == 0 || pool->used_nbytes + nbytes <= pool->maximum,
         OUT_OF_MEMORY);
    for (auto& kept : pool->kept)
        if (kept.nbytes >= nbytes && (kept.waited_for || kept.stream == &stream)) {
            kept.nbytes -= nbytes;  // used again, without a wait
            pool->device.used_nbytes -= nbytes;
            break;
        }
    auto block = allocate(lock, stream.context, Kind::Device, nbytes);
    block->pool = pool;
    pool->used_nbytes += nbytes;
    pool->used_high = std::max(pool->used_high, pool->used_nbytes);
    *out = block->address;
}

// Where an attribute is, and how wide: the first three are ints, the others 64 bits.
template <class Int, class Wide>
void with_attribute(Pool& pool, unsigned attribute, Int on_int, Wide on_wide) {
    switch (attribute) {
        case 1: case 2: case 3: on_int(pool.reuse[attribute - 1]); return;
        case POOL_RELEASE_THRESHOLD: on_wide(pool.release_threshold); return;
        case POOL_RESERVED_MEM_CURRENT: {
            uint64_t all = pool.used_nbytes;
            for (auto& kept : pool.kept) all += kept.nbytes;
            on_wide(all);
            return;
        }
        case POOL_USED_MEM_CURRENT: on_wide(pool.used_nbytes); return;
        case POOL_RESERVED_MEM_HIGH:
        case POOL_USED_MEM_HIGH: on_wide(pool.used_high); return;
        default: refuse(INVALID_VALUE);
    }
}

Status pool_of(const char* name, PoolHandle* out, int ordinal,
                 std::shared_ptr<Pool> Device::* which) {
    return enter(name, [&](Lock&) {
        need(out != nullptr);
        *out = (device_at(ordinal).*which)->handle;
    });
}

}  // namespace

EXPORT Status ENTRY(cuMemAllocAsync, hipMallocAsync)(Address* out, size_t nbytes, StreamHandle handle) {
    return enter_context(NAME(cuMemAllocAsync, hipMallocAsync), [&](Context& context, Lock& lock) {
        auto stream = stream_of(context, handle);
        allocate_from(lock, *stream, stream->context.device.pool, out, nbytes);
    });
}

EXPORT Status ENTRY(cuMemAllocFromPoolAsync, hipMallocFromPoolAsync)(Address* out, size_t nbytes, PoolHandle pool,
                                        StreamHandle handle) {
    return enter_context(NAME(cuMemAllocFromPoolAsync, hipMallocFromPoolAsync), [&](Context& context, Lock& lock) {
        allocate_from(lock, *stream_of(context, handle), driver().pools.get(pool), out, nbytes);
    });
}

// The memory is there for the work before, and gone for the work behind.
EXPORT Status ENTRY(cuMemFreeAsync, hipFreeAsync)(Address address, StreamHandle handle) {
    return enter_context(NAME(cuMemFreeAsync, hipFreeAsync), [&](Context& context, Lock&) {
        auto stream = stream_of(context, handle);
        if (address == 0) return;
        auto block = owned_block(address);
        block->free_under_way = true;
        if (block->pool && !block->pool->destroyed) {  // for the work behind, at once
            block->kept = true;
            block->pool->used_nbytes -= block->nbytes;
            block->pool->kept.push_back({block->nbytes, stream.get(), false});
        }
        submit(*stream, {NAME(cuMemFreeAsync, hipFreeAsync), [block] {
                             Lock lock(driver().mutex);
                             release(block);
                         }, {}, true});
    });
}

EXPORT Status ENTRY(cuDeviceGetDefaultMemPool, hipDeviceGetDefaultMemPool)(PoolHandle* out, int device) {
    return pool_of(NAME(cuDeviceGetDefaultMemPool, hipDeviceGetDefaultMemPool), out, device, &Device::default_pool);
}

EXPORT Status ENTRY(cuDeviceGetMemPool, hipDeviceGetMemPool)(PoolHandle* out, int device) {
    return pool_of(NAME(cuDeviceGetMemPool, hipDeviceGetMemPool), out, device, &Device::pool);
}

EXPORT Status ENTRY(cuMemPoolCreate, hipMemPoolCreate)(PoolHandle* out, const PoolFacts* is) {
    return enter(NAME(cuMemPoolCreate, hipMemPoolCreate), [&](Lock&) {
        need(out && is && is->allocType == 1 && is->location.type == 1);
        need(is->handleTypes == 0, NOT_SUPPORTED);
        auto pool = new_pool(device_at(is->location.id));
        pool->maximum = is->maxSize;
        *out = pool->handle;
    });
}

EXPORT Status ENTRY(cuMemPoolDestroy, hipMemPoolDestroy)(PoolHandle handle) {
    return enter(NAME(cuMemPoolDestroy, hipMemPoolDestroy), [&](Lock&) {
        auto pool = driver().pools.get(handle);
        need(pool != pool->device.default_pool);
        if (pool->device.pool == pool) pool->device.pool = pool->device.default_pool;
        for (auto& kept : pool->kept) pool->device.used_nbytes -= kept.nbytes;
        pool->kept.clear();
        pool->destroyed = true;  // what is still in use is freed into no pool
        driver().pools.remove(handle);
    });
}

EXPORT Status ENTRY(cuMemPoolTrimTo, hipMemPoolTrimTo)(PoolHandle handle, size_t nbytes) {
    return enter(NAME(cuMemPoolTrimTo, hipMemPoolTrimTo), [&](Lock&) { trim(*driver().pools.get(handle), nbytes); });
}

EXPORT Status ENTRY(cuMemPoolGetAttribute, hipMemPoolGetAttribute)(PoolHandle handle, unsigned attribute, void* out) {
    return enter(NAME(cuMemPoolGetAttribute, hipMemPoolGetAttribute), [&](Lock&) {
        need(out != nullptr);
        with_attribute(
            *driver().pools.get(handle), attribute,
            [&](int& value) { std::memcpy(out, &value, sizeof value); },
            [&](uint64_t& value) { std::memcpy(out, &value, sizeof value); });
    });
}

// Of the amounts only the high marks can be set, and only to zero.
EXPORT Status ENTRY(cuMemPoolSetAttribute, hipMemPoolSetAttribute)(PoolHandle handle, unsigned attribute, void* in) {
    return enter(NAME(cuMemPoolSetAttribute, hipMemPoolSetAttribute), [&](Lock&) {
        need(in && attribute != POOL_USED_MEM_CURRENT &&
             attribute != POOL_RESERVED_MEM_CURRENT);
        with_attribute(
            *driver().pools.get(handle), attribute,
            [&](int& value) { std::memcpy(&value, in, sizeof value); },
            [&](uint64_t& value) {
                uint64_t asked;
                std::memcpy(&asked, in, sizeof asked);
                need(asked == 0 || attribute == POOL_RELEASE_THRESHOLD);
                value = asked;
            });
    });
}

EXPORT Status ENTRY(cuMemPoolSetAccess, hipMemPoolSetAccess)(PoolHandle handle, const PoolAccess* map, size_t count) {
    return enter(NAME(cuMemPoolSetAccess, hipMemPoolSetAccess), [&](Lock&) {
        auto pool = driver().pools.get(handle);
        need(map || count == 0);
        auto& shared = pool->shared_with;
        for (size_t index = 0; index < count; ++index) {
            need(map[index].location.type == 1);
            int device = device_at(map[index].location.id).ordinal;
            shared.erase(std::remove(shared.begin(), shared.end(), device), shared.end());
            if (map[index].flags == 3) shared.push_back(device);
        }
        forget_cached_blocks();
    });
}

EXPORT Status ENTRY(cuMemPoolGetAccess, hipMemPoolGetAccess)(int* out, PoolHandle handle, const PoolPlace* location) {
    return enter(NAME(cuMemPoolGetAccess, hipMemPoolGetAccess), [&](Lock&) {
        auto pool = driver().pools.get(handle);
        need(out && location && location->type == 1);
        int device = device_at(location->id).ordinal;
        auto& shared = pool->shared_with;
        bool given = std::find(shared.begin(), shared.end(), device) != shared.end();
        *out = given || device == pool->device.ordinal ? 3 : 0;
    });
}
