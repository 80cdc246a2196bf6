// Entry points: what is known of a kernel, and how many of its blocks fit.
#include <algorithm>

#include "module.h"

namespace sim {

int attribute_of(const Function& function, unsigned attribute) {
    const ptx::Function& code = *function.code;
    int cc = driver().settings.cc_major * 10 + driver().settings.cc_minor;
    switch (attribute) {
        case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: return int(std::min(code.max_threads, 1024u));
        case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: return int(code.shared_nbytes);
        case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES: return 0;
        case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: return int(code.local_nbytes);
        case CU_FUNC_ATTRIBUTE_NUM_REGS: return int(std::clamp(code.registers, 8u, 255u));
        case CU_FUNC_ATTRIBUTE_PTX_VERSION: return cc;
        case CU_FUNC_ATTRIBUTE_BINARY_VERSION: return cc;
        case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA: return 0;
        case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
            return int(function.dynamic_shared_nbytes);
        case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT: return function.carveout;
        default: need(attribute < CU_FUNC_ATTRIBUTE_COUNT); return 0;
    }
}

namespace {

// Registers are declared by the thousand in PTX; a real compiler would fit them into the file.
int registers(const Function& function, int threads) {
    int declared = attribute_of(function, CU_FUNC_ATTRIBUTE_NUM_REGS);
    return std::min(declared, int(REGISTERS_ALL) / std::max(threads, 32));
}

int blocks_at_once(const Function& function, int threads, size_t dynamic_nbytes) {
    if (threads > attribute_of(function, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)) return 0;
    if (dynamic_nbytes > function.dynamic_shared_nbytes) return 0;
    int rounded = (threads + 31) / 32 * 32;
    size_t shared = function.code->shared_nbytes + dynamic_nbytes + SHARED_RESERVED;
    int by_threads = int(THREADS_ALL) / rounded;
    int by_registers = int(REGISTERS_ALL) / (registers(function, rounded) * rounded);
    int by_shared = int(SHARED_ALL / shared);
    return std::min({by_threads, by_registers, by_shared, int(BLOCKS_ALL)});
}

void set_attribute(Function& function, unsigned attribute, int value) {
    switch (attribute) {
        case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
            need(value >= 0 && uint32_t(value) + function.code->shared_nbytes <= SHARED_MOST);
            function.dynamic_shared_nbytes = uint32_t(value);
            return;
        case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
            need(value >= -1 && value <= 100);
            function.carveout = value;
            return;
        default: refuse(INVALID_VALUE);
    }
}

void most_active(Context& context, Lock& lock, int* out, CUfunction handle, int threads,
                 size_t dynamic_nbytes) {
    need(out && threads > 0);
    *out = blocks_at_once(*function_at(lock, context, handle), threads, dynamic_nbytes);
}

// The block that keeps most threads at work; of equals the largest.
void best_block(Context& context, Lock& lock, int* grid, int* block, CUfunction handle,
                CUoccupancyB2DSize shared_of, size_t dynamic_nbytes, int limit) {
    need(grid && block && limit >= 0);
    auto function = function_at(lock, context, handle);
    int most = attribute_of(*function, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    if (limit > 0) most = std::min(most, limit);
    lock.unlock();  // the caller's function may do anything
    int best = 0;
    for (int threads = most; threads > 0; threads -= threads % 32 ? threads % 32 : 32) {
        size_t nbytes = shared_of ? shared_of(threads) : dynamic_nbytes;
        int blocks = blocks_at_once(*function, threads, nbytes);
        if (blocks * threads <= best) continue;
        best = blocks * threads;
        *block = threads;
        *grid = blocks * int(PROCESSORS);
    }
    need(best > 0);
}

}  // namespace
}  // namespace sim

using namespace sim;

EXPORT CUresult cuFuncGetAttribute(int* out, unsigned attribute, CUfunction handle) {
    return enter_context("cuFuncGetAttribute", [&](Context& context, Lock& lock) {
        need(out != nullptr);
        *out = attribute_of(*function_at(lock, context, handle), attribute);
    });
}

EXPORT CUresult cuFuncSetAttribute(CUfunction handle, unsigned attribute, int value) {
    return enter_context("cuFuncSetAttribute", [&](Context& context, Lock& lock) {
        set_attribute(*function_at(lock, context, handle), attribute, value);
    });
}

EXPORT CUresult cuFuncSetCacheConfig(CUfunction handle, int config) {
    return enter_context("cuFuncSetCacheConfig", [&](Context& context, Lock& lock) {
        function_at(lock, context, handle);
        need(config >= 0 && config <= 3);
    });
}

EXPORT CUresult cuFuncSetSharedMemConfig(CUfunction handle, int config) {
    return enter_context("cuFuncSetSharedMemConfig", [&](Context& context, Lock& lock) {
        function_at(lock, context, handle);
        need(config >= 0 && config <= 2);
    });
}

EXPORT CUresult cuFuncGetModule(CUmodule* out, CUfunction handle) {
    return enter_context("cuFuncGetModule", [&](Context& context, Lock& lock) {
        need(out != nullptr);
        *out = function_at(lock, context, handle)->module->handle;
    });
}

EXPORT CUresult cuFuncGetName(const char** out, CUfunction handle) {
    return enter_context("cuFuncGetName", [&](Context& context, Lock& lock) {
        need(out != nullptr);
        *out = function_at(lock, context, handle)->code->name.c_str();
    });
}

EXPORT CUresult cuFuncGetParamInfo(CUfunction handle, size_t index, size_t* offset,
                                   size_t* nbytes) {
    return enter_context("cuFuncGetParamInfo", [&](Context& context, Lock& lock) {
        auto& params = function_at(lock, context, handle)->code->params;
        need(offset && index < params.size());
        *offset = params[index].offset;
        if (nbytes) *nbytes = params[index].nbytes;
    });
}

EXPORT CUresult cuFuncIsLoaded(int* out, CUfunction handle) {
    return enter_context("cuFuncIsLoaded", [&](Context& context, Lock& lock) {
        need(out != nullptr);
        function_at(lock, context, handle);
        *out = 1;
    });
}

EXPORT CUresult cuFuncLoad(CUfunction handle) {
    return enter_context("cuFuncLoad", [&](Context& context, Lock& lock) {
        function_at(lock, context, handle);
    });
}

EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* out, CUfunction handle,
                                                            int threads, size_t dynamic_nbytes) {
    return enter_context("cuOccupancyMaxActiveBlocksPerMultiprocessor",
                         [&](Context& context, Lock& lock) {
                             most_active(context, lock, out, handle, threads, dynamic_nbytes);
                         });
}

EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int* out, CUfunction handle, int threads, size_t dynamic_nbytes, unsigned flags) {
    return enter_context("cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags",
                         [&](Context& context, Lock& lock) {
                             need(flags <= 1);
                             most_active(context, lock, out, handle, threads, dynamic_nbytes);
                         });
}

EXPORT CUresult cuOccupancyMaxPotentialBlockSize(int* grid, int* block, CUfunction handle,
                                                 CUoccupancyB2DSize shared_of,
                                                 size_t dynamic_nbytes, int limit) {
    return enter_context("cuOccupancyMaxPotentialBlockSize", [&](Context& context, Lock& lock) {
        best_block(context, lock, grid, block, handle, shared_of, dynamic_nbytes, limit);
    });
}

EXPORT CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int* grid, int* block, CUfunction handle,
                                                          CUoccupancyB2DSize shared_of,
                                                          size_t dynamic_nbytes, int limit,
                                                          unsigned flags) {
    return enter_context("cuOccupancyMaxPotentialBlockSizeWithFlags",
                         [&](Context& context, Lock& lock) {
                             need(flags <= 1);
                             best_block(context, lock, grid, block, handle, shared_of,
                                        dynamic_nbytes, limit);
                         });
}

EXPORT CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t* out, CUfunction handle, int blocks,
                                                        int threads) {
    return enter_context("cuOccupancyAvailableDynamicSMemPerBlock",
                         [&](Context& context, Lock& lock) {
                             need(out && blocks > 0 && threads > 0);
                             auto function = function_at(lock, context, handle);
                             size_t share = SHARED_ALL / blocks;
                             size_t taken = function->code->shared_nbytes + SHARED_RESERVED;
                             *out = std::min<size_t>(share > taken ? share - taken : 0,
                                                     SHARED_MOST - function->code->shared_nbytes);
                         });
}
