// tex: pixels through a texture object, as values.
#include <algorithm>
#include <cmath>

#include "half.h"
#include "image_operand.h"

namespace ptx {

namespace {

// A part of a pixel; a double holds all of its values.
double part_of(const KernelImage& image, const uint8_t* at) {
    uint32_t bits = 0;
    std::memcpy(&bits, at, image.nbytes);
    if (image.kind == 'f') {
        if (image.nbytes == 2) return Half{static_cast<uint16_t>(bits)}.value();
        float value;
        std::memcpy(&value, &bits, sizeof value);
        return value;
    }
    const uint32_t width = 8 * image.nbytes;
    double value = bits, most = std::ldexp(1, int(width)) - 1;
    if (image.kind == 'i') {
        most = std::ldexp(1, int(width) - 1) - 1;
        if (value > most) value -= std::ldexp(1, int(width));
    }
    return image.normalised ? std::max(-1.0, value / most) : value;
}

// The nearest pixel: beyond the edges it is the one at the edge.
double pixel(const KernelImage& image, const int64_t* at, uint32_t channel) {
    int64_t place[3] = {0, 0, 0};
    for (uint32_t axis = 0; axis < image.axes; ++axis)
        place[axis] = std::clamp<int64_t>(at[axis], 0, int64_t(image.size[axis]) - 1);
    const uint64_t offset = (uint64_t(place[0]) * image.channels + channel) * image.nbytes;
    return part_of(image, image.row(uint64_t(place[1]), uint64_t(place[2])) + offset);
}

// Coordinates that are not finite, or further than any image, are its ends.
double bounded(double at) { return at == at ? std::clamp(at, -1e9, 1e9) : 0; }

template <class Coordinate>
double sampled(Thread& t, const Instruction& i, const KernelImage& image, uint32_t channel) {
    // Of parts that there are not, the last one, an alpha, is one.
    if (channel >= image.channels) return channel == 3;
    const uint32_t* slots = &t.routine->lists[i.list + 4];
    int64_t place[3] = {0, 0, 0};
    for (uint32_t axis = 0; axis < image.axes; ++axis)
        place[axis] = int64_t(std::floor(bounded(double(get<Coordinate>(t, slots[axis])))));
    return pixel(image, place, channel);
}

template <class Result, class Coordinate>
void tex(Thread& t, const Instruction& i) {
    const KernelImage& image = image_of(t, i, false);
    const bool floats = image.kind == 'f' || image.normalised;
    if (floats != std::is_floating_point_v<Result>) {
        raise(Fault::Illegal, floats ? "a texture of floats, read as integers"
                                     : "a texture of integers, read as floats");
    }
    Result values[4];
    for (uint32_t channel = 0; channel < 4; ++channel) {
        const double value = sampled<Coordinate>(t, i, image, channel);
        if constexpr (std::is_floating_point_v<Result>) values[channel] = Result(value);
        else values[channel] = Result(int64_t(value));
    }
    for (uint32_t channel = 0; channel < 4; ++channel)
        put<Result>(t, t.routine->lists[i.list + channel], values[channel]);
}

template <class Coordinate>
Handler by_result(Type type) {
    switch (type) {
        case Type::f32: return tex<float, Coordinate>;
        case Type::s32: return tex<int32_t, Coordinate>;
        case Type::u32: return tex<uint32_t, Coordinate>;
        default: return nullptr;
    }
}

// tex{.level}.2d.v4.f32.f32 {r, g, b, a}, [object, {x, y}]{, level}; arrays have one level.
bool tex_rule(Decoder& d) {
    const bool level = d.word("level");
    if (!axes_word(d) || !d.word("v4")) return false;
    const Type result = d.type(), coordinate = d.type();
    if (!d.done() || (coordinate != Type::f32 && coordinate != Type::s32)) return false;
    d.out.run = coordinate == Type::f32 ? by_result<float>(result) : by_result<int32_t>(result);
    if (d.out.run == nullptr) return false;
    std::vector<uint32_t> slots;
    const Operand& results = d.take();
    if (results.parts.size() != 4 || results.pair) d.fail("four registers expected");
    for (const Operand& part : results.parts) slots.push_back(d.to(part, result));
    object(d, coordinate, slots);
    d.list(slots);
    if (level) d.from(coordinate);
    return true;
}

}  // namespace

void add_texture_rules(Rules& rules) { rules.insert({"tex", tex_rule}); }

}  // namespace ptx
