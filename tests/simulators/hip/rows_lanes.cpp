// What passes between the lanes of a wave.
#include "arithmetic.h"

namespace gfx9 {
namespace {

void read_lane(Wave& wave, const Instruction& is, int lane) {
    wave.s[is.op[0].index] = is.op[1].kind == Kind::Vector ? wave.v[is.op[1].index][lane]
                                                           : scalar_of(wave, is.op[1]);
}

// Without an active lane it is the first one.
void read_first_lane(Wave& wave, const Instruction& is) {
    const uint64_t exec = wave.exec();
    read_lane(wave, is, exec ? __builtin_ctzll(exec) : 0);
}

// The number of lanes below that are set in the mask, for the lower or upper half of lanes.
template <bool upper>
void count_below(Wave& wave, const Instruction& is) {
    uint32_t space[2][LANES], words[LANES];
    const uint32_t* masks = words_of(wave, is.op[1], space[0]);
    const uint32_t* sums = words_of(wave, is.op[2], space[1]);
    for (int lane = 0; lane < LANES; ++lane) {
        const uint64_t below = (1ull << lane) - 1;
        const auto part = uint32_t(upper ? below >> 32 : below);
        words[lane] = sums[lane] + uint32_t(__builtin_popcount(masks[lane] & part));
    }
    put_words(wave, is.op[0].index, words);
}

// Each lane takes the value of the lane that it names. Inactive ones give 0.
template <bool pushes>
void permute(Wave& wave, const Instruction& is) {
    const uint32_t* address = wave.v[is.op[1].index];
    const uint32_t* from = wave.v[is.op[2].index];
    const uint64_t exec = wave.exec();
    uint32_t words[LANES] = {};
    for (int lane = 0; lane < LANES; ++lane) {
        const int other = int((address[lane] + uint32_t(is.offset)) / 4 % LANES);
        if (!pushes) words[lane] = exec >> other & 1 ? from[other] : 0;
        else if (exec >> lane & 1) words[other] = from[lane];
    }
    put_words(wave, is.op[0].index, words);
}

// The offset says how: four lanes by quarters, or 32 by masks. Source: Vega ISA, DS_SWIZZLE_B32.
void swizzle(Wave& wave, const Instruction& is) {
    const uint32_t* from = wave.v[is.op[1].index];
    const auto how = uint32_t(is.offset);
    const uint64_t exec = wave.exec();
    uint32_t words[LANES];
    for (int lane = 0; lane < LANES; ++lane) {
        int other = (lane & ~31) |
                    (int((uint32_t(lane & 31) & how) | how >> 5) ^ int(how >> 10)) % 32;
        if (how >> 15) other = (lane & ~3) | int(how >> (2 * (lane & 3)) & 3);
        words[lane] = exec >> other & 1 ? from[other] : 0;
    }
    put_words(wave, is.op[0].index, words);
}

}  // namespace

void add_lane_rows(Table& table) {
    table.special("v_readfirstlane_b32", read_first_lane);
    table.special("v_readlane_b32", [](Wave& wave, const Instruction& is) {
        read_lane(wave, is, int(scalar_of(wave, is.op[2]) % LANES));
    });
    table.special("v_writelane_b32", [](Wave& wave, const Instruction& is) {
        wave.v[is.op[0].index][scalar_of(wave, is.op[2]) % LANES] = scalar_of(wave, is.op[1]);
    });
    table.special("v_mbcnt_lo_u32_b32", count_below<false>);
    table.special("v_mbcnt_hi_u32_b32", count_below<true>);
    table.special("ds_bpermute_b32", permute<false>);
    table.special("ds_permute_b32", permute<true>);
    table.special("ds_swizzle_b32", swizzle);
}

}  // namespace gfx9
