// Blocks one after the other; of each, threads in one of two orders.
#include <algorithm>
#include <cstring>

#include "machine.h"

namespace ptx {

namespace {

constexpr uint32_t slice = 1u << 16;  // instructions until another thread gets its turn
constexpr uint32_t patience = 1024;   // steps of a warp until threads left behind get theirs
constexpr uint8_t unwritten = 0xa5;   // shared memory that nobody has written

void start(Thread& thread, const Routine& entry) {
    thread.registers.clear();
    thread.local.clear();
    thread.callers.clear();
    thread.carry = false;
    enter(thread, entry);
    for (const SpecialSlot& each : entry.specials) {
        thread.r[each.slot] = special_of(thread, each.special);
    }
}

bool takes_part(const Thread& thread, const Instruction& instruction) {
    return instruction.guard < 0 || (thread.r[instruction.guard] != 0) != instruction.negated;
}

// One instruction.
inline void step(Thread& thread) {
    const Instruction& instruction = *thread.next++;
    if (takes_part(thread, instruction)) instruction.run(thread, instruction);
}

class Scheduler {
public:
    Scheduler(Block& block, const Routine& entry) : block_(block), entry_(entry) {}

    // Until all threads have ended. Raises Deadlock where none can go on.
    void run() {
        const bool lockstep = block_.launch.schedule == Schedule::Lockstep;
        for (Thread& thread : block_.threads) thread.state = State::Ready;
        if (lockstep) {
            for (Thread& thread : block_.threads) start(thread, entry_);
        } else {
            first_turn_of_threads();
        }
        while (lockstep ? turn_of_warps() : turn_of_threads()) {
        }
        for (Thread& thread : block_.threads) {
            if (thread.state == State::Ended) continue;
            running_ = &thread;
            raise(Fault::Deadlock, thread.state == State::AtBarrier
                                       ? "waits at a barrier that other threads never come to"
                                       : "waits for threads of its warp that never come");
        }
    }

    const Thread* running() const { return running_; }

private:
    void count(uint64_t steps) {
        block_.steps += steps;
        const uint64_t most = block_.launch.most_instructions;
        if (most != 0 && block_.steps > most)
            raise(Fault::Timeout, "more instructions than the launch may take");
    }

    void turn_of(Thread& thread) {
        running_ = &thread;
        uint32_t left = slice;
        do step(thread);
        while (thread.state == State::Ready && --left != 0);
        count(slice - left + 1);
    }

    // A thread is made just before it runs, for most run to their end at once: what was written
    // is then still in the cache.
    void first_turn_of_threads() {
        for (Thread& thread : block_.threads) {
            start(thread, entry_);
            turn_of(thread);
        }
    }

    bool turn_of_threads() {
        bool any = false;
        for (Thread& thread : block_.threads) {
            if (thread.state != State::Ready) continue;
            any = true;
            turn_of(thread);
        }
        return any;
    }

    // A step of each warp.
    bool turn_of_warps() {
        bool any = false;
        for (uint32_t first = 0; first < block_.size; first += warp_size) {
            any |= step_together(first, std::min(first + warp_size, block_.size));
        }
        ++turns_;
        return any;
    }

    // Threads that have fallen behind go first, so that they meet the others again: those of the
    // innermost call, then of the least place in the text. Now and then the turn is that of who
    // is farthest, or a thread that spins would keep the one it waits for from running.
    bool step_together(uint32_t first, uint32_t last) {
        const bool reversed = turns_ % patience == patience - 1;
        const Thread* chosen = nullptr;
        for (uint32_t place = first; place < last; ++place) {
            const Thread& thread = block_.threads[place];
            if (thread.state != State::Ready) continue;
            if (chosen != nullptr && thread.next == chosen->next) continue;
            if (chosen == nullptr ||
                (reversed ? goes_first(*chosen, thread) : goes_first(thread, *chosen))) {
                chosen = &thread;
            }
        }
        if (chosen == nullptr) return false;
        const Instruction* at = chosen->next;
        uint32_t together[warp_size], size = 0;
        block_.active = 0;
        for (uint32_t place = first; place < last; ++place) {
            const Thread& thread = block_.threads[place];
            if (thread.state != State::Ready || thread.next != at) continue;
            together[size++] = place;
            if (takes_part(thread, *at)) block_.active |= 1u << thread.lane;
        }
        for (uint32_t number = 0; number < size; ++number) {
            running_ = &block_.threads[together[number]];
            step(block_.threads[together[number]]);
        }
        count(size);
        return true;
    }

    static bool goes_first(const Thread& one, const Thread& other) {
        if (one.callers.size() != other.callers.size())
            return one.callers.size() > other.callers.size();
        if (one.routine != other.routine) return one.routine->number > other.routine->number;
        return one.next < other.next;
    }

    Block& block_;
    const Routine& entry_;
    const Thread* running_ = nullptr;
    uint64_t turns_ = 0;
};

// The frames that calls begin with, now that variables have addresses.
void place_frames(Block& block, uint64_t static_shared) {
    for (const auto& routine : block.module.body->routines) {
        std::vector<uint64_t> frame = routine->frame;
        for (const AddressSlot& each : routine->addresses) {
            frame[each.slot] = block.module.variables[each.variable].address;
        }
        for (const uint32_t slot : routine->dynamic_shared) frame[slot] = static_shared;
        block.frames.push_back(std::move(frame));
    }
}

std::string place_of(const std::array<uint32_t, 3>& place) {
    return "(" + std::to_string(place[0]) + ", " + std::to_string(place[1]) + ", " +
           std::to_string(place[2]) + ")";
}

std::string described(const Block& block, const Thread* thread, const std::string& what) {
    if (thread == nullptr) return what;
    const Instruction& at =
        *(thread->next == thread->routine->code.data() ? thread->next : thread->next - 1);
    const std::vector<std::string>& lines = block.module.body->lines;
    std::string text = at.line >= 1 && at.line <= lines.size() ? lines[at.line - 1] : "";
    text.erase(0, text.find_first_not_of(" \t"));
    return what + "; line " + std::to_string(at.line) + ": " + text + "; thread " +
           place_of(thread->place) + " of block " + place_of(block.place) + " of " +
           block.launch.function->name;
}

void run_block(Block& block, const Routine& entry, const Thread*& running) {
    std::fill(block.shared.begin(), block.shared.end(), unwritten);
    block.barriers.fill(Barrier{});
    block.in_warps = 0;
    Scheduler scheduler(block, entry);
    try {
        scheduler.run();
    } catch (const Raised&) {
        running = scheduler.running();
        throw;
    }
}

std::string refusal(const Launch& launch) {
    const Function& function = *launch.function;
    uint64_t threads = 1;
    for (int axis = 0; axis < 3; ++axis) {
        if (launch.block[axis] == 0 || launch.grid[axis] == 0) return "an extent of 0";
        if (launch.block[axis] > 1024) return "more than 1024 threads in a block";
        threads *= launch.block[axis];
        if (function.required[axis] != 0 && function.required[axis] != launch.block[axis]) {
            return "a block other than .reqntid says";
        }
    }
    if (threads > function.max_threads) return "a block of more threads than the kernel allows";
    return "";
}

}  // namespace

Outcome run(const Module& module, const Launch& launch, Memory& memory) {
    const std::string refused = refusal(launch);
    if (!refused.empty())
        return {Fault::Illegal, refused + " in a launch of " + launch.function->name};
    const uint32_t* extents = launch.block;
    Block block(module, launch, memory);
    block.size = extents[0] * extents[1] * extents[2];
    const Routine& entry = *module.body->by_name.at(launch.function->name);
    // Dynamic shared memory starts where any type may.
    const uint64_t behind = (launch.function->shared_nbytes + 127ull) / 128 * 128;
    const bool dynamic = launch.dynamic_shared_nbytes != 0;
    block.shared.resize(dynamic ? behind + launch.dynamic_shared_nbytes
                                : launch.function->shared_nbytes);
    place_frames(block, behind);
    block.threads.resize(block.size);
    for (uint32_t index = 0; index < block.size; ++index) {
        Thread& thread = block.threads[index];
        thread.block = &block;
        thread.index = index;
        thread.lane = index % warp_size;
        thread.warp = index / warp_size;
        thread.place = {index % extents[0], index / extents[0] % extents[1],
                        index / extents[0] / extents[1]};
    }
    const Thread* running = nullptr;
    try {
        for (uint32_t z = 0; z < launch.grid[2]; ++z) {
            for (uint32_t y = 0; y < launch.grid[1]; ++y) {
                for (uint32_t x = 0; x < launch.grid[0]; ++x) {
                    block.place = {x, y, z};
                    run_block(block, entry, running);
                }
            }
        }
    } catch (const Raised& raised) {
        return {raised.fault, described(block, running, raised.what)};
    }
    return {};
}

}  // namespace ptx
