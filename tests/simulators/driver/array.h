// Arrays, which are memory with a shape, the objects through which kernels see them, and copies of
// boxes in them.
#pragma once

#include "graph.h"
#include "memory.h"

namespace sim {

// CUDA_ARRAY3D_DESCRIPTOR and the rest, which HIP has under its own names.
struct ArrayDescriptor {
    size_t width, height, depth;
    unsigned format, channels, flags;
};

struct Resource {
    unsigned kind;
    union {
        ArrayHandle array;
        int reserved[32];
    };
    unsigned flags;
};

struct Sampling {
    unsigned beyond[3], filter, flags, anisotropy, level_filter;
    float level_bias, least_level, most_level, border[4];
    int reserved[12];
};

std::shared_ptr<Array> array_at(ArrayHandle handle);

// The vendor's: what kernels know an object by. Its memory, if it has some, is `object.memory`.
uint64_t object_value(Lock& lock, Context& context, ImageObject& object);

// One side of a copy: an array, or memory with rows that far apart, and so many in a slice.
struct Side {
    size_t x, y, z;  // x in bytes
    std::shared_ptr<Array> array;
    Address memory;
    size_t pitch, height;
};

// A copy of a box, as a node of a graph has it.
Task box_task(Context& context, const Side& to, const Side& from, size_t row_nbytes, size_t height,
              size_t depth);

// The same in a stream.
void copy_box(const char* name, Stream& stream, const Task& task);

}  // namespace sim
