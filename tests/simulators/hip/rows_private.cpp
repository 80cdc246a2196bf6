// Loads and stores of private memory: each lane's own bytes, which hardware reaches through a buffer.
//
//     buffer_store_dword v5, v3, s[0:3], s33 offen offset:4      data, address, buffer, more offset
#include "access.h"

namespace gfx9 {
namespace {

// Calls `each(lane, bytes)` for active lanes, with the bytes that the instruction names.
template <class Each>
void for_private(Wave& wave, const Instruction& is, uint32_t nbytes, Each each) {
    if (wave.pair(is.op[2].index + 2) != PRIVATE_BUFFER)
        throw Stop{Fault::Illegal, "a buffer that is not private memory", -1};
    const uint32_t size = wave.group->launch->function->private_nbytes;
    const uint32_t start = scalar_of(wave, is.op[3]) + uint32_t(is.offset);
    for (int lane = 0; lane < LANES; ++lane) {
        if (!(wave.exec() >> lane & 1)) continue;
        const bool indexed = is.op[1].kind == Kind::Vector;
        const uint32_t offset = start + (indexed ? wave.v[is.op[1].index][lane] : 0);
        if (offset > size || nbytes > size - offset)
            out_of_bounds("an access to private memory", offset, nbytes, lane);
        each(lane, wave.own.data() + uint64_t(lane) * size + offset);
    }
}

template <class From, class To, int count = 1>
void load_private(Wave& wave, const Instruction& is) {
    uint32_t words[count][LANES] = {};
    for_private(wave, is, sizeof(From) * count, [&](int lane, const uint8_t* bytes) {
        for (int part = 0; part < count; ++part) {
            From value;
            std::memcpy(&value, bytes + part * sizeof value, sizeof value);
            words[part][lane] = uint32_t(To(value));
        }
    });
    for (int part = 0; part < count; ++part) put_words(wave, is.op[0].index + part, words[part]);
}

// Into one half of the register; the other stays.
template <class From, int shift>
void load_private_half(Wave& wave, const Instruction& is) {
    uint32_t* to = wave.v[is.op[0].index];
    for_private(wave, is, sizeof(From), [&](int lane, const uint8_t* bytes) {
        From value;
        std::memcpy(&value, bytes, sizeof value);
        to[lane] = (to[lane] & ~(0xffffu << shift)) | uint32_t(uint16_t(value)) << shift;
    });
}

template <class To, int count = 1, int shift = 0>
void store_private(Wave& wave, const Instruction& is) {
    const uint32_t* from = wave.v[is.op[0].index];
    for_private(wave, is, sizeof(To) * count, [&](int lane, uint8_t* bytes) {
        for (int part = 0; part < count; ++part) {
            const To value = To(from[part * LANES + lane] >> shift);
            std::memcpy(bytes + part * sizeof value, &value, sizeof value);
        }
    });
}

}  // namespace

void add_private_rows(Table& table) {
    table.special("buffer_load_ubyte", load_private<uint8_t, uint32_t>);
    table.special("buffer_load_sbyte", load_private<int8_t, int32_t>);
    table.special("buffer_load_ushort", load_private<uint16_t, uint32_t>);
    table.special("buffer_load_sshort", load_private<int16_t, int32_t>);
    table.special("buffer_load_dword", load_private<uint32_t, uint32_t>);
    table.special("buffer_load_dwordx2", load_private<uint32_t, uint32_t, 2>);
    table.special("buffer_load_dwordx3", load_private<uint32_t, uint32_t, 3>);
    table.special("buffer_load_dwordx4", load_private<uint32_t, uint32_t, 4>);
    table.special("buffer_load_ubyte_d16", load_private_half<uint8_t, 0>);
    table.special("buffer_load_ubyte_d16_hi", load_private_half<uint8_t, 16>);
    table.special("buffer_load_sbyte_d16", load_private_half<int8_t, 0>);
    table.special("buffer_load_sbyte_d16_hi", load_private_half<int8_t, 16>);
    table.special("buffer_load_short_d16", load_private_half<uint16_t, 0>);
    table.special("buffer_load_short_d16_hi", load_private_half<uint16_t, 16>);
    table.special("buffer_store_byte", store_private<uint8_t>);
    table.special("buffer_store_byte_d16_hi", store_private<uint8_t, 1, 16>);
    table.special("buffer_store_short", store_private<uint16_t>);
    table.special("buffer_store_short_d16_hi", store_private<uint16_t, 1, 16>);
    table.special("buffer_store_dword", store_private<uint32_t>);
    table.special("buffer_store_dwordx2", store_private<uint32_t, 2>);
    table.special("buffer_store_dwordx3", store_private<uint32_t, 3>);
    table.special("buffer_store_dwordx4", store_private<uint32_t, 4>);
}

}  // namespace gfx9
