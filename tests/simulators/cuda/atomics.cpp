// atom and red (ISA, sections 9.7.13.3 and 9.7.13.4). One thread runs at a time, so a read and a
// write behind each other are one step; orders and scopes are read and say nothing more.
#include "alu.h"
#include "decoder.h"
#include "half.h"
#include "rounding.h"

namespace ptx {

namespace atomics {
namespace {

struct Add { template <class T> static T of(T old, T b) { return static_cast<T>(old + b); } };
struct Min { template <class T> static T of(T old, T b) { return b < old ? b : old; } };
struct Max { template <class T> static T of(T old, T b) { return old < b ? b : old; } };
struct And { template <class T> static T of(T old, T b) { return old & b; } };
struct Or { template <class T> static T of(T old, T b) { return old | b; } };
struct Xor { template <class T> static T of(T old, T b) { return old ^ b; } };
struct Exchange { template <class T> static T of(T, T b) { return b; } };
struct Increment { template <class T> static T of(T old, T b) { return old >= b ? 0 : old + 1; } };
struct Decrement {
    template <class T>
    static T of(T old, T b) {
        return old == 0 || old > b ? b : old - 1;
    }
};
struct AddFloat {
    template <class T>
    static T of(T old, T b) {
        return canonical(old + b, old, b);
    }
};

template <class H, int parts>
struct AddHalves {
    static uint32_t of(uint32_t old, uint32_t b) {
        uint32_t result = 0;
        for (int part = 0; part < parts; ++part) {
            const double x = H{static_cast<uint16_t>(old >> 16 * part)}.value();
            const double y = H{static_cast<uint16_t>(b >> 16 * part)}.value();
            result |= static_cast<uint32_t>(H::of(x + y).bits) << (16 * part);
        }
        return result;
    }
};

uint8_t* place_of(Thread& t, const Instruction& i, uint32_t nbytes) {
    const uint64_t sum = t.r[i.a] + static_cast<uint64_t>(i.offset);
    const uint64_t address = i.narrow ? static_cast<uint32_t>(sum) : sum;
    return resolve(t, static_cast<Space>(i.mode), address, nbytes, nbytes, true);
}

template <class Op, class T>
void update(Thread& t, const Instruction& i) {
    uint8_t* place = place_of(t, i, sizeof(T));
    T old;
    std::memcpy(&old, place, sizeof old);
    const T fresh = Op::of(old, get<T>(t, i.b));
    std::memcpy(place, &fresh, sizeof fresh);
    put<T>(t, i.d, old);
}

template <class H, int parts>
void update_halves(Thread& t, const Instruction& i) {
    constexpr uint32_t nbytes = 2 * parts;
    uint8_t* place = place_of(t, i, nbytes);
    uint32_t old = 0;
    std::memcpy(&old, place, nbytes);
    const uint32_t fresh = AddHalves<H, parts>::of(old, get<uint32_t>(t, i.b));
    std::memcpy(place, &fresh, nbytes);
    put<uint32_t>(t, i.d, old);
}

template <class T>
void compare_and_swap(Thread& t, const Instruction& i) {
    uint8_t* place = place_of(t, i, sizeof(T));
    T old;
    std::memcpy(&old, place, sizeof old);
    const T expected = get<T>(t, i.b), fresh = get<T>(t, i.c);
    if (old == expected) std::memcpy(place, &fresh, sizeof fresh);
    put<T>(t, i.d, old);
}

// -- which operation on which type

template <class Op>
struct Update { template <class T> static constexpr Handler run = update<Op, T>; };

template <class Op>
Handler wide(Type type) {
    return nbytes_of(type) >= 4 ? among_integers<Update<Op>>(type) : nullptr;
}

template <class Op>
Handler bits(Type type) {
    return nbytes_of(type) >= 4 ? among_bits<Update<Op>>(type) : nullptr;
}

Handler add(Type type) {
    if (type == Type::s64) return nullptr;
    return wide<Add>(type);
}

// Halves add with .noftz alone, and nothing else takes the word.
Handler add_float(Type type, bool noftz) {
    switch (type) {
        case Type::f16: return noftz ? update_halves<Half, 1> : nullptr;
        case Type::f16x2: return noftz ? update_halves<Half, 2> : nullptr;
        case Type::bf16: return noftz ? update_halves<Brain, 1> : nullptr;
        case Type::bf16x2: return noftz ? update_halves<Brain, 2> : nullptr;
        default: return noftz ? nullptr : among_floats<Update<AddFloat>>(type);
    }
}

template <class Op>
Handler unsigned_32(Type type) {
    return type == Type::u32 ? update<Op, uint32_t> : nullptr;
}

Handler swap(Type type) {
    switch (type) {
        case Type::b16: return compare_and_swap<uint16_t>;
        case Type::b32: return compare_and_swap<uint32_t>;
        case Type::b64: return compare_and_swap<uint64_t>;
        default: return nullptr;
    }
}

struct Row {
    const char* name;
    Handler (*choose)(Type);
    bool gives_alone;  // red has it not
};

constexpr Row rows[] = {
    {"min", wide<Min>, false}, {"max", wide<Max>, false},
    {"and", bits<And>, false}, {"or", bits<Or>, false}, {"xor", bits<Xor>, false},
    {"inc", unsigned_32<Increment>, false}, {"dec", unsigned_32<Decrement>, false},
    {"exch", bits<Exchange>, true}, {"cas", swap, true},
};

Handler operation(Decoder& d, bool gives, Type& type, bool& swaps) {
    swaps = false;
    if (d.word("add")) {
        const bool noftz = d.word("noftz");
        type = d.type();
        const Handler whole = noftz ? nullptr : add(type);
        return whole != nullptr ? whole : add_float(type, noftz);
    }
    for (const Row& row : rows) {
        if (!d.word(row.name)) continue;
        swaps = row.choose == swap;
        type = d.type();
        return row.gives_alone && !gives ? nullptr : row.choose(type);
    }
    return nullptr;
}

template <bool gives>
bool atomic_rule(Decoder& d) {
    if (gives) d.one_of({"relaxed", "acquire", "release", "acq_rel"});
    else d.one_of({"relaxed", "release"});
    d.one_of({"cta", "cluster", "gpu", "sys"});
    Space space = Space::generic;
    if (d.word("global")) space = Space::global;
    else if (d.one_of({"shared", "shared::cta"})) space = Space::shared;
    Type type = Type::none;
    bool swaps = false;
    d.out.run = operation(d, gives, type, swaps);
    if (d.out.run == nullptr || !d.done()) return false;
    d.out.mode = static_cast<uint16_t>(space);
    d.out.d = gives ? d.to(type) : d.frame.scratch();
    d.address(space);
    d.out.b = d.from(type);
    if (swaps) d.out.c = d.from(type);
    return true;
}

}  // namespace
}  // namespace atomics

void add_atomic_rules(Rules& rules) {
    using namespace atomics;
    rules.insert({{"atom", atomic_rule<true>}, {"red", atomic_rule<false>}});
}

}  // namespace ptx
