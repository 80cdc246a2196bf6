// Entry points: what an address is.
#include <cstring>

#include "memory.h"

using namespace sim;

namespace {

template <class T>
void put(void* out, T value) {
    std::memcpy(out, &value, sizeof value);
}

void put_attribute(void* out, unsigned attribute, const Block& block, uint64_t address) {
    switch (attribute) {
        case POINTER_CONTEXT:  // none has memory from a pool
            return put<ContextHandle>(out, block.pool ? nullptr : block.context->handle);
        case POINTER_MEMORY_TYPE:
            return put<unsigned>(out, memory_type(block.on_host()));
        case POINTER_DEVICE_POINTER: return put(out, address);
        case POINTER_HOST_POINTER:
            need(block.on_host() || block.kind == Kind::Managed);
            return put(out, address);
        case POINTER_SYNC_MEMOPS: return put<int>(out, 0);
        case POINTER_BUFFER_ID: return put(out, block.number);
        case POINTER_IS_MANAGED: return put<int>(out, block.kind == Kind::Managed);
        case POINTER_DEVICE_ORDINAL:
            return put<int>(out, block.context->device.ordinal);
        case POINTER_RANGE_START_ADDR: return put(out, block.address);
        case POINTER_RANGE_SIZE: return put(out, block.nbytes);
        case POINTER_MAPPED: return put<int>(out, 1);
        default: refuse(NOT_SUPPORTED);
    }
}

size_t width_of(unsigned attribute) {
    switch (attribute) {
        case POINTER_MEMORY_TYPE:
        case POINTER_SYNC_MEMOPS:
        case POINTER_IS_MANAGED:
        case POINTER_DEVICE_ORDINAL:
        case POINTER_MAPPED: return 4;
        default: return 8;
    }
}

}  // namespace

EXPORT Status ENTRY(cuPointerGetAttribute, hipPointerGetAttribute)(void* out, unsigned attribute, Address address) {
    return enter_context(NAME(cuPointerGetAttribute, hipPointerGetAttribute), [&](Context&, Lock&) {
        need(out != nullptr);
        auto block = block_at(address);
        need(block != nullptr);
        put_attribute(out, attribute, *block, address);
    });
}

// Memory that is nobody's is no error here: everything comes out as zero.
EXPORT Status ENTRY(cuPointerGetAttributes, hipDrvPointerGetAttributes)(unsigned count, const unsigned* attributes, void** out,
                                       Address address) {
    return enter_context(NAME(cuPointerGetAttributes, hipDrvPointerGetAttributes), [&](Context&, Lock&) {
        need(attributes && out);
        auto block = block_at(address);
        for (unsigned index = 0; index < count; ++index) {
            std::memset(out[index], 0, width_of(attributes[index]));
            bool has_host = block && (block->on_host() || block->kind == Kind::Managed);
            bool asks_host = attributes[index] == POINTER_HOST_POINTER;
            if (block && (has_host || !asks_host))
                put_attribute(out[index], attributes[index], *block, address);
        }
    });
}

EXPORT Status ENTRY(cuPointerSetAttribute, hipPointerSetAttribute)(const void*, unsigned attribute, Address address) {
    return enter_context(NAME(cuPointerSetAttribute, hipPointerSetAttribute), [&](Context&, Lock&) {
        need(attribute == POINTER_SYNC_MEMOPS && block_at(address) != nullptr);
    });
}
