// suld, sust: the bytes of pixels through a surface object. And what tex has in common with them.
#include <algorithm>

#include "image_operand.h"

namespace ptx {

bool axes_word(Decoder& d) {
    constexpr const char* names[] = {"1d", "2d", "3d"};
    for (uint16_t number = 0; number < 3; ++number) {
        if (!d.word(names[number])) continue;
        d.out.mode = number + 1;
        return true;
    }
    return false;
}

void object(Decoder& d, Type coordinate, std::vector<uint32_t>& slots) {
    Operand operand = d.take();
    const size_t axes = d.out.mode & 3, wanted = axes == 3 ? 4 : axes;
    if (!operand.bracketed || operand.parts.size() != wanted || operand.offset != 0)
        d.fail("an object and " + std::to_string(wanted) + " coordinates in brackets expected");
    for (const Operand& part : operand.parts) slots.push_back(d.from(part, coordinate));
    operand.bracketed = false;
    d.out.a = d.from(operand, Type::b64);
}

const KernelImage& image_of(Thread& thread, const Instruction& i, bool surface) {
    const KernelImage* image = thread.block->memory.image(get<uint64_t>(thread, i.a));
    const std::string kind = surface ? "surface" : "texture";
    if (image == nullptr) raise(Fault::OutOfBounds, "no " + kind + " object, or one that is gone");
    if (image->surface != surface)
        raise(Fault::Illegal, "a " + std::string(surface ? "texture" : "surface") +
                                  " object where a " + kind + " belongs");
    const uint32_t axes = i.mode & 3;
    if (image->axes != axes)
        raise(Fault::Illegal, "a " + kind + " of " + std::to_string(image->axes) +
                                  " axes, taken for one of " + std::to_string(axes));
    return *image;
}

namespace {

enum Beyond : uint16_t { Trap = 0 << 2, Clamp = 1 << 2, Zero = 2 << 2 };

// Where a row is that a coordinate says, after the clamp; false where there is none.
bool bounded(int64_t& at, int64_t most, uint16_t beyond) {
    if (at >= 0 && at <= most) return true;
    if (beyond == Trap)
        raise(Fault::Trap, "a surface ends at " + std::to_string(most) + " (got " +
                               std::to_string(at) + ")");
    at = std::clamp<int64_t>(at, 0, std::max<int64_t>(most, 0));
    return beyond == Clamp && most >= 0;
}

// The bytes of an access; null where it is beyond the image and says nothing. The first coordinate
// counts bytes.
template <class T>
uint8_t* place_of(Thread& t, const Instruction& i, uint32_t lanes) {
    const KernelImage& image = image_of(t, i, true);
    const uint32_t nbytes = sizeof(T) * lanes;
    const uint32_t* slots = &t.routine->lists[i.list + lanes];
    const int64_t most[3] = {int64_t(image.row_nbytes()) - nbytes, int64_t(image.size[1]) - 1,
                             int64_t(image.size[2]) - 1};
    int64_t at[3] = {0, 0, 0};
    bool inside = true;
    for (uint32_t axis = 0; axis < image.axes; ++axis) {
        at[axis] = get<int32_t>(t, slots[axis]);
        inside &= bounded(at[axis], most[axis], i.mode & ~3);
    }
    if (at[0] % nbytes != 0)
        raise(Fault::Misaligned, "a byte of a surface that is no multiple of " +
                                     std::to_string(nbytes) + ": " + std::to_string(at[0]));
    return inside ? image.row(uint64_t(at[1]), uint64_t(at[2])) + at[0] : nullptr;
}

template <class T>
void suld(Thread& t, const Instruction& i) {
    const uint32_t lanes = uint32_t(i.offset);
    const uint8_t* from = place_of<T>(t, i, lanes);
    for (uint32_t lane = 0; lane < lanes; ++lane) {
        T value = 0;
        if (from != nullptr) std::memcpy(&value, from + lane * sizeof(T), sizeof(T));
        put<T>(t, t.routine->lists[i.list + lane], value);
    }
}

template <class T>
void sust(Thread& t, const Instruction& i) {
    const uint32_t lanes = uint32_t(i.offset);
    uint8_t* to = place_of<T>(t, i, lanes);
    for (uint32_t lane = 0; lane < lanes && to != nullptr; ++lane) {
        const T value = get<T>(t, t.routine->lists[i.list + lane]);
        std::memcpy(to + lane * sizeof(T), &value, sizeof(T));
    }
}

Handler handler(Type type, bool loads) {
    switch (type) {
        case Type::b8: return loads ? suld<uint8_t> : sust<uint8_t>;
        case Type::b16: return loads ? suld<uint16_t> : sust<uint16_t>;
        case Type::b32: return loads ? suld<uint32_t> : sust<uint32_t>;
        case Type::b64: return loads ? suld<uint64_t> : sust<uint64_t>;
        default: return nullptr;
    }
}

// suld.b.2d.v4.b32.trap {r, g, b, a}, [object, {x, y}]; sust has its operands in the other order.
bool rule(Decoder& d, bool loads) {
    if (!d.word("b") || !axes_word(d)) return false;
    const uint32_t lanes = d.word("v2") ? 2 : d.word("v4") ? 4 : 1;
    const Type type = d.type();
    d.out.run = handler(type, loads);
    const char* beyond = "";
    if (d.out.run == nullptr || !d.one_of({"trap", "clamp", "zero"}, &beyond) || !d.done())
        return false;
    d.out.mode |= *beyond == 't' ? Trap : *beyond == 'c' ? Clamp : Zero;
    d.out.offset = lanes;
    std::vector<uint32_t> slots, coordinates;
    if (!loads) object(d, Type::s32, coordinates);
    const Operand& values = d.take();
    if (values.parts.size() != lanes || values.pair) d.fail("as many registers as parts expected");
    for (const Operand& part : values.parts)
        slots.push_back(loads ? d.to(part, type, true) : d.from(part, type, true));
    if (loads) object(d, Type::s32, coordinates);
    slots.insert(slots.end(), coordinates.begin(), coordinates.end());
    d.list(slots);
    return true;
}

bool suld_rule(Decoder& d) { return rule(d, true); }
bool sust_rule(Decoder& d) { return rule(d, false); }

}  // namespace

void add_surface_rules(Rules& rules) {
    rules.insert({{"suld", suld_rule}, {"sust", sust_rule}});
}

}  // namespace ptx
