// Arrays, which are memory with a shape, and copies of boxes in them.
#pragma once

#include "cuda_api.h"
#include "graph.h"
#include "memory.h"

namespace sim {

std::shared_ptr<Array> array_at(CUarray handle);

// A copy of a box between arrays and memory of the device, as a node of a graph has it.
Task box_task(Context& context, const CUDA_MEMCPY3D* is);

}  // namespace sim
