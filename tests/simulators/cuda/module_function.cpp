// Entry points: what is known of a kernel.
#include <algorithm>

#include "module.h"

namespace sim {
namespace {

int attribute_of(const Function& function, unsigned attribute) {
    const ptx::Function& code = *function.code;
    int cc = driver().settings.cc_major * 10 + driver().settings.cc_minor;
    switch (attribute) {
        case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: return int(std::min(code.max_threads, 1024u));
        case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: return int(code.shared_nbytes);
        case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: return int(code.local_nbytes);
        case CU_FUNC_ATTRIBUTE_NUM_REGS: return int(std::clamp(code.registers, 8u, 255u));
        case CU_FUNC_ATTRIBUTE_PTX_VERSION: return cc;
        case CU_FUNC_ATTRIBUTE_BINARY_VERSION: return cc;
        case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
            return int(function.dynamic_shared_nbytes);
        default: need(attribute < CU_FUNC_ATTRIBUTE_COUNT); return 0;
    }
}

void set_attribute(Function& function, unsigned attribute, int value) {
    need(attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
    need(value >= 0 && uint32_t(value) + function.code->shared_nbytes <= SHARED_MOST);
    function.dynamic_shared_nbytes = uint32_t(value);
}

}  // namespace
}  // namespace sim

using namespace sim;

EXPORT CUresult cuFuncGetAttribute(int* out, unsigned attribute, CUfunction handle) {
    return enter_context("cuFuncGetAttribute", [&](Context&, Lock&) {
        need(out != nullptr);
        *out = attribute_of(*function_at(handle), attribute);
    });
}

EXPORT CUresult cuFuncSetAttribute(CUfunction handle, unsigned attribute, int value) {
    return enter_context("cuFuncSetAttribute", [&](Context&, Lock&) {
        set_attribute(*function_at(handle), attribute, value);
    });
}
