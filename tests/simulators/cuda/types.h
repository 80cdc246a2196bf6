// The fundamental types of PTX (ISA, section 5.2) and which register may stand for which.
#pragma once

#include <cstdint>
#include <string_view>

namespace ptx {

enum class Type : uint8_t {
    none, pred,
    b8, b16, b32, b64,
    u8, u16, u32, u64,
    s8, s16, s32, s64,
    f16, bf16, f16x2, bf16x2, f32, f64,
};

// Type::none for a word that names no type.
Type type_named(std::string_view word);
const char* name_of(Type type);

// Bytes in memory; 0 for a predicate, which has no place there.
uint32_t nbytes_of(Type type);

bool is_bits(Type type);
bool is_unsigned(Type type);
bool is_signed(Type type);
bool is_integer(Type type);  // unsigned or signed, not bits
bool is_float(Type type);    // packed ones too

// Whether an instruction of type `wanted` takes a register declared as `given`: sizes agree, and
// integers and floats do not mix but through bits. Source: section 9.4, table 27.
bool agrees(Type given, Type wanted);

// The relaxed rule of ld, st and cvt: the register may be wider. Source: section 9.4.1.
bool agrees_or_wider(Type given, Type wanted);

}  // namespace ptx
