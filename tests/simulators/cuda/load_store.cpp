// ld, st, ldu, prefetch.
#include "decoder.h"
#include "machine.h"

namespace ptx {

namespace {

Space space_of(const Instruction& i) { return static_cast<Space>(i.mode); }

uint64_t address_of(const Thread& t, const Instruction& i) {
    const uint64_t address = t.r[i.a] + static_cast<uint64_t>(i.offset);
    return i.narrow ? static_cast<uint32_t>(address) : address;
}

template <class T>
void load(Thread& t, const Instruction& i) {
    T value;
    std::memcpy(&value, resolve(t, space_of(i), address_of(t, i), sizeof(T), sizeof(T), false),
                sizeof(T));
    put<T>(t, i.d, value);
}

template <class T>
void load_vector(Thread& t, const Instruction& i) {
    const uint32_t nbytes = sizeof(T) * i.count;
    const uint8_t* from = resolve(t, space_of(i), address_of(t, i), nbytes, nbytes, false);
    for (uint32_t part = 0; part < i.count; ++part) {
        T value;
        std::memcpy(&value, from + part * sizeof(T), sizeof(T));
        put<T>(t, t.routine->lists[i.list + part], value);
    }
}

// Of a parameter by its name: `offset` was checked when the text was read.
template <class T>
void load_launch_param(Thread& t, const Instruction& i) {
    T value;
    std::memcpy(&value, t.block->launch.params + i.offset, sizeof(T));
    put<T>(t, i.d, value);
}

template <class T>
void store(Thread& t, const Instruction& i) {
    const T value = get<T>(t, i.b);
    std::memcpy(resolve(t, space_of(i), address_of(t, i), sizeof(T), sizeof(T), true), &value,
                sizeof(T));
}

template <class T>
void store_vector(Thread& t, const Instruction& i) {
    const uint32_t nbytes = sizeof(T) * i.count;
    uint8_t* to = resolve(t, space_of(i), address_of(t, i), nbytes, nbytes, true);
    for (uint32_t part = 0; part < i.count; ++part) {
        const T value = get<T>(t, t.routine->lists[i.list + part]);
        std::memcpy(to + part * sizeof(T), &value, sizeof(T));
    }
}

struct Load { template <class T> static constexpr Handler run = load<T>; };
struct LoadVector { template <class T> static constexpr Handler run = load_vector<T>; };
struct LoadParam { template <class T> static constexpr Handler run = load_launch_param<T>; };
struct Store { template <class T> static constexpr Handler run = store<T>; };
struct StoreVector { template <class T> static constexpr Handler run = store_vector<T>; };

// Signs matter where the register is wider than the type.
template <class Shape>
Handler by_memory_type(Type type) {
    switch (type) {
        case Type::s8: return Shape::template run<int8_t>;
        case Type::s16: return Shape::template run<int16_t>;
        case Type::s32: return Shape::template run<int32_t>;
        default: break;
    }
    switch (nbytes_of(type)) {
        case 1: return Shape::template run<uint8_t>;
        case 2: return Shape::template run<uint16_t>;
        case 4: return Shape::template run<uint32_t>;
        case 8: return Shape::template run<uint64_t>;
        default: return nullptr;
    }
}

bool scope_word(Decoder& d) { return d.one_of({"cta", "cluster", "gpu", "sys"}); }

// Orders say nothing here: one thread runs at a time.
bool order_words(Decoder& d, bool loads) {
    if (d.one_of({"weak", "volatile"})) return true;
    if (d.word("mmio")) return d.word("relaxed") && d.word("sys");
    if (d.one_of({"relaxed", loads ? "acquire" : "release"})) return scope_word(d);
    return true;
}

Space space_words(Decoder& d) {
    if (d.word("global")) return Space::global;
    if (d.one_of({"shared", "shared::cta"})) return Space::shared;
    if (d.word("local")) return Space::local;
    if (d.word("const")) return Space::constant;
    if (d.one_of({"param", "param::entry", "param::func"})) return Space::param;
    return Space::generic;
}

void cache_words(Decoder& d, bool loads) {
    if (loads) d.one_of({"ca", "cg", "cs", "lu", "cv"});
    else d.one_of({"wb", "cg", "cs", "wt"});
    if (loads) d.word("nc");
    d.one_of({"L1::evict_normal", "L1::evict_unchanged", "L1::evict_first", "L1::evict_last",
              "L1::no_allocate"});
    d.one_of({"L2::evict_normal", "L2::evict_first", "L2::evict_last"});
    if (loads) d.one_of({"L2::64B", "L2::128B", "L2::256B"});
}

// Parameters of a routine that is called, and of a call, are in local memory; those of an entry
// come with the launch and are named, or reached through a generic address.
void param_space(Decoder& d, bool loads) {
    const Operand& place = d.peek();
    if (place.kind == Operand::Variable && !place.launch_param)
        d.out.mode = static_cast<uint16_t>(Space::local);
    else d.out.mode = static_cast<uint16_t>(Space::generic);
    if (place.launch_param && !loads) d.fail("parameters of an entry are read alone");
}

// Whether the access is to a parameter of the entry by its name.
bool named_param(Decoder& d, uint32_t nbytes) {
    const Operand& place = d.peek();
    if (!place.launch_param || !place.bracketed) return false;
    const auto offset = static_cast<uint64_t>(place.offset);
    if (offset > place.nbytes || nbytes > place.nbytes - offset)
        d.fail("more than the parameter " + place.name + " has");
    d.out.offset = static_cast<int64_t>(place.at + offset);
    if ((place.at + offset) % nbytes != 0) d.fail("not aligned: " + place.name);
    return true;
}

void values(Decoder& d, Type type, const Operand& operand, uint32_t lanes, bool loads) {
    const bool is_vector = operand.kind == Operand::Vector && !operand.pair;
    if (is_vector != (lanes > 1) || (is_vector && operand.parts.size() != lanes)) {
        d.fail("as many registers as the vector has elements expected");
    }
    if (!is_vector) {
        (loads ? d.out.d : d.out.b) =
            loads ? d.to(operand, type, true) : d.from(operand, type, true);
        return;
    }
    std::vector<uint32_t> slots;
    for (const Operand& part : operand.parts)
        slots.push_back(loads ? d.to(part, type, true) : d.from(part, type, true));
    d.list(slots);
}

bool memory_words(Decoder& d, bool loads, Space& space, uint32_t& lanes, Type& type) {
    if (!order_words(d, loads)) return false;
    space = space_words(d);
    cache_words(d, loads);
    lanes = d.word("v2") ? 2 : d.word("v4") ? 4 : 1;
    type = d.type();
    const bool packed =
        type == Type::f16x2 || type == Type::bf16x2 || type == Type::bf16 || type == Type::f16;
    if (nbytes_of(type) == 0 || packed || !d.done()) return false;
    if (nbytes_of(type) * lanes > 16) d.fail("a vector of more than 16 bytes");
    d.out.type = type;
    return true;
}

bool load_rule(Decoder& d) {
    Space space;
    uint32_t lanes;
    Type type;
    if (!memory_words(d, true, space, lanes, type)) return false;
    values(d, type, d.take(), lanes, true);
    d.out.run = lanes > 1 ? by_memory_type<LoadVector>(type) : by_memory_type<Load>(type);
    d.out.mode = static_cast<uint16_t>(space);
    if (space != Space::param) {
        d.address(space);
    } else if (named_param(d, nbytes_of(type) * lanes) && lanes == 1) {
        d.take();
        d.out.run = by_memory_type<LoadParam>(type);
    } else {
        param_space(d, true);
        d.address(Space::param);
    }
    return true;
}

bool store_rule(Decoder& d) {
    Space space;
    uint32_t lanes;
    Type type;
    if (!memory_words(d, false, space, lanes, type)) return false;
    if (space == Space::constant) d.fail("constant memory is read alone");
    d.out.mode = static_cast<uint16_t>(space);
    if (space == Space::param) param_space(d, false);
    d.address(space);
    values(d, type, d.take(), lanes, false);
    d.out.run = lanes > 1 ? by_memory_type<StoreVector>(type) : by_memory_type<Store>(type);
    return true;
}

void prefetch(Thread&, const Instruction&) {}

bool prefetch_rule(Decoder& d) {
    const Space space = space_words(d);
    if (space != Space::generic && space != Space::global && space != Space::local) return false;
    if (!d.one_of({"L1", "L2"}) || !d.done()) return false;
    d.address(space);
    d.out.run = prefetch;
    return true;
}

}  // namespace

void add_memory_rules(Rules& rules) {
    rules.insert(
        {{"ld", load_rule}, {"ldu", load_rule}, {"st", store_rule}, {"prefetch", prefetch_rule}});
}

}  // namespace ptx
