// Arithmetic of the host under a rounding mode, and the numbers that PTX treats as special.
#pragma once

#include <cfenv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "program.h"

namespace ptx {

class InMode {
public:
    explicit InMode(Rounding rounding) {
        constexpr int modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
        std::fesetround(modes[static_cast<int>(rounding)]);
    }
    ~InMode() { std::fesetround(FE_TONEAREST); }
    InMode(const InMode&) = delete;
    InMode& operator=(const InMode&) = delete;
};

// Compilers move arithmetic across the change of the mode; they do not move volatile accesses.
template <class Op, class T>
T in_mode(Rounding rounding, T a, T b = 0, T c = 0) {
    volatile T x = a, y = b, z = c, result;
    {
        InMode mode(rounding);
        const T p = x, q = y, r = z;
        result = Op::of(p, q, r);
    }
    return result;
}

inline uint32_t bits_of(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

inline uint64_t bits_of(double value) {
    uint64_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

inline float float_of(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

inline double double_of(uint64_t bits) {
    double value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

// .ftz: subnormal numbers are zeros of their sign.
template <class T>
T flushed(T value) {
    return std::fabs(value) < std::numeric_limits<T>::min() ? std::copysign(T(0), value) : value;
}

// .sat: a NaN becomes +0. Source: section 9.7.3.1.
template <class T>
T clamped(T value) {
    return value > T(0) ? (value < T(1) ? value : T(1)) : T(0);
}

// The NaN that instructions give: of float32 one alone (section 9.7.3); of float64 the payload
// of an operand where there is one.
inline float canonical(float result, float = 0, float = 0, float = 0) {
    return result == result ? result : float_of(0x7fffffff);
}

inline double canonical(double result, double a = 0, double b = 0, double c = 0) {
    if (result == result) return result;
    for (const double each : {a, b, c}) {
        if (each != each) return double_of(bits_of(each) | 1ull << 51);
    }
    return double_of(0xfff8000000000000);
}

}  // namespace ptx
