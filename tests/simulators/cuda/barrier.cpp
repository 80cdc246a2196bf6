// Barriers of a block (ISA, section 9.7.13.1), and fences.
#include "decoder.h"
#include "machine.h"

namespace ptx {

namespace {

enum Reduction : uint16_t { none, popc, all, any };

struct Mode {
    static constexpr uint16_t waits = 4, aligned = 8, counted = 16, negated = 32;
};

// Barriers count whole warps: a last one that is not full counts as if it were.
uint32_t weight_of(const Thread& t) {
    const uint32_t rest = t.block->size % warp_size;
    const bool last = t.index / warp_size == t.block->size / warp_size;
    return rest != 0 && last && t.lane == 0 ? warp_size - (rest - 1) : 1;
}

uint32_t expected_of(const Thread& t, const Instruction& i) {
    if ((i.mode & Mode::counted) == 0)
        return (t.block->size + warp_size - 1) / warp_size * warp_size;
    const uint32_t expected = get<uint32_t>(t, i.b);
    if (expected == 0 || expected % warp_size != 0)
        raise(Fault::Illegal, "a barrier counts whole warps");
    return expected;
}

void reduce(Thread& t, const Instruction& i, const Barrier& barrier) {
    switch (i.mode & 3) {
        case popc: return put<uint32_t>(t, i.d, barrier.trues);
        case all: return put<uint32_t>(t, i.d, barrier.trues == barrier.participants);
        case any: return put<uint32_t>(t, i.d, barrier.trues != 0);
        default: return;
    }
}

void complete(Block& block, uint32_t number) {
    const Thread* first = nullptr;
    for (Thread& thread : block.threads) {
        if (thread.state != State::AtBarrier || thread.barrier != number) continue;
        const Instruction& at = thread.next[-1];
        if (first == nullptr || first->warp != thread.warp) first = &thread;
        // In conditional code it is known that all threads of the warp take the same way.
        if ((at.mode & Mode::aligned) != 0 && first->next != thread.next) {
            raise(Fault::Deadlock, "threads of one warp come to different barriers, lines " +
                                       std::to_string(first->next[-1].line) + " and " +
                                       std::to_string(at.line));
        }
        reduce(thread, at, block.barriers[number]);
        thread.state = State::Ready;
    }
    block.barriers[number] = Barrier{};
}

void arrive(Thread& t, const Instruction& i) {
    const uint32_t number = get<uint32_t>(t, i.a);
    if (number >= t.block->barriers.size()) raise(Fault::Illegal, "a block has barriers 0 to 15");
    Barrier& barrier = t.block->barriers[number];
    const uint32_t expected = expected_of(t, i);
    if (barrier.arrived != 0 && barrier.expected != expected) {
        raise(Fault::Illegal, "a barrier at which threads expect different numbers of threads");
    }
    barrier.expected = expected;
    barrier.arrived += weight_of(t);
    if ((i.mode & 3) != none) {
        ++barrier.participants;
        barrier.trues += (t.r[i.c] != 0) != ((i.mode & Mode::negated) != 0);
    }
    if ((i.mode & Mode::waits) != 0) {
        t.state = State::AtBarrier;
        t.barrier = number;
    }
    if (barrier.arrived >= expected) complete(*t.block, number);
}

bool reduction(Decoder& d) {
    if (d.word("popc")) d.out.mode |= popc;
    else if (d.word("and")) d.out.mode |= all;
    else if (d.word("or")) d.out.mode |= any;
    else return false;
    return d.type() == ((d.out.mode & 3) == popc ? Type::u32 : Type::pred);
}

// bar.sync is short for barrier.sync.aligned.
template <bool is_short>
bool barrier_rule(Decoder& d) {
    d.word("cta");
    const bool arrives = d.word("arrive"), reduces = !arrives && d.word("red");
    if (!arrives && !reduces && !d.word("sync")) return false;
    if (!arrives) d.out.mode |= Mode::waits;
    const bool aligned = d.word("aligned");
    if (is_short && aligned) return false;
    if (is_short || aligned) d.out.mode |= Mode::aligned;
    if (reduces && !reduction(d)) return false;
    if (!d.done()) return false;
    if (reduces) d.out.d = d.to((d.out.mode & 3) == popc ? Type::u32 : Type::pred);
    const Operand number = d.peek();
    if (number.kind == Operand::Number && number.bits > 15) d.fail("a block has barriers 0 to 15");
    d.out.a = d.from(Type::u32);
    if (arrives || d.operands() == (reduces ? 4u : 2u)) {
        d.out.mode |= Mode::counted;
        const Operand count = d.peek();
        if (count.kind == Operand::Number && count.bits % warp_size != 0)
            d.fail("a barrier counts whole warps");
        d.out.b = d.from(Type::u32);
    }
    bool negated = false;
    if (reduces) d.out.c = d.predicate(negated);
    if (negated) d.out.mode |= Mode::negated;
    d.out.run = arrive;
    return true;
}

// One thread runs at a time and every access is done when the next begins.
void fence(Thread&, const Instruction&) {}

bool membar_rule(Decoder& d) {
    d.out.run = fence;
    return d.one_of({"cta", "gl", "sys"}) && d.done();
}

bool fence_rule(Decoder& d) {
    d.one_of({"sc", "acq_rel", "acquire", "release"});
    d.out.run = fence;
    return d.one_of({"cta", "cluster", "gpu", "sys"}) && d.done();
}

}  // namespace

void add_barrier_rules(Rules& rules) {
    rules.insert({{"bar", barrier_rule<true>}, {"barrier", barrier_rule<false>},
                  {"membar", membar_rule}, {"fence", fence_rule}});
}

}  // namespace ptx
