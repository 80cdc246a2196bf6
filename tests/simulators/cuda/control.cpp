// Jumps, calls, returns, and what else decides where a thread goes on.
#include "decoder.h"
#include "externals.h"
#include "machine.h"

namespace ptx {

namespace {

void jump(Thread& t, const Instruction& i) { t.next = &i + i.offset; }

void jump_by_index(Thread& t, const Instruction& i) {
    const uint32_t index = get<uint32_t>(t, i.a);
    if (index >= i.count) raise(Fault::Illegal, "an index behind the list of targets");
    t.next = t.routine->code.data() + t.routine->lists[i.list + index];
}

void stop(Thread& t, const Instruction&) { end_thread(t); }

void trap(Thread&, const Instruction&) { raise(Fault::Trap, "the kernel traps"); }

void nothing(Thread&, const Instruction&) {}

// -- calls. Of an operand two words stand in the list: whether it is a .param variable (else a
// register), and its place. The result, if there is one, comes first.

struct Place {
    bool in_memory;
    uint32_t at;
};

Place actual(const Instruction& i, const Routine& routine, size_t number) {
    return {routine.lists[i.list + 2 * number] != 0, routine.lists[i.list + 2 * number + 1]};
}

uint8_t* bytes_of(Thread& t, size_t registers_at, size_t local_at, Place place) {
    if (place.in_memory) return t.local.data() + local_at + place.at;
    return reinterpret_cast<uint8_t*>(t.registers.data() + registers_at + place.at);
}

Place formal(const Formal& each) {
    if (each.slot >= 0) return {false, static_cast<uint32_t>(each.slot)};
    return {true, static_cast<uint32_t>(each.offset)};
}

void call(Thread& t, const Instruction& i) {
    const Routine& caller = *t.routine;
    const Routine& called = *t.block->module.body->routines[static_cast<size_t>(i.offset)];
    if (!called.defined) return call_external(t, i, called);
    const size_t registers_at = t.registers_at, local_at = t.local_at;
    t.callers.push_back({&caller, &i, registers_at, local_at});
    enter(t, called);
    for (const SpecialSlot& each : called.specials) t.r[each.slot] = special_of(t, each.special);
    for (size_t number = 0; number < called.params.size(); ++number) {
        const Place from = actual(i, caller, called.results.size() + number);
        std::memcpy(bytes_of(t, t.registers_at, t.local_at, formal(called.params[number])),
                    bytes_of(t, registers_at, local_at, from), called.params[number].nbytes);
    }
}

void return_(Thread& t, const Instruction&) {
    if (t.callers.empty()) return end_thread(t);
    const Caller caller = t.callers.back();
    t.callers.pop_back();
    for (size_t number = 0; number < t.routine->results.size(); ++number) {
        const Formal& result = t.routine->results[number];
        std::memcpy(bytes_of(t, caller.registers, caller.local,
                             actual(*caller.call, *caller.routine, number)),
                    bytes_of(t, t.registers_at, t.local_at, formal(result)), result.nbytes);
    }
    t.registers.resize(t.registers_at);
    t.local.resize(t.local_at);
    t.registers_at = caller.registers;
    t.local_at = caller.local;
    t.routine = caller.routine;
    t.r = t.registers.data() + t.registers_at;
    t.next = caller.call + 1;
}

Place place_of(Decoder& d, const Operand& operand, const Formal& formal, bool result) {
    if (operand.kind == Operand::Variable) {
        if (operand.space != Space::param || operand.launch_param || operand.bracketed)
            d.fail("an argument is a .param variable");
        if (operand.nbytes != formal.nbytes)
            d.fail(operand.name + " is not of the parameter's size");
        return {true, static_cast<uint32_t>(operand.at)};
    }
    Type type = Type::none;
    for (const Type each : {Type::b8, Type::b16, Type::b32, Type::b64}) {
        if (nbytes_of(each) == formal.nbytes) type = each;
    }
    if (type == Type::none) d.fail("this parameter is no register's size");
    return {false, result ? d.to(operand, type) : d.from(operand, type)};
}

void add_places(Decoder& d, const Operand& group, const std::vector<Formal>& formals, bool result,
                std::vector<uint32_t>& list) {
    if (group.kind != Operand::Vector || group.parts.size() != formals.size()) {
        d.fail("a call with other operands than the function takes");
    }
    for (size_t number = 0; number < formals.size(); ++number) {
        const Place place = place_of(d, group.parts[number], formals[number], result);
        list.push_back(place.in_memory);
        list.push_back(place.at);
    }
}

bool call_rule(Decoder& d) {
    d.word("uni");
    if (!d.done()) return false;
    Operand none;
    none.kind = Operand::Vector;
    const Operand results = d.peek().kind == Operand::Vector ? d.take() : none;
    const Operand name = d.take();
    const Operand arguments = d.more() ? d.take() : none;
    const Routine* called = name.kind == Operand::Name ? d.frame.callee(name.name) : nullptr;
    if (called == nullptr)
        d.fail("no function " + name.name + " (calls through a register are not known here)");
    if (called->is_entry) d.fail("an entry is not called");
    std::vector<uint32_t> places;
    add_places(d, results, called->results, true, places);
    add_places(d, arguments, called->params, false, places);
    d.list(places);
    d.out.offset = called->number;
    d.out.run = call;
    return true;
}

bool jump_rule(Decoder& d) {
    d.word("uni");
    if (!d.done()) return false;
    const Operand& target = d.take();
    if (target.kind != Operand::Name) d.fail("a label expected (got " + target.name + ")");
    d.frame.jump(target.name);
    d.out.run = jump;
    return true;
}

bool indexed_rule(Decoder& d) {
    if (!d.word("idx")) return false;
    d.word("uni");
    if (!d.done()) return false;
    d.out.a = d.from(Type::u32);
    const Operand& targets = d.take();
    d.out.list = static_cast<uint32_t>(d.frame.routine().lists.size());
    const uint32_t count = d.frame.jump_table(targets.name);
    if (count == 0 || count > 65535) d.fail("no .branchtargets " + targets.name);
    d.out.count = static_cast<uint16_t>(count);
    d.out.run = jump_by_index;
    return true;
}

template <Handler run>
bool bare(Decoder& d) {
    d.out.run = run;
    return d.done();
}

bool return_rule(Decoder& d) {
    d.word("uni");
    return bare<return_>(d);
}

bool sleep_rule(Decoder& d) {
    if (!d.word("u32") || !d.done()) return false;
    d.from(Type::u32);
    d.out.run = nothing;
    return true;
}

}  // namespace

void add_control_rules(Rules& rules) {
    rules.insert({{"bra", jump_rule},
                  {"brx", indexed_rule},
                  {"call", call_rule},
                  {"ret", return_rule},
                  {"exit", bare<stop>},
                  {"trap", bare<trap>},
                  {"brkpt", bare<trap>},
                  {"nanosleep", sleep_rule}});
}

}  // namespace ptx
