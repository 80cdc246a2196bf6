// Entry points: modules, kernels, launches.
#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>

#include "faults.h"
#include "graph.h"
#include "module.h"
#include "runtime.h"

using namespace sim;

namespace {

std::shared_ptr<Module> load(Lock& lock, Context& context, const uint8_t* bytes, uint64_t nbytes) {
    std::string log;
    auto code = gfx9::Module::load(bytes, nbytes, log);
    if (!code) {
        set_message(log);
        refuse(log.find("another target") == std::string::npos ? INVALID_IMAGE : NO_BINARY_FOR_GPU);
    }
    auto module = std::make_shared<Module>(context, std::move(code));
    auto& image = module->code->image;
    module->image = allocate(lock, context, Kind::Variable, std::max<size_t>(image.size(), 1));
    module->code->place(module->image->address);
    std::memcpy(module->image->bytes, image.data(), image.size());
    driver().modules.live[reinterpret_cast<uintptr_t>(module->handle)] = module;
    return module;
}

// The kernels may be running.
void unload(Lock& lock, const std::shared_ptr<Module>& module) {
    driver().modules.remove(module->handle);
    for (auto& [name, handle] : module->functions) driver().functions.remove(handle);
    wait_for_all(lock, module->context);
    release(module->image);
}

Status load_image(const char* name, ModuleHandle* out, const void* image) {
    return enter_context(name, [&](Context& context, Lock& lock) {
        need(out && image);
        auto bytes = static_cast<const uint8_t*>(image);
        const uint64_t nbytes = gfx9::nbytes_of_object(bytes);
        need(nbytes > 0, INVALID_IMAGE);
        *out = load(lock, context, bytes, nbytes)->handle;
    });
}

int attribute_of(const Function& function, int attribute) {
    const gfx9::Function& code = *function.code;
    switch (attribute) {
        case 0: return int(std::min(code.max_threads, 1024u));
        case 1: return int(code.shared_nbytes);
        case 3: return int(code.private_nbytes);
        case 4: return int(code.vector_registers);
        case 5: case 6: return 906;
        case 8: return int(SHARED_MOST - code.shared_nbytes);
        default: need(attribute >= 0 && attribute <= 9); return 0;
    }
}

struct Shape {
    unsigned grid[3], block[3], dynamic_shared_nbytes;
};

void check_shape(const gfx9::Function& code, const Shape& is) {
    for (int axis = 0; axis < 3; ++axis) {
        need(is.grid[axis] > 0 && is.block[axis] > 0);
        need(is.grid[axis] <= (axis ? 65536u : 2147483647u) && is.block[axis] <= 1024);
        need(uint64_t(is.grid[axis]) * is.block[axis] <= 0xffffffff);  // of the dispatch packet
        need(!code.required[0] || is.block[axis] == code.required[axis]);
    }
    const uint64_t threads = uint64_t(is.block[0]) * is.block[1] * is.block[2];
    need(threads <= 1024);
    need(threads <= code.max_threads, LAUNCH_OUT_OF_RESOURCES);
    need(uint64_t(is.dynamic_shared_nbytes) + code.shared_nbytes <= SHARED_MOST);
}

// The `extra` way: one block, laid out by the caller. The keys are numbers.
void take(std::vector<uint8_t>& block, void** extra) {
    const void* bytes = nullptr;
    size_t nbytes = 0;
    for (; reinterpret_cast<uintptr_t>(*extra) != 3; extra += 2) {
        const auto key = reinterpret_cast<uintptr_t>(extra[0]);
        need(key == 1 || key == 2);
        if (key == 1) bytes = extra[1];
        else nbytes = *static_cast<size_t*>(extra[1]);
    }
    need(nbytes == 0 || bytes);
    std::memcpy(block.data(), bytes, std::min(nbytes, block.size()));
}

std::vector<uint8_t> parameters(const gfx9::Function& code, void** arguments, void** extra) {
    need(!(arguments && extra));
    std::vector<uint8_t> block(code.params_nbytes);
    if (extra) {
        take(block, extra);
        return block;
    }
    for (const gfx9::Param& param : code.params) {
        if (param.hidden()) continue;
        need(arguments && *arguments);
        std::memcpy(block.data() + param.offset, *arguments++, param.nbytes);
    }
    return block;
}

Status code_of(gfx9::Fault fault) {
    switch (fault) {
        case gfx9::Fault::OutOfBounds: return ILLEGAL_ADDRESS;
        case gfx9::Fault::Deadlock:
        case gfx9::Fault::Timeout: return LAUNCH_TIMEOUT;
        default: return LAUNCH_FAILED;
    }
}

// A kernel on the device. A failure that a test wants of "run" is one that comes late.
void execute(const Function& function, const Shape& shape, const std::vector<uint8_t>& params) {
    Context& context = function.module->context;
    if (Status wanted = arrived("run")) {
        Lock lock(driver().mutex);
        return fail(context, wanted, function.code->name + ": a failure that was asked for");
    }
    gfx9::Launch launch{};
    launch.function = function.code;
    std::copy(shape.grid, shape.grid + 3, launch.grid);
    std::copy(shape.block, shape.block + 3, launch.block);
    launch.dynamic_shared_nbytes = shape.dynamic_shared_nbytes;
    launch.params = params.data();
    launch.most_instructions = driver().settings.most_instructions;
    auto memory = memory_of(context);
    const gfx9::Outcome outcome = gfx9::run(*function.module->code, launch, *memory);
    if (outcome.fault == gfx9::Fault::None) return;
    if (outcome.fault == gfx9::Fault::OutOfBounds && driver().settings.fault_aborts) {
        std::fprintf(stderr, "Memory access fault by GPU node-1 (%s)\n", outcome.message.c_str());
        std::abort();
    }
    Lock lock(driver().mutex);
    fail(context, code_of(outcome.fault), function.code->name + ": " + outcome.message);
}

struct KernelNodeParams {
    unsigned block[3];
    void** extra;
    void* function;
    unsigned grid[3];
    void** arguments;
    unsigned shared_nbytes;
};

Task launch_task(Context& context, const KernelNodeParams* is) {
    need(is != nullptr);
    Shape shape{{is->grid[0], is->grid[1], is->grid[2]},
                {is->block[0], is->block[1], is->block[2]},
                is->shared_nbytes};
    auto function = driver().functions.get(is->function);
    need(&context == &function->module->context, INVALID_HANDLE);
    check_shape(*function->code, shape);
    auto params = parameters(*function->code, is->arguments, is->extra);
    return {Task::Launch, &context, [=] { execute(*function, shape, params); }};
}

}  // namespace

EXPORT Status hipGraphAddKernelNode(NodeHandle* out, GraphHandle graph, const NodeHandle* after,
                                    size_t count, const KernelNodeParams* is) {
    return enter_context("hipGraphAddKernelNode", [&](Context& context, Lock&) {
        add_node(graph, out, after, count, launch_task(context, is));
    });
}

EXPORT Status hipGraphExecKernelNodeSetParams(ExecHandle exec, NodeHandle node,
                                              const KernelNodeParams* is) {
    return enter_context("hipGraphExecKernelNodeSetParams", [&](Context& context, Lock&) {
        set_node(exec, node, launch_task(context, is));
    });
}

EXPORT Status hipModuleLoadData(ModuleHandle* out, const void* image) {
    return load_image("hipModuleLoadData", out, image);
}

EXPORT Status hipModuleLoadDataEx(ModuleHandle* out, const void* image, unsigned, void*, void**) {
    return load_image("hipModuleLoadDataEx", out, image);
}

EXPORT Status hipModuleLoad(ModuleHandle* out, const char* path) {
    return enter_context("hipModuleLoad", [&](Context& context, Lock& lock) {
        need(out && path);
        std::ifstream file(path, std::ios::binary);
        need(file.good(), FILE_NOT_FOUND);
        const std::vector<uint8_t> bytes{std::istreambuf_iterator<char>(file), {}};
        *out = load(lock, context, bytes.data(), bytes.size())->handle;
    });
}

EXPORT Status hipModuleUnload(ModuleHandle handle) {
    return enter_context("hipModuleUnload", [&](Context&, Lock& lock) {
        unload(lock, driver().modules.get(handle));
    });
}

EXPORT Status hipModuleGetFunction(FunctionHandle* out, ModuleHandle handle, const char* name) {
    return enter_context("hipModuleGetFunction", [&](Context&, Lock&) {
        need(out && name);
        auto module = driver().modules.get(handle);
        const gfx9::Function* code = module->code->find(name);
        need(code != nullptr, NOT_FOUND);
        FunctionHandle& known = module->functions[name];
        if (!known) {
            known = new_handle<FunctionHandle>();
            driver().functions.live[reinterpret_cast<uintptr_t>(known)] =
                std::make_shared<Function>(Function{module, code});
        }
        *out = known;
    });
}

EXPORT Status hipModuleGetGlobal(Address* address, size_t* nbytes, ModuleHandle handle,
                                 const char* name) {
    return enter_context("hipModuleGetGlobal", [&](Context&, Lock&) {
        need(name != nullptr);
        auto module = driver().modules.get(handle);
        for (const gfx9::Variable& variable : module->code->variables) {
            if (variable.name != name) continue;
            if (address) *address = module->image->address + variable.offset;
            if (nbytes) *nbytes = variable.nbytes;
            return;
        }
        refuse(NOT_FOUND);
    });
}

EXPORT Status hipFuncGetAttribute(int* out, int attribute, FunctionHandle handle) {
    return enter_context("hipFuncGetAttribute", [&](Context&, Lock&) {
        need(out != nullptr);
        *out = attribute_of(*driver().functions.get(handle), attribute);
    });
}

EXPORT Status hipModuleLaunchKernel(FunctionHandle handle, unsigned grid_x, unsigned grid_y,
                                    unsigned grid_z, unsigned block_x, unsigned block_y,
                                    unsigned block_z, unsigned dynamic_shared_nbytes,
                                    StreamHandle stream_handle, void** arguments, void** extra) {
    return enter_context("hipModuleLaunchKernel", [&](Context& context, Lock&) {
        Shape shape{{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, dynamic_shared_nbytes};
        auto function = driver().functions.get(handle);
        auto stream = stream_of(context, stream_handle);
        need(&stream->context == &function->module->context, INVALID_HANDLE);
        check_shape(*function->code, shape);
        auto params = parameters(*function->code, arguments, extra);
        submit(*stream, {"hipModuleLaunchKernel", [=] { execute(*function, shape, params); }});
    });
}
