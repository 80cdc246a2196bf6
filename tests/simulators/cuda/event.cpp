// The entry points for events.
#include "event.h"

using namespace sim;

namespace {

void record(Context& current, CUevent event_handle, CUstream stream_handle) {
    auto event = driver().events.get(event_handle);
    auto stream = stream_of(current, stream_handle);
    need(&event->context == &stream->context, CUDA_ERROR_INVALID_HANDLE);
    auto mark = std::make_shared<Mark>();
    auto pass = [mark] { mark->passed = std::chrono::steady_clock::now(); };
    mark->point = submit(*stream, {"cuEventRecord", pass, {}, true});
    event->mark = mark;
}

void elapsed(float* out, CUevent first, CUevent last) {
    need(out != nullptr);
    auto start = driver().events.get(first), end = driver().events.get(last);
    for (auto& event : {start, end}) {
        need(!(event->flags & CU_EVENT_DISABLE_TIMING), CUDA_ERROR_INVALID_HANDLE);
        need(event->mark != nullptr, CUDA_ERROR_INVALID_HANDLE);
        check(event->context);
    }
    need(&start->context == &end->context, CUDA_ERROR_INVALID_HANDLE);
    need(start->mark->point.reached() && end->mark->point.reached(), CUDA_ERROR_NOT_READY);
    std::chrono::duration<float, std::milli> span = end->mark->passed - start->mark->passed;
    *out = span.count();
}

}  // namespace

EXPORT CUresult cuEventCreate(CUevent* out, unsigned flags) {
    return enter_context("cuEventCreate", [&](Context& context, Lock&) {
        need(out && (flags & ~7u) == 0);
        // The vendor's rule: an event that others may open cannot tell the time.
        need(!(flags & CU_EVENT_INTERPROCESS) || (flags & CU_EVENT_DISABLE_TIMING));
        *out = new_handle<CUevent>();
        driver().events.live[reinterpret_cast<uintptr_t>(*out)] =
            std::make_shared<Event>(context, flags);
    });
}

EXPORT CUresult cuEventDestroy_v2(CUevent handle) {
    return enter_context("cuEventDestroy", [&](Context&, Lock&) {
        driver().events.get(handle);
        driver().events.remove(handle);
    });
}

EXPORT CUresult cuEventRecord(CUevent event, CUstream stream) {
    return enter_context("cuEventRecord",
                         [&](Context& context, Lock&) { record(context, event, stream); });
}

EXPORT CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags) {
    return enter_context("cuEventRecordWithFlags", [&](Context& context, Lock&) {
        need((flags & ~1u) == 0);
        record(context, event, stream);
    });
}

EXPORT CUresult cuEventQuery(CUevent handle) {
    return enter_context("cuEventQuery", [&](Context&, Lock&) {
        auto event = driver().events.get(handle);
        check(event->context);
        need(!event->mark || event->mark->point.reached(), CUDA_ERROR_NOT_READY);
    });
}

EXPORT CUresult cuEventSynchronize(CUevent handle) {
    return enter_context("cuEventSynchronize", [&](Context&, Lock& lock) {
        auto event = driver().events.get(handle);
        check(event->context);
        if (event->mark) wait_for(lock, event->mark->point);
    });
}

EXPORT CUresult cuEventElapsedTime(float* out, CUevent first, CUevent last) {
    return enter_context("cuEventElapsedTime", [&](Context&, Lock&) { elapsed(out, first, last); });
}

EXPORT CUresult cuEventElapsedTime_v2(float* out, CUevent first, CUevent last) {
    return enter_context("cuEventElapsedTime", [&](Context&, Lock&) { elapsed(out, first, last); });
}
