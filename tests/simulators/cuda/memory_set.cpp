// Entry points: filling memory.
#include <algorithm>
#include <cstring>

#include "memory.h"

using namespace sim;

namespace {

struct Fill {
    CUdeviceptr address;
    size_t pitch, width, height;  // width in elements
    uint32_t value;
    unsigned size;  // of an element
};

void put(uint8_t* row, const Fill& fill) {
    if (fill.size == 1) std::memset(row, int(fill.value), fill.width);
    if (fill.size == 2) std::fill_n(reinterpret_cast<uint16_t*>(row), fill.width, fill.value);
    if (fill.size == 4) std::fill_n(reinterpret_cast<uint32_t*>(row), fill.width, fill.value);
}

// Nobody waits for it, in either form.
CUresult set(const char* name, const Fill& fill, CUstream handle = nullptr) {
    return enter_context(name, [&](Context& context, Lock&) {
        auto stream = stream_of(context, handle);
        if (fill.width == 0 || fill.height == 0) return;
        need(fill.address % fill.size == 0);
        need(fill.height == 1 ||
             (fill.pitch >= fill.width * fill.size && fill.pitch % fill.size == 0));
        uint64_t nbytes = (fill.height - 1) * fill.pitch + fill.width * fill.size;
        Place place = device_place(fill.address, nbytes);
        Context& owner = stream->context;
        submit(*stream, {name, [=, &owner] {
                             if (!still_there(place, owner, name)) return;
                             for (size_t y = 0; y < fill.height; ++y)
                                 put(place.bytes + y * fill.pitch, fill);
                         }});
    });
}

}  // namespace

EXPORT CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count) {
    return set("cuMemsetD8", {to, 0, count, 1, value, 1});
}

EXPORT CUresult cuMemsetD16_v2(CUdeviceptr to, unsigned short value, size_t count) {
    return set("cuMemsetD16", {to, 0, count, 1, value, 2});
}

EXPORT CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t count) {
    return set("cuMemsetD32", {to, 0, count, 1, value, 4});
}

EXPORT CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count,
                                CUstream stream) {
    return set("cuMemsetD8Async", {to, 0, count, 1, value, 1}, stream);
}

EXPORT CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count,
                                 CUstream stream) {
    return set("cuMemsetD16Async", {to, 0, count, 1, value, 2}, stream);
}

EXPORT CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream) {
    return set("cuMemsetD32Async", {to, 0, count, 1, value, 4}, stream);
}

EXPORT CUresult cuMemsetD2D8_v2(CUdeviceptr to, size_t pitch, unsigned char value, size_t width,
                                size_t height) {
    return set("cuMemsetD2D8", {to, pitch, width, height, value, 1});
}

EXPORT CUresult cuMemsetD2D16_v2(CUdeviceptr to, size_t pitch, unsigned short value, size_t width,
                                 size_t height) {
    return set("cuMemsetD2D16", {to, pitch, width, height, value, 2});
}

EXPORT CUresult cuMemsetD2D32_v2(CUdeviceptr to, size_t pitch, unsigned value, size_t width,
                                 size_t height) {
    return set("cuMemsetD2D32", {to, pitch, width, height, value, 4});
}

EXPORT CUresult cuMemsetD2D8Async(CUdeviceptr to, size_t pitch, unsigned char value, size_t width,
                                  size_t height, CUstream stream) {
    return set("cuMemsetD2D8Async", {to, pitch, width, height, value, 1}, stream);
}

EXPORT CUresult cuMemsetD2D16Async(CUdeviceptr to, size_t pitch, unsigned short value, size_t width,
                                   size_t height, CUstream stream) {
    return set("cuMemsetD2D16Async", {to, pitch, width, height, value, 2}, stream);
}

EXPORT CUresult cuMemsetD2D32Async(CUdeviceptr to, size_t pitch, unsigned value, size_t width,
                                   size_t height, CUstream stream) {
    return set("cuMemsetD2D32Async", {to, pitch, width, height, value, 4}, stream);
}
