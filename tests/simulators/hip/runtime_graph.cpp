// Entry points: copies and fills in graphs, whose parameters are HIP's own.
#include "runtime_array.h"

using namespace sim;

namespace {

struct MemsetParams {
    void* dst;
    unsigned elementSize;
    size_t height, pitch;
    unsigned value;
    size_t width;
};

Task fill_task(Context& context, const MemsetParams* is) {
    need(is && is->height == 1);
    auto address = reinterpret_cast<Address>(is->dst);
    return sim::fill_task(context, address, is->value, is->elementSize, is->width);
}

}  // namespace

EXPORT Status hipGraphAddMemcpyNode(NodeHandle* out, GraphHandle graph, const NodeHandle* after,
                                    size_t count, const BoxCopy* is) {
    return enter_context("hipGraphAddMemcpyNode", [&](Context& context, Lock&) {
        // Source: GraphMemcpyNode in clr 6.2, which takes that for a copy on the host, of nothing.
        need(!is || !is->from.array || !is->to.array || is->direction != DEFAULT);
        add_node(graph, out, after, count, box_task(context, is));
    });
}

EXPORT Status hipGraphAddMemcpyNode1D(NodeHandle* out, GraphHandle graph, const NodeHandle* after,
                                      size_t count, Address to, Address from, size_t nbytes,
                                      int kind) {
    return enter_context("hipGraphAddMemcpyNode1D", [&](Context& context, Lock&) {
        need(kind == DEFAULT && nbytes > 0);
        add_node(graph, out, after, count, copy_task(context, to, from, nbytes));
    });
}

EXPORT Status hipGraphExecMemcpyNodeSetParams1D(ExecHandle exec, NodeHandle node, Address to,
                                                Address from, size_t nbytes, int kind) {
    return enter_context("hipGraphExecMemcpyNodeSetParams1D", [&](Context& context, Lock&) {
        need(kind == DEFAULT && nbytes > 0);
        set_node(exec, node, copy_task(context, to, from, nbytes));
    });
}

EXPORT Status hipGraphAddMemsetNode(NodeHandle* out, GraphHandle graph, const NodeHandle* after,
                                    size_t count, const MemsetParams* is) {
    return enter_context("hipGraphAddMemsetNode", [&](Context& context, Lock&) {
        add_node(graph, out, after, count, fill_task(context, is));
    });
}

EXPORT Status hipGraphExecMemsetNodeSetParams(ExecHandle exec, NodeHandle node,
                                              const MemsetParams* is) {
    return enter_context("hipGraphExecMemsetNodeSetParams", [&](Context& context, Lock&) {
        set_node(exec, node, fill_task(context, is));
    });
}
