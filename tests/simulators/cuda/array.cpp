// Entry points: arrays, and the objects through which kernels see them.
#include "array.h"

#include <algorithm>

namespace sim {
namespace {

// CU_AD_FORMAT_...: the kind and the bytes of a pixel's part.
void set_format(KernelImage& shape, unsigned format) {
    switch (format) {
        case 0x01: case 0x02: case 0x03:
            shape.kind = 'u';
            shape.nbytes = 1u << (format - 1);
            return;
        case 0x08: case 0x09: case 0x0a:
            shape.kind = 'i';
            shape.nbytes = 1u << (format - 8);
            return;
        case 0x10: case 0x20:
            shape.kind = 'f';
            shape.nbytes = format / 8;
            return;
        default: refuse(INVALID_VALUE);
    }
}

KernelImage shape_of(const CUDA_ARRAY3D_DESCRIPTOR& is) {
    // Those of surfaces, which are not larger than textures may be.
    constexpr size_t most[4][3] = {{}, {32768}, {131072, 65536}, {16384, 16384, 16384}};
    const size_t sizes[3] = {is.Width, is.Height, is.Depth};
    KernelImage shape;
    need(is.Width > 0 && (is.Height > 0 || is.Depth == 0));
    need(is.NumChannels == 1 || is.NumChannels == 2 || is.NumChannels == 4);
    need((is.Flags & ~CUDA_ARRAY3D_SURFACE_LDST) == 0, NOT_SUPPORTED);
    shape.axes = 1 + (is.Height > 0) + (is.Depth > 0);
    for (uint32_t axis = 0; axis < shape.axes; ++axis) {
        need(sizes[axis] <= most[shape.axes][axis]);
        shape.size[axis] = uint32_t(sizes[axis]);
    }
    shape.channels = is.NumChannels;
    shape.surface = true;
    set_format(shape, is.Format);
    return shape;
}

std::shared_ptr<Array> array_of(Context& context, const CUDA_RESOURCE_DESC* resource) {
    need(resource && resource->flags == 0);
    need(resource->resType == 0, NOT_SUPPORTED);  // an array, and no plain memory
    auto array = array_at(resource->hArray);
    need(array->block->context == &context);
    return array;
}

void add(unsigned long long* out, std::shared_ptr<Array> array, const KernelImage& image) {
    *out = next_handle();
    driver().images.live[*out] = std::make_shared<ImageObject>(ImageObject{array, image});
}

CUresult destroy(const char* name, unsigned long long object, bool surface) {
    return enter_context(name, [&](Context&, Lock&) {
        const void* handle = reinterpret_cast<void*>(object);
        auto found = driver().images.get(handle);
        need(found->image.surface == surface);
        driver().images.remove(handle);
        forget_cached_blocks();
    });
}

}  // namespace

std::shared_ptr<Array> array_at(CUarray handle) { return driver().arrays.get(handle); }

}  // namespace sim

using namespace sim;

EXPORT CUresult cuArray3DCreate_v2(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR* is) {
    return enter_context("cuArray3DCreate", [&](Context& context, Lock& lock) {
        need(out && is);
        KernelImage shape = shape_of(*is);
        const uint64_t rows = uint64_t(shape.size[1]) * shape.size[2];
        auto block = allocate(lock, context, Kind::Array, rows * shape.row_nbytes());
        shape.bytes = block->bytes;
        *out = new_handle<CUarray>();
        driver().arrays.live[reinterpret_cast<uintptr_t>(*out)] =
            std::make_shared<Array>(Array{block, shape, is->Flags != 0});
    });
}

EXPORT CUresult cuArrayDestroy(CUarray handle) {
    return enter_context("cuArrayDestroy", [&](Context&, Lock&) {
        release(array_at(handle)->block);
        driver().arrays.remove(handle);
    });
}

EXPORT CUresult cuTexObjectCreate(unsigned long long* out, const CUDA_RESOURCE_DESC* resource,
                                  const CUDA_TEXTURE_DESC* is, const void* view) {
    return enter_context("cuTexObjectCreate", [&](Context& context, Lock&) {
        need(out && is);
        // Coordinates count pixels, the nearest one is taken, and at the edges it is the last one.
        const bool clamps = std::count(is->addressMode, is->addressMode + 3, CU_TR_ADDRESS_MODE_CLAMP) == 3;
        need(!view && clamps && !is->filterMode && !(is->flags & ~CU_TRSF_READ_AS_INTEGER),
             NOT_SUPPORTED);
        auto array = array_of(context, resource);
        KernelImage image = array->shape;
        image.surface = false;
        // Integers of 32 bits stay what they are.
        image.normalised = !is->flags && image.kind != 'f' && image.nbytes < 4;
        add(out, array, image);
    });
}

EXPORT CUresult cuTexObjectDestroy(unsigned long long object) {
    return destroy("cuTexObjectDestroy", object, false);
}

EXPORT CUresult cuSurfObjectCreate(unsigned long long* out, const CUDA_RESOURCE_DESC* resource) {
    return enter_context("cuSurfObjectCreate", [&](Context& context, Lock&) {
        need(out != nullptr);
        auto array = array_of(context, resource);
        need(array->written);
        add(out, array, array->shape);
    });
}

EXPORT CUresult cuSurfObjectDestroy(unsigned long long object) {
    return destroy("cuSurfObjectDestroy", object, true);
}
