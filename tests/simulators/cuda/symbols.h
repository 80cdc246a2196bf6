// Names and what they stand for, scope by scope.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "program.h"

namespace ptx {

struct Symbol {
    enum Kind : uint8_t {
        Register,
        ModuleVariable,  // global or constant; `number` is its place in Module::variables
        ModuleShared,    // `at` is its offset
        EntryShared,     // likewise, behind those of the module
        DynamicShared,
        Local,           // `at` is its offset in the frame; .local and .param alike
        LaunchParam,     // of an entry; `at` is its offset
    };
    Kind kind = Register;
    Space space = Space::generic;
    Type type = Type::none;
    uint32_t lanes = 1;  // of a vector of registers
    int64_t slot = -1;   // of a Register: the first; -1: not yet given
    uint32_t number = 0;
    uint64_t at = 0, nbytes = 0;
};

// .reg .b32 %r<9>: %r0 to %r8.
struct RegisterRange {
    Type type;
    uint32_t lanes;
    uint64_t count;
};

struct Scope {
    int parent = -1;
    std::map<std::string, Symbol> symbols;
    std::map<std::string, RegisterRange> ranges;
    std::map<std::string, uint32_t> labels;  // the instruction behind
    std::map<std::string, std::vector<std::string>> targets;  // .branchtargets
};

}  // namespace ptx
