// The GFX9 engine: a code object of gfx906 in, threads carried out. It knows nothing of the runtime.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernel_memory.h"

namespace gfx9 {

// An argument as the metadata names it: "by_value", "global_buffer", or one that the runtime fills
// in, whose kind begins with "hidden_".
struct Param {
    std::string kind;
    uint32_t offset, nbytes;  // in the block of arguments

    bool hidden() const { return kind.rfind("hidden_", 0) == 0; }
};

// What the kernel descriptor asks to find in its registers. Source: LLVM's AMDGPU usage, "Initial
// Kernel Execution State".
struct Descriptor {
    uint64_t entry = 0;                         // offset of the code in the image
    uint32_t rsrc1 = 0, rsrc2 = 0, properties = 0;
};

struct Function {
    std::string name;
    std::vector<Param> params;                  // with the hidden ones
    uint32_t params_nbytes = 0;
    uint32_t shared_nbytes = 0;                 // static, of a block
    uint32_t private_nbytes = 0;                // of a thread
    uint32_t vector_registers = 0, scalar_registers = 0;
    uint32_t max_threads = 1024;
    uint32_t required[3] = {0, 0, 0};           // zeros: any block
    Descriptor descriptor;
};

struct Variable {
    std::string name;
    uint64_t offset, nbytes;                    // in the image
};

struct Program;  // decoded; the engine's own

class Module {
public:
    // Null where the bytes are no code object that this engine can carry out; `log` says why.
    static std::unique_ptr<Module> load(const uint8_t* bytes, uint64_t nbytes, std::string& log);
    ~Module();

    std::string target;                         // "amdgcn-amd-amdhsa--gfx906"
    std::vector<Function> functions;
    std::vector<Variable> variables;
    std::vector<uint8_t> image;                 // as it is loaded, code and data
    std::unique_ptr<Program> program;
    std::vector<std::string> unknown;           // instructions that would be a fault, each once

    // Gives the image its device address: pointers within it are filled in.
    void place(uint64_t address);
    const Function* find(const std::string& name) const;

private:
    Module();
    friend class Loader;
};

// How many bytes the code object has that begins there, by its own headers; 0: it is none.
uint64_t nbytes_of_object(const uint8_t* bytes);

using Memory = KernelMemory;

enum class Fault { None, OutOfBounds, Misaligned, Trap, Illegal, Deadlock, Timeout };

struct Outcome {
    Fault fault = Fault::None;
    std::string message;  // what, which instruction, which thread of which block
};

struct Launch {
    const Function* function;
    uint32_t grid[3], block[3];
    uint32_t dynamic_shared_nbytes;
    const uint8_t* params;        // function->params_nbytes bytes; the hidden ones are filled in here
    uint64_t most_instructions;   // of all waves together; 0: no bound. Beyond: Timeout
};

// Runs every thread of the grid to its end, or to the first fault.
Outcome run(const Module& module, const Launch& launch, Memory& memory);

}  // namespace gfx9
