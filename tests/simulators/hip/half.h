// float16: bits that are computed with as float or double and rounded once.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace gfx9 {

template <class To, class From>
To bits_as(From value) {
    return std::bit_cast<To>(value);
}

struct Half {
    uint16_t bits = 0;

    Half() = default;
    explicit Half(uint16_t bits, int) : bits(bits) {}
    Half(double value) : bits(rounded(value)) {}

    operator float() const {
        const int exponent = bits >> 10 & 31, fraction = bits & 1023;
        const float sign = bits & 0x8000 ? -1.0f : 1.0f;
        if (exponent == 31) {
            const uint32_t word = uint32_t(bits & 0x8000) << 16 | 0x7f800000 | fraction << 13;
            return bits_as<float>(word);
        }
        return sign * std::ldexp(float(exponent ? fraction | 1024 : fraction),
                                 (exponent ? exponent : 1) - 25);
    }

private:
    // To the nearest, ties to even.
    static uint16_t rounded(double value) {
        const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
        const double size = std::fabs(value);
        if (value != value) return sign | 0x7e00;
        if (size >= 65520) return sign | 0x7c00;
        const int exponent = size == 0 ? -14 : std::max(std::ilogb(size), -14);
        const auto units = uint32_t(std::nearbyint(std::ldexp(size, 10 - exponent)));
        // The hidden bit adds one to the exponent, a carry another one.
        return uint16_t(sign | ((uint32_t(exponent + 14) << 10) + units));
    }
};

}  // namespace gfx9
