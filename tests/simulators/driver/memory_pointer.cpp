// Entry points: what an address is.
#include <cstring>

#include "memory.h"

using namespace sim;

namespace {

template <class T>
void put(void* out, T value) {
    std::memcpy(out, &value, sizeof value);
}

void put_attribute(void* out, unsigned attribute, const Block& block) {
    switch (attribute) {
        case POINTER_CONTEXT:  // none has memory from a pool
            return put<ContextHandle>(out, block.pool ? nullptr : block.context->handle);
        case POINTER_MEMORY_TYPE:
            return put<unsigned>(out, memory_type(block.on_host()));
        case POINTER_IS_MANAGED: return put<int>(out, block.kind == Kind::Managed);
        case POINTER_DEVICE_ORDINAL:
            return put<int>(out, block.context->device.ordinal);
        default: refuse(NOT_SUPPORTED);
    }
}

}  // namespace

EXPORT Status ENTRY(cuPointerGetAttribute, hipPointerGetAttribute)(void* out, unsigned attribute, Address address) {
    return enter_context(NAME(cuPointerGetAttribute, hipPointerGetAttribute), [&](Context&, Lock&) {
        need(out != nullptr);
        auto block = block_at(address);
        need(block != nullptr);
        put_attribute(out, attribute, *block);
    });
}
