// mov, cvta, isspacep: values and addresses from one register to another.
#include <chrono>

#include "decoder.h"
#include "machine.h"

namespace ptx {

namespace {

void move(Thread& t, const Instruction& i) { t.r[i.d] = t.r[i.a]; }

void move_address(Thread& t, const Instruction& i) {
    t.r[i.d] = t.r[i.a] + static_cast<uint64_t>(i.offset);
}

// Parts of `mode` bits each, the first in the low ones.
void pack(Thread& t, const Instruction& i) {
    uint64_t value = 0;
    const uint64_t within = (1ull << i.mode) - 1;
    for (uint32_t part = 0; part < i.count; ++part) {
        value |= (t.r[t.routine->lists[i.list + part]] & within) << (part * i.mode);
    }
    t.r[i.d] = value;
}

void unpack(Thread& t, const Instruction& i) {
    const uint64_t value = t.r[i.a], within = (1ull << i.mode) - 1;
    for (uint32_t part = 0; part < i.count; ++part) {
        t.r[t.routine->lists[i.list + part]] = value >> (part * i.mode) & within;
    }
}

void clock(Thread& t, const Instruction& i) { t.r[i.d] = t.block->steps >> i.mode; }

// Steps of this launch are what the clock counts; it must not stand still within a thread.
void ticking_clock(Thread& t, const Instruction& i) {
    ++t.block->steps;
    clock(t, i);
}

void global_timer(Thread& t, const Instruction& i) {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
    t.r[i.d] = static_cast<uint64_t>(ns) >> i.mode;
}

struct Running {
    const char* name;
    Type type;
    Handler run;
    uint16_t shift;
};

constexpr Running running[] = {
    {"%clock", Type::u32, ticking_clock, 0},
    {"%clock_hi", Type::u32, ticking_clock, 32},
    {"%clock64", Type::u64, ticking_clock, 0},
    {"%globaltimer", Type::u64, global_timer, 0},
    {"%globaltimer_lo", Type::u32, global_timer, 0},
    {"%globaltimer_hi", Type::u32, global_timer, 32},
};

bool move_running(Decoder& d, Type type, const Operand& source) {
    for (const Running& each : running) {
        if (source.name != each.name) continue;
        if (!agrees(each.type, type)) d.fail(source.name + " is a ." + name_of(each.type));
        d.out.mode = each.shift;
        d.out.run = each.run;
        return true;
    }
    d.fail("nothing is called " + source.name);
}

Type part_of(Decoder& d, Type whole, size_t parts) {
    const size_t nbytes = nbytes_of(whole) / std::max<size_t>(parts, 1);
    if (parts < 2 || nbytes * parts != nbytes_of(whole))
        d.fail("so many parts do not make the whole");
    d.out.mode = static_cast<uint16_t>(8 * nbytes);
    return nbytes == 1 ? Type::b8 : nbytes == 2 ? Type::b16 : Type::b32;
}

bool move_vector(Decoder& d, Type type, const Operand& target, const Operand& source) {
    if (!is_bits(type)) d.fail("only bits are put together or taken apart");
    const bool packs = source.kind == Operand::Vector;
    const Operand& vector = packs ? source : target;
    const Type part = part_of(d, type, vector.parts.size());
    std::vector<uint32_t> slots;
    for (const Operand& each : vector.parts)
        slots.push_back(packs ? d.from(each, part) : d.to(each, part));
    if (packs) d.out.d = d.to(target, type);
    else d.out.a = d.from(source, type);
    d.list(slots);
    d.out.run = packs ? pack : unpack;
    return true;
}

// The address of a variable: in its own state space, but generic where it is in the stack.
void move_variable(Decoder& d, Type type, const Operand& source) {
    if (!agrees(type, Type::u64) && !(agrees(type, Type::u32) && source.space != Space::global)) {
        d.fail("an address takes 64 bits");
    }
    d.out.a = source.slot;
    d.out.offset = source.offset;
    if (source.space == Space::param && !source.launch_param)
        d.out.offset += static_cast<int64_t>(local_window);
    d.out.run = move_address;
}

bool move_rule(Decoder& d) {
    const Type type = d.type();
    const bool half = is_float(type) && type != Type::f32 && type != Type::f64;
    if (type == Type::none || nbytes_of(type) == 1 || half || !d.done()) return false;
    const Operand target = d.take(), source = d.take();
    if (target.kind == Operand::Vector || source.kind == Operand::Vector)
        return move_vector(d, type, target, source);
    d.out.d = d.to(target, type);
    if (source.kind == Operand::Variable && !source.bracketed) {
        move_variable(d, type, source);
    } else if (source.kind == Operand::Name) {
        move_running(d, type, source);
    } else {
        d.out.a = d.from(source, type);
        d.out.run = move;
    }
    return true;
}

// -- generic addresses

uint64_t window_of(Space space) {
    switch (space) {
        case Space::shared: return shared_window;
        case Space::local: return local_window;
        default: return 0;  // global, constant and parameter addresses are generic as they are
    }
}

void add_window(Thread& t, const Instruction& i) {
    t.r[i.d] = t.r[i.a] + static_cast<uint64_t>(i.offset);
}

void drop_window(Thread& t, const Instruction& i) { t.r[i.d] = t.r[i.a] & within_window; }

void is_in_window(Thread& t, const Instruction& i) {
    t.r[i.d] = (t.r[i.a] & ~within_window) == static_cast<uint64_t>(i.offset);
}

void is_global(Thread& t, const Instruction& i) { t.r[i.d] = t.r[i.a] < shared_window; }

void is_constant(Thread& t, const Instruction& i) {
    t.r[i.d] = 0;
    for (const Variable& each : t.block->module.variables) {
        if (each.constant && t.r[i.a] - each.address < each.nbytes) t.r[i.d] = 1;
    }
}

bool space_word(Decoder& d, Space& space) {
    if (d.word("global")) space = Space::global;
    else if (d.one_of({"shared", "shared::cta"})) space = Space::shared;
    else if (d.word("local")) space = Space::local;
    else if (d.word("const")) space = Space::constant;
    else if (d.one_of({"param", "param::entry"})) space = Space::param;
    else return false;
    return true;
}

bool convert_address_rule(Decoder& d) {
    const bool from_generic = d.word("to");
    Space space;
    if (!space_word(d, space) || d.type() != Type::u64 || !d.done()) return false;
    d.out.d = d.to(Type::u64);
    const uint64_t window = window_of(space);
    const Operand source = d.take();
    if (source.kind == Operand::Variable && !source.bracketed) {
        if (from_generic || source.space != space)
            d.fail(source.name + " is a variable of another state space");
        d.out.a = source.slot;
        d.out.offset = source.offset;
    } else {
        d.out.a = d.from(source, Type::u64);
    }
    d.out.offset += static_cast<int64_t>(window);
    d.out.run = from_generic && window != 0 ? drop_window : add_window;
    return true;
}

bool is_space_rule(Decoder& d) {
    Space space;
    if (!space_word(d, space) || !d.done()) return false;
    d.out.d = d.to(Type::pred);
    d.out.a = d.from(Type::u64);
    d.out.offset = static_cast<int64_t>(space == Space::param ? param_window : window_of(space));
    d.out.run = space == Space::global     ? is_global
                : space == Space::constant ? is_constant
                                           : is_in_window;
    return true;
}

}  // namespace

void add_move_rules(Rules& rules) {
    rules.insert({{"mov", move_rule}, {"cvta", convert_address_rule}, {"isspacep", is_space_rule}});
}

}  // namespace ptx
