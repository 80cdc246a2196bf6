// What texture and surface objects point to: an image, and behind it a sampler. Image instructions
// take both from registers; kernels read some words themselves.
//
//     word 0   address / 256, whose upper 8 bits begin word 1
//     word 1   [25:20] how many parts of how many bits, [29:26] as which numbers they are read
//     word 2   [13:0] width - 1, [27:14] height - 1
//     word 3   [11:0] for each of r, g, b, a: 0, 1, or a part + 4; [31:28] axes + 7
//     word 4   [12:0] depth - 1, [28:13] pixels from a row to the next - 1
//     word 8   type, order and width, as HSA numbers them: nothing that the hardware sees
//     word 12  of the sampler: [8:0] how to go beyond each axis, [15] coordinates count pixels
//     word 14  [23:20] filters
//
// Source: resource_ai.h and image_manager_ai.cpp of ROCR-Runtime. Swizzled memory is left out.
#pragma once

#include "kernel_memory.h"

namespace gfx9 {

constexpr int IMAGE_WORDS = 12, OBJECT_WORDS = 20;
constexpr uint32_t LAST_PIXEL = 2 | 2 << 3 | 2 << 6, IN_PIXELS = 1 << 15;  // of a sampler

// By the bytes of a part and by the number of parts: 1, 2 or 4, halved.
constexpr uint32_t PARTS[3][3] = {{1, 3, 10}, {2, 5, 12}, {4, 11, 14}};

inline uint32_t numbers_of(const KernelImage& image) {
    if (image.kind == 'f') return 7;
    return (image.kind == 'i') | (image.normalised ? 0 : 4);
}

inline void describe(const KernelImage& image, uint64_t address, uint32_t* words) {
    const uint32_t half = image.nbytes / 2, parts = image.channels / 2;
    const uint32_t type = image.kind == 'f' ? 13 + half
                          : image.normalised ? (image.kind == 'i' ? 0 : 2) + half
                                             : (image.kind == 'i' ? 8 : 11) + half;
    constexpr uint32_t selects[] = {01004, 01054, 07654}, orders[] = {1, 3, 8};
    words[0] = uint32_t(address >> 8);
    words[1] = uint32_t(address >> 40) | PARTS[half][parts] << 20 | numbers_of(image) << 26;
    words[2] = (image.size[0] - 1) | (image.size[1] - 1) << 14;
    words[3] = selects[parts] | (image.axes + 7) << 28;
    words[4] = (image.size[2] - 1) | (image.size[0] - 1) << 13;
    words[8] = type, words[9] = orders[parts], words[10] = image.size[0];
    words[12] = LAST_PIXEL | IN_PIXELS;
}

// Without its bytes; false for what is no such image.
inline bool read_image(const uint32_t* words, KernelImage& image, uint64_t& address) {
    address = uint64_t(words[0]) << 8 | uint64_t(words[1] & 0xff) << 40;
    image.axes = (words[3] >> 28) - 7;
    image.size[0] = (words[2] & 0x3fff) + 1;
    image.size[1] = (words[2] >> 14 & 0x3fff) + 1;
    image.size[2] = (words[4] & 0x1fff) + 1;
    const uint32_t numbers = words[1] >> 26 & 15, parts = words[1] >> 20 & 63;
    image.kind = numbers == 7 ? 'f' : numbers & 1 ? 'i' : 'u';
    image.normalised = numbers < 2;
    for (uint32_t half = 0; half < 3; ++half)
        for (uint32_t more = 0; more < 3; ++more)
            if (PARTS[half][more] == parts) image.nbytes = 1 << half, image.channels = 1 << more;
    return image.axes - 1 < 3 && image.channels && numbers_of(image) == numbers &&
           (words[4] >> 13 & 0xffff) + 1 == image.size[0] && !(words[3] >> 20 & 31);
}

}  // namespace gfx9
