// Copies of bytes between two places.
#pragma once

#include "memory.h"

namespace sim {

// The vendor's order: pageable memory is read before the call returns and written before it
// returns; everything else waits for its turn in the stream.
//
// A range of bytes, in that stream; without one in the legacy stream, and the call waits. Copies
// between two places of the device do not wait even then.
void copy_range(Context& context, Lock& lock, const char* name, Place to, Place from,
                size_t nbytes, StreamHandle* handle);

}  // namespace sim
