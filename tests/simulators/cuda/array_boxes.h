// Copies of boxes, as CUDA says what to copy.
#pragma once

#include "array.h"
#include "cuda_api.h"

namespace sim {

Task box_task(Context& context, const CUDA_MEMCPY3D* is);

}  // namespace sim
