// Arithmetic of float32 and float64 (ISA, section 9.7.3).
//
// What hardware approximates is computed as well as the host can, and rounded once.
#include "alu.h"
#include "decoder.h"
#include "rounding.h"

namespace ptx {

namespace floats {
namespace {

// An operation takes three operands, of which it may leave some.
struct Add { template <class T> static T of(T a, T b, T) { return a + b; } };
struct Sub { template <class T> static T of(T a, T b, T) { return a - b; } };
struct Mul { template <class T> static T of(T a, T b, T) { return a * b; } };
struct Fma { template <class T> static T of(T a, T b, T c) { return std::fma(a, b, c); } };
struct Div { template <class T> static T of(T a, T b, T) { return a / b; } };
struct Sqrt { template <class T> static T of(T a, T, T) { return std::sqrt(a); } };
struct Rcp { template <class T> static T of(T a, T, T) { return T(1) / a; } };

template <class T, int count>
T operand(const Thread& t, const Instruction& i, int number) {
    if (number >= count) return T(0);
    return get<T>(t, number == 0 ? i.a : number == 1 ? i.b : i.c);
}

// To nearest, subnormals kept.
template <class Op, class T, int count>
void plain(Thread& t, const Instruction& i) {
    const T a = operand<T, count>(t, i, 0), b = operand<T, count>(t, i, 1),
            c = operand<T, count>(t, i, 2);
    put<T>(t, i.d, canonical(Op::of(a, b, c), a, b, c));
}

// With whatever the modifiers say.
template <class Op, class T, int count>
void modified(Thread& t, const Instruction& i) {
    T values[3];
    for (int number = 0; number < 3; ++number) {
        values[number] = operand<T, count>(t, i, number);
        if (i.ftz) values[number] = flushed(values[number]);
    }
    T result = in_mode<Op>(i.rounding, values[0], values[1], values[2]);
    if (i.ftz) result = flushed(result);
    if (i.saturate) result = clamped(result);
    put<T>(t, i.d, canonical(result, values[0], values[1], values[2]));
}

template <class Op, int count>
Handler handler_of(const Instruction& i, Type type) {
    const bool is_plain = i.rounding == Rounding::nearest && !i.ftz && !i.saturate;
    if (type == Type::f32) return is_plain ? plain<Op, float, count> : modified<Op, float, count>;
    if (type == Type::f64) return is_plain ? plain<Op, double, count> : modified<Op, double, count>;
    return nullptr;
}

template <int count>
bool operands(Decoder& d, Type type, Handler run) {
    return count == 1   ? d.unary(type, run)
           : count == 2 ? d.binary(type, run)
                        : d.ternary(type, run);
}

// {.rnd}{.ftz}{.sat}.f32 or {.rnd}.f64
template <class Op, int count, bool rounds, bool saturates>
bool exact_rule(Decoder& d) {
    if (!d.rounding() && rounds) return false;
    d.out.ftz = d.word("ftz");
    d.out.saturate = saturates && d.word("sat");
    const Type type = d.type();
    if (type == Type::f64 && (d.out.ftz || d.out.saturate)) return false;
    return operands<count>(d, type, handler_of<Op, count>(d.out, type));
}

// -- approximations

struct Approximate {
    static double div(double a, double b) { return a / b; }
    static double rsqrt(double a, double) { return 1 / std::sqrt(a); }
    static double sqrt(double a, double) { return std::sqrt(a); }
    static double rcp(double a, double) { return 1 / a; }
    static double sin(double a, double) { return std::sin(a); }
    static double cos(double a, double) { return std::cos(a); }
    static double lg2(double a, double) { return std::log2(a); }
    static double ex2(double a, double) { return std::exp2(a); }
    static double tanh(double a, double) { return std::tanh(a); }
};

using Function = double (*)(double, double);

template <Function function, int count>
void approximate(Thread& t, const Instruction& i) {
    float a = get<float>(t, i.a), b = count == 2 ? get<float>(t, i.b) : 0;
    if (i.ftz) {
        a = flushed(a);
        b = flushed(b);
    }
    auto result = static_cast<float>(function(a, b));
    if (i.ftz) result = flushed(result);
    put<float>(t, i.d, canonical(result));
}

template <Function function, int count>
bool approximate_rule(Decoder& d) {
    if (!d.word("approx")) return false;
    d.out.ftz = d.word("ftz");
    return d.type() == Type::f32 && operands<count>(d, Type::f32, approximate<function, count>);
}

bool full_division_rule(Decoder& d) {
    if (!d.word("full")) return false;
    d.out.ftz = d.word("ftz");
    return d.type() == Type::f32 && d.binary(Type::f32, approximate<Approximate::div, 2>);
}

bool tanh_rule(Decoder& d) {
    return d.word("approx") && d.type() == Type::f32 &&
           d.unary(Type::f32, approximate<Approximate::tanh, 1>);
}

// rcp and rsqrt of float64 see and give the upper 32 bits alone, and flush. Sections 9.7.3.14, 17.
template <Function function>
void gross(Thread& t, const Instruction& i) {
    constexpr uint64_t upper = 0xffffffff00000000;
    const double a = flushed(double_of(t.r[i.a] & upper));
    const double result = flushed(canonical(function(a, 0), a));
    t.r[i.d] = bits_of(result) & upper;
}

template <Function function>
bool gross_rule(Decoder& d) {
    return d.word("approx") && d.word("ftz") && d.type() == Type::f64 &&
           d.unary(Type::f64, gross<function>);
}

void rsqrt_of_double(Thread& t, const Instruction& i) {
    const double a = get<double>(t, i.a);
    put<double>(t, i.d, canonical(Approximate::rsqrt(a, 0), a));
}

bool rsqrt_of_double_rule(Decoder& d) {
    return d.word("approx") && d.type() == Type::f64 && d.unary(Type::f64, rsqrt_of_double);
}

// -- signs

struct Neg { template <class T> static T of(T a) { return -a; } };
struct Abs { template <class T> static T of(T a) { return std::fabs(a); } };

template <class Op, class T>
void change_sign(Thread& t, const Instruction& i) {
    const T a = get<T>(t, i.a), result = Op::of(a);
    put<T>(t, i.d, i.ftz ? flushed(result) : result);
}

template <class Op>
struct ChangeSign { template <class T> static constexpr Handler run = change_sign<Op, T>; };

template <class Op>
bool sign_rule(Decoder& d) {
    d.out.ftz = d.word("ftz");
    const Type type = d.type();
    return !(type == Type::f64 && d.out.ftz) && d.unary(type, among_floats<ChangeSign<Op>>(type));
}

// The sign is that of the first operand, the rest is the second's.
struct CopySign { template <class T> static T of(T a, T b) { return std::copysign(b, a); } };

bool copysign_rule(Decoder& d) {
    const Type type = d.type();
    return d.binary(type, among_floats<Binary<CopySign>>(type));
}

// -- min and max. A NaN gives way to a number, -0 is less than +0. Sections 9.7.3.11, 12.

template <class T>
T least(T a, T b) {
    if (a != a) return b;
    if (b != b) return a;
    if (a == b) return std::signbit(a) ? a : b;
    return a < b ? a : b;
}

struct Min { template <class T> static T of(T a, T b) { return least(a, b); } };
struct Max { template <class T> static T of(T a, T b) { return -least(-a, -b); } };

constexpr uint16_t xor_sign = 1;

template <class Op, class T>
void extreme(Thread& t, const Instruction& i) {
    T a = get<T>(t, i.a), b = get<T>(t, i.b);
    if (i.ftz) {
        a = flushed(a);
        b = flushed(b);
    }
    const bool negative = std::signbit(a) != std::signbit(b);
    if (i.mode == xor_sign) {
        a = std::fabs(a);
        b = std::fabs(b);
    }
    T result = Op::of(a, b);
    if (i.nan && (a != a || b != b)) result = std::numeric_limits<T>::quiet_NaN();
    if (i.mode == xor_sign && result == result)
        result = std::copysign(result, negative ? T(-1) : T(1));
    put<T>(t, i.d, canonical(result, a, b));
}

template <class Op>
struct Extreme { template <class T> static constexpr Handler run = extreme<Op, T>; };

template <class Op>
bool extreme_rule(Decoder& d) {
    d.out.ftz = d.word("ftz");
    d.out.nan = d.word("NaN");
    if (d.word("xorsign")) {
        d.out.mode = xor_sign;
        if (!d.word("abs")) return false;
    }
    const Type type = d.type();
    if (type == Type::f64 && (d.out.ftz || d.out.nan || d.out.mode != 0)) return false;
    return d.binary(type, among_floats<Extreme<Op>>(type));
}

}  // namespace
}  // namespace floats

void add_float_rules(Rules& rules) {
    using namespace floats;
    using A = Approximate;
    rules.insert({
        {"add", exact_rule<Add, 2, false, true>},
        {"sub", exact_rule<Sub, 2, false, true>},
        {"mul", exact_rule<Mul, 2, false, true>},
        {"fma", exact_rule<Fma, 3, true, true>},
        {"mad", exact_rule<Fma, 3, true, true>},
        {"div", exact_rule<Div, 2, true, false>},
        {"sqrt", exact_rule<Sqrt, 1, true, false>},
        {"rcp", exact_rule<Rcp, 1, true, false>},
        {"div", approximate_rule<A::div, 2>},
        {"div", full_division_rule},
        {"sqrt", approximate_rule<A::sqrt, 1>},
        {"rcp", approximate_rule<A::rcp, 1>},
        {"rsqrt", approximate_rule<A::rsqrt, 1>},
        {"sin", approximate_rule<A::sin, 1>},
        {"cos", approximate_rule<A::cos, 1>},
        {"lg2", approximate_rule<A::lg2, 1>},
        {"ex2", approximate_rule<A::ex2, 1>},
        {"tanh", tanh_rule},
        {"rcp", gross_rule<A::rcp>},
        {"rsqrt", gross_rule<A::rsqrt>},
        {"rsqrt", rsqrt_of_double_rule},
        {"neg", sign_rule<Neg>},
        {"abs", sign_rule<Abs>},
        {"copysign", copysign_rule},
        {"min", extreme_rule<Min>},
        {"max", extreme_rule<Max>},
    });
}

}  // namespace ptx
