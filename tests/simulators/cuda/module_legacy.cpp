// Entry points: launches as they were before 2011, piece by piece. PyCUDA still makes them.
#include <cstring>

#include "module.h"

using namespace sim;

namespace {

template <class Body>
CUresult with_function(const char* name, CUfunction handle, Body body) {
    return enter_context(name, [&](Context& context, Lock& lock) {
        body(*function_at(lock, context, handle));
    });
}

CUresult set_bytes(const char* name, CUfunction handle, int offset, const void* bytes,
                   unsigned nbytes) {
    return with_function(name, handle, [&](Function& function) {
        need(offset >= 0 && bytes != nullptr);
        size_t end = size_t(offset) + nbytes;
        need(end <= (function.code->params_nbytes + 7u) / 8 * 8);
        if (function.params.size() < end) function.params.resize(end);
        std::memcpy(function.params.data() + offset, bytes, nbytes);
    });
}

CUresult launch_grid(const char* name, CUfunction handle, int width, int height, CUstream stream) {
    return enter_context(name, [&](Context& context, Lock& lock) {
        auto function = function_at(lock, context, handle);
        need(width > 0 && height > 0);
        auto& block = function->block;
        Shape shape{{unsigned(width), unsigned(height), 1},
                    {block[0], block[1], block[2]},
                    function->shared_nbytes};
        size_t nbytes = function->params.size();
        void* extra[] = {reinterpret_cast<void*>(CU_LAUNCH_PARAM_BUFFER_POINTER),
                         function->params.data(),
                         reinterpret_cast<void*>(CU_LAUNCH_PARAM_BUFFER_SIZE), &nbytes,
                         reinterpret_cast<void*>(CU_LAUNCH_PARAM_END)};
        launch(context, name, function, shape, stream, nullptr, extra);
    });
}

}  // namespace

EXPORT CUresult cuFuncSetBlockShape(CUfunction handle, int x, int y, int z) {
    return with_function("cuFuncSetBlockShape", handle, [&](Function& function) {
        need(x > 0 && y > 0 && z > 0 && x <= 1024 && y <= 1024 && z <= 64 && x * y * z <= 1024);
        function.block[0] = unsigned(x);
        function.block[1] = unsigned(y);
        function.block[2] = unsigned(z);
    });
}

EXPORT CUresult cuFuncSetSharedSize(CUfunction handle, unsigned nbytes) {
    return with_function("cuFuncSetSharedSize", handle,
                         [&](Function& function) { function.shared_nbytes = nbytes; });
}

EXPORT CUresult cuParamSetSize(CUfunction handle, unsigned nbytes) {
    return with_function("cuParamSetSize", handle, [&](Function& function) {
        need(nbytes <= (function.code->params_nbytes + 7u) / 8 * 8);
        function.params.resize(nbytes);
    });
}

EXPORT CUresult cuParamSeti(CUfunction handle, int offset, unsigned value) {
    return set_bytes("cuParamSeti", handle, offset, &value, sizeof value);
}

EXPORT CUresult cuParamSetf(CUfunction handle, int offset, float value) {
    return set_bytes("cuParamSetf", handle, offset, &value, sizeof value);
}

EXPORT CUresult cuParamSetv(CUfunction handle, int offset, const void* bytes, unsigned nbytes) {
    return set_bytes("cuParamSetv", handle, offset, bytes, nbytes);
}

EXPORT CUresult cuLaunch(CUfunction handle) {
    return launch_grid("cuLaunch", handle, 1, 1, nullptr);
}

EXPORT CUresult cuLaunchGrid(CUfunction handle, int width, int height) {
    return launch_grid("cuLaunchGrid", handle, width, height, nullptr);
}

EXPORT CUresult cuLaunchGridAsync(CUfunction handle, int width, int height, CUstream stream) {
    return launch_grid("cuLaunchGridAsync", handle, width, height, stream);
}
