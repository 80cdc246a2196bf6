// The entry points for events.
#include "event.h"

using namespace sim;

namespace {

void record(Context& current, EventHandle event_handle, StreamHandle stream_handle) {
    auto event = driver().events.get(event_handle);
    auto stream = stream_of(current, stream_handle);
    need(&event->context == &stream->context, INVALID_HANDLE);
    auto mark = std::make_shared<Mark>();
    auto pass = [mark] { mark->passed = std::chrono::steady_clock::now(); };
    mark->point = submit(*stream, {NAME(cuEventRecord, hipEventRecord), pass, {}, true});
    event->mark = mark;
    event->captured = stream_handle && stream_handle == driver().capturing;
}

}  // namespace

namespace sim {

float elapsed(EventHandle first, EventHandle last) {
    auto start = driver().events.get(first), end = driver().events.get(last);
    for (auto& event : {start, end}) {
        need(!(event->flags & DISABLE_TIMING), INVALID_HANDLE);
        need(event->mark != nullptr, INVALID_HANDLE);
        check(event->context);
    }
    need(&start->context == &end->context, INVALID_HANDLE);
    need(start->mark->point.reached() && end->mark->point.reached(), NOT_READY);
    std::chrono::duration<float, std::milli> span = end->mark->passed - start->mark->passed;
    return span.count();
}

}  // namespace sim

EXPORT Status ENTRY(cuEventCreate, hipEventCreateWithFlags)(EventHandle* out, unsigned flags) {
    return enter_context(NAME(cuEventCreate, hipEventCreateWithFlags), [&](Context& context, Lock&) {
        need(out && (flags & ~7u) == 0);
        // The vendor's rule: an event that others may open cannot tell the time.
        need(!(flags & INTERPROCESS) || (flags & DISABLE_TIMING));
        *out = new_handle<EventHandle>();
        driver().events.live[reinterpret_cast<uintptr_t>(*out)] =
            std::make_shared<Event>(context, flags);
    });
}

EXPORT Status ENTRY(cuEventDestroy_v2, hipEventDestroy)(EventHandle handle) {
    return enter_context(NAME(cuEventDestroy, hipEventDestroy), [&](Context&, Lock&) {
        driver().events.get(handle);
        driver().events.remove(handle);
    });
}

EXPORT Status ENTRY(cuEventRecord, hipEventRecord)(EventHandle event, StreamHandle stream) {
    return enter_context(NAME(cuEventRecord, hipEventRecord),
                         [&](Context& context, Lock&) { record(context, event, stream); });
}

EXPORT Status ENTRY(cuEventQuery, hipEventQuery)(EventHandle handle) {
    return enter_context(NAME(cuEventQuery, hipEventQuery), [&](Context&, Lock&) {
        auto event = driver().events.get(handle);
        mind_capture(!event->captured, CAPTURED_EVENT);
        check(event->context);
        bool reached = !event->mark || event->mark->point.reached();
        if (!reached) give_turn();
        need(reached, NOT_READY);
    });
}

EXPORT Status ENTRY(cuEventSynchronize, hipEventSynchronize)(EventHandle handle) {
    return enter_context(NAME(cuEventSynchronize, hipEventSynchronize), [&](Context&, Lock& lock) {
        auto event = driver().events.get(handle);
        mind_capture(!event->captured, CAPTURED_EVENT);
        check(event->context);
        if (event->mark) wait_for(lock, event->mark->point);
    });
}

EXPORT Status ENTRY(cuEventElapsedTime, hipEventElapsedTime)(float* out, EventHandle first, EventHandle last) {
    return enter_context(NAME(cuEventElapsedTime, hipEventElapsedTime), [&](Context&, Lock&) {
        need(out != nullptr);
        *out = elapsed(first, last);
    });
}
