// Entry points: making contexts, each thread's stack of them, and what is asked of the current one.
#include "context.h"
#include "cuda_api.h"
#include "stream.h"

using namespace sim;

namespace {

// The calling thread's contexts, the current one last.
std::vector<Context*>& stack() {
    thread_local std::vector<Context*> contexts;
    return contexts;
}

}  // namespace

Context& sim::current(bool even_failed) {
    need(!stack().empty(), INVALID_CONTEXT);
    Context& context = *stack().back();
    need(context.alive, CONTEXT_IS_DESTROYED);
    if (!even_failed) check(context);
    return context;
}

namespace {

// `special` is what only greater drivers can do: affinities, green contexts.
CUresult create(CUcontext* out, unsigned flags, CUdevice ordinal, bool special = false) {
    return enter("cuCtxCreate", [&](Lock&) {
        need(!special, NOT_SUPPORTED);
        need(out != nullptr);
        Context* context = make_context(device_at(ordinal), flags);
        stack().push_back(context);
        *out = context->handle;
    });
}

void drop_top_if(const Context& context) {
    if (!stack().empty() && stack().back() == &context) stack().pop_back();
}

}  // namespace

EXPORT CUresult cuCtxCreate_v2(CUcontext* out, unsigned flags, CUdevice device) {
    return create(out, flags, device);
}

EXPORT CUresult cuCtxCreate_v3(CUcontext* out, void*, int affinities, unsigned flags,
                               CUdevice device) {
    return create(out, flags, device, affinities != 0);
}

EXPORT CUresult cuCtxCreate_v4(CUcontext* out, void* parameters, unsigned flags, CUdevice device) {
    return create(out, flags, device, parameters != nullptr);
}

EXPORT CUresult cuCtxDestroy_v2(CUcontext handle) {
    return enter("cuCtxDestroy", [&](Lock& lock) {
        Context& context = context_of(handle);
        need(!context.primary, INVALID_CONTEXT);
        drop_top_if(context);
        destroy(lock, context);
    });
}

EXPORT CUresult cuCtxAttach(CUcontext* out, unsigned flags) {
    return enter_context("cuCtxAttach", [&](Context& context, Lock&) {
        need(out && flags == 0);
        ++context.usage;
        *out = context.handle;
    });
}

EXPORT CUresult cuCtxDetach(CUcontext handle) {
    return enter("cuCtxDetach", [&](Lock& lock) {
        Context& context = context_of(handle);
        need(&current(true) == &context && !context.primary, INVALID_CONTEXT);
        if (--context.usage > 0) return;
        drop_top_if(context);
        destroy(lock, context);
    });
}

EXPORT CUresult cuCtxPushCurrent_v2(CUcontext handle) {
    return enter("cuCtxPushCurrent", [&](Lock&) { stack().push_back(&context_of(handle)); });
}

EXPORT CUresult cuCtxPopCurrent_v2(CUcontext* out) {
    return enter("cuCtxPopCurrent", [&](Lock&) {
        need(!stack().empty(), INVALID_CONTEXT);
        if (out) *out = stack().back()->handle;
        stack().pop_back();
    });
}

EXPORT CUresult cuCtxSetCurrent(CUcontext handle) {
    return enter("cuCtxSetCurrent", [&](Lock&) {
        Context* context = handle ? &context_of(handle) : nullptr;
        if (!stack().empty()) stack().pop_back();
        if (context) stack().push_back(context);
    });
}

EXPORT CUresult cuCtxGetCurrent(CUcontext* out) {
    return enter("cuCtxGetCurrent", [&](Lock&) {
        need(out != nullptr);
        *out = stack().empty() ? nullptr : stack().back()->handle;
    });
}

EXPORT CUresult cuCtxGetDevice(CUdevice* out) {
    return enter("cuCtxGetDevice", [&](Lock&) {
        need(out != nullptr);
        *out = current(true).device.ordinal;
    });
}

EXPORT CUresult cuCtxGetApiVersion(CUcontext handle, unsigned* out) {
    return enter("cuCtxGetApiVersion", [&](Lock&) {
        need(out != nullptr);
        if (handle) context_of(handle);
        *out = 3020;
    });
}

EXPORT CUresult cuCtxSynchronize() {
    return enter_context("cuCtxSynchronize",
                         [&](Context& context, Lock& lock) { wait_for_all(lock, context); });
}
