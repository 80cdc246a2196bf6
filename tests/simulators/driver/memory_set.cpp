// Entry points: filling memory.
#include <algorithm>
#include <cstring>

#include "memory.h"

using namespace sim;

namespace {

struct Fill {
    Address address;
    size_t count;
    uint32_t value;
    unsigned size;  // of an element
};

void put(uint8_t* bytes, const Fill& fill) {
    if (fill.size == 1) std::memset(bytes, int(fill.value), fill.count);
    if (fill.size == 2) std::fill_n(reinterpret_cast<uint16_t*>(bytes), fill.count, fill.value);
    if (fill.size == 4) std::fill_n(reinterpret_cast<uint32_t*>(bytes), fill.count, fill.value);
}

// Nobody waits for it, in either form.
Status set(const char* name, const Fill& fill, StreamHandle handle = nullptr) {
    return enter_context(name, [&](Context& context, Lock&) {
        auto stream = stream_of(context, handle);
        if (fill.count == 0) return;
        need(fill.address % fill.size == 0);
        Place place = device_place(fill.address, fill.count * fill.size);
        Context& owner = stream->context;
        submit(*stream, {name, [=, &owner] {
                             if (still_there(place, owner, name)) put(place.bytes, fill);
                         }});
    });
}

}  // namespace

EXPORT Status ENTRY(cuMemsetD8_v2, hipMemsetD8)(Address to, unsigned char value, size_t count) {
    return set(NAME(cuMemsetD8, hipMemsetD8), {to, count, value, 1});
}

EXPORT Status ENTRY(cuMemsetD16_v2, hipMemsetD16)(Address to, unsigned short value, size_t count) {
    return set(NAME(cuMemsetD16, hipMemsetD16), {to, count, value, 2});
}

EXPORT Status ENTRY(cuMemsetD32_v2, hipMemsetD32)(Address to, unsigned value, size_t count) {
    return set(NAME(cuMemsetD32, hipMemsetD32), {to, count, value, 4});
}

EXPORT Status ENTRY(cuMemsetD8Async, hipMemsetD8Async)(Address to, unsigned char value, size_t count,
                                StreamHandle stream) {
    return set(NAME(cuMemsetD8Async, hipMemsetD8Async), {to, count, value, 1}, stream);
}

EXPORT Status ENTRY(cuMemsetD16Async, hipMemsetD16Async)(Address to, unsigned short value, size_t count,
                                 StreamHandle stream) {
    return set(NAME(cuMemsetD16Async, hipMemsetD16Async), {to, count, value, 2}, stream);
}

EXPORT Status ENTRY(cuMemsetD32Async, hipMemsetD32Async)(Address to, unsigned value, size_t count, StreamHandle stream) {
    return set(NAME(cuMemsetD32Async, hipMemsetD32Async), {to, count, value, 4}, stream);
}
