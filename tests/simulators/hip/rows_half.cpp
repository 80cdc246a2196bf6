// Vector arithmetic on float16, on pairs of 16-bit values, and on mixtures with float32.
#include <algorithm>

#include "arithmetic.h"

namespace gfx9 {
namespace {

using Halves = Packed<Half>;

Half least(Half a, Half b) {
    const float x = a, y = b;
    if (x != x) return b;
    if (y != y) return a;
    return x < y || (x == y && a.bits >> 15) ? a : b;
}

Half most(Half a, Half b) {
    const float x = a, y = b;
    if (x != x) return b;
    if (y != y) return a;
    return x > y || (x == y && !(a.bits >> 15)) ? a : b;
}

// A product of halves is exact as double.
Half fma_of(Half a, Half b, Half c) { return std::fma(double(a), double(b), double(c)); }

void add_halves(Table& table) {
    table.vector("v_add_f16", [](Half a, Half b) -> Half { return double(a) + b; });
    table.vector("v_sub_f16", [](Half a, Half b) -> Half { return double(a) - b; });
    table.vector("v_subrev_f16", [](Half a, Half b) -> Half { return double(b) - a; });
    table.vector("v_mul_f16", [](Half a, Half b) -> Half { return double(a) * b; });
    table.vector("v_min_f16", [](Half a, Half b) { return least(a, b); });
    table.vector("v_max_f16", [](Half a, Half b) { return most(a, b); });
    table.vector("v_fma_f16", [](Half a, Half b, Half c) { return fma_of(a, b, c); });
    table.vector("v_fmac_f16", [](Half a, Half b, Half d) { return fma_of(a, b, d); });
    table.vector("v_mad_f16", [](Half a, Half b, Half c) -> Half { return Half(double(a) * b) + double(c); });
    table.vector("v_mac_f16", [](Half a, Half b, Half d) -> Half { return Half(double(a) * b) + double(d); });
    table.vector("v_div_fixup_f16", [](Half, Half b, Half c) -> Half { return double(c) / b; });
    table.vector("v_rcp_f16", [](Half a) -> Half { return 1 / double(a); });
    table.vector("v_sqrt_f16", [](Half a) -> Half { return std::sqrt(double(a)); });
    table.vector("v_rsq_f16", [](Half a) -> Half { return 1 / std::sqrt(double(a)); });
    table.vector("v_exp_f16", [](Half a) -> Half { return std::exp2(double(a)); });
    table.vector("v_log_f16", [](Half a) -> Half { return std::log2(double(a)); });
    table.vector("v_floor_f16", [](Half a) -> Half { return std::floor(double(a)); });
    table.vector("v_ceil_f16", [](Half a) -> Half { return std::ceil(double(a)); });
    table.vector("v_trunc_f16", [](Half a) -> Half { return std::trunc(double(a)); });
    table.vector("v_rndne_f16", [](Half a) -> Half { return std::nearbyint(double(a)); });
    table.vector("v_ldexp_f16", [](Half a, int16_t b) -> Half { return std::ldexp(double(a), b); });
}

template <class T, class F>
Packed<T> both(Packed<T> a, Packed<T> b, F f) {
    return {T(f(a.low, b.low)), T(f(a.high, b.high))};
}

void add_packed(Table& table) {
    auto halves = [&](const char* name, auto f) {
        table.vector(name, [](Halves a, Halves b) { return both(a, b, decltype(f){}); });
    };
    halves("v_pk_add_f16", [](Half a, Half b) -> Half { return double(a) + b; });
    halves("v_pk_mul_f16", [](Half a, Half b) -> Half { return double(a) * b; });
    halves("v_pk_min_f16", [](Half a, Half b) { return least(a, b); });
    halves("v_pk_max_f16", [](Half a, Half b) { return most(a, b); });
    table.vector("v_pk_fma_f16", [](Halves a, Halves b, Halves c) -> Halves {
        return {fma_of(a.low, b.low, c.low), fma_of(a.high, b.high, c.high)};
    });
    auto words = [&]<class T>(const std::string& name, T, auto f) {
        table.vector(name, [](Packed<T> a, Packed<T> b) { return both(a, b, decltype(f){}); });
    };
    constexpr uint16_t U = 0;
    constexpr int16_t I = 0;
    words("v_pk_add_u16", U, [](uint16_t a, uint16_t b) { return a + b; });
    words("v_pk_add_i16", I, [](int16_t a, int16_t b) { return a + b; });
    words("v_pk_sub_u16", U, [](uint16_t a, uint16_t b) { return a - b; });
    words("v_pk_sub_i16", I, [](int16_t a, int16_t b) { return a - b; });
    words("v_pk_mul_lo_u16", U, [](uint32_t a, uint32_t b) { return a * b; });
    words("v_pk_min_u16", U, [](uint16_t a, uint16_t b) { return std::min(a, b); });
    words("v_pk_max_u16", U, [](uint16_t a, uint16_t b) { return std::max(a, b); });
    words("v_pk_min_i16", I, [](int16_t a, int16_t b) { return std::min(a, b); });
    words("v_pk_max_i16", I, [](int16_t a, int16_t b) { return std::max(a, b); });
    words("v_pk_lshlrev_b16", U, [](uint16_t a, uint16_t b) { return b << (a & 15); });
    words("v_pk_lshrrev_b16", U, [](uint16_t a, uint16_t b) { return b >> (a & 15); });
    words("v_pk_ashrrev_i16", I, [](int16_t a, int16_t b) { return b >> (a & 15); });
}

// The other half of the register stays.
template <int shift>
void mix_into_half(Wave& wave, const Instruction& is) {
    Mixed rooms[3][LANES];
    uint32_t words[LANES];
    for (int source = 0; source < 3; ++source) lanes_of(wave, is.in[source], rooms[source]);
    for (int lane = 0; lane < LANES; ++lane) {
        const Half half = std::fma(double(rooms[0][lane]), double(rooms[1][lane]), double(rooms[2][lane]));
        const uint32_t bits = word_of(half, is);
        words[lane] = (wave.v[is.out.index][lane] & ~(0xffffu << shift)) | bits << shift;
    }
    put_words(wave, is.out.index, words);
}

}  // namespace

void add_half_rows(Table& table) {
    add_halves(table);
    add_packed(table);
    auto mix = [](Mixed a, Mixed b, Mixed c) { return std::fma(float(a), float(b), float(c)); };
    table.vector("v_fma_mix_f32", mix);
    table.vector("v_mad_mix_f32", mix);
    const std::vector<Type> three(3, Type::Mixed);
    for (const char* name : {"v_fma_mixlo_f16", "v_mad_mixlo_f16"})
        table.rows[name] = {mix_into_half<0>, nullptr, true, true, false, three};
    for (const char* name : {"v_fma_mixhi_f16", "v_mad_mixhi_f16"})
        table.rows[name] = {mix_into_half<16>, nullptr, true, true, false, three};
}

}  // namespace gfx9
