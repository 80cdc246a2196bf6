#include "array_boxes.h"

namespace sim {
namespace {

Side side_of(size_t x, size_t y, size_t z, size_t level, CUmemorytype type, CUdeviceptr memory,
             CUarray array, size_t pitch, size_t height) {
    need(level == 0);
    if (type == CU_MEMORYTYPE_ARRAY) return {x, y, z, array_at(array), 0, 0, 0};
    // Pitched memory of the host is left out.
    need(type == CU_MEMORYTYPE_UNIFIED || type == CU_MEMORYTYPE_DEVICE, NOT_SUPPORTED);
    return {x, y, z, nullptr, memory, pitch, height};
}

}  // namespace

Task box_task(Context& context, const CUDA_MEMCPY3D* given) {
    need(given != nullptr);
    const CUDA_MEMCPY3D& is = *given;
    const Side from = side_of(is.srcXInBytes, is.srcY, is.srcZ, is.srcLOD, is.srcMemoryType,
                              is.srcDevice, is.srcArray, is.srcPitch, is.srcHeight);
    const Side to = side_of(is.dstXInBytes, is.dstY, is.dstZ, is.dstLOD, is.dstMemoryType,
                            is.dstDevice, is.dstArray, is.dstPitch, is.dstHeight);
    return box_task(context, to, from, is.WidthInBytes, is.Height, is.Depth);
}

uint64_t object_value(Lock&, Context&, ImageObject&) { return next_handle(); }

}  // namespace sim

using namespace sim;

EXPORT CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* is, CUstream handle) {
    return enter_context("cuMemcpy3DAsync", [&](Context& context, Lock&) {
        auto stream = stream_of(context, handle);
        copy_box("cuMemcpy3DAsync", *stream, box_task(stream->context, is));
    });
}
