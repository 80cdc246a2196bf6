// Entry points: what CUDA alone tells of streams.
#include "stream.h"

#include "cuda_api.h"

using namespace sim;

EXPORT CUresult cuStreamGetId(CUstream handle, unsigned long long* out) {
    return enter_context("cuStreamGetId", [&](Context& context, Lock&) {
        need(out != nullptr);
        *out = stream_of(context, handle)->id;
    });
}

EXPORT CUresult cuStreamGetCtx(CUstream handle, CUcontext* out) {
    return enter_context("cuStreamGetCtx", [&](Context& context, Lock&) {
        need(out != nullptr);
        *out = stream_of(context, handle)->context.handle;
    });
}
