#include "warp_actions.h"

#include <algorithm>

namespace ptx {

void sync(Lanes&) {}

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
        switch (static_cast<Shuffle>(i.mode)) {
            case Shuffle::up: from = static_cast<int>(lane - b); inside = from >= max_lane; break;
            case Shuffle::down: from = static_cast<int>(lane + b); inside = from <= max_lane; break;
            case Shuffle::bfly: from = static_cast<int>(lane ^ b); inside = from <= max_lane; break;
            default:
                from = static_cast<int>(min_lane | (b & ~segment));
                inside = from <= max_lane;
                break;
        }
        const uint32_t source = inside ? static_cast<uint32_t>(from) : lane;
        put<uint32_t>(*t, i.d, values[source]);
        if (i.count == 2) put<uint32_t>(*t, t->routine->lists[i.list + 1], inside);
    }
}

void vote(Lanes& lanes) {
    uint32_t trues = 0, present = 0;
    for (uint32_t lane = 0; lane < warp_size; ++lane) {
        const Thread* t = lanes.threads[lane];
        if (t == nullptr) continue;
        const Instruction& i = instruction_of(*t);
        present |= 1u << lane;
        if ((t->r[i.a] != 0) != ((i.mode & negates) != 0)) trues |= 1u << lane;
    }
    for (Thread* t : lanes.threads) {
        if (t == nullptr) continue;
        const Instruction& i = instruction_of(*t);
        uint32_t result = trues;
        switch (static_cast<Vote>(i.mode & 3)) {
            case Vote::all: result = trues == present; break;
            case Vote::any: result = trues != 0; break;
            case Vote::uni: result = trues == present || trues == 0; break;
            default: break;
        }
        put<uint32_t>(*t, i.d, result);
    }
}

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
        put<uint32_t>(*t, i.d,
                      static_cast<Match>(i.mode) == Match::all && !whole ? 0 : same[t->lane]);
        if (i.count == 2) put<uint32_t>(*t, t->routine->lists[i.list + 1], whole);
    }
}

static uint32_t combined(Redux mode, bool is_signed, uint32_t a, uint32_t b) {
    const auto x = static_cast<int32_t>(a), y = static_cast<int32_t>(b);
    switch (mode) {
        case Redux::add: return a + b;
        case Redux::min: return is_signed ? static_cast<uint32_t>(std::min(x, y)) : std::min(a, b);
        case Redux::max: return is_signed ? static_cast<uint32_t>(std::max(x, y)) : std::max(a, b);
        case Redux::and_: return a & b;
        case Redux::or_: return a | b;
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
        total = started ? combined(static_cast<Redux>(i.mode), i.type == Type::s32, total, value)
                        : value;
        started = true;
    }
    for (Thread* t : lanes.threads) {
        if (t != nullptr) put<uint32_t>(*t, instruction_of(*t).d, total);
    }
}

}  // namespace ptx
