// Streams: work in order, each stream on a worker of its own.
#pragma once

#include <deque>
#include <functional>

#include "context.h"

namespace sim {

// What a stream has to have done.
struct Point {
    std::shared_ptr<Stream> stream;
    uint64_t number;

    bool reached() const;
};

struct Work {
    const char* name;            // of the call that asked for it
    std::function<void()> run;   // without the lock
    std::vector<Point> after{};  // beside all earlier work of the stream
    bool always = false;         // even where the context has failed
};

struct Stream : std::enable_shared_from_this<Stream> {
    Context& context;
    StreamHandle handle = nullptr;  // null: a default stream
    unsigned flags;
    uint64_t id = made++;  // no other stream's, though its handle may be
    uint64_t submitted = 0, completed = 0;
    std::deque<Work> queue;
    bool started = false, closing = false;

    static inline uint64_t made = 0;

    Stream(Context& context, unsigned flags) : context(context), flags(flags) {}

    bool may_go_on() const;  // its next piece of work waits for nothing
    bool idle() const { return completed == submitted; }
    bool blocking() const { return !(flags & NON_BLOCKING); }
};

std::shared_ptr<Stream> make_stream(Context& context, unsigned flags);

// A handle as a caller gives it: null and 1 are the legacy stream of the current context.
std::shared_ptr<Stream> stream_of(Context& current, StreamHandle handle);

// Puts work behind what is there, with the legacy stream's order against the others.
Point submit(Stream& stream, Work work);

// Waits for that point, and refuses with what went wrong in the stream's context.
void wait_for(Lock& lock, const Point& point);
void wait_for_all(Lock& lock, Context& context);

}  // namespace sim
