// cvt (ISA, section 9.7.9.21). Values pass through double, which holds every float exactly, or
// through 128 bits, which hold every integer.
#include "alu.h"
#include "decoder.h"
#include "half.h"
#include "rounding.h"

namespace ptx {

namespace convert {
namespace {

using Whole = __int128;

// What `mode` holds: how a float is rounded to an integer.
enum ToWhole : uint16_t { not_to_whole, rni, rzi, rmi, rpi };

// -- reading

Whole whole_from(uint64_t slot, Type type) {
    switch (type) {
        case Type::u8: return static_cast<uint8_t>(slot);
        case Type::u16: return static_cast<uint16_t>(slot);
        case Type::u32: return static_cast<uint32_t>(slot);
        case Type::u64: return slot;
        case Type::s8: return static_cast<int8_t>(slot);
        case Type::s16: return static_cast<int16_t>(slot);
        case Type::s32: return static_cast<int32_t>(slot);
        default: return static_cast<int64_t>(slot);
    }
}

double float_from(uint64_t slot, const Instruction& i) {
    switch (i.from) {
        case Type::f16: return Half{static_cast<uint16_t>(slot)}.value();
        case Type::bf16: return Brain{static_cast<uint16_t>(slot)}.value();
        case Type::f32: {
            const float value = float_of(static_cast<uint32_t>(slot));
            return i.ftz ? flushed(value) : value;
        }
        default: return double_of(slot);
    }
}

// -- writing

uint64_t slot_of(Whole value, Type type) {
    switch (type) {
        case Type::u8: return static_cast<uint8_t>(value);
        case Type::u16: return static_cast<uint16_t>(value);
        case Type::u32: return static_cast<uint32_t>(value);
        case Type::s8: return static_cast<uint64_t>(static_cast<int8_t>(value));
        case Type::s16: return static_cast<uint64_t>(static_cast<int16_t>(value));
        case Type::s32: return static_cast<uint64_t>(static_cast<int32_t>(value));
        default: return static_cast<uint64_t>(value);
    }
}

Whole limited(Whole value, Type type) {
    const int bits = 8 * static_cast<int>(nbytes_of(type)) - (is_signed(type) ? 1 : 0);
    const Whole most = (Whole(1) << bits) - 1, least = is_signed(type) ? -most - 1 : 0;
    return value < least ? least : value > most ? most : value;
}

float narrowed(double value, Rounding rounding) {
    volatile double wide = value;
    volatile float result;
    {
        InMode mode(rounding);
        result = static_cast<float>(wide);
    }
    return canonical(static_cast<float>(result));
}

uint64_t slot_of_float(double value, const Instruction& i) {
    if (i.saturate) value = clamped(value);
    if (i.relu && value <= 0) value = 0;  // -0 too
    switch (i.type) {
        case Type::f16: return Half::of(value, i.rounding).bits;
        case Type::bf16: return Brain::of(value, i.rounding).bits;
        case Type::f32: {
            const float result = narrowed(value, i.rounding);
            return bits_of(i.ftz ? flushed(result) : result);
        }
        default: return bits_of(value);
    }
}

// -- the four ways

void whole_to_whole(Thread& t, const Instruction& i) {
    const Whole value = whole_from(t.r[i.a], i.from);
    t.r[i.d] = slot_of(i.saturate ? limited(value, i.type) : value, i.type);
}

double to_whole(double value, uint16_t mode) {
    switch (mode) {
        case rni: return std::nearbyint(value);
        case rzi: return std::trunc(value);
        case rmi: return std::floor(value);
        case rpi: return std::ceil(value);
        default: return value;
    }
}

void float_to_whole(Thread& t, const Instruction& i) {
    const double value = to_whole(float_from(t.r[i.a], i), i.mode);
    if (value != value) {
        const bool zero = i.from != Type::f64 && nbytes_of(i.type) < 8;
        t.r[i.d] = zero ? 0 : slot_of(Whole(1) << (8 * nbytes_of(i.type) - 1), i.type);
        return;
    }
    constexpr double beyond = 1e30;  // any integer's end
    const double inside = value > beyond ? beyond : value < -beyond ? -beyond : value;
    t.r[i.d] = slot_of(limited(static_cast<Whole>(inside), i.type), i.type);
}

// To so many bits as the format has, so that what follows is exact.
double rounded(Whole value, int bits, Rounding rounding) {
    const bool negative = value < 0;
    const auto size = static_cast<uint64_t>(negative ? -value : value);
    const int width = size == 0 ? 0 : 64 - __builtin_clzll(size);
    const int dropped = width > bits ? width - bits : 0;
    uint64_t kept = dropped == 0 ? size : size >> dropped;
    if (dropped != 0) {
        const uint64_t rest = size & ((1ull << dropped) - 1), middle = 1ull << (dropped - 1);
        const bool away = rounding == Rounding::nearest
                              ? rest > middle || (rest == middle && (kept & 1) != 0)
                          : rounding == Rounding::down ? negative && rest != 0
                          : rounding == Rounding::up   ? !negative && rest != 0
                                                       : false;
        kept += away;
    }
    const double result = std::ldexp(static_cast<double>(kept), dropped);
    return negative ? -result : result;
}

void whole_to_float(Thread& t, const Instruction& i) {
    const int bits = i.type == Type::f16    ? 11
                     : i.type == Type::bf16 ? 8
                     : i.type == Type::f32  ? 24
                                            : 53;
    t.r[i.d] = slot_of_float(rounded(whole_from(t.r[i.a], i.from), bits, i.rounding), i);
}

void float_to_float(Thread& t, const Instruction& i) {
    const double value = float_from(t.r[i.a], i);
    if (i.type == Type::f64 && value != value) {
        // The payload of a float32 stays, in the upper bits.
        const uint64_t bits = t.r[i.a] & 0xffffffff;
        const bool from_single = i.from == Type::f32;
        t.r[i.d] = from_single ? (bits >> 31) << 63 | 0x7ff8ull << 48 | (bits & 0x3fffff) << 29
                               : i.from == Type::f64 ? t.r[i.a] | 1ull << 51 : 0x7ff8ull << 48;
        if (i.saturate) t.r[i.d] = 0;
        return;
    }
    t.r[i.d] = slot_of_float(to_whole(value, i.mode), i);
}

// Two float32 to the halves of a word, the first to the upper one.
template <class H>
void pack(Thread& t, const Instruction& i) {
    const auto half = [&](uint32_t slot) {
        double value = get<float>(t, slot);
        if (i.relu && value <= 0) value = 0;
        return static_cast<uint32_t>(H::of(value, i.rounding).bits);
    };
    put<uint32_t>(t, i.d, half(i.a) << 16 | half(i.b));
}

// -- rules

bool to_whole_words(Decoder& d) {
    constexpr const char* names[] = {"rni", "rzi", "rmi", "rpi"};
    for (uint16_t number = 0; number < 4; ++number) {
        if (d.word(names[number])) d.out.mode = static_cast<uint16_t>(number + 1);
    }
    return d.out.mode != not_to_whole;
}

bool packs(Decoder& d, Type to, Type from, bool rounds) {
    if (from != Type::f32 || !rounds || d.out.ftz || d.out.saturate || !d.done()) return false;
    if (d.out.rounding != Rounding::nearest && d.out.rounding != Rounding::zero) return false;
    d.out.d = d.to(Type::b32);
    d.out.a = d.from(Type::f32);
    d.out.b = d.from(Type::f32);
    d.out.run = to == Type::f16x2 ? pack<Half> : pack<Brain>;
    return true;
}

// Of floats: a rounding where digits are lost, to an integral value where the format stays.
bool suits_floats(const Decoder& d, bool to_integral, bool rounds) {
    const auto rank = [](Type type) { return type == Type::f64 ? 3 : type == Type::f32 ? 2 : 1; };
    if (d.out.type == d.out.from) return !rounds;
    if (to_integral) return false;
    const bool narrows = rank(d.out.type) < rank(d.out.from) ||
                         (rank(d.out.type) == 1 && rank(d.out.from) == 1);
    return narrows == rounds;
}

// Whether every value of an integer type is one of the other's; .sat is refused then.
bool fits(Type from, Type to) {
    if (is_signed(from) == is_signed(to)) return nbytes_of(from) <= nbytes_of(to);
    return is_signed(to) && nbytes_of(from) < nbytes_of(to);
}

Handler way_of(const Decoder& d, bool to_integral, bool rounds) {
    const Type to = d.out.type, from = d.out.from;
    if (is_integer(to) && is_integer(from)) {
        const bool limits = !fits(from, to);
        return to_integral || rounds || (d.out.saturate && !limits) ? nullptr : whole_to_whole;
    }
    if (is_integer(to)) return to_integral && !rounds ? float_to_whole : nullptr;
    if (is_integer(from)) return rounds && !to_integral ? whole_to_float : nullptr;
    return suits_floats(d, to_integral, rounds) ? float_to_float : nullptr;
}

bool convert_rule(Decoder& d) {
    const bool to_integral = to_whole_words(d), rounds = !to_integral && d.rounding();
    d.out.relu = d.word("relu");
    d.out.ftz = d.word("ftz");
    d.out.saturate = d.word("sat");
    d.out.type = d.type();
    d.out.from = d.type();
    const Type to = d.out.type, from = d.out.from;
    if (to == Type::f16x2 || to == Type::bf16x2) return packs(d, to, from, rounds);
    const auto single = [](Type type) {
        return is_integer(type) || (is_float(type) && type != Type::f16x2 && type != Type::bf16x2);
    };
    if (!single(to) || !single(from) || !d.done()) return false;
    if (d.out.relu && !(from == Type::f32 && nbytes_of(to) == 2 && is_float(to))) return false;
    if (d.out.ftz && to != Type::f32 && from != Type::f32) return false;
    d.out.run = way_of(d, to_integral, rounds);
    if (d.out.run == nullptr) return false;
    d.out.d = d.to(to, true);
    d.out.a = d.from(from, true);
    return true;
}

}  // namespace
}  // namespace convert

void add_convert_rules(Rules& rules) { rules.insert({"cvt", convert::convert_rule}); }

}  // namespace ptx
