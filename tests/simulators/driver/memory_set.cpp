// Entry points: filling memory.
#include <algorithm>
#include <cstring>

#include "memory.h"

using namespace sim;

namespace {

struct Fill {
    Address address;
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
Status set(const char* name, const Fill& fill, StreamHandle handle = nullptr) {
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

EXPORT Status ENTRY(cuMemsetD8_v2, hipMemsetD8)(Address to, unsigned char value, size_t count) {
    return set(NAME(cuMemsetD8, hipMemsetD8), {to, 0, count, 1, value, 1});
}

EXPORT Status ENTRY(cuMemsetD16_v2, hipMemsetD16)(Address to, unsigned short value, size_t count) {
    return set(NAME(cuMemsetD16, hipMemsetD16), {to, 0, count, 1, value, 2});
}

EXPORT Status ENTRY(cuMemsetD32_v2, hipMemsetD32)(Address to, unsigned value, size_t count) {
    return set(NAME(cuMemsetD32, hipMemsetD32), {to, 0, count, 1, value, 4});
}

EXPORT Status ENTRY(cuMemsetD8Async, hipMemsetD8Async)(Address to, unsigned char value, size_t count,
                                StreamHandle stream) {
    return set(NAME(cuMemsetD8Async, hipMemsetD8Async), {to, 0, count, 1, value, 1}, stream);
}

EXPORT Status ENTRY(cuMemsetD16Async, hipMemsetD16Async)(Address to, unsigned short value, size_t count,
                                 StreamHandle stream) {
    return set(NAME(cuMemsetD16Async, hipMemsetD16Async), {to, 0, count, 1, value, 2}, stream);
}

EXPORT Status ENTRY(cuMemsetD32Async, hipMemsetD32Async)(Address to, unsigned value, size_t count, StreamHandle stream) {
    return set(NAME(cuMemsetD32Async, hipMemsetD32Async), {to, 0, count, 1, value, 4}, stream);
}

EXPORT Status ENTRY(cuMemsetD2D8_v2, hipMemsetD2D8)(Address to, size_t pitch, unsigned char value, size_t width,
                                size_t height) {
    return set(NAME(cuMemsetD2D8, hipMemsetD2D8), {to, pitch, width, height, value, 1});
}

EXPORT Status ENTRY(cuMemsetD2D16_v2, hipMemsetD2D16)(Address to, size_t pitch, unsigned short value, size_t width,
                                 size_t height) {
    return set(NAME(cuMemsetD2D16, hipMemsetD2D16), {to, pitch, width, height, value, 2});
}

EXPORT Status ENTRY(cuMemsetD2D32_v2, hipMemsetD2D32)(Address to, size_t pitch, unsigned value, size_t width,
                                 size_t height) {
    return set(NAME(cuMemsetD2D32, hipMemsetD2D32), {to, pitch, width, height, value, 4});
}

EXPORT Status ENTRY(cuMemsetD2D8Async, hipMemsetD2D8Async)(Address to, size_t pitch, unsigned char value, size_t width,
                                  size_t height, StreamHandle stream) {
    return set(NAME(cuMemsetD2D8Async, hipMemsetD2D8Async), {to, pitch, width, height, value, 1}, stream);
}

EXPORT Status ENTRY(cuMemsetD2D16Async, hipMemsetD2D16Async)(Address to, size_t pitch, unsigned short value, size_t width,
                                   size_t height, StreamHandle stream) {
    return set(NAME(cuMemsetD2D16Async, hipMemsetD2D16Async), {to, pitch, width, height, value, 2}, stream);
}

EXPORT Status ENTRY(cuMemsetD2D32Async, hipMemsetD2D32Async)(Address to, size_t pitch, unsigned value, size_t width,
                                   size_t height, StreamHandle stream) {
    return set(NAME(cuMemsetD2D32Async, hipMemsetD2D32Async), {to, pitch, width, height, value, 4}, stream);
}
