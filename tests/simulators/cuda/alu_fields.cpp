// Fields of bits and bytes: bfe, bfi, bmsk, szext, prmt (ISA, sections 9.7.1 and 9.7.9.7).
#include <algorithm>

#include "alu.h"
#include "decoder.h"

namespace ptx {

namespace fields {
namespace {

template <class T>
void extract(Thread& t, const Instruction& i) {
    const uint32_t most = 8 * sizeof(T) - 1;
    const T a = get<T>(t, i.a);
    const uint32_t start = get<uint32_t>(t, i.b) & 0xff, length = get<uint32_t>(t, i.c) & 0xff;
    const auto bit = [&](uint32_t place) {
        return static_cast<uint64_t>(a) >> std::min(place, most) & 1;
    };
    uint64_t result = 0;
    for (uint32_t place = 0; place <= most; ++place) {
        // Behind the field stands its last bit if it has a sign; beyond the operand, the operand's.
        const bool inside = place < length && start + place <= most;
        uint64_t value = 0;
        if (inside) value = bit(start + place);
        else if (std::is_signed_v<T> && length != 0)
            value = bit(std::min(start + length - 1, most));
        result |= value << place;
    }
    put<T>(t, i.d, static_cast<T>(result));
}

template <class T>
void insert(Thread& t, const Instruction& i) {
    const uint32_t width = 8 * sizeof(T);
    const uint32_t start = get<uint32_t>(t, i.c) & 0xff;
    const uint32_t length = get<uint32_t>(t, t.routine->lists[i.list]) & 0xff;
    T result = get<T>(t, i.b);
    for (uint32_t place = 0; place < length && start + place < width; ++place) {
        const T mask = static_cast<T>(T(1) << (start + place));
        const bool set = (get<T>(t, i.a) >> place & 1) != 0;
        result = set ? result | mask : result & ~mask;
    }
    put<T>(t, i.d, result);
}

struct Extract { template <class T> static constexpr Handler run = extract<T>; };

bool extract_rule(Decoder& d) {
    const Type type = d.type();
    if (!is_integer(type) || nbytes_of(type) < 4 || !d.done()) return false;
    d.out.d = d.to(type);
    d.out.a = d.from(type);
    d.out.b = d.from(Type::u32);
    d.out.c = d.from(Type::u32);
    d.out.run = among_integers<Extract>(type);
    return true;
}

bool insert_rule(Decoder& d) {
    const Type type = d.type();
    if ((type != Type::b32 && type != Type::b64) || !d.done()) return false;
    d.out.d = d.to(type);
    d.out.a = d.from(type);
    d.out.b = d.from(type);
    d.out.c = d.from(Type::u32);
    d.list({d.from(Type::u32)});
    d.out.run = type == Type::b32 ? insert<uint32_t> : insert<uint64_t>;
    return true;
}

// -- prmt: bytes of b and a by their numbers (section 9.7.9.7)

void permute(Thread& t, const Instruction& i) {
    const uint64_t both =
        static_cast<uint64_t>(get<uint32_t>(t, i.b)) << 32 | get<uint32_t>(t, i.a);
    const uint32_t selector = get<uint32_t>(t, i.c);
    uint32_t result = 0;
    for (uint32_t place = 0; place < 4; ++place) {
        const uint32_t choice = selector >> (4 * place) & 15;
        uint32_t byte = static_cast<uint32_t>(both >> (8 * (choice & 7))) & 0xff;
        if ((choice & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;  // its sign alone
        result |= byte << (8 * place);
    }
    put<uint32_t>(t, i.d, result);
}

bool permute_rule(Decoder& d) {
    return d.type() == Type::b32 && d.ternary(Type::b32, permute);
}

}  // namespace
}  // namespace fields

void add_field_rules(Rules& rules) {
    using namespace fields;
    rules.insert({{"bfe", extract_rule}, {"bfi", insert_rule}, {"prmt", permute_rule}});
}

}  // namespace ptx
