// Copies of boxes: rows of bytes in arrays, or at a pitch in memory.
#include <cstring>

#include "array.h"

namespace sim {
namespace {

struct Box {
    Place place;
    uint64_t pitch, height;  // from a row to the next, and rows from a slice to the next
};

// One side of a copy, in the order of its fields in CUDA_MEMCPY3D.
struct Side {
    size_t x, y, z, level;
    CUmemorytype type;
    CUdeviceptr device;
    CUarray array;
    size_t pitch, height;
};

Box box_of(Context& context, const Side& side, const CUDA_MEMCPY3D& is) {
    need(side.level == 0);
    if (side.type == CU_MEMORYTYPE_ARRAY) {
        auto array = array_at(side.array);
        const KernelImage& shape = array->shape;
        need(array->block->context == &context);
        const uint64_t row = shape.row_nbytes();
        need(side.x + is.WidthInBytes <= row && side.y + is.Height <= shape.size[1] &&
             side.z + is.Depth <= shape.size[2]);
        // Whole pixels alone.
        need((side.x | is.WidthInBytes) % (shape.channels * shape.nbytes) == 0);
        return {{array->block, shape.row(side.y, side.z) + side.x}, row, shape.size[1]};
    }
    // Pitched memory of the host is left out.
    need(side.type == CU_MEMORYTYPE_UNIFIED || side.type == CU_MEMORYTYPE_DEVICE, NOT_SUPPORTED);
    const bool flat = is.Height == 1 && is.Depth == 1;
    need(flat || side.pitch >= side.x + is.WidthInBytes);
    need(is.Depth == 1 || side.height >= side.y + is.Height);
    const uint64_t slice = side.pitch * side.height;
    const uint64_t start = side.z * slice + side.y * side.pitch + side.x;
    const uint64_t extent = (is.Depth - 1) * slice + (is.Height - 1) * side.pitch + is.WidthInBytes;
    return {any_place(side.device + start, extent), side.pitch, side.height};
}

void copy(const Box& to, const Box& from, uint64_t row, uint64_t height, uint64_t depth) {
    for (uint64_t z = 0; z < depth; ++z)
        for (uint64_t y = 0; y < height; ++y)
            std::memcpy(to.place.bytes + (z * to.height + y) * to.pitch,
                        from.place.bytes + (z * from.height + y) * from.pitch, row);
}

}  // namespace

Task box_task(Context& context, const CUDA_MEMCPY3D* given) {
    need(given && given->WidthInBytes > 0 && given->Height > 0 && given->Depth > 0);
    const CUDA_MEMCPY3D is = *given;
    const Box from = box_of(context, {is.srcXInBytes, is.srcY, is.srcZ, is.srcLOD, is.srcMemoryType,
                                      is.srcDevice, is.srcArray, is.srcPitch, is.srcHeight}, is);
    const Box to = box_of(context, {is.dstXInBytes, is.dstY, is.dstZ, is.dstLOD, is.dstMemoryType,
                                    is.dstDevice, is.dstArray, is.dstPitch, is.dstHeight}, is);
    if (is.srcMemoryType == CU_MEMORYTYPE_ARRAY && is.dstMemoryType == CU_MEMORYTYPE_ARRAY) {
        const KernelImage &a = array_at(is.srcArray)->shape, &b = array_at(is.dstArray)->shape;
        need(a.channels * a.nbytes == b.channels * b.nbytes);  // pixels of one size
    }
    const bool shaped =
        is.srcMemoryType == CU_MEMORYTYPE_ARRAY || is.dstMemoryType == CU_MEMORYTYPE_ARRAY;
    return {Task::Copy, &context, [=, &context] {
                if (still_there(to.place, context, "a copy of a box") &&
                    still_there(from.place, context, "a copy of a box"))
                    copy(to, from, is.WidthInBytes, is.Height, is.Depth);
            }, {Operand(to.place), Operand(from.place)}, shaped || is.Height > 1 || is.Depth > 1};
}

}  // namespace sim

using namespace sim;

EXPORT CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* is, CUstream handle) {
    return enter_context("cuMemcpy3DAsync", [&](Context& context, Lock&) {
        auto stream = stream_of(context, handle);
        Task task = box_task(stream->context, is);
        // Pageable memory would have to be read before the call returns.
        need(task.memory[0].context && task.memory[1].context, NOT_SUPPORTED);
        submit(*stream, {"cuMemcpy3DAsync", task.run});
    });
}
