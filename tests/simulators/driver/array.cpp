// Entry points: arrays, and the objects through which kernels see them.
#include "array.h"

#include <algorithm>

namespace sim {
namespace {

constexpr unsigned WRITTEN = 2;                 // of an array: by kernels
constexpr unsigned CLAMP = 1, AS_INTEGERS = 1;  // of a texture

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

KernelImage shape_of(const ArrayDescriptor& is) {
    const size_t sizes[3] = {is.width, is.height, is.depth};
    KernelImage shape;
    need(is.width > 0 && (is.height > 0 || is.depth == 0));
    need(is.channels == 1 || is.channels == 2 || is.channels == 4);
    need((is.flags & ~WRITTEN) == 0, NOT_SUPPORTED);
    shape.axes = 1 + (is.height > 0) + (is.depth > 0);
    for (uint32_t axis = 0; axis < shape.axes; ++axis) {
        need(sizes[axis] <= ARRAY_MOST[shape.axes - 1][axis]);
        shape.size[axis] = uint32_t(sizes[axis]);
    }
    shape.channels = is.channels;
    shape.surface = true;
    set_format(shape, is.format);
    return shape;
}

std::shared_ptr<Array> array_of(Context& context, const Resource* resource) {
    need(resource != nullptr);
    need(resource->kind == 0, NOT_SUPPORTED);  // an array, and no plain memory
    auto array = array_at(resource->array);
    need(array->block->context == &context);
    return array;
}

void add(unsigned long long* out, Lock& lock, Context& context, std::shared_ptr<Array> array,
         const KernelImage& image) {
    auto object = std::make_shared<ImageObject>(ImageObject{array, image, nullptr});
    *out = object_value(lock, context, *object);
    driver().images.live[*out] = object;
}

Status destroy(const char* name, unsigned long long object, bool surface) {
    return enter_context(name, [&](Context&, Lock&) {
        const void* handle = reinterpret_cast<void*>(object);
        auto found = driver().images.get(handle);
        need(found->image.surface == surface);
        driver().images.remove(handle);
        if (found->memory) release(found->memory);
        forget_cached_blocks();
    });
}

}  // namespace

std::shared_ptr<Array> array_at(ArrayHandle handle) { return driver().arrays.get(handle); }

}  // namespace sim

using namespace sim;

EXPORT Status ENTRY(cuArray3DCreate_v2, hipArray3DCreate)(ArrayHandle* out, const ArrayDescriptor* is) {
    return enter_context(NAME(cuArray3DCreate, hipArray3DCreate), [&](Context& context, Lock& lock) {
        need(out && is);
        KernelImage shape = shape_of(*is);
        const uint64_t rows = uint64_t(shape.size[1]) * shape.size[2];
        auto block = allocate(lock, context, Kind::Array, rows * shape.row_nbytes());
        shape.bytes = block->bytes;
        *out = new_handle<ArrayHandle>();
        driver().arrays.live[reinterpret_cast<uintptr_t>(*out)] =
            std::make_shared<Array>(Array{block, shape, is->flags != 0});
    });
}

EXPORT Status ENTRY(cuArrayDestroy, hipArrayDestroy)(ArrayHandle handle) {
    return enter_context(NAME(cuArrayDestroy, hipArrayDestroy), [&](Context&, Lock&) {
        release(array_at(handle)->block);
        driver().arrays.remove(handle);
    });
}

EXPORT Status ENTRY(cuTexObjectCreate, hipTexObjectCreate)(unsigned long long* out, const Resource* resource,
                                                           const Sampling* is, const void* view) {
    return enter_context(NAME(cuTexObjectCreate, hipTexObjectCreate), [&](Context& context, Lock& lock) {
        need(out && is);
        // Coordinates count pixels, the nearest one is taken, and at the edges it is the last one.
        const bool clamps = std::count(is->beyond, is->beyond + 3, CLAMP) == 3;
        need(!view && clamps && !is->filter && !(is->flags & ~AS_INTEGERS), NOT_SUPPORTED);
        auto array = array_of(context, resource);
        need(resource->flags == 0);
        KernelImage image = array->shape;
        image.surface = false;
        // Integers of 32 bits stay what they are.
        image.normalised = !is->flags && image.kind != 'f' && image.nbytes < 4;
        add(out, lock, context, array, image);
    });
}

EXPORT Status ENTRY(cuTexObjectDestroy, hipTexObjectDestroy)(unsigned long long object) {
    return destroy(NAME(cuTexObjectDestroy, hipTexObjectDestroy), object, false);
}

// HIP's resource ends before the flags.
EXPORT Status ENTRY(cuSurfObjectCreate, hipCreateSurfaceObject)(unsigned long long* out, const Resource* resource) {
    return enter_context(NAME(cuSurfObjectCreate, hipCreateSurfaceObject), [&](Context& context, Lock& lock) {
        need(out != nullptr);
        auto array = array_of(context, resource);
        need(array->written);
        add(out, lock, context, array, array->shape);
    });
}

EXPORT Status ENTRY(cuSurfObjectDestroy, hipDestroySurfaceObject)(unsigned long long object) {
    return destroy(NAME(cuSurfObjectDestroy, hipDestroySurfaceObject), object, true);
}
