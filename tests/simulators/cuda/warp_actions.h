// What the threads of a warp do together, once all of them have come to it.
#pragma once

#include "machine.h"

namespace ptx {

// The lanes that take part; null for others.
struct Lanes {
    std::array<Thread*, warp_size> threads{};
};

// What a thread waits at.
inline const Instruction& instruction_of(const Thread& t) { return t.next[-1]; }

using Action = void (*)(Lanes&);

// What Instruction::mode holds, in the order of the words.
enum class Shuffle : uint16_t { up, down, bfly, idx };
enum class Vote : uint16_t { all, any, uni, ballot };
enum class Match : uint16_t { any, all };
enum class Redux : uint16_t { add, min, max, and_, or_, xor_ };
constexpr uint16_t negates = 8;  // of a vote: beside the word

void sync(Lanes& lanes);
void shuffle(Lanes& lanes);
void vote(Lanes& lanes);
void match(Lanes& lanes);
void redux(Lanes& lanes);

}  // namespace ptx
