// Vector arithmetic on float32 and float64. Source: Vega ISA, chapters 12.8 to 12.10.
#include <algorithm>

#include "arithmetic.h"

namespace gfx9 {
namespace {

// Of two numbers, one of which may be NaN; -0 is less than 0.
template <class T>
T least(T a, T b) {
    if (a != a) return b;
    if (b != b) return a;
    return a < b || (a == b && std::signbit(a)) ? a : b;
}

template <class T>
T most(T a, T b) {
    if (a != a) return b;
    if (b != b) return a;
    return a > b || (a == b && !std::signbit(a)) ? a : b;
}

template <class T>
T middle(T a, T b, T c) {
    if (a != a || b != b || c != c) return least(least(a, b), c);
    return most(least(a, b), least(most(a, b), c));
}

template <class T>
T ldexp_of(T value, int32_t exponent) {
    return std::ldexp(value, std::clamp(exponent, -5000, 5000));
}

template <class T>
T mantissa(T value) {
    int exponent;
    return std::isfinite(value) ? std::frexp(value, &exponent) : value;
}

template <class T>
int32_t exponent_of(T value) {
    int exponent = 0;
    if (std::isfinite(value)) std::frexp(value, &exponent);
    return exponent;
}

// Below one, whatever the rounding.
template <class T>
T fraction(T value) {
    const T below_one = std::nextafter(T(1), T(0));
    const T result = value - std::floor(value);
    return result < below_one || result != result ? result : below_one;
}

// v_div_scale moves operands away from the ends of the range, so that the steps of a division lose
// nothing, and v_div_fmas moves the quotient back. The published texts of both and of v_div_fixup
// leave cases out, so here nothing is moved, and the last step gives the quotient itself.
template <class T>
Carried<T> div_scale(T value, T, T) {
    return {value, false};
}

template <class T>
T div_fixup(T, T denominator, T numerator) {
    return numerator / denominator;
}

template <class T>
void add_common(Table& table, const std::string& type) {
    auto name = [&](const char* start) { return start + type; };
    table.vector(name("v_add_"), [](T a, T b) { return a + b; });
    table.vector(name("v_mul_"), [](T a, T b) { return a * b; });
    table.vector(name("v_min_"), [](T a, T b) { return least(a, b); });
    table.vector(name("v_max_"), [](T a, T b) { return most(a, b); });
    table.vector(name("v_fma_"), [](T a, T b, T c) { return std::fma(a, b, c); });
    table.vector(name("v_ldexp_"), [](T a, int32_t b) { return ldexp_of(a, b); });
    table.vector(name("v_rcp_"), [](T a) { return 1 / a; });
    table.vector(name("v_rsq_"), [](T a) { return T(1 / std::sqrt((long double)a)); });
    table.vector(name("v_sqrt_"), [](T a) { return std::sqrt(a); });
    table.vector(name("v_fract_"), [](T a) { return fraction(a); });
    table.vector(name("v_trunc_"), [](T a) { return std::trunc(a); });
    table.vector(name("v_ceil_"), [](T a) { return std::ceil(a); });
    table.vector(name("v_floor_"), [](T a) { return std::floor(a); });
    table.vector(name("v_rndne_"), [](T a) { return std::nearbyint(a); });
    table.vector(name("v_frexp_mant_"), [](T a) { return mantissa(a); });
    table.vector(name("v_frexp_exp_i32_"), [](T a) { return exponent_of(a); });
    table.vector(name("v_div_scale_"), [](T a, T b, T c) { return div_scale(a, b, c); });
    table.vector(name("v_div_fmas_"), [](T a, T b, T c, Mask) { return std::fma(a, b, c); });
    table.vector(name("v_div_fixup_"), [](T a, T b, T c) { return div_fixup(a, b, c); });
}

void add_single(Table& table) {
    constexpr float TURN = 6.283185307179586f;
    table.vector("v_sub_f32", [](float a, float b) { return a - b; });
    table.vector("v_subrev_f32", [](float a, float b) { return b - a; });
    table.vector("v_mac_f32", [](float a, float b, float d) { return a * b + d; });
    table.vector("v_mad_f32", [](float a, float b, float c) { return a * b + c; });
    table.vector("v_fmac_f32", [](float a, float b, float d) { return std::fma(a, b, d); });
    table.vector("v_fmaak_f32", [](float a, float b, float k) { return std::fma(a, b, k); });
    table.vector("v_madak_f32", [](float a, float b, float k) { return a * b + k; });
    table.vector("v_madmk_f32", [](float a, float k, float b) { return a * k + b; });
    table.vector("v_mul_legacy_f32", [](float a, float b) { return a && b ? a * b : 0; });
    table.vector("v_rcp_iflag_f32", [](float a) { return 1 / a; });
    table.vector("v_exp_f32", [](float a) { return std::exp2(a); });
    table.vector("v_log_f32", [](float a) { return std::log2(a); });
    table.vector("v_sin_f32", [](float a) { return float(std::sin(double(TURN) * a)); });
    table.vector("v_cos_f32", [](float a) { return float(std::cos(double(TURN) * a)); });
    table.vector("v_min3_f32", [](float a, float b, float c) { return least(least(a, b), c); });
    table.vector("v_max3_f32", [](float a, float b, float c) { return most(most(a, b), c); });
    table.vector("v_med3_f32", [](float a, float b, float c) { return middle(a, b, c); });
}

// The first 1201 bits of 2/pi behind the point, which v_trig_preop_f64 gives 53 at a time.
constexpr uint32_t TWO_OVER_PI[] = {
    0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0, 0xdb629599, 0x3c439041,
    0xfe5163ab, 0xdebbc561, 0xb7246e3a, 0x424dd2e0, 0x06492eea, 0x09d1921c,
    0xfe1deb1c, 0xb129a73e, 0xe88235f5, 0x2ebb4484, 0xe99c7026, 0xb45f7e41,
    0x3991d639, 0x835339f4, 0x9c845f8b, 0xbdf9283b, 0x1ff897ff, 0xde05980f,
    0xef2f118b, 0x5a0a6d1f, 0x6d367ecf, 0x27cb09b7, 0x4f463f66, 0x9e5fea2d,
    0x7527bac7, 0xebe5f17b, 0x3d0739f7, 0x8a5292ea, 0x6bfb5fb1, 0x1f8d5d08,
    0x56033046, 0xfc7b6bab};

double trig_preop(double value, uint32_t segment) {
    const int exponent = int(bits_as<uint64_t>(value) >> 52 & 2047);
    int shift = int(segment & 31) * 53;
    if (exponent > 1077) shift += exponent - 1077;
    uint64_t bits = 0;
    for (int place = shift; place < shift + 53; ++place) {
        const bool inside = place < 1201;
        bits = bits << 1 | (inside && (TWO_OVER_PI[place / 32] >> (31 - place % 32) & 1));
    }
    return std::ldexp(double(bits), -53 - shift + (exponent >= 1968 ? 128 : 0));
}

}  // namespace

void add_float_rows(Table& table) {
    add_common<float>(table, "f32");
    add_common<double>(table, "f64");
    add_single(table);
    table.vector("v_trig_preop_f64", [](double a, uint32_t b) { return trig_preop(a, b); });
}

}  // namespace gfx9
