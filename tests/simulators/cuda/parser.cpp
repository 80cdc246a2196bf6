#include "parser.h"

#include <algorithm>
#include <sstream>

#include "externals.h"

namespace ptx {

uint64_t aligned(uint64_t offset, uint64_t alignment) {
    return (offset + alignment - 1) / alignment * alignment;
}

Parser::Parser(Module& made, const std::string& text) : cursor(tokens_of(text)), module(made) {
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) module.body->lines.push_back(line);
}

Routine& Parser::routine(const std::string& name) {
    Body& body = *module.body;
    Routine*& found = body.by_name[name];
    if (found == nullptr) {
        body.routines.push_back(std::make_unique<Routine>());
        found = body.routines.back().get();
        found->name = name;
        found->number = static_cast<uint32_t>(body.routines.size() - 1);
    }
    return *found;
}

const Routine* Parser::declared(const std::string& name) const {
    const auto found = module.body->by_name.find(name);
    return found == module.body->by_name.end() ? nullptr : found->second;
}

void Parser::whole() {
    header();
    while (!cursor.at_end()) statement();
    finish();
}

void Parser::header() {
    if (!cursor.dotted("version")) cursor.fail("a module begins with .version");
    // 8.0 is read as one number with a point.
    const std::string& line = module.body->lines[cursor.line() - 1];
    unsigned major = 0, minor = 0;
    const size_t place = line.find(".version");
    if (place == std::string::npos ||
        std::sscanf(line.c_str() + place, ".version %u.%u", &major, &minor) != 2 || major > 99 ||
        minor > 9) {
        cursor.fail(".version takes a number like 8.0");
    }
    cursor.take();
    module.version = 10 * major + minor;
    if (module.version < 60) cursor.fail("an ISA older than 6.0");
    if (!cursor.dotted("target")) cursor.fail(".target expected behind .version");
    const std::string target = cursor.word("an architecture");
    if (std::sscanf(target.c_str(), "sm_%u", &module.target) != 1)
        cursor.fail("no architecture: " + target);
    while (cursor.mark(",")) cursor.word("an option of .target");
    if (!cursor.dotted("address_size") || cursor.integer("a size") != 64) {
        cursor.fail(".address_size 64 expected behind .target");
    }
}

bool Parser::annotation() {
    if (cursor.dotted("pragma")) {
        cursor.skip_past(";");
    } else if (cursor.dotted("file")) {
        cursor.integer("a number of a file");
        cursor.string();
        while (cursor.mark(",")) cursor.integer("a time or a size");
    } else if (cursor.dotted("loc")) {
        for (int part = 0; part < 3; ++part) cursor.integer("a place in a file");
        while (cursor.mark(",")) {
            if (cursor.word("function_name or inlined_at") == "inlined_at") {
                for (int part = 0; part < 3; ++part) cursor.integer("a place in a file");
            } else {
                cursor.word("a label");
                if (cursor.mark("+")) cursor.integer("an offset");
            }
        }
    } else if (cursor.dotted("section")) {
        cursor.skip_past("{");
        cursor.skip_past("}");
    } else {
        return false;
    }
    return true;
}

void Parser::statement() {
    if (annotation() || cursor.mark(";")) return;
    bool external = false;
    while (cursor.peek().kind == Token::Dotted) {
        if (cursor.dotted("extern")) external = true;
        else if (!cursor.dotted("visible") && !cursor.dotted("weak") && !cursor.dotted("common"))
            break;
    }
    if (cursor.dotted("entry")) return parse_routine(*this, true);
    if (cursor.dotted("func")) return parse_routine(*this, false);
    if (cursor.dotted("global")) return variable(Space::global, external);
    if (cursor.dotted("const")) return variable(Space::constant, external);
    if (cursor.dotted("shared")) return variable(Space::shared, external);
    cursor.fail("a statement of a module expected (got " + shown(cursor.peek()) + ")");
}

// -- variables

uint64_t Parser::place_shared(const Declaration& declared) {
    uint32_t& end = module.body->shared_nbytes;
    const uint64_t at = aligned(end, declared.alignment);
    if (at + declared.nbytes > 1u << 20) cursor.fail("more shared memory than any block has");
    end = static_cast<uint32_t>(at + declared.nbytes);
    return at;
}

void Parser::variable(Space space, bool external) {
    Declaration declared = declaration(cursor);
    while (true) {
        if (declared.is_range) cursor.fail("only registers come by the number");
        if (symbols.count(declared.name) != 0) cursor.fail("a second " + declared.name);
        if (nbytes_of(declared.type) == 0) cursor.fail("predicates live in registers alone");
        if (space != Space::shared) {
            if (external)
                cursor.fail(declared.name + " is of another module, and nothing is linked");
            global_or_constant(space, declared);
        } else {
            if (declared.unsized && !external)
                cursor.fail("only .extern .shared is without a size");
            Symbol symbol;
            symbol.kind = external ? Symbol::DynamicShared : Symbol::ModuleShared;
            symbol.space = space;
            symbol.nbytes = declared.nbytes;
            if (!external) symbol.at = place_shared(declared);
            symbols[declared.name] = symbol;
        }
        if (!cursor.mark(",")) break;
        declared = another(cursor, declared);
    }
    cursor.expect(";");
}

void Parser::global_or_constant(Space space, Declaration& declared) {
    Variable made;
    made.name = declared.name;
    made.nbytes = declared.unsized ? 0 : declared.nbytes;
    made.alignment = declared.alignment;
    made.constant = space == Space::constant;
    made.initial.resize(made.nbytes);
    Symbol symbol;
    symbol.kind = Symbol::ModuleVariable;
    symbol.space = space;
    symbol.number = static_cast<uint32_t>(module.variables.size());
    symbols[declared.name] = symbol;  // its initial value may name it
    if (cursor.mark("=")) {
        initialiser(cursor, declared, made, [this](const std::string& name) -> int64_t {
            const auto found = symbols.find(name);
            const bool fits =
                found != symbols.end() && found->second.kind == Symbol::ModuleVariable;
            return fits ? static_cast<int64_t>(found->second.number) : -1;
        });
    } else if (declared.unsized) {
        cursor.fail("an array without a size and without an initial value");
    }
    symbols[declared.name].nbytes = made.nbytes;
    module.variables.push_back(std::move(made));
}

// -- the end

void Parser::finish() {
    Body& body = *module.body;
    for (const auto& [name, line] : called_) {
        const Routine& called = *body.by_name.at(name);
        if (called.defined) continue;
        if (!is_external(name)) throw ParseError(line, "a call of " + name + ", which has no body");
        const char* problem = external_problem(called);
        if (problem != nullptr) throw ParseError(line, name + ": " + problem);
    }
    const auto own = static_cast<uint32_t>(aligned(body.shared_nbytes, 128));
    for (auto& routine : body.routines) {
        for (const uint32_t slot : routine->own_shared) routine->frame[slot] += own;
    }
    for (Function& function : module.functions) {
        function.shared_nbytes = function.shared_nbytes == 0 ? body.shared_nbytes
                                                            : own + function.shared_nbytes;
        if (function.shared_nbytes > 48 * 1024) {
            throw ParseError(1, function.name + " takes " + std::to_string(function.shared_nbytes) +
                                    " bytes of shared memory; 49152 is the limit");
        }
    }
}

}  // namespace ptx
