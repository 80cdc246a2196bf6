// tex: pixels through a texture object, as values.
#include "image_operand.h"
#include "texel.h"

namespace ptx {

namespace {

template <class Coordinate>
double sampled(Thread& t, const Instruction& i, const KernelImage& image, uint32_t channel) {
    // Of parts that there are not, the last one, an alpha, is one.
    if (channel >= image.channels) return channel == 3;
    const uint32_t* slots = &t.routine->lists[i.list + 4];
    double place[3] = {0, 0, 0};
    for (uint32_t axis = 0; axis < image.axes; ++axis)
        place[axis] = double(get<Coordinate>(t, slots[axis]));
    return nearest(image, place, channel);
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
