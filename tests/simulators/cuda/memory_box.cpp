// Entry points: copies of rectangles and boxes.
#include "memory_copy.h"
#include "cuda_api.h"

using namespace sim;

namespace {

// What the vendor's records say of one side.
struct Described {
    CUmemorytype type;
    const void* host;
    CUdeviceptr device;
    size_t x, y, z;
    size_t pitch, rows;  // of the memory, not of the box; zero: as small as can be
};

Side side_of(const Described& is, const Box& box) {
    need(is.type != CU_MEMORYTYPE_ARRAY, NOT_SUPPORTED);
    uint64_t row = is.pitch ? is.pitch : box.width;
    uint64_t slice = row * (is.rows ? is.rows : box.height);
    need(is.x + box.width <= row || (box.height == 1 && box.depth == 1 && is.y == 0 && is.z == 0));
    need(box.depth == 1 || is.y + box.height <= slice / row);
    uint64_t offset = is.z * slice + is.y * row + is.x;
    uint64_t nbytes = (box.depth - 1) * slice + (box.height - 1) * row + box.width;
    auto pointer = reinterpret_cast<uint64_t>(is.host);
    switch (is.type) {
        case CU_MEMORYTYPE_HOST:
            need(is.host != nullptr);
            return {host_place(reinterpret_cast<void*>(pointer + offset), nbytes), row, slice};
        case CU_MEMORYTYPE_DEVICE:
            return {device_place(is.device + offset, nbytes), row, slice};
        case CU_MEMORYTYPE_UNIFIED:
            return {any_place(is.device + offset, nbytes), row, slice};
        default:
            refuse(INVALID_VALUE);
    }
}

struct Asked {
    Described to, from;
    Box box;
};

Asked read(const CUDA_MEMCPY2D& is) {
    return {{is.dstMemoryType, is.dstHost, is.dstDevice, is.dstXInBytes, is.dstY, 0,
             is.dstPitch, 0},
            {is.srcMemoryType, is.srcHost, is.srcDevice, is.srcXInBytes, is.srcY, 0,
             is.srcPitch, 0},
            {is.WidthInBytes, is.Height}};
}

Asked read(const CUDA_MEMCPY3D& is) {
    return {{is.dstMemoryType, is.dstHost, is.dstDevice, is.dstXInBytes, is.dstY, is.dstZ,
             is.dstPitch, is.dstHeight},
            {is.srcMemoryType, is.srcHost, is.srcDevice, is.srcXInBytes, is.srcY, is.srcZ,
             is.srcPitch, is.srcHeight},
            {is.WidthInBytes, is.Height, is.Depth}};
}

template <class Record>
CUresult copy_box(const char* name, const Record* record, CUstream* handle = nullptr) {
    return enter_context(name, [&](Context& context, Lock& lock) {
        need(record != nullptr);
        auto stream = handle ? stream_of(context, *handle) : context.legacy;
        Asked is = read(*record);
        if (is.box.empty()) return;
        Side to = side_of(is.to, is.box), from = side_of(is.from, is.box);
        copy(lock, *stream, name, to, from, is.box, !handle);
    });
}

}  // namespace

EXPORT CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* is) { return copy_box("cuMemcpy2D", is); }

EXPORT CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* is) {
    return copy_box("cuMemcpy2DUnaligned", is);
}

EXPORT CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* is, CUstream stream) {
    return copy_box("cuMemcpy2DAsync", is, &stream);
}

EXPORT CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D* is) { return copy_box("cuMemcpy3D", is); }

EXPORT CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* is, CUstream stream) {
    return copy_box("cuMemcpy3DAsync", is, &stream);
}

// Addresses say by themselves which context they are of.
EXPORT CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D* is) { return copy_box("cuMemcpy3DPeer", is); }

EXPORT CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D* is, CUstream stream) {
    return copy_box("cuMemcpy3DPeerAsync", is, &stream);
}
