// Modules and their kernels.
#pragma once

#include <map>

#include "engine.h"
#include "memory.h"

namespace sim {

struct Module {
    Context& context;
    ModuleHandle handle;
    std::unique_ptr<gfx9::Module> code;
    std::shared_ptr<Block> image;  // code and variables, in device memory
    std::map<std::string, FunctionHandle> functions{};

    Module(Context& context, std::unique_ptr<gfx9::Module> code)
        : context(context), handle(new_handle<ModuleHandle>()), code(std::move(code)) {}
};

struct Function {
    std::shared_ptr<Module> module;
    const gfx9::Function* code;
};

constexpr uint32_t SHARED_MOST = 64 << 10;  // bytes of a block

}  // namespace sim
