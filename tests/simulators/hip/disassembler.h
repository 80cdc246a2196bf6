// AMD's own disassembler, in a process of its own: its LLVM and that of PoCL, in one process, end it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gfx9 {

struct Line {
    uint32_t nbytes;
    std::string text;
};

// All instructions of a piece of code; empty with `log` where there is no disassembler.
std::vector<Line> disassemble(const uint8_t* code, uint64_t nbytes, std::string& log);

}  // namespace gfx9
