// float16 and bfloat16: 16 bits that are computed with as double, which is exact for both, and
// rounded once.
#pragma once

#include "machine.h"
#include "rounding.h"

namespace ptx {

// A binary format in the low bits of a word.
template <int exponent_bits, int fraction_bits>
struct Format {
    static constexpr int bias = (1 << (exponent_bits - 1)) - 1;
    static constexpr int least_exponent = 1 - bias;
    static constexpr uint16_t infinity = ((1 << exponent_bits) - 1) << fraction_bits;
    static constexpr uint16_t quiet = 0x7fff;  // the NaN that instructions give
    static constexpr uint16_t most = infinity - 1;

    uint16_t bits;

    double value() const {
        const int exponent = (bits & 0x7fff) >> fraction_bits;
        const int fraction = bits & ((1 << fraction_bits) - 1);
        const double sign = bits & 0x8000 ? -1 : 1;
        if (exponent == (1 << exponent_bits) - 1) {
            return fraction != 0 ? std::numeric_limits<double>::quiet_NaN()
                                 : sign * std::numeric_limits<double>::infinity();
        }
        const int whole = exponent == 0 ? fraction : fraction | 1 << fraction_bits;
        return sign * std::ldexp(whole, std::max(exponent, 1) - bias - fraction_bits);
    }

    static Format of(double value, Rounding rounding = Rounding::nearest) {
        if (value != value) return {quiet};
        const bool negative = std::signbit(value);
        const uint16_t sign = negative ? 0x8000 : 0;
        const double size = std::fabs(value);
        if (size == std::numeric_limits<double>::infinity())
            return {static_cast<uint16_t>(sign | infinity)};
        int exponent = 0;
        std::frexp(size, &exponent);  // size is below 2^exponent
        exponent = size == 0 ? least_exponent : std::max(exponent - 1, least_exponent);
        // In units of the last place, exact: a double has more of them than it loses here.
        const double scaled = std::ldexp(size, fraction_bits - exponent);
        double whole = std::floor(scaled);
        if (rounds_away(scaled - whole, std::fmod(whole, 2) != 0, negative, rounding)) whole += 1;
        const double result = std::ldexp(whole, exponent - fraction_bits);
        const double limit = std::ldexp(2 - std::ldexp(1, -fraction_bits), bias);
        if (result > limit) {
            const bool stays = rounding == Rounding::zero ||
                               rounding == (negative ? Rounding::up : Rounding::down);
            return {static_cast<uint16_t>(sign | (stays ? most : infinity))};
        }
        const auto units = static_cast<uint32_t>(whole);
        // The hidden bit adds one to the exponent, a carry another one.
        const uint32_t field = static_cast<uint32_t>(exponent - least_exponent) << fraction_bits;
        return {static_cast<uint16_t>(sign | (field + units))};
    }

private:
    static bool rounds_away(double rest, bool odd, bool negative, Rounding rounding) {
        switch (rounding) {
            case Rounding::nearest: return rest > 0.5 || (rest == 0.5 && odd);
            case Rounding::zero: return false;
            case Rounding::down: return negative && rest > 0;
            default: return !negative && rest > 0;
        }
    }
};

using Half = Format<5, 10>;
using Brain = Format<8, 7>;

// Comparisons need no rounding.
template <int e, int f>
bool operator==(Format<e, f> a, Format<e, f> b) {
    return a.value() == b.value();
}
template <int e, int f>
bool operator!=(Format<e, f> a, Format<e, f> b) {
    return a.value() != b.value();
}
template <int e, int f>
bool operator<(Format<e, f> a, Format<e, f> b) {
    return a.value() < b.value();
}
template <int e, int f>
bool operator<=(Format<e, f> a, Format<e, f> b) {
    return a.value() <= b.value();
}
template <int e, int f>
bool operator>(Format<e, f> a, Format<e, f> b) {
    return a.value() > b.value();
}
template <int e, int f>
bool operator>=(Format<e, f> a, Format<e, f> b) {
    return a.value() >= b.value();
}

}  // namespace ptx
