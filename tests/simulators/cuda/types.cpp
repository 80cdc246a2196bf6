#include "types.h"

#include <array>

namespace ptx {

namespace {

struct Row {
    const char* name;
    uint32_t nbytes;
    char kind;  // n: none, p: predicate, b: bits, u, s, f
};

constexpr std::array<Row, 20> rows = {{
    {"", 0, 'n'},      {"pred", 0, 'p'},
    {"b8", 1, 'b'},    {"b16", 2, 'b'},    {"b32", 4, 'b'},    {"b64", 8, 'b'},
    {"u8", 1, 'u'},    {"u16", 2, 'u'},    {"u32", 4, 'u'},    {"u64", 8, 'u'},
    {"s8", 1, 's'},    {"s16", 2, 's'},    {"s32", 4, 's'},    {"s64", 8, 's'},
    {"f16", 2, 'f'},   {"bf16", 2, 'f'},   {"f16x2", 4, 'f'},  {"bf16x2", 4, 'f'},
    {"f32", 4, 'f'},   {"f64", 8, 'f'},
}};

const Row& row_of(Type type) { return rows[static_cast<size_t>(type)]; }

bool is_packed(Type type) { return type == Type::f16x2 || type == Type::bf16x2; }

}  // namespace

Type type_named(std::string_view word) {
    for (size_t number = 1; number < rows.size(); ++number)
        if (word == rows[number].name) return static_cast<Type>(number);
    return Type::none;
}

const char* name_of(Type type) { return row_of(type).name; }
uint32_t nbytes_of(Type type) { return row_of(type).nbytes; }
bool is_bits(Type type) { return row_of(type).kind == 'b'; }
bool is_unsigned(Type type) { return row_of(type).kind == 'u'; }
bool is_signed(Type type) { return row_of(type).kind == 's'; }
bool is_integer(Type type) { return is_unsigned(type) || is_signed(type); }
bool is_float(Type type) { return row_of(type).kind == 'f'; }

bool agrees(Type given, Type wanted) {
    if (given == wanted) return true;
    if (given == Type::pred || wanted == Type::pred) return false;
    if (nbytes_of(given) != nbytes_of(wanted)) return false;
    if (is_bits(given) || is_bits(wanted)) return true;
    if (is_packed(wanted) || is_packed(given)) return false;
    return is_integer(given) && is_integer(wanted);
}

bool agrees_or_wider(Type given, Type wanted) {
    if (nbytes_of(given) <= nbytes_of(wanted)) return agrees(given, wanted);
    if (given == Type::pred || wanted == Type::pred) return false;
    return is_bits(given) || (is_integer(given) && !is_float(wanted));
}

}  // namespace ptx
