// setp, set, selp, slct, testp (ISA, sections 9.7.6 and 9.7.3.1).
#include "alu.h"
#include "decoder.h"
#include "half.h"
#include "rounding.h"

namespace ptx {

namespace compare {
namespace {

enum Comparison : uint8_t {
    eq,
    ne,
    lt,
    le,
    gt,
    ge,
    lo,
    ls,
    hi,
    hs,
    equ,
    neu,
    ltu,
    leu,
    gtu,
    geu,
    num,
    nan
};

constexpr const char* names[] = {"eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs",
                                 "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"};

template <class T>
bool compare(uint8_t comparison, T a, T b) {
    const bool ordered = a == a && b == b;
    switch (comparison) {
        case eq: return ordered && a == b;
        case ne: return ordered && a != b;
        case lt: case lo: return a < b;
        case le: case ls: return a <= b;
        case gt: case hi: return a > b;
        case ge: case hs: return a >= b;
        case equ: return !ordered || a == b;
        case neu: return !ordered || a != b;
        case ltu: return !ordered || a < b;
        case leu: return !ordered || a <= b;
        case gtu: return !ordered || a > b;
        case geu: return !ordered || a >= b;
        case num: return ordered;
        default: return !ordered;
    }
}

// What `mode` holds: the comparison, then how the predicate `c` comes in.
enum Combination : uint16_t { alone, with_and, with_or, with_xor };
constexpr uint16_t combination_shift = 5, negates_c = 1 << 7;

bool combined(const Thread& t, const Instruction& i, bool result) {
    const uint16_t how = i.mode >> combination_shift & 3;
    if (how == alone) return result;
    const bool c = (t.r[i.c] != 0) != ((i.mode & negates_c) != 0);
    return how == with_and ? result && c : how == with_or ? result || c : result != c;
}

template <class T>
bool outcome(const Thread& t, const Instruction& i) {
    T a = get<T>(t, i.a), b = get<T>(t, i.b);
    if constexpr (std::is_floating_point_v<T>) {
        if (i.ftz) {
            a = flushed(a);
            b = flushed(b);
        }
    }
    return compare(i.mode & 31, a, b);
}

template <class T>
void set_predicate(Thread& t, const Instruction& i) {
    const bool result = outcome<T>(t, i);
    const bool second = combined(t, i, !result);  // before d is written: it may be c
    t.r[i.d] = combined(t, i, result);
    if (i.count != 0) t.r[t.routine->lists[i.list]] = second;
}

// The commonest, without the detours.
template <class T, uint8_t comparison>
void set_simply(Thread& t, const Instruction& i) {
    t.r[i.d] = compare<T>(comparison, get<T>(t, i.a), get<T>(t, i.b));
}

template <class T>
Handler simple_of(uint8_t comparison) {
    switch (comparison) {
        case eq: return set_simply<T, eq>;
        case ne: return set_simply<T, ne>;
        case lt: return set_simply<T, lt>;
        case le: return set_simply<T, le>;
        case gt: return set_simply<T, gt>;
        default: return set_simply<T, ge>;
    }
}

struct SetPredicate { template <class T> static constexpr Handler run = set_predicate<T>; };

template <class Shape>
Handler by_type(Type type) {
    if (const Handler found = among_integers<Shape>(type)) return found;
    if (const Handler found = among_bits<Shape>(type)) return found;
    if (type == Type::f16) return Shape::template run<Half>;
    if (type == Type::bf16) return Shape::template run<Brain>;
    return among_floats<Shape>(type);
}

bool suits(uint8_t comparison, Type type) {
    if (comparison <= ne) return true;
    if (comparison <= ge) return !is_bits(type);
    if (comparison <= hs) return is_unsigned(type);
    return is_float(type);
}

bool comparison_words(Decoder& d) {
    size_t number = 0;
    while (number < std::size(names) && !d.word(names[number])) ++number;
    if (number == std::size(names)) return false;
    Combination how = alone;
    if (d.word("and")) how = with_and;
    else if (d.word("or")) how = with_or;
    else if (d.word("xor")) how = with_xor;
    d.out.mode = static_cast<uint16_t>(number | static_cast<unsigned>(how) << combination_shift);
    d.out.ftz = d.word("ftz");
    return true;
}

void third(Decoder& d) {
    if (d.out.mode >> combination_shift == alone) return;
    bool negated = false;
    d.out.c = d.predicate(negated);
    if (negated) d.out.mode |= negates_c;
}

bool set_predicate_rule(Decoder& d) {
    if (!comparison_words(d)) return false;
    const Type type = d.type();
    const uint8_t comparison = d.out.mode & 31;
    const bool flushes = type == Type::f32 || type == Type::f16;
    d.out.run = by_type<SetPredicate>(type);
    if (d.out.run == nullptr || !suits(comparison, type) || !d.done() || (d.out.ftz && !flushes))
        return false;
    const Operand target = d.take();
    if (target.pair) {
        d.list({d.to(target.parts[1], Type::pred)});
        d.out.d = d.to(target.parts[0], Type::pred);
    } else {
        d.out.d = d.to(target, Type::pred);
    }
    d.out.a = d.from(type);
    d.out.b = d.from(type);
    third(d);
    if (d.out.mode <= ge && !target.pair) {
        if (type == Type::s32) d.out.run = simple_of<int32_t>(comparison);
        if (type == Type::u32) d.out.run = simple_of<uint32_t>(comparison);
        if (type == Type::s64) d.out.run = simple_of<int64_t>(comparison);
    }
    return true;
}

// -- selection

void select(Thread& t, const Instruction& i) { t.r[i.d] = t.r[t.r[i.c] != 0 ? i.a : i.b]; }

bool select_rule(Decoder& d) {
    const Type type = d.type();
    if (nbytes_of(type) < 2 || !d.done() ||
        (is_float(type) && type != Type::f32 && type != Type::f64))
        return false;
    d.out.d = d.to(type);
    d.out.a = d.from(type);
    d.out.b = d.from(type);
    bool negated = false;
    d.out.c = d.predicate(negated);
    if (negated) std::swap(d.out.a, d.out.b);
    d.out.run = select;
    return true;
}

// -- testp

enum Property : uint16_t { finite, infinite, number, notanumber, normal, subnormal };

template <class T>
void test_property(Thread& t, const Instruction& i) {
    const int kind = std::fpclassify(get<T>(t, i.a));
    bool result = false;
    switch (i.mode) {
        case finite: result = kind != FP_INFINITE && kind != FP_NAN; break;
        case infinite: result = kind == FP_INFINITE; break;
        case number: result = kind != FP_NAN; break;
        case notanumber: result = kind == FP_NAN; break;
        case normal: result = kind == FP_NORMAL; break;
        default: result = kind == FP_SUBNORMAL; break;
    }
    t.r[i.d] = result;
}

struct TestProperty { template <class T> static constexpr Handler run = test_property<T>; };

bool test_property_rule(Decoder& d) {
    constexpr const char* properties[] = {"finite",     "infinite", "number",
                                          "notanumber", "normal",   "subnormal"};
    size_t found = 0;
    while (found < std::size(properties) && !d.word(properties[found])) ++found;
    const Type type = d.type();
    d.out.mode = static_cast<uint16_t>(found);
    d.out.run = among_floats<TestProperty>(type);
    if (found == std::size(properties) || d.out.run == nullptr || !d.done()) return false;
    d.out.d = d.to(Type::pred);
    d.out.a = d.from(type);
    return true;
}

}  // namespace
}  // namespace compare

void add_compare_rules(Rules& rules) {
    using namespace compare;
    rules.insert({{"setp", set_predicate_rule}, {"selp", select_rule}, {"testp", test_property_rule}});
}

}  // namespace ptx
