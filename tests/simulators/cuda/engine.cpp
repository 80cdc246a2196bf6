#include "engine.h"

#include <cstring>

#include "parser.h"

namespace ptx {

Module::Module() : body(std::make_unique<Body>()) {}
Module::~Module() = default;

std::unique_ptr<Module> Module::parse(const std::string& text, std::string& log) {
    std::unique_ptr<Module> made(new Module);
    try {
        Parser(*made, text).whole();
    } catch (const ParseError& error) {
        log = error.what();
        return nullptr;
    }
    return made;
}

const Function* Module::find(const std::string& name) const {
    for (const Function& function : functions) {
        if (function.name == name) return &function;
    }
    return nullptr;
}

std::vector<uint8_t> initial_bytes(const Module& module, const Variable& variable) {
    std::vector<uint8_t> bytes = variable.initial;
    for (const Relocation& each : variable.relocations) {
        const uint64_t address =
            module.variables[each.variable].address + static_cast<uint64_t>(each.addend);
        std::memcpy(&bytes[each.offset], &address, sizeof address);
    }
    return bytes;
}

}  // namespace ptx
