// Scalar arithmetic: one value for the wave. Source: Vega ISA, chapters 12.1 to 12.3.
#include <algorithm>

#include "arithmetic.h"

namespace gfx9 {
namespace {

using i16 = int16_t;
using i32 = int32_t;
using u32 = uint32_t;
using i64 = int64_t;
using u64 = uint64_t;

template <class T>
T kept(T value, bool& scc) {
    scc = value != 0;
    return value;
}

template <class T>
T field(T value, u32 start, u32 width) {
    constexpr u32 BITS = 8 * sizeof(T);
    if (width == 0) return 0;
    if (start + width >= BITS) return value >> start;
    using Bits = std::make_unsigned_t<T>;
    return T(Bits(value) << (BITS - start - width)) >> (BITS - width);
}

void add_scalar_sums(Table& table) {
    table.scalar("s_add_u32", [](u32 a, u32 b, bool& scc) { scc = a + b < a; return a + b; });
    table.scalar("s_sub_u32", [](u32 a, u32 b, bool& scc) { scc = a < b; return a - b; });
    table.scalar("s_addc_u32", [](u32 a, u32 b, bool& scc) {
        const u64 sum = u64(a) + b + scc;
        scc = sum >> 32;
        return u32(sum);
    });
    table.scalar("s_subb_u32", [](u32 a, u32 b, bool& scc) {
        const u32 difference = a - b - scc;
        scc = u64(a) < u64(b) + scc;
        return difference;
    });
    table.scalar("s_add_i32", [](i32 a, i32 b, bool& scc) {
        i32 sum;
        scc = __builtin_add_overflow(a, b, &sum);
        return sum;
    });
    table.scalar("s_sub_i32", [](i32 a, i32 b, bool& scc) {
        i32 difference;
        scc = __builtin_sub_overflow(a, b, &difference);
        return difference;
    });
    table.scalar("s_addk_i32", [](i16 k, i32 d, bool& scc) {
        i32 sum;
        scc = __builtin_add_overflow(d, i32(k), &sum);
        return sum;
    });
    table.scalar("s_mul_i32", [](u32 a, u32 b) { return a * b; });
    table.scalar("s_mulk_i32", [](i16 k, u32 d) { return d * u32(k); });
    table.scalar("s_mul_hi_u32", [](u32 a, u32 b) { return u32(u64(a) * b >> 32); });
    table.scalar("s_mul_hi_i32", [](i32 a, i32 b) { return i32(i64(a) * b >> 32); });
    table.scalar("s_min_i32", [](i32 a, i32 b, bool& scc) { scc = a < b; return std::min(a, b); });
    table.scalar("s_min_u32", [](u32 a, u32 b, bool& scc) { scc = a < b; return std::min(a, b); });
    table.scalar("s_max_i32", [](i32 a, i32 b, bool& scc) { scc = a > b; return std::max(a, b); });
    table.scalar("s_max_u32", [](u32 a, u32 b, bool& scc) { scc = a > b; return std::max(a, b); });
    table.scalar("s_abs_i32", [](i32 a, bool& scc) { return kept(a < 0 ? 0 - u32(a) : u32(a), scc); });
    table.scalar("s_absdiff_i32", [](i32 a, i32 b, bool& scc) {
        const u32 difference = u32(a) - u32(b);
        return kept(i32(difference) < 0 ? 0 - difference : difference, scc);
    });
    auto shift_add = [&](const char* name, auto amount) {
        table.scalar(name, [](u32 a, u32 b, bool& scc) {
            const u64 sum = (u64(a) << decltype(amount)::value) + b;
            scc = sum >> 32;
            return u32(sum);
        });
    };
    shift_add("s_lshl1_add_u32", std::integral_constant<int, 1>{});
    shift_add("s_lshl2_add_u32", std::integral_constant<int, 2>{});
    shift_add("s_lshl3_add_u32", std::integral_constant<int, 3>{});
    shift_add("s_lshl4_add_u32", std::integral_constant<int, 4>{});
}

template <class T>
void add_logic(Table& table, const std::string& type) {
    table.scalar("s_and_" + type, [](T a, T b, bool& scc) { return kept<T>(a & b, scc); });
    table.scalar("s_or_" + type, [](T a, T b, bool& scc) { return kept<T>(a | b, scc); });
    table.scalar("s_xor_" + type, [](T a, T b, bool& scc) { return kept<T>(a ^ b, scc); });
    table.scalar("s_andn2_" + type, [](T a, T b, bool& scc) { return kept<T>(a & ~b, scc); });
    table.scalar("s_orn2_" + type, [](T a, T b, bool& scc) { return kept<T>(a | ~b, scc); });
    table.scalar("s_nand_" + type, [](T a, T b, bool& scc) { return kept<T>(~(a & b), scc); });
    table.scalar("s_nor_" + type, [](T a, T b, bool& scc) { return kept<T>(~(a | b), scc); });
    table.scalar("s_xnor_" + type, [](T a, T b, bool& scc) { return kept<T>(~(a ^ b), scc); });
    table.scalar("s_not_" + type, [](T a, bool& scc) { return kept<T>(~a, scc); });
    table.scalar("s_mov_" + type, [](T a) { return a; });
    table.scalar("s_cmov_" + type, [](T a, T d, bool& scc) { return scc ? a : d; });
    table.scalar("s_cselect_" + type, [](T a, T b, bool& scc) { return scc ? a : b; });
    constexpr u32 MASK = 8 * sizeof(T) - 1;
    table.scalar("s_lshl_" + type, [](T a, u32 b, bool& scc) { return kept<T>(a << (b & MASK), scc); });
    table.scalar("s_lshr_" + type, [](T a, u32 b, bool& scc) { return kept<T>(a >> (b & MASK), scc); });
    table.scalar("s_brev_" + type, [](T a) {
        T result = 0;
        for (u32 bit = 0; bit <= MASK; ++bit) result |= (a >> bit & 1) << (MASK - bit);
        return result;
    });
    table.scalar("s_bfm_" + type, [](u32 a, u32 b) { return ((T(1) << (a & MASK)) - 1) << (b & MASK); });
    table.scalar("s_bcnt1_i32_" + type, [](T a, bool& scc) { return kept<u32>(u32(__builtin_popcountll(a)), scc); });
    table.scalar("s_bcnt0_i32_" + type, [](T a, bool& scc) { return kept<u32>(MASK + 1 - u32(__builtin_popcountll(a)), scc); });
    table.scalar("s_ff1_i32_" + type, [](T a) { return a ? u32(__builtin_ctzll(a)) : ~0u; });
    table.scalar("s_ff0_i32_" + type, [](T a) { return T(~a) ? u32(__builtin_ctzll(T(~a))) : ~0u; });
    table.scalar("s_bitcmp0_" + type, [](T a, u32 b, bool& scc) { scc = !(a >> (b & MASK) & 1); });
    table.scalar("s_bitcmp1_" + type, [](T a, u32 b, bool& scc) { scc = a >> (b & MASK) & 1; });
    table.scalar("s_bitset0_" + type, [](u32 b, T d) { return d & ~(T(1) << (b & MASK)); });
    table.scalar("s_bitset1_" + type, [](u32 b, T d) { return d | T(1) << (b & MASK); });
}

void add_scalar_fields(Table& table) {
    table.scalar("s_movk_i32", [](i16 k) { return i32(k); });
    table.scalar("s_cmovk_i32", [](i16 k, i32 d, bool& scc) { return scc ? i32(k) : d; });
    table.scalar("s_ashr_i32", [](i32 a, u32 b, bool& scc) { return kept(a >> (b & 31), scc); });
    table.scalar("s_ashr_i64", [](i64 a, u32 b, bool& scc) { return kept(a >> (b & 63), scc); });
    table.scalar("s_bfe_u32", [](u32 a, u32 b, bool& scc) { return kept(field(a, b & 31, b >> 16 & 127), scc); });
    table.scalar("s_bfe_i32", [](i32 a, u32 b, bool& scc) { return kept(field(a, b & 31, b >> 16 & 127), scc); });
    table.scalar("s_bfe_u64", [](u64 a, u32 b, bool& scc) { return kept(field(a, b & 63, b >> 16 & 127), scc); });
    table.scalar("s_bfe_i64", [](i64 a, u32 b, bool& scc) { return kept(field(a, b & 63, b >> 16 & 127), scc); });
    table.scalar("s_flbit_i32_b32", [](u32 a) { return a ? u32(__builtin_clz(a)) : ~0u; });
    table.scalar("s_flbit_i32_b64", [](u64 a) { return a ? u32(__builtin_clzll(a)) : ~0u; });
    table.scalar("s_flbit_i32", [](i32 a) {
        const u32 bits = a < 0 ? ~u32(a) : u32(a);
        return bits ? u32(__builtin_clz(bits)) : ~0u;
    });
    table.scalar("s_sext_i32_i8", [](u32 a) { return i32(int8_t(a)); });
    table.scalar("s_sext_i32_i16", [](u32 a) { return i32(i16(a)); });
    table.scalar("s_pack_ll_b32_b16", [](u32 a, u32 b) { return (a & 0xffff) | b << 16; });
    table.scalar("s_pack_lh_b32_b16", [](u32 a, u32 b) { return (a & 0xffff) | (b & 0xffff0000); });
    table.scalar("s_pack_hh_b32_b16", [](u32 a, u32 b) { return a >> 16 | (b & 0xffff0000); });
}

template <class T>
void add_comparisons(Table& table, const std::string& type) {
    table.scalar("s_cmp_eq_" + type, [](T a, T b, bool& scc) { scc = a == b; });
    table.scalar("s_cmp_lg_" + type, [](T a, T b, bool& scc) { scc = a != b; });
    if constexpr (sizeof(T) == 4) {
        using K = std::conditional_t<std::is_signed_v<T>, i16, uint16_t>;
        table.scalar("s_cmp_gt_" + type, [](T a, T b, bool& scc) { scc = a > b; });
        table.scalar("s_cmp_ge_" + type, [](T a, T b, bool& scc) { scc = a >= b; });
        table.scalar("s_cmp_lt_" + type, [](T a, T b, bool& scc) { scc = a < b; });
        table.scalar("s_cmp_le_" + type, [](T a, T b, bool& scc) { scc = a <= b; });
        table.scalar("s_cmpk_eq_" + type, [](T a, K b, bool& scc) { scc = a == T(b); });
        table.scalar("s_cmpk_lg_" + type, [](T a, K b, bool& scc) { scc = a != T(b); });
        table.scalar("s_cmpk_gt_" + type, [](T a, K b, bool& scc) { scc = a > T(b); });
        table.scalar("s_cmpk_ge_" + type, [](T a, K b, bool& scc) { scc = a >= T(b); });
        table.scalar("s_cmpk_lt_" + type, [](T a, K b, bool& scc) { scc = a < T(b); });
        table.scalar("s_cmpk_le_" + type, [](T a, K b, bool& scc) { scc = a <= T(b); });
    }
}

// The old mask is kept, the new one is of it and the operand.
template <class F>
void add_saveexec(Table& table, const std::string& operation, F) {
    table.scalar("s_" + operation + "_saveexec_b64", [](Wave& wave, u64 a, bool& scc) {
        const u64 exec = wave.exec();
        wave.set_pair(EXEC, kept(F{}(a, exec), scc));
        return exec;
    });
    table.scalar("s_" + operation + "_wrexec_b64", [](Wave& wave, u64 a, bool& scc) {
        const u64 mask = kept(F{}(a, wave.exec()), scc);
        wave.set_pair(EXEC, mask);
        return mask;
    });
}

}  // namespace

void add_scalar_rows(Table& table) {
    add_scalar_sums(table);
    add_logic<u32>(table, "b32");
    add_logic<u64>(table, "b64");
    add_scalar_fields(table);
    add_comparisons<i32>(table, "i32");
    add_comparisons<u32>(table, "u32");
    add_comparisons<u64>(table, "u64");
    add_saveexec(table, "and", [](u64 a, u64 exec) { return a & exec; });
    add_saveexec(table, "or", [](u64 a, u64 exec) { return a | exec; });
    add_saveexec(table, "xor", [](u64 a, u64 exec) { return a ^ exec; });
    add_saveexec(table, "andn2", [](u64 a, u64 exec) { return a & ~exec; });
    add_saveexec(table, "orn2", [](u64 a, u64 exec) { return a | ~exec; });
    add_saveexec(table, "andn1", [](u64 a, u64 exec) { return ~a & exec; });
    add_saveexec(table, "orn1", [](u64 a, u64 exec) { return ~a | exec; });
}

}  // namespace gfx9
