// Entry points: forms of event calls that CUDA alone has.
#include "event.h"

#include "cuda_api.h"

using namespace sim;

EXPORT CUresult cuEventElapsedTime_v2(float* out, CUevent first, CUevent last) {
    return enter_context("cuEventElapsedTime", [&](Context&, Lock&) {
        need(out != nullptr);
        *out = elapsed(first, last);
    });
}
