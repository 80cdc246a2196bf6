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
        case CU_POINTER_ATTRIBUTE_CONTEXT:  // none has memory from a pool
            return put<CUcontext>(out, block.pool ? nullptr : block.context->handle);
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
            return put<unsigned>(out, block.on_host() ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: return put(out, address);
        case CU_POINTER_ATTRIBUTE_HOST_POINTER:
            need(block.on_host() || block.kind == Kind::Managed);
            return put(out, address);
        case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: return put<int>(out, 0);
        case CU_POINTER_ATTRIBUTE_BUFFER_ID: return put(out, block.number);
        case CU_POINTER_ATTRIBUTE_IS_MANAGED: return put<int>(out, block.kind == Kind::Managed);
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
            return put<int>(out, block.context->device.ordinal);
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: return put(out, block.address);
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE: return put(out, block.nbytes);
        case CU_POINTER_ATTRIBUTE_MAPPED: return put<int>(out, 1);
        default: refuse(CUDA_ERROR_NOT_SUPPORTED);
    }
}

size_t width_of(unsigned attribute) {
    switch (attribute) {
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        case CU_POINTER_ATTRIBUTE_MAPPED: return 4;
        default: return 8;
    }
}

}  // namespace

EXPORT CUresult cuPointerGetAttribute(void* out, unsigned attribute, CUdeviceptr address) {
    return enter_context("cuPointerGetAttribute", [&](Context&, Lock&) {
        need(out != nullptr);
        auto block = block_at(address);
        need(block != nullptr);
        put_attribute(out, attribute, *block, address);
    });
}

// Memory that is nobody's is no error here: everything comes out as zero.
EXPORT CUresult cuPointerGetAttributes(unsigned count, const unsigned* attributes, void** out,
                                       CUdeviceptr address) {
    return enter_context("cuPointerGetAttributes", [&](Context&, Lock&) {
        need(attributes && out);
        auto block = block_at(address);
        for (unsigned index = 0; index < count; ++index) {
            std::memset(out[index], 0, width_of(attributes[index]));
            bool has_host = block && (block->on_host() || block->kind == Kind::Managed);
            bool asks_host = attributes[index] == CU_POINTER_ATTRIBUTE_HOST_POINTER;
            if (block && (has_host || !asks_host))
                put_attribute(out[index], attributes[index], *block, address);
        }
    });
}

EXPORT CUresult cuPointerSetAttribute(const void*, unsigned attribute, CUdeviceptr address) {
    return enter_context("cuPointerSetAttribute", [&](Context&, Lock&) {
        need(attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS && block_at(address) != nullptr);
    });
}
