// Copies of boxes, as HIP says what to copy.
#pragma once

#include "array.h"
#include "runtime.h"

namespace sim {

// hipMemcpy3DParms. Widths count pixels where a side is an array.
struct BoxCopy {
    struct Side {
        ArrayHandle array;
        size_t x, y, z;
        Address memory;
        size_t pitch, width, height;
    } from, to;
    size_t width, height, depth;
    unsigned direction;
};

Task box_task(Context& context, const BoxCopy* is);

}  // namespace sim
