// What the threads of a warp do together: shfl, vote, match, redux, bar.warp.sync, activemask.
//
// A thread waits until all lanes of its mask that still run have come to an instruction of the
// same kind with the same mask; then it is carried out for all of them at once.
#include <algorithm>

#include "decoder.h"
#include "machine.h"

namespace ptx {

namespace {

// The lanes that take part; null for others.
struct Lanes {
    std::array<Thread*, warp_size> threads{};
};

const Instruction& instruction_of(const Thread& t) { return t.next[-1]; }

using Action = void (*)(Lanes&);

// -- the actions

void sync(Lanes&) {}

enum Shuffle : uint16_t { up, down, bfly, idx };

// Source: section 9.7.9.6.
void shuffle(Lanes& lanes) {
    std::array<uint32_t, warp_size> values;
    values.fill(0xa5a5a5a5);  // what a lane that takes no part gives is left open
    for (uint32_t lane = 0; lane < warp_size; ++lane) {
        const Thread* t = lanes.threads[lane];
        if (t != nullptr) values[lane] = get<uint32_t>(*t, instruction_of(*t).a);
    }
    for (uint32_t lane = 0; lane < warp_size; ++lane) {
        Thread* t = lanes.threads[lane];
        if (t == nullptr) continue;
        const Instruction& i = instruction_of(*t);
        const uint32_t b = get<uint32_t>(*t, i.b) & 31, c = get<uint32_t>(*t, i.c);
        const uint32_t clamp = c & 31, segment = c >> 8 & 31;
        const auto max_lane = static_cast<int>((lane & segment) | (clamp & ~segment));
        const auto min_lane = lane & segment;
        int from = 0;
        bool inside = false;
        switch (i.mode) {
            case up: from = static_cast<int>(lane - b); inside = from >= max_lane; break;
            case down: from = static_cast<int>(lane + b); inside = from <= max_lane; break;
            case bfly: from = static_cast<int>(lane ^ b); inside = from <= max_lane; break;
            default: from = static_cast<int>(min_lane | (b & ~segment)); inside = from <= max_lane; break;
        }
        const uint32_t source = inside ? static_cast<uint32_t>(from) : lane;
        put<uint32_t>(*t, i.d, values[source]);
        if (i.count == 2) put<uint32_t>(*t, t->routine->lists[i.list + 1], inside);
    }
}

enum Vote : uint16_t { all, any, uni, ballot, negated = 8 };

void vote(Lanes& lanes) {
    uint32_t trues = 0, present = 0;
    for (uint32_t lane = 0; lane < warp_size; ++lane) {
        const Thread* t = lanes.threads[lane];
        if (t == nullptr) continue;
        const Instruction& i = instruction_of(*t);
        present |= 1u << lane;
        if ((t->r[i.a] != 0) != ((i.mode & negated) != 0)) trues |= 1u << lane;
    }
    for (Thread* t : lanes.threads) {
        if (t == nullptr) continue;
        const Instruction& i = instruction_of(*t);
        uint32_t result = trues;
        switch (i.mode & 3) {
            case all: result = trues == present; break;
            case any: result = trues != 0; break;
            case uni: result = trues == present || trues == 0; break;
            default: break;
        }
        put<uint32_t>(*t, i.d, result);
    }
}

enum Match : uint16_t { match_any, match_all };

void match(Lanes& lanes) {
    const auto value = [](const Thread& t) {
        const Instruction& i = instruction_of(t);
        return i.type == Type::b64 ? get<uint64_t>(t, i.a) : get<uint32_t>(t, i.a);
    };
    std::array<uint32_t, warp_size> same{};  // first for all, for a result may go to an operand
    uint32_t present = 0;
    for (uint32_t lane = 0; lane < warp_size; ++lane) {
        const Thread* t = lanes.threads[lane];
        if (t == nullptr) continue;
        present |= 1u << lane;
        for (uint32_t other = 0; other < warp_size; ++other) {
            const Thread* beside = lanes.threads[other];
            if (beside != nullptr && value(*beside) == value(*t)) same[lane] |= 1u << other;
        }
    }
    for (Thread* t : lanes.threads) {
        if (t == nullptr) continue;
        const Instruction& i = instruction_of(*t);
        const bool whole = same[t->lane] == present;
        put<uint32_t>(*t, i.d, i.mode == match_all && !whole ? 0 : same[t->lane]);
        if (i.count == 2) put<uint32_t>(*t, t->routine->lists[i.list + 1], whole);
    }
}

enum Redux : uint16_t { add, min, max, and_, or_, xor_ };

uint32_t combined(uint16_t mode, bool is_signed, uint32_t a, uint32_t b) {
    const auto x = static_cast<int32_t>(a), y = static_cast<int32_t>(b);
    switch (mode) {
        case add: return a + b;
        case min: return is_signed ? static_cast<uint32_t>(std::min(x, y)) : std::min(a, b);
        case max: return is_signed ? static_cast<uint32_t>(std::max(x, y)) : std::max(a, b);
        case and_: return a & b;
        case or_: return a | b;
        default: return a ^ b;
    }
}

void redux(Lanes& lanes) {
    bool started = false;
    uint32_t total = 0;
    for (const Thread* t : lanes.threads) {
        if (t == nullptr) continue;
        const Instruction& i = instruction_of(*t);
        const uint32_t value = get<uint32_t>(*t, i.a);
        total = started ? combined(i.mode, i.type == Type::s32, total, value) : value;
        started = true;
    }
    for (Thread* t : lanes.threads) {
        if (t != nullptr) put<uint32_t>(*t, instruction_of(*t).d, total);
    }
}

// -- waiting

template <Action action>
void join(Thread& t, const Instruction& i) {
    t.mask = get<uint32_t>(t, t.routine->lists[i.list]);
    if ((t.mask >> t.lane & 1) == 0) raise(Fault::Illegal, "a lane that is not in its own mask");
    t.state = State::InWarp;
    ++t.block->in_warps;
    settle_warp(*t.block, t.warp);
}

struct Row {
    Handler handler;
    Action action;
};

constexpr Row actions[] = {{join<sync>, sync}, {join<shuffle>, shuffle}, {join<vote>, vote},
                           {join<match>, match}, {join<redux>, redux}};

Action action_of(Handler handler) {
    for (const Row& row : actions) {
        if (row.handler == handler) return row.action;
    }
    return sync;
}

bool together(const Thread& one, const Thread& other) {
    const Instruction &a = instruction_of(one), &b = instruction_of(other);
    return one.mask == other.mask && a.run == b.run && (a.mode & 7) == (b.mode & 7) && a.type == b.type;
}

void activemask(Thread& t, const Instruction& i) {
    const bool lockstep = t.block->launch.schedule == Schedule::Lockstep;
    put<uint32_t>(t, i.d, lockstep ? t.block->active : 1u << t.lane);
}

}  // namespace

void settle_warp(Block& block, uint32_t warp) {
    const uint32_t first = warp * warp_size, last = std::min(first + warp_size, block.size);
    for (uint32_t place = first; place < last; ++place) {
        const Thread& waiting = block.threads[place];
        if (waiting.state != State::InWarp) continue;
        Lanes lanes;
        bool whole = true;
        for (uint32_t other = first; other < last && whole; ++other) {
            Thread& thread = block.threads[other];
            if ((waiting.mask >> thread.lane & 1) == 0 || thread.state == State::Ended) continue;
            whole = thread.state == State::InWarp && together(waiting, thread);
            lanes.threads[thread.lane] = &thread;
        }
        if (!whole) continue;
        action_of(instruction_of(waiting).run)(lanes);
        for (Thread* thread : lanes.threads) {
            if (thread == nullptr) continue;
            thread->state = State::Ready;
            --block.in_warps;
        }
    }
}

void end_thread(Thread& thread) {
    thread.state = State::Ended;
    if (thread.block->in_warps != 0) settle_warp(*thread.block, thread.warp);
}

// -- rules

namespace {

template <size_t count>
bool chosen(Decoder& d, const char* const (&names)[count]) {
    for (size_t number = 0; number < count; ++number) {
        if (d.word(names[number])) {
            d.out.mode = static_cast<uint16_t>(number);
            return true;
        }
    }
    return false;
}

bool shuffle_rule(Decoder& d) {
    constexpr const char* names[] = {"up", "down", "bfly", "idx"};
    if (!d.word("sync") || !chosen(d, names) || d.type() != Type::b32 || !d.done()) return false;
    const Operand target = d.take();
    std::vector<uint32_t> slots = {0};
    if (target.pair) slots.push_back(d.to(target.parts[1], Type::pred));
    d.out.d = d.to(target.pair ? target.parts[0] : target, Type::b32);
    d.out.a = d.from(Type::b32);
    d.out.b = d.from(Type::b32);
    d.out.c = d.from(Type::b32);
    slots[0] = d.from(Type::b32);
    d.list(slots);
    d.out.run = join<shuffle>;
    return true;
}

bool vote_rule(Decoder& d) {
    constexpr const char* names[] = {"all", "any", "uni", "ballot"};
    if (!d.word("sync") || !chosen(d, names)) return false;
    const Type type = d.out.mode == ballot ? Type::b32 : Type::pred;
    if (d.type() != type || !d.done()) return false;
    d.out.d = d.to(type);
    bool opposite = false;
    d.out.a = d.predicate(opposite);
    if (opposite) d.out.mode |= negated;
    d.list({d.from(Type::b32)});
    d.out.run = join<vote>;
    return true;
}

bool match_rule(Decoder& d) {
    constexpr const char* names[] = {"any", "all"};
    if (!chosen(d, names) || !d.word("sync")) return false;
    d.out.type = d.type();
    if ((d.out.type != Type::b32 && d.out.type != Type::b64) || !d.done()) return false;
    const Operand target = d.take();
    if (target.pair && d.out.mode == match_any) d.fail("only .all says whether all agree");
    d.out.d = d.to(target.pair ? target.parts[0] : target, Type::b32);
    d.out.a = d.from(d.out.type);
    std::vector<uint32_t> slots = {d.from(Type::b32)};
    if (target.pair) slots.push_back(d.to(target.parts[1], Type::pred));
    d.list(slots);
    d.out.run = join<match>;
    return true;
}

bool redux_rule(Decoder& d) {
    constexpr const char* names[] = {"add", "min", "max", "and", "or", "xor"};
    if (!d.word("sync") || !chosen(d, names)) return false;
    const Type type = d.type();
    const bool bits = d.out.mode >= and_;
    if (!d.done() || (bits ? type != Type::b32 : type != Type::s32 && type != Type::u32)) return false;
    d.out.type = type;
    d.out.d = d.to(type);
    d.out.a = d.from(type);
    d.list({d.from(Type::b32)});
    d.out.run = join<redux>;
    return true;
}

bool sync_rule(Decoder& d) {
    if (!d.word("warp") || !d.word("sync") || !d.done()) return false;
    d.list({d.from(Type::b32)});
    d.out.run = join<sync>;
    return true;
}

bool activemask_rule(Decoder& d) {
    if (d.type() != Type::b32 || !d.done()) return false;
    d.out.d = d.to(Type::b32);
    d.out.run = activemask;
    return true;
}

}  // namespace

void add_warp_rules(Rules& rules) {
    rules.insert({{"shfl", shuffle_rule}, {"vote", vote_rule}, {"match", match_rule}, {"redux", redux_rule},
                  {"bar", sync_rule}, {"activemask", activemask_rule}});
}

}  // namespace ptx
