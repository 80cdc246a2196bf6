// Entry points: the nodes of graphs, whose parameters are CUDA's own.
#include "graph.h"
#include "array_boxes.h"
#include "module.h"

using namespace sim;

namespace {

Task task_of(Context& context, const CUDA_KERNEL_NODE_PARAMS* is) {
    need(is && !is->kern);
    Shape shape{{is->gridDimX, is->gridDimY, is->gridDimZ},
                {is->blockDimX, is->blockDimY, is->blockDimZ},
                is->sharedMemBytes};
    auto function = function_at(is->func);
    return launch_task(context, function, shape, is->kernelParams, is->extra);
}

Task task_of(CUcontext context, const CUDA_MEMCPY3D* is) {
    return box_task(context_of(context), is);
}

Task task_of(CUcontext context, const CUDA_MEMSET_NODE_PARAMS* is) {
    need(is && is->height == 1);
    return fill_task(context_of(context), is->dst, is->value, is->elementSize, is->width);
}

}  // namespace

EXPORT CUresult cuGraphAddKernelNode_v2(NodeHandle* out, GraphHandle graph, const NodeHandle* after,
                                        size_t count, const CUDA_KERNEL_NODE_PARAMS* is) {
    return enter_context("cuGraphAddKernelNode", [&](Context& context, Lock&) {
        add_node(graph, out, after, count, task_of(context, is));
    });
}

EXPORT CUresult cuGraphExecKernelNodeSetParams_v2(ExecHandle exec, NodeHandle node,
                                                  const CUDA_KERNEL_NODE_PARAMS* is) {
    return enter_context("cuGraphExecKernelNodeSetParams", [&](Context& context, Lock&) {
        set_node(exec, node, task_of(context, is));
    });
}

EXPORT CUresult cuGraphAddMemcpyNode(NodeHandle* out, GraphHandle graph, const NodeHandle* after,
                                     size_t count, const CUDA_MEMCPY3D* is, CUcontext context) {
    return enter_context("cuGraphAddMemcpyNode", [&](Context&, Lock&) {
        add_node(graph, out, after, count, task_of(context, is));
    });
}

EXPORT CUresult cuGraphExecMemcpyNodeSetParams(ExecHandle exec, NodeHandle node,
                                               const CUDA_MEMCPY3D* is, CUcontext context) {
    return enter_context("cuGraphExecMemcpyNodeSetParams", [&](Context&, Lock&) {
        set_node(exec, node, task_of(context, is));
    });
}

EXPORT CUresult cuGraphAddMemsetNode(NodeHandle* out, GraphHandle graph, const NodeHandle* after,
                                     size_t count, const CUDA_MEMSET_NODE_PARAMS* is,
                                     CUcontext context) {
    return enter_context("cuGraphAddMemsetNode", [&](Context&, Lock&) {
        add_node(graph, out, after, count, task_of(context, is));
    });
}

EXPORT CUresult cuGraphExecMemsetNodeSetParams(ExecHandle exec, NodeHandle node,
                                               const CUDA_MEMSET_NODE_PARAMS* is,
                                               CUcontext context) {
    return enter_context("cuGraphExecMemsetNodeSetParams", [&](Context&, Lock&) {
        set_node(exec, node, task_of(context, is));
    });
}

// The name of before version 12, under which bindings ask for it.
EXPORT CUresult cuGraphInstantiateWithFlags(ExecHandle* out, GraphHandle graph,
                                            unsigned long long flags);
EXPORT CUresult cuGraphInstantiate(ExecHandle* out, GraphHandle graph, unsigned long long flags) {
    return cuGraphInstantiateWithFlags(out, graph, flags);
}
