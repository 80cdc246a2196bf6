// Logic, shifts and counts of bits (ISA, sections 9.7.8 and 9.7.1).
#include "alu.h"
#include "decoder.h"

namespace ptx {

namespace bits {
namespace {

struct And { template <class T> static T of(T a, T b) { return a & b; } };
struct Or { template <class T> static T of(T a, T b) { return a | b; } };
struct Xor { template <class T> static T of(T a, T b) { return a ^ b; } };
struct Not { template <class T> static T of(T a) { return static_cast<T>(~a); } };

template <class Op>
struct LogicOfPredicates {
    static void two(Thread& t, const Instruction& i) {
        t.r[i.d] = Op::of(t.r[i.a] & 1, t.r[i.b] & 1);
    }
    static void one(Thread& t, const Instruction& i) { t.r[i.d] = (t.r[i.a] & 1) ^ 1; }
};

template <class Op>
bool logic_rule(Decoder& d) {
    const Type type = d.type();
    return d.binary(type,
                    type == Type::pred ? LogicOfPredicates<Op>::two : among_bits<Binary<Op>>(type));
}

bool not_rule(Decoder& d) {
    const Type type = d.type();
    return d.unary(type,
                   type == Type::pred ? LogicOfPredicates<Not>::one : among_bits<Unary<Not>>(type));
}

// -- shifts. The amount is 32 bits wide, and one beyond the width is as good as the width.

template <class T>
void shift_left(Thread& t, const Instruction& i) {
    const uint32_t by = get<uint32_t>(t, i.b);
    put<T>(t, i.d, by >= 8 * sizeof(T) ? T(0) : static_cast<T>(get<uint64_t>(t, i.a) << by));
}

template <class T>
void shift_right(Thread& t, const Instruction& i) {
    const uint32_t by = get<uint32_t>(t, i.b);
    const T a = get<T>(t, i.a), empty = a < 0 ? static_cast<T>(-1) : T(0);
    put<T>(t, i.d, by >= 8 * sizeof(T) ? empty : static_cast<T>(a >> by));
}

struct ShiftLeft { template <class T> static constexpr Handler run = shift_left<T>; };
struct ShiftRight { template <class T> static constexpr Handler run = shift_right<T>; };

bool shift(Decoder& d, Type type, Handler run) {
    if (run == nullptr || !d.done()) return false;
    d.out.d = d.to(type);
    d.out.a = d.from(type);
    d.out.b = d.from(Type::u32);
    d.out.run = run;
    return true;
}

bool shift_left_rule(Decoder& d) {
    const Type type = d.type();
    return shift(d, type, among_bits<ShiftLeft>(type));
}

bool shift_right_rule(Decoder& d) {
    const Type type = d.type();
    const Handler run = among_integers<ShiftRight>(type);
    return shift(d, type, run != nullptr ? run : among_bits<ShiftRight>(type));
}

// shf: 32 of the 64 bits of b and a. `mode`: 1 to the right, 2 clamps the amount to 32.
void funnel(Thread& t, const Instruction& i) {
    const uint64_t both =
        static_cast<uint64_t>(get<uint32_t>(t, i.b)) << 32 | get<uint32_t>(t, i.a);
    const uint32_t c = get<uint32_t>(t, i.c), by = (i.mode & 2) != 0 ? (c < 32 ? c : 32) : c & 31;
    put<uint32_t>(t, i.d, static_cast<uint32_t>((i.mode & 1) != 0 ? both >> by : both << by >> 32));
}

bool funnel_rule(Decoder& d) {
    if (d.word("r")) d.out.mode = 1;
    else if (!d.word("l")) return false;
    if (d.word("clamp")) d.out.mode |= 2;
    else if (!d.word("wrap")) return false;
    return d.type() == Type::b32 && d.ternary(Type::b32, funnel);
}

// -- lop3: `mode` is the table, whose index is made of a bit of each operand
void look_up(Thread& t, const Instruction& i) {
    const uint32_t a = get<uint32_t>(t, i.a), b = get<uint32_t>(t, i.b), c = get<uint32_t>(t, i.c);
    uint32_t result = 0;
    for (uint32_t index = 0; index < 8; ++index) {
        if ((i.mode >> index & 1) == 0) continue;
        result |=
            ((index & 4) != 0 ? a : ~a) & ((index & 2) != 0 ? b : ~b) & ((index & 1) != 0 ? c : ~c);
    }
    put<uint32_t>(t, i.d, result);
}

bool look_up_rule(Decoder& d) {
    if (d.type() != Type::b32 || !d.ternary(Type::b32, look_up)) return false;
    const uint64_t table = d.immediate();
    if (table > 255) d.fail("a table has 8 bits");
    d.out.mode = static_cast<uint16_t>(table);
    return true;
}

// -- counting

struct Reverse {
    template <class T> static T of(T a) {
        T result = 0;
        for (size_t bit = 0; bit < 8 * sizeof(T); ++bit)
            result = static_cast<T>(result << 1 | (a >> bit & 1));
        return result;
    }
};

uint32_t population(uint64_t a) { return static_cast<uint32_t>(__builtin_popcountll(a)); }

template <class T>
uint32_t leading_zeros(T a) {
    return a == 0 ? 8 * sizeof(T)
                  : static_cast<uint32_t>(__builtin_clzll(a)) - (64 - 8 * sizeof(T));
}

template <class T>
void count_ones(Thread& t, const Instruction& i) {
    put<uint32_t>(t, i.d, population(get<T>(t, i.a)));
}
template <class T>
void count_zeros(Thread& t, const Instruction& i) {
    put<uint32_t>(t, i.d, leading_zeros(get<T>(t, i.a)));
}

// The place of the highest bit that is not the sign; `mode` 1 counts from the top.
template <class T>
void find_bit(Thread& t, const Instruction& i) {
    using Bits = std::make_unsigned_t<T>;
    const T a = get<T>(t, i.a);
    const Bits found = static_cast<Bits>(a < 0 ? ~a : a);
    const uint32_t zeros = leading_zeros(found);
    put<uint32_t>(t, i.d,
                  found == 0    ? 0xffffffff
                  : i.mode != 0 ? zeros
                                : 8 * sizeof(T) - 1 - zeros);
}

struct FindBit { template <class T> static constexpr Handler run = find_bit<T>; };

bool counted(Decoder& d, Type type, Handler run) {
    if (nbytes_of(type) < 4 || run == nullptr || !d.done()) return false;
    d.out.d = d.to(Type::u32);
    d.out.a = d.from(type);
    d.out.run = run;
    return true;
}

struct CountOnes { template <class T> static constexpr Handler run = count_ones<T>; };
struct CountZeros { template <class T> static constexpr Handler run = count_zeros<T>; };

template <class Shape>
bool count_rule(Decoder& d) {
    const Type type = d.type();
    return counted(d, type, among_bits<Shape>(type));
}

bool find_bit_rule(Decoder& d) {
    d.out.mode = d.word("shiftamt");
    const Type type = d.type();
    return counted(d, type, among_integers<FindBit>(type));
}

bool reverse_rule(Decoder& d) {
    const Type type = d.type();
    return nbytes_of(type) >= 4 && d.unary(type, among_bits<Unary<Reverse>>(type));
}

}  // namespace
}  // namespace bits

void add_bit_rules(Rules& rules) {
    using namespace bits;
    rules.insert({{"and", logic_rule<And>},
                  {"or", logic_rule<Or>},
                  {"xor", logic_rule<Xor>},
                  {"not", not_rule},
                  {"shl", shift_left_rule},
                  {"shr", shift_right_rule},
                  {"shf", funnel_rule},
                  {"lop3", look_up_rule},
                  {"brev", reverse_rule},
                  {"popc", count_rule<CountOnes>},
                  {"clz", count_rule<CountZeros>},
                  {"bfind", find_bit_rule}});
}

}  // namespace ptx
