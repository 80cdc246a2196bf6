// Carrying out copies, and the entry points for copies of plain ranges.
#include "memory_copy.h"

#include <cstring>

namespace sim {
namespace {

void move(const Side& to, const Side& from, const Box& box) {
    for (uint64_t z = 0; z < box.depth; ++z)
        for (uint64_t y = 0; y < box.height; ++y)
            std::memmove(to.place.bytes + z * to.slice + y * to.row,
                         from.place.bytes + z * from.slice + y * from.row, box.width);
}

// The bytes as they are now; the caller may change its own memory at once.
Side staged(const Side& from, const Box& box, std::shared_ptr<std::vector<uint8_t>>& bytes) {
    bytes = std::make_shared<std::vector<uint8_t>>(box.width * box.height * box.depth);
    Side stage{{nullptr, bytes->data()}, box.width, box.width * box.height};
    move(stage, from, box);
    return stage;
}

}  // namespace

void copy(Lock& lock, Stream& stream, const char* name, Side to, Side from, Box box, bool wait) {
    if (box.empty()) return;
    std::shared_ptr<std::vector<uint8_t>> bytes;
    wait = wait || to.place.pageable();
    if (from.place.pageable() && !wait && !driver().late) from = staged(from, box, bytes);
    Context& context = stream.context;
    Point done = submit(stream, {name, [=, &context] {
                                     if (still_there(to.place, context, name) &&
                                         still_there(from.place, context, name))
                                         move(to, from, box);
                                     (void)bytes;
                                 }});
    if (wait) wait_for(lock, done);
}

}  // namespace sim

using namespace sim;

namespace {

// Copies between two places of the device do not wait even in their synchronous form.
void copy_range(Context& context, Lock& lock, const char* name, Place to, Place from, size_t nbytes,
                CUstream* handle) {
    bool between_devices = to.block && !to.block->on_host() && from.block && !from.block->on_host();
    auto stream = handle ? stream_of(context, *handle) : context.legacy;
    copy(lock, *stream, name, {to}, {from}, {nbytes}, !handle && !between_devices);
}

CUresult to_device(const char* name, CUdeviceptr to, const void* from, size_t nbytes,
                   CUstream* stream = nullptr) {
    return enter_context(name, [&](Context& context, Lock& lock) {
        if (nbytes == 0) return;
        copy_range(context, lock, name, device_place(to, nbytes), host_place(from, nbytes), nbytes,
                   stream);
    });
}

CUresult to_host(const char* name, void* to, CUdeviceptr from, size_t nbytes,
                 CUstream* stream = nullptr) {
    return enter_context(name, [&](Context& context, Lock& lock) {
        if (nbytes == 0) return;
        copy_range(context, lock, name, host_place(to, nbytes), device_place(from, nbytes), nbytes,
                   stream);
    });
}

CUresult on_device(const char* name, CUdeviceptr to, CUdeviceptr from, size_t nbytes,
                   CUstream* stream = nullptr) {
    return enter_context(name, [&](Context& context, Lock& lock) {
        if (nbytes == 0) return;
        Place target = device_place(to, nbytes), source = device_place(from, nbytes);
        need(!target.block->on_host() && !source.block->on_host());
        copy_range(context, lock, name, target, source, nbytes, stream);
    });
}

CUresult anywhere(const char* name, CUdeviceptr to, CUdeviceptr from, size_t nbytes,
                  CUstream* stream = nullptr) {
    return enter_context(name, [&](Context& context, Lock& lock) {
        if (nbytes == 0) return;
        copy_range(context, lock, name, any_place(to, nbytes), any_place(from, nbytes), nbytes,
                   stream);
    });
}

CUresult between(const char* name, CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                 CUcontext from_context, size_t nbytes, CUstream* stream = nullptr) {
    return enter_context(name, [&](Context& context, Lock& lock) {
        Context &receiver = context_of(to_context), &sender = context_of(from_context);
        if (nbytes == 0) return;
        Place target = device_place(to, nbytes), source = device_place(from, nbytes);
        need(target.block->context == &receiver && source.block->context == &sender);
        copy_range(context, lock, name, target, source, nbytes, stream);
    });
}

}  // namespace

EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t nbytes) {
    return to_device("cuMemcpyHtoD", to, from, nbytes);
}

EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t nbytes,
                                     CUstream stream) {
    return to_device("cuMemcpyHtoDAsync", to, from, nbytes, &stream);
}

EXPORT CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t nbytes) {
    return to_host("cuMemcpyDtoH", to, from, nbytes);
}

EXPORT CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t nbytes, CUstream stream) {
    return to_host("cuMemcpyDtoHAsync", to, from, nbytes, &stream);
}

EXPORT CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t nbytes) {
    return on_device("cuMemcpyDtoD", to, from, nbytes);
}

EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t nbytes,
                                     CUstream stream) {
    return on_device("cuMemcpyDtoDAsync", to, from, nbytes, &stream);
}

EXPORT CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t nbytes) {
    return anywhere("cuMemcpy", to, from, nbytes);
}

EXPORT CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t nbytes, CUstream stream) {
    return anywhere("cuMemcpyAsync", to, from, nbytes, &stream);
}

EXPORT CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                             CUcontext from_context, size_t nbytes) {
    return between("cuMemcpyPeer", to, to_context, from, from_context, nbytes);
}

EXPORT CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                                  CUcontext from_context, size_t nbytes, CUstream stream) {
    return between("cuMemcpyPeerAsync", to, to_context, from, from_context, nbytes, &stream);
}
