// Vector instructions on bits: moves, logic, shifts, fields.
#include "arithmetic.h"

namespace gfx9 {
namespace {

using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;

u32 reversed(u32 value) {
    u32 result = 0;
    for (int bit = 0; bit < 32; ++bit) result |= (value >> bit & 1) << (31 - bit);
    return result;
}

// The place of the first bit from above that differs from the sign.
u32 sign_length(int32_t value) {
    const u32 bits = value < 0 ? ~u32(value) : u32(value);
    return bits ? u32(__builtin_clz(bits)) : ~0u;
}

// A byte of eight, or a constant. Source: Vega ISA, V_PERM_B32.
u32 permuted_byte(u64 bytes, u32 which) {
    if (which >= 13) return 0xff;
    if (which == 12) return 0;
    if (which >= 8) return bytes >> (16 * (which - 8) + 15) & 1 ? 0xff : 0;
    return bytes >> (8 * which) & 0xff;
}

u32 permuted(u32 high, u32 low, u32 selector) {
    const u64 bytes = u64(high) << 32 | low;
    u32 result = 0;
    for (int place = 0; place < 4; ++place)
        result |= permuted_byte(bytes, selector >> (8 * place) & 0xff) << (8 * place);
    return result;
}

void swap(Wave& wave, const Instruction& is) {
    uint32_t first[LANES];
    std::memcpy(first, wave.v[is.op[0].index], sizeof first);
    put_words(wave, is.op[0].index, wave.v[is.op[1].index]);
    put_words(wave, is.op[1].index, first);
}

void add_logic(Table& table) {
    table.special("v_swap_b32", swap);
    table.vector("v_mov_b32", [](u32 a) { return a; });
    table.vector("v_not_b32", [](u32 a) { return ~a; });
    table.vector("v_bfrev_b32", [](u32 a) { return reversed(a); });
    table.vector("v_ffbh_u32", [](u32 a) { return a ? u32(__builtin_clz(a)) : ~0u; });
    table.vector("v_ffbh_i32", [](int32_t a) { return sign_length(a); });
    table.vector("v_ffbl_b32", [](u32 a) { return a ? u32(__builtin_ctz(a)) : ~0u; });
    table.vector("v_bcnt_u32_b32", [](u32 a, u32 b) { return u32(__builtin_popcount(a)) + b; });
    table.vector("v_and_b32", [](u32 a, u32 b) { return a & b; });
    table.vector("v_or_b32", [](u32 a, u32 b) { return a | b; });
    table.vector("v_xor_b32", [](u32 a, u32 b) { return a ^ b; });
    table.vector("v_xnor_b32", [](u32 a, u32 b) { return ~(a ^ b); });
    table.vector("v_and_or_b32", [](u32 a, u32 b, u32 c) { return (a & b) | c; });
    table.vector("v_or3_b32", [](u32 a, u32 b, u32 c) { return a | b | c; });
    table.vector("v_cndmask_b32", [](u32 a, u32 b, Mask c) { return c ? b : a; });
    table.vector("v_perm_b32", [](u32 a, u32 b, u32 c) { return permuted(a, b, c); });
    table.vector("v_pack_b32_f16", [](u16 a, u16 b) { return u32(a) | u32(b) << 16; });
}

void add_shifts(Table& table) {
    table.vector("v_lshlrev_b32", [](u32 a, u32 b) { return b << (a & 31); });
    table.vector("v_lshrrev_b32", [](u32 a, u32 b) { return b >> (a & 31); });
    table.vector("v_ashrrev_i32", [](u32 a, int32_t b) { return b >> (a & 31); });
    table.vector("v_lshlrev_b64", [](u32 a, u64 b) { return b << (a & 63); });
    table.vector("v_lshrrev_b64", [](u32 a, u64 b) { return b >> (a & 63); });
    table.vector("v_ashrrev_i64", [](u32 a, int64_t b) { return b >> (a & 63); });
    table.vector("v_lshlrev_b16", [](u16 a, u16 b) { return u16(b << (a & 15)); });
    table.vector("v_lshrrev_b16", [](u16 a, u16 b) { return u16(b >> (a & 15)); });
    table.vector("v_ashrrev_i16", [](u16 a, int16_t b) { return int16_t(b >> (a & 15)); });
    table.vector("v_lshl_or_b32", [](u32 a, u32 b, u32 c) { return a << (b & 31) | c; });
    table.vector("v_alignbit_b32", [](u32 a, u32 b, u32 c) {
        return u32((u64(a) << 32 | b) >> (c & 31));
    });
    table.vector("v_alignbyte_b32", [](u32 a, u32 b, u32 c) {
        return u32((u64(a) << 32 | b) >> (8 * (c & 3)));
    });
}

void add_fields(Table& table) {
    table.vector("v_bfe_u32", [](u32 a, u32 b, u32 c) {
        return u32((a >> (b & 31)) & ((1ull << (c & 31)) - 1));
    });
    table.vector("v_bfe_i32", [](int32_t a, u32 b, u32 c) {
        const u32 start = b & 31, width = c & 31;
        if (width == 0) return 0;
        if (start + width >= 32) return a >> start;
        return int32_t(u32(a) << (32 - start - width)) >> (32 - width);
    });
    table.vector("v_bfi_b32", [](u32 a, u32 b, u32 c) { return (a & b) | (~a & c); });
    table.vector("v_bfm_b32", [](u32 a, u32 b) { return ((1u << (a & 31)) - 1) << (b & 31); });
}

}  // namespace

void add_bit_rows(Table& table) {
    add_logic(table);
    add_shifts(table);
    add_fields(table);
}

}  // namespace gfx9
