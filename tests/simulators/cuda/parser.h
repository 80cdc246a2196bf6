// The statements of a module, one method each. Throws ParseError.
#pragma once

#include <map>
#include <string>

#include "cursor.h"
#include "declaration.h"
#include "symbols.h"

namespace ptx {

class Parser {
public:
    Parser(Module& module, const std::string& text);
    void whole();

    // For the parser of a routine.
    Cursor cursor;
    Module& module;
    std::map<std::string, Symbol> symbols;  // of the module
    Routine& routine(const std::string& name);
    const Routine* declared(const std::string& name) const;
    uint64_t place_shared(const Declaration& declared);

    // .file, .loc, .pragma, .section: nothing for one who only runs. False: something else.
    bool annotation();

private:
    void header();
    void statement();
    void variable(Space space, bool external);
    void global_or_constant(Space space, Declaration& declared);
    void function(bool is_entry);
    void finish();

    uint32_t shared_alignment_ = 1;
    std::map<std::string, uint32_t> called_;  // routine -> line of the first call

    friend class RoutineParser;
};

// The next multiple of `alignment`, a power of two.
uint64_t aligned(uint64_t offset, uint64_t alignment);

// A statement `.entry name (...) {...}` or `.func ...`, behind its first word.
void parse_routine(Parser& parser, bool is_entry);

}  // namespace ptx
