// Pixels as kernels read them: one part of one pixel, as a number.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernel_memory.h"

inline double half_value(uint32_t bits) {
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    const double size = exponent == 31
                            ? (fraction ? NAN : INFINITY)
                            : std::ldexp(exponent ? fraction | 1024 : fraction, std::max(exponent, 1) - 25);
    return bits & 0x8000 ? -size : size;
}

// A part of a pixel; a double holds all of its values.
inline double part_of(const KernelImage& image, const uint8_t* at) {
    uint32_t bits = 0;
    std::memcpy(&bits, at, image.nbytes);
    if (image.kind == 'f') {
        if (image.nbytes == 2) return half_value(bits);
        float value;
        std::memcpy(&value, &bits, sizeof value);
        return value;
    }
    const uint32_t width = 8 * image.nbytes;
    double value = bits, most = std::ldexp(1, int(width)) - 1;
    if (image.kind == 'i') {
        most = std::ldexp(1, int(width) - 1) - 1;
        if (value > most) value -= std::ldexp(1, int(width));
    }
    return image.normalised ? std::max(-1.0, value / most) : value;
}

// Of the pixel that a coordinate lies in; beyond the edges it is the one at the edge, and what is no
// number is 0.
inline double nearest(const KernelImage& image, const double* at, uint32_t channel) {
    uint64_t place[3] = {0, 0, 0};
    for (uint32_t axis = 0; axis < image.axes; ++axis)
        if (at[axis] > 0) place[axis] = uint64_t(std::min(at[axis], image.size[axis] - 1.0));
    return part_of(image, image.row(place[1], place[2]) + place[0] * image.pixel_nbytes() + channel * image.nbytes);
}
