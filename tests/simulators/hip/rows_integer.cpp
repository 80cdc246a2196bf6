// Vector arithmetic on integers of 16, 32 and 64 bits.
#include <algorithm>
#include <cstdlib>

#include "arithmetic.h"

namespace gfx9 {
namespace {

using i16 = int16_t;
using u16 = uint16_t;
using i32 = int32_t;
using u32 = uint32_t;
using i64 = int64_t;
using u64 = uint64_t;

i32 low24(i32 value) { return i32(u32(value) << 8) >> 8; }
u32 low24(u32 value) { return value & 0xffffff; }

template <class T>
T median(T a, T b, T c) {
    return std::max(std::min(a, b), std::min(std::max(a, b), c));
}

void add_sums(Table& table) {
    table.vector("v_add_u32", [](u32 a, u32 b) { return Exact<u32>{i64(a) + b}; });
    table.vector("v_sub_u32", [](u32 a, u32 b) { return Exact<u32>{i64(a) - b}; });
    table.vector("v_subrev_u32", [](u32 a, u32 b) { return Exact<u32>{i64(b) - a}; });
    table.vector("v_add_i32", [](i32 a, i32 b) { return Exact<i32>{i64(a) + b}; });
    table.vector("v_sub_i32", [](i32 a, i32 b) { return Exact<i32>{i64(a) - b}; });
    table.vector("v_add_u16", [](u16 a, u16 b) { return Exact<u16>{a + b}; });
    table.vector("v_sub_u16", [](u16 a, u16 b) { return Exact<u16>{a - b}; });
    table.vector("v_subrev_u16", [](u16 a, u16 b) { return Exact<u16>{b - a}; });
    table.vector("v_add_i16", [](i16 a, i16 b) { return Exact<i16>{a + b}; });
    table.vector("v_sub_i16", [](i16 a, i16 b) { return Exact<i16>{a - b}; });
    table.vector("v_add_co_u32", [](u32 a, u32 b) { return Carried<u32>{a + b, a + b < a}; });
    table.vector("v_sub_co_u32", [](u32 a, u32 b) { return Carried<u32>{a - b, a < b}; });
    table.vector("v_subrev_co_u32", [](u32 a, u32 b) { return Carried<u32>{b - a, b < a}; });
    table.vector("v_addc_co_u32", [](u32 a, u32 b, Mask c) {
        const u64 sum = u64(a) + b + c.on;
        return Carried<u32>{u32(sum), bool(sum >> 32)};
    });
    table.vector("v_subb_co_u32", [](u32 a, u32 b, Mask c) {
        return Carried<u32>{a - b - c.on, u64(a) < u64(b) + c.on};
    });
    table.vector("v_subbrev_co_u32", [](u32 a, u32 b, Mask c) {
        return Carried<u32>{b - a - c.on, u64(b) < u64(a) + c.on};
    });
    table.vector("v_add3_u32", [](u32 a, u32 b, u32 c) { return a + b + c; });
    table.vector("v_add_lshl_u32", [](u32 a, u32 b, u32 c) { return (a + b) << (c & 31); });
    table.vector("v_lshl_add_u32", [](u32 a, u32 b, u32 c) { return (a << (b & 31)) + c; });
    table.vector("v_xad_u32", [](u32 a, u32 b, u32 c) { return (a ^ b) + c; });
    table.vector("v_sad_u32", [](u32 a, u32 b, u32 c) { return Exact<u32>{i64(std::max(a, b) - std::min(a, b)) + c}; });
}

void add_products(Table& table) {
    table.vector("v_mul_lo_u16", [](u16 a, u16 b) { return u16(u32(a) * b); });
    table.vector("v_mul_lo_u32", [](u32 a, u32 b) { return a * b; });
    table.vector("v_mul_hi_u32", [](u32 a, u32 b) { return u32(u64(a) * b >> 32); });
    table.vector("v_mul_hi_i32", [](i32 a, i32 b) { return i32(i64(a) * b >> 32); });
    table.vector("v_mul_u32_u24", [](u32 a, u32 b) { return low24(a) * low24(b); });
    table.vector("v_mul_i32_i24", [](i32 a, i32 b) { return u32(low24(a)) * u32(low24(b)); });
    table.vector("v_mul_hi_u32_u24", [](u32 a, u32 b) { return u32(u64(low24(a)) * low24(b) >> 32); });
    table.vector("v_mul_hi_i32_i24", [](i32 a, i32 b) { return i32(i64(low24(a)) * low24(b) >> 32); });
    table.vector("v_mad_u32_u24", [](u32 a, u32 b, u32 c) {
        return Exact<u32>{i64(u64(low24(a)) * low24(b) + c)};
    });
    table.vector("v_mad_i32_i24", [](i32 a, i32 b, i32 c) {
        return Exact<i32>{i64(low24(a)) * low24(b) + c};
    });
    table.vector("v_mad_u16", [](u16 a, u16 b, u16 c) { return Exact<u16>{i64(a) * b + c}; });
    table.vector("v_mad_legacy_u16", [](u16 a, u16 b, u16 c) { return Exact<u16>{i64(a) * b + c}; });
    table.vector("v_mad_i16", [](i16 a, i16 b, i16 c) { return Exact<i16>{i64(a) * b + c}; });
    table.vector("v_mad_u32_u16", [](u16 a, u16 b, u32 c) { return Exact<u32>{i64(a) * b + c}; });
    table.vector("v_mad_i32_i16", [](i16 a, i16 b, i32 c) { return Exact<i32>{i64(a) * b + c}; });
    table.vector("v_mad_u64_u32", [](u32 a, u32 b, u64 c) {
        const u64 product = u64(a) * b;
        return Carried<u64>{product + c, product + c < c};
    });
    table.vector("v_mad_i64_i32", [](i32 a, i32 b, i64 c) {
        i64 sum;
        const bool over = __builtin_add_overflow(i64(a) * b, c, &sum);
        return Carried<i64>{sum, over};
    });
}

template <class T>
void add_order(Table& table, const std::string& type) {
    table.vector("v_min_" + type, [](T a, T b) { return std::min(a, b); });
    table.vector("v_max_" + type, [](T a, T b) { return std::max(a, b); });
    table.vector("v_min3_" + type, [](T a, T b, T c) { return std::min(std::min(a, b), c); });
    table.vector("v_max3_" + type, [](T a, T b, T c) { return std::max(std::max(a, b), c); });
    table.vector("v_med3_" + type, [](T a, T b, T c) { return median(a, b, c); });
}

}  // namespace

void add_integer_rows(Table& table) {
    add_sums(table);
    add_products(table);
    add_order<u32>(table, "u32");
    add_order<i32>(table, "i32");
    add_order<u16>(table, "u16");
    add_order<i16>(table, "i16");
}

}  // namespace gfx9
