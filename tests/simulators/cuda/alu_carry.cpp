// Arithmetic through the carry flag CC.CF (ISA, section 9.7.2), and dot products of bytes.
#include "alu.h"
#include "decoder.h"

namespace ptx {

namespace carry {
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

}  // namespace
}  // namespace carry

void add_carry_rules(Rules& rules) {
    using namespace carry;
    rules.insert({{"add", sum_rule<add<uint32_t>, add<uint64_t>, false>},
                  {"addc", sum_rule<add<uint32_t>, add<uint64_t>, true>},
                  {"sub", sum_rule<subtract<uint32_t>, subtract<uint64_t>, false>},
                  {"subc", sum_rule<subtract<uint32_t>, subtract<uint64_t>, true>},
                  {"mad", product_rule<false>}, {"madc", product_rule<true>}});
}

}  // namespace ptx
