// Entry points: copies of boxes; and the memory of texture and surface objects, which kernels read.
#include "runtime_array.h"

#include <cstring>

#include "descriptor.h"

namespace sim {
namespace {

Side side_of(const BoxCopy::Side& is) {
    need(!is.array != !is.memory);
    if (is.array) {
        auto array = array_at(is.array);
        return {is.x * array->shape.pixel_nbytes(), is.y, is.z, array, 0, 0, 0};
    }
    need(is.pitch >= is.width);
    return {is.x, is.y, is.z, nullptr, is.memory, is.pitch, is.height};
}

}  // namespace

Task box_task(Context& context, const BoxCopy* is) {
    need(is && (is->direction == DEVICE_TO_DEVICE || is->direction == DEFAULT));
    const Side from = side_of(is->from), to = side_of(is->to);
    const auto& array = to.array ? to.array : from.array;
    return box_task(context, to, from, is->width * (array ? array->shape.pixel_nbytes() : 1),
                    is->height, is->depth);
}

uint64_t object_value(Lock& lock, Context& context, ImageObject& object) {
    uint32_t words[gfx9::OBJECT_WORDS] = {};
    gfx9::describe(object.image, object.array->block->address, words);
    object.memory = allocate(lock, context, Kind::Array, sizeof words);
    std::memcpy(object.memory->bytes, words, sizeof words);
    return object.memory->address;
}

}  // namespace sim

using namespace sim;

EXPORT Status hipMemcpy3DAsync(const BoxCopy* is, StreamHandle handle) {
    return enter_context("hipMemcpy3DAsync", [&](Context& context, Lock&) {
        auto stream = stream_of(context, handle);
        copy_box("hipMemcpy3DAsync", *stream, box_task(stream->context, is));
    });
}
