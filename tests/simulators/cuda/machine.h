// What runs: threads with a program counter and registers each, in warps and blocks.
#pragma once

#include <array>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "program.h"

namespace ptx {

constexpr uint32_t warp_size = 32;

struct Block;

// A fault on its way to the one who launched.
struct Raised {
    Fault fault;
    std::string what;
};

// A routine that is to be returned to.
struct Caller {
    const Routine* routine;
    const Instruction* call;
    size_t registers, local;  // where its frame starts
};

enum class State : uint8_t {
    Ready,
    AtBarrier,  // until Block::barriers[barrier] completes
    InWarp,     // until the lanes of `mask` have come to the same instruction
    Ended,
};

struct Thread {
    uint64_t* r;              // the frame of the running routine; moves when a call is made
    const Instruction* next;  // the program counter
    Block* block;
    State state;
    bool carry;  // CC.CF
    uint32_t barrier;
    uint32_t mask;  // of the lanes that a collective waits for
    uint32_t lane, warp, index;
    std::array<uint32_t, 3> place;  // tid
    const Routine* routine;
    size_t registers_at, local_at;  // where the running frame starts
    std::vector<uint64_t> registers;
    std::vector<uint8_t> local;
    std::vector<Caller> callers;
};

struct Barrier {
    uint32_t arrived = 0;   // threads; a last warp that is not full counts as 32
    uint32_t expected = 0;  // 0: nobody has come
    uint32_t trues = 0, participants = 0;  // of a reduction
};

struct Block {
    Block(const Module& module_of, const Launch& launch_of, Memory& memory_of)
        : module(module_of), launch(launch_of), memory(memory_of) {}

    const Module& module;
    const Launch& launch;
    Memory& memory;
    std::array<uint32_t, 3> place{};  // ctaid
    uint32_t size = 0;                // threads
    uint64_t steps = 0;             // instructions that were run, of the whole launch
    std::vector<Thread> threads;
    std::vector<uint8_t> shared;
    std::array<Barrier, 16> barriers;
    uint32_t in_warps = 0;  // threads that are InWarp
    std::vector<std::vector<uint64_t>>
        frames;           // of each routine, with the addresses of this launch
    uint32_t active = 0;  // lanes that run this instruction together, where schedule is Lockstep
};

// The value of a slot as T: the low bits.
template <class T>
T get(const Thread& thread, uint32_t slot) {
    T value;
    if constexpr (std::is_integral_v<T>) {
        value = static_cast<T>(thread.r[slot]);
    } else {
        std::memcpy(&value, &thread.r[slot], sizeof value);
    }
    return value;
}

// Signed integers keep their sign in the bits above, for registers that are wider.
template <class T>
void put(Thread& thread, uint32_t slot, T value) {
    if constexpr (std::is_integral_v<T>) {
        thread.r[slot] = static_cast<uint64_t>(value);
    } else {
        uint64_t bits = 0;
        std::memcpy(&bits, &value, sizeof value);
        thread.r[slot] = bits;
    }
}

// Host memory behind an address. Raises a fault where it is out of bounds or not aligned to
// `alignment`.
uint8_t* resolve(Thread& thread, Space space, uint64_t address, uint32_t nbytes,
                 uint32_t alignment, bool write);

[[noreturn]] void raise(Fault fault, const std::string& what);

// Makes a frame for `routine` behind all others; the thread goes on at its first instruction.
void enter(Thread& thread, const Routine& routine);

uint32_t special_of(const Thread& thread, Special special);

// Ends a thread; what waits for it is looked at again.
void end_thread(Thread& thread);

// Where all lanes that a collective waits for have come, carries it out and lets them go on.
void settle_warp(Block& block, uint32_t warp);

}  // namespace ptx
