// A wave: 64 threads that step together, with the registers that instructions read and write.
#pragma once

#include <cstring>

#include "engine.h"

namespace gfx9 {

constexpr int LANES = 64;

// Numbers of scalar registers that have names. Source: Vega ISA, "SGPRs and their encodings".
constexpr int FLAT_SCRATCH = 102, XNACK_MASK = 104, VCC = 106, M0 = 124, EXEC = 126;
constexpr int SCALARS = 128, VECTORS = 256;

// Upper halves of the generic addresses of shared and private memory.
constexpr uint32_t SHARED_APERTURE = 0x20000, PRIVATE_APERTURE = 0x10000;

// The second half of the buffer that private memory is: nobody but the engine knows its format.
constexpr uint64_t PRIVATE_BUFFER = 0x00e8f00006906906;

// How an instruction says no; `run` adds where it was.
struct Stop {
    Fault fault;
    std::string message;
    int lane = -1;
};

struct Instruction;

// What all waves of a block share.
struct Group {
    const Launch* launch;
    const Program* program;
    Memory* memory;
    uint64_t image;                  // device address of the code object
    uint32_t id[3];                  // of the block
    std::vector<uint8_t> shared;
    // The arguments and the dispatch packet: their addresses are those of the host.
    const uint8_t* params;
    uint64_t params_nbytes;
    const uint8_t* packet;
};

enum class State : uint8_t { Running, AtBarrier, Ended };

struct Wave {
    alignas(64) uint32_t v[VECTORS][LANES];
    uint32_t s[SCALARS];
    bool scc = false;
    State state = State::Running;
    uint32_t pc = 0;                 // number of the next instruction
    uint32_t first = 0;              // number of its first thread in the block
    // s_set_gpr_idx_on: which vector operands are moved by how many registers. Bits 0 to 2 are
    // sources, bit 3 the destination.
    uint32_t moved = 0, moved_by = 0;
    Group* group = nullptr;
    std::vector<uint8_t> own;        // private memory, of one lane behind the other

    uint64_t pair(int index) const {
        uint64_t value;
        std::memcpy(&value, &s[index], sizeof value);
        return value;
    }
    void set_pair(int index, uint64_t value) { std::memcpy(&s[index], &value, sizeof value); }
    uint64_t exec() const { return pair(EXEC); }
};

constexpr int PACKET_NBYTES = 64;

}  // namespace gfx9
