// What is alive, for tests that look for leaks.
#include "event.h"
#include "graph.h"
#include "memory.h"
#include "module.h"

using namespace sim;

// What is alive, as JSON; the text is valid until this thread's next call. "abandoned" counts what
// was alive when its context was destroyed, since the start.
EXPORT const char* sim_live() {
    thread_local std::string text;
    if (driver().forked) return "{}";
    Lock lock(driver().mutex);
    uint64_t contexts = 0;
    for (auto& context : driver().contexts) contexts += context->alive;
    BlockCount blocks = count_blocks();
    text.clear();
    auto add = [&](const char* name, uint64_t value) {
        text += text.empty() ? "{" : ", ";
        text += "\"" + std::string(name) + "\": " + std::to_string(value);
    };
    add("contexts", contexts);
    add("blocks", blocks.device_blocks);
    add("nbytes", blocks.device_nbytes);
    add("host_blocks", blocks.host_blocks);
    add("streams", driver().streams.live.size());
    add("events", driver().events.live.size());
    add("modules", driver().modules.live.size());
    add("pools", driver().pools.live.size() - driver().devices.size());
    add("graphs", driver().graphs.live.size());
    add("execs", driver().execs.live.size());
    add("arrays", driver().arrays.live.size());
    add("images", driver().images.live.size());
    add("abandoned", driver().abandoned);
    text += "}";
    return text.c_str();
}
