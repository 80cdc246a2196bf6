// Copies: all of them are boxes of bytes between two places.
#pragma once

#include "memory.h"

namespace sim {

struct Box {
    uint64_t width, height = 1, depth = 1;  // width in bytes

    bool empty() const { return width == 0 || height == 0 || depth == 0; }
};

// One side of a copy: where its first byte is, and the steps to the next row and slice.
struct Side {
    Place place;
    uint64_t row = 0, slice = 0;
};

// The vendor's order: pageable memory is read before the call returns and written before it
// returns; everything else waits for its turn in the stream. With `wait` the call waits too.
void copy(Lock& lock, Stream& stream, const char* name, Side to, Side from, Box box, bool wait);

// A range of bytes, in that stream; without one in the legacy stream, and the call waits. Copies
// between two places of the device do not wait even then.
void copy_range(Context& context, Lock& lock, const char* name, Place to, Place from,
                size_t nbytes, StreamHandle* handle);

}  // namespace sim
