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

// The place of a pixel along an axis, -1 for the border, which is zero.
int64_t within(int64_t at, int64_t size, KernelImage::Beyond beyond) {
    if (at >= 0 && at < size) return at;
    switch (beyond) {
        case KernelImage::Wrap: return (at % size + size) % size;
        case KernelImage::Mirror:
            at = (at % (2 * size) + 2 * size) % (2 * size);
            return std::min(at, 2 * size - 1 - at);
        case KernelImage::Clamp: return std::clamp<int64_t>(at, 0, size - 1);
        default: return -1;
    }
}

double pixel(const KernelImage& image, const int64_t* at, uint32_t channel) {
    int64_t place[3] = {0, 0, 0};
    for (uint32_t axis = 0; axis < image.axes; ++axis) {
        place[axis] = within(at[axis], image.size[axis], image.beyond[axis]);
        if (place[axis] < 0) return 0;
    }
    const uint64_t offset = (uint64_t(place[0]) * image.channels + channel) * image.nbytes;
    return part_of(image, image.row(uint64_t(place[1]), uint64_t(place[2])) + offset);
}

// Between the pixels around; the weights have 8 bits, as the hardware's.
double between(const KernelImage& image, const double* at, uint32_t channel) {
    int64_t first[3] = {0, 0, 0};
    double share[3] = {0, 0, 0}, sum = 0;
    for (uint32_t axis = 0; axis < image.axes; ++axis) {
        first[axis] = int64_t(std::floor(at[axis] - 0.5));
        share[axis] = std::nearbyint((at[axis] - 0.5 - double(first[axis])) * 256) / 256;
    }
    for (uint32_t corner = 0; corner < 1u << image.axes; ++corner) {
        int64_t place[3] = {first[0], first[1], first[2]};
        double weight = 1;
        for (uint32_t axis = 0; axis < image.axes; ++axis) {
            const bool next = corner >> axis & 1;
            place[axis] += next;
            weight *= next ? share[axis] : 1 - share[axis];
        }
        if (weight > 0) sum += weight * pixel(image, place, channel);
    }
    return sum;
}

// Coordinates that are not finite, or further than any image, are its ends.
double bounded(double at) { return at == at ? std::clamp(at, -1e9, 1e9) : 0; }

template <class Coordinate>
double sampled(Thread& t, const Instruction& i, const KernelImage& image, uint32_t channel) {
    // Of parts that there are not, the last one, an alpha, is one.
    if (channel >= image.channels) return channel == 3;
    const uint32_t* slots = &t.routine->lists[i.list + 4];
    double at[3] = {0, 0, 0};
    int64_t place[3] = {0, 0, 0};
    for (uint32_t axis = 0; axis < image.axes; ++axis) {
        at[axis] = bounded(double(get<Coordinate>(t, slots[axis])));
        if (image.unit && std::is_floating_point_v<Coordinate>) at[axis] *= image.size[axis];
        place[axis] = int64_t(std::floor(at[axis]));
    }
    const bool linear = image.linear && std::is_floating_point_v<Coordinate>;
    return linear ? between(image, at, channel) : pixel(image, place, channel);
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
