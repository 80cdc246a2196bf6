// Arithmetic of integers (ISA, section 9.7.1). It wraps; division by zero gives what hardware
// gives, all ones, and the rest is then the dividend.
#include <algorithm>
#include <limits>

#include "alu.h"
#include "decoder.h"

namespace ptx {

namespace integers {
namespace {

template <class T>
using Wide = std::conditional_t<
    std::is_signed_v<T>,
    std::conditional_t<sizeof(T) == 2, int32_t,
                       std::conditional_t<sizeof(T) == 4, int64_t, __int128>>,
    std::conditional_t<sizeof(T) == 2, uint32_t,
                       std::conditional_t<sizeof(T) == 4, uint64_t, unsigned __int128>>>;

// Computed without a sign, where wrapping is defined; 16 bits would be promoted to int.
template <class T> uint64_t bits(T value) { return static_cast<uint64_t>(value); }

struct Add {
    template <class T>
    static T of(T a, T b) {
        return static_cast<T>(bits(a) + bits(b));
    }
};
struct Sub {
    template <class T>
    static T of(T a, T b) {
        return static_cast<T>(bits(a) - bits(b));
    }
};
struct MulLo {
    template <class T>
    static T of(T a, T b) {
        return static_cast<T>(bits(a) * bits(b));
    }
};
struct MulHi {
    template <class T> static T of(T a, T b) {
        return static_cast<T>((static_cast<Wide<T>>(a) * static_cast<Wide<T>>(b)) >>
                              (8 * sizeof(T)));
    }
};
struct MadLo {
    template <class T>
    static T of(T a, T b, T c) {
        return Add::of(MulLo::of(a, b), c);
    }
};
struct MadHi {
    template <class T>
    static T of(T a, T b, T c) {
        return Add::of(MulHi::of(a, b), c);
    }
};

struct Div {
    template <class T> static T of(T a, T b) {
        if (b == 0) return static_cast<T>(~T(0));
        if (std::is_signed_v<T> && b == static_cast<T>(-1)) return Sub::of(T(0), a);
        return static_cast<T>(a / b);
    }
};
struct Rem {
    template <class T> static T of(T a, T b) {
        if (b == 0) return a;
        if (std::is_signed_v<T> && b == static_cast<T>(-1)) return 0;
        return static_cast<T>(a % b);
    }
};
struct Min { template <class T> static T of(T a, T b) { return a < b ? a : b; } };
struct Max { template <class T> static T of(T a, T b) { return a > b ? a : b; } };
struct Neg { template <class T> static T of(T a) { return Sub::of(T(0), a); } };
struct Abs { template <class T> static T of(T a) { return a < 0 ? Neg::of(a) : a; } };
template <class T>
T saturated(int64_t value) {
    constexpr int64_t least = std::numeric_limits<T>::min(), most = std::numeric_limits<T>::max();
    return static_cast<T>(value < least ? least : value > most ? most : value);
}

struct AddSat { template <class T> static T of(T a, T b) { return saturated<T>(int64_t{a} + b); } };
struct SubSat { template <class T> static T of(T a, T b) { return saturated<T>(int64_t{a} - b); } };
struct MadHiSat {
    template <class T>
    static T of(T a, T b, T c) {
        return saturated<T>(int64_t{MulHi::of(a, b)} + c);
    }
};

// -- products of twice the width

template <class T>
void mul_wide(Thread& t, const Instruction& i) {
    using Result = Wide<T>;
    put<Result>(t, i.d, static_cast<Result>(get<T>(t, i.a)) * static_cast<Result>(get<T>(t, i.b)));
}

template <class T>
void mad_wide(Thread& t, const Instruction& i) {
    using Result = Wide<T>;
    const Result product =
        static_cast<Result>(get<T>(t, i.a)) * static_cast<Result>(get<T>(t, i.b));
    put<Result>(t, i.d, Add::of(product, get<Result>(t, i.c)));
}

struct WideShape {
    Handler mul, mad;
    Type result;
};

WideShape wide_of(Type type) {
    switch (type) {
        case Type::u16: return {mul_wide<uint16_t>, mad_wide<uint16_t>, Type::u32};
        case Type::s16: return {mul_wide<int16_t>, mad_wide<int16_t>, Type::s32};
        case Type::u32: return {mul_wide<uint32_t>, mad_wide<uint32_t>, Type::u64};
        case Type::s32: return {mul_wide<int32_t>, mad_wide<int32_t>, Type::s64};
        default: return {nullptr, nullptr, Type::none};
    }
}

// -- rules

template <class Op>
bool two_rule(Decoder& d) {
    const Type type = d.type();
    return d.binary(type, among_integers<Binary<Op>>(type));
}

template <class Op, class Saturating>
bool sum_rule(Decoder& d) {
    if (!d.word("sat")) return two_rule<Op>(d);
    return d.type() == Type::s32 && d.binary(Type::s32, binary<Saturating, int32_t>);
}

// Of sm_90 on; the newer NVRTCs make it of max(max(a, b), 0).
template <class Op> struct Relu {
    template <class T> static T of(T a, T b) { return std::max(T(0), Op::of(a, b)); }
};

template <class Op>
bool extreme_rule(Decoder& d) {
    if (!d.word("relu")) return two_rule<Op>(d);
    return d.type() == Type::s32 && d.binary(Type::s32, binary<Relu<Op>, int32_t>);
}

template <class Op>
bool signed_rule(Decoder& d) {
    const Type type = d.type();
    return is_signed(type) && d.unary(type, among_integers<Unary<Op>>(type));
}

bool wide_rule(Decoder& d, bool adds) {
    const Type type = d.type();
    const WideShape wide = wide_of(type);
    if (wide.mul == nullptr || !d.done()) return false;
    d.out.d = d.to(wide.result);
    d.out.a = d.from(type);
    d.out.b = d.from(type);
    if (adds) d.out.c = d.from(wide.result);
    d.out.run = adds ? wide.mad : wide.mul;
    return true;
}

bool mul_rule(Decoder& d) {
    if (d.word("wide")) return wide_rule(d, false);
    if (d.word("lo")) return two_rule<MulLo>(d);
    return d.word("hi") && two_rule<MulHi>(d);
}

bool mad_rule(Decoder& d) {
    if (d.word("wide")) return wide_rule(d, true);
    const bool high = d.word("hi");
    if (!high && !d.word("lo")) return false;
    if (high && d.word("sat"))
        return d.type() == Type::s32 && d.ternary(Type::s32, ternary<MadHiSat, int32_t>);
    const Type type = d.type();
    return d.ternary(
        type, high ? among_integers<Ternary<MadHi>>(type) : among_integers<Ternary<MadLo>>(type));
}

}  // namespace
}  // namespace integers

void add_integer_rules(Rules& rules) {
    using namespace integers;
    rules.insert({{"add", sum_rule<Add, AddSat>},
                  {"sub", sum_rule<Sub, SubSat>},
                  {"mul", mul_rule},
                  {"mad", mad_rule},
                  {"div", two_rule<Div>},
                  {"rem", two_rule<Rem>},
                  {"min", extreme_rule<Min>},
                  {"max", extreme_rule<Max>},
                  {"neg", signed_rule<Neg>},
                  {"abs", signed_rule<Abs>}});
}

}  // namespace ptx
