// Loading, unloading, and what is found in a module.
#include "module.h"

#include <cstring>

namespace sim {

Function::Function(std::shared_ptr<Module> module, const ptx::Function* code)
    : module(std::move(module)),
      code(code),
      dynamic_shared_nbytes(SHARED_DEFAULT - std::min(SHARED_DEFAULT, code->shared_nbytes)) {}

std::shared_ptr<Module> load(Lock& lock, Context& context, const std::string& text,
                             Options& options) {
    auto module = std::make_shared<Module>(context, parse(text, options));
    try {
        for (ptx::Variable& variable : module->code->variables) {
            if (variable.nbytes == 0) continue;
            auto block = allocate(lock, context, Kind::Variable, variable.nbytes);
            std::memset(block->bytes, 0, variable.nbytes);
            std::memcpy(block->bytes, variable.initial.data(),
                        std::min<size_t>(variable.initial.size(), variable.nbytes));
            variable.address = block->address;
            module->variables[variable.name] = block;
        }
    } catch (const Refused&) {
        for (auto& [name, block] : module->variables) release(block);
        throw;
    }
    driver().modules.live[reinterpret_cast<uintptr_t>(module->handle)] = module;
    return module;
}

void unload(Lock& lock, const std::shared_ptr<Module>& module) {
    driver().modules.remove(module->handle);
    for (auto& [name, handle] : module->functions) driver().functions.remove(handle);
    wait_for_all(lock, module->context);
    for (auto& [name, block] : module->variables) release(block);
}

CUfunction function_of(const std::shared_ptr<Module>& module, const char* name) {
    need(name != nullptr);
    auto known = module->functions.find(name);
    if (known != module->functions.end()) return known->second;
    const ptx::Function* code = module->code->find(name);
    need(code != nullptr, NOT_FOUND);
    auto handle = new_handle<CUfunction>();
    module->functions[name] = handle;
    driver().functions.live[reinterpret_cast<uintptr_t>(handle)] =
        std::make_shared<Function>(module, code);
    return handle;
}

std::shared_ptr<Function> function_at(CUfunction handle) {
    auto function = driver().functions.get(handle);
    check(function->module->context);
    return function;
}

}  // namespace sim

using namespace sim;

namespace {

CUresult load_image(const char* name, CUmodule* out, const void* image, unsigned count,
                    const unsigned* names, void** values) {
    return enter_context(name, [&](Context& context, Lock& lock) {
        need(out != nullptr);
        Options options(count, names, values);
        *out = load(lock, context, text_of(image), options)->handle;
    });
}

}  // namespace

EXPORT CUresult cuModuleLoadData(CUmodule* out, const void* image) {
    return load_image("cuModuleLoadData", out, image, 0, nullptr, nullptr);
}

EXPORT CUresult cuModuleLoadDataEx(CUmodule* out, const void* image, unsigned count,
                                   const unsigned* names, void** values) {
    return load_image("cuModuleLoadDataEx", out, image, count, names, values);
}

EXPORT CUresult cuModuleLoadFatBinary(CUmodule* out, const void* image) {
    return load_image("cuModuleLoadFatBinary", out, image, 0, nullptr, nullptr);
}

EXPORT CUresult cuModuleUnload(CUmodule handle) {
    return enter_context("cuModuleUnload", [&](Context&, Lock& lock) {
        unload(lock, driver().modules.get(handle));
    });
}

EXPORT CUresult cuModuleGetFunction(CUfunction* out, CUmodule handle, const char* name) {
    return enter_context("cuModuleGetFunction", [&](Context&, Lock&) {
        need(out != nullptr);
        *out = function_of(driver().modules.get(handle), name);
    });
}

EXPORT CUresult cuModuleGetGlobal_v2(CUdeviceptr* address, size_t* nbytes, CUmodule handle,
                                     const char* name) {
    return enter_context("cuModuleGetGlobal", [&](Context&, Lock&) {
        auto module = driver().modules.get(handle);
        need(name != nullptr);
        auto found = module->variables.find(name);
        need(found != module->variables.end(), NOT_FOUND);
        if (address) *address = found->second->address;
        if (nbytes) *nbytes = found->second->nbytes;
    });
}
