// The entry points for streams.
#include "stream.h"

#include <algorithm>

#include "event.h"

namespace sim {

std::shared_ptr<Stream> make_stream(Context& context, unsigned flags, int priority) {
    auto stream = std::make_shared<Stream>(context, flags, priority);
    context.streams.insert(stream);
    return stream;
}

std::shared_ptr<Stream> stream_of(Context& current, CUstream handle) {
    auto value = reinterpret_cast<uintptr_t>(handle);
    if (value == 0 || value == CU_STREAM_LEGACY) return current.legacy;
    if (value != CU_STREAM_PER_THREAD) return driver().streams.get(handle);
    auto& mine = current.per_thread[std::this_thread::get_id()];
    if (!mine) mine = make_stream(current, 0, 0);
    return mine;
}

namespace {

constexpr int LEAST_PRIORITY = 0, GREATEST_PRIORITY = -5;

void create(Context& context, CUstream* out, unsigned flags, int priority) {
    need(out && (flags & ~CU_STREAM_NON_BLOCKING) == 0);
    priority = std::max(GREATEST_PRIORITY, std::min(LEAST_PRIORITY, priority));
    auto stream = make_stream(context, flags, priority);
    stream->handle = new_handle<CUstream>();
    driver().streams.live[reinterpret_cast<uintptr_t>(stream->handle)] = stream;
    *out = stream->handle;
}

// A callback may not call the driver: it would wait for itself.
template <class Call>
void call_back(Call call) {
    in_callback = true;
    call();
    in_callback = false;
}

}  // namespace
}  // namespace sim

using namespace sim;

EXPORT CUresult cuStreamCreate(CUstream* out, unsigned flags) {
    return enter_context("cuStreamCreate",
                         [&](Context& context, Lock&) { create(context, out, flags, 0); });
}

EXPORT CUresult cuStreamCreateWithPriority(CUstream* out, unsigned flags, int priority) {
    return enter_context("cuStreamCreateWithPriority", [&](Context& context, Lock&) {
        create(context, out, flags, priority);
    });
}

// The handle is gone at once; the work is still done.
EXPORT CUresult cuStreamDestroy_v2(CUstream handle) {
    return enter_context("cuStreamDestroy", [&](Context&, Lock&) {
        need(reinterpret_cast<uintptr_t>(handle) > CU_STREAM_PER_THREAD, CUDA_ERROR_INVALID_HANDLE);
        auto stream = driver().streams.get(handle);
        driver().streams.remove(handle);
        submit(*stream, {"cuStreamDestroy", [stream] {
                             Lock lock(driver().mutex);
                             stream->closing = true;
                             stream->context.streams.erase(stream);
                         }, {}, true});
    });
}

EXPORT CUresult cuStreamQuery(CUstream handle) {
    return enter_context("cuStreamQuery", [&](Context& context, Lock&) {
        auto stream = stream_of(context, handle);
        check(stream->context);
        need(stream->idle(), CUDA_ERROR_NOT_READY);
    });
}

EXPORT CUresult cuStreamSynchronize(CUstream handle) {
    return enter_context("cuStreamSynchronize", [&](Context& context, Lock& lock) {
        auto stream = stream_of(context, handle);
        wait_for(lock, {stream, stream->submitted});
    });
}

EXPORT CUresult cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned flags) {
    return enter_context("cuStreamWaitEvent", [&](Context& context, Lock&) {
        need((flags & ~1u) == 0);
        auto stream = stream_of(context, handle);
        auto event = driver().events.get(event_handle);
        if (event->mark) submit(*stream, {"cuStreamWaitEvent", [] {}, {event->mark->point}, true});
    });
}

EXPORT CUresult cuStreamGetPriority(CUstream handle, int* out) {
    return enter_context("cuStreamGetPriority", [&](Context& context, Lock&) {
        need(out != nullptr);
        *out = stream_of(context, handle)->priority;
    });
}

EXPORT CUresult cuStreamGetFlags(CUstream handle, unsigned* out) {
    return enter_context("cuStreamGetFlags", [&](Context& context, Lock&) {
        need(out != nullptr);
        *out = stream_of(context, handle)->flags;
    });
}

EXPORT CUresult cuStreamGetId(CUstream handle, unsigned long long* out) {
    return enter_context("cuStreamGetId", [&](Context& context, Lock&) {
        need(out != nullptr);
        *out = reinterpret_cast<uintptr_t>(stream_of(context, handle).get());
    });
}

EXPORT CUresult cuStreamGetCtx(CUstream handle, CUcontext* out) {
    return enter_context("cuStreamGetCtx", [&](Context& context, Lock&) {
        need(out != nullptr);
        *out = stream_of(context, handle)->context.handle;
    });
}

EXPORT CUresult cuStreamGetDevice(CUstream handle, CUdevice* out) {
    return enter_context("cuStreamGetDevice", [&](Context& context, Lock&) {
        need(out != nullptr);
        *out = stream_of(context, handle)->context.device.ordinal;
    });
}

EXPORT CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
    return enter_context("cuCtxGetStreamPriorityRange", [&](Context&, Lock&) {
        if (least) *least = LEAST_PRIORITY;
        if (greatest) *greatest = GREATEST_PRIORITY;
    });
}

// Managed memory is one with the host's here.
EXPORT CUresult cuStreamAttachMemAsync(CUstream handle, CUdeviceptr, size_t, unsigned) {
    return enter_context("cuStreamAttachMemAsync",
                         [&](Context& context, Lock&) { stream_of(context, handle); });
}

// Called after an error too, with its code.
EXPORT CUresult cuStreamAddCallback(CUstream handle, CUstreamCallback callback, void* data,
                                    unsigned flags) {
    return enter_context("cuStreamAddCallback", [&](Context& context, Lock&) {
        need(callback && flags == 0);
        auto stream = stream_of(context, handle);
        submit(*stream, {"cuStreamAddCallback", [=] {
                             CUresult code = stream->context.error;
                             call_back([&] { callback(handle, code, data); });
                         }, {}, true});
    });
}

EXPORT CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void* data) {
    return enter_context("cuLaunchHostFunc", [&](Context& context, Lock&) {
        need(function != nullptr);
        submit(*stream_of(context, handle), {"cuLaunchHostFunc", [=] {
                                                 call_back([&] { function(data); });
                                             }});
    });
}
