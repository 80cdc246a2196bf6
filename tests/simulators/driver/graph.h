// Graphs: work that is launched together, in any order that its dependencies allow.
#pragma once

#include "memory.h"

namespace sim {

using GraphHandle = struct OpaqueGraph*;
using NodeHandle = struct OpaqueNode*;
using ExecHandle = struct OpaqueExec*;

// Where memory is mapped, which a graph that is ready does not change.
struct Operand {
    Context* context;  // null: pageable memory
    bool on_host;

    explicit Operand(const Place& place)
        : context(place.block ? place.block->context : nullptr),
          on_host(!place.block || place.block->on_host()) {}
    bool operator==(const Operand& other) const {
        return context == other.context && on_host == other.on_host;
    }
};

// What a node does on the device. It holds its own copy of a kernel's arguments.
struct Task {
    enum Kind { Launch, Copy, Fill } kind;
    Context* context;
    std::function<void()> run;
    std::vector<Operand> memory{};  // of a copy or fill
    bool shaped = false;            // it copies an array: a graph that is ready keeps it as it is
};

struct Node {
    NodeHandle handle;
    std::vector<NodeHandle> after;
    Task task;
};

struct Graph {
    std::vector<Node> nodes;
};

struct Exec {
    std::vector<Node> nodes;  // as they were when it was instantiated, or as they were set since
    Point last{};             // of its last launch, which the next one comes after
};

void add_node(GraphHandle graph, NodeHandle* out, const NodeHandle* after, size_t count, Task task);
void set_node(ExecHandle exec, NodeHandle node, Task task);

Task copy_task(Context& context, Address to, Address from, size_t nbytes);
Task fill_task(Context& context, Address to, unsigned value, unsigned element, size_t count);

}  // namespace sim
