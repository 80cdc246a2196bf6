// Graphs, and the entry points that both vendors have.
#include "graph.h"

#include <algorithm>
#include <cstring>

namespace sim {

void add_node(GraphHandle handle, NodeHandle* out, const NodeHandle* after, size_t count,
              Task task) {
    auto graph = driver().graphs.get(handle);
    need(out && (after || !count));
    std::vector<NodeHandle> before(after, after + count);
    for (NodeHandle one : before)
        need(std::any_of(graph->nodes.begin(), graph->nodes.end(),
                         [&](auto& node) { return node.handle == one; }));
    *out = new_handle<NodeHandle>();
    graph->nodes.push_back({*out, before, std::move(task)});
}

void set_node(ExecHandle handle, NodeHandle which, Task task) {
    auto exec = driver().execs.get(handle);
    for (Node& node : exec->nodes) {
        if (node.handle != which) continue;
        need(node.task.kind == task.kind && node.task.context == task.context);
        need(node.task.memory == task.memory && !node.task.shaped && !task.shaped);
        node.task = std::move(task);
        return;
    }
    refuse(INVALID_VALUE);
}

Task copy_task(Context& context, Address to, Address from, size_t nbytes) {
    Place target = any_place(to, nbytes), source = any_place(from, nbytes);
    return {Task::Copy, &context, [=, &context] {
                if (still_there(target, context, "a copy in a graph") &&
                    still_there(source, context, "a copy in a graph"))
                    std::memcpy(target.bytes, source.bytes, nbytes);  // an overlap has no order
            }, {Operand(target), Operand(source)}};
}

Task fill_task(Context& context, Address to, unsigned value, unsigned element, size_t count) {
    need(element == 1 || element == 2 || element == 4);
    need(count > 0 && to % element == 0);
    Place target = device_place(to, count * element);
    return {Task::Fill, &context, [=, &context] {
                if (!still_there(target, context, "a fill in a graph")) return;
                for (size_t at = 0; at < count * element; ++at)
                    target.bytes[at] = uint8_t(value >> at % element * 8);
            }, {Operand(target)}};
}

namespace {

// One of the orders that the dependencies allow: by chance where streams are shuffled, else that in
// which the nodes were added.
std::vector<Task> in_order(const Exec& exec) {
    std::vector<Node> left = exec.nodes;
    std::vector<NodeHandle> done;
    std::vector<Task> tasks;
    while (!left.empty()) {
        std::vector<size_t> able;
        for (size_t index = 0; index < left.size(); ++index)
            if (std::all_of(left[index].after.begin(), left[index].after.end(), [&](auto one) {
                    return std::find(done.begin(), done.end(), one) != done.end();
                }))
                able.push_back(index);
        size_t chosen = able[driver().shuffled ? driver().chance() % able.size() : 0];
        done.push_back(left[chosen].handle);
        tasks.push_back(left[chosen].task);
        left.erase(left.begin() + chosen);
    }
    return tasks;
}

void run(Context& context, const std::vector<Task>& tasks) {
    for (const Task& task : tasks) {
        if (context.error != SUCCESS) return;
        task.run();
    }
}

}  // namespace
}  // namespace sim

using namespace sim;

EXPORT Status ENTRY(cuGraphCreate, hipGraphCreate)(GraphHandle* out, unsigned flags) {
    return enter_context(NAME(cuGraphCreate, hipGraphCreate), [&](Context&, Lock&) {
        need(out && flags == 0);
        *out = new_handle<GraphHandle>();
        driver().graphs.live[reinterpret_cast<uintptr_t>(*out)] = std::make_shared<Graph>();
    });
}

EXPORT Status ENTRY(cuGraphDestroy, hipGraphDestroy)(GraphHandle handle) {
    return enter_context(NAME(cuGraphDestroy, hipGraphDestroy), [&](Context&, Lock&) {
        driver().graphs.get(handle);
        driver().graphs.remove(handle);
    });
}

EXPORT Status ENTRY(cuGraphInstantiateWithFlags, hipGraphInstantiateWithFlags)(ExecHandle* out, GraphHandle handle,
                                                                               unsigned long long flags) {
    return enter_context(NAME(cuGraphInstantiateWithFlags, hipGraphInstantiateWithFlags), [&](Context&, Lock&) {
        need(out && flags == 0);
        auto exec = std::make_shared<Exec>(Exec{driver().graphs.get(handle)->nodes});
        *out = new_handle<ExecHandle>();
        driver().execs.live[reinterpret_cast<uintptr_t>(*out)] = exec;
    });
}

EXPORT Status ENTRY(cuGraphExecDestroy, hipGraphExecDestroy)(ExecHandle handle) {
    return enter_context(NAME(cuGraphExecDestroy, hipGraphExecDestroy), [&](Context&, Lock&) {
        auto& last = driver().execs.get(handle)->last;
        need(!last.stream || last.reached(), NOT_PERMITTED);  // the vendor leaves open what happens
        driver().execs.remove(handle);
    });
}

EXPORT Status ENTRY(cuGraphLaunch, hipGraphLaunch)(ExecHandle handle, StreamHandle stream_handle) {
    return enter_context(NAME(cuGraphLaunch, hipGraphLaunch), [&](Context& context, Lock&) {
        auto exec = driver().execs.get(handle);
        auto stream = stream_of(context, stream_handle);
        Context& owner = stream->context;
        Work work{NAME(cuGraphLaunch, hipGraphLaunch),
                  [tasks = in_order(*exec), &owner] { run(owner, tasks); }};
        if (REPLAYS_IN_TURN && exec->last.stream) work.after.push_back(exec->last);
        exec->last = submit(*stream, std::move(work));
    });
}
