// Entry points: launches.
#include <cstring>

#include "faults.h"
#include "module.h"

namespace sim {
namespace {

void check_shape(const Function& function, const Shape& is) {
    const ptx::Function& code = *function.code;
    for (int axis = 0; axis < 3; ++axis) need(is.grid[axis] > 0 && is.block[axis] > 0);
    need(is.grid[0] <= 0x7fffffff && is.grid[1] <= 65535 && is.grid[2] <= 65535);
    need(is.block[0] <= 1024 && is.block[1] <= 1024 && is.block[2] <= 64);
    uint64_t threads = uint64_t(is.block[0]) * is.block[1] * is.block[2];
    need(threads <= 1024);
    need(threads <= code.max_threads, LAUNCH_OUT_OF_RESOURCES);
    if (code.required[0])
        for (int axis = 0; axis < 3; ++axis)
            need(is.block[axis] == std::max(1u, code.required[axis]));
    need(is.dynamic_shared_nbytes <= function.dynamic_shared_nbytes);
}

// Arguments as an array of pointers, one to each.
void gather(std::vector<uint8_t>& block, const ptx::Function& code, void** arguments) {
    for (size_t index = 0; index < code.params.size(); ++index) {
        const ptx::Param& param = code.params[index];
        need(arguments[index] != nullptr);
        std::memcpy(block.data() + param.offset, arguments[index], param.nbytes);
    }
}

// Arguments as one block, laid out by the caller.
void take(std::vector<uint8_t>& block, const ptx::Function& code, void** extra) {
    const void* bytes = nullptr;
    size_t nbytes = 0;
    for (; reinterpret_cast<uintptr_t>(*extra) != CU_LAUNCH_PARAM_END; extra += 2) {
        auto key = reinterpret_cast<uintptr_t>(extra[0]);
        need(key == CU_LAUNCH_PARAM_BUFFER_POINTER || key == CU_LAUNCH_PARAM_BUFFER_SIZE);
        if (key == CU_LAUNCH_PARAM_BUFFER_POINTER) bytes = extra[1];
        if (key == CU_LAUNCH_PARAM_BUFFER_SIZE) nbytes = *static_cast<size_t*>(extra[1]);
    }
    size_t needed = code.params.empty() ? 0 : code.params.back().offset + code.params.back().nbytes;
    need(nbytes >= needed && nbytes <= (block.size() + 7) / 8 * 8);
    if (needed) {
        need(bytes != nullptr);
        std::memcpy(block.data(), bytes, std::min(nbytes, block.size()));
    }
}

std::vector<uint8_t> parameters(const ptx::Function& code, void** arguments, void** extra) {
    need(!(arguments && extra));
    std::vector<uint8_t> block(code.params_nbytes);
    if (extra) take(block, code, extra);
    else if (!code.params.empty()) {
        need(arguments != nullptr);
        gather(block, code, arguments);
    }
    return block;
}

CUresult code_of(ptx::Fault fault) {
    switch (fault) {
        case ptx::Fault::None: return SUCCESS;
        case ptx::Fault::OutOfBounds: return ILLEGAL_ADDRESS;
        case ptx::Fault::Misaligned: return MISALIGNED_ADDRESS;
        case ptx::Fault::Trap: return LAUNCH_FAILED;
        case ptx::Fault::Assert: return ASSERT;
        case ptx::Fault::Illegal: return ILLEGAL_INSTRUCTION;
        case ptx::Fault::Deadlock: return LAUNCH_TIMEOUT;  // hardware hangs
        case ptx::Fault::Timeout: return LAUNCH_TIMEOUT;
    }
    return UNKNOWN;
}

// A kernel on the device. A failure that a test wants of "run" is one that comes late.
void execute(const Function& function, const Shape& shape, const std::vector<uint8_t>& params) {
    Context& context = function.module->context;
    if (CUresult wanted = arrived("run")) {
        Lock lock(driver().mutex);
        return fail(context, wanted, function.code->name + ": a failure that was asked for");
    }
    ptx::Launch launch{};
    launch.function = function.code;
    std::copy(shape.grid, shape.grid + 3, launch.grid);
    std::copy(shape.block, shape.block + 3, launch.block);
    launch.dynamic_shared_nbytes = shape.dynamic_shared_nbytes;
    launch.params = params.data();
    launch.schedule = driver().settings.schedule;
    launch.most_instructions = driver().settings.most_instructions;
    auto memory = memory_of(context);
    ptx::Outcome outcome = ptx::run(*function.module->code, launch, *memory);
    if (outcome.fault == ptx::Fault::None) return;
    Lock lock(driver().mutex);
    fail(context, code_of(outcome.fault), function.code->name + ": " + outcome.message);
}

}  // namespace

void launch(Context& context, const char* name, const std::shared_ptr<Function>& function,
            const Shape& shape, CUstream handle, void** arguments, void** extra) {
    auto stream = stream_of(context, handle);
    need(&stream->context == &function->module->context, INVALID_HANDLE);
    check_shape(*function, shape);
    auto params = parameters(*function->code, arguments, extra);
    submit(*stream, {name, [=] { execute(*function, shape, params); }});
}

Task launch_task(Context& context, const std::shared_ptr<Function>& function, const Shape& shape,
                 void** arguments, void** extra) {
    need(&context == &function->module->context, INVALID_HANDLE);
    check_shape(*function, shape);
    auto params = parameters(*function->code, arguments, extra);
    return {Task::Launch, &context, [=] { execute(*function, shape, params); }};
}

}  // namespace sim

using namespace sim;

EXPORT CUresult cuLaunchKernel(CUfunction handle, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                               unsigned block_x, unsigned block_y, unsigned block_z,
                               unsigned dynamic_shared_nbytes, CUstream stream, void** arguments,
                               void** extra) {
    return enter_context("cuLaunchKernel", [&](Context& context, Lock&) {
        Shape shape{{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, dynamic_shared_nbytes};
        auto function = function_at(handle);
        launch(context, "cuLaunchKernel", function, shape, stream, arguments, extra);
    });
}
