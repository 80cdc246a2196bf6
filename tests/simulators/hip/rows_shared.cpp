// Loads, stores and atomics of shared memory.
#include "access.h"

namespace gfx9 {
namespace {

// Two values at two offsets, counted in units.
template <int words, int unit>
void load_two(Wave& wave, const Instruction& is) {
    uint64_t addresses[LANES];
    uint32_t results[2 * words][LANES];
    for (int which = 0; which < 2; ++which) {
        const uint32_t* base = wave.v[is.op[1].index];
        const int offset = (which ? is.offset1 : is.offset0) * unit;
        for (int lane = 0; lane < LANES; ++lane) addresses[lane] = base[lane] + uint32_t(offset);
        for_lanes<Shared>(wave, addresses, 4 * words, false, [&](int lane, const uint8_t* bytes) {
            for (int word = 0; word < words; ++word)
                std::memcpy(&results[which * words + word][lane], bytes + 4 * word, 4);
        });
    }
    for (int word = 0; word < 2 * words; ++word)
        put_words(wave, is.op[0].index + word, results[word]);
}

template <int words, int unit>
void store_two(Wave& wave, const Instruction& is) {
    uint64_t addresses[LANES];
    for (int which = 0; which < 2; ++which) {
        const uint32_t* base = wave.v[is.op[0].index];
        const int offset = (which ? is.offset1 : is.offset0) * unit;
        for (int lane = 0; lane < LANES; ++lane) addresses[lane] = base[lane] + uint32_t(offset);
        const int from = is.op[1 + which].index;
        for_lanes<Shared>(wave, addresses, 4 * words, true, [&](int lane, uint8_t* bytes) {
            for (int word = 0; word < words; ++word)
                std::memcpy(bytes + 4 * word, &wave.v[from + word][lane], 4);
        });
    }
}

template <class T, bool returns>
void run_atomic(Wave& wave, const Instruction& is) {
    change_atomically<Shared, T>(wave, is, returns);
}

template <class T>
void add_atomic(Table& table, const std::string& operation, const std::string& type,
                T (*change)(T, T)) {
    table.special("ds_" + operation + "_" + type, run_atomic<T, false>, Operation(change));
    const std::string returning = operation == "wrxchg" ? "ds_wrxchg_rtn_" : "ds_" + operation + "_rtn_";
    table.special(returning + type, run_atomic<T, true>, Operation(change));
}

// The value that is expected comes first, then the new one: not as in device memory.
template <class T, bool returns>
void compare_store(Wave& wave, const Instruction& is) {
    const int expected = is.op[returns ? 2 : 1].index, fresh = is.op[returns ? 3 : 2].index;
    atomic<Shared, T>(wave, is, returns, [&](T old, int lane) {
        return old == value_at<T>(wave, expected, lane) ? value_at<T>(wave, fresh, lane) : old;
    });
}

template <class T>
const char* suffix(bool bitwise) {
    if (bitwise) return sizeof(T) == 8 ? "b64" : "b32";
    if (std::is_signed_v<T>) return sizeof(T) == 8 ? "i64" : "i32";
    return sizeof(T) == 8 ? "u64" : "u32";
}

void add_atomics(Table& table) {
    for_atomics([&](std::string operation, auto change) {
        using T = decltype(change(0, 0));
        const bool swaps = operation == "swap";
        const bool bitwise = swaps || operation == "and" || operation == "or" || operation == "xor";
        if (swaps) operation = "wrxchg";
        add_atomic(table, operation, suffix<T>(bitwise), change);
    });
    add_atomic(table, "add", "f32", +[](float a, float b) { return a + b; });
    add_atomic(table, "min", "f32", +[](float a, float b) { return std::fmin(a, b); });
    add_atomic(table, "max", "f32", +[](float a, float b) { return std::fmax(a, b); });
    table.special("ds_cmpst_b32", compare_store<uint32_t, false>);
    table.special("ds_cmpst_b64", compare_store<uint64_t, false>);
    table.special("ds_cmpst_rtn_b32", compare_store<uint32_t, true>);
    table.special("ds_cmpst_rtn_b64", compare_store<uint64_t, true>);
}

}  // namespace

void add_shared_rows(Table& table) {
    table.special("ds_read_u8", load<Shared, uint8_t, uint32_t>);
    table.special("ds_read_i8", load<Shared, int8_t, int32_t>);
    table.special("ds_read_u16", load<Shared, uint16_t, uint32_t>);
    table.special("ds_read_i16", load<Shared, int16_t, int32_t>);
    table.special("ds_read_u8_d16", load_half<Shared, uint8_t, 0>);
    table.special("ds_read_u8_d16_hi", load_half<Shared, uint8_t, 16>);
    table.special("ds_read_i8_d16", load_half<Shared, int8_t, 0>);
    table.special("ds_read_i8_d16_hi", load_half<Shared, int8_t, 16>);
    table.special("ds_read_u16_d16", load_half<Shared, uint16_t, 0>);
    table.special("ds_read_u16_d16_hi", load_half<Shared, uint16_t, 16>);
    table.special("ds_read_b32", load<Shared, uint32_t, uint32_t>);
    table.special("ds_read_b64", load<Shared, uint32_t, uint32_t, 2>);
    table.special("ds_read_b96", load<Shared, uint32_t, uint32_t, 3>);
    table.special("ds_read_b128", load<Shared, uint32_t, uint32_t, 4>);
    table.special("ds_read2_b32", load_two<1, 4>);
    table.special("ds_read2_b64", load_two<2, 8>);
    table.special("ds_read2st64_b32", load_two<1, 256>);
    table.special("ds_read2st64_b64", load_two<2, 512>);
    table.special("ds_write_b8", store<Shared, uint8_t>);
    table.special("ds_write_b8_d16_hi", store<Shared, uint8_t, 1, 16>);
    table.special("ds_write_b16", store<Shared, uint16_t>);
    table.special("ds_write_b16_d16_hi", store<Shared, uint16_t, 1, 16>);
    table.special("ds_write_b32", store<Shared, uint32_t>);
    table.special("ds_write_b64", store<Shared, uint32_t, 2>);
    table.special("ds_write_b96", store<Shared, uint32_t, 3>);
    table.special("ds_write_b128", store<Shared, uint32_t, 4>);
    table.special("ds_write2_b32", store_two<1, 4>);
    table.special("ds_write2_b64", store_two<2, 8>);
    table.special("ds_write2st64_b32", store_two<1, 256>);
    table.special("ds_write2st64_b64", store_two<2, 512>);
    add_atomics(table);
}

}  // namespace gfx9
