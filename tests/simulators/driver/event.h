// Events: a mark in a stream, and when it was passed.
#pragma once

#include <chrono>

#include "stream.h"

namespace sim {

struct Mark {
    Point point;
    std::chrono::steady_clock::time_point passed{};
};

struct Event {
    Context& context;
    unsigned flags;
    std::shared_ptr<Mark> mark;  // null: never recorded. Recording again replaces it
    bool captured = false;       // recorded last in a stream that was captured

    Event(Context& context, unsigned flags) : context(context), flags(flags) {}
};

// Milliseconds from one event to the other, which streams of one context have passed.
float elapsed(EventHandle first, EventHandle last);

}  // namespace sim
