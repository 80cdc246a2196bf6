// Copies of boxes: rows of bytes in arrays, or at a pitch in memory.
#include <cstring>

#include "array.h"

namespace sim {
namespace {

struct Box {
    Place place;
    uint64_t pitch, height;  // from a row to the next, and rows from a slice to the next
};

Box box_of(Context& context, const Side& is, size_t row_nbytes, size_t height, size_t depth) {
    if (is.array) {
        const KernelImage& shape = is.array->shape;
        need(is.array->block->context == &context);
        const uint64_t row = shape.row_nbytes();
        need(is.x + row_nbytes <= row && is.y + height <= shape.size[1] &&
             is.z + depth <= shape.size[2]);
        need((is.x | row_nbytes) % shape.pixel_nbytes() == 0);  // whole pixels alone
        return {{is.array->block, shape.row(is.y, is.z) + is.x}, row, shape.size[1]};
    }
    const bool flat = height == 1 && depth == 1;
    need(flat || is.pitch >= is.x + row_nbytes);
    need(depth == 1 || is.height >= is.y + height);
    const uint64_t slice = is.pitch * is.height;
    const uint64_t start = is.z * slice + is.y * is.pitch + is.x;
    const uint64_t extent = (depth - 1) * slice + (height - 1) * is.pitch + row_nbytes;
    return {any_place(is.memory + start, extent), is.pitch, is.height};
}

void copy(const Box& to, const Box& from, uint64_t row, uint64_t height, uint64_t depth) {
    for (uint64_t z = 0; z < depth; ++z)
        for (uint64_t y = 0; y < height; ++y)
            std::memcpy(to.place.bytes + (z * to.height + y) * to.pitch,
                        from.place.bytes + (z * from.height + y) * from.pitch, row);
}

}  // namespace

Task box_task(Context& context, const Side& to_side, const Side& from_side, size_t row_nbytes,
              size_t height, size_t depth) {
    need(row_nbytes > 0 && height > 0 && depth > 0);
    const Box from = box_of(context, from_side, row_nbytes, height, depth);
    const Box to = box_of(context, to_side, row_nbytes, height, depth);
    if (to_side.array && from_side.array)  // pixels of one size
        need(to_side.array->shape.pixel_nbytes() == from_side.array->shape.pixel_nbytes());
    return {Task::Copy, &context, [=, &context] {
                if (still_there(to.place, context, "a copy of a box") &&
                    still_there(from.place, context, "a copy of a box"))
                    copy(to, from, row_nbytes, height, depth);
            }, {Operand(to.place), Operand(from.place)},
            to_side.array || from_side.array || height > 1 || depth > 1};
}

void copy_box(const char* name, Stream& stream, const Task& task) {
    // Pageable memory would have to be read before the call returns.
    need(task.memory[0].context && task.memory[1].context, NOT_SUPPORTED);
    submit(stream, {name, task.run});
}

}  // namespace sim
