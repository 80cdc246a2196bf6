// Libraries: images that belong to no context, loaded into each one that uses them.
#include "module.h"

namespace sim {

struct Library {
    CUlibrary handle;
    std::string text;
    std::unique_ptr<ptx::Module> code;  // for what can be asked without a context
    std::map<Context*, std::shared_ptr<Module>> modules{};
    std::map<std::string, CUkernel> kernels{};
};

struct Kernel {
    std::shared_ptr<Library> library;
    const ptx::Function* code;
};

namespace {

std::shared_ptr<Module> module_in(Lock& lock, Context& context,
                                  const std::shared_ptr<Library>& library) {
    auto& module = library->modules[&context];
    if (!module) {
        Options options(0, nullptr, nullptr);
        module = load(lock, context, library->text, options);
        module->of_library = library.get();
    }
    return module;
}

CUkernel kernel_of(const std::shared_ptr<Library>& library, const char* name) {
    need(name != nullptr);
    auto known = library->kernels.find(name);
    if (known != library->kernels.end()) return known->second;
    const ptx::Function* code = library->code->find(name);
    need(code != nullptr, NOT_FOUND);
    auto handle = new_handle<CUkernel>();
    library->kernels[name] = handle;
    driver().kernels.live[reinterpret_cast<uintptr_t>(handle)] =
        std::make_shared<Kernel>(Kernel{library, code});
    return handle;
}

CUfunction function_in(Lock& lock, Context& context, const Kernel& kernel) {
    return function_of(module_in(lock, context, kernel.library), kernel.code->name.c_str());
}

void add(Lock&, CUlibrary* out, const std::string& text, Options& options) {
    auto library = std::make_shared<Library>();
    library->text = text;
    library->code = parse(text, options);
    library->handle = new_handle<CUlibrary>();
    driver().libraries.live[reinterpret_cast<uintptr_t>(library->handle)] = library;
    *out = library->handle;
}

}  // namespace

std::shared_ptr<Function> function_at(Lock& lock, Context& context, CUfunction handle) {
    if (auto kernel = driver().kernels.find(handle))
        return driver().functions.get(function_in(lock, context, *kernel));
    auto function = driver().functions.get(handle);
    check(function->module->context);
    return function;
}

}  // namespace sim

using namespace sim;

EXPORT CUresult cuLibraryLoadData(CUlibrary* out, const void* image, const unsigned* names,
                                  void** values, unsigned count, const unsigned*, void**,
                                  unsigned) {
    return enter("cuLibraryLoadData", [&](Lock& lock) {
        need(out != nullptr);
        Options options(count, names, values);
        add(lock, out, text_of(image), options);
    });
}

EXPORT CUresult cuLibraryUnload(CUlibrary handle) {
    return enter("cuLibraryUnload", [&](Lock& lock) {
        auto library = driver().libraries.get(handle);
        driver().libraries.remove(handle);
        for (auto& [name, kernel] : library->kernels) driver().kernels.remove(kernel);
        for (auto& [context, module] : library->modules)
            if (context->alive && context->error == SUCCESS) unload(lock, module);
    });
}

EXPORT CUresult cuLibraryGetKernel(CUkernel* out, CUlibrary handle, const char* name) {
    return enter("cuLibraryGetKernel", [&](Lock&) {
        need(out != nullptr);
        *out = kernel_of(driver().libraries.get(handle), name);
    });
}

EXPORT CUresult cuLibraryGetKernelCount(unsigned* out, CUlibrary handle) {
    return enter("cuLibraryGetKernelCount", [&](Lock&) {
        need(out != nullptr);
        *out = unsigned(driver().libraries.get(handle)->code->functions.size());
    });
}

EXPORT CUresult cuLibraryGetModule(CUmodule* out, CUlibrary handle) {
    return enter_context("cuLibraryGetModule", [&](Context& context, Lock& lock) {
        need(out != nullptr);
        *out = module_in(lock, context, driver().libraries.get(handle))->handle;
    });
}

EXPORT CUresult cuLibraryGetGlobal(CUdeviceptr* address, size_t* nbytes, CUlibrary handle,
                                   const char* name) {
    return enter_context("cuLibraryGetGlobal", [&](Context& context, Lock& lock) {
        auto module = module_in(lock, context, driver().libraries.get(handle));
        need(name != nullptr);
        auto found = module->variables.find(name);
        need(found != module->variables.end(), NOT_FOUND);
        if (address) *address = found->second->address;
        if (nbytes) *nbytes = found->second->nbytes;
    });
}

EXPORT CUresult cuKernelGetFunction(CUfunction* out, CUkernel handle) {
    return enter_context("cuKernelGetFunction", [&](Context& context, Lock& lock) {
        need(out != nullptr);
        *out = function_in(lock, context, *driver().kernels.get(handle));
    });
}

EXPORT CUresult cuKernelGetLibrary(CUlibrary* out, CUkernel handle) {
    return enter("cuKernelGetLibrary", [&](Lock&) {
        need(out != nullptr);
        *out = driver().kernels.get(handle)->library->handle;
    });
}

EXPORT CUresult cuKernelGetName(const char** out, CUkernel handle) {
    return enter("cuKernelGetName", [&](Lock&) {
        need(out != nullptr);
        *out = driver().kernels.get(handle)->code->name.c_str();
    });
}

EXPORT CUresult cuKernelGetParamInfo(CUkernel handle, size_t index, size_t* offset,
                                     size_t* nbytes) {
    return enter("cuKernelGetParamInfo", [&](Lock&) {
        auto& params = driver().kernels.get(handle)->code->params;
        need(offset && index < params.size());
        *offset = params[index].offset;
        if (nbytes) *nbytes = params[index].nbytes;
    });
}

// Of the kernel in the device's primary context, as that is where it would be launched.
EXPORT CUresult cuKernelGetAttribute(int* out, unsigned attribute, CUkernel handle,
                                     CUdevice ordinal) {
    return enter_context("cuKernelGetAttribute", [&](Context& context, Lock& lock) {
        need(out != nullptr);
        device_at(ordinal);
        auto kernel = reinterpret_cast<CUfunction>(handle);
        driver().kernels.get(handle);
        *out = attribute_of(*function_at(lock, context, kernel), attribute);
    });
}
