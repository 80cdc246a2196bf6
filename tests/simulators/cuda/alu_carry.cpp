// Arithmetic through the carry flag CC.CF (ISA, section 9.7.2), and dot products of bytes.
#include "alu.h"
#include "decoder.h"

namespace ptx {

namespace {

constexpr uint16_t takes_carry = 1, gives_carry = 2, high = 4;

template <class T>
using Double = std::conditional_t<sizeof(T) == 4, uint64_t, unsigned __int128>;

template <class T>
void finish(Thread& t, const Instruction& i, Double<T> sum) {
    if ((i.mode & gives_carry) != 0) t.carry = (sum >> (8 * sizeof(T)) & 1) != 0;
    put<T>(t, i.d, static_cast<T>(sum));
}

template <class T>
void add(Thread& t, const Instruction& i) {
    const bool carry = (i.mode & takes_carry) != 0 && t.carry;
    finish<T>(t, i, Double<T>{get<T>(t, i.a)} + get<T>(t, i.b) + carry);
}

// The flag is a borrow here: set where the difference is negative.
template <class T>
void subtract(Thread& t, const Instruction& i) {
    const bool borrow = (i.mode & takes_carry) != 0 && t.carry;
    finish<T>(t, i, Double<T>{get<T>(t, i.a)} - get<T>(t, i.b) - borrow);
}

template <class T>
void multiply_add(Thread& t, const Instruction& i) {
    using Signed = std::make_signed_t<T>;
    Double<T> product = Double<T>{get<T>(t, i.a)} * get<T>(t, i.b);
    if (is_signed(i.type)) {
        using Wide = std::conditional_t<sizeof(T) == 4, int64_t, __int128>;
        product =
            static_cast<Double<T>>(static_cast<Wide>(get<Signed>(t, i.a)) * get<Signed>(t, i.b));
    }
    const T part = static_cast<T>((i.mode & high) != 0 ? product >> (8 * sizeof(T)) : product);
    const bool carry = (i.mode & takes_carry) != 0 && t.carry;
    finish<T>(t, i, Double<T>{part} + get<T>(t, i.c) + carry);
}

Handler of_size(Type type, Handler narrow, Handler wide) {
    if (!is_integer(type)) return nullptr;
    return nbytes_of(type) == 4 ? narrow : nbytes_of(type) == 8 ? wide : nullptr;
}

// add.cc takes no carry and gives one; addc takes one, addc.cc does both.
template <Handler narrow, Handler wide, bool takes>
bool sum_rule(Decoder& d) {
    const bool gives = d.word("cc");
    if (!gives && !takes) return false;
    d.out.mode = static_cast<uint16_t>((takes ? takes_carry : 0) | (gives ? gives_carry : 0));
    const Type type = d.type();
    return d.binary(type, of_size(type, narrow, wide));
}

template <bool takes>
bool product_rule(Decoder& d) {
    const bool is_high = d.word("hi");
    if (!is_high && !d.word("lo")) return false;
    const bool gives = d.word("cc");
    if (!gives && !takes) return false;
    d.out.mode = static_cast<uint16_t>((takes ? takes_carry : 0) | (gives ? gives_carry : 0) |
                                       (is_high ? high : 0));
    const Type type = d.type();
    return d.ternary(type, of_size(type, multiply_add<uint32_t>, multiply_add<uint64_t>));
}

// -- dp4a, dp2a: `mode` bit 0: a is signed, 1: b is signed, 2: the upper half of b

int64_t part_of(uint32_t value, uint32_t place, uint32_t bits, bool is_signed) {
    const uint32_t part = value >> (place * bits) & ((1u << bits) - 1);
    return is_signed && (part >> (bits - 1)) != 0 ? static_cast<int64_t>(part) - (1ll << bits)
                                                  : part;
}

template <uint32_t bits_of_a>
void dot(Thread& t, const Instruction& i) {
    const uint32_t a = get<uint32_t>(t, i.a), b = get<uint32_t>(t, i.b);
    auto sum = static_cast<uint64_t>(get<uint32_t>(t, i.c));
    for (uint32_t place = 0; place < 32 / bits_of_a; ++place) {
        const uint32_t beside = place + ((i.mode & 4) != 0 ? 2 : 0);
        sum += static_cast<uint64_t>(part_of(a, place, bits_of_a, (i.mode & 1) != 0) *
                                     part_of(b, beside, 8, (i.mode & 2) != 0));
    }
    put<uint32_t>(t, i.d, static_cast<uint32_t>(sum));
}

template <uint32_t bits_of_a>
bool dot_rule(Decoder& d) {
    const bool upper = bits_of_a == 16 && d.word("hi");
    if (bits_of_a == 16 && !upper && !d.word("lo")) return false;
    const Type a = d.type(), b = d.type();
    const auto whole = [](Type type) { return type == Type::s32 || type == Type::u32; };
    if (!whole(a) || !whole(b) || !d.done()) return false;
    d.out.mode = static_cast<uint16_t>(is_signed(a) | is_signed(b) << 1 | upper << 2);
    return d.ternary(Type::b32, dot<bits_of_a>);
}

}  // namespace

void add_carry_rules(Rules& rules) {
    rules.insert({{"add", sum_rule<add<uint32_t>, add<uint64_t>, false>},
                  {"addc", sum_rule<add<uint32_t>, add<uint64_t>, true>},
                  {"sub", sum_rule<subtract<uint32_t>, subtract<uint64_t>, false>},
                  {"subc", sum_rule<subtract<uint32_t>, subtract<uint64_t>, true>},
                  {"mad", product_rule<false>}, {"madc", product_rule<true>},
                  {"dp4a", dot_rule<8>}, {"dp2a", dot_rule<16>}});
}

}  // namespace ptx
