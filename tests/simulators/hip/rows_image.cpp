// Images: pixels by way of descriptors that lie in scalar registers.
//
//     image_sample_lz v[2:3], v0, s[0:7], s[8:11] dmask:0x9      r and a at v0, v1 of two axes
//     image_store v[4:7], v0, s[0:7] dmask:0xf unorm             at integers
#include "access.h"
#include "descriptor.h"
#include "texel.h"

namespace gfx9 {
namespace {

KernelImage image_of(Wave& wave, const uint32_t* words, bool write) {
    KernelImage image;
    uint64_t address;
    if (!read_image(words, image, address))
        throw Stop{Fault::Illegal, "a descriptor of no image that the engine knows", -1};
    const uint64_t nbytes = image.row_nbytes() * image.size[1] * image.size[2];
    image.bytes = global_at(wave, address, nbytes, write);
    if (!image.bytes) out_of_bounds("an image", address, nbytes, -1);
    return image;
}

// Where each lane looks. The registers may be those of the result.
struct Places {
    double at[LANES][3];

    Places(const Wave& wave, const Instruction& is, const KernelImage& image, bool floats) {
        for (uint32_t axis = 0; axis < image.axes; ++axis)
            for (int lane = 0; lane < LANES; ++lane) {
                const uint32_t word = wave.v[is.op[1].index + (is.narrow ? axis / 2 : axis)][lane];
                const auto half = uint16_t(word >> axis % 2 * 16);
                if (floats) at[lane][axis] = is.narrow ? float(Half(half, 0)) : bits_as<float>(word);
                else at[lane][axis] = is.narrow ? half : int32_t(word);
            }
    }

    bool inside(const KernelImage& image, int lane) const {
        for (uint32_t axis = 0; axis < image.axes; ++axis)
            if (at[lane][axis] < 0 || at[lane][axis] >= image.size[axis]) return false;
        return true;
    }
};

// Parts that the image lacks are 0 or 1, as the descriptor says; pixels that it lacks are 0.
void read_pixels(Wave& wave, const Instruction& is, bool samples) {
    const uint32_t* words = &wave.s[is.op[2].index];
    const KernelImage image = image_of(wave, words, false);
    const Places places(wave, is, image, samples);
    const bool floats = image.kind == 'f' || image.normalised;
    uint32_t results[4][LANES] = {};
    int count = 0;
    for (int part = 0; part < 4; ++part) {
        if (!(is.parts >> part & 1)) continue;
        const uint32_t select = words[3] >> 3 * part & 7;
        for (int lane = 0; lane < LANES; ++lane) {
            double value = select;
            if (select >= 4)
                value = samples || places.inside(image, lane) ? nearest(image, places.at[lane], select - 4) : 0;
            results[count][lane] = floats ? bits_as<uint32_t>(float(value)) : uint32_t(int64_t(value));
        }
        ++count;
    }
    for (int part = 0; part < count; ++part) put_words(wave, is.op[0].index + part, results[part]);
}

void sample_pixels(Wave& wave, const Instruction& is) {
    const uint32_t* sampler = &wave.s[is.op[3].index];
    if (sampler[0] != (LAST_PIXEL | IN_PIXELS) || sampler[2] >> 20 & 15)
        throw Stop{Fault::Illegal, "a sampler that the engine does not know", -1};
    read_pixels(wave, is, true);
}

// What the format does not hold is found out: what hardware makes of it is not said.
void put_part(const KernelImage& image, uint8_t* to, uint32_t word, int lane) {
    const uint32_t width = 8 * image.nbytes;
    if (image.kind == 'f' && width == 16) word = Half(bits_as<float>(word)).bits;
    const uint32_t cut = word << (32 - width);
    const uint32_t held = image.kind == 'i' ? uint32_t(int32_t(cut) >> (32 - width)) : cut >> (32 - width);
    if (held != word)
        throw Stop{Fault::Illegal, "an integer that the image's format does not hold: " + std::to_string(word), lane};
    std::memcpy(to, &word, image.nbytes);
}

void write_pixels(Wave& wave, const Instruction& is) {
    const KernelImage image = image_of(wave, &wave.s[is.op[2].index], true);
    if (is.parts != 15 || image.normalised)
        throw Stop{Fault::Illegal, "a store of a form that the engine does not know", -1};
    const Places places(wave, is, image, false);
    for (int lane = 0; lane < LANES; ++lane) {
        if (!(wave.exec() >> lane & 1) || !places.inside(image, lane)) continue;
        const double* at = places.at[lane];
        uint8_t* to = image.row(image.axes > 1 ? uint64_t(at[1]) : 0, image.axes > 2 ? uint64_t(at[2]) : 0) +
                      uint64_t(at[0]) * image.pixel_nbytes();
        for (uint32_t part = 0; part < image.channels; ++part)
            put_part(image, to + part * image.nbytes, wave.v[is.op[0].index + part][lane], lane);
    }
}

}  // namespace

void add_image_rows(Table& table) {
    table.special("image_load", [](Wave& wave, const Instruction& is) { read_pixels(wave, is, false); });
    table.special("image_sample_lz", sample_pixels);
    table.special("image_store", write_pixels);
}

}  // namespace gfx9
