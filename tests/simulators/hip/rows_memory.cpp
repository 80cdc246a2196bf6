// Scalar loads, and loads, stores and atomics of device memory.
#include "access.h"

namespace gfx9 {
namespace {

// An offset is a number, or a scalar register and a number.
template <int count>
void load_scalars(Wave& wave, const Instruction& is) {
    const Operand& offset = is.op[2];
    const uint64_t more = offset.kind == Kind::Scalar ? wave.s[offset.index] : offset.bits;
    const uint64_t address = (wave.pair(is.op[1].index) + more + uint64_t(int64_t(is.offset))) & ~3ull;
    const uint8_t* bytes = global_at(wave, address, 4 * count, false);
    if (!bytes) out_of_bounds("a scalar read", address, 4 * count, -1);
    std::memcpy(&wave.s[is.op[0].index], bytes, 4 * count);
}

template <class T>
void add_atomic(Table& table, const std::string& name, T (*change)(T, T)) {
    const Run run = [](Wave& wave, const Instruction& is) {
        change_atomically<Global, T>(wave, is, is.glc);
    };
    for (const char* space : {"global_atomic_", "flat_atomic_"})
        table.special(space + name, run, Operation(change));
}

// The new value comes first, then the one that is expected.
template <class T>
void compare_swap(Wave& wave, const Instruction& is) {
    const int data = is.op[is.glc ? 2 : 1].index;
    atomic<Global, T>(wave, is, is.glc, [&](T old, int lane) {
        const T expected = value_at<T>(wave, data + int(sizeof(T) / 4), lane);
        return old == expected ? value_at<T>(wave, data, lane) : old;
    });
}

void add_accesses(Table& table, const std::string& space) {
    auto add = [&](const char* name, Run run) { table.special(space + name, run); };
    add("load_ubyte", load<Global, uint8_t, uint32_t>);
    add("load_sbyte", load<Global, int8_t, int32_t>);
    add("load_ushort", load<Global, uint16_t, uint32_t>);
    add("load_sshort", load<Global, int16_t, int32_t>);
    add("load_dword", load<Global, uint32_t, uint32_t>);
    add("load_dwordx2", load<Global, uint32_t, uint32_t, 2>);
    add("load_dwordx3", load<Global, uint32_t, uint32_t, 3>);
    add("load_dwordx4", load<Global, uint32_t, uint32_t, 4>);
    add("load_ubyte_d16", load_half<Global, uint8_t, 0>);
    add("load_ubyte_d16_hi", load_half<Global, uint8_t, 16>);
    add("load_sbyte_d16", load_half<Global, int8_t, 0>);
    add("load_sbyte_d16_hi", load_half<Global, int8_t, 16>);
    add("load_short_d16", load_half<Global, uint16_t, 0>);
    add("load_short_d16_hi", load_half<Global, uint16_t, 16>);
    add("store_byte", store<Global, uint8_t>);
    add("store_byte_d16_hi", store<Global, uint8_t, 1, 16>);
    add("store_short", store<Global, uint16_t>);
    add("store_short_d16_hi", store<Global, uint16_t, 1, 16>);
    add("store_dword", store<Global, uint32_t>);
    add("store_dwordx2", store<Global, uint32_t, 2>);
    add("store_dwordx3", store<Global, uint32_t, 3>);
    add("store_dwordx4", store<Global, uint32_t, 4>);
    add("atomic_cmpswap", compare_swap<uint32_t>);
    add("atomic_cmpswap_x2", compare_swap<uint64_t>);
}

}  // namespace

void add_memory_rows(Table& table) {
    table.special("s_load_dword", load_scalars<1>);
    table.special("s_load_dwordx2", load_scalars<2>);
    table.special("s_load_dwordx4", load_scalars<4>);
    table.special("s_load_dwordx8", load_scalars<8>);
    table.special("s_load_dwordx16", load_scalars<16>);
    add_accesses(table, "global_");
    add_accesses(table, "flat_");
    for_atomics([&](const std::string& operation, auto change) {
        using T = decltype(change(0, 0));
        const bool ordered = operation == "min" || operation == "max";
        const std::string sign = !ordered ? "" : std::is_signed_v<T> ? "s" : "u";
        add_atomic(table, sign + operation + (sizeof(T) == 8 ? "_x2" : ""), change);
    });
}

}  // namespace gfx9
