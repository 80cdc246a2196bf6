// Vector comparisons, which write a bit a lane; the v_cmpx forms also leave it as the new mask.
#include "arithmetic.h"

namespace gfx9 {
namespace {

template <class T>
void add(Table& table, const std::string& name, T compare) {
    table.vector("v_cmp_" + name, compare);
    Row row = table.rows["v_cmp_" + name];
    row.masks = true;
    table.rows["v_cmpx_" + name] = row;
}

template <class T>
void add_integers(Table& table, const std::string& type) {
    add(table, "f_" + type, [](T, T) { return false; });
    add(table, "lt_" + type, [](T a, T b) { return a < b; });
    add(table, "eq_" + type, [](T a, T b) { return a == b; });
    add(table, "le_" + type, [](T a, T b) { return a <= b; });
    add(table, "gt_" + type, [](T a, T b) { return a > b; });
    add(table, "ne_" + type, [](T a, T b) { return a != b; });
    add(table, "ge_" + type, [](T a, T b) { return a >= b; });
    add(table, "t_" + type, [](T, T) { return true; });
}

// Half compares as float, which holds it.
template <class T, class Value = T>
void add_floats(Table& table, const std::string& type) {
    add(table, "f_" + type, [](T, T) { return false; });
    add(table, "lt_" + type, [](T a, T b) { return Value(a) < Value(b); });
    add(table, "eq_" + type, [](T a, T b) { return Value(a) == Value(b); });
    add(table, "le_" + type, [](T a, T b) { return Value(a) <= Value(b); });
    add(table, "gt_" + type, [](T a, T b) { return Value(a) > Value(b); });
    add(table, "lg_" + type, [](T a, T b) { return Value(a) < Value(b) || Value(a) > Value(b); });
    add(table, "ge_" + type, [](T a, T b) { return Value(a) >= Value(b); });
    add(table, "o_" + type, [](T a, T b) { return a == a && b == b; });
    add(table, "u_" + type, [](T a, T b) { return a != a || b != b; });
    add(table, "nge_" + type, [](T a, T b) { return !(Value(a) >= Value(b)); });
    add(table, "nlg_" + type, [](T a, T b) { return !(Value(a) < Value(b) || Value(a) > Value(b)); });
    add(table, "ngt_" + type, [](T a, T b) { return !(Value(a) > Value(b)); });
    add(table, "nle_" + type, [](T a, T b) { return !(Value(a) <= Value(b)); });
    add(table, "neq_" + type, [](T a, T b) { return !(Value(a) == Value(b)); });
    add(table, "nlt_" + type, [](T a, T b) { return !(Value(a) < Value(b)); });
    add(table, "tru_" + type, [](T, T) { return true; });
}

// A bit for each class of number. Source: Vega ISA, V_CMP_CLASS_F32.
bool in_class(int kind, bool negative, bool quiet, uint32_t wanted) {
    switch (kind) {
        case FP_NAN: return wanted >> (quiet ? 1 : 0) & 1;
        case FP_INFINITE: return wanted >> (negative ? 2 : 9) & 1;
        case FP_NORMAL: return wanted >> (negative ? 3 : 8) & 1;
        case FP_SUBNORMAL: return wanted >> (negative ? 4 : 7) & 1;
        default: return wanted >> (negative ? 5 : 6) & 1;
    }
}

bool half_in_class(Half a, uint32_t wanted) {
    const int exponent = a.bits >> 10 & 31, fraction = a.bits & 1023;
    int kind = exponent == 31 ? FP_INFINITE : exponent ? FP_NORMAL : fraction ? FP_SUBNORMAL : FP_ZERO;
    if (exponent == 31 && fraction) kind = FP_NAN;
    return in_class(kind, a.bits >> 15, fraction >> 9, wanted);
}

}  // namespace

void add_compare_rows(Table& table) {
    add_integers<uint16_t>(table, "u16");
    add_integers<int16_t>(table, "i16");
    add_integers<uint32_t>(table, "u32");
    add_integers<int32_t>(table, "i32");
    add_integers<uint64_t>(table, "u64");
    add_integers<int64_t>(table, "i64");
    add_floats<Half, float>(table, "f16");
    add_floats<float>(table, "f32");
    add_floats<double>(table, "f64");
    add(table, "class_f32", [](float a, uint32_t b) {
        return in_class(std::fpclassify(a), std::signbit(a), bits_as<uint32_t>(a) >> 22 & 1, b);
    });
    add(table, "class_f64", [](double a, uint32_t b) {
        return in_class(std::fpclassify(a), std::signbit(a), bits_as<uint64_t>(a) >> 51 & 1, b);
    });
    add(table, "class_f16", [](Half a, uint32_t b) { return half_in_class(a, b); });
}

}  // namespace gfx9
