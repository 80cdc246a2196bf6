// The PTX engine: text in, threads carried out. It knows nothing of the driver interface.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernel_memory.h"

namespace ptx {

struct Param {
    uint32_t offset, nbytes;  // in the block of parameters that a launch gives
};

// The address of another variable, in the initial value of one: 8 bytes at `offset`.
struct Relocation {
    uint64_t offset;
    uint32_t variable;  // in Module::variables
    int64_t addend;
};

// A module-level variable in global or constant memory. The driver gives it an address, below
// 0xf1 << 56: above lie the generic addresses of shared and local memory.
struct Variable {
    std::string name;
    uint64_t nbytes, alignment;
    std::vector<uint8_t> initial;  // as long as nbytes
    uint64_t address = 0;
    bool constant = false;
    std::vector<Relocation> relocations;  // most have none; see initial_bytes
};

struct Function {
    std::string name;
    std::vector<Param> params;
    uint32_t params_nbytes = 0;
    uint32_t shared_nbytes = 0;  // static, of a block
    uint32_t local_nbytes = 0;   // of a thread
    uint32_t registers = 0;      // of a thread, 32 bits each, as declared
    uint32_t max_threads = 1024; // .maxntid or .reqntid multiplied out
    uint32_t required[3] = {0, 0, 0};  // .reqntid; zeros: any
};

struct Body;  // the engine's own

class Module {
public:
    // Null where the text is not valid PTX; `log` then says why, with the line.
    static std::unique_ptr<Module> parse(const std::string& text, std::string& log);
    ~Module();

    std::vector<Function> functions;  // the entries
    std::vector<Variable> variables;
    std::unique_ptr<Body> body;
    uint32_t version = 0;  // of the ISA: 80 for 8.0
    uint32_t target = 0;   // 90 for sm_90

    const Function* find(const std::string& name) const;

private:
    Module();
};

using Memory = KernelMemory;

enum class Schedule {
    RunToBarrier,  // each thread runs until it waits: finds barriers that are missing
    Lockstep,      // 32 threads a warp step together, as hardware of old did
};

enum class Fault { None, OutOfBounds, Misaligned, Trap, Assert, Illegal, Deadlock, Timeout };

struct Outcome {
    Fault fault = Fault::None;
    std::string message;  // what, where in the text, which thread of which block
};

struct Launch {
    const Function* function;
    uint32_t grid[3], block[3];
    uint32_t dynamic_shared_nbytes;
    const uint8_t* params;  // function->params_nbytes bytes
    Schedule schedule;
    uint64_t most_instructions;  // of all threads together; 0: no bound. Beyond: Timeout
};

// What a variable begins with, addresses of others filled in. All variables have theirs by then.
std::vector<uint8_t> initial_bytes(const Module& module, const Variable& variable);

// Runs every thread of the grid to its end, or to the first fault.
Outcome run(const Module& module, const Launch& launch, Memory& memory);

}  // namespace ptx
