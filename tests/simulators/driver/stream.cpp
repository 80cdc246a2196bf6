// The entry points for streams.
#include "stream.h"

#include <algorithm>

#include "event.h"

namespace sim {

std::shared_ptr<Stream> make_stream(Context& context, unsigned flags) {
    auto stream = std::make_shared<Stream>(context, flags);
    context.streams.insert(stream);
    return stream;
}

std::shared_ptr<Stream> stream_of(Context& current, StreamHandle handle) {
    auto value = reinterpret_cast<uintptr_t>(handle);
    if (value == 0 || value == LEGACY_STREAM) return current.legacy;
    if (value != PER_THREAD_STREAM) return driver().streams.get(handle);
    auto& mine = current.per_thread[std::this_thread::get_id()];
    if (!mine) mine = make_stream(current, 0);
    return mine;
}

namespace {

void create(Context& context, StreamHandle* out, unsigned flags) {
    need(out && (flags & ~NON_BLOCKING) == 0);
    auto stream = make_stream(context, flags);
    stream->handle = new_handle<StreamHandle>();
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

EXPORT Status ENTRY(cuStreamCreate, hipStreamCreateWithFlags)(StreamHandle* out, unsigned flags) {
    return enter_context(NAME(cuStreamCreate, hipStreamCreateWithFlags),
                         [&](Context& context, Lock&) { create(context, out, flags); });
}

// The handle is gone at once; the work is still done.
EXPORT Status ENTRY(cuStreamDestroy_v2, hipStreamDestroy)(StreamHandle handle) {
    return enter_context(NAME(cuStreamDestroy, hipStreamDestroy), [&](Context&, Lock&) {
        need(reinterpret_cast<uintptr_t>(handle) > PER_THREAD_STREAM, INVALID_HANDLE);
        auto stream = driver().streams.get(handle);
        driver().streams.remove(handle);
        submit(*stream, {NAME(cuStreamDestroy, hipStreamDestroy), [stream] {
                             Lock lock(driver().mutex);
                             stream->closing = true;
                             stream->context.streams.erase(stream);
                         }, {}, true});
    });
}

EXPORT Status ENTRY(cuStreamQuery, hipStreamQuery)(StreamHandle handle) {
    return enter_context(NAME(cuStreamQuery, hipStreamQuery), [&](Context& context, Lock&) {
        auto stream = stream_of(context, handle);
        mind_capture(!handle || handle != driver().capturing, STREAM_CAPTURE_UNSUPPORTED);
        check(stream->context);
        if (!stream->idle()) give_turn();
        need(stream->idle(), NOT_READY);
    });
}

EXPORT Status ENTRY(cuStreamSynchronize, hipStreamSynchronize)(StreamHandle handle) {
    return enter_context(NAME(cuStreamSynchronize, hipStreamSynchronize), [&](Context& context, Lock& lock) {
        auto stream = stream_of(context, handle);
        mind_capture(!handle || handle != driver().capturing, STREAM_CAPTURE_UNSUPPORTED);
        wait_for(lock, {stream, stream->submitted});
    });
}

EXPORT Status ENTRY(cuStreamWaitEvent, hipStreamWaitEvent)(StreamHandle handle, EventHandle event_handle, unsigned flags) {
    return enter_context(NAME(cuStreamWaitEvent, hipStreamWaitEvent), [&](Context& context, Lock&) {
        need((flags & ~1u) == 0);
        auto stream = stream_of(context, handle);
        auto event = driver().events.get(event_handle);
        if (event->mark) submit(*stream, {NAME(cuStreamWaitEvent, hipStreamWaitEvent), [] {}, {event->mark->point}, true});
    });
}

EXPORT Status ENTRY(cuStreamGetFlags, hipStreamGetFlags)(StreamHandle handle, unsigned* out) {
    return enter_context(NAME(cuStreamGetFlags, hipStreamGetFlags), [&](Context& context, Lock&) {
        need(out != nullptr);
        *out = stream_of(context, handle)->flags;
    });
}

EXPORT Status ENTRY(cuStreamGetDevice, hipStreamGetDevice)(StreamHandle handle, int* out) {
    return enter_context(NAME(cuStreamGetDevice, hipStreamGetDevice), [&](Context& context, Lock&) {
        need(out != nullptr);
        *out = stream_of(context, handle)->context.device.ordinal;
    });
}

EXPORT Status ENTRY(cuLaunchHostFunc, hipLaunchHostFunc)(StreamHandle handle, HostFunction function, void* data) {
    return enter_context(NAME(cuLaunchHostFunc, hipLaunchHostFunc), [&](Context& context, Lock&) {
        need(function != nullptr);
        submit(*stream_of(context, handle), {NAME(cuLaunchHostFunc, hipLaunchHostFunc), [=] {
                                                 call_back([&] { function(data); });
                                             }});
    });
}

EXPORT Status ENTRY(cuStreamIsCapturing, hipStreamIsCapturing)(StreamHandle handle, int* out) {
    return enter_context(NAME(cuStreamIsCapturing, hipStreamIsCapturing), [&](Context& context, Lock&) {
        need(out != nullptr);
        auto stream = stream_of(context, handle);
        auto captured = driver().streams.find(driver().capturing);
        bool is_implicit = stream == context.legacy && captured && captured->blocking();
        need(!is_implicit, STREAM_CAPTURE_IMPLICIT);
        *out = handle && handle == driver().capturing;
    });
}

EXPORT Status ENTRY(cuThreadExchangeStreamCaptureMode, hipThreadExchangeStreamCaptureMode)(int* mode) {
    return enter(NAME(cuThreadExchangeStreamCaptureMode, hipThreadExchangeStreamCaptureMode), [&](Lock&) {
        need(mode && *mode >= CAPTURE_GLOBAL && *mode <= CAPTURE_RELAXED);
        std::swap(*mode, capture_mode);
    });
}

// From now on another library captures that stream in global mode; null ends the capture. Its work
// is carried out all the same. Returns how many calls have made the last capture invalid.
EXPORT unsigned sim_capture(StreamHandle handle) {
    driver().capturing = handle;
    return driver().spoiled.exchange(0);
}
