// A context's life, and each thread's stack of them.
#include "context.h"

#include <algorithm>

#include "event.h"
#include "faults.h"
#include "memory.h"
#include "module.h"
#include "stream.h"

namespace sim {

std::vector<Context*>& stack() {
    thread_local std::vector<Context*> contexts;
    return contexts;
}

void check(const Context& context) {
    need(context.alive, CUDA_ERROR_CONTEXT_IS_DESTROYED);
    need(context.error == CUDA_SUCCESS, context.error);
}

Context& current(bool even_failed) {
    need(!stack().empty(), CUDA_ERROR_INVALID_CONTEXT);
    Context& context = *stack().back();
    need(context.alive, CUDA_ERROR_CONTEXT_IS_DESTROYED);
    if (!even_failed) check(context);
    return context;
}

Context& context_of(CUcontext handle) {
    for (auto& context : driver().contexts)
        if (context->handle == handle) {
            if (!context->alive) note_stale(handle);
            need(context->alive, CUDA_ERROR_CONTEXT_IS_DESTROYED);
            return *context;
        }
    refuse(CUDA_ERROR_INVALID_CONTEXT);
}

void fail(Context& context, CUresult code, const std::string& why) {
    if (context.error != CUDA_SUCCESS) return;
    context.error = code;
    if (driver().sticky) context.device.fault = code;
    set_message(why);
    driver().progress.notify_all();
}

Context* make_context(Device& device, unsigned flags) {
    need(!device.lost, CUDA_ERROR_DEVICE_UNAVAILABLE);
    need((flags & ~0xffu) == 0 && (flags & 7) != 3 && (flags & 7) <= 4);
    auto context = std::make_unique<Context>(device);
    context->flags = flags;
    context->error = device.fault;
    context->limits = {{CU_LIMIT_STACK_SIZE, 1024},
                       {CU_LIMIT_PRINTF_FIFO_SIZE, 1 << 20},
                       {CU_LIMIT_MALLOC_HEAP_SIZE, 8 << 20}};
    context->legacy = make_stream(*context, 0, 0);
    driver().contexts.push_back(std::move(context));
    return driver().contexts.back().get();
}

namespace {

// Removes what `belongs`; true for each is one thing its user forgot.
template <class T, class Belongs>
void abandon(Handles<T>& handles, Belongs belongs, bool counted = true) {
    for (auto entry = handles.live.begin(); entry != handles.live.end();) {
        bool mine = belongs(*entry->second);
        if (mine && counted) ++driver().abandoned;
        entry = mine ? handles.remove(entry) : std::next(entry);
    }
}

}  // namespace

void destroy(Lock& lock, Context& context) {
    wait_until(lock, [&] {
        return std::all_of(context.streams.begin(), context.streams.end(),
                           [](auto& stream) { return stream->idle(); });
    });
    context.alive = false;
    auto mine = [&](auto& thing) { return &thing.context == &context; };
    abandon(driver().streams, mine);
    abandon(driver().events, mine);
    abandon(driver().functions, [&](auto& it) { return &it.module->context == &context; }, false);
    abandon(driver().modules, [&](auto& it) { return mine(it) && !it.of_library; });
    abandon(driver().modules, mine, false);
    driver().abandoned += release_blocks(context);
    for (auto& stream : context.streams) {
        stream->closing = true;
        waited_for(*stream);
    }
    context.streams.clear();
    context.per_thread.clear();
    for (auto& other : driver().contexts) other->peers.erase(&context);
    driver().progress.notify_all();
}

}  // namespace sim
