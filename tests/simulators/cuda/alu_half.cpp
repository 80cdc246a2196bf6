// Arithmetic of float16 and bfloat16, and of two of them in a word (ISA, section 9.7.4).
#include "alu.h"
#include "decoder.h"
#include "half.h"

namespace ptx {

namespace halves {
namespace {

// Sums and products of two are exact enough in double that rounding them again changes nothing:
// 53 bits are more than twice 11, and 2 more. Of three they are not: the sum is rounded to odd.
double odd_sum(double product, double c) {
    const double sum = product + c;
    if (!(std::fabs(sum) < std::numeric_limits<double>::infinity())) return sum;
    const double part = sum - product;
    const double rest = (product - (sum - part)) + (c - part);  // what the sum lost, exactly
    if (rest == 0 || (bits_of(sum) & 1) != 0) return sum;
    return std::nextafter(sum, rest > 0 ? std::numeric_limits<double>::infinity()
                                        : -std::numeric_limits<double>::infinity());
}

struct Add { static double of(double a, double b, double) { return a + b; } };
struct Sub { static double of(double a, double b, double) { return a - b; } };
struct Mul { static double of(double a, double b, double) { return a * b; } };
struct Fma { static double of(double a, double b, double c) { return odd_sum(a * b, c); } };
struct Tanh { static double of(double a, double, double) { return std::tanh(a); } };
struct Ex2 { static double of(double a, double, double) { return std::exp2(a); } };

// As for float32: a NaN gives way to a number, -0 is less than +0.
double least(double a, double b) {
    if (a != a) return b;
    if (b != b) return a;
    if (a == b) return std::signbit(a) ? a : b;
    return a < b ? a : b;
}
struct Min { static double of(double a, double b, double) { return least(a, b); } };
struct Max { static double of(double a, double b, double) { return -least(-a, -b); } };

template <class H>
double flushed_half(double value) {
    return std::fabs(value) < std::ldexp(1, H::least_exponent) ? std::copysign(0.0, value) : value;
}

template <class Op, class H>
uint16_t one(const Instruction& i, uint16_t a, uint16_t b, uint16_t c) {
    double values[3] = {H{a}.value(), H{b}.value(), H{c}.value()};
    for (double& value : values) {
        if (i.ftz) value = flushed_half<H>(value);
    }
    double result = Op::of(values[0], values[1], values[2]);
    if (i.nan && (values[0] != values[0] || values[1] != values[1]))
        result = std::numeric_limits<double>::quiet_NaN();
    if (i.saturate) result = clamped(result);
    if (i.relu && result <= 0) result = 0;
    H rounded = H::of(result);
    if (i.ftz) rounded = H::of(flushed_half<H>(rounded.value()));
    return rounded.bits;
}

// `count` operands, each of `parts` halves.
template <class Op, class H, int count, int parts>
void compute(Thread& t, const Instruction& i) {
    const uint32_t a = get<uint32_t>(t, i.a), b = count > 1 ? get<uint32_t>(t, i.b) : 0,
                   c = count > 2 ? get<uint32_t>(t, i.c) : 0;
    uint32_t result = 0;
    for (int part = 0; part < parts; ++part) {
        const int by = 16 * part;
        result |= static_cast<uint32_t>(one<Op, H>(i, static_cast<uint16_t>(a >> by),
                                                   static_cast<uint16_t>(b >> by),
                                                   static_cast<uint16_t>(c >> by)))
                  << by;
    }
    put<uint32_t>(t, i.d, result);
}

template <class Op, int count>
bool operands(Decoder& d) {
    const Type type = d.type();
    Handler run = nullptr;
    switch (type) {
        case Type::f16: run = compute<Op, Half, count, 1>; break;
        case Type::f16x2: run = compute<Op, Half, count, 2>; break;
        case Type::bf16: run = compute<Op, Brain, count, 1>; break;
        case Type::bf16x2: run = compute<Op, Brain, count, 2>; break;
        default: return false;
    }
    const bool brain = type == Type::bf16 || type == Type::bf16x2;
    if (brain && (d.out.ftz || d.out.saturate)) return false;
    return count == 1   ? d.unary(type, run)
           : count == 2 ? d.binary(type, run)
                        : d.ternary(type, run);
}

// {.rn}{.ftz}{.sat}
template <class Op, int count>
bool arithmetic_rule(Decoder& d) {
    const bool rounds = d.word("rn");
    if (count == 3 && !rounds) return false;
    d.out.ftz = d.word("ftz");
    d.out.saturate = d.word("sat");
    d.out.relu = count == 3 && !d.out.saturate && d.word("relu");
    return operands<Op, count>(d);
}

template <class Op>
bool extreme_rule(Decoder& d) {
    d.out.ftz = d.word("ftz");
    d.out.nan = d.word("NaN");
    return operands<Op, 2>(d);
}

template <class Op>
bool approximate_rule(Decoder& d) {
    if (!d.word("approx")) return false;
    return operands<Op, 1>(d);
}

// Of bfloat16 it flushes always, and says so.
bool ex2_rule(Decoder& d) {
    if (!d.word("approx")) return false;
    const bool flushes = d.word("ftz");
    const bool done = operands<Ex2, 1>(d);
    const bool brain = d.out.type == Type::bf16 || d.out.type == Type::bf16x2;
    if (done && flushes != brain) d.fail("bfloat16 takes .ftz here, and float16 does not");
    d.out.ftz = flushes;
    return done;
}

// -- signs: `mode` 1 clears them, else they are turned

template <uint32_t signs>
void change_sign(Thread& t, const Instruction& i) {
    uint32_t a = get<uint32_t>(t, i.a);
    for (uint32_t half : {0x7fffu, 0x7fff0000u}) {
        // Subnormal: a fraction, and no bit of the exponent.
        if (i.ftz && (a & half & 0x7c007c00) == 0) a &= ~half;
    }
    put<uint32_t>(t, i.d, i.mode != 0 ? a & ~signs : a ^ signs);
}

template <uint16_t clears>
bool sign_rule(Decoder& d) {
    d.out.ftz = d.word("ftz");
    d.out.mode = clears;
    const Type type = d.type();
    if (d.out.ftz && type != Type::f16 && type != Type::f16x2) return false;
    const bool two = type == Type::f16x2 || type == Type::bf16x2;
    if (!two && type != Type::f16 && type != Type::bf16) return false;
    return d.unary(type, two ? change_sign<0x80008000> : change_sign<0x8000>);
}

}  // namespace
}  // namespace halves

void add_half_rules(Rules& rules) {
    using namespace halves;
    rules.insert({{"add", arithmetic_rule<Add, 2>}, {"sub", arithmetic_rule<Sub, 2>},
                  {"mul", arithmetic_rule<Mul, 2>}, {"fma", arithmetic_rule<Fma, 3>},
                  {"min", extreme_rule<Min>}, {"max", extreme_rule<Max>},
                  {"tanh", approximate_rule<Tanh>}, {"ex2", ex2_rule},
                  {"neg", sign_rule<0>}, {"abs", sign_rule<1>}});
}

}  // namespace ptx
