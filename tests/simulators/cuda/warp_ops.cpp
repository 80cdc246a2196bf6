// What the threads of a warp do together: shfl, vote, match, redux, bar.warp.sync, activemask.
//
// A thread waits until all lanes of its mask that still run have come to an instruction of the
// same kind with the same mask; then it is carried out for all of them at once.
#include <algorithm>

#include "decoder.h"
#include "machine.h"
#include "warp_actions.h"

namespace ptx {

namespace {

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
    return one.mask == other.mask && a.run == b.run && (a.mode & 7) == (b.mode & 7) &&
           a.type == b.type;
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
    const Type type = d.out.mode == static_cast<uint16_t>(Vote::ballot) ? Type::b32 : Type::pred;
    if (d.type() != type || !d.done()) return false;
    d.out.d = d.to(type);
    bool opposite = false;
    d.out.a = d.predicate(opposite);
    if (opposite) d.out.mode |= negates;
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
    if (target.pair && d.out.mode == static_cast<uint16_t>(Match::any))
        d.fail("only .all says whether all agree");
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
    const bool bits = d.out.mode >= static_cast<uint16_t>(Redux::and_);
    if (!d.done() || (bits ? type != Type::b32 : type != Type::s32 && type != Type::u32))
        return false;
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
    rules.insert({{"shfl", shuffle_rule},
                  {"vote", vote_rule},
                  {"match", match_rule},
                  {"redux", redux_rule},
                  {"bar", sync_rule},
                  {"activemask", activemask_rule}});
}

}  // namespace ptx
