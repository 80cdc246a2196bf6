// Contexts: who owns memory, streams, events and modules, and where an error stays.
#pragma once

#include <map>
#include <set>
#include <string>
#include <thread>

#include "driver.h"

namespace sim {

struct Context {
    Device& device;
    ContextHandle handle;
    unsigned flags = 0;
    bool primary = false;
    bool alive = true;
    unsigned usage = 1;               // cuCtxAttach and cuCtxDetach
    Status error = SUCCESS;    // sticky: nothing works here any more
    std::set<Context*> peers;         // whose memory kernels of this context may touch
    std::shared_ptr<Stream> legacy;   // the stream that has no handle
    std::set<std::shared_ptr<Stream>> streams;  // with the legacy stream
    std::map<std::thread::id, std::shared_ptr<Stream>> per_thread;

    explicit Context(Device& device) : device(device), handle(new_handle<ContextHandle>()) {}
};

Context* make_context(Device& device, unsigned flags);

// Waits for the work, then takes away all that belongs to the context.
void destroy(Lock& lock, Context& context);

// The first error of a context stays; `why` is what sim_message tells.
void fail(Context& context, Status code, const std::string& why);

Context& context_of(ContextHandle handle);

}  // namespace sim
