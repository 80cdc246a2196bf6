// A context's life.
#include "context.h"

#include <algorithm>

#include "event.h"
#include "faults.h"
#include "memory.h"
#include "module.h"
#include "stream.h"

namespace sim {

void check(const Context& context) {
    need(context.alive, CONTEXT_IS_DESTROYED);
    need(context.error == SUCCESS, context.error);
}

Context& context_of(ContextHandle handle) {
    for (auto& context : driver().contexts)
        if (context->handle == handle) {
            if (!context->alive) note_stale(handle);
            need(context->alive, CONTEXT_IS_DESTROYED);
            return *context;
        }
    refuse(INVALID_CONTEXT);
}

void fail(Context& context, Status code, const std::string& why) {
    if (context.error != SUCCESS) return;
    context.error = code;
    if (driver().sticky) context.device.fault = code;
    set_message(why);
    driver().progress.notify_all();
}

Context* make_context(Device& device, unsigned flags) {
    need((flags & ~0xffu) == 0 && (flags & 7) != 3 && (flags & 7) <= 4);
    auto context = std::make_unique<Context>(device);
    context->flags = flags;
    context->error = device.fault;
    context->legacy = make_stream(*context, 0);
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
    abandon(driver().modules, mine);
    abandon(driver().images, [&](auto& it) { return it.array->block->context == &context; });
    abandon(driver().arrays, [&](auto& it) { return it.block->context == &context; });
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
